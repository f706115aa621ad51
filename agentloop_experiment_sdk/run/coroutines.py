"""The async engine: async solutions on an event loop, no thread per row."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Set

from ..models import Attempt, Result, SolutionOutput
from .deadlines import Deadlines, end_late
from .engine import Outlet, hand_over, wait_for
from .invoke import Call, CallFacts, invoke_async
from .loop import PROCESS_LOOP, Heartbeat, call_on

_CLOSED = "The event loop of the run was closed."


class LoopEngine:
    """Async solutions on an event loop; no thread per attempt.

    A row may cancel itself (time-outs and task groups do) or others, and then has failed. The
    caller of ``arun`` may cancel what awaits it; ``asyncio.run`` cancels every task of its loop at
    Ctrl-C before Python 3.11. Then the row did not fail: the run is over.

    Args:
        facts: What to call.
        outlet: Where results go.
        n_workers: How many attempts run at once.
        task_timeout: Seconds after which an attempt fails and is cancelled. More than ``n_workers``
            attempts that do not end when cancelled, end the run.
        loop: The loop of a caller who awaits the run; by default the process's own.
        is_over: Whether that caller was cancelled.
    """

    def __init__(
        self,
        facts: CallFacts,
        outlet: Outlet,
        n_workers: int,
        task_timeout: Optional[float] = None,
        loop: Optional[asyncio.AbstractEventLoop] = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._facts = facts
        self._outlet = outlet
        self._n_workers = n_workers
        self._loop = loop or PROCESS_LOOP.get(n_workers)
        self._loop_is_the_callers = loop is not None
        self._is_over = is_over
        self._context = contextvars.copy_context()
        self._due: Deque[Attempt] = deque()
        self._running: Dict[Call, asyncio.Task[Any]] = {}
        self._lock = threading.Lock()
        self._left_behind: Set[Call] = set()
        self._stopping = False
        self._deadlines = Deadlines(task_timeout, self._expire) if task_timeout else None
        self._heartbeat = Heartbeat(self._loop, closed=self._loop_closed)
        self._heartbeat.start()

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt."""
        if not call_on(self._loop, self._arrived, attempt):
            self._outlet.dropped(attempt, RuntimeError(_CLOSED))

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; cancel what runs."""
        call_on(self._loop, self._stop)

    def close(self) -> None:
        """Stop watching the loop; the loop itself goes on."""
        self._heartbeat.stop()
        if self._deadlines is not None:
            self._deadlines.close()

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
        self._running[call] = task
        task.add_done_callback(lambda ended: self._ended(call, ended))
        if self._deadlines is not None:
            self._deadlines.add(call)

    async def _run(self, call: Call) -> None:
        result = await invoke_async(call, self._facts.solution)
        if self._loop_is_the_callers and not result.output.success:
            await asyncio.sleep(0)  # a caller who was cancelled in the same turn is heard first
        self._hand_over(call, result)

    def _hand_over(self, call: Call, result: Result) -> None:
        is_over = self._loop_is_the_callers and self._is_over()
        if is_over and not result.output.success and call.claim():
            self._outlet.dropped(call.attempt, None)
            self._stop()
        else:
            hand_over(self._outlet, call, result)

    def _ended(self, call: Call, task: asyncio.Task[Any]) -> None:
        if task.cancelled() and not call.was_stopped:
            self._loop.call_soon(self._was_cancelled, call)  # after the caller, as above
            return
        if call.claim():
            # stopped before its first step, or ended by a KeyboardInterrupt
            error = None if task.cancelled() else task.exception()
            self._outlet.dropped(call.attempt, error)
            if error is not None:
                self._stop()  # at once: the flow's word comes too late for the next row
        self._forget(call)

    def _was_cancelled(self, call: Call) -> None:
        """Something outside the run cancelled a row, as a rule before its first step."""
        message = "something that is not part of the run cancelled the row"
        self._hand_over(call, call.result(SolutionOutput.failure("CancelledError", message)))
        self._forget(call)

    def _forget(self, call: Call) -> None:
        if self._deadlines is not None:
            self._deadlines.forget(call)
        with self._lock:
            self._left_behind.discard(call)
        if self._running.pop(call, None) is not None:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._due and not self._stopping:
            self._begin(self._due.popleft())

    def _expire(self, call: Call, seconds: float) -> None:
        """On the thread of the deadlines: the loop may be blocked by this very call."""
        with self._lock:
            # in one step: a call that ends meanwhile must find itself among those left behind
            if not call.claim():
                return
            self._left_behind.add(call)
            stuck = len(self._left_behind)
        end_late(self._outlet, call, seconds, stuck, self._n_workers)
        call_on(self._loop, self._give_up, call)

    def _give_up(self, call: Call) -> None:
        """Cancel an attempt past its deadline; whether or not it ends, its slot is free."""
        task = self._running.pop(call, None)
        if task is not None:
            task.cancel()
            self._begin_next()

    def _loop_closed(self) -> None:
        """Nothing of what waits there will ever end."""
        running = [call.attempt for call in list(self._running) if call.claim()]
        for attempt in [*running, *self._due]:
            self._outlet.dropped(attempt, RuntimeError(_CLOSED))

    def _stop(self) -> None:
        self._stopping = True
        while self._due:
            self._outlet.dropped(self._due.popleft(), None)
        for call, task in list(self._running.items()):
            call.scope.cancel()
            task.cancel()
