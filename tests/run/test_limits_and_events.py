"""When failures end a run, and what is told while it goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from run_support import (
    CAP_S,
    answer,
    completed,
    config_for,
    counters,
    edit_meta,
    items,
    meta_of,
    run,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import (
    AttemptDone,
    Experiment,
    Progress,
    RecordCreated,
    ResultsDirectoryError,
    RowsDelivered,
    RunAbortedError,
    RunFinished,
    SolutionOutput,
    Task,
    TooManyFailuresError,
    load_result,
    local_config,
    run_experiment_parallel,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.run.progress import ProgressLog, progress_listener, progress_text


def broken(task: Task) -> None:
    raise ConnectionError("agent down")


def alternating(task: Task) -> str:
    if int(task.input["id"]) % 2:
        raise ValueError("odd")
    return "even"


# ------------------------------------------------------------- when failures end a run


def test_by_default_every_row_runs_and_the_first_ten_failures_are_named(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(config_for(local, 25), broken, tmp_path)
    assert counters(local, result.record_id) == completed(25, failed=25)
    warned = [r for r in caplog.records if "all failed with" in r.getMessage()]
    assert [r.levelno for r in warned] == [logging.WARNING]
    assert "The first 10 rows all failed with ConnectionError" in caplog.text
    assert caplog.text.count("A row failed: ConnectionError: agent down. Further failures") == 1


def test_nothing_is_warned_when_the_first_rows_differ(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def solution(task: Task) -> None:
        raise (KeyError if int(task.input["id"]) % 2 else ValueError)("x")

    run(config_for(local, 25), solution, tmp_path / "kinds")
    run(config_for(local, 25, dataset="d2"), alternating, tmp_path / "some")
    run(config_for(local, 9, dataset="d3"), broken, tmp_path / "few")
    assert "all failed with" not in caplog.text


@pytest.mark.parametrize("limit", [3, 0.05])
def test_too_many_failures_end_the_run_with_the_error_named(
    local: LocalAgentLoop, tmp_path: Path, limit: Any
) -> None:
    config = config_for(local, 60)
    events: List[Any] = []
    with pytest.raises(
        TooManyFailuresError, match="max_failures allows \\(ConnectionError\\)"
    ) as e:
        run(config, broken, tmp_path, max_failures=limit, n_workers=1, on_event=events.append)
    assert e.value.code == "TooManyFailures" and "retry_failed=True" in str(e.value)
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    told = counters(local, record_id)
    assert 4 <= told["failedTasks"] == len(solutions(tmp_path)) < 60
    assert meta_of(tmp_path)["status"] == "failed" and events[-1].status == "failed"
    # mended: failed rows again, and the rest
    result = run(config, answer, tmp_path, retry_failed=True)
    assert counters(local, record_id) == completed(60) and result.record_id == record_id


def test_as_many_failures_as_allowed_end_nothing(local: LocalAgentLoop, tmp_path: Path) -> None:
    result = run(config_for(local, 10), alternating, tmp_path, max_failures=5)
    assert counters(local, result.record_id) == completed(10, failed=5)
    shared = run(config_for(local, 10, dataset="d"), alternating, tmp_path / "s", max_failures=0.5)
    assert counters(local, shared.record_id) == completed(10, failed=5)


def test_no_failure_may_be_allowed(local: LocalAgentLoop, tmp_path: Path) -> None:
    with pytest.raises(TooManyFailuresError):
        run(config_for(local, 10), alternating, tmp_path, max_failures=0, n_workers=1)


def test_a_run_that_its_last_row_ended_does_not_ask_to_go_on(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TooManyFailuresError):
        run(config_for(local, 6), broken, tmp_path, max_failures=5, n_workers=1)
    assert "none of its rows is left to run: all 6 are done" in caplog.text
    assert "to go on" not in caplog.text


def test_stop_if_first_ends_a_run_that_fails_from_the_start(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 100)
    with pytest.raises(TooManyFailuresError, match="the first 4 rows all failed"):
        run(config, broken, tmp_path, stop_if_first=4, n_workers=2)
    assert 4 <= len(solutions(tmp_path)) < 100
    result = run(config_for(local, 20, dataset="d"), alternating, tmp_path / "b", stop_if_first=4)
    assert counters(local, result.record_id) == completed(20, failed=10)


def test_failed_tries_that_are_tried_again_do_not_count(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    seen: Dict[str, int] = {}

    def solution(task: Task) -> str:
        seen[task.id] = seen.get(task.id, 0) + 1
        if seen[task.id] == 1:
            raise ConnectionError("cold start")
        return "fine"

    options = {"row_retries": 1, "max_failures": 0, "stop_if_first": 1}
    result = run(config_for(local, 12), solution, tmp_path, **options)
    assert counters(local, result.record_id) == completed(12)


@pytest.mark.parametrize("solution_is_async", [False, True])
def test_stuck_rows_end_the_run_and_what_was_done_is_kept(
    local: LocalAgentLoop, tmp_path: Path, solution_is_async: bool
) -> None:
    release = threading.Event()
    config = config_for(local, 30)

    def sync(task: Task) -> str:
        if len(solutions(tmp_path)) >= 2:
            release.wait(CAP_S)
        return "fine"

    async def awaited(task: Task) -> str:
        while len(solutions(tmp_path)) >= 2 and not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "fine"

    solution: Any = awaited if solution_is_async else sync
    options = {"task_timeout": 0.2, "n_workers": 2, "stop_grace": 0.5}
    with pytest.raises(RunAbortedError) as caught:
        run(config, solution, tmp_path, **options)
    release.set()
    assert caught.value.code == "TooManyStuckRows"
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    before = len(solutions(tmp_path))
    assert counters(local, record_id)["failedTasks"] == 2
    result = run(config, answer, tmp_path, retry_failed=True)
    assert before < 30 and counters(local, result.record_id) == completed(30)


def test_a_time_limit_fails_slow_rows_only(local: LocalAgentLoop, tmp_path: Path) -> None:
    async def solution(task: Task) -> str:
        if task.input["id"] == "1":
            await asyncio.sleep(CAP_S)
        return "fine"

    result = run(config_for(local, 5), solution, tmp_path, task_timeout=1.0)
    assert counters(local, result.record_id) == completed(5, failed=1)
    (row,) = [row for row in local.rows() if row["status"] == "failed"]
    assert row["experiment_output"].startswith("ERROR: TaskTimeout - ")


# ------------------------------------------------------------------------ events


def test_events_come_in_order(local: LocalAgentLoop, tmp_path: Path) -> None:
    events: List[Any] = []
    lock = threading.Lock()

    def note(what: Any) -> None:
        with lock:
            events.append(what)

    def solution(task: Task) -> str:
        note("call")
        return alternating(task)

    result = run(config_for(local, 6), solution, tmp_path, on_event=note)
    first, last = events[0], events[-1]
    assert first == RecordCreated(
        result.record_id, local.record(result.record_id)["recordName"], False
    )
    assert last == RunFinished(result.record_id, "completed", 0)
    assert events.count("call") == 6
    attempts = [event for event in events if isinstance(event, AttemptDone)]
    assert sorted(event.status for event in attempts) == ["failed"] * 3 + ["success"] * 3
    assert {event.error_type for event in attempts if event.status == "failed"} == {"ValueError"}
    assert all(event.number == 1 and event.latency_ms >= 0 for event in attempts)
    assert sum(e.count for e in events if isinstance(e, RowsDelivered)) == 6
    progress = [event for event in events if isinstance(event, Progress)]
    done = [event.done for event in progress]
    assert done == sorted(done) and progress[-1].done == progress[-1].total == 6
    assert progress[-1].limit == 4 and progress[-1].rows_per_s > 0

    events.clear()
    run(config_for(local, 6, dataset="other"), answer, tmp_path / "b", on_event=note)
    assert isinstance(events[0], RecordCreated)
    events.clear()
    again = local_config(local, meta_of(tmp_path)["identity"]["plan_id"])
    run(again, answer, tmp_path, on_event=note)
    assert events == [
        RecordCreated(result.record_id, first.record_name, True),
        RunFinished(result.record_id, "completed", 0),
    ]


def test_the_record_is_told_before_any_call(local: LocalAgentLoop, tmp_path: Path) -> None:
    told: List[str] = []

    def solution(task: Task) -> str:
        assert told == [task.metadata["record_id"]]
        return "fine"

    def on_event(event: Any) -> None:
        if isinstance(event, RecordCreated):
            told.append(event.record_id)

    result = run(config_for(local, 5), solution, tmp_path, on_event=on_event)
    assert result.counts.succeeded == 5


def test_listeners_that_raise_do_not_disturb_the_run(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def on_event(event: Any) -> None:
        raise ValueError("listener is broken")

    result = run(config_for(local), answer, tmp_path, on_event=on_event, progress=on_event)
    assert counters(local, result.record_id) == completed(3)
    assert "listener is broken" in caplog.text


def test_a_fault_of_the_run_itself_marks_the_record_failed_and_is_told_last(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    events: List[Any] = []
    calls: List[str] = []

    def on_event(event: Any) -> None:
        events.append(event)
        if isinstance(event, AttemptDone):
            raise SystemExit("not an ordinary exception")

    def solution(task: Task) -> str:
        calls.append(task.id)
        return "fine"

    config = config_for(local, 200)
    with pytest.raises(SystemExit):
        run(config, solution, tmp_path, on_event=on_event, n_workers=2)
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    assert meta_of(tmp_path)["status"] == "failed"
    assert isinstance(events[-1], RunFinished) and events[-1].status == "failed"
    called = len(calls)
    assert called < 200, "no further call is made"
    result = run(config, answer, tmp_path)
    assert counters(local, record_id) == completed(200) and result.record_id == record_id
    assert len(calls) == called
    assert sorted(set(items(local)), key=int) == [str(n) for n in range(200)]


def test_a_fault_before_the_first_row_marks_the_record_failed(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.run import experiment

    def broken_engine(*_args: Any) -> None:
        raise RuntimeError("no threads left")

    config = config_for(local)
    with monkeypatch.context() as patched:
        patched.setattr(experiment, "make_engine", broken_engine)
        with pytest.raises(RuntimeError, match="no threads left"):
            run(config, answer, tmp_path)
    (record_id,) = local.records()
    wait_until(lambda: statuses(local, record_id)[-1] == "failed")
    assert counters(local, run(config, answer, tmp_path).record_id) == completed(3)


# ---------------------------------------------------------------------- progress


def test_progress_is_logged_at_milestones_and_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    log = ProgressLog(clock=lambda: now[0])
    log(RecordCreated("r", "name", False))
    log(RecordCreated("r", "name", True))
    for done in range(0, 101):
        log(Progress(100, done, 0, 0, done, 2.0, 1.0, 4))
    now[0] = 31.0
    log(Progress(100, 90, 10, 0, 95, 2.0, 120.0, 4))
    log(Progress(0, 0, 0, 0, 0))
    log(RowsDelivered(1))
    log(RunFinished("r", "completed", 2))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Experiment record r created: name"
    assert lines[1] == "Experiment record r continues: name"
    assert [line.split("/")[0] for line in lines[2:7]] == ["10", "25", "50", "75", "100"]
    assert lines[7].startswith("100/100 rows done, 10 failed, 5 to deliver")
    assert lines[-1] == "Experiment record r completed; 2 rows undelivered."
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("eta", "text"), [(5, "about 5 s left"), (600, "about 10 min left"), (7200, "about 2.0 h left")]
)
def test_progress_text_has_done_failed_waiting_rate_and_rest(eta: float, text: str) -> None:
    line = progress_text(Progress(10, 3, 1, 0, 2, 0.5, eta, 8))
    assert line == "4/10 rows done, 1 failed, 2 to deliver, 0.5 rows/s, {}, limit 8".format(text)


class Drawn:
    """What tqdm would draw."""

    def __init__(self, total: int, **_options: Any) -> None:
        self.total, self.n = total, 0
        self.postfix: Dict[str, Any] = {}
        self.closed = False
        bars.append(self)

    def set_postfix(self, shown: Dict[str, Any], refresh: bool) -> None:
        self.postfix = dict(shown)

    def update(self, _count: int) -> None:
        pass

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


bars: List[Drawn] = []


def test_a_bar_is_drawn_where_tqdm_is_installed(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Drawn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    bars.clear()
    config = config_for(local, 4)
    run(config, alternating, tmp_path, progress=True)
    (bar,) = bars
    assert (bar.total, bar.n, bar.closed) == (4, 4, True)
    assert bar.postfix["failed"] == 2 and str(bar.postfix["limit"]) == "4"
    # nothing is drawn when there is nothing to do
    run(config, alternating, tmp_path, progress=True)
    assert len(bars) == 1


def test_without_tqdm_progress_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import sys

    caplog.set_level(logging.INFO)
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    assert isinstance(progress_listener(True), ProgressLog)
    assert "[progress]" in caplog.text


def test_a_run_may_be_silent(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run(config_for(local), answer, tmp_path, progress=False)
    assert not [r for r in caplog.records if r.name.startswith("agentloop_experiment_sdk")]


# ------------------------------------------------------- what goes into rows and tasks


def test_version_and_parameters_reach_tasks_and_rows(local: LocalAgentLoop, tmp_path: Path) -> None:
    seen: List[Any] = []

    def solution(task: Task) -> str:
        seen.append(dict(task.metadata))
        return "fine"

    parameters = {"model": "m1", "nested": {"t": 0.1}, "client": threading.Lock()}
    result = run(
        config_for(local, 1), solution, tmp_path, n_repeat=2, version="v2", parameters=parameters
    )
    for repeat, metadata in enumerate(seen):
        assert metadata["record_id"] == result.record_id
        assert metadata["repeat_id"] == str(repeat)
        assert metadata["version"] == "v2"
        assert metadata["parameters"]["client"] is parameters["client"]
        assert metadata["dataset_item_id"] == "0" and metadata["dataset"] == "dataset"
    for row in local.rows():
        assert '"version":"v2"' in row["experiment_config"]
        assert '"model":"m1"' in row["experiment_config"]
    assert meta_of(tmp_path)["version"] == "v2"


def test_skipped_rows_count_as_succeeded_and_are_told_apart(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def solution(task: Task) -> SolutionOutput:
        return SolutionOutput.success("", meta={"skipped": task.input["id"] == "1"})

    events: List[Any] = []
    result = run(config_for(local), solution, tmp_path, on_event=events.append)
    assert counters(local, result.record_id) == completed(3)
    assert (result.counts.succeeded, result.counts.skipped) == (2, 1)
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.succeeded, last.skipped) == (3, 1)


def test_several_experiments_run_in_one_process_at_once(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    inside = threading.Barrier(6)
    results: Dict[str, Any] = {}

    def sync(task: Task) -> str:
        if task.input["id"] == "0":
            inside.wait(CAP_S)
        return task.metadata["record_id"]

    async def awaited(task: Task) -> str:
        if task.input["id"] == "0":
            await asyncio.get_running_loop().run_in_executor(None, inside.wait, CAP_S)
        return task.metadata["record_id"]

    def one(name: str, config: Any, solution: Any) -> None:
        results[name] = run(config, solution, tmp_path / name, n_workers=6)

    threads = []
    for number in range(6):
        name = "e{}".format(number)
        config = config_for(local, 20, dataset=name)
        solution = awaited if number % 2 else sync
        threads.append(threading.Thread(target=one, args=(name, config, solution)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP_S)
    assert len({result.record_id for result in results.values()}) == 6
    for result in results.values():
        assert counters(local, result.record_id) == completed(20)
        rows = local.rows(result.record_id)
        assert len(rows) == 20
        assert {row["experiment_output"] for row in rows} == {result.record_id}


def test_rows_run_repeat_by_repeat_in_the_order_of_the_dataset(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    order: List[Any] = []

    def solution(task: Task) -> None:
        order.append((task.metadata["repeat_id"], task.input["id"]))

    run(config_for(local, 4), solution, tmp_path, n_repeat=3, n_workers=1)
    assert order == [(str(r), str(n)) for r in range(3) for n in range(4)]


@pytest.mark.parametrize(
    ("length", "options", "most"),
    [
        # gathered: more attempts wait in the engine, and rows are looked at a few at a time
        (10, {}, 3 + 32),
        # not where somebody waits for each row's news, or answers are large and would pile up
        (10, {"on_event": lambda event: None}, 6),
        (10, {"progress": lambda event: None}, 6),
        (10, {"max_failures": 5}, 6),
        (10, {"stop_if_first": 5}, 6),
        (100_000, {}, 6),
    ],
)
def test_attempts_are_submitted_in_a_window(
    local: LocalAgentLoop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    length: int,
    options: Dict[str, Any],
    most: int,
) -> None:
    from agentloop_experiment_sdk.run import pace
    from agentloop_experiment_sdk.run.tally import Tally
    from agentloop_experiment_sdk.run.threads import ThreadEngine

    under_way: List[int] = []
    done, submit, add = [0], ThreadEngine.submit, Tally.add

    def submitted(engine: ThreadEngine, attempt: Any) -> None:
        under_way.append(len(under_way) + 1 - done[0])
        submit(engine, attempt)

    def settled(tally: Tally, saved: Any) -> None:
        done[0] += 1
        add(tally, saved)

    monkeypatch.setattr(pace, "_WRITERS", ())  # whatever this disk is like
    monkeypatch.setattr(pace, "QUICK_CALL_MS", 1000.0)
    monkeypatch.setattr(ThreadEngine, "submit", submitted)
    monkeypatch.setattr(Tally, "add", settled)
    result = run(
        config_for(local, 250), lambda task: "x" * length, tmp_path, n_workers=3, **options
    )
    assert result.counts.succeeded == len(under_way) == 250
    assert max(under_way[:48]) == 6 and max(under_way) == most


def test_a_slow_disk_is_written_to_by_several_threads_and_no_row_is_lost(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.results.attempts import AttemptWriter

    threads, save = set(), AttemptWriter.save

    def slowly(writer: AttemptWriter, result: Any) -> Any:
        threads.add(threading.get_ident())
        time.sleep(0.002)
        return save(writer, result)

    monkeypatch.setattr(AttemptWriter, "save", slowly)
    result = run(config_for(local, 60), answer, tmp_path, n_workers=4)
    assert counters(local, result.record_id) == completed(60)
    assert len(local.rows(result.record_id)) == 60
    assert 2 <= len(threads) <= 8


def test_the_entry_points_work_inside_a_running_loop(local: LocalAgentLoop, tmp_path: Path) -> None:
    async def solution(task: Task) -> str:
        await asyncio.sleep(0)
        return "fine"

    async def cell() -> str:
        return run_experiment_parallel(config_for(local), solution, tmp_path)

    assert counters(local, asyncio.run(cell())) == completed(3)


def test_a_client_opened_in_one_row_works_in_the_next_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    shared: Dict[str, Any] = {}

    async def echo(reader: Any, writer: Any) -> None:
        while True:
            line = await reader.readline()
            if not line:
                break
            writer.write(line)
            await writer.drain()
        writer.close()

    async def solution(task: Task) -> str:
        if not shared:
            shared["server"] = await asyncio.start_server(echo, "127.0.0.1", 0)
            port = shared["server"].sockets[0].getsockname()[1]
            shared["client"] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = shared["client"]
        writer.write(task.input["q"].encode("utf-8") + b"\n")
        return str((await asyncio.wait_for(reader.readline(), CAP_S)).decode("utf-8").strip())

    config = config_for(local)
    for name in ("a", "b"):
        result = run(config, solution, tmp_path / name, n_workers=1)
        assert sorted(row.output for row in result) == ["question {}".format(n) for n in range(3)]


def test_an_empty_dataset_creates_and_writes_nothing(local: LocalAgentLoop, tmp_path: Path) -> None:
    from agentloop_experiment_sdk import EmptyDatasetError

    config = config_for(local, 3, query_sql="id = 'none'")
    with pytest.raises(EmptyDatasetError, match="query_sql"):
        run(config, answer, tmp_path / "r")
    assert not local.records() and not (tmp_path / "r").exists()


def test_a_newer_format_is_refused(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    run(config, answer, tmp_path)
    edit_meta(tmp_path, format_version=99)
    with pytest.raises(ResultsDirectoryError):
        run(config, answer, tmp_path)
    with pytest.raises(ResultsDirectoryError):
        load_result(tmp_path)


def test_an_experiment_can_be_stopped_only_once_it_exists(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    experiment = Experiment(config_for(local), answer, tmp_path)
    assert not any(tmp_path.iterdir()), "making one does no IO"
    experiment.run()
    experiment.stop()
    assert load_result(tmp_path).status == "completed"
