"""Moving an earlier experiment to history/, with a crash after every step."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from results_builder import build_plain, row
from results_values import IDENTITY, NOW_MS, description, run, tasks

from agentloop_experiment_sdk.errors import ResultsDirectoryError
from agentloop_experiment_sdk.models import Identity
from agentloop_experiment_sdk.results import archive, layout
from agentloop_experiment_sdk.results.directory import ARCHIVE, BEGIN, CONTINUE, ResultsDirectory
from agentloop_experiment_sdk.results.reader import read_results

OTHER = Identity("space", "plan-2", "experimentA", "cn-test")
NOW = datetime.datetime(2026, 11, 30, 8, 0, 0, tzinfo=datetime.timezone.utc)
HISTORY_NAME = "20261130T080000Z-record-1"


def files(root: Path) -> Dict[str, bytes]:
    """Every file of results below ``root`` with its content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def earlier(root: Path) -> Dict[str, bytes]:
    """An experiment of three tasks, two answered, and a user's own files beside it."""
    run(root, tasks(3), tasks(3)[:2])
    (root / "pipeline.json").write_text("{}")
    (root / "evaluation_result.json").write_text("{}")
    before = files(root)
    (root / "notes.txt").write_text("mine")
    (root / "plots").mkdir(exist_ok=True)
    (root / "plots" / "a.png").write_bytes(b"png")
    return before


def check_moved(root: Path, before: Dict[str, bytes]) -> None:
    """Nothing is lost, and the moved experiment is complete and can be gone on with."""
    (entry,) = os.listdir(str(root / "history"))
    moved = files(root / "history" / entry)
    meta = json.loads(moved.pop("evaluation_meta.json"))
    assert meta == json.loads(before["evaluation_meta.json"])
    assert moved == {name: text for name, text in before.items() if "evaluation_meta" not in name}
    assert sorted(set(os.listdir(str(root))) - {".lock"}) == ["history", "notes.txt", "plots"]
    stored = read_results(str(root / "history" / entry))
    assert sum(head.done for head in stored.heads) == 2
    again = ResultsDirectory.inspect(str(root / "history" / entry), IDENTITY, True)
    try:
        assert again.decision == CONTINUE
        again.begin(description(), tasks(3), NOW_MS)
        assert len(again.undelivered("record-1")) == 2
    finally:
        again.close()


def test_everything_of_the_experiment_moves_and_a_users_files_stay(tmp_path: Path) -> None:
    before = earlier(tmp_path)
    meta = json.loads(before["evaluation_meta.json"])
    target = archive.archive(str(tmp_path), meta, NOW)
    assert target == str(tmp_path / "history" / HISTORY_NAME)
    check_moved(tmp_path, before)


def test_a_second_move_in_the_same_second_gets_its_own_name(tmp_path: Path) -> None:
    for _ in range(3):
        earlier_meta = json.loads(earlier(tmp_path)["evaluation_meta.json"])
        archive.archive(str(tmp_path), earlier_meta, NOW)
    assert sorted(os.listdir(str(tmp_path / "history"))) == [
        HISTORY_NAME,
        HISTORY_NAME + "-2",
        HISTORY_NAME + "-3",
    ]


def test_a_record_id_never_leads_out_of_history(tmp_path: Path) -> None:
    meta = dict(json.loads(earlier(tmp_path)["evaluation_meta.json"]), record_id="../../x y")
    target = archive.archive(str(tmp_path), meta, NOW)
    assert target == str(tmp_path / "history" / "20261130T080000Z-.._.._x_y")
    plan = dict(meta, status="archiving", archive_to="../../elsewhere")
    (tmp_path / "evaluation_meta.json").write_text(json.dumps(plan))
    assert archive.finish(str(tmp_path), plan) == str(tmp_path / "history" / "elsewhere")


STEPS = ("replace", "rename", "makedirs", "write", "unlink", "open", "mkdir")


class Crash(BaseException):
    """The process died here."""


def count_steps(move: Callable[[], Any], crash_at: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run ``move``; the operation on the file system number ``crash_at`` never comes back."""
    count = [0]

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if count[0] == crash_at:
                raise Crash
            count[0] += 1
            return real(*args, **more)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(layout, "_token", "0" * 12)  # of the process that dies
        for name in STEPS:
            patched.setattr(os, name, watched(getattr(os, name)))
        try:
            move()
        except Crash:
            pass
    return count[0]


def test_a_crash_before_any_step_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 10**6
    step = 0
    while step <= total:
        root = tmp_path / str(step)
        root.mkdir()
        before = earlier(root)
        meta = json.loads(before["evaluation_meta.json"])
        done = count_steps(
            lambda root=root, meta=meta: archive.archive(str(root), meta, NOW),  # type: ignore
            step,
            monkeypatch,
        )
        if done < step:
            total = done
        directory = ResultsDirectory.inspect(str(root), OTHER)
        assert directory.decision in (BEGIN, ARCHIVE)
        directory.begin(description(plan_id="plan-2"), tasks(1), NOW_MS)
        directory.close()
        assert json.loads((root / "evaluation_meta.json").read_text())["record_id"] is None
        for name in ("evaluation_meta.json", "tasks.json", "journal.jsonl"):
            (root / name).unlink()
        check_moved(root, before)
        step += 1
    assert total > 10


KILLED = """
import json, os, sys
from agentloop_experiment_sdk.models import Identity
from agentloop_experiment_sdk.results.directory import ResultsDirectory
sys.path.insert(0, sys.argv[3])
from results_values import NOW_MS, description, tasks
left = [int(sys.argv[2])]
def watched(real):
    def call(*args, **more):
        if not left[0]:
            os.kill(os.getpid(), 9)
        left[0] -= 1
        return real(*args, **more)
    return call
directory = ResultsDirectory.inspect(sys.argv[1], Identity("space", "plan-2", "experimentA", "x"))
for name in ("replace", "makedirs", "unlink", "write"):
    setattr(os, name, watched(getattr(os, name)))
directory.begin(description(plan_id="plan-2"), tasks(1), NOW_MS)
"""


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
def test_a_killed_process_is_made_good_by_one_that_goes_on_with_the_moved_experiment(
    tmp_path: Path,
) -> None:
    """Also when the next run is of the very experiment that was being moved."""
    for step in range(0, 10, 2):
        root = tmp_path / str(step)
        root.mkdir()
        before = earlier(root)
        arguments = [sys.executable, "-c", KILLED, str(root), str(step), os.path.dirname(__file__)]
        done = subprocess.run(arguments, stderr=subprocess.PIPE, check=False)
        assert done.returncode == -9, done.stderr.decode()
        directory = ResultsDirectory.inspect(str(root), IDENTITY)
        decision = directory.decision
        directory.close()
        if decision == CONTINUE:  # the move had not been written down yet
            assert files(root)["evaluation_meta.json"] == before["evaluation_meta.json"]
        else:
            check_moved(root, before)


def test_directories_of_other_tools_move_too(tmp_path: Path) -> None:
    build_plain(tmp_path, [row("task_1"), row("task_2")])
    before = files(tmp_path)
    directory = ResultsDirectory.inspect(str(tmp_path), IDENTITY)
    assert directory.decision == ARCHIVE
    directory.begin(description(), tasks(1), NOW_MS)
    directory.close()
    (entry,) = os.listdir(str(tmp_path / "history"))
    moved = files(tmp_path / "history" / entry)
    meta = json.loads(moved.pop("evaluation_meta.json"))
    assert meta == json.loads(before.pop("evaluation_meta.json"))
    assert moved == before
    assert entry.endswith("-unknown")
    assert len(read_results(str(tmp_path / "history" / entry)).heads) == 2


@pytest.mark.parametrize("content", [b"", b'{"record_id": "r', b"[1]", b"{}"])
def test_damaged_metadata_is_kept_and_the_answers_move(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    before = earlier(tmp_path)
    (tmp_path / "evaluation_meta.json").write_bytes(content)
    directory = ResultsDirectory.inspect(str(tmp_path), IDENTITY)
    assert directory.decision == ARCHIVE
    directory.begin(description(), tasks(1), NOW_MS)
    directory.close()
    (entry,) = os.listdir(str(tmp_path / "history"))
    moved = files(tmp_path / "history" / entry)
    assert moved.pop("evaluation_meta.damaged") == content
    assert moved == {name: text for name, text in before.items() if "evaluation_meta" not in name}
    assert sum(head.done for head in read_results(str(tmp_path / "history" / entry)).heads) == 2


def test_a_move_that_cannot_be_made_is_a_clear_error_and_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = earlier(tmp_path)
    (tmp_path / "history").write_text("a file in the way")
    directory = ResultsDirectory.inspect(str(tmp_path), OTHER)
    with pytest.raises(ResultsDirectoryError, match="nothing in it is lost"):
        directory.begin(description(plan_id="plan-2"), tasks(1), NOW_MS)
    directory.close()
    with pytest.raises(ResultsDirectoryError):
        ResultsDirectory.inspect(str(tmp_path), OTHER)
    (tmp_path / "history").unlink()
    ResultsDirectory.inspect(str(tmp_path), OTHER).close()
    check_moved(tmp_path, before)


def test_a_users_folders_and_links_are_not_ours(tmp_path: Path) -> None:
    names: List[str] = ["plots", "task_1"]
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "task_1" / layout.TASK_META_FILE).write_text("{}")
    if hasattr(os, "symlink"):
        (tmp_path / tasks(1)[0].id).symlink_to(tmp_path / "plots")
    assert archive.own_entries(str(tmp_path)) == ["task_1"]
