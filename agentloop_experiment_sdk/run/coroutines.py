"""The async engine: async solutions on an event loop, no thread per row."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

from ..models import Attempt
from .engine import Outlet, hand_over, wait_for
from .invoke import Call, CallFacts, invoke_async
from .loop import PROCESS_LOOP, Heartbeat


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
        hand_over(self._outlet, call, await invoke_async(call, self._facts.solution))

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
