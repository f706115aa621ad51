"""The plan's pipeline in whole runs: every row gets its own fields, and nobody waits for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from run_support import (
    CAP_S,
    completed,
    config_for,
    counters,
    journal,
    meta_of,
    run,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import Experiment, SolutionOutput, Task, deliver, trace_headers
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results import pipeline

NODES = [{"id": "n", "type": "project", "parameters": {"answer": "output", "score": "score"}}]


@pytest.fixture(autouse=True)
def quick_grid(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "slow" not in request.keywords:
        monkeypatch.setattr(pipeline, "RETRY_S", 0.3)
        monkeypatch.setattr(pipeline, "GIVE_UP_S", 30.0)


def trace_of(item: str) -> str:
    return "{:032x}".format(int(item) + 0xABC0000)


def solution(task: Task) -> SolutionOutput:
    return SolutionOutput.success("fine", meta={"traceId": trace_of(task.input["id"])})


def trace_row(item: str) -> Dict[str, str]:
    """What the agent's own tracing would write for a row."""
    return {"traceId": trace_of(item), "output": "traced {}".format(item), "score": ""}


def plan_of(local: LocalAgentLoop, count: int) -> Any:
    local.create_pipeline("pipe-line", nodes=NODES)
    return config_for(local, count, pipeline_name="pipe-line")


def every_row_has_its_own_fields(
    local: LocalAgentLoop, path: Path, count: int, visible_after_s: float
) -> int:
    """Traces appear so long after the last answer; returns the number of previews."""
    results: List[Any] = []
    experiment = Experiment(plan_of(local, count), solution, path, n_workers=4)
    thread = threading.Thread(target=lambda: results.append(experiment.run()), daemon=True)
    thread.start()
    wait_until(lambda: len(solutions(path)) == count)  # no worker waits for a trace
    assert not local.rows()
    time.sleep(visible_after_s)  # the way of the traces
    assert not local.rows()
    local.put_logs("logstore-tracing", [trace_row(str(n)) for n in range(count)])
    thread.join(120.0)
    assert results[0].counts.undelivered == 0
    rows = local.rows()
    assert len(rows) == count
    for row in rows:
        assert row["pipeline_name"] == "pipe-line"
        assert row["pipeline.answer"] == "traced " + row["dataset.id"]
        assert row["traceId"] == trace_of(row["dataset.id"])
    assert counters(local, results[0].record_id) == completed(count)
    return local.requests["PreviewPipeline"]


def test_every_row_gets_the_fields_of_its_own_trace(local: LocalAgentLoop, tmp_path: Path) -> None:
    previews = every_row_has_its_own_fields(local, tmp_path, 30, 0.8)
    # asked at least twice each, and all rows equally often up to one step of the grid
    assert previews >= 60
    assert local.requests["GetPipeline"] == 1
    assert (tmp_path / "pipeline.json").exists()


@pytest.mark.slow
def test_a_hundred_rows_whose_traces_appear_after_20_seconds(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    previews = every_row_has_its_own_fields(local, tmp_path, 100, 20.0)
    # 0, 10, 20 and at most 30 seconds after each answer
    assert 300 <= previews <= 400


def test_the_trace_that_trace_headers_announced_counts(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def traced(task: Task) -> str:
        trace_id = trace_headers()["traceparent"].split("-")[1]
        row = {"traceId": trace_id, "output": "own " + task.input["id"], "score": "1"}
        local.put_logs("logstore-tracing", [row])
        return "fine"

    run(plan_of(local, 3), traced, tmp_path)
    for row in local.rows():
        assert row["pipeline.answer"] == "own " + row["dataset.id"]
        assert row["pipeline.score"] == "1"


def test_reasons_for_missing_fields_are_logged_once_with_their_number(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = plan_of(local, 6)
    result = run(config, lambda task: "no trace", tmp_path / "a")
    rows = local.rows(result.record_id)
    assert len(rows) == 6 and all("pipeline.answer" not in row for row in rows)
    assert {row["pipeline_name"] for row in rows} == {"pipe-line"}
    assert "6 rows have no fields of pipeline pipe-line" in caplog.text
    assert "the solution returned no trace id" in caplog.text
    local.faults.fail("GetPipeline", 403, "NoPermission")
    result = run(config, solution, tmp_path / "b")
    assert len(local.rows(result.record_id)) == 6
    assert "NoPermission" in caplog.text


def test_an_interrupted_run_keeps_rows_that_wait_for_their_pipeline(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = plan_of(local, 20)
    experiments: List[Experiment] = []
    results: List[Any] = []
    experiments.append(Experiment(config, solution, tmp_path))
    thread = threading.Thread(target=lambda: results.append(experiments[0].run()), daemon=True)
    thread.start()
    wait_until(lambda: len(journal(tmp_path).saved) == 20)
    experiments[0].stop()
    thread.join(CAP_S)
    assert results[0].counts.undelivered == 20 and not local.rows(), "not sent stripped"
    # at most eight previews were on their way; the other rows are named
    assert "rows still waited for pipeline pipe-line" in caplog.text
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    local.put_logs("logstore-tracing", [trace_row(str(n)) for n in range(20)])
    run(config, lambda task: 1 / 0, tmp_path)
    assert {row["pipeline.answer"] for row in local.rows()} == {
        "traced {}".format(n) for n in range(20)
    }
    assert counters(local, record_id) == completed(20)


def test_deliver_asks_with_the_definition_that_was_kept(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = plan_of(local, 3)
    local.put_logs("logstore-tracing", [trace_row(str(n)) for n in range(3)])
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        run(config, solution, tmp_path)
    before = local.requests["GetPipeline"]
    local.faults.fail("GetPipeline", 403, "NoPermission")
    assert deliver(tmp_path, config).delivered == 3
    assert {row["pipeline.answer"] for row in local.rows()} == {
        "traced {}".format(n) for n in range(3)
    }
    assert local.requests["GetPipeline"] == before
    assert meta_of(tmp_path)["plan"]["pipeline_name"] == "pipe-line"


def test_many_rows_of_a_resumed_run_read_their_trace_from_the_disk(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = plan_of(local, 3)
    local.put_logs("logstore-tracing", [trace_row(str(n)) for n in range(3)])
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        run(config, solution, tmp_path)
    # one answer vanished between the survey of the directory and its delivery
    calls: List[str] = []
    lost = solutions(tmp_path)[0]
    lost.unlink()

    def again(task: Task) -> SolutionOutput:
        calls.append(task.id)
        return solution(task)

    run(config, again, tmp_path)
    assert len(calls) == 1 and len(local.rows()) == 3
