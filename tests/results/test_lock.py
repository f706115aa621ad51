"""One process, and one run of it, at a time."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, List

import pytest

from agentloop_experiment_sdk.errors import DirectoryLockedError, ResultsDirectoryError
from agentloop_experiment_sdk.results import lock
from agentloop_experiment_sdk.results.lock import DirectoryLock

HOLD = """
import os, sys, time
from agentloop_experiment_sdk.results.lock import DirectoryLock
held = DirectoryLock(sys.argv[1]); held.acquire()
if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        sys.stdin.close(); os.dup2(2, 1)
        time.sleep(60); os._exit(0)
    print(child, flush=True)
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: Path, how: str = "plain") -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    )
    return process


def end(process: Any) -> None:
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    process = holder(tmp_path / ".lock")
    assert process.stdout.readline() == "held\n"
    waiting = DirectoryLock(str(tmp_path / ".lock"))
    with pytest.raises(DirectoryLockedError, match="Another run is using the results directory"):
        waiting.acquire()
    assert (tmp_path / ".lock").read_text() == '{{"pid":{}}}\n'.format(process.pid)
    end(process)
    waiting.acquire()
    waiting.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_that_outlives_a_killed_holder_does_not_hold_the_lock(
    tmp_path: Path,
) -> None:
    process = holder(tmp_path / ".lock", "fork")
    child = int(process.stdout.readline())
    assert process.stdout.readline() == "held\n"
    process.kill()
    process.wait(30)
    try:
        os.kill(child, 0)  # it is alive
        mine = DirectoryLock(str(tmp_path / ".lock"))
        mine.acquire()
        mine.release()
    finally:
        os.kill(child, 9)
        process.stdin.close()
        process.stdout.close()


def test_a_second_run_of_the_same_process_is_refused(tmp_path: Path) -> None:
    first, second = DirectoryLock(str(tmp_path / ".lock")), DirectoryLock(str(tmp_path / ".lock"))
    first.acquire()
    with pytest.raises(DirectoryLockedError):
        second.acquire()
    second.release()  # it holds nothing, so it gives nothing back
    with pytest.raises(DirectoryLockedError):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links")
def test_another_name_of_the_directory_is_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "real")
    first = DirectoryLock(str(tmp_path / "real" / ".lock"))
    first.acquire()
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(str(tmp_path / "other" / ".lock")).acquire()
    first.release()


def test_a_lock_file_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    locking = DirectoryLock(str(tmp_path / "absent" / ".lock"))
    for _ in range(2):  # and it is not remembered as held
        with pytest.raises(ResultsDirectoryError, match="cannot be written") as failure:
            locking.acquire()
        assert not isinstance(failure.value, DirectoryLockedError)


def test_where_locks_do_not_work_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(handle: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock_handle", unsupported)
    with caplog.at_level(logging.WARNING):
        locking = DirectoryLock(str(tmp_path / ".lock"))
        locking.acquire()
    assert "Locks do not work" in caplog.text and "No locks available" in caplog.text
    locking.release()


def test_a_full_disk_does_not_matter_to_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(lock.os, "write", full)
    locking = DirectoryLock(str(tmp_path / ".lock"))
    locking.acquire()
    monkeypatch.undo()
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(str(tmp_path / ".lock")).acquire()
    locking.release()


class FakeMsvcrt(types.ModuleType):
    """Windows' byte-range locks, as its C library answers."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.calls: List[Any] = []
        self.error: Any = None

    def locking(self, handle: int, mode: int, count: int) -> None:
        self.calls.append((os.lseek(handle, 0, os.SEEK_CUR), mode, count))
        if self.error is not None:
            raise OSError(self.error, "locking")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> FakeMsvcrt:
    fake = FakeMsvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    return fake


def test_on_windows_a_byte_behind_the_content_is_locked(
    tmp_path: Path, windows: FakeMsvcrt
) -> None:
    locking = DirectoryLock(str(tmp_path / ".lock"))
    locking.acquire()
    assert windows.calls == [(1 << 30, 2, 1)]
    assert (tmp_path / ".lock").read_text().startswith('{"pid":')
    locking.release()


def test_on_windows_a_held_lock_is_a_clear_error(tmp_path: Path, windows: FakeMsvcrt) -> None:
    windows.error = errno.EACCES
    with pytest.raises(DirectoryLockedError):
        DirectoryLock(str(tmp_path / ".lock")).acquire()


def test_on_windows_too_missing_locks_are_a_warning(
    tmp_path: Path, windows: FakeMsvcrt, caplog: pytest.LogCaptureFixture
) -> None:
    windows.error = errno.EINVAL
    locking = DirectoryLock(str(tmp_path / ".lock"))
    locking.acquire()
    assert "Locks do not work" in caplog.text
    locking.release()
