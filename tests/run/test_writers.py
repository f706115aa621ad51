"""Writing off the flow: one thread while that is quick, more on a slow disk, nothing left over."""

import itertools
import threading
import time
from typing import Any, Callable, Dict, List

import pytest

from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.results.journal import Saved
from agentloop_experiment_sdk.run.messages import Written
from agentloop_experiment_sdk.run.writers import BATCH, WriterPool

CAP_S = 30.0


def result(number: int) -> Result:
    attempt = Attempt(Task("t-{}".format(number), {}), "0")
    return Result(attempt, SolutionOutput.success(number), 0, 0, 0.0)


def entry(of: Result) -> Saved:
    return Saved(of.attempt.task.id, "0", 1, "success", 0.0, 10)


class Disk:
    """Writes nothing; counts who wrote. Helpers of the first thread wait for each other."""

    def __init__(self, threads: int = 1) -> None:
        self.threads: Dict[int, int] = {}
        self.names: List[str] = []
        self._helpers = threading.Barrier(max(1, threads - 1))

    def save(self, what: Result) -> Saved:
        me = threading.get_ident()
        is_first_of_helper = bool(self.threads) and me not in self.threads
        self.threads[me] = self.threads.get(me, 0) + 1
        self.names.append(what.attempt.task.id)
        if is_first_of_helper:
            self._helpers.wait(CAP_S)
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


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + CAP_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.001)


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


@pytest.mark.parametrize(
    ("took_s", "n_workers", "helping"),
    [(0.0002, 8, 1), (0.001, 8, 2), (0.001, 1, 2), (1.0, 16, 8)],
)
def test_more_threads_help_where_writing_is_slow_and_holds_the_run_up(
    took_s: float, n_workers: int, helping: int
) -> None:
    ticks, told = itertools.count(), Told(400)
    # a helper waits with its first result until all have come; the first thread goes on
    disk = Disk(helping)
    pool = pool_of(disk, told, n_workers, clock=lambda: next(ticks) * took_s)
    for number in range(100, 500):
        pool.put(result(number))
    pool.start()
    assert told.all.wait(CAP_S)
    pool.close()
    assert len(disk.threads) == helping


def test_one_quick_write_among_slow_ones_says_that_the_disk_is_quick() -> None:
    now, told, disk = [0.0], Told(62), Disk()
    takes = itertools.cycle([1.0] * 15 + [0.0])

    def save(what: Result) -> Saved:
        now[0] += next(takes)
        return Disk.save(disk, what)

    pool = pool_of(disk, told, clock=lambda: now[0])
    disk.save = save  # type: ignore[method-assign]
    for number in range(100, 162):
        pool.put(result(number))
    pool.start()
    assert told.all.wait(CAP_S)
    pool.close()
    assert len(disk.threads) == 1


def test_a_slow_disk_that_keeps_up_needs_no_help() -> None:
    ticks, disk = itertools.count(), Disk()
    told = Told(40)
    pool = pool_of(disk, told, clock=lambda: float(next(ticks)))
    pool.start()
    for number in range(100, 140):
        pool.put(result(number))
        wait_for(lambda count=number - 99: len(told.names) == count)
    pool.close()
    assert len(disk.threads) == 1


def test_what_comes_after_the_end_is_not_written() -> None:
    told, disk = Told(1), Disk()
    pool = pool_of(disk, told)
    pool.put(result(1))
    pool.close()
    pool.put(result(2))
    pool.start()
    assert told.all.wait(CAP_S)
    wait_for(lambda: not any(t.name == "agentloop-writer" for t in threading.enumerate()))
    assert told.names == ["t-1"]


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
