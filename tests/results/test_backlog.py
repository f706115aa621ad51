"""What is sent next, and what a failure means; time is a number here."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Set

import pytest
from results_values import saved

from agentloop_experiment_sdk.errors import CloudError
from agentloop_experiment_sdk.results import backlog as backlogs
from agentloop_experiment_sdk.results.backlog import Backlog, Outgoing, around_one

BUSY = CloudError("busy", status=503, retryable=True)
DENIED = CloudError("denied", status=401)
BAD = CloudError("bad content", status=400)


def outgoing(number: int, size: int = 100) -> Outgoing:
    return Outgoing(saved(number, size))


class Simulation:
    """Sends what a backlog gives, one batch after the other, in virtual time."""

    def __init__(self, rows: int, size: int = 100) -> None:
        self.now = 0.0
        self.backlog = Backlog(self.now, lambda: 1.0)
        self.names: Dict[str, int] = {}
        self.accepted: List[int] = []
        self.given_up: List[int] = []
        self.sent: List[List[int]] = []
        self.times: List[float] = []
        self.answer: Callable[[Set[int]], Optional[CloudError]] = lambda numbers: None
        self.add(range(rows), size)

    def add(self, numbers: Any, size: int = 100) -> None:
        for number in numbers:
            row = outgoing(number, size)
            self.names[row.saved.task_id] = number
            self.backlog.add(row, self.now)

    def step(self) -> bool:
        """Send the next batch as soon as that is allowed; False when nothing is left."""
        pause = self.backlog.pause(self.now)
        if pause is None:
            return False
        self.now += pause
        assert self.backlog.pause(self.now) == 0
        batch = self.backlog.take()
        numbers = [self.names[row.saved.task_id] for row in batch.rows]
        self.sent.append(numbers)
        self.times.append(self.now)
        error = self.answer(set(numbers))
        if error is None:
            self.backlog.accepted(len(numbers), self.now)
            self.accepted += numbers
        else:
            given_up = self.backlog.failed(batch, error, self.now)
            if given_up is not None:
                self.given_up.append(self.names[given_up.saved.task_id])
        self.backlog.release(batch)
        return True

    def run(self, steps: int = 2000) -> None:
        while steps and self.step():
            steps -= 1

    def drain(self, timeout: float = 300.0) -> None:
        self.backlog.drain(self.now)
        while not self.backlog.is_drained(self.now, timeout):
            self.step()


def test_rows_linger_for_others_at_most_half_a_second() -> None:
    waiting = Backlog(0.0)
    assert waiting.pause(0.0) is None
    waiting.add(outgoing(1), 10.0)
    waiting.add(outgoing(2), 10.4)
    assert waiting.pause(10.0) == 0.5
    assert waiting.pause(10.4) == pytest.approx(0.1)
    assert waiting.pause(10.5) == 0.0
    batch = waiting.take()
    assert len(batch.rows) == 2
    assert waiting.pause(11.0) is None
    assert waiting.waiting == 2
    waiting.release(batch, 1)
    assert waiting.waiting == 1
    waiting.release(batch)
    waiting.release(batch)
    assert waiting.waiting == 0


def test_a_full_batch_does_not_linger() -> None:
    by_count = Simulation(backlogs.FULL_ROWS)
    assert by_count.backlog.pause(0.0) == 0.0
    by_bytes = Simulation(4, backlogs.FULL_BYTES // 4)
    assert by_bytes.backlog.pause(0.0) == 0.0


def test_a_batch_is_bounded_by_rows_and_bytes() -> None:
    many = Simulation(10_000)
    many.run()
    assert [len(numbers) for numbers in many.sent] == [4096, 4096, 1808]
    assert many.accepted == list(range(10_000))
    big = Simulation(8, backlogs.FULL_BYTES // 2)
    big.run()
    assert [len(numbers) for numbers in big.sent] == [2, 2, 2, 2]


def test_nothing_lingers_in_a_drain() -> None:
    few = Simulation(3)
    few.backlog.drain(few.now)
    assert few.backlog.pause(few.now) == 0.0


def test_pauses_grow_from_a_fifth_of_a_second_to_eight_seconds() -> None:
    outage = Simulation(1)
    outage.answer = lambda numbers: BUSY
    times: List[float] = []
    for _ in range(12):
        outage.step()
        times.append(outage.now)
    pauses = [round(after - before, 3) for before, after in zip(times, times[1:])]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0, 8.0, 8.0, 8.0]


def test_a_wait_that_the_server_asks_for_is_granted_within_reason() -> None:
    for asked, granted in ((3.0, 3.0), (0.01, 0.2), (86400.0, 60.0)):
        waiting = Simulation(1)
        error = CloudError("x", retryable=True, retry_after=asked)
        waiting.answer = lambda numbers, error=error: error  # type: ignore[misc]
        waiting.step()
        assert waiting.backlog.pause(waiting.now) == pytest.approx(granted)


def test_jitter_stays_around_one() -> None:
    assert all(0.7 <= around_one() <= 1.3 for _ in range(100))


def test_a_failing_batch_is_tried_three_times_and_then_split() -> None:
    outage = Simulation(8)
    outage.answer = lambda numbers: BUSY
    for _ in range(9):
        outage.step()
    assert [len(numbers) for numbers in outage.sent] == [8, 8, 8, 4, 4, 4, 4, 4, 4]


def test_one_poisoned_row_does_not_hold_the_others() -> None:
    poisoned = Simulation(500)
    poisoned.answer = lambda numbers: BUSY if 123 in numbers else None
    poisoned.run()
    assert sorted(poisoned.accepted) == [n for n in range(500) if n != 123]
    assert poisoned.given_up == [123]
    assert len(poisoned.accepted) == len(set(poisoned.accepted))
    assert poisoned.now < 60


def test_a_row_that_failed_alone_does_not_keep_fresh_ones_from_being_sent() -> None:
    poisoned = Simulation(1)
    poisoned.answer = lambda numbers: BUSY if 0 in numbers else None
    for _ in range(4):
        poisoned.step()
    assert poisoned.sent == [[0]] * 4
    poisoned.add(range(1, 10))
    poisoned.run()
    assert sorted(poisoned.accepted) == list(range(1, 10))
    assert poisoned.given_up == [0]


def test_a_row_is_not_given_up_while_nothing_is_accepted() -> None:
    outage = Simulation(1)
    outage.answer = lambda numbers: BUSY
    outage.run(50)
    assert outage.given_up == []
    outage.answer = lambda numbers: None
    outage.run()
    assert outage.accepted == [0]


def test_fresh_rows_and_rows_that_failed_alone_take_turns() -> None:
    poisoned = Simulation(2)
    poisoned.answer = lambda numbers: BUSY if numbers & {0, 1} else None
    for _ in range(9):
        poisoned.step()
    assert [len(numbers) for numbers in poisoned.sent[-2:]] == [1, 1]
    poisoned.add(range(2, 4))
    poisoned.sent.clear()
    poisoned.now += 10
    for _ in range(2):
        poisoned.step()
    assert [2, 3] in poisoned.sent
    poisoned.add(range(4, 6))
    poisoned.now += 10
    for _ in range(2):
        poisoned.step()
    assert poisoned.sent[1:3] in ([[0], [4, 5]], [[1], [4, 5]])


def test_while_nothing_is_accepted_one_batch_at_a_time_probes() -> None:
    waiting = Backlog(0.0, lambda: 1.0)
    for number in range(2000):
        waiting.add(outgoing(number, 10_000), 0.0)
    first, second = waiting.take(), waiting.take()
    assert waiting.failed(first, BUSY, 0.0) is None
    assert waiting.pause(100.0) is None  # the second one is still on its way
    waiting.release(first)
    waiting.accepted(len(second.rows), 0.0)
    waiting.release(second)
    assert waiting.pause(0.0) == 0.0


def test_content_that_sls_refuses_is_split_at_once_and_without_a_pause() -> None:
    poisoned = Simulation(64)
    poisoned.answer = lambda numbers: BAD if 7 in numbers else None
    poisoned.run()
    assert sorted(poisoned.accepted) == [n for n in range(64) if n != 7]
    assert poisoned.given_up == [7]
    assert poisoned.now < 1
    assert len(poisoned.sent) < 20


def test_content_refused_first_does_not_hold_what_comes_later() -> None:
    poisoned = Simulation(1)
    poisoned.answer = lambda numbers: BAD if 0 in numbers else None
    poisoned.run(3)
    assert poisoned.backlog.refusal is BAD
    poisoned.add(range(1, 5))
    poisoned.run()
    assert sorted(poisoned.accepted) == [1, 2, 3, 4]
    assert poisoned.given_up == [0]
    assert poisoned.backlog.refusal is None


def test_where_all_content_is_refused_a_drain_ends_soon() -> None:
    refused = Simulation(1000)
    refused.answer = lambda numbers: BAD
    refused.drain()
    assert refused.backlog.refusal is BAD
    assert len(refused.sent) <= backlogs.REFUSED_PARTS
    assert refused.backlog.waiting == 1000
    for count in (1, 2, 3):
        few = Simulation(count)
        few.answer = lambda numbers: BAD
        few.drain()
        assert few.now < 1 and few.backlog.waiting == count and not few.given_up


def test_bad_rows_at_the_front_do_not_end_the_drain_of_good_ones() -> None:
    poisoned = Simulation(1000)
    poisoned.answer = lambda numbers: BAD if numbers & set(range(6)) else None
    poisoned.drain()
    assert sorted(poisoned.accepted) == list(range(6, 1000))
    assert sorted(poisoned.given_up) == list(range(6))


def test_a_refusal_keeps_the_rows_and_asks_now_and_then() -> None:
    refused = Simulation(100)
    refused.answer = lambda numbers: DENIED
    for _ in range(3):
        refused.step()
    assert [len(numbers) for numbers in refused.sent] == [100, 100, 100]
    assert refused.now == 0.5 + 2 * backlogs.REFUSAL_PAUSE_S
    assert refused.backlog.refusal is DENIED
    refused.answer = lambda numbers: None
    refused.run()
    assert refused.backlog.refusal is None and len(refused.accepted) == 100


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_ends_a_drain_after_one_more_try(status: int) -> None:
    refused = Simulation(100)
    error = CloudError("no", status=status)
    refused.answer = lambda numbers: error
    refused.step()
    before = refused.now
    refused.drain()
    assert len(refused.sent) == 2 and refused.now == before
    assert refused.backlog.waiting == 100


def test_a_drain_gives_up_so_long_after_the_last_accepted_row() -> None:
    outage = Simulation(5)
    outage.answer = lambda numbers: BUSY
    outage.drain(300.0)
    assert 300 <= outage.now <= 310


def test_every_accepted_row_gives_a_drain_new_time() -> None:
    outage = Simulation(5)
    outage.answer = lambda numbers: BUSY if outage.now < 250 else None
    outage.backlog.drain(0.0)
    while not outage.accepted:
        outage.step()
    accepted_at = outage.now
    outage.answer = lambda numbers: BUSY
    outage.add(range(5, 9))
    while not outage.backlog.is_drained(outage.now, 300.0):
        outage.step()
    assert accepted_at + 300 <= outage.now <= accepted_at + 310


def test_a_drain_begins_once() -> None:
    outage = Simulation(5)
    outage.answer = lambda numbers: BUSY
    outage.backlog.drain(0.0)
    outage.run(5)
    pause = outage.backlog.pause(outage.now)
    outage.backlog.drain(outage.now)
    assert outage.backlog.pause(outage.now) == pause and pause


def test_rows_that_were_not_tried_are_next() -> None:
    waiting = Simulation(2)
    waiting.now = 1.0
    batch = waiting.backlog.take()
    waiting.backlog.put_back([])
    waiting.backlog.put_back(batch.rows)
    waiting.backlog.release(batch)
    waiting.run()
    assert waiting.accepted == [0, 1]


def test_a_long_outage_loses_and_doubles_nothing() -> None:
    outage = Simulation(5000)
    outage.answer = lambda numbers: BUSY if outage.now < 3600 else None
    while outage.step():
        pass
    assert sorted(outage.accepted) == list(range(5000))
    assert not outage.given_up
    afterwards = [when for when in outage.times if when >= 3600]
    assert len(afterwards) < 400  # it was not split to single rows
