"""Whole runs over real process pools: same guarantees, other processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from pool_agents import (
    Deadly,
    Endless,
    Gated,
    Heavy,
    Locked,
    Unloadable,
    facts,
    failing_twice_then_answering,
    large,
    names,
    note,
    on_the_loop,
    sleeping,
    unpicklable,
)
from run_support import (
    completed,
    config_for,
    counters,
    http_agent,
    item_rows,
    items,
    journal,
    meta_of,
    run,
    solutions,
    wait_until,
)

from agentloop_experiment_sdk import (
    ConfigurationError,
    Experiment,
    RunAbortedError,
    command_solution_with,
    http_solution_with,
    load_result,
    local_config,
    run_experiment,
    run_experiment_parallel,
    run_multi_turn_agent_experiment,
    run_multi_turn_experiment,
)
from agentloop_experiment_sdk.local import LocalAgentLoop

# the pools here are forked before LocalAgentLoop starts, but other threads of the tests may run
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def started_pool(size: int = 2, method: str = "fork") -> ProcessPoolExecutor:
    """A pool whose processes all run before the test's own threads do."""
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(size, mp_context=context)
    if method == "fork":
        list(pool.map(os.nice, [0] * size))
    return pool


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[ProcessPoolExecutor]:
    with started_pool() as executor:
        yield executor


@pytest.fixture
def local(pool: ProcessPoolExecutor) -> Iterator[LocalAgentLoop]:
    """Started after the pool: its threads are not forked."""
    with LocalAgentLoop() as running:
        yield running


def outputs(path: Any) -> List[Any]:
    """What all rows answered."""
    return [json.loads(file.read_text("utf-8"))["output"] for file in solutions(path)]


def test_rows_run_in_the_processes_and_are_traced_saved_and_delivered(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    result = run(
        config_for(local, 12), facts, tmp_path, executor=pool, version="v7", parameters={"k": [1]}
    )
    answers = outputs(tmp_path)
    assert os.getpid() not in {answer["pid"] for answer in answers}
    assert {answer["version"] for answer in answers} == {"v7"}
    assert answers[0]["parameters"] == {"k": [1]}
    assert all(result.record_id in answer["baggage"] for answer in answers)
    assert sorted(items(local, result.record_id), key=int) == [str(n) for n in range(12)]
    traces = {row["traceId"] for row in local.rows(result.record_id)}
    assert traces == {answer["traceparent"].split("-")[1] for answer in answers}
    assert counters(local, result.record_id) == completed(12)


def test_a_spawned_pool_runs_them_too(tmp_path: Path) -> None:
    with started_pool(method="spawn") as executor, LocalAgentLoop() as local:
        result = run(config_for(local, 4), facts, tmp_path, executor=executor)
        assert result.counts.succeeded == 4


def test_async_solutions_share_one_loop_in_each_process(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    run(config_for(local, 12), on_the_loop, tmp_path, executor=pool)
    answers = outputs(tmp_path)
    loops = {(answer["pid"], answer["loop"]) for answer in answers}
    assert len(loops) == len({answer["pid"] for answer in answers})


def test_every_way_to_run_takes_an_executor(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 2)
    for number, start in enumerate((run_experiment, run_experiment_parallel)):
        record_id = start(config, facts, tmp_path / str(number), executor=pool)
        assert counters(local, record_id) == completed(2)
        assert os.getpid() not in {answer["pid"] for answer in outputs(tmp_path / str(number))}


def turn(message: str, session_id: str, turn_index: int, task: Any) -> List[str]:
    return ["sh", "-c", "echo $PPID"]


def test_conversations_are_held_in_the_processes(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    rows = [{"id": str(n), "turns": ["hello", "bye"]} for n in range(3)]
    config = local_config(local, local.create_plan(local.load_dataset(rows, "conversations")))
    with http_agent(lambda body: {"output": "hi"}) as url:
        record_id = run_multi_turn_experiment(config, url, result_dir=tmp_path / "h", executor=pool)
    assert counters(local, record_id) == completed(3)
    record_id = run_multi_turn_agent_experiment(
        config, turn, result_dir=tmp_path / "c", executor=pool
    )
    assert counters(local, record_id) == completed(3)
    assert str(os.getpid()) not in json.dumps(outputs(tmp_path / "c"))


def test_a_solution_that_cannot_be_sent_is_refused_at_once(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    with pytest.raises(ConfigurationError, match=r"solution cannot be sent .* locks"):
        run_experiment(config, Locked(), tmp_path, executor=pool)
    with pytest.raises(ConfigurationError, match="parameters cannot be sent"):
        Experiment(config, facts, tmp_path, executor=pool, parameters={"lock": threading.Lock()})
    assert not local.requests


def test_a_solution_that_cannot_be_loaded_is_refused_before_any_request(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cannot load the solution: ModuleNotFoundError"):
        run(config_for(local), Unloadable(), tmp_path, executor=pool)
    assert not local.requests and not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [3, "dask", object()])
def test_what_is_no_executor_is_refused(given: Any, local: LocalAgentLoop, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="must be a concurrent.futures.Executor"):
        Experiment(config_for(local), facts, tmp_path, executor=given)


def test_an_executor_that_was_shut_down_is_refused_before_any_request(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    executor = ProcessPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(ConfigurationError, match="Give the run a new one") as caught:
        run(config_for(local), facts, tmp_path, executor=executor)
    assert caught.value.code == "ExecutorBroken"
    assert not local.requests


def test_a_broken_pool_ends_the_run_and_a_new_one_completes_it(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    """The deadly row is found out: it runs alone, and fails when the pool breaks again."""
    notes, path = tmp_path / "notes", tmp_path / "r"
    notes.mkdir()
    config, solution = config_for(local, 12), Deadly(notes, "1")
    with pytest.raises(RunAbortedError, match="Run again with a new executor") as caught:
        run(config, solution, path, executor=pool)
    assert caught.value.code == "ExecutorBroken"
    assert meta_of(path)["status"] == "failed"
    suspects = {tuple(key) for key in meta_of(path)["suspects"]}
    assert len(suspects) > 1 and not suspects & set(journal(path).saved)
    note(notes, "gate")
    with started_pool() as second, pytest.raises(RunAbortedError):
        run(config, solution, path, executor=second)
    # all rows but those that were in flight at the first break, and of them one that is innocent
    assert len(journal(path).saved) == 12 - len(suspects) + 2
    with started_pool() as third:
        result = run(config, solution, path, executor=third)
    failed = [row for row in local.rows(result.record_id) if row["dataset.id"] == "1"]
    assert "WorkerLost" in failed[0]["experiment_output"]
    assert counters(local, result.record_id) == completed(12, failed=1)
    assert sorted(items(local, result.record_id), key=int) == [str(n) for n in range(12)]
    assert not {tuple(key) for key in meta_of(path)["suspects"]} - set(journal(path).saved)


def test_stop_cancels_async_rows_in_the_processes(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    experiment = Experiment(config_for(local, 9), Endless(notes), tmp_path / "r", executor=pool)
    stopper = threading.Thread(
        target=lambda: (wait_until(lambda: len(names(notes, "begun")) >= 2), experiment.stop())
    )
    stopper.start()
    result = experiment.run()
    stopper.join()
    wait_until(lambda: len(names(notes, "cancelled")) >= 2)
    assert result.counts.succeeded == 0 and not solutions(tmp_path / "r")
    assert len(names(notes, "begun")) < 9
    assert counters(local, result.record_id)["status"] == "failed"
    # and the same pool takes the next run
    again = config_for(local, 9, dataset="again")
    assert run(again, facts, tmp_path / "s", executor=pool).counts.succeeded == 9


def slow_command(task: Any) -> List[str]:
    script = "echo $$ > {}/pid-{}; sleep 600".format(task.metadata["parameters"]["notes"], "$$")
    return ["sh", "-c", script]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_stop_kills_the_commands_of_the_processes(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    solution = command_solution_with(slow_command, default_timeout=600)
    options: Any = {"executor": pool, "parameters": {"notes": str(notes)}}
    experiment = Experiment(config_for(local, 6), solution, tmp_path / "r", **options)
    stopper = threading.Thread(
        target=lambda: (wait_until(lambda: len(names(notes, "pid")) >= 2), experiment.stop())
    )
    stopper.start()
    experiment.run()
    stopper.join()
    pids = [int(name.split("-")[1]) for name in names(notes, "pid")]
    wait_until(lambda: not any(map(is_alive, pids)))


def body(task: Any) -> Any:
    return dict(task.input)


def test_stop_ends_the_http_calls_of_the_processes(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    asked, gate = threading.Semaphore(0), threading.Event()

    def reply(question: Any) -> Any:
        asked.release()
        gate.wait(60)
        return {}

    with http_agent(reply) as url:
        solution = http_solution_with(url, body_builder=body, timeout=600)
        experiment = Experiment(config_for(local, 6), solution, tmp_path, executor=pool)
        stopper = threading.Thread(
            target=lambda: [asked.acquire(), asked.acquire(), experiment.stop()], daemon=True
        )
        stopper.start()
        result = experiment.run()
        stopper.join()
        # the processes are free again although the agent has not answered
        assert list(pool.map(os.nice, [0, 0])) == [os.nice(0)] * 2
        gate.set()
    assert not solutions(tmp_path) and result.counts.succeeded == 0


def test_task_timeout_counts_from_the_call_and_row_retries_hold(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    rows = [dict(row, seconds=30 if row["id"] == "1" else 0) for row in item_rows(6)]
    config = local_config(local, local.create_plan(local.load_dataset(rows, "slow")))
    result = run(config, sleeping, tmp_path / "t", executor=pool, task_timeout=1)
    assert [failure["error_type"] for failure in failures(tmp_path / "t")] == ["TaskTimeout"]
    assert result.counts.succeeded == 5

    notes = tmp_path / "notes"
    notes.mkdir()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as forked:
        again = run(
            config_for(local, 4),
            Flaky(notes),
            tmp_path / "f",
            executor=forked,
            row_retries=1,
        )
    assert again.counts.succeeded == 4
    assert {row["attempt"] for row in local.rows(again.record_id)} == {"2"}


class Flaky:
    """``failing_twice_then_answering`` as something that can be sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, task: Any) -> str:
        answer: str = failing_twice_then_answering(self.folder)(task)
        return answer


def failures(path: Any) -> List[Any]:
    """The meta of failed rows."""
    read = [json.loads(file.read_text("utf-8")) for file in solutions(path)]
    return [document["meta"] for document in read if not document["success"]]


def raising(task: Any) -> str:
    raise ValueError("no answer")


def has_answer(task: Any, output: Any) -> bool:
    return "pid" in str(output.output)


def test_failure_limits_and_evaluators_hold(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    with pytest.raises(RunAbortedError) as caught:
        run(config_for(local, 40), raising, tmp_path / "f", executor=pool, max_failures=2)
    assert caught.value.code == "TooManyFailures"
    assert len(solutions(tmp_path / "f")) < 40
    assert failures(tmp_path / "f")[0]["error_message"] == "no answer"
    result = run(
        config_for(local, 3, dataset="scored"),
        facts,
        tmp_path / "e",
        executor=pool,
        evaluators=[has_answer],
    )
    assert all("true" in row["experiment_metrics"] for row in local.rows(result.record_id))


def test_resume_runs_only_what_is_missing(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 6)
    first = run(config, facts, tmp_path, executor=pool, limit=4)
    before = {path: path.stat().st_mtime_ns for path in solutions(tmp_path)}
    second = run(config, facts, tmp_path, executor=pool)
    assert second.record_id == first.record_id
    assert {path: path.stat().st_mtime_ns for path in solutions(tmp_path) if path in before} == (
        before
    )
    assert counters(local, second.record_id) == completed(6)


def test_large_and_odd_answers_come_back(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    run(config_for(local, 2), large, tmp_path / "l", executor=pool)
    assert [len(output) for output in outputs(tmp_path / "l")] == [10_000_000] * 2
    run(config_for(local, 1, dataset="odd"), unpicklable, tmp_path / "u", executor=pool)
    (answer,) = outputs(tmp_path / "u")
    assert answer["items"] == [0, 1, 2] and "lock" in answer["lock"]


def test_a_big_solution_is_loaded_once_in_each_process(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    result = run(config_for(local, 30), Heavy(notes, 3_000_000), tmp_path / "r", executor=pool)
    assert result.counts.succeeded == 30
    loaded = [name.split("-")[1] for name in names(notes, "loaded")]
    assert len(loaded) == len(set(loaded)) <= 2


def test_threads_of_the_callers_pool_need_no_pickling(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    solution = Locked()
    notes = tmp_path / "notes"
    notes.mkdir()
    with ThreadPoolExecutor(3) as threads:
        result = run(config_for(local, 5), solution, tmp_path / "r", executor=threads)
        assert result.counts.succeeded == 5
        experiment = Experiment(
            config_for(local, 9, dataset="endless"),
            Endless(notes),
            tmp_path / "s",
            executor=threads,
        )
        stopper = threading.Thread(
            target=lambda: (wait_until(lambda: len(names(notes, "begun")) >= 3), experiment.stop())
        )
        stopper.start()
        experiment.run()
        stopper.join()
        wait_until(lambda: len(names(notes, "cancelled")) >= 3)


def test_nothing_of_a_run_is_left_in_the_temporary_folder(
    pool: ProcessPoolExecutor,
    local: LocalAgentLoop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    run(config_for(local, 2), facts, tmp_path / "r", executor=pool)
    with pytest.raises(ConfigurationError):
        run(config_for(local, dataset="other"), Unloadable(), tmp_path / "u", executor=pool)
    wait_until(lambda: not list((tmp_path / "tmp").glob("agentloop-run-*")))


def test_rows_in_hand_are_bounded_by_the_size_of_the_pool(
    pool: ProcessPoolExecutor, local: LocalAgentLoop, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    limits = []
    experiment = Experiment(
        config_for(local, 8),
        Gated(notes),
        tmp_path / "r",
        executor=pool,
        on_event=lambda event: limits.append(getattr(event, "limit", None)),
    )
    note(notes, "gate")
    experiment.run()
    assert {limit for limit in limits if limit is not None} == {4}
    assert load_result(tmp_path / "r").counts.succeeded == 8
