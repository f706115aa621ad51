"""What a results directory means for a run, and what in it is done, due and undelivered."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Optional

import pytest
from results_builder import build_plain, row
from results_values import IDENTITY, NOW_MS, description, result, run, task, tasks, writer

from agentloop_experiment_sdk.errors import (
    DirectoryLockedError,
    ResultsDirectoryError,
    ResumeError,
)
from agentloop_experiment_sdk.models import Attempt, Identity
from agentloop_experiment_sdk.results import directory as directories
from agentloop_experiment_sdk.results import layout
from agentloop_experiment_sdk.results.directory import ResultsDirectory
from agentloop_experiment_sdk.results.journal import read_state

OTHER = Identity("space", "plan-2", "experimentA", "cn-test")


def decision(path: Path, identity: Identity = IDENTITY, resume: Optional[bool] = None) -> str:
    directory = ResultsDirectory.inspect(str(path), identity, resume)
    directory.close()
    return directory.decision


def begun(path: Path, present: Any, **options: Any) -> ResultsDirectory:
    directory = ResultsDirectory.inspect(str(path), IDENTITY)
    directory.begin(description(**options), present, NOW_MS)
    return directory


def due(present: Any, repeats: int = 1) -> List[Attempt]:
    return [Attempt(one, str(repeat)) for repeat in range(repeats) for one in present]


def foreign(path: Path) -> None:
    build_plain(path, [row("task_1")])


def newer(path: Path) -> None:
    run(path, tasks(1))
    meta = json.loads((path / "evaluation_meta.json").read_text())
    (path / "evaluation_meta.json").write_text(json.dumps(dict(meta, format_version=2)))


STATES: Any = {
    "absent": lambda path: path.rmdir(),
    "empty": lambda path: None,
    "same": lambda path: run(path, tasks(1)),
    "different": lambda path: json.dumps(run(path, tasks(1)).meta),
    "foreign": foreign,
    "newer": newer,
}


@pytest.mark.parametrize(
    "state, resume, outcome",
    [
        ("absent", None, "begin"),
        ("absent", True, ResumeError),
        ("absent", False, "begin"),
        ("empty", None, "begin"),
        ("empty", True, ResumeError),
        ("empty", False, "begin"),
        ("same", None, "continue"),
        ("same", True, "continue"),
        ("same", False, "archive"),
        ("different", None, "archive"),
        ("different", True, ResumeError),
        ("different", False, "archive"),
        ("foreign", None, "archive"),
        ("foreign", True, ResumeError),
        ("foreign", False, "archive"),
        ("newer", None, ResultsDirectoryError),
        ("newer", True, ResultsDirectoryError),
        ("newer", False, ResultsDirectoryError),
    ],
)
def test_what_a_run_means_for_a_directory(
    tmp_path: Path, state: str, resume: Optional[bool], outcome: Any
) -> None:
    path = tmp_path / "results"
    path.mkdir()
    STATES[state](path)
    identity = OTHER if state == "different" else IDENTITY
    if isinstance(outcome, str):
        assert decision(path, identity, resume) == outcome
    else:
        with pytest.raises(outcome):
            decision(path, identity, resume)
        if path.exists():  # and the lock is free again
            lock = ResultsDirectory(str(path))._lock
            lock.acquire()
            lock.release()


@pytest.mark.parametrize("field", ["agent_space", "plan_id", "experiment_name", "region_id"])
def test_the_error_names_what_differs(tmp_path: Path, field: str) -> None:
    run(tmp_path, tasks(1))
    with pytest.raises(ResumeError) as failure:
        decision(tmp_path, replace(IDENTITY, **{field: "changed"}), True)
    assert "its {} is {!r}, this run's is 'changed'".format(field, getattr(IDENTITY, field)) in str(
        failure.value
    )


def test_inspecting_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, tasks(2), tasks(1))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    decision(tmp_path, OTHER)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    directory = begun(tmp_path, tasks(1))
    with pytest.raises(DirectoryLockedError):
        ResultsDirectory.inspect(str(tmp_path), IDENTITY)
    with pytest.raises(DirectoryLockedError):
        ResultsDirectory.reopen(str(tmp_path))
    directory.close()
    directory.close()
    assert decision(tmp_path) == "continue"


def test_a_path_that_cannot_be_a_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsDirectoryError, match="Pass a result_dir that can be written"):
        ResultsDirectory.inspect(str(tmp_path / "file" / "below"), IDENTITY)


def test_a_solution_that_changes_the_working_directory_does_not_move_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = ResultsDirectory.inspect("results", IDENTITY)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    directory.begin(description(), tasks(1), NOW_MS)
    directory.close()
    assert (tmp_path / "results" / "evaluation_meta.json").exists()
    monkeypatch.chdir(tmp_path)
    ResultsDirectory.reopen("results").close()


def test_metadata_that_cannot_be_read_does_not_pass_for_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evaluation_meta.json").mkdir()  # open() fails with EISDIR
    with pytest.raises(ResultsDirectoryError, match="cannot be used"):
        ResultsDirectory.inspect(str(tmp_path), IDENTITY)


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    leftover = tmp_path / "evaluation_meta.json.7-0123456789ab-0.tmp"
    leftover.write_text("half")
    decision(tmp_path)
    assert not leftover.exists()


def test_metadata_describes_the_run(tmp_path: Path) -> None:
    directory = begun(tmp_path, tasks(3), n_repeat=2)
    directory.close()
    meta = json.loads((tmp_path / "evaluation_meta.json").read_text())
    assert meta.pop("created_at").startswith("2026-11-")
    assert meta == {
        "evaluation_name": "nightly",
        "total_repeats": 2,
        "benchmark": {"name": "faq", "description": "nightly", "total_tasks": 3},
        "schema_version": 1,
        "format_version": 1,
        "record_id": None,
        "record_name": None,
        "client_token": None,
        "status": "running",
        "identity": {
            "agent_space": "space",
            "plan_id": "plan-1",
            "experiment_name": "experimentA",
            "region_id": "cn-test",
        },
        "plan": {
            "plan_name": "nightly",
            "project": "proj",
            "dataset": "faq",
            "pipeline_name": "",
            "agentloop_endpoint": None,
            "sls_endpoint": None,
        },
        "experiment_start_time": NOW_MS,
        "finished_at": None,
        "solution": {"name": "agent", "hash": "h1"},
        "version": "",
        "parameters": {},
        "evaluators": [],
    }
    listed = json.loads((tmp_path / "tasks.json").read_text())
    assert listed == {"tasks": [[one.id, str(n)] for n, one in enumerate(tasks(3))]}


def test_a_continued_run_keeps_its_record_and_its_beginning(tmp_path: Path) -> None:
    run(tmp_path, tasks(1))
    directory = ResultsDirectory.inspect(str(tmp_path), IDENTITY)
    directory.begin(description(n_repeat=5), tasks(2), NOW_MS + 10**6)
    directory.close()
    meta = directory.meta
    assert (meta["record_id"], meta["record_name"]) == ("record-1", "nightly 1")
    assert (meta["experiment_start_time"], meta["total_repeats"]) == (NOW_MS, 5)
    assert meta["evaluation_name"] == "nightly 1"


def test_answers_on_disk_are_not_due_again(tmp_path: Path) -> None:
    run(tmp_path, tasks(3), tasks(3)[:2])
    directory = begun(tmp_path, tasks(3))
    assert directory.settle(due(tasks(3), 2)) == [
        Attempt(task(2), "0"),
        Attempt(task(0), "1"),
        Attempt(task(1), "1"),
        Attempt(task(2), "1"),
    ]
    assert [saved.task_id for saved in directory.undelivered("record-1")] == [
        task(0).id,
        task(1).id,
    ]
    directory.close()


def test_a_file_without_a_line_is_read(tmp_path: Path) -> None:
    run(tmp_path, tasks(2))
    entry = writer(tmp_path).save(result(task(0)))
    directory = begun(tmp_path, tasks(2))
    assert directory.settle(due(tasks(2))) == [Attempt(task(1), "0")]
    assert directory.state.saved == {entry.key: entry}
    directory.close()
    assert read_state(str(tmp_path / "journal.jsonl")).saved == {entry.key: entry}


def test_a_line_without_a_file_is_run_again_as_another_try(tmp_path: Path) -> None:
    run(tmp_path, tasks(1), tasks(1))
    (tmp_path / task(0).id / "0" / "solution.json").unlink()
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == [Attempt(task(0), "0", 2)]
    assert not directory.state.saved
    directory.close()


@pytest.mark.parametrize("content", [b"", b'{"success": true, "outp', b"[]", b"\x00" * 300])
def test_torn_and_empty_answers_are_run_again_and_delivered_again(
    tmp_path: Path, content: bytes
) -> None:
    run(tmp_path, tasks(1), tasks(1))
    directory = begun(tmp_path, tasks(1))
    directory.note_delivered([((task(0).id, "0"), 1)], "record-1")
    directory.close()
    (tmp_path / task(0).id / "0" / "solution.json").write_bytes(content)
    directory = begun(tmp_path, tasks(1))
    (pending,) = directory.settle(due(tasks(1)))
    assert pending.number == 2
    entry = writer(tmp_path).save(result(task(0), "again", number=pending.number))
    directory.note_saved([entry])
    assert directory.undelivered("record-1") == [entry]
    directory.close()


def test_an_answer_that_changed_on_disk_is_read_again(tmp_path: Path) -> None:
    run(tmp_path, tasks(1), tasks(1))
    entry = writer(tmp_path).save(result(task(0), "a longer answer than before", number=2))
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == []
    assert directory.state.saved == {entry.key: entry}
    directory.close()


def test_a_failed_try_that_was_replaced_just_before_a_crash_is_noticed(tmp_path: Path) -> None:
    """Two tries that fail alike have files of the same size."""
    run(tmp_path, tasks(1))
    directory = begun(tmp_path, tasks(1))
    writing = writer(tmp_path)
    writing.save(result(task(0), "", success=False, error_type="Boom"))
    second = writing.save(result(task(0), "", number=2, success=False, error_type="Boom"))
    directory.note_saved([second])
    directory.note_delivered([(second.key, 2)], "record-1")
    directory.close()
    third = writing.save(result(task(0), "", number=3, success=False, error_type="Boom"))
    assert third.size == second.size
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == []
    assert directory.undelivered("record-1") == [third]
    directory.close()


def test_a_failed_attempt_is_not_written_down_twice(tmp_path: Path) -> None:
    run(tmp_path, tasks(1))
    directory = begun(tmp_path, tasks(1))
    failed = writer(tmp_path).save(result(task(0), "", success=False, error_type="Boom"))
    directory.note_saved([failed])
    directory.close()
    size = os.path.getsize(str(tmp_path / "journal.jsonl"))
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == []
    assert directory.state.saved == {failed.key: failed}
    directory.close()
    assert os.path.getsize(str(tmp_path / "journal.jsonl")) == size


def test_an_answer_of_another_experiment_is_run_again(tmp_path: Path) -> None:
    run(tmp_path, tasks(1))
    writer(tmp_path, "another").save(result(task(0)))
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == [Attempt(task(0), "0")]
    directory.close()


def test_an_answer_of_another_tool_counts_as_done(tmp_path: Path) -> None:
    run(tmp_path, tasks(1))
    folder = tmp_path / task(0).id / "0"
    folder.mkdir(parents=True)
    answer = {"success": True, "output": "x", "trajectory": [], "meta": None}
    (folder / "solution.json").write_text(json.dumps(answer))
    directory = begun(tmp_path, tasks(1))
    assert directory.settle(due(tasks(1))) == []
    directory.close()


def test_a_new_record_gets_every_row_again(tmp_path: Path) -> None:
    run(tmp_path, tasks(2), tasks(2))
    directory = begun(tmp_path, tasks(2))
    directory.settle(due(tasks(2)))
    directory.note_delivered([((task(0).id, "0"), 1)], "record-1", fsync=True)
    assert [saved.task_id for saved in directory.undelivered("record-1")] == [task(1).id]
    assert len(directory.undelivered("record-2")) == 2
    directory.close()


def test_answers_outside_of_what_is_due_are_not_counted(tmp_path: Path) -> None:
    run(tmp_path, tasks(3), tasks(3))
    directory = begun(tmp_path, tasks(1))
    directory.settle(due(tasks(1)))
    assert set(directory.state.saved) == {(task(0).id, "0")}
    assert directory.stale_folders(tasks(1)) == sorted([task(1).id, task(2).id])
    assert directory.stale_folders(tasks(3)) == []
    directory.close()


def test_the_pipelines_definition_is_kept(tmp_path: Path) -> None:
    directory = begun(tmp_path, tasks(1))
    assert directory.read_pipeline() is None
    directory.write_pipeline({"pipeline": {"nodes": [1]}, "unknown": {"é": None}})
    assert directory.read_pipeline() == {"pipeline": {"nodes": [1]}, "unknown": {"é": None}}
    directory.write_result({"total_tasks": 1})
    assert json.loads((tmp_path / "evaluation_result.json").read_text()) == {"total_tasks": 1}
    directory.close()


def test_a_journal_that_cannot_be_folded_is_as_good_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, tasks(1), tasks(1))
    directory = begun(tmp_path, tasks(1))

    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agentloop_experiment_sdk.results.journal.write_atomically", full)
    directory.fold_journal()
    directory.close()
    assert "was not shortened" in caplog.text
    assert len(read_state(str(tmp_path / "journal.jsonl")).saved) == 1


def test_every_file_is_one_json_document_after_a_run(tmp_path: Path) -> None:
    run(tmp_path, tasks(2), tasks(2))
    directory = begun(tmp_path, tasks(2))
    directory.settle(due(tasks(2)))
    directory.note_delivered([((task(0).id, "0"), 1)], "record-1")
    directory.fold_journal()
    directory.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            json.loads(path.read_text(encoding="utf-8"))
    again = begun(tmp_path, tasks(2))
    assert again.settle(due(tasks(2))) == []
    assert [saved.task_id for saved in again.undelivered("record-1")] == [task(1).id]
    again.close()


def test_a_full_disk_is_a_clear_error_when_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, tasks(1))
    directory = ResultsDirectory.inspect(str(tmp_path), IDENTITY)

    def full(handle: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(layout.os, "write", full)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            directory.begin(description(), tasks(1), NOW_MS)
    directory.begin(description(), tasks(1), NOW_MS)
    writer(tmp_path).save(result(task(0)))
    with monkeypatch.context() as patched:
        patched.setattr(layout.os, "write", full)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            directory.settle(due(tasks(1)))
    directory.close()


def test_reopening_goes_on_with_what_is_there(tmp_path: Path) -> None:
    run(tmp_path, tasks(3), tasks(3)[:1])
    unlisted = writer(tmp_path).save(result(task(1)))  # killed before its line was written
    directory = ResultsDirectory.reopen(str(tmp_path))
    assert directory.decision == "continue" and directory.identity == IDENTITY
    assert [saved.task_id for saved in directory.undelivered("record-1")] == [
        task(0).id,
        task(1).id,
    ]
    directory.note_delivered([(unlisted.key, 1)], "record-1")
    directory.close()
    again = ResultsDirectory.reopen(str(tmp_path))
    assert [saved.task_id for saved in again.undelivered("record-1")] == [task(0).id]
    again.close()


def test_reopening_passes_over_answers_that_are_gone(tmp_path: Path) -> None:
    run(tmp_path, tasks(2), tasks(2))
    (tmp_path / task(0).id / "0" / "solution.json").unlink()
    directory = ResultsDirectory.reopen(str(tmp_path))
    assert [saved.task_id for saved in directory.undelivered("record-1")] == [task(1).id]
    directory.close()


@pytest.mark.parametrize("listed", [b"", b"{}", b'{"tasks": 1}', b'{"tasks": [1, [], ["x"]]}'])
def test_reopening_needs_no_task_list(tmp_path: Path, listed: bytes) -> None:
    run(tmp_path, tasks(1), tasks(1))
    (tmp_path / "tasks.json").write_bytes(listed)
    directory = ResultsDirectory.reopen(str(tmp_path))
    assert len(directory.undelivered("record-1")) == 1
    directory.close()


def test_reopening_refuses_what_cannot_be_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(ResultsDirectoryError, match="evaluation_meta.json is missing"):
        ResultsDirectory.reopen(str(tmp_path))
    foreign(tmp_path)
    for _ in range(2):
        with pytest.raises(ResultsDirectoryError, match="no results of this package"):
            ResultsDirectory.reopen(str(tmp_path))
    (tmp_path / "evaluation_meta.json").write_text('{"identity": {"agent_space": "x"}}')
    with pytest.raises(ResultsDirectoryError):
        ResultsDirectory.reopen(str(tmp_path))
    newer(tmp_path / "newer")
    with pytest.raises(ResultsDirectoryError, match="newer version"):
        ResultsDirectory.reopen(str(tmp_path / "newer"))


def test_a_move_that_a_crash_cut_short_is_finished_before_reopening(tmp_path: Path) -> None:
    run(tmp_path, tasks(1), tasks(1))
    meta = json.loads((tmp_path / "evaluation_meta.json").read_text())
    meta.update(status="archiving", archived_status="completed", archive_to="then-record-1")
    (tmp_path / "evaluation_meta.json").write_text(json.dumps(meta))
    with pytest.raises(ResultsDirectoryError):
        ResultsDirectory.reopen(str(tmp_path))
    moved = ResultsDirectory.reopen(str(tmp_path / "history" / "then-record-1"))
    assert moved.meta["status"] == "completed" and "archive_to" not in moved.meta
    moved.close()


def test_another_experiment_is_moved_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, tasks(1), tasks(1))
    directory = ResultsDirectory.inspect(str(tmp_path), OTHER)
    with caplog.at_level(logging.WARNING):
        directory.begin(description(plan_id="plan-2"), tasks(1), NOW_MS)
    assert "were moved to" in caplog.text
    assert directory.settle(due(tasks(1))) == [Attempt(task(0), "0")]
    assert directory.meta["record_id"] is None
    directory.close()


def test_names_of_states_can_be_had_from_the_directory_module() -> None:
    names = ("RUNNING", "COMPLETED", "FAILED", "INTERRUPTED")
    assert [getattr(directories, name) for name in names] == [
        "running",
        "completed",
        "failed",
        "interrupted",
    ]
