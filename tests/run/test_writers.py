"""Writing off the flow: nothing twice, nothing lost, nothing after the end, no thread left over."""

import threading
import time
from typing import Any, Callable, Dict, List, Optional

import pytest

from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.results.journal import Saved
from agentloop_experiment_sdk.run.messages import Written
from agentloop_experiment_sdk.run.pace import BLOCK
from agentloop_experiment_sdk.run.writers import GATHER_S, WriterPool

CAP_S = 30.0


class FixedPace:
    """A pace that stays."""

    def __init__(self, gathers: bool = False, writers: int = 1) -> None:
        self.gathers = gathers
        self.writers = writers


def result(number: int) -> Result:
    attempt = Attempt(Task("t-{}".format(number), {}), "0")
    return Result(attempt, SolutionOutput.success(number), 0, 0, 0.0)


class Disk:
    """Writes nothing; says who wrote what, and may hold a writer up."""

    def __init__(self) -> None:
        self.threads: Dict[int, int] = {}
        self.names: List[str] = []
        self.hold: Callable[[], Any] = lambda: None
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def save(self, what: Result) -> Saved:
        me = threading.get_ident()
        self.threads[me] = self.threads.get(me, 0) + 1
        self.hold()
        self.names.append(what.attempt.task.id)
        if what.attempt.task.id == "t-13":
            raise OSError("no space")
        return Saved(what.attempt.task.id, "0", 1, "success", 0.0, 10)


class Told:
    """What the pool told, until ``count`` results are in."""

    def __init__(self, count: int) -> None:
        self.batches: List[List[Written]] = []
        self._missing = count
        self._lock = threading.Lock()
        self.all = threading.Event()

    def __call__(self, batch: List[Written]) -> None:
        with self._lock:
            self.batches.append(batch)
            self._missing -= len(batch)
            if self._missing <= 0:
                self.all.set()

    @property
    def names(self) -> List[str]:
        return [item.result.attempt.task.id for batch in self.batches for item in batch]


def pool_of(disk: Disk, told: Told, pace: FixedPace, n_workers: int = 8, **more: Any) -> WriterPool:
    return WriterPool(disk, told, n_workers, pace, **more)  # type: ignore[arg-type]


def names(first: int, end: int) -> List[str]:
    return ["t-{}".format(number) for number in range(first, end)]


def put_all(pool: WriterPool, first: int, end: int) -> None:
    for number in range(first, end):
        pool.put(result(number))


def ended(pool: WriterPool) -> bool:
    return not any(thread.is_alive() for thread in pool._threads)


def release(semaphore: threading.Semaphore, count: int) -> None:
    for _ in range(count):  # release(n) came with Python 3.9
        semaphore.release()


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + CAP_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_results_are_written_in_order_by_one_thread_and_told_one_by_one() -> None:
    disk, told = Disk(), Told(200)
    pool = pool_of(disk, told, FixedPace())
    put_all(pool, 100, 300)
    pool.start()
    pool.close(CAP_S)
    assert told.names == disk.names == names(100, 300)
    assert len(disk.threads) == 1 and len(told.batches) == 200 and ended(pool)


@pytest.mark.parametrize(("n_workers", "behind"), [(1, 1), (3, 3), (100, 8)])
def test_help_comes_when_as_many_wait_as_hold_the_run_up(n_workers: int, behind: int) -> None:
    disk, told, go = Disk(), Told(1 + behind), threading.Semaphore(0)
    disk.hold = lambda: go.acquire(timeout=CAP_S)
    pool = pool_of(disk, told, FixedPace(writers=2), n_workers)
    pool.start()
    put_all(pool, 100, 101)
    wait_for(lambda: len(disk.threads) == 1)
    put_all(pool, 101, 101 + behind)
    go.release()
    wait_for(lambda: len(disk.threads) == 2)  # both wait: no third is allowed
    release(go, behind)
    assert told.all.wait(CAP_S)
    pool.close(CAP_S)
    assert len(pool._threads) == 2 and ended(pool)
    assert sorted(told.names) == names(100, 101 + behind)


@pytest.mark.parametrize(("writers", "n_workers", "waiting"), [(1, 1, 20), (2, 8, 7), (2, 3, 2)])
def test_no_help_comes_where_it_is_not_worth_it_or_few_wait(
    writers: int, n_workers: int, waiting: int
) -> None:
    disk, told, go = Disk(), Told(1 + waiting), threading.Semaphore(0)
    disk.hold = lambda: go.acquire(timeout=CAP_S)
    pool = pool_of(disk, told, FixedPace(writers=writers), n_workers)
    pool.start()
    put_all(pool, 100, 101)
    wait_for(lambda: len(disk.threads) == 1)
    put_all(pool, 101, 101 + waiting)
    release(go, 1 + waiting)
    assert told.all.wait(CAP_S)
    pool.close(CAP_S)
    assert len(pool._threads) == 1 and told.names == names(100, 101 + waiting)


def test_help_that_the_system_refuses_does_not_end_the_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, told = Disk(), Told(50)
    pool = pool_of(disk, told, FixedPace(writers=8), 1)
    put_all(pool, 100, 150)
    pool.start()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "agentloop-writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert told.all.wait(CAP_S)
    pool.close(CAP_S)
    assert sorted(told.names) == names(100, 150)


def test_gathered_results_are_told_together_and_none_is_left_at_the_end() -> None:
    told, slept = Told(3 * BLOCK), []
    pool = pool_of(Disk(), told, FixedPace(gathers=True), sleep=lambda s: slept.append(s))

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        put_all(pool, 101, 100 + 3 * BLOCK)  # while it sleeps the others come

    pool._sleep = sleep
    pool._clock = lambda: 0.0
    put_all(pool, 100, 101)
    pool.start()
    assert told.all.wait(CAP_S)
    pool.close(CAP_S)
    assert slept == [GATHER_S]
    assert [len(batch) for batch in told.batches] == [BLOCK] * 3
    assert told.names == names(100, 100 + 3 * BLOCK) and ended(pool)


def test_a_batch_ends_after_a_while_so_that_others_may_write_the_rest() -> None:
    told, now = Told(6), [0.0]
    disk = Disk()
    pool = pool_of(disk, told, FixedPace(gathers=True), clock=lambda: now[0])

    def hold() -> None:
        now[0] += 0.004

    disk.hold = hold
    put_all(pool, 100, 106)
    pool.start()
    pool.close(CAP_S)
    assert [len(batch) for batch in told.batches] == [3, 3]


def test_the_end_in_the_middle_of_a_batch_ends_the_thread_too() -> None:
    told = Told(3)
    pool = pool_of(Disk(), told, FixedPace(gathers=True), clock=lambda: 0.0)
    put_all(pool, 0, 3)
    pool._due.put(None)
    pool.start()
    wait_for(lambda: ended(pool))
    assert told.names == names(0, 3)


def test_a_result_that_cannot_be_written_is_told_with_its_error_and_others_are_written() -> None:
    told = Told(20)
    pool = pool_of(Disk(), told, FixedPace(gathers=True))
    put_all(pool, 0, 20)
    pool.start()
    pool.close(CAP_S)
    failed = [item for batch in told.batches for item in batch if item.error is not None]
    assert [item.result.attempt.task.id for item in failed] == ["t-13"]
    assert failed[0].saved is None and told.names == names(0, 20)


def test_what_comes_after_the_end_is_dropped() -> None:
    told, disk = Told(1), Disk()
    pool = pool_of(disk, told, FixedPace())
    put_all(pool, 1, 2)
    pool.start()
    pool.close(CAP_S)
    put_all(pool, 2, 3)
    left: List[Optional[Result]] = []
    while not pool._due.empty():
        left.append(pool._due.get())
    assert left == [None] and told.names == ["t-1"]


@pytest.mark.parametrize("gathers", [False, True])
def test_what_is_not_begun_when_patience_ends_is_dropped(gathers: bool) -> None:
    told, disk, go = Told(1), Disk(), threading.Event()
    disk.hold = lambda: go.wait(CAP_S)
    pool = pool_of(disk, told, FixedPace(gathers), clock=lambda: 0.0)
    put_all(pool, 100, 110)
    pool.start()
    wait_for(lambda: len(disk.threads) == 1)
    pool.close(0.0)
    assert disk.closed.is_set()
    go.set()
    wait_for(lambda: ended(pool))
    assert disk.names == ["t-100"]  # the write under way ends; the directory gets no other
