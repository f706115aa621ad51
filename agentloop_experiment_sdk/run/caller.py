"""The serial engine: sync solutions in the thread that called the SDK."""

from __future__ import annotations

import contextvars
import queue
import threading
from typing import Callable, Optional

from ..models import Attempt
from .engine import Outlet, hand_over, queued, wait_for
from .invoke import Call, CallFacts, invoke
from .loop import PROCESS_LOOP, awaiter


class CallerEngine:
    """Serial: attempts run in the thread that called the SDK, one after the other.

    Args:
        facts: What to call.
        outlet: Where results go.
        is_over: Whether the run was ended; known here before ``stop`` is called, so that a row
            that swallows the signal of a person is the last one.
    """

    def __init__(
        self, facts: CallFacts, outlet: Outlet, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._facts = facts
        self._outlet = outlet
        self._due: queue.SimpleQueue[Optional[Attempt]] = queue.SimpleQueue()
        self._is_over = is_over
        self._stopping = False
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
        for attempt in queued(self._due):
            self._outlet.dropped(attempt, None)
        call = self._call
        if call is not None:
            call.scope.cancel()

    def close(self) -> None:
        """Release the calling thread."""
        self._due.put(None)

    def _run(self, attempt: Attempt) -> None:
        self._call = call = Call(self._facts, attempt)
        # only now: stop() sets the one and then cancels the other
        if self._stopping or self._is_over():
            self._call = None
            self._outlet.dropped(attempt, None)
            return
        try:
            # a copy, so that one row's context variables do not leak into the next
            context = contextvars.copy_context()
            await_in_loop = awaiter(lambda: PROCESS_LOOP.get(1), call.scope.on_cancel)
            result = context.run(invoke, call, self._facts.solution, await_in_loop)
        except KeyboardInterrupt:
            call.claim()
            self._outlet.dropped(attempt, None)
            raise
        finally:
            self._call = None
        hand_over(self._outlet, call, result)
