"""How many attempts may run, and when the next may start: rate control for fragile agents. Pure.

Two limits learn from what the agent says. *Concurrency* doubles each round until something speaks
against it, then grows by one a round and falls to four fifths (additive increase, multiplicative
decrease: RFC 5681). *Pace*, starts per second, is learned from a refusal: the rate of accepted
answers is what the agent allows, and the run stays a little below it, tries more only slowly for
a minute, then faster and faster. Concurrency alone cannot hold a rate: where the agent allows
five calls a second and answers in 50 ms, one worker is too many.

What speaks against more: 429, 503 and the like (also those that a retry inside the call hides from
its result), ``Retry-After``, and answers that take more than twice as long as they once did.
"""

from __future__ import annotations

import re
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, Hashable, List, Mapping, Optional, Sequence, Tuple

from ..models import Result
from .events import LimitChanged

AUTO = (1, 64)
AUTO_BEGIN = 4
SLOWER = 0.8
BELOW_ALLOWED = 0.97
HOLD_S = 30.0
PLATEAU_S = 60.0
FIRST_PLATEAU_S = 3.0
PLATEAU_GAIN = 0.03
ALIKE = 0.2
DOUBLING_S = 30.0
LATENCY_GROWTH = 2.0
LATENCY_DRIFT = 1.01
ROUND = 8
# starts that all come at once look like a higher rate than they are
SPREAD = 1.5
SAMPLES = 20
FEWEST = 5
SLOWEST = 0.01
LONGEST_PAUSE_S = 60.0
# a thread that woke up late may catch up on so many seconds of starts
CATCH_UP_S = 0.02

_REFUSED_STATUSES = (429, 503, 529)
_REFUSED_TYPES = re.compile(
    r"rate_?limit|throttl|too_?many_?requests|resource_?exhausted|overloaded|quota_?exceed"
    r"|service_?unavailable|server_?busy|slow_?down",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Signal:
    """What an attempt says about the state of the agent.

    Attributes:
        refusal: Why the agent asked for fewer calls, such as ``429``; "" if it did not.
        retry_after: The seconds it asked to be left alone.
        latency_s: How long a call took that was neither refused nor cut short; None if unknown.
    """

    refusal: str = ""
    retry_after: Optional[float] = None
    latency_s: Optional[float] = None


def signal_of(result: Result) -> Signal:
    """What a finished attempt says, by its output's ``meta``.

    Read are the tries of an HTTP call (``meta["http"]["attempts"]``), ``meta["status_code"]``,
    ``meta["retry_after"]`` and ``meta["error_type"]``.
    """
    meta, success = result.output.meta, bool(result.output.success)
    tries = _tries(meta)
    refusal = next((str(status) for status, _ in tries if status in _REFUSED_STATUSES), "")
    if not success and not refusal:
        refusal = _refusal_of(meta)
    latency = tries[-1][1] if tries else result.latency_ms / 1000.0
    slow = not success and "timeout" in str(meta.get("error_type", "")).lower()
    return Signal(
        refusal,
        None if success else _seconds(meta.get("retry_after")),
        latency if success or slow else None,
    )


def _tries(meta: Mapping[str, Any]) -> List[Tuple[Any, float]]:
    http = meta.get("http")
    attempts = http.get("attempts") if isinstance(http, Mapping) else None
    if not isinstance(attempts, list):
        return []
    known = [one for one in attempts if isinstance(one, Mapping)]
    return [(one.get("status"), (_seconds(one.get("ms")) or 0.0) / 1000.0) for one in known]


def _refusal_of(meta: Mapping[str, Any]) -> str:
    status, kind = meta.get("status_code"), str(meta.get("error_type") or "")
    if status in _REFUSED_STATUSES:
        return str(status)
    return kind if _REFUSED_TYPES.search(kind) else ""


def _seconds(value: Any) -> Optional[float]:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if usable and 0 <= value < float("inf") else None


class Pace:
    """Starts evenly spaced in time: the generic cell rate algorithm (ITU-T I.371).

    Args:
        rate: Starts per second; None for no limit.
    """

    def __init__(self, rate: Optional[float] = None) -> None:
        self.rate = rate
        self._due_at = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the next start."""
        return 0.0 if self.rate is None else max(0.0, self._due_at - now)

    def start(self, now: float) -> None:
        """Something starts."""
        if self.rate is not None:
            self._due_at = max(self._due_at, now - CATCH_UP_S) + 1.0 / self.rate


class Limits:
    """What a run may start now. One thread at a time; all times are monotonic seconds.

    Args:
        high: The most attempts that may run at once.
        low: The fewest that must stay allowed; equal to ``high`` for a fixed limit.
        begin: How many may run at first.
        max_rps: The most starts per second, whatever the agent allows; None for no limit.
    """

    def __init__(
        self,
        high: int,
        low: Optional[int] = None,
        begin: Optional[int] = None,
        max_rps: Optional[float] = None,
    ) -> None:
        self._high = high
        self._low = high if low is None else low
        self._limit = float(begin or self._low)
        self._adaptive = self._low < high
        self._most = Pace(max_rps)
        self._learned = _LearnedPace()
        self._spread = Pace()
        self._latency = _Latency()
        self._running: Dict[Hashable, float] = {}
        self._was_full = False
        self._ended = 0
        self._speeding_up = True
        self._not_before = self._refused_at = float("-inf")
        self._peak = float("inf")

    @property
    def limit(self) -> int:
        """How many attempts may run at once now."""
        return int(self._limit)

    @property
    def running(self) -> int:
        """How many attempts are running."""
        return len(self._running)

    @property
    def exact(self) -> bool:
        """Whether no attempt may be handed out before it may start."""
        return self._adaptive or self._most.rate is not None

    def wait(self, now: float) -> Optional[float]:
        """Seconds until the next attempt may start; None while one must end first."""
        if len(self._running) >= self.limit:
            self._was_full = True
            return None
        paces = (self._most, self._learned, self._spread)
        return max(self._not_before - now, *(pace.wait(now) for pace in paces))

    def started(self, key: Hashable, now: float) -> None:
        """An attempt starts."""
        self._running[key] = now
        self._most.start(now)
        self._learned.start(key, now)
        self._spread.start(now)

    def refused(self, key: Hashable, now: float, signal: Signal) -> Optional[LimitChanged]:
        """The agent refused a call inside a running attempt, which may go on and try again."""
        if not self._adaptive:
            return None
        self._learned.forget(key)
        began = self._running.get(key, now)
        pause = min(signal.retry_after or 0.0, LONGEST_PAUSE_S)
        self._not_before = max(self._not_before, now + pause)
        if began < self._refused_at:
            return None  # it began before the last step down, which is the answer to it
        self._refused_at = now
        self._learned.refused(now, now + pause)
        self._peak = self._limit
        return self._step_down(signal.refusal)

    def ended(self, key: Hashable, now: float, signal: Signal) -> Optional[LimitChanged]:
        """An attempt ends; the change of the limit that follows, if one does."""
        change = None
        if signal.refusal:
            change = self.refused(key, now, signal)
        self._running.pop(key, None)
        if not self._adaptive:
            return None
        if signal.latency_s is not None and not signal.refusal:
            self._latency.add(signal.latency_s)
        self._ended += 1
        if self._ended < max(self.limit, ROUND):
            return change
        return self._end_round(now) or change

    def dropped(self, key: Hashable) -> None:
        """An attempt came to nothing."""
        self._running.pop(key, None)

    def _end_round(self, now: float) -> Optional[LimitChanged]:
        full, self._was_full, self._ended = self._was_full, False, 0
        if self._latency.has_grown():
            self._speeding_up = False
            return self._step_down("latency")
        if full:
            self._step_up(now)
        self._spread.rate = self._latency.rate(SPREAD * self._limit)
        return None

    def _step_up(self, now: float) -> None:
        wanted = self._limit * 2 if self._speeding_up else int(self._limit) + 1.0
        if now - self._refused_at < min(HOLD_S, self._learned.plateau_s):
            wanted = min(wanted, max(self._limit, self._peak - 1))
        self._limit = min(float(self._high), wanted)

    def _step_down(self, reason: str) -> Optional[LimitChanged]:
        before = self.limit
        self._speeding_up = False
        self._limit = max(float(self._low), int(self._limit * SLOWER))
        self._was_full, self._ended = False, 0
        self._latency.forget_round()
        return LimitChanged(before, self.limit, reason) if self.limit < before else None


class _LearnedPace:
    """The pace that the agent was found to allow; none before its first refusal."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._base: Optional[float] = None
        self._refused_at = 0.0
        self.plateau_s = FIRST_PLATEAU_S
        self._asked: Deque[float] = deque(maxlen=SAMPLES)
        self._allowed: Dict[Hashable, float] = {}

    def wait(self, now: float) -> float:
        self._pace.rate = self._rate(now)
        return self._pace.wait(now)

    def start(self, key: Hashable, now: float) -> None:
        self._pace.start(now)
        self._asked.append(now)
        self._allowed[key] = now
        if len(self._allowed) > SAMPLES:
            del self._allowed[next(iter(self._allowed))]

    def forget(self, key: Hashable) -> None:
        """What started under this key was refused, and does not tell what is allowed."""
        self._allowed.pop(key, None)

    def refused(self, now: float, again_at: float) -> None:
        """Stay a little below what the agent allowed lately, or at half of what it was asked."""
        before = self._base
        rates = [_per_second(list(self._allowed.values()), now), self._rate(now)]
        known = [rate for rate in rates if rate is not None]
        asked = _per_second(self._asked, now)
        if rates[0] is None and asked is not None:
            known.append(asked / 2)
        if known:
            self._base = max(min(known) * BELOW_ALLOWED, SLOWEST)
        # a rate found once may be wrong; found again it is worth staying at
        found_again = before and self._base and abs(self._base - before) <= ALIKE * before
        self.plateau_s = PLATEAU_S if found_again else FIRST_PLATEAU_S
        self._refused_at = again_at
        if again_at > now:  # the pause must not look like a low rate
            self._allowed.clear()
            self._asked.clear()

    def _rate(self, now: float) -> Optional[float]:
        if self._base is None:
            return None
        waited = max(0.0, now - self._refused_at)
        gain = PLATEAU_GAIN * min(1.0, waited / self.plateau_s)
        later = max(0.0, waited - self.plateau_s) / min(self.plateau_s, DOUBLING_S)
        return self._base * (1.0 + gain + later**2)


def _per_second(times: Sequence[float], now: float) -> Optional[float]:
    """The rate of the last events; None when they are too few to tell."""
    if len(times) < FEWEST:
        return None
    return (len(times) - 1) / max(now - times[0], 1e-3)


class _Latency:
    """The median latency of a round against the lowest that was seen."""

    def __init__(self) -> None:
        self._round: List[float] = []
        self._lowest: Optional[float] = None

    def add(self, seconds: float) -> None:
        self._round.append(seconds)

    def forget_round(self) -> None:
        self._round = []

    def rate(self, running: float) -> Optional[float]:
        """How many a second so many running ones are, each at its quickest."""
        return running / self._lowest if self._lowest else None

    def has_grown(self) -> bool:
        """Whether the round that ends now was slow."""
        if not self._round:
            return False
        median, self._round = statistics.median(self._round), []
        if self._lowest is None or median <= self._lowest:
            self._lowest = median
            return False
        # rows may become longer for good: the memory of short ones fades
        self._lowest = min(median, self._lowest * LATENCY_DRIFT)
        return median > LATENCY_GROWTH * self._lowest
