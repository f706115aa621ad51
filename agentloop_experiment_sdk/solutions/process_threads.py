"""One child process where pipes cannot be polled (Windows): a thread reads each pipe."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from .command_call import CommandCall
from .process import DRAIN_GRACE, Clock, Ending, OnCancel

_LOOK = 0.1
_READ_BYTES = 65536
_BATCH_SUFFIXES = (".bat", ".cmd")
_BATCH_UNSAFE = frozenset('"&|<>^%!\r\n')


def run_with_threads(
    call: CommandCall, on_cancel: OnCancel, clock: Clock = time.monotonic
) -> Ending:
    """``process.run`` with threads; the timeout kills the process tree at once.

    A process that a command left behind when it ended is not found on Windows, since its parent is
    gone; its pipes are given up after a second.
    """
    try:
        popen = _start(call)
    except (OSError, ValueError) as error:
        return Ending(None, reason="unstarted", error=error)
    readers = [_Reader(pipe, call.max_output_bytes) for pipe in (popen.stdout, popen.stderr)]
    reasons: List[str] = []

    def end(reason: str) -> None:
        reasons.append(reason)
        kill_tree(popen.pid)

    try:
        with on_cancel(lambda: end("cancelled")):
            _feed(popen, call.stdin)
            unfinished = _await_exit(popen, readers, clock() + call.timeout, clock)
            if unfinished:
                end(unfinished)
            for reader in readers:
                reader.join(DRAIN_GRACE)
    finally:
        if popen.poll() is None:
            kill_tree(popen.pid)
    code = _exit_code(popen)
    reason = (reasons or ["overflow" if any(item.overflowed for item in readers) else ""])[0]
    return Ending(code, readers[0].data(), readers[1].data(), reason)


def _start(call: CommandCall) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    for name, value in call.env.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    options: Dict[str, Any] = {"start_new_session": True}
    argv: Sequence[str] = call.argv
    if sys.platform == "win32":
        options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        argv = resolve_program(argv, environment.get("PATH"))
    return subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.DEVNULL if call.stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=call.cwd,
        env=environment,
        **options,
    )


def resolve_program(
    argv: Sequence[str],
    path: Optional[str],
    which: Callable[..., Optional[str]] = shutil.which,
) -> List[str]:
    """``argv`` with its program found by PATH and PATHEXT, as a Windows shell would find it.

    Raises:
        ValueError: The program is a batch file and an argument holds a character that ``cmd.exe``,
            which runs batch files, would interpret; it cannot be quoted reliably.
    """
    program = which(argv[0], path=path) or argv[0]
    batch = program.lower().endswith(_BATCH_SUFFIXES)
    if batch and any(_BATCH_UNSAFE.intersection(argument) for argument in argv[1:]):
        raise ValueError(
            "{} is a batch file and an argument holds a quote, a line end or one of & | < > ^ % !, "
            "which cmd.exe would interpret; pass the text on stdin or call the program behind "
            "the batch file.".format(os.path.basename(program))
        )
    return [program] + list(argv[1:])


def kill_tree(pid: int) -> None:
    """Kill a process with its tree (``taskkill``) on Windows, else its process group."""
    if sys.platform == "win32":
        command = ["taskkill", "/F", "/T", "/PID", str(pid)]
        subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10, check=False
        )
        return
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _await_exit(
    popen: subprocess.Popen[bytes], readers: List[_Reader], limit: float, clock: Clock
) -> str:
    """Why the command has to be ended, or "" when it ended itself."""
    while True:
        if any(reader.overflowed for reader in readers):
            return "overflow"
        left = limit - clock()
        if left <= 0:
            return "timeout"
        try:
            popen.wait(min(left, _LOOK))
            return ""
        except subprocess.TimeoutExpired:
            continue


def _exit_code(popen: subprocess.Popen[bytes]) -> Optional[int]:
    try:
        return popen.wait(DRAIN_GRACE)
    except subprocess.TimeoutExpired:
        return None


def _feed(popen: subprocess.Popen[bytes], data: Optional[bytes]) -> None:
    def write() -> None:
        try:
            with popen.stdin as pipe:  # type: ignore[union-attr]
                pipe.write(data or b"")
        except OSError:
            pass  # the command does not read to the end of its input

    if data is not None:
        threading.Thread(target=write, daemon=True).start()


class _Reader(threading.Thread):
    """Reads one pipe to its end, keeping at most ``limit`` bytes."""

    def __init__(self, pipe: Any, limit: int) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._room = limit
        self._chunks: List[bytes] = []
        self.overflowed = False
        self.start()

    def run(self) -> None:
        with self._pipe:
            for data in iter(lambda: self._pipe.read(_READ_BYTES), b""):
                if self._room > 0:
                    self._chunks.append(data[: self._room])
                self.overflowed = self.overflowed or self._room < len(data)
                self._room -= len(data)

    def data(self) -> bytes:
        return b"".join(list(self._chunks))
