"""What an engine is: attempts in, results out.

An engine only calls the solution; what becomes of a result is the business of the flow that reads
its ``Outlet``.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import Callable, Iterator, Optional, Protocol

from ..models import Attempt, Result
from .invoke import Call


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


def wait_for(finished: threading.Event) -> None:
    """Wait in slices, so that Ctrl-C is seen on every platform."""
    while not finished.wait(0.2):
        pass


def queued(due: queue.SimpleQueue[Optional[Attempt]]) -> Iterator[Attempt]:
    """Take out the attempts that no worker has begun."""
    while True:
        try:
            attempt = due.get_nowait()
        except queue.Empty:
            return
        if attempt is not None:
            yield attempt


def hand_over(outlet: Outlet, call: Call, result: Result) -> bool:
    """Pass a result on unless someone else has ended the attempt; False then."""
    if not call.claim():
        return False
    if call.was_stopped and not result.output.success:
        outlet.dropped(call.attempt, None)
    else:
        outlet.result(result)
    return True
