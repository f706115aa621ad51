"""Files that vanish under a run, and what is then said and sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_support import (
    answer,
    completed,
    config_for,
    counters,
    edit_meta,
    items,
    meta_of,
    run,
    solutions,
)

from agentloop_experiment_sdk import RecordCreated, ResultsDirectoryError, SolutionOutput, deliver
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results.directory import ResultsDirectory

NODES = [{"id": "n", "type": "project", "parameters": {"answer": "output"}}]


def undelivered(local: LocalAgentLoop, path: Path, config: Any, solution: Any = answer) -> None:
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        run(config, solution, path)


@pytest.mark.parametrize("pipeline_name", ["", "pipe-line"])
def test_an_answer_that_vanished_after_the_directory_was_read_is_not_sent(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture, pipeline_name: str
) -> None:
    local.create_pipeline("pipe-line", nodes=NODES)
    config = config_for(local, pipeline_name=pipeline_name)
    undelivered(local, tmp_path, config)

    def on_event(event: Any) -> None:
        if isinstance(event, RecordCreated):
            solutions(tmp_path)[0].unlink()

    result = run(config, answer, tmp_path, on_event=on_event)
    assert len(local.rows()) == 2
    assert "its solution.json cannot be read" in caplog.text
    # it is missing from the disk, so the next run answers it again
    assert run(config, answer, tmp_path).record_id == result.record_id
    assert sorted(items(local)) == ["0", "1", "2"]
    assert counters(local, result.record_id) == completed(3)


def test_a_row_whose_task_is_lost_is_kept_and_named(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    undelivered(local, tmp_path, config)
    (solutions(tmp_path)[0].parents[1] / "task_meta.json").unlink()
    report = deliver(tmp_path, config)
    assert (report.delivered, report.undelivered) == (2, 1)
    assert "cannot be read" in caplog.text
    run(config, answer, tmp_path)  # the plan still knows the task
    assert sorted(items(local)) == ["0", "1", "2"]


@pytest.mark.parametrize("lost", ["plan", "identity"])
def test_metadata_without_what_rows_need_is_an_error(
    local: LocalAgentLoop, tmp_path: Path, lost: str
) -> None:
    config = config_for(local)
    undelivered(local, tmp_path, config)
    edit_meta(tmp_path, **{lost: None})
    with pytest.raises(ResultsDirectoryError):
        deliver(tmp_path, config)


def test_a_directory_that_cannot_be_marked_at_the_very_end_leaves_the_record_right(
    local: LocalAgentLoop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = ResultsDirectory.update_meta

    def full_for_the_status(self: ResultsDirectory, **changes: Any) -> None:
        if "status" in changes:
            raise OSError(28, "No space left on device")
        real(self, **changes)

    config = config_for(local)
    with monkeypatch.context() as patched:
        patched.setattr(ResultsDirectory, "update_meta", full_for_the_status)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            run(config, answer, tmp_path)
    assert "could not be marked failed" in caplog.text
    (record_id,) = local.records()
    # all rows are answered and sent, and the record had been told so
    assert counters(local, record_id) == completed(3)
    assert run(config, answer, tmp_path).status == "completed"
    assert meta_of(tmp_path)["status"] == "completed"


def test_an_attempt_without_facts_of_ours_is_sent_with_what_there_is(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    import json

    local.create_pipeline("pipe-line", nodes=NODES)
    config = config_for(local, 1, pipeline_name="pipe-line")
    undelivered(local, tmp_path, config, lambda task: SolutionOutput.success("x"))
    # as another tool of the format would write it
    (path,) = solutions(tmp_path)
    document = json.loads(path.read_text("utf-8"))
    document["meta"] = {}
    path.write_text(json.dumps(document), "utf-8")
    assert deliver(tmp_path, config).delivered == 1
    assert local.rows()[0]["experiment_output"] == "x"
