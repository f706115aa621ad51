"""Which attempts may start now: the limits of a run, and what its engine tells them."""

from __future__ import annotations

import queue
from typing import Any, Callable, Optional, Union

from ..models import Attempt, Result
from .events import LimitChanged
from .limits import Limits, Signal, signal_of
from .messages import Answered, Refused
from .settings import RunSettings

LONGEST_WAIT_S = 1.0

OnRefusal = Callable[[Attempt, str, Optional[float]], None]


class Starts:
    """Asked by the flow thread before each start; told by any thread what agents say.

    Args:
        settings: The run's settings.
        inbox: Where the flow gets its messages.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        settings: RunSettings,
        inbox: queue.SimpleQueue[Any],
        clock: Callable[[], float],
    ) -> None:
        self._limits = Limits(
            settings.n_workers, settings.fewest_workers, settings.first_workers, settings.max_rps
        )
        self._inbox = inbox
        self._clock = clock
        self._adaptive = settings.fewest_workers is not None
        self.pause = LONGEST_WAIT_S

    @property
    def limit(self) -> int:
        """How many attempts may run at once now."""
        return self._limits.limit

    @property
    def exact(self) -> bool:
        """Whether a start may wait for what the flow hears, which must then be told at once."""
        return self._limits.exact

    @property
    def on_refusal(self) -> Optional[OnRefusal]:
        """Who wants to hear of refusals inside calls; None with a fixed number of workers."""
        return self._hear if self._adaptive else None

    def may_start(self, attempt: Attempt) -> bool:
        """Whether it starts now; else ``pause`` says after how many seconds to ask again.

        With a fixed number and no ``max_rps`` always: the engine keeps what it cannot start yet.
        """
        self.pause = LONGEST_WAIT_S
        if not self._limits.exact:
            return True
        now = self._clock()
        wait = self._limits.wait(now)
        if wait is not None and wait <= 0:
            self._limits.started(attempt.key, now)
            return True
        if wait is not None:
            self.pause = min(wait, LONGEST_WAIT_S)
        return False

    def heard_by(self, take: Callable[[Result], None]) -> Callable[[Result], None]:
        """``take`` for an engine's results, which are told to the flow before they are written:
        the next attempt may start meanwhile."""

        def answered(result: Result) -> None:
            self._inbox.put(Answered(result.attempt, signal_of(result)))
            take(result)

        return answered if self._limits.exact else take

    def regulate(self, message: Union[Answered, Refused]) -> Optional[LimitChanged]:
        """Take in what an agent said; the step down that follows, if one does."""
        heard = self._limits.ended if isinstance(message, Answered) else self._limits.refused
        return heard(message.attempt.key, self._clock(), message.signal)

    def dropped(self, attempt: Attempt) -> None:
        """An attempt came to nothing."""
        self._limits.dropped(attempt.key)

    def _hear(self, attempt: Attempt, reason: str, retry_after: Optional[float]) -> None:
        self._inbox.put(Refused(attempt, Signal(reason, retry_after)))
