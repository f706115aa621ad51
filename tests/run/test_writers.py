"""Writing off the flow: one thread while that is quick, more on a slow disk, nothing left over."""

import itertools
import threading
from typing import Any, Dict, List, Optional

import pytest

from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.results.journal import Saved
from agentloop_experiment_sdk.run.messages import Written
from agentloop_experiment_sdk.run.writers import BATCH, MOST_THREADS, WriterPool

CAP_S = 30.0


def result(number: int) -> Result:
    attempt = Attempt(Task("t-{}".format(number), {}), "0")
    return Result(attempt, SolutionOutput.success(number), 0, 0, 0.0)


def entry(of: Result) -> Saved:
    return Saved(of.attempt.task.id, "0", 1, "success", 0.0, 10)


class Disk:
    """Writes nothing; counts who wrote, and may make each writer wait for others."""

    def __init__(self, barrier: Optional[threading.Barrier] = None) -> None:
        self.threads: Dict[int, int] = {}
        self.names: List[str] = []
        self._barrier = barrier

    def save(self, what: Result) -> Saved:
        me = threading.get_ident()
        self.threads[me] = self.threads.get(me, 0) + 1
        self.names.append(what.attempt.task.id)
        if self._barrier is not None:
            self._barrier.wait(CAP_S)
        if what.attempt.task.id == "t-13":
            raise OSError("no space")
        return entry(what)


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


def pool_of(disk: Disk, told: Told, n_workers: int = 8, **more: Any) -> WriterPool:
    return WriterPool(disk, told, n_workers, **more)  # type: ignore[arg-type]


def test_one_thread_writes_while_the_disk_is_quick() -> None:
    disk, told = Disk(), Told(200)
    pool = pool_of(disk, told, clock=lambda: 0.0)
    pool.start()
    for number in range(200):
        pool.put(result(number))
    pool.close()
    assert told.all.wait(CAP_S)
    assert len(disk.threads) == 1 and sorted(told.names) == sorted(disk.names)
    assert max(map(len, told.batches)) == 1


@pytest.mark.parametrize(("n_workers", "helping"), [(8, MOST_THREADS), (2, 2), (1, 1)])
def test_more_threads_help_where_the_disk_is_slow(n_workers: int, helping: int) -> None:
    ticks = itertools.count()
    # whoever writes waits until all helpers write: without them it would never end
    disk, told = Disk(threading.Barrier(helping)), Told(40 * helping)
    slow = pool_of(disk, told, n_workers, slow=True, clock=lambda: float(next(ticks)))
    slow.start()
    for number in range(100, 100 + 40 * helping):
        slow.put(result(number))
    slow.close()
    assert told.all.wait(CAP_S)
    assert len(disk.threads) == helping


def test_a_disk_counts_as_slow_after_several_slow_writes_in_a_row() -> None:
    clock, told, disk = [0.0], Told(31), Disk()
    takes = iter([1.0] * 15 + [0.0] + [1.0] * 15)

    def now() -> float:
        return clock[0]

    def save(what: Result) -> Saved:
        clock[0] += next(takes)
        return Disk.save(disk, what)

    pool = pool_of(disk, told, clock=now)
    disk.save = save  # type: ignore[method-assign]
    pool.start()
    for number in range(100, 131):
        pool.put(result(number))
    pool.close()
    assert told.all.wait(CAP_S)
    assert len(disk.threads) == 1


def test_gathered_results_are_told_together_and_none_is_left_at_the_end() -> None:
    asleep = threading.Event()
    told = Told(3 * BATCH)

    def sleep(_seconds: float) -> None:
        # while it sleeps the others come, and the end
        for number in range(101, 100 + 3 * BATCH):
            pool.put(result(number))
        pool.close()
        asleep.set()

    pool = pool_of(Disk(), told, gathers=lambda: True, sleep=sleep)
    pool.put(result(100))
    pool.start()
    assert told.all.wait(CAP_S) and asleep.is_set()
    assert [len(batch) for batch in told.batches] == [BATCH] * 3
    assert told.names == ["t-{}".format(number) for number in range(100, 100 + 3 * BATCH)]


def test_the_end_between_two_results_does_not_cut_a_batch() -> None:
    told, disk = Told(3), Disk()
    pool = pool_of(disk, told, gathers=lambda: True)
    for number in range(3):
        pool.put(result(number))
    pool.close()
    pool.start()
    assert told.all.wait(CAP_S)
    assert told.names == ["t-0", "t-1", "t-2"]


def test_a_result_that_cannot_be_written_is_told_with_its_error_and_others_are_written() -> None:
    told = Told(20)
    pool = pool_of(Disk(), told, gathers=lambda: True)
    for number in range(20):
        pool.put(result(number))
    pool.start()
    pool.close()
    assert told.all.wait(CAP_S)
    failed = [item for batch in told.batches for item in batch if item.error is not None]
    assert [item.result.attempt.task.id for item in failed] == ["t-13"]
    assert failed[0].saved is None and len(told.names) == 20
