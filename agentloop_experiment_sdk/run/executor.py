"""The engines that run attempts: attempts in, results out.

``ThreadEngine`` calls sync solutions on daemon threads, ``CallerEngine`` in the thread that called
the SDK, ``LoopEngine`` runs async solutions on an event loop. An engine only calls the solution;
what becomes of a result is the business of the flow that reads ``Outlet``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import heapq
import itertools
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, List, Optional, Protocol, Tuple

from ..models import Attempt, Result
from .invoke import Call, CallFacts, invoke, invoke_async
from .loop import PROCESS_LOOP, Heartbeat, awaiter


@dataclass(frozen=True)
class Outlet:
    """Where an engine puts what comes out; called from any thread, so both must be quick.

    ``result`` gets a finished attempt. ``dropped`` gets an attempt that the run's own stop ended
    (an error of None), or one whose end must stop the run.
    """

    result: Callable[[Result], None]
    dropped: Callable[[Attempt, Optional[BaseException]], None]


class Engine(Protocol):
    """Runs attempts, at most ``n_workers`` at once."""

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt; it starts when a worker is free."""
        ...

    def assist(self, finished: threading.Event) -> None:
        """Lend the calling thread until ``finished``: to work in, or just to wait."""
        ...

    def stop(self) -> None:
        """Start nothing new, and end what can be ended; does not wait."""
        ...

    def close(self) -> None:
        """The last result is in: let the workers go."""
        ...


class CallerEngine:
    """Serial: attempts run in the thread that called the SDK, one after the other."""

    def __init__(self, facts: CallFacts, outlet: Outlet) -> None:
        self._facts = facts
        self._outlet = outlet
        self._due: queue.SimpleQueue[Optional[Attempt]] = queue.SimpleQueue()
        self._stopping = False
        self._await = awaiter(lambda: PROCESS_LOOP.get(1), self._watch)
        self._call: Optional[Call] = None

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt."""
        self._due.put(attempt)

    def assist(self, finished: threading.Event) -> None:
        """Run attempts here until the run closes the engine."""
        while not finished.is_set():
            try:
                attempt = self._due.get(timeout=0.2)
            except queue.Empty:
                continue
            if attempt is None:
                break
            self._run(attempt)
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new."""
        self._stopping = True
        call = self._call
        if call is not None:
            call.scope.cancel()

    def close(self) -> None:
        """Release the calling thread."""
        self._due.put(None)

    def _run(self, attempt: Attempt) -> None:
        if self._stopping:
            self._outlet.dropped(attempt, None)
            return
        self._call = call = Call(self._facts, attempt)
        try:
            # a copy, so that one row's context variables do not leak into the next
            context = contextvars.copy_context()
            result = context.run(invoke, call, self._facts.solution, self._await)
        except KeyboardInterrupt:
            call.claim()
            self._outlet.dropped(attempt, None)
            raise
        finally:
            self._call = None
        _hand_over(self._outlet, call, result)

    def _watch(self, future: concurrent.futures.Future[Any]) -> None:
        call = self._call
        if call is not None:
            _cancel_with(call, future)


class ThreadEngine:
    """Sync solutions on our own daemon threads, made as they are needed.

    Args:
        facts: What to call.
        outlet: Where results go.
        n_workers: How many attempts run at once.
        task_timeout: Seconds after which an attempt fails; its thread is then left behind and
            replaced. More than ``n_workers`` threads left behind end the run.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        facts: CallFacts,
        outlet: Outlet,
        n_workers: int,
        task_timeout: Optional[float] = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._outlet = outlet
        self._n_workers = n_workers
        self._due: queue.SimpleQueue[Optional[Attempt]] = queue.SimpleQueue()
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._queued = 0
        self._idle = 0
        self._alive = 0
        self._running: Dict[int, Call] = {}
        self._left_behind = 0
        self._stopping = False
        self._deadlines = _Deadlines(task_timeout, self._expire, clock) if task_timeout else None

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt; a thread is started if none is idle and the limit allows it."""
        with self._lock:
            self._queued += 1
            start = self._queued > self._idle and self._alive < self._n_workers
            if start:
                self._alive += 1
        self._due.put(attempt)
        if start:
            self._start_thread()

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; cancel the calls that know how to end."""
        with self._lock:
            self._stopping = True
            running = list(self._running.values())
        for call in running:
            call.scope.cancel()

    def close(self) -> None:
        """End the idle threads, and the others after their attempt."""
        if self._deadlines is not None:
            self._deadlines.close()
        for _ in range(self._alive):
            self._due.put(None)

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="agentloop-worker", daemon=True).start()

    def _work(self) -> None:
        while True:
            attempt = self._take()
            if attempt is None or not self._run(attempt):
                return

    def _take(self) -> Optional[Attempt]:
        with self._lock:
            self._idle += 1
        attempt = self._due.get()
        with self._lock:
            self._idle -= 1
            if attempt is not None:
                self._queued -= 1
        return attempt

    def _run(self, attempt: Attempt) -> bool:
        """Run one attempt; False when this thread was given up meanwhile."""
        if self._stopping:
            self._outlet.dropped(attempt, None)
            return True
        call = Call(self._facts, attempt)
        with self._lock:
            self._running[id(call)] = call
        if self._deadlines is not None:
            self._deadlines.add(call)
        await_in_loop = awaiter(
            lambda: PROCESS_LOOP.get(self._n_workers), lambda future: _cancel_with(call, future)
        )
        try:
            result = self._context.copy().run(invoke, call, self._facts.solution, await_in_loop)
        except KeyboardInterrupt as error:
            call.claim()
            self._outlet.dropped(attempt, error)
            return True
        finally:
            with self._lock:
                self._running.pop(id(call), None)
        return _hand_over(self._outlet, call, result)

    def _expire(self, call: Call, seconds: float) -> None:
        if not call.claim():
            return
        with self._lock:
            self._left_behind += 1
            too_many = self._left_behind > self._n_workers
        call.scope.cancel()
        self._outlet.result(call.timed_out(seconds))
        if too_many:
            self._outlet.dropped(call.attempt, _stuck(self._left_behind))
        else:
            self._start_thread()


class LoopEngine:
    """Async solutions on an event loop; no thread per attempt.

    Args:
        facts: What to call.
        outlet: Where results go.
        n_workers: How many attempts run at once.
        task_timeout: Seconds after which an attempt fails and is cancelled.
        loop: The loop of a caller who awaits the run; by default the process's own.
    """

    def __init__(
        self,
        facts: CallFacts,
        outlet: Outlet,
        n_workers: int,
        task_timeout: Optional[float] = None,
        loop: Optional[asyncio.AbstractEventLoop] = None,
    ) -> None:
        self._facts = facts
        self._outlet = outlet
        self._n_workers = n_workers
        self._task_timeout = task_timeout
        self._loop = loop or PROCESS_LOOP.get(n_workers)
        self._context = contextvars.copy_context()
        self._due: Deque[Attempt] = deque()
        self._running: Dict[asyncio.Task[Any], Call] = {}
        self._stopping = False
        self._heartbeat = Heartbeat(self._loop)
        self._heartbeat.start()

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt."""
        self._post(self._arrived, attempt)

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; cancel what runs."""
        self._post(self._stop)

    def close(self) -> None:
        """Stop watching the loop; the loop itself goes on."""
        self._heartbeat.stop()

    def _post(self, action: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(action, *args)
        except RuntimeError as error:
            # the caller's loop was closed under the run
            for attempt in args:
                self._outlet.dropped(attempt, error)

    def _arrived(self, attempt: Attempt) -> None:
        if self._stopping:
            self._outlet.dropped(attempt, None)
        elif len(self._running) < self._n_workers:
            self._begin(attempt)
        else:
            self._due.append(attempt)

    def _begin(self, attempt: Attempt) -> None:
        self._context.copy().run(self._begin_in_context, attempt)

    def _begin_in_context(self, attempt: Attempt) -> None:
        call = Call(self._facts, attempt)
        task = self._loop.create_task(self._run(call))
        task.set_name("row {} repeat {}".format(attempt.task.id, attempt.repeat_id))
        self._running[task] = call
        task.add_done_callback(self._ended)
        if self._task_timeout is not None:
            self._loop.call_later(self._task_timeout, self._expire, call, task)

    async def _run(self, call: Call) -> None:
        _hand_over(self._outlet, call, await invoke_async(call, self._facts.solution))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        call = self._running.pop(task)
        error = None if task.cancelled() else task.exception()
        if call.claim():
            # cancelled before its first step, or ended by a KeyboardInterrupt
            self._outlet.dropped(call.attempt, error)
        if self._due and not self._stopping:
            self._begin(self._due.popleft())

    def _expire(self, call: Call, task: asyncio.Task[Any]) -> None:
        if task.done() or not call.claim():
            return
        assert self._task_timeout is not None
        self._outlet.result(call.timed_out(self._task_timeout))
        call.scope.cancel()
        task.cancel()

    def _stop(self) -> None:
        self._stopping = True
        while self._due:
            self._outlet.dropped(self._due.popleft(), None)
        for task, call in list(self._running.items()):
            call.scope.cancel()
            task.cancel()


class _Deadlines:
    """One thread that calls ``expire(call, seconds)`` for each call past its deadline."""

    def __init__(
        self, seconds: float, expire: Callable[[Call, float], None], clock: Callable[[], float]
    ) -> None:
        self._seconds = seconds
        self._expire = expire
        self._clock = clock
        self._heap: List[Tuple[float, int, Call]] = []
        self._serial = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._watch, name="agentloop-deadlines", daemon=True).start()

    def add(self, call: Call) -> None:
        """Watch a call that begins now."""
        with self._changed:
            heapq.heappush(self._heap, (self._clock() + self._seconds, next(self._serial), call))
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            call = self._next()
            if call is None:
                return
            self._expire(call, self._seconds)

    def _next(self) -> Optional[Call]:
        with self._changed:
            while not self._closed:
                pause = self._heap[0][0] - self._clock() if self._heap else None
                if pause is not None and pause <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(pause)
            return None


def wait_for(finished: threading.Event) -> None:
    """Wait in slices, so that Ctrl-C is seen on every platform."""
    while not finished.wait(0.2):
        pass


def _hand_over(outlet: Outlet, call: Call, result: Result) -> bool:
    """Pass a result on unless someone else has ended the attempt; False then."""
    if not call.claim():
        return False
    if call.was_stopped and not result.output.success:
        outlet.dropped(call.attempt, None)
    else:
        outlet.result(result)
    return True


def _cancel_with(call: Call, future: concurrent.futures.Future[Any]) -> None:
    """Cancel what a sync solution awaits on the loop when its attempt is cancelled."""
    guard = call.scope.on_cancel(future.cancel)
    guard.__enter__()
    future.add_done_callback(lambda _: guard.__exit__(None, None, None))


def _stuck(count: int) -> BaseException:
    from ..errors import RunAbortedError

    return RunAbortedError(
        "{} rows ran past task_timeout and do not end, as many as there are workers. Give the "
        "solution its own timeout, then run again: rows that are done are kept.".format(count),
        code="TooManyStuckRows",
    )
