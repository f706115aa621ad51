"""The engine over a given ``concurrent.futures.Executor``: process pools, MPI, Dask."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Deque, Dict, Optional, Protocol, Set, Tuple

from ..errors import ExperimentError
from ..models import Attempt, Result, SolutionOutput
from ..results.journal import Key
from ..solutions.call import failure_from
from .cluster import Cluster, broken
from .deadlines import too_many_stuck
from .engine import Outlet, wait_for
from .remote import Reply, run_parcel

_LOST_TRIES = 3


class Submitter(Protocol):
    """Where an executor is given its calls."""

    def call(self, action: Callable[[], None]) -> None:
        """Have something called, in order."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class SubmitThread:
    """A thread that submits: an executor may hold its own lock while it calls back.

    ``ProcessPoolExecutor`` does when it breaks, from Python 3.13 on: to submit from the callback
    of a future would wait for ever.
    """

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="agentloop-submit", daemon=True).start()

    def call(self, action: Callable[[], None]) -> None:
        """Have something called on the thread."""
        self._due.put(action)

    def close(self) -> None:
        """End the thread once all is called."""
        self._due.put(None)

    def _work(self) -> None:
        for action in iter(self._due.get, None):
            action()


class PoolEngine:
    """Attempts on the workers of an executor.

    An attempt under which workers died runs once more, with nothing else in flight: if a worker
    dies again, the attempt is why, and has failed.

    Args:
        cluster: The executor, made ready.
        record_id: Of the run.
        outlet: Where results go.
        at_once: How many attempts the executor holds at a time.
        submitter: Where the executor is given its calls; by default a thread of the engine's own.
    """

    def __init__(
        self,
        cluster: Cluster,
        record_id: str,
        outlet: Outlet,
        at_once: int,
        submitter: Optional[Submitter] = None,
    ) -> None:
        self._cluster = cluster
        self._record_id = record_id
        self._outlet = outlet
        self._at_once = at_once
        self._submitter = submitter or SubmitThread()
        self._lock = threading.Lock()
        self._due: Deque[Attempt] = deque()
        self._to_isolate: Deque[Attempt] = deque()
        self._running: Dict[Key, Tuple[Attempt, Optional[Future[Any]]]] = {}
        self._isolated: Optional[Key] = None
        self._lost: Dict[Key, int] = {}
        self._kit_wanted: Set[Key] = set()
        self._is_broken = False
        self._stopping = False

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt."""
        with self._lock:
            suspect = attempt.key in self._cluster.suspects
            (self._to_isolate if suspect else self._due).append(attempt)
        self._submitter.call(self._begin)

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; tell the workers, and cancel what has not begun."""
        with self._lock:
            self._stopping = True
            due = [*self._due, *self._to_isolate]
            self._due.clear()
            self._to_isolate.clear()
            running = [future for _, future in self._running.values() if future is not None]
        self._cluster.tell_stop()
        for attempt in due:
            self._outlet.dropped(attempt, None)
        if not self._cluster.cancels_running:
            for future in running:
                future.cancel()

    def close(self) -> None:
        """The executor belongs to the caller and stays open; what still runs is given up."""
        with self._lock:
            running = [future for _, future in self._running.values() if future is not None]
        if running:
            self._cluster.cancel_begun(running)
        self._cluster.dismiss()
        self._submitter.close()

    def _begin(self) -> None:
        """Send attempts for as long as there is room."""
        for attempt in iter(self._take, None):
            self._send(attempt)

    def _take(self) -> Optional[Attempt]:
        with self._lock:
            if self._stopping or self._isolated is not None:
                return None
            if self._due:
                if len(self._running) >= self._at_once:
                    return None
                attempt = self._due.popleft()
            elif self._to_isolate and not self._running:
                attempt = self._to_isolate.popleft()
                self._isolated = attempt.key
            else:
                return None
            # counted before it is sent: a quick worker may be done before submit returns
            self._running[attempt.key] = (attempt, None)
            return attempt

    def _send(self, attempt: Attempt) -> None:
        with self._lock:
            with_kit = attempt.key in self._kit_wanted
            self._kit_wanted.discard(attempt.key)
        try:
            parcel = self._cluster.parcel(attempt, self._record_id, with_kit)
            future = self._cluster.submit(run_parcel, parcel)
        except Exception as error:
            self._forget(attempt)
            if isinstance(error, concurrent.futures.BrokenExecutor):
                self._note_break()
            self._outlet.dropped(attempt, broken(error))
            return
        with self._lock:
            self._running[attempt.key] = (attempt, future)
        future.add_done_callback(lambda ended: self._ended(attempt, ended))

    def _forget(self, attempt: Attempt) -> None:
        with self._lock:
            del self._running[attempt.key]
            if self._isolated == attempt.key:
                self._isolated = None

    def _ended(self, attempt: Attempt, future: Future[Any]) -> None:
        alone = _is_break(future) and self._note_break()
        self._forget(attempt)
        error = _error_of(future)
        if error is None:
            self._take_reply(attempt, future.result())
        elif self._stopping:
            self._outlet.dropped(attempt, None)
        elif isinstance(error, concurrent.futures.BrokenExecutor):
            if alone:
                self._outlet.result(_worker_lost(attempt))
            else:
                self._outlet.dropped(attempt, broken(error))
        else:
            self._failed(attempt, error)
        self._submitter.call(self._begin)

    def _take_reply(self, attempt: Attempt, reply: Optional[Reply]) -> None:
        if reply is None:
            with self._lock:
                self._kit_wanted.add(attempt.key)
            self._again(attempt)
        elif reply.stopped and not reply.output.success:
            self._outlet.dropped(attempt, None)
        elif reply.left_behind > self._at_once:
            self._outlet.dropped(attempt, too_many_stuck(self._at_once))
        else:
            with self._lock:
                self._cluster.suspects.discard(attempt.key)
            self._outlet.result(reply.result(attempt))

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        """The worker, or the way to it, failed; what a solution raises comes as an answer."""
        if isinstance(error, (ExperimentError, KeyboardInterrupt)):
            self._outlet.dropped(attempt, error)
        elif type(error).__name__ == "KilledWorker":
            self._isolate(attempt)
        elif _is_lost(error):
            if self._may_try_again(attempt):
                self._again(attempt)
            else:
                self._outlet.dropped(attempt, broken(error))
        else:
            self._outlet.result(_result(attempt, failure_from(error)))

    def _isolate(self, attempt: Attempt) -> None:
        """Dask gave a row up because workers died under it, and perhaps under its neighbour."""
        with self._lock:
            tried = attempt.key in self._cluster.suspects
            self._cluster.suspects.add(attempt.key)
        if tried:
            self._outlet.result(_worker_lost(attempt))
        else:
            self._again(attempt)

    def _again(self, attempt: Attempt) -> None:
        """Put an attempt in line once more; a stopped run drops it instead."""
        with self._lock:
            stopping = self._stopping
            if not stopping:
                suspect = attempt.key in self._cluster.suspects
                (self._to_isolate if suspect else self._due).appendleft(attempt)
        if stopping:
            self._outlet.dropped(attempt, None)

    def _may_try_again(self, attempt: Attempt) -> bool:
        with self._lock:
            self._lost[attempt.key] = self._lost.get(attempt.key, 0) + 1
            return self._lost[attempt.key] < _LOST_TRIES

    def _note_break(self) -> bool:
        """Note what was in flight when a pool broke; whether that was one attempt alone."""
        with self._lock:
            first = not self._is_broken and not self._stopping
            self._is_broken = True
            if first:
                self._cluster.suspects.update(self._running)
            return first and len(self._running) == 1


def _is_break(future: Future[Any]) -> bool:
    return isinstance(_error_of(future), concurrent.futures.BrokenExecutor)


def _error_of(future: Future[Any]) -> Optional[BaseException]:
    if future.cancelled():
        return concurrent.futures.CancelledError("the executor cancelled the row")
    return future.exception()


def _is_lost(error: BaseException) -> bool:
    """Whether the call went lost on its way, through no fault of the row."""
    lost = isinstance(error, concurrent.futures.CancelledError)
    return lost or type(error).__name__ in ("FutureCancelledError", "CommClosedError")


def _worker_lost(attempt: Attempt) -> Result:
    message = (
        "the worker process died while it ran this row and no other; too little memory, a crash in "
        "native code and os._exit are common causes, see the worker's own output"
    )
    return _result(attempt, SolutionOutput.failure("WorkerLost", message))


def _result(attempt: Attempt, output: SolutionOutput) -> Result:
    now = int(time.time() * 1000)
    return Result(attempt, output, now, now, 0.0)
