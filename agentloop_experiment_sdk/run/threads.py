"""The threaded engine: sync solutions on daemon threads, with an optional deadline a row."""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
import time
from typing import Callable, Dict, Optional

from ..models import Attempt
from .deadlines import Deadlines, end_late
from .engine import Outlet, hand_over, queued, wait_for
from .invoke import Call, CallFacts, invoke
from .loop import PROCESS_LOOP, awaiter

logger = logging.getLogger(__name__)


class ThreadEngine:
    """Sync solutions on our own daemon threads, made as they are needed.

    Args:
        facts: What to call.
        outlet: Where results go.
        n_workers: How many attempts run at once.
        task_timeout: Seconds after which an attempt fails; its thread is then left behind and
            replaced. More than ``n_workers`` threads that do not end, end the run.
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
        self._most_threads = n_workers
        self._due: queue.SimpleQueue[Optional[Attempt]] = queue.SimpleQueue()
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._queued = 0
        self._idle = 0
        self._alive = 0
        self._running: Dict[int, Call] = {}
        self._left_behind = 0
        self._stopping = False
        self._deadlines = Deadlines(task_timeout, self._expire, clock) if task_timeout else None

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt; a thread is started if none is idle and the limit allows it."""
        with self._lock:
            self._queued += 1
            start = self._queued > self._idle and self._alive < self._most_threads
            if start:
                self._alive += 1
        self._due.put(attempt)
        if start:
            self._add_thread()

    def assist(self, finished: threading.Event) -> None:
        """Wait."""
        wait_for(finished)

    def stop(self) -> None:
        """Start nothing new; cancel the calls that know how to end."""
        with self._lock:
            self._stopping = True
            running = list(self._running.values())
        for attempt in queued(self._due):
            self._outlet.dropped(attempt, None)
        for call in running:
            call.scope.cancel()

    def close(self) -> None:
        """End the idle threads, and the others after their attempt."""
        if self._deadlines is not None:
            self._deadlines.close()
        for _ in range(self._alive):
            self._due.put(None)

    def _add_thread(self) -> None:
        """Start a thread; where the system allows no more, those that are there do the work.

        Raises:
            RuntimeError: There is none.
        """
        try:
            self._start_thread()
        except RuntimeError as error:
            with self._lock:
                self._alive -= 1
                alive = self._most_threads = self._alive
            if not alive:
                raise
            logger.warning(
                "The system starts no more threads (%s): %d rows run at once. A smaller n_workers "
                "says so at once.",
                error,
                alive,
            )

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
        call = Call(self._facts, attempt)
        with self._lock:
            # decided where stop() decides, which cancels the calls that it finds here
            stopping = self._stopping
            if not stopping:
                self._running[id(call)] = call
        if stopping:
            self._outlet.dropped(attempt, None)
            return True
        if self._deadlines is not None:
            self._deadlines.add(call)
        await_in_loop = awaiter(lambda: PROCESS_LOOP.get(self._n_workers), call.scope.on_cancel)
        try:
            result = self._context.copy().run(invoke, call, self._facts.solution, await_in_loop)
            handed_over = hand_over(self._outlet, call, result)
        except KeyboardInterrupt as error:
            handed_over = call.claim()
            if handed_over:
                self._outlet.dropped(attempt, error)
        self._ended(call, handed_over)
        return handed_over

    def _ended(self, call: Call, handed_over: bool) -> None:
        with self._lock:
            self._running.pop(id(call), None)
            if not handed_over:
                # it was given up, but did end; its replacement works on
                self._left_behind -= 1
        if self._deadlines is not None:
            self._deadlines.forget(call)

    def _expire(self, call: Call, seconds: float) -> None:
        if not call.claim():
            return
        with self._lock:
            self._left_behind += 1
            stuck = self._left_behind
        if not end_late(self._outlet, call, seconds, stuck, self._n_workers):
            return
        try:
            self._add_thread()
        except RuntimeError as error:
            for attempt in queued(self._due):  # nobody is left to take them
                self._outlet.dropped(attempt, error)
