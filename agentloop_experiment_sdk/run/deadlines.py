"""The deadlines of running calls, watched by a thread of their own.

Not by the event loop: a blocking call inside an async solution stops the loop, and deadlines must
still pass.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, Optional

from ..errors import RunAbortedError
from .engine import Outlet
from .invoke import Call


class Deadlines:
    """Calls ``expire(call, seconds)`` for each call that runs longer than ``seconds``.

    Args:
        seconds: How long a call may take, for all calls the same.
        expire: Called on the thread of this object.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        seconds: float,
        expire: Callable[[Call, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._expire = expire
        self._clock = clock
        # in the order of their deadlines, because all calls have the same time
        self._ends: Dict[Call, float] = {}
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._watch, name="agentloop-deadlines", daemon=True).start()

    def add(self, call: Call) -> None:
        """Watch a call that begins now."""
        with self._changed:
            self._ends[call] = self._clock() + self._seconds
            if len(self._ends) == 1:
                self._changed.notify()

    def forget(self, call: Call) -> None:
        """A call has ended."""
        with self._changed:
            self._ends.pop(call, None)

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
                first = next(iter(self._ends.items()), None)
                pause = None if first is None else first[1] - self._clock()
                if first is not None and pause is not None and pause <= 0:
                    del self._ends[first[0]]
                    return first[0]
                self._changed.wait(pause)
            return None


def end_late(outlet: Outlet, call: Call, seconds: float, stuck: int, n_workers: int) -> bool:
    """Fail a call past its deadline; whether the run goes on.

    It does not when more than ``n_workers`` such calls, this one among them, are stuck.
    """
    result = call.timed_out(seconds)
    call.scope.cancel()
    if stuck > n_workers:
        outlet.dropped(call.attempt, too_many_stuck(n_workers))
        return False
    outlet.result(result)
    return True


def too_many_stuck(n_workers: int) -> RunAbortedError:
    """The error that ends a run whose rows neither answer in time nor can be ended."""
    return RunAbortedError(
        "More than {} rows ran past task_timeout and do not end, more than there are workers. "
        "Give the solution its own timeout, then run again: rows that are done are kept.".format(
            n_workers
        ),
        code="TooManyStuckRows",
    )
