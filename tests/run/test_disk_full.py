"""A full disk: a clear error, nothing torn, and the next run goes on once there is space.

The disk is a small tmpfs in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
from run_support import Program, completed, config_for, counters, run, statuses

from agentloop_experiment_sdk import ResultsDirectoryError, Task, load_result
from agentloop_experiment_sdk.local import LocalAgentLoop

ROWS = 60
# mounts the tmpfs, runs the program in it, and keeps what it leaves behind
SCRIPT = """
set -e
mount -t tmpfs -o size=256k tmpfs "$1"
shift
status=0
"$@" || status=$?
cp -r "$DISK/r" "$KEPT" 2>/dev/null || true
exit $status
"""


def namespaces_work() -> bool:
    try:
        asked = subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return asked.returncode == 0


def test_a_full_disk_is_a_clear_error_and_the_next_run_goes_on(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not namespaces_work():
        print("private mount namespaces are refused here: the full disk was not tested")
        pytest.skip("private mount namespaces are refused here")
    config = config_for(local, ROWS)
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    monkeypatch.setenv("DISK", str(disk))
    monkeypatch.setenv("KEPT", str(kept))
    wrapper = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", str(disk)]
    job: Dict[str, Any] = {"padding": "x" * 8000, "options": {"n_workers": 4}}
    with Program(config, disk / "r", wrapper=wrapper, **job) as program:
        assert program.end() == 1, program.stderr
    said = program.outcome
    assert (said["raised"], said["code"]) == (
        "ResultsDirectoryError",
        "ResultsDirectoryNotWritable",
    )
    assert "No space left on device" in said["message"]
    assert "Make room" in said["message"] and "run again" in said["message"]
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"
    # no torn state: every file that is there is whole
    answered = whole_files(kept)
    assert 0 < answered < ROWS
    assert load_result(kept).counts.succeeded == answered
    assert len(program.calls) <= answered + 2 * 4 + 4
    # there is space again
    calls: List[str] = []

    def solution(task: Task) -> str:
        calls.append(task.id)
        return "answer to " + str(task.input["q"])

    result = run(config, solution, kept)
    assert result.record_id == record_id and len(calls) == ROWS - answered
    assert counters(local, record_id) == completed(ROWS)
    # each row once: none was sent that nobody could note as sent
    sent = sorted(int(row["dataset.id"]) for row in local.rows())
    assert sent == list(range(ROWS))
    assert not list(kept.rglob("*.tmp"))


def whole_files(path: Path) -> int:
    """How many answers there are; every JSON file must be readable."""
    for file in path.rglob("*.json"):
        json.loads(file.read_text("utf-8"))
    for line in (path / "journal.jsonl").read_bytes().splitlines(keepends=True):
        assert line.endswith(b"\n")
        json.loads(line)
    return len(list(path.glob("*/*/solution.json")))


def full(*_args: Any, **_kwargs: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("directory.ResultsDirectory", "update_meta"),
        ("directory.ResultsDirectory", "begin"),
        ("directory.ResultsDirectory", "note_saved"),
        ("directory.ResultsDirectory", "note_delivered"),
        ("directory.ResultsDirectory", "write_result"),
        ("attempts.AttemptWriter", "save"),
    ],
)
def test_a_disk_that_fills_up_at_any_write_is_the_same_error(
    local: LocalAgentLoop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    name: str,
) -> None:
    from importlib import import_module

    config = config_for(local, 5)
    file, _, owner = module.partition(".")
    kind = getattr(import_module("agentloop_experiment_sdk.results." + file), owner)
    with monkeypatch.context() as patched:
        patched.setattr(kind, name, full)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            run(config, lambda task: "fine", tmp_path)
    for record_id in local.records():
        assert statuses(local, record_id)[-1:] in ([], ["failed"])
    result = run(config, lambda task: "fine", tmp_path)
    assert counters(local, result.record_id) == completed(5)
    assert {row["dataset.id"] for row in local.rows(result.record_id)} == set("01234")


@pytest.mark.parametrize("fills", ["note_saved", "save"])
def test_no_row_is_sent_once_the_disk_is_full(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fills: str
) -> None:
    from agentloop_experiment_sdk.results.attempts import AttemptWriter
    from agentloop_experiment_sdk.results.directory import ResultsDirectory

    config = config_for(local, 40)
    kind: Any = AttemptWriter if fills == "save" else ResultsDirectory
    plain, is_full = getattr(kind, fills), threading.Event()

    def write(*args: Any, **kwargs: Any) -> Any:
        return full() if is_full.is_set() else plain(*args, **kwargs)

    def acknowledge(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("a row was sent")

    def solution(task: Task) -> str:
        if task.input["id"] == "20":
            is_full.set()
        return "fine"

    with monkeypatch.context() as patched:
        patched.setattr(kind, fills, write)
        patched.setattr(ResultsDirectory, "note_delivered", acknowledge)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            run(config, solution, tmp_path)
    answered = load_result(tmp_path).counts
    assert 0 < answered.succeeded == answered.undelivered
    run(config, lambda task: "fine", tmp_path)
    assert sorted(int(row["dataset.id"]) for row in local.rows()) == list(range(40))


def test_rows_on_their_way_when_the_disk_is_full_are_noted_and_not_sent_again(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.results.attempts import AttemptWriter

    config = config_for(local, 6)
    plain = AttemptWriter.save
    local.faults.latency(0.3, "PutLogs")

    def save(writer: AttemptWriter, result: Any) -> Any:
        if result.attempt.task.input["id"] == "5":
            assert local.wait_for("PutLogs", 1, 30.0)  # the others are on their way
            full()
        return plain(writer, result)

    with monkeypatch.context() as patched:
        patched.setattr(AttemptWriter, "save", save)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            run(config, lambda task: "fine", tmp_path, n_workers=1)
    run(config, lambda task: "fine", tmp_path)
    assert sorted(row["dataset.id"] for row in local.rows()) == list("012345")


def test_a_disk_that_is_full_when_nothing_is_left_to_do_is_an_error_too(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.results.directory import ResultsDirectory

    config = config_for(local)
    run(config, lambda task: "fine", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(ResultsDirectory, "write_result", full)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            run(config, lambda task: "fine", tmp_path)
    # the directory was given back
    assert run(config, lambda task: "fine", tmp_path).status == "completed"


def test_a_directory_that_cannot_be_made_is_an_error_before_anything_is_sent(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResultsDirectoryError):
        run(config_for(local), lambda task: "fine", tmp_path / "file")
    assert not local.records()
    assert sys.platform == "win32" or os.path.isfile(str(tmp_path / "file"))
