"""The engine over a given ``concurrent.futures.Executor``: process pools, MPI, Dask."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Executor, Future
from typing import Any, Callable, Deque, Dict, Optional

from ..errors import ConfigurationError, RunAbortedError
from ..models import Attempt, SolutionOutput
from ..solutions.call import failure_from
from .engine import Outlet, wait_for
from .invoke import CallFacts
from .remote import Answered, Parcel, StopFile, StopSignal, pickled, ready, run_parcel

_LOST_TRIES = 3


class PoolEngine:
    """Attempts on the workers of an executor.

    Args:
        solution: The user's solution, picklable.
        facts: What goes with each call.
        outlet: Where results go.
        executor: Runs the calls.
        at_once: How many attempts the executor holds at a time.
        task_timeout: Seconds after which an attempt fails.
    """

    def __init__(
        self,
        solution: Any,
        facts: CallFacts,
        outlet: Outlet,
        executor: Executor,
        at_once: int,
        task_timeout: Optional[float] = None,
    ) -> None:
        self._facts = facts
        self._outlet = outlet
        self._executor = executor
        self._at_once = at_once
        self._task_timeout = task_timeout
        self._digest, self._solution = pickled(solution)
        self._stop_signal, self._raise_signal = _stop_signal(executor)
        self._lock = threading.Lock()
        self._due: Deque[Attempt] = deque()
        self._running: Dict[Future[Any], Attempt] = {}
        self._lost: Dict[Any, int] = {}
        self._stopping = False
        warm_up(executor, at_once)

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt."""
        with self._lock:
            self._due.append(attempt)
        self._begin_next()

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; tell the workers, and cancel what has not begun."""
        with self._lock:
            self._stopping = True
            due, self._due = list(self._due), deque()
            running = list(self._running)
        self._raise_signal()
        for attempt in due:
            self._outlet.dropped(attempt, None)
        for future in running:
            future.cancel()

    def close(self) -> None:
        """The executor belongs to the caller and stays open."""
        self._raise_signal()

    def _begin_next(self) -> None:
        with self._lock:
            if self._stopping or not self._due or len(self._running) >= self._at_once:
                return
            attempt = self._due.popleft()
            # counted before it is submitted: a quick worker may be done before submit returns
            place: Future[Any] = Future()
            self._running[place] = attempt
        try:
            future = self._executor.submit(run_parcel, self._parcel(attempt))
        except Exception as error:
            with self._lock:
                self._running.pop(place, None)
            self._outlet.dropped(attempt, _broken(error))
            return
        with self._lock:
            self._running.pop(place, None)
            self._running[future] = attempt
        future.add_done_callback(self._ended)

    def _parcel(self, attempt: Attempt) -> Parcel:
        return Parcel(
            self._digest,
            self._solution,
            attempt,
            self._facts.record_id,
            self._facts.extra,
            self._stop_signal,
            self._task_timeout,
        )

    def _ended(self, future: Future[Any]) -> None:
        with self._lock:
            attempt = self._running.pop(future)
        self._settle(future, attempt)
        self._begin_next()

    def _settle(self, future: Future[Any], attempt: Attempt) -> None:
        if future.cancelled():
            self._outlet.dropped(attempt, None)
            return
        error = future.exception()
        if error is not None:
            self._failed(attempt, error)
            return
        answered: Answered = future.result()
        if answered.stopped and not answered.output.success:
            self._outlet.dropped(attempt, None)
        else:
            self._outlet.result(answered.result(attempt))

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        """The call itself raised nothing: the worker, or the way to or from it, failed."""
        if self._stopping or isinstance(error, concurrent.futures.CancelledError):
            self._outlet.dropped(attempt, None)
        elif isinstance(error, concurrent.futures.BrokenExecutor):
            self._outlet.dropped(attempt, _broken(error))
        elif _is_lost_worker(error) and self._may_try_again(attempt):
            with self._lock:
                self._due.appendleft(attempt)
        else:
            self._outlet.result(_failure(error).result(attempt))

    def _may_try_again(self, attempt: Attempt) -> bool:
        with self._lock:
            self._lost[attempt.key] = self._lost.get(attempt.key, 0) + 1
            return self._lost[attempt.key] < _LOST_TRIES


def as_executor(given: Any) -> Executor:
    """The executor that the ``executor`` option names: itself, or that of a Dask client.

    Raises:
        ConfigurationError: It is neither.
    """
    if hasattr(given, "get_executor"):
        given = given.get_executor()
    if not isinstance(given, Executor):
        raise ConfigurationError(
            "executor must be a concurrent.futures.Executor or a distributed.Client, not "
            "{!r}.".format(given)
        )
    return given


def size_of(executor: Executor, default: int) -> int:
    """How many calls an executor runs at once, as far as it tells; else ``default``."""
    for name in ("_max_workers", "num_workers"):
        size = getattr(executor, name, None)
        if isinstance(size, int) and size > 0:
            return size
    client = _dask_client(executor)
    if client is not None:
        return sum(client.nthreads().values()) or default
    return default


def warm_up(executor: Executor, at_once: int) -> None:
    """Start a process pool's processes before our threads run: a fork must not copy them.

    Raises:
        RunAbortedError: The pool cannot start its workers.
    """
    if not isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return
    try:
        list(executor.map(ready, [0.05] * at_once))
    except concurrent.futures.BrokenExecutor as error:
        raise _broken(error) from error


def check_main_guard() -> None:
    """Refuse a run that a spawned child started by importing its parent's script.

    Raises:
        ConfigurationError: The script lacks a main guard.
    """
    module = sys.modules.get("multiprocessing.process")
    if module is not None and getattr(module.current_process(), "_inheriting", False):
        raise ConfigurationError(
            "A worker process imported your script and started the experiment again. Put the run "
            'under: if __name__ == "__main__":'
        )


def _stop_signal(executor: Executor) -> Any:
    """A signal that reaches the workers, and the function that raises it."""
    client = _dask_client(executor)
    if client is not None:
        return _dask_signal(client)
    handle, path = tempfile.mkstemp(prefix="agentloop-run-")
    os.close(handle)
    signal: StopSignal = StopFile(path)

    def remove() -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    return signal, remove


def _dask_client(executor: Any) -> Any:
    """The client behind a Dask executor, or None for another one."""
    module = type(executor).__module__ or ""
    return getattr(executor, "_client", None) if module.startswith("distributed") else None


def _dask_signal(client: Any) -> Any:
    from distributed import Event

    event = Event("agentloop-stop-" + uuid.uuid4().hex, client=client)
    raise_signal: Callable[[], Any] = event.set
    return event, raise_signal


def _is_lost_worker(error: BaseException) -> bool:
    """Dask's word for a worker that died under a call."""
    return type(error).__name__ in ("KilledWorker", "FutureCancelledError", "CommClosedError")


def _broken(error: BaseException) -> RunAbortedError:
    failure = RunAbortedError(
        "The executor lost a worker and cannot go on: {}. A solution that crashes its process, or "
        "too little memory, are common causes. Run again: rows that are done are kept.".format(
            error
        ),
        code="ExecutorBroken",
    )
    failure.__cause__ = error
    return failure


def _failure(error: BaseException) -> Answered:
    now = int(time.time() * 1000)
    output: SolutionOutput = failure_from(error)
    return Answered(output, now, now, 0.0, None, False)
