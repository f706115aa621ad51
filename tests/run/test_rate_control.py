"""Rate control on a simulated clock: what an agent allows is found, kept and found again."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any, Dict, List, Optional, Tuple

import pytest

from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.run.events import LimitChanged
from agentloop_experiment_sdk.run.limits import Limits, Pace, Signal, signal_of

OK, REFUSED = "", "429"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0


class TokenBucket:
    """An agent that allows ``rate`` calls a second and a burst, and refuses the others."""

    def __init__(
        self, clock: Clock, rate: float, burst: float, latency: float, retry_after: float = 0.0
    ) -> None:
        self.clock, self.rate, self.burst, self.latency = clock, rate, burst, latency
        self.retry_after = retry_after
        self._tokens, self._at = burst, 0.0

    def call(self, running: int) -> Tuple[str, float]:
        now = self.clock.now
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1.0:
            return REFUSED, 0.002
        self._tokens -= 1.0
        return OK, self.latency


class Slots:
    """An agent with so many slots: more calls at once only wait for one another."""

    def __init__(self, slots: int, latency: float, noise: random.Random) -> None:
        self.slots, self.latency, self.noise = slots, latency, noise

    def call(self, running: int) -> Tuple[str, float]:
        return OK, self.latency * max(1.0, running / self.slots) * self.noise.uniform(0.8, 1.25)


class Door:
    """An agent that refuses calls beyond so many at once."""

    def __init__(self, most: int, latency: float, noise: random.Random) -> None:
        self.most, self.latency, self.noise = most, latency, noise

    def call(self, running: int) -> Tuple[str, float]:
        if running > self.most:
            return REFUSED, 0.002
        return OK, self.latency * self.noise.uniform(0.7, 1.4)


class Run:
    """A run without threads: attempts start when the limits allow it, and end in order of time."""

    def __init__(self, clock: Clock, limits: Limits, agent: Any) -> None:
        self.clock, self.limits, self.agent = clock, limits, agent
        self.answers: List[Tuple[float, str]] = []
        self.changes: List[LimitChanged] = []
        self.most_running = 0
        self._serial = itertools.count()
        self._ends: List[Tuple[float, int, str, float]] = []

    def until(self, end: float) -> Run:
        while self.clock.now < end:
            pause = self._fill()
            ends_at = self._ends[0][0] if self._ends else float("inf")
            due_at = float("inf") if pause is None else self.clock.now + pause
            self.clock.now = min(ends_at, due_at, end)
            while self._ends and self._ends[0][0] <= self.clock.now:
                self._end(*heapq.heappop(self._ends))
        return self

    def _fill(self) -> Optional[float]:
        pause = self.limits.wait(self.clock.now)
        while pause is not None and pause <= 0:
            key = next(self._serial)
            self.limits.started(key, self.clock.now)
            self.most_running = max(self.most_running, self.limits.running)
            answer, took = self.agent.call(len(self._ends) + 1)
            heapq.heappush(self._ends, (self.clock.now + took, key, answer, took))
            pause = self.limits.wait(self.clock.now)
        return pause

    def _end(self, at: float, key: int, answer: str, took: float) -> None:
        self.answers.append((at, answer))
        retry_after = getattr(self.agent, "retry_after", 0.0) or None
        signal = Signal(latency_s=took)
        if answer == REFUSED:
            signal = Signal("429", retry_after, None)
        change = self.limits.ended(key, at, signal)
        if change is not None:
            self.changes.append(change)

    def rate(self, begin: float, end: float) -> float:
        return self._count(begin, end, OK) / (end - begin)

    def refused_share(self, begin: float, end: float) -> float:
        refused = self._count(begin, end, REFUSED)
        return refused / max(1, refused + self._count(begin, end, OK))

    def _count(self, begin: float, end: float, answer: str) -> int:
        return sum(begin <= at < end and what == answer for at, what in self.answers)


def auto() -> Limits:
    return Limits(64, 1, 4)


@pytest.mark.parametrize("retry_after", [0.0, 1.0])
@pytest.mark.parametrize("latency", [0.05, 0.2, 2.0])
@pytest.mark.parametrize("rate, burst", [(5, 5), (20, 4), (20, 20), (100, 10), (100, 100)])
def test_the_rate_that_an_agent_allows_is_used_and_hardly_overstepped(
    rate: float, burst: float, latency: float, retry_after: float
) -> None:
    if rate * latency > 60:
        pytest.skip("more than the limit of workers allows")
    clock = Clock()
    agent = TokenBucket(clock, rate, burst, latency, retry_after)
    run = Run(clock, auto(), agent).until(180)
    assert run.rate(60, 180) >= 0.9 * rate
    assert run.refused_share(60, 180) <= 0.02


def test_an_agent_that_allows_more_later_gets_more() -> None:
    clock = Clock()
    agent = TokenBucket(clock, 20, 10, 0.1)
    run = Run(clock, auto(), agent).until(60)
    agent.rate = 80
    run.until(260)
    assert run.rate(160, 260) >= 0.85 * 80


def test_an_agent_with_few_slots_is_kept_busy_without_a_long_queue() -> None:
    clock = Clock()
    run = Run(clock, auto(), Slots(8, 0.5, random.Random(1))).until(120)
    assert run.rate(30, 120) >= 0.9 * 8 / 0.5
    assert 8 <= run.limits.limit <= 24
    assert any(change.reason == "latency" for change in run.changes)


def test_an_agent_that_refuses_more_at_once_is_not_asked_often() -> None:
    clock = Clock()
    run = Run(clock, auto(), Door(10, 0.3, random.Random(2))).until(300)
    assert run.refused_share(60, 300) <= 0.02
    assert run.rate(60, 300) >= 0.7 * 10 / (0.3 * 1.05)


def test_an_agent_without_limits_gets_all_workers() -> None:
    clock = Clock()
    run = Run(clock, auto(), Slots(1000, 0.5, random.Random(3))).until(30)
    assert run.limits.limit == 64 and not run.changes


def test_a_change_says_from_where_to_where_and_why() -> None:
    limits = Limits(32, 1, 20)
    limits.started("a", 1.0)
    assert limits.ended("a", 2.0, Signal("429")) == LimitChanged(20, 16, "429")


def test_refusals_of_attempts_begun_before_a_step_down_do_not_count_again() -> None:
    limits = Limits(32, 1, 20)
    for key in range(20):
        limits.started(key, 0.0)
    changes = [limits.ended(key, 1.0, Signal("503")) for key in range(20)]
    assert [change for change in changes if change] == [LimitChanged(20, 16, "503")]


def test_a_refusal_is_heard_while_the_attempt_still_tries_again() -> None:
    limits = Limits(32, 1, 20)
    limits.started("a", 0.0)
    assert limits.refused("a", 0.1, Signal("429", retry_after=3.0)) == LimitChanged(20, 16, "429")
    assert limits.wait(0.1) == pytest.approx(3.0)
    assert limits.ended("a", 3.5, Signal("429", latency_s=0.2)) is None


def test_a_pause_that_an_agent_asks_for_is_bounded() -> None:
    limits = Limits(4, 1, 4)
    limits.started("a", 0.0)
    limits.ended("a", 1.0, Signal("503", retry_after=86400.0))
    assert limits.wait(1.0) == pytest.approx(60.0)


def test_the_lowest_limit_stays() -> None:
    clock = Clock()
    run = Run(clock, Limits(8, 4), Door(0, 0.1, random.Random(4))).until(30)
    assert run.limits.limit == 4
    assert run.rate(0, 30) == 0


def test_a_fixed_limit_never_changes() -> None:
    limits = Limits(3)
    for key in range(3):
        limits.started(key, 0.0)
    assert limits.wait(0.0) is None and not limits.exact
    assert limits.ended(0, 0.5, Signal("429", 10.0)) is None
    assert limits.limit == 3 and limits.wait(0.5) == 0.0


def test_max_rps_spaces_starts_evenly_and_is_never_exceeded() -> None:
    clock = Clock()
    limits = Limits(8, max_rps=10.0)
    run = Run(clock, limits, Slots(1000, 0.01, random.Random(5))).until(20)
    assert limits.exact
    assert run.rate(1, 20) == pytest.approx(10.0, rel=0.02)


def test_max_rps_bounds_an_adaptive_run_too() -> None:
    clock = Clock()
    agent = TokenBucket(clock, 50, 10, 0.1)
    run = Run(clock, Limits(64, 1, 4, max_rps=20.0), agent).until(60)
    assert run.rate(10, 60) == pytest.approx(20.0, rel=0.02)
    assert run.refused_share(0, 60) == 0


def test_a_late_thread_may_catch_up_a_little_only() -> None:
    pace = Pace(100.0)
    pace.start(0.0)
    started = 0
    while pace.wait(10.0) <= 0:
        pace.start(10.0)
        started += 1
    assert started <= 7


def test_an_attempt_that_came_to_nothing_frees_its_place() -> None:
    limits = Limits(1)
    limits.started("a", 0.0)
    limits.dropped("a")
    assert limits.wait(0.0) == 0.0 and limits.running == 0


def result(success: bool, **meta: Any) -> Result:
    task = Task("id", {})
    return Result(Attempt(task, "0"), SolutionOutput(success, "", meta=meta), 0, 1, 250.0)


def tries(*statuses: int) -> Dict[str, Any]:
    return {"attempts": [{"status": status, "ms": 100.0} for status in statuses]}


@pytest.mark.parametrize(
    "finished, expected",
    [
        (result(True), Signal("", None, 0.25)),
        (result(True, http=tries(200)), Signal("", None, 0.1)),
        (result(True, http=tries(429, 200)), Signal("429", None, 0.1)),
        (result(False, http=tries(503, 503)), Signal("503", None, None)),
        (result(False, http=tries(500)), Signal("", None, None)),
        (result(False, status_code=429, retry_after=2), Signal("429", 2.0, None)),
        (result(False, error_type="RateLimitError"), Signal("RateLimitError", None, None)),
        (result(False, error_type="Throttling.User"), Signal("Throttling.User", None, None)),
        (result(False, error_type="ValueError"), Signal("", None, None)),
        (result(False, error_type="TaskTimeout"), Signal("", None, 0.25)),
        (result(True, http={"attempts": "none"}), Signal("", None, 0.25)),
        (result(False, retry_after="soon", status_code=503), Signal("503", None, None)),
        (result(True, status_code=429), Signal("", None, 0.25)),
    ],
)
def test_what_a_finished_attempt_says(finished: Result, expected: Signal) -> None:
    assert signal_of(finished) == expected


def test_an_agent_that_allows_nothing_is_asked_ever_less_often() -> None:
    clock = Clock()
    run = Run(clock, auto(), Door(0, 0.1, random.Random(6))).until(600)
    assert len(run.answers) < 200
    assert sum(at > 300 for at, _ in run.answers) < 100
