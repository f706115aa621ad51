"""Rows on their way to SLS: by a scripted logstore, and by real sockets to LocalAgentLoop."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

import pytest
from results_values import VirtualTime, eventually, plan, result, saved, task, writer

from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.sls import SlsLogstore
from agentloop_experiment_sdk.errors import CloudError, CredentialsError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results import attempts
from agentloop_experiment_sdk.results import delivery as deliveries
from agentloop_experiment_sdk.results.delivery import SENDERS, Callbacks, Delivery, Outgoing
from agentloop_experiment_sdk.results.rows import Answer, RowContext, detail_row

BUSY = CloudError("busy", status=503, retryable=True)


class ScriptedLogstore:
    """Answers each PutLogs as the test says, and counts what it sees."""

    def __init__(self) -> None:
        self.answer: Callable[[List[str]], Optional[Exception]] = lambda names: None
        self.calls: List[List[str]] = []
        self.stored: List[str] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def put(self, rows: Sequence[Any]) -> None:
        names = [dict(row)["task_id"] for row in rows]
        with self._lock:
            self.calls.append(names)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            error = self.answer(names)
            if error is not None:
                raise error
            with self._lock:
                self.stored += names
        finally:
            with self._lock:
                self._at_once -= 1


class Sending:
    """A delivery to a logstore, with what it tells the run."""

    def __init__(self, logstore: Any, build: Any = None, **options: Any) -> None:
        self.logstore = logstore
        self.delivered: List[str] = []
        self.given_up: Dict[str, str] = {}
        self.built: List[Outgoing] = []
        self._build = build or (lambda row: [("task_id", row.saved.task_id)])
        self.delivery = Delivery(
            logstore, self._built, Callbacks(self._delivered, self._undeliverable), **options
        )

    def _built(self, row: Outgoing) -> Any:
        self.built.append(row)
        return self._build(row)

    def _delivered(self, rows: List[Outgoing]) -> None:
        self.delivered += [row.saved.task_id for row in rows]

    def _undeliverable(self, row: Outgoing, reason: str) -> None:
        self.given_up[row.saved.task_id] = reason

    def send(self, count: int, size: int = 100, start: int = 0) -> List[str]:
        rows = [Outgoing(saved(number, size)) for number in range(start, start + count)]
        for row in rows:
            self.delivery.enqueue(row)
        return [row.saved.task_id for row in rows]

    def drain(self, timeout: float = 300.0) -> None:
        self.delivery.drain()
        eventually(lambda: self.delivery.is_drained(timeout), 120)


@pytest.fixture
def logstore() -> ScriptedLogstore:
    return ScriptedLogstore()


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def sending(logstore: ScriptedLogstore, clock: VirtualTime) -> Iterator[Sending]:
    started = Sending(logstore, clock=clock.clock, wait=clock.wait, jitter=lambda: 1.0)
    yield started
    started.delivery.close()


def test_no_thread_is_started_before_the_first_row(sending: Sending) -> None:
    names = {thread.name for thread in threading.enumerate()}
    assert not [name for name in names if name.startswith("agentloop-delivery")]
    assert sending.delivery.is_drained(300.0) and sending.delivery.waiting == 0


def test_quick_rows_travel_together_and_each_exactly_once(
    sending: Sending, logstore: ScriptedLogstore
) -> None:
    names = sending.send(5000)
    sending.drain()
    assert Counter(logstore.stored) == Counter(names) == Counter(sending.delivered)
    assert len(logstore.calls) <= 5000 / 50
    assert not sending.given_up and sending.delivery.waiting == 0


def test_a_lone_row_is_sent_after_half_a_second(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime
) -> None:
    names = sending.send(2)
    clock.settle(SENDERS)
    clock.advance(0.4, SENDERS)
    assert logstore.calls == []
    clock.advance(0.1, SENDERS)
    assert logstore.calls == [names]


def test_what_a_full_batch_leaves_is_still_sent_in_time(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime
) -> None:
    """While the sender of the full batch is held up by a slow SLS."""
    hold = threading.Event()
    logstore.answer = lambda names: None if len(names) < 100 else hold.wait(60) and None
    sending.send(600)
    eventually(lambda: logstore.calls)
    late = sending.send(3, start=600)
    clock.now += 0.5
    eventually(lambda: set(late) <= set(sending.delivered))
    hold.set()
    sending.drain()
    assert len(sending.delivered) == 603


def test_at_most_four_writes_are_on_their_way(sending: Sending, logstore: ScriptedLogstore) -> None:
    barrier = threading.Semaphore(0)

    def held(names: List[str]) -> None:
        assert barrier.acquire(timeout=60)

    logstore.answer = held  # type: ignore[assignment]
    sending.send(40, deliveries.MEMORY_BYTES)  # each is a batch of its own
    eventually(lambda: logstore.most_at_once == SENDERS)
    for _ in range(40):
        barrier.release()
    sending.drain()
    assert logstore.most_at_once == SENDERS == 4
    assert len(logstore.stored) == 40


def test_concurrent_first_rows_start_four_threads_only(
    sending: Sending, logstore: ScriptedLogstore
) -> None:
    hold = threading.Event()
    logstore.answer = lambda names: None if hold.wait(60) else None
    gate = threading.Barrier(8)

    def first(number: int) -> None:
        gate.wait(30)
        sending.send(5, deliveries.MEMORY_BYTES, start=10 * number)

    threads = [threading.Thread(target=first, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    senders = [t for t in threading.enumerate() if t.name.startswith("agentloop-delivery")]
    assert len(senders) == SENDERS
    hold.set()
    sending.drain()
    assert logstore.most_at_once <= SENDERS and len(logstore.stored) == 40


def test_a_total_outage_loses_and_doubles_nothing(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime
) -> None:
    logstore.answer = lambda names: BUSY
    names = sending.send(1200)
    eventually(lambda: logstore.calls)
    for _ in range(10):
        clock.advance(8.0, 1)
    assert not sending.delivered and sending.delivery.waiting == 1200
    logstore.answer = lambda names: None
    clock.now += 10
    sending.drain()
    assert Counter(logstore.stored) == Counter(names) == Counter(sending.delivered)


def test_one_poisoned_row_is_given_up_and_the_others_arrive(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime
) -> None:
    poison = task(7).id
    logstore.answer = lambda names: BUSY if poison in names else None
    names = sending.send(600)
    sending.delivery.drain()

    def over() -> bool:
        clock.now += 0.5
        return sending.delivery.is_drained(300.0)

    eventually(over)
    assert sorted(sending.delivered) == sorted(set(names) - {poison})
    assert sending.given_up == {poison: "busy"}


def test_a_row_that_cannot_be_built_does_not_hold_the_others(
    logstore: ScriptedLogstore, caplog: pytest.LogCaptureFixture
) -> None:
    def build(row: Outgoing) -> Any:
        if row.saved.task_id == task(1).id:
            return None
        if row.saved.task_id == task(2).id:
            raise TypeError("a fault of ours")
        return [("task_id", row.saved.task_id)]

    sending = Sending(logstore, build)
    names = sending.send(4)
    sending.drain()
    assert sorted(sending.delivered) == sorted([names[0], names[3]])
    assert sending.given_up == {
        names[1]: "its solution.json cannot be read",
        names[2]: "its row could not be built: TypeError: a fault of ours",
    }
    sending.delivery.close()


@pytest.mark.parametrize("error", [CloudError("no", status=404), CredentialsError("no keys")])
def test_a_refusal_ends_a_drain_at_once_and_keeps_the_rows(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime, error: Exception
) -> None:
    logstore.answer = lambda names: error
    sending.send(10)
    sending.drain()
    assert len(logstore.calls) == 1
    refusal = sending.delivery.refusal
    assert refusal is not None and str(refusal) == str(error)
    assert sending.delivery.waiting == 10 and not sending.given_up


def test_what_was_refused_before_is_asked_once_more_by_the_drain(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime
) -> None:
    logstore.answer = lambda names: CloudError("no", status=401)
    names = sending.send(10)
    clock.now += 0.5
    eventually(lambda: sending.delivery.refusal)
    logstore.answer = lambda names: None
    sending.drain()
    assert sending.delivered == names


def test_an_unexpected_error_is_tried_again(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime, caplog: Any
) -> None:
    errors: List[Exception] = [ValueError("odd"), TypeError("odd")]
    logstore.answer = lambda names: errors.pop() if errors else None
    names = sending.send(3)
    sending.delivery.drain()

    def over() -> bool:
        clock.now += 0.5
        return sending.delivery.is_drained(300.0)

    eventually(over)
    assert sending.delivered == names and not errors
    assert "failed unexpectedly" in caplog.text


def test_a_part_that_arrived_is_not_sent_again_when_the_next_part_fails(
    logstore: ScriptedLogstore,
) -> None:
    big = "x" * 1_500_000
    sending = Sending(logstore, lambda row: [("task_id", row.saved.task_id), ("v", big)])
    failures: List[Exception] = [BUSY]
    logstore.answer = lambda names: failures.pop() if len(logstore.calls) == 2 else None
    names = sending.send(9)
    sending.drain()
    assert sorted(logstore.stored) == sorted(names) and not failures
    assert all(len(call) <= 2 for call in logstore.calls)
    sending.delivery.close()


def test_a_row_over_the_limit_is_cut_and_travels_alone(logstore: ScriptedLogstore) -> None:
    seen: List[int] = []

    class Watching(ScriptedLogstore):
        def put(self, rows: Sequence[Any]) -> None:
            seen.append(sum(len(value) for row in rows for _, value in row))
            super().put(rows)

    sending = Sending(
        Watching(), lambda row: [("task_id", row.saved.task_id), ("v", "x" * row.saved.size)]
    )
    sending.send(3, 50)
    sending.send(1, 20_000_000, start=3)
    sending.send(3, 50, start=4)
    sending.drain()
    assert len(sending.delivered) == 7 and max(seen) <= 9_500_000
    assert sorted(seen)[-2] < 1000
    sending.delivery.close()


def answered(number: int, size: int) -> Outgoing:
    return Outgoing(saved(number, size), Answer(task(number), "0", 1, True, "x", {}, 1.0))


def test_answers_over_the_memory_budget_are_read_again_and_others_are_not(
    sending: Sending, logstore: ScriptedLogstore
) -> None:
    quarter = deliveries.MEMORY_BYTES // 4
    hold = threading.Event()
    logstore.answer = lambda names: None if hold.wait(60) else None
    rows = [answered(number, quarter) for number in range(8)]
    held: Set[int] = set()

    def build(row: Outgoing) -> Any:
        if row.answer is not None:
            held.add(rows.index(row))
        return [("task_id", row.saved.task_id)]

    sending._build = build
    for row in rows:
        sending.delivery.enqueue(row)
    assert [row.answer is not None for row in rows[4:]] == [False] * 4
    hold.set()
    sending.drain()
    assert held == {0, 1, 2, 3}
    assert all(row.answer is None for row in rows)
    rows.append(answered(8, quarter))  # the room of the others is free again
    sending.delivery.enqueue(rows[8])
    sending.drain()
    assert held == {0, 1, 2, 3, 8} and len(sending.delivered) == 9


def test_a_row_that_is_given_up_frees_its_room(
    sending: Sending, logstore: ScriptedLogstore
) -> None:
    sending._build = lambda row: None
    rows = [answered(number, deliveries.MEMORY_BYTES) for number in range(3)]
    for row in rows:
        sending.delivery.enqueue(row)
        eventually(lambda: sending.delivery.drain() or sending.delivery.waiting == 0)
    assert len(sending.given_up) == 3 and sending.delivery._memory == 0


def test_closing_does_not_wait_for_a_write_on_its_way(
    sending: Sending, logstore: ScriptedLogstore
) -> None:
    hold = threading.Event()
    logstore.answer = lambda names: None if hold.wait(60) else None
    sending.send(600)
    eventually(lambda: logstore.calls)
    sending.delivery.close()
    late = sending.send(600, start=600)
    hold.set()
    eventually(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("agentloop-delivery")]
    )
    assert len(sending.delivered) >= 1 and not set(late) & set(sending.delivered)
    assert sending.delivery.waiting >= 600


def test_a_fault_in_what_the_run_is_told_ends_no_sender(
    logstore: ScriptedLogstore, caplog: Any
) -> None:
    sending = Sending(logstore)
    faults = [RuntimeError("a fault of ours")]
    real = sending._delivered

    def delivered(rows: List[Outgoing]) -> None:
        if faults:
            raise faults.pop()
        real(rows)

    sending.delivery._callbacks = Callbacks(delivered, sending._undeliverable)
    for start in range(0, 40, 10):
        sending.send(10, start=start)
        sending.delivery.drain()
        eventually(lambda: sending.delivery.waiting == 0)
    assert len(sending.delivered) == 30
    assert "failed unexpectedly" in caplog.text
    sending.delivery.close()


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as started:
        yield started


class RealSending(Sending):
    """From answers on disk to rows in LocalAgentLoop, as a run does it."""

    def __init__(self, root: Path, local: LocalAgentLoop, secret: Optional[str] = None) -> None:
        ends = local.endpoints
        key = AccessKey(ends.access_key_id, secret or ends.access_key_secret)
        access = CloudAccess(ends.region_id, ends.agentloop_endpoint, ends.sls_endpoint, key)
        self.root = str(root)
        self.writing = writer(root)
        self.context = RowContext(plan(project=ends.project), "record-1", "run 1", 1)
        self.shared = self.context.fields()
        super().__init__(SlsLogstore(access, ends.project), self._from_disk, jitter=lambda: 0.1)

    def _from_disk(self, row: Outgoing) -> Any:
        document = attempts.read_solution(self.root, row.saved.key)
        of = attempts.read_task(self.root, row.saved.task_id)
        assert document is not None and of is not None
        answer = Answer(of, "0", 1, True, document["output"], document["meta"], 1.0)
        return detail_row(self.context, self.shared, answer)

    def answer(self, numbers: Any) -> List[str]:
        rows = [Outgoing(self.writing.save(result(task(n), "answer %d" % n))) for n in numbers]
        for row in rows:
            self.delivery.enqueue(row)
        return [row.saved.task_id for row in rows]


@pytest.fixture
def real(tmp_path: Path, local: LocalAgentLoop) -> Iterator[RealSending]:
    started = RealSending(tmp_path, local)
    yield started
    started.delivery.close()


def stored(local: LocalAgentLoop) -> Counter:  # type: ignore[type-arg]
    return Counter(row["task_id"] for row in local.rows("record-1"))


def test_rows_arrive_whole_over_the_wire(real: RealSending, local: LocalAgentLoop) -> None:
    names = real.answer(range(300))
    real.drain()
    assert stored(local) == Counter(names) == Counter(real.delivered)
    row = next(row for row in local.rows("record-1") if row["task_id"] == task(5).id)
    assert (row["experiment_output"], row["dataset.question"]) == ("answer 5", "q5")
    assert local.requests["PutLogs"] <= 6


@pytest.mark.parametrize("mode", ["500", "503", "403", "429", "refuse"])
def test_an_outage_over_the_wire_loses_and_doubles_nothing(
    real: RealSending, local: LocalAgentLoop, mode: str
) -> None:
    outage = local.faults.outage(mode)
    names = real.answer(range(50))
    eventually(lambda: outage.hits >= 2)
    names += real.answer(range(50, 100))
    assert not real.delivered
    outage.stop()
    real.drain()
    assert stored(local) == Counter(names) == Counter(real.delivered)


def test_rows_are_doubled_only_where_an_answer_was_lost(
    real: RealSending, local: LocalAgentLoop
) -> None:
    local.faults.drop("PutLogs", stored=True, times=1)
    names = real.answer(range(20))
    real.drain()
    assert set(stored(local)) == set(names) and set(stored(local).values()) == {2}
    assert Counter(real.delivered) == Counter(names)


def test_one_poisoned_row_over_the_wire(real: RealSending, local: LocalAgentLoop) -> None:
    local.faults.fail("PutLogs", 400, "PostBodyInvalid", containing="answer 13")
    names = real.answer(range(40))
    real.drain()
    assert set(stored(local)) == set(names) - {task(13).id} == set(real.delivered)
    assert "PostBodyInvalid" in real.given_up[task(13).id]


def test_a_wrong_secret_is_a_refusal_over_the_wire(tmp_path: Path, local: LocalAgentLoop) -> None:
    sending = RealSending(tmp_path, local, secret="wrong")
    sending.answer(range(5))
    sending.drain()
    refusal = sending.delivery.refusal
    assert refusal is not None and not refusal.retryable
    assert local.rows("record-1") == [] and sending.delivery.waiting == 5
    assert local.requests["PutLogs"] <= 2
    sending.delivery.close()


def test_failures_that_repeat_are_logged_now_and_then(
    sending: Sending, logstore: ScriptedLogstore, clock: VirtualTime, caplog: Any
) -> None:
    logstore.answer = lambda names: CloudError("busy " * 200, status=503, retryable=True)
    sending.send(3)
    for _ in range(40):
        clock.advance(1.0, SENDERS)
    said = [r.getMessage() for r in caplog.records if "not delivered yet" in r.getMessage()]
    assert len(logstore.calls) > 3 and len(said) == 2
    assert said[0].startswith("3 rows were not delivered yet: busy") and len(said[0]) < 400
    assert "failures since the last line)" in said[1]
