"""Names and atomic writes of a results directory."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, List

import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_builder import build, row

from agentloop_experiment_sdk import ExperimentResult, ResultsDirectoryError, load_result
from agentloop_experiment_sdk.results import layout


def test_only_a_lower_case_uuid_is_a_task_folder() -> None:
    assert layout.is_task_folder("0af76519-16cd-43dd-8448-eb211c80319c")
    for name in ("0AF76519-16CD-43DD-8448-EB211C80319C", "history", "", "task_1", "0af76519\n"):
        assert not layout.is_task_folder(name)


@pytest.mark.parametrize(
    "metric, name",
    [
        ("accuracy", "accuracy.json"),
        ("exact match", "exact%20match.json"),
        ("a/b\\c:d", "a%2Fb%5Cc%3Ad.json"),
        ("..", "%2E%2E.json"),
        ("", ".json"),
        ("准确率", "%E5%87%86%E7%A1%AE%E7%8E%87.json"),
        ("\ud800", "%EF%BF%BD.json"),
        ("con", "%63on.json"),
        ("NUL.x", "%4EUL.x.json"),
        ("console", "console.json"),
    ],
)
def test_metric_names_become_file_names_valid_everywhere(metric: str, name: str) -> None:
    assert layout.metric_file_name(metric) == name


@given(st.text(max_size=400))
def test_every_metric_has_a_name_that_can_be_written(metric: str) -> None:
    name = layout.metric_file_name(metric)
    assert len(name) < 200 and name.isascii() and not set(name) & set('/\\:*?"<>|\0')


def test_long_metric_names_that_begin_alike_differ() -> None:
    assert layout.metric_file_name("m" * 500) != layout.metric_file_name("m" * 501)


def test_a_write_replaces_the_whole_file_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    layout.write_atomically(str(path), b"new", fsync=True)
    assert path.read_bytes() == b"new"
    assert os.listdir(str(tmp_path)) == ["file.json"]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")

    def full(handle: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layout.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        layout.write_atomically(str(path), b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(str(tmp_path)) == ["file.json"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(layout.os, "write", lambda handle, data: real(handle, data[:3]))
    layout.write_atomically(str(tmp_path / "f"), b"0123456789")
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_a_reader_that_holds_the_target_open_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, pauses, failures = os.replace, [], [PermissionError(), PermissionError()]

    def replace(source: str, target: str) -> None:
        if failures:
            raise failures.pop()
        real(source, target)

    monkeypatch.setattr(layout.os, "replace", replace)
    layout.write_atomically(str(tmp_path / "f"), b"x", sleep=pauses.append)
    assert (tmp_path / "f").read_bytes() == b"x"
    assert pauses == [0.01, 0.02]


def test_a_target_that_stays_closed_is_an_error_after_half_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(source: str, target: str) -> None:
        raise PermissionError(13, "in use")

    pauses: List[float] = []
    monkeypatch.setattr(layout.os, "replace", replace)
    with pytest.raises(PermissionError):
        layout.write_atomically(str(tmp_path / "f"), b"x", sleep=pauses.append)
    assert math.isclose(sum(pauses), 0.48)
    assert os.listdir(str(tmp_path)) == []


def test_many_threads_can_write_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "f.json")
    threads = [threading.Thread(target=layout.write_json, args=(path, {"n": n})) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert layout.read_json_object(path) is not None
    assert os.listdir(str(tmp_path)) == ["f.json"]


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """The killed process had the pid of this one, as every first process of a container has."""
    program = (
        "import os, sys\n"
        "from agentloop_experiment_sdk.results import layout\n"
        "layout.replace_with_retry = lambda *a: os._exit(9)\n"
        "layout.os.getpid = lambda: {}\n"
        "layout.write_atomically(sys.argv[1], b'half')\n"
    ).format(os.getpid())
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "f.json")], check=False)
    assert done.returncode == 9
    assert len(os.listdir(str(tmp_path))) == 1
    (tmp_path / "notes.tmp").write_text("a user's")
    layout.write_atomically(str(tmp_path / "f.json"), b"{}")
    layout.remove_leftovers(str(tmp_path))
    assert sorted(os.listdir(str(tmp_path))) == ["f.json", "notes.tmp"]
    layout.remove_leftovers(str(tmp_path / "absent"))


def test_what_this_process_is_writing_is_no_leftover(tmp_path: Path) -> None:
    seen: List[List[str]] = []

    def held(pause: float) -> None:
        layout.remove_leftovers(str(tmp_path))
        seen.append(os.listdir(str(tmp_path)))
        os.rmdir(str(tmp_path / "f"))

    (tmp_path / "f").mkdir()
    real, os_replace = os.replace, [PermissionError()]

    def replace(source: str, target: str) -> None:
        if os_replace:
            raise os_replace.pop()
        real(source, target)

    layout.os.replace = replace  # type: ignore[assignment]
    try:
        layout.write_atomically(str(tmp_path / "f"), b"x", sleep=held)
    finally:
        layout.os.replace = real
    assert len(seen[0]) == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b"\xff\xfe{", b"[" * 100000, b"1" * 5000]
)
def test_what_is_no_json_object_reads_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert layout.read_json_object(str(tmp_path / "f")) is None
    assert layout.read_json_object(str(tmp_path / "absent")) is None


def test_files_are_strict_json(tmp_path: Path) -> None:
    layout.write_json(str(tmp_path / "f"), {"n": float("nan"), "s": "\ud835", 1: b"x"})
    text = (tmp_path / "f").read_text(encoding="utf-8")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {"n": None, "s": "\ufffd", "1": "x"}


def test_a_folder_that_cannot_be_synced_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    calls: List[int] = []

    def fsync(handle: int) -> None:
        calls.append(handle)
        if len(calls) % 2 == 0:
            raise OSError("not for folders")
        real(handle)

    monkeypatch.setattr(layout.os, "fsync", fsync)
    layout.write_atomically(str(tmp_path / "f"), b"x", fsync=True)
    assert len(calls) == 2
    monkeypatch.setattr(layout.os, "O_RDONLY", -1)
    layout.write_atomically(str(tmp_path / "f"), b"y", fsync=True)
    assert (tmp_path / "f").read_bytes() == b"y"


def answered_in_time(call: Callable[[], object]) -> object:
    """What ``call`` returns or raises; a call that waits for ever fails the test instead."""
    found: List[object] = []

    def work() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it still waits"
    return found[0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes of POSIX")
@pytest.mark.parametrize("name", ["solution.json", "evaluation_meta.json", "journal.jsonl"])
def test_a_named_pipe_in_a_results_directory_is_not_waited_for(tmp_path: Path, name: str) -> None:
    root = build(tmp_path / "results", [row("q1")])
    (path,) = Path(root).rglob(name)
    path.unlink()
    os.mkfifo(path)
    outcome = answered_in_time(lambda: load_result(root))
    assert isinstance(outcome, (ExperimentResult, ResultsDirectoryError))


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="a device of POSIX")
def test_a_device_is_no_file_of_a_results_directory() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        layout.open_regular("/dev/zero")
    assert layout.read_json_object("/dev/zero") is None
