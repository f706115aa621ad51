"""Ctrl-C and stop(): what ran is put in order, nothing new starts, and the next run goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from run_support import (
    CAP_S,
    Program,
    answer,
    completed,
    config_for,
    counters,
    http_agent,
    items,
    meta_of,
    run,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import Experiment, RecordCreated, Task, load_result
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results.attempts import AttemptWriter
from agentloop_experiment_sdk.run import pace

WORKERS = 4


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waits for may remain as a zombie."""
    try:
        state = Path("/proc/{}/stat".format(pid)).read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def assert_put_in_order(local: LocalAgentLoop, path: Path, total: int) -> int:
    """The record says failed with the truth, and finished rows are in SLS; returns their number."""
    (record_id,) = local.records()
    saved = len(solutions(path))
    assert statuses(local, record_id)[-1] == "failed"
    told = counters(local, record_id)
    assert (told["totalTasks"], told["completedTasks"] + told["failedTasks"]) == (total, saved)
    assert len(items(local, record_id)) == saved
    assert meta_of(path)["status"] == "interrupted"
    assert load_result(path).counts.undelivered == 0
    return saved


def assert_the_rest_runs(local: LocalAgentLoop, config: Any, path: Path, total: int) -> None:
    """The next run does what is missing under the same record."""
    saved = len(solutions(path))
    calls: List[str] = []

    def solution(task: Task) -> str:
        calls.append(task.id)
        return answer(task)

    result = run(config, solution, path, n_workers=WORKERS)
    assert len(calls) == total - saved
    assert local.records() == [result.record_id]
    assert counters(local, result.record_id) == completed(total)
    assert sorted(items(local), key=int) == [str(n) for n in range(total)]


@pytest.mark.parametrize("awaited", [False, True], ids=["run", "arun"])
@pytest.mark.parametrize("kind", ["sync", "stuck", "async", "http", "cli"])
def test_ctrl_c_with_a_full_queue(
    local: LocalAgentLoop, tmp_path: Path, kind: str, awaited: bool
) -> None:
    if awaited and kind in ("stuck", "cli"):
        pytest.skip("as with run(): both use threads of ours")
    release = threading.Event()
    config = config_for(local, 1000)
    path, pids = tmp_path / "r", tmp_path / "pids"
    job: Dict[str, Any] = {"options": {"n_workers": WORKERS}, "awaited": awaited}
    job["seconds"] = 0.2 if kind == "sync" else 600
    job["pids"] = str(pids)
    with http_agent(lambda body: release.wait(CAP_S)) as url:
        solution = "sync" if kind == "stuck" else kind
        with Program(config, path, solution=solution, url=url, **job) as program:
            program.wait_for_calls(WORKERS)
            if kind == "cli":
                wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2 * WORKERS)
            program.interrupt()
            assert program.end() == 130, program.stderr
        release.set()
    assert program.outcome == {"raised": "KeyboardInterrupt"}
    # nothing new starts; the rows that ran may finish within the grace if they cannot be ended
    assert len(program.calls) <= 2 * WORKERS
    if kind != "sync":
        assert len(program.calls) == WORKERS
        assert len(solutions(path)) == 0
    assert "run it again to go on" in program.stderr
    assert_put_in_order(local, path, 1000)
    if kind == "cli":
        wait_until(lambda: all(is_gone(int(pid)) for pid in pids.read_text().split()))
    if not awaited:
        assert_the_rest_runs(local, config, path, 1000)


def test_ctrl_c_in_serial_mode(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 50)
    job = {"seconds": 0.05, "options": {"n_workers": 1, "serial": True}}
    with Program(config, tmp_path, **job) as program:
        program.wait_for_calls(5)
        program.interrupt()
        assert program.end() == 130, program.stderr
    # no row is left running: there is nothing to wait for
    assert "the next run runs" not in program.stderr
    saved = assert_put_in_order(local, tmp_path, 50)
    assert 4 <= saved <= len(program.calls)
    assert_the_rest_runs(local, config, tmp_path, 50)


def test_ctrl_c_during_the_drain_keeps_the_rows(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 20)
    outage = local.faults.outage("503", "PutLogs")
    with Program(config, tmp_path, options={"stop_grace": 1.0}) as program:
        wait_until(lambda: len(solutions(tmp_path)) == 20 and outage.hits >= 2)
        program.interrupt()
        assert program.end() == 130, program.stderr
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    assert counters(local, record_id)["completedTasks"] == 20
    assert "20 rows were not delivered to SLS" in program.stderr
    assert "agentloop-experiment deliver" in program.stderr
    outage.stop()
    assert not local.rows()
    assert_the_rest_runs(local, config, tmp_path, 20)


def test_a_second_ctrl_c_exits_at_once(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 20)
    local.faults.outage("hang", "PutLogs")
    # by itself the first one would wait for SLS for as long as this
    options = {"stop_grace": 600.0, "drain_timeout": 600.0, "n_workers": WORKERS}
    with Program(config, tmp_path, options=options) as program:
        wait_until(lambda: len(solutions(tmp_path)) == 20)
        program.interrupt()
        (record_id,) = local.records()
        wait_until(lambda: statuses(local, record_id)[-1] == "failed")
        assert program.process.poll() is None
        program.interrupt()
        assert program.end() == 130, program.stderr
    assert len(solutions(tmp_path)) == 20


def test_an_unreachable_agentloop_does_not_hold_an_interrupted_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 50)
    options = {"stop_grace": 1.0, "n_workers": 2}
    with Program(config, tmp_path, seconds=0.02, options=options) as program:
        program.wait_for_calls(4)
        local.faults.outage("hang", "openapi:*")
        program.interrupt()
        assert program.end() == 130, program.stderr
    assert "has not acknowledged its last update" in program.stderr
    local.faults.clear()
    assert_the_rest_runs(local, config, tmp_path, 50)


def test_ctrl_c_while_quick_rows_are_gathered_loses_no_answer(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 1000)
    with Program(config, tmp_path, options={"n_workers": WORKERS}, gathers=True) as program:
        program.wait_for_line("event gathers")
        program.interrupt()
        assert program.end() == 130, program.stderr
    called = list(program.calls)
    assert assert_put_in_order(local, tmp_path, 1000) == len(called) < 1000
    with Program(config, tmp_path, options={"n_workers": WORKERS}) as program:
        assert program.end() == 0, program.stderr
    assert sorted(called + program.calls) == sorted(str(n) for n in range(1000))


# ---------------------------------------------------------------------- stop()


class Started:
    """An experiment that runs in a thread of its own."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.results: List[Any] = []
        self.errors: List[BaseException] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.results.append(self.experiment.run())
        except BaseException as error:
            self.errors.append(error)

    def result(self) -> Any:
        self.thread.join(CAP_S)
        assert not self.thread.is_alive()
        assert not self.errors, self.errors
        return self.results[0]


def test_stop_from_another_thread_ends_the_run_without_an_exception(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 100)
    begun, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    calls: List[str] = []

    async def solution(task: Task) -> str:
        calls.append(task.id)
        if len(calls) <= 10:
            return "quick"
        begun.release()
        try:
            await asyncio.sleep(CAP_S)
        except asyncio.CancelledError:
            cancelled.release()
            raise
        return "never"

    events: List[Any] = []
    experiment = Experiment(config, solution, tmp_path, n_workers=WORKERS, on_event=events.append)
    started = Started(experiment)
    for _ in range(WORKERS):
        assert begun.acquire(timeout=CAP_S)
    experiment.stop()
    experiment.stop()
    result = started.result()
    for _ in range(WORKERS):
        assert cancelled.acquire(timeout=CAP_S)
    assert result.status == "interrupted"
    assert (result.counts.succeeded, result.counts.incomplete) == (10, 90)
    assert events[-1].status == "interrupted"
    assert assert_put_in_order(local, tmp_path, 100) == 10
    experiment.stop()  # the run is over: nothing happens, also not to the next one
    assert_the_rest_runs(local, config, tmp_path, 100)


@pytest.mark.parametrize("serial", [False, True])
def test_stop_lets_sync_rows_finish_within_their_grace(
    local: LocalAgentLoop, tmp_path: Path, serial: bool
) -> None:
    config = config_for(local, 30)
    experiments: List[Experiment] = []
    calls: List[str] = []

    def solution(task: Task) -> str:
        calls.append(task.id)
        if len(calls) == 3:
            experiments[0].stop()
        return answer(task)

    experiment = Experiment(config, solution, tmp_path, n_workers=1, serial=serial)
    experiments.append(experiment)
    result = experiment.run()
    # the row that asked for the end answers; at most one more had begun before the flow knew
    assert result.status == "interrupted" and 3 <= len(calls) <= 30
    assert assert_put_in_order(local, tmp_path, 30) == len(calls)
    assert_the_rest_runs(local, config, tmp_path, 30)


def test_stop_leaves_stuck_rows_behind_and_drops_their_late_answers(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local, 20)
    release, begun, late = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def solution(task: Task) -> str:
        begun.release()
        release.wait(CAP_S)
        late.release()
        return "late"

    experiment = Experiment(config, solution, tmp_path, n_workers=2, stop_grace=0.3)
    started = Started(experiment)
    for _ in range(2):
        assert begun.acquire(timeout=CAP_S)
    experiment.stop()
    assert started.result().counts.succeeded == 0
    assert "2 rows did not end, or not reach the disk, in time; the next run runs" in caplog.text
    release.set()
    for _ in range(2):
        assert late.acquire(timeout=CAP_S)
    assert not solutions(tmp_path)
    assert_the_rest_runs(local, config, tmp_path, 20)


def test_stop_before_run_runs_nothing(local: LocalAgentLoop, tmp_path: Path) -> None:
    calls: List[str] = []
    experiment = Experiment(config_for(local), lambda task: calls.append(task.id), tmp_path)
    experiment.stop()
    result = experiment.run()
    assert result.status == "interrupted" and not calls
    assert experiment.run().status == "completed" and len(calls) == 3


def test_stop_from_a_listener(local: LocalAgentLoop, tmp_path: Path) -> None:
    experiments: List[Experiment] = []

    def on_event(event: Any) -> None:
        if type(event).__name__ == "AttemptDone":
            experiments[0].stop()

    config = config_for(local, 50)
    experiments.append(Experiment(config, answer, tmp_path, n_workers=1, on_event=on_event))
    result = experiments[0].run()
    assert result.status == "interrupted" and 1 <= result.counts.succeeded < 50
    assert assert_put_in_order(local, tmp_path, 50) == result.counts.succeeded


def test_a_run_that_is_stopped_on_a_slow_disk_writes_nothing_once_it_is_over(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved, is_slow = AttemptWriter.save, [0], [True]

    def slowly(writer: AttemptWriter, result: Any) -> Any:
        saved[0] += 1
        if is_slow[0] and saved[0] > 100:
            if saved[0] == 103:
                first.experiment.stop()
            time.sleep(0.5)
        return save(writer, result)

    # gathered, so that dozens of answers wait to be written at the stop
    monkeypatch.setattr(pace, "_WRITERS", ())
    monkeypatch.setattr(AttemptWriter, "save", slowly)
    config = config_for(local, 300)
    first = Started(Experiment(config, lambda task: "first", tmp_path, n_workers=1, stop_grace=1.0))
    assert first.result().status == "interrupted"
    on_disk, is_slow[0] = len(solutions(tmp_path)), False
    assert 100 < on_disk < 110
    wait_until(lambda: not any(t.name == "agentloop-writer" for t in threading.enumerate()))
    assert len(solutions(tmp_path)) == on_disk
    second = run(config, lambda task: "second", tmp_path)
    assert second.counts.succeeded == 300
    told = {row["task_id"]: row["experiment_output"] for row in local.rows(second.record_id)}
    kept = {path.parts[-3]: json.loads(path.read_text())["output"] for path in solutions(tmp_path)}
    assert kept == told and list(kept.values()).count("first") == on_disk


def test_answers_that_a_slow_disk_holds_up_are_written_and_sent_in_what_a_stop_leaves_of_time(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = AttemptWriter.save, [0]

    def slowly(writer: AttemptWriter, result: Any) -> Any:
        saved[0] += 1
        if saved[0] > 20:
            started.experiment.stop()
            time.sleep(2.5)  # longer than running rows are waited for
        return save(writer, result)

    monkeypatch.setattr(AttemptWriter, "save", slowly)
    config = config_for(local, 50)
    started = Started(Experiment(config, answer, tmp_path, n_workers=1, stop_grace=30.0))
    assert started.result().status == "interrupted"
    assert assert_put_in_order(local, tmp_path, 50) > 20


def test_a_row_that_waits_for_its_retry_is_kept_as_it_failed(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    experiments: List[Experiment] = []

    def solution(task: Task) -> str:
        raise ValueError("never works")

    def on_event(event: Any) -> None:
        # told after the row was put in line again
        if type(event).__name__ == "Progress":
            experiments[0].stop()

    config = config_for(local, 5)
    experiment = Experiment(
        config, solution, tmp_path, n_workers=1, row_retries=50, on_event=on_event
    )
    experiments.append(experiment)
    experiment.run()
    assert assert_put_in_order(local, tmp_path, 5) >= 1


def test_a_keyboard_interrupt_raised_by_a_solution_ends_the_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def solution(task: Task) -> str:
        if task.input["id"] == "2":
            raise KeyboardInterrupt
        return answer(task)

    config = config_for(local, 40)
    for options in ({"n_workers": 2}, {"n_workers": 1, "serial": True}):
        with pytest.raises(KeyboardInterrupt):
            run(config, solution, tmp_path, **options)
        (record_id,) = local.records()
        assert statuses(local, record_id)[-1] == "failed"
        assert meta_of(tmp_path)["status"] == "interrupted"
        assert not [p for p in solutions(tmp_path) if '"KeyboardInterrupt"' in p.read_text()]
    assert_the_rest_runs(local, config, tmp_path, 40)


# ---------------------------------------------------------------------- arun()


def test_arun_runs_rows_on_the_loop_of_the_caller(local: LocalAgentLoop, tmp_path: Path) -> None:
    loops: List[int] = []

    async def solution(task: Task) -> str:
        loops.append(id(asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return answer(task)

    async def main() -> Any:
        experiment = Experiment(config_for(local, 20), solution, tmp_path)
        ticks = 0
        running = asyncio.ensure_future(experiment.arun())
        while not running.done():
            ticks += 1
            await asyncio.sleep(0.001)
        assert ticks > 1, "blocking work is kept off the caller's loop"
        return await running, id(asyncio.get_running_loop())

    result, loop_id = asyncio.run(main())
    assert set(loops) == {loop_id}
    assert counters(local, result.record_id) == completed(20)


def test_arun_takes_sync_solutions_too(local: LocalAgentLoop, tmp_path: Path) -> None:
    threads: List[int] = []

    def solution(task: Task) -> str:
        threads.append(threading.get_ident())
        return answer(task)

    for serial in (False, True):
        result = asyncio.run(
            Experiment(
                config_for(local, 5, dataset="d{}".format(serial)),
                solution,
                tmp_path / str(serial),
                n_workers=1,
                serial=serial,
            ).arun()
        )
        assert result.counts.succeeded == 5
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("solution_is_async", [False, True])
def test_cancelling_arun_equals_stop(
    local: LocalAgentLoop, tmp_path: Path, solution_is_async: bool
) -> None:
    config = config_for(local, 40)
    begun, release = threading.Event(), threading.Event()

    async def awaited(task: Task) -> None:
        if task.input["id"] == "0":
            return
        begun.set()
        await asyncio.sleep(CAP_S)

    def sync(task: Task) -> None:
        if task.input["id"] == "0":
            return
        begun.set()
        release.wait(CAP_S)

    solution: Callable[..., Any] = awaited if solution_is_async else sync

    async def main() -> None:
        experiment = Experiment(config, solution, tmp_path, n_workers=2, stop_grace=1.0)
        running = asyncio.ensure_future(experiment.arun())
        while not begun.is_set() or not solutions(tmp_path):
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert assert_put_in_order(local, tmp_path, 40) == 1
    release.set()
    assert_the_rest_runs(local, config, tmp_path, 40)


def test_a_caller_who_cancels_every_task_of_his_loop_ends_the_run_as_stop_does(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 30)
    begun = threading.Event()

    async def solution(task: Task) -> str:
        if task.input["id"] == "0":
            return "quick"
        begun.set()
        await asyncio.sleep(CAP_S)
        return "never"

    async def main() -> None:
        experiment = Experiment(config, solution, tmp_path, n_workers=2)
        running = asyncio.ensure_future(experiment.arun())
        while not begun.is_set() or not solutions(tmp_path):
            await asyncio.sleep(0.005)
        # rows first: what awaits the run hears of it in the same turn of the loop
        for task in asyncio.all_tasks() - {asyncio.current_task(), running}:  # type: ignore[arg-type]
            task.cancel()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert assert_put_in_order(local, tmp_path, 30) == 1
    assert_the_rest_runs(local, config, tmp_path, 30)


def test_arun_raises_what_run_raises(local: LocalAgentLoop, tmp_path: Path) -> None:
    from agentloop_experiment_sdk import EmptyDatasetError

    config = config_for(local, 1)
    experiment = Experiment(config, answer, tmp_path, item_ids=["none"])
    with pytest.raises(EmptyDatasetError):
        asyncio.run(experiment.arun())


def test_arun_whose_loop_is_gone_still_puts_things_in_order(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    release = threading.Event()

    def solution(task: Task) -> str:
        release.wait(CAP_S)
        return answer(task)

    config = config_for(local, 20)
    experiment = Experiment(config, solution, tmp_path, n_workers=2, stop_grace=1.0)
    loop = asyncio.new_event_loop()
    running = loop.create_task(experiment.arun())
    while "CreateExperimentRun" not in local.requests:
        loop.run_until_complete(asyncio.sleep(0.005))
    running._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    experiment.stop()
    release.set()
    wait_until(lambda: tmp_path.joinpath("evaluation_meta.json").exists())
    wait_until(lambda: meta_of(tmp_path)["status"] == "interrupted")


def test_pid_of_this_process_is_not_gone() -> None:
    assert not is_gone(os.getpid())


def interrupted_while(
    local: LocalAgentLoop, config: Any, path: Path, action: str, count: int, **job: Any
) -> Any:
    """Ctrl-C while the answer to the n-th ``action`` is on its way."""
    fault = local.faults.latency(3.0, action)
    with Program(config, path, **job) as program:
        assert local.wait_for(action, count, CAP_S)
        wait_until(lambda: local.records())
        program.interrupt()
        fault.stop()
        assert program.end() == 130, program.stderr
    assert program.outcome == {"raised": "KeyboardInterrupt"}
    assert program.calls == []
    return program


def test_ctrl_c_while_the_record_is_created_leaves_it_failed(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, path = config_for(local, 3), tmp_path / "r"
    program = interrupted_while(local, config, path, "CreateExperimentRun", 1)
    (record_id,) = local.records()
    assert statuses(local, record_id) == ["failed"]
    assert counters(local, record_id)["totalTasks"] == 3
    assert meta_of(path)["status"] == "interrupted" and meta_of(path)["record_id"] == record_id
    assert "ended before its first row; run it again to go on" in program.stderr
    assert_the_rest_runs(local, config, path, 3)


def test_ctrl_c_while_the_record_is_reopened_leaves_it_failed(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, path = config_for(local, 3), tmp_path / "r"
    record_id = run(config, answer, path, limit=1).record_id
    sent = local.requests["UpdateExperimentRun"]
    interrupted_while(local, config, path, "UpdateExperimentRun", sent + 1)
    assert statuses(local, record_id)[-2:] == ["running", "failed"]
    assert counters(local, record_id)["completedTasks"] == 1
    assert_the_rest_runs(local, config, path, 3)


def test_ctrl_c_while_a_complete_record_is_told_so_again_leaves_it_complete(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, path = config_for(local, 3), tmp_path / "r"
    record_id = run(config, answer, path).record_id
    sent = local.requests["UpdateExperimentRun"]
    interrupted_while(local, config, path, "UpdateExperimentRun", sent + 1)
    assert counters(local, record_id) == completed(3)


@pytest.mark.parametrize("done", [0, 1])
def test_ctrl_c_just_after_the_record_was_opened_leaves_it_failed(
    local: LocalAgentLoop, tmp_path: Path, done: int
) -> None:
    config = config_for(local, 3)
    if done:
        run(config, answer, tmp_path, limit=done)
    calls: List[str] = []

    def solution(task: Task) -> str:
        calls.append(task.id)
        return answer(task)

    def on_event(event: Any) -> None:
        if isinstance(event, RecordCreated):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(config, solution, tmp_path, on_event=on_event)
    finally:
        signal.signal(signal.SIGINT, before)
    (record_id,) = local.records()
    assert calls == [] and statuses(local, record_id)[-1] == "failed"
    assert meta_of(tmp_path)["status"] == "interrupted"
    assert counters(local, record_id)["totalTasks"] == 3
    assert_the_rest_runs(local, config, tmp_path, 3)


def test_a_row_that_runs_out_of_its_own_time_fails_and_does_not_end_an_awaited_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 12)

    async def cancels_itself(task: Task) -> str:
        me = asyncio.current_task()
        assert me is not None
        if task.input["id"] == "3":  # as asyncio.timeout and task groups do it
            asyncio.get_running_loop().call_soon(me.cancel)
            try:
                await asyncio.sleep(CAP_S)
            except asyncio.CancelledError:
                raise ValueError("too late") from None
        if task.input["id"] == "4":
            me.cancel()
        await asyncio.sleep(0)
        return answer(task)

    result = asyncio.run(Experiment(config, cancels_itself, tmp_path, n_workers=3).arun())
    assert (result.status, result.counts.succeeded, result.counts.failed) == ("completed", 10, 2)
    (record_id,) = local.records()
    assert counters(local, record_id) == completed(12, 2)


def test_a_caller_who_cancels_again_and_again_waits_for_the_end_of_the_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 5)
    local.faults.latency(0.5, "PutLogs")

    async def main() -> None:
        running = asyncio.ensure_future(Experiment(config, answer, tmp_path).arun())
        while len(solutions(tmp_path)) < 5:
            await asyncio.sleep(0.005)
        while not running.done():
            running.cancel()  # as anyio does until a scope is left
            await asyncio.sleep(0.005)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert meta_of(tmp_path)["status"] != "running"
    assert run(config, answer, tmp_path).counts.succeeded == 5  # nobody holds the directory
