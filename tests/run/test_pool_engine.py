"""What the engine makes of everything that an executor can say, with an executor that says it."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
)
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import pytest
from pool_agents import Heavy, facts
from run_support import wait_until

from agentloop_experiment_sdk.errors import ConfigurationError, RunAbortedError
from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.run.cluster import Cluster, broken, size_of
from agentloop_experiment_sdk.run.engine import Outlet
from agentloop_experiment_sdk.run.pool import PoolEngine
from agentloop_experiment_sdk.run.remote import Parcel, Reply, get_ready


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop files of clusters that no run dismisses."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


class ByHand(Executor):
    """An executor whose calls are settled by the test."""

    def __init__(self, size: int = 2) -> None:
        self.num_workers = size
        self.calls: List[Tuple[Any, Future[Any]]] = []
        self.probes: List[Future[Any]] = []
        self.refusal: Optional[Exception] = None
        self.ready: Callable[[Future[Any]], Any] = lambda future: future.set_result(1)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.refusal is not None:
            raise self.refusal
        future: Future[Any] = Future()
        if fn is get_ready:
            self.probes.append(future)
            self.ready(future)
        else:
            self.calls.append((args[0], future))
        return future

    def parcel(self, number: int) -> Parcel:
        sent: Parcel = self.calls[number][0]
        return sent

    def future(self, number: int) -> Future[Any]:
        return self.calls[number][1]

    def answer(self, number: int, **changes: Any) -> None:
        self.future(number).set_result(answered(**changes))


def answered(success: bool = True, **changes: Any) -> Reply:
    output = SolutionOutput(success, "answer")
    return Reply(output, 1, 2, 1.0, None, **changes)


def attempt(number: int) -> Attempt:
    task = Task(str(number), {"id": number}, metadata={"dataset_item_id": str(number)})
    return Attempt(task, "0")


class AtOnce:
    """Submits in the thread that calls."""

    def call(self, action: Callable[[], None]) -> None:
        action()

    def close(self) -> None:
        pass


class Run:
    """An engine with its executor, and what came out."""

    def __init__(self, solution: Any = facts, at_once: int = 2, suspects: Any = ()) -> None:
        self.executor = ByHand()
        self.cluster = Cluster(self.executor, solution, {})
        self.cluster.suspects.update((str(number), "0") for number in suspects)
        self.results: List[Result] = []
        self.drops: List[Tuple[str, Optional[BaseException]]] = []
        outlet = Outlet(
            self.results.append, lambda item, error: self.drops.append((item.task.id, error))
        )
        self.engine = PoolEngine(self.cluster, "record", outlet, at_once, AtOnce())

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            self.engine.submit(attempt(number))

    @property
    def sent(self) -> List[str]:
        return [parcel.attempt.task.id for parcel, _ in self.executor.calls]

    @property
    def done(self) -> List[Tuple[str, Any]]:
        return [(r.attempt.task.id, r.output.meta.get("error_type")) for r in self.results]


class KilledWorker(Exception):
    """Named as Dask names it."""


class CommClosedError(Exception):
    """Named as Dask names it."""


def test_no_more_attempts_are_sent_than_fit() -> None:
    run = Run()
    run.submit(1, 2, 3, 4)
    assert run.sent == ["1", "2"]
    run.executor.answer(1)
    assert run.sent == ["1", "2", "3"]
    assert run.done == [("2", None)]


def test_a_failed_answer_is_a_result_and_a_stopped_one_is_dropped() -> None:
    run = Run()
    run.submit(1, 2)
    run.executor.answer(0, success=False)
    run.executor.answer(1, success=False, stopped=True)
    assert run.done == [("1", None)] and run.drops == [("2", None)]


def test_a_worker_without_the_kit_is_sent_it() -> None:
    run = Run(solution=Heavy.__new__(Heavy))
    small = run.executor
    run.submit(1)
    assert small.parcel(0).kit is not None  # this one is small: it always travels along
    big = Run(solution=facts)
    big.cluster._kit = b"x" * 20_000
    big.submit(1)
    assert big.executor.parcel(0).kit is None
    big.executor.future(0).set_result(None)
    assert big.sent == ["1", "1"] and big.executor.parcel(1).kit is not None
    big.executor.answer(1)
    assert big.done == [("1", None)]


def test_a_call_that_went_lost_is_tried_again_and_ends_the_run_at_the_third_time() -> None:
    run = Run()
    run.submit(1)
    run.executor.future(0).set_exception(CommClosedError("gone"))
    run.executor.future(1).cancel()
    run.executor.future(2).set_exception(CancelledError())
    assert run.sent == ["1", "1", "1"] and not run.results
    ((name, error),) = run.drops
    assert name == "1" and isinstance(error, RunAbortedError) and error.code == "ExecutorBroken"


def test_a_row_that_dask_gave_up_runs_once_more_alone_and_then_fails() -> None:
    run = Run()
    run.submit(1, 2, 3)
    run.executor.future(0).set_exception(KilledWorker("run_parcel"))
    assert run.sent == ["1", "2", "3"]
    run.executor.answer(1)
    assert run.sent == ["1", "2", "3"]  # 1 waits until nothing else is in flight
    run.executor.answer(2)
    assert run.sent == ["1", "2", "3", "1"]
    run.submit(4)
    assert run.sent == ["1", "2", "3", "1"]  # and nothing joins it
    run.executor.future(3).set_exception(KilledWorker("run_parcel"))
    assert run.sent == ["1", "2", "3", "1", "4"]
    assert run.done == [("2", None), ("3", None), ("1", "WorkerLost")]


def test_a_row_given_up_by_mistake_succeeds_alone() -> None:
    run = Run()
    run.submit(1)
    run.executor.future(0).set_exception(KilledWorker("run_parcel"))
    run.executor.answer(1)
    assert run.done == [("1", None)] and not run.cluster.suspects


def test_a_broken_pool_names_what_was_in_flight() -> None:
    run = Run()
    run.submit(1, 2, 3)
    run.executor.refusal = BrokenExecutor("gone")
    run.executor.future(0).set_exception(BrokenExecutor("gone"))
    run.executor.future(1).set_exception(BrokenExecutor("gone"))
    assert [name for name, _ in run.drops] == ["1", "3", "2"]
    assert all(isinstance(error, RunAbortedError) for _, error in run.drops)
    assert run.cluster.suspects == {("1", "0"), ("2", "0")}


def test_a_row_alone_in_a_pool_that_breaks_has_failed() -> None:
    run = Run(suspects=[1])
    run.submit(1)
    run.executor.future(0).set_exception(BrokenExecutor("gone"))
    assert run.done == [("1", "WorkerLost")] and not run.drops


def test_a_pool_found_broken_by_the_next_row_names_what_was_in_flight() -> None:
    run = Run()
    run.submit(1)
    run.executor.refusal = BrokenExecutor("gone")
    run.submit(2)
    assert run.cluster.suspects == {("1", "0")}
    run.executor.future(0).set_exception(BrokenExecutor("gone"))
    assert [name for name, _ in run.drops] == ["2", "1"]


def test_an_executor_that_was_shut_down_ends_the_run_and_suspects_nobody() -> None:
    run = Run()
    run.submit(1)
    run.executor.refusal = RuntimeError("cannot schedule new futures after shutdown")
    run.submit(2)
    ((name, error),) = run.drops
    assert name == "2" and "after shutdown" in str(error) and not run.cluster.suspects


def test_what_a_worker_cannot_load_ends_the_run() -> None:
    run = Run()
    run.submit(1, 2)
    run.executor.future(0).set_exception(ConfigurationError("no module"))
    run.executor.future(1).set_exception(KeyboardInterrupt())
    assert [type(error) for _, error in run.drops] == [ConfigurationError, KeyboardInterrupt]


def test_an_answer_that_cannot_travel_fails_its_row() -> None:
    run = Run()
    run.submit(1)
    run.executor.future(0).set_exception(OverflowError("too large"))
    assert run.done == [("1", "OverflowError")]


def test_too_many_calls_that_do_not_end_end_the_run() -> None:
    run = Run()
    run.submit(1, 2)
    run.executor.answer(0, left_behind=2)
    run.executor.answer(1, left_behind=3)
    ((name, error),) = run.drops
    assert name == "2" and isinstance(error, RunAbortedError) and error.code == "TooManyStuckRows"


def test_stop_drops_what_waits_and_what_then_ends() -> None:
    run = Run(suspects=[4])
    run.submit(1, 2, 3, 4)
    run.executor.future(0).set_running_or_notify_cancel()
    run.engine.stop()
    assert sorted(name for name, _ in run.drops) == ["2", "3", "4"]
    run.executor.future(0).set_exception(BrokenExecutor("its worker got the Ctrl-C too"))
    assert ("1", None) in run.drops and run.cluster.suspects == {("4", "0")}
    run.submit(5)
    assert run.sent == ["1", "2"]


def test_a_kit_wanted_after_the_stop_is_not_sent() -> None:
    run = Run()
    run.submit(1)
    run.executor.future(0).set_running_or_notify_cancel()
    run.engine.stop()
    run.executor.future(0).set_result(None)
    assert run.drops == [("1", None)] and run.sent == ["1"]


def test_close_gives_up_what_still_runs() -> None:
    run = Run()
    run.submit(1)
    run.engine.close()
    wait_until(run.executor.future(0).cancelled)


def test_workers_that_cannot_run_rows_are_an_error_before_the_run() -> None:
    executor = ByHand()
    executor.ready = lambda future: future.set_exception(ImportError("no such module"))
    with pytest.raises(ConfigurationError, match="Install the same versions"):
        Cluster(executor, facts, {}).make_ready(4)
    executor.ready = lambda future: future.set_exception(BrokenExecutor("died"))
    with pytest.raises(ConfigurationError, match="__main__"):
        Cluster(executor, facts, {}).make_ready(4)
    executor.ready = Future.cancel
    with pytest.raises(ConfigurationError, match="shut down"):
        Cluster(executor, facts, {}).make_ready(4)


def test_waiting_for_workers_says_so_and_ends_at_a_stop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloop_experiment_sdk.run.cluster._PATIENCE_S", 0.0)
    executor = ByHand()
    executor.ready = lambda future: None
    asked = iter([False, False, True])
    with caplog.at_level(logging.WARNING):
        Cluster(executor, facts, {}).make_ready(4, lambda: next(asked))
    assert [record.message for record in caplog.records].count(
        "Waiting for the workers of the executor: none is ready yet."
    ) == 1
    assert executor.probes[0].cancelled()


class Locking(ByHand):
    """Holds its lock while it calls back, as a process pool does that breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self.lock:
            return super().submit(fn, *args, **kwargs)

    def answer(self, number: int, **changes: Any) -> None:
        with self.lock:
            super().answer(number, **changes)


def test_an_executor_may_hold_its_lock_while_it_calls_back() -> None:
    executor, results = Locking(), []
    outlet = Outlet(results.append, lambda item, error: None)
    engine = PoolEngine(Cluster(executor, facts, {}), "record", outlet, 1)
    for number in range(3):
        engine.submit(attempt(number))
    for number in range(3):
        wait_until(lambda number=number: len(executor.calls) > number)
        executor.answer(number)
    assert len(results) == 3
    engine.close()


def test_what_a_notebook_defines_is_sent_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell may have changed since the pool was started."""
    pytest.importorskip("cloudpickle")
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)

    def cell(task: Any) -> str:
        return "new"

    cell.__module__, cell.__qualname__ = "__main__", "cell"
    monkeypatch.setattr(sys.modules["__main__"], "cell", cell, raising=False)
    with ProcessPoolExecutor(1) as pool:
        notebook = Cluster(pool, cell, {}).parcel(attempt(1), "")
        monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
        script = Cluster(pool, cell, {}).parcel(attempt(1), "")
    assert isinstance(notebook.kit, bytes) and b"new" in notebook.kit
    assert isinstance(script.kit, bytes) and b"new" not in script.kit


class Sizeless(Executor):
    """Says nothing of its size."""


def test_an_executor_that_does_not_tell_its_size_is_taken_for_n_workers() -> None:
    assert size_of(Sizeless(), 7) == 7
    assert size_of(ByHand(3), 7) == 3
    assert Cluster(ByHand(3), facts, {}).make_ready(7) == 6


def test_a_broken_executor_is_told_in_whole_sentences() -> None:
    said = "A process in the process pool was terminated abruptly."
    message = str(broken(RuntimeError(said)))
    assert said + " A solution" in message and ".." not in message
    assert "cannot go on: RuntimeError. A" in str(broken(RuntimeError()))
