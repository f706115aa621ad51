"""One child process from start to end: both pipes read, its process group ended in time."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable, ContextManager, Dict, Iterator, List, Optional, Union

from ..jsontext import clean_text
from . import spawn
from .command_call import CommandCall

KILL_GRACE = 1.0
"""Seconds between the polite signal at the timeout and the kill."""
DRAIN_GRACE = 1.0
"""Seconds that pipes are still read after the command ended, if something it started holds them."""
_READ_BYTES = 65536
_LONGEST_WAIT = 3600.0
_FIRST_LOOK = 0.01
_SHORTEST_LOOK = 0.001
_LONGEST_LOOK = 0.05

OnCancel = Callable[[Callable[[], None]], ContextManager[None]]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        returncode: Negative for a signal; None if it was not started or could not even be killed.
        stdout: What it printed, also when it was ended.
        stderr: The same of its diagnostics.
        reason: "", ``timeout``, ``overflow``, ``cancelled`` or ``unstarted``.
        error: Why it could not be started.
    """

    returncode: Optional[int]
    stdout: bytes = b""
    stderr: bytes = b""
    reason: str = ""
    error: Optional[Exception] = None


PIPES_CAN_BE_POLLED = os.name == "posix" and hasattr(select, "poll")
"""Whether ``run`` works here; else ``process_threads`` does."""


def run(call: CommandCall, on_cancel: OnCancel, clock: Clock = time.monotonic) -> Ending:
    """Run a command in a process group of its own until it ended; never longer than its timeout.

    At the timeout the group gets SIGTERM and a second later SIGKILL; when the run is cancelled or a
    pipe exceeds its bound, SIGKILL at once. What is left of the group when the command ended is
    killed too, so a row leaves no process of it behind. A process that left the group (``setsid``)
    is not ended; pipes that it holds are given up after a second.
    """
    try:
        streams = _Streams(call.stdin, call.max_output_bytes)
    except OSError as error:
        return Ending(None, reason="unstarted", error=error)
    with streams:
        try:
            child = _Child(call, streams)
        except (OSError, ValueError) as error:
            return Ending(None, reason="unstarted", error=error)
        with child, on_cancel(child.cancel):
            _follow(child, streams, call.timeout, clock)
    reason = child.reason or ("overflow" if streams.overflowed else "")
    return Ending(child.process.returncode, streams.text(1), streams.text(2), reason)


def _follow(child: _Child, streams: _Streams, timeout: float, clock: Clock) -> None:
    def ended() -> bool:
        return child.exited() or streams.overflowed

    def drained() -> bool:
        return not streams.reading and child.exited()

    if not _wait_until(ended, streams, timeout, clock):
        child.reason = child.reason or "timeout"
        child.send(signal.SIGTERM)
        _wait_until(ended, streams, KILL_GRACE, clock)
    if child.reason or streams.overflowed:
        child.send(signal.SIGKILL)
    if not drained():
        _wait_until(drained, streams, DRAIN_GRACE, clock)


def _wait_until(done: Callable[[], bool], streams: _Streams, seconds: float, clock: Clock) -> bool:
    limit = clock() + seconds
    while True:
        left = limit - clock()
        if left <= 0:
            return False
        streams.wait(left)
        if done():
            return True


class _Child:
    """A started command and its process group."""

    def __init__(self, call: CommandCall, streams: _Streams) -> None:
        try:
            self.process = _started(call, streams)
        finally:
            streams.close_ends()
        self.reason = ""
        self._streams = streams
        self._exited = False

    def send(self, number: int) -> None:
        """Signal the group; not after ``close``, when its id may belong to others."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # the group is gone; macOS answers EPERM for one that holds only a zombie

    def cancel(self) -> None:
        self.reason = self.reason or "cancelled"
        self.send(signal.SIGKILL)

    def exited(self) -> bool:
        """Whether the command ended; it is not reaped here, so that its group keeps its id."""
        self._exited = self._exited or self._has_exited()
        return self._exited

    def _has_exited(self) -> bool:
        if self._streams.exit_is_watched:
            return self._streams.exit_was_seen
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, self.process.pid, options) is not None
        except ChildProcessError:  # SIGCHLD is ignored in this process: the kernel reaped it
            return True
        if not ended:
            self._streams.watch_exit(self.process.pid)
        return ended

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        """Kill what is left of the group and reap the command."""
        self.send(signal.SIGKILL)
        if self.exited():
            self.process.wait()
        elif isinstance(self.process, spawn.Spawned):
            self.process.abandon()


def _started(call: CommandCall, streams: _Streams) -> Union[spawn.Spawned, subprocess.Popen[bytes]]:
    argv = [_bytes(item) for item in call.argv]
    added = {_bytes(k): None if v is None else _bytes(v) for k, v in call.env.items()}
    cwd = None if call.cwd is None else _bytes(call.cwd)
    return spawn.start(argv, added, cwd, streams.ends) or subprocess.Popen(
        argv,
        stdin=streams.ends.get(0, subprocess.DEVNULL),
        stdout=streams.ends[1],
        stderr=streams.ends[2],
        cwd=cwd,
        env=_environment(added),
        start_new_session=True,
    )


def _environment(added: spawn.Added) -> Dict[bytes, bytes]:
    every = {**spawn.inherited(), **added}
    return {name: value for name, value in every.items() if value is not None}


class _Streams:
    """The pipes of one command, read and written as they become ready.

    Numbers are those of the command's descriptors: 0 for its input, 1 and 2 for its output.
    ``ends`` are its ends of the pipes.
    """

    def __init__(self, stdin: Optional[bytes], limit: int) -> None:
        self.ends: Dict[int, int] = {}
        self.reading = {1, 2}
        self.overflowed = False
        self._input = memoryview(stdin or b"")
        self._chunks: Dict[int, List[bytes]] = {1: [], 2: []}
        self._room = {1: limit, 2: limit}
        self._numbers: Dict[int, int] = {}
        self._exit_descriptor: Optional[int] = None
        self.exit_was_seen = False
        self._looks = _looks()
        self._poller = select.poll()
        try:
            for number in (1, 2) if stdin is None else (0, 1, 2):
                self._make_pipe(number)
        except OSError:
            self.close()
            raise

    def _make_pipe(self, number: int) -> None:
        readable, writable = os.pipe()
        ours, self.ends[number] = (readable, writable) if number else (writable, readable)
        self._numbers[ours] = number
        if number == 0:
            os.set_blocking(ours, False)
        self._poller.register(ours, select.POLLIN if number else select.POLLOUT)

    def close_ends(self) -> None:
        """Close the command's ends of the pipes, which it has inherited by now."""
        for descriptor in self.ends.values():
            os.close(descriptor)
        self.ends = {}

    def watch_exit(self, pid: int) -> None:
        """Wake up when the command ends, if the system can tell.

        Only for a command that was looked for in vain: most close their pipes by ending.
        """
        self._exit_descriptor = _exit_descriptor(pid)
        if self._exit_descriptor is not None:
            self._poller.register(self._exit_descriptor, select.POLLIN)

    @property
    def exit_is_watched(self) -> bool:
        """Whether the end of the command wakes ``wait``."""
        return self._exit_descriptor is not None

    def wait(self, seconds: float) -> None:
        """Serve what becomes ready within ``seconds``; returns early when the command ends."""
        if self._exit_descriptor is None:
            seconds = min(seconds, next(self._looks))
        for descriptor, found in self._poller.poll(math.ceil(min(seconds, _LONGEST_WAIT) * 1000)):
            number = self._numbers.get(descriptor)
            if number is None:
                self._poller.unregister(descriptor)  # ended, and ready from now on
                self.exit_was_seen = True
            elif number == 0:
                self._write(descriptor)
            elif found == select.POLLHUP:
                self._close_pipe(descriptor)
            else:
                self._read(descriptor, number)

    def _read(self, descriptor: int, number: int) -> None:
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            self._close_pipe(descriptor)
            return
        room = self._room[number]
        self._room[number] = room - len(data)
        if room > 0:
            self._chunks[number].append(data[:room])
        self.overflowed = self.overflowed or room < len(data)

    def _write(self, descriptor: int) -> None:
        try:
            self._input = self._input[os.write(descriptor, self._input[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # the command does not read to the end of its input
            self._input = self._input[:0]
        if not self._input:
            self._close_pipe(descriptor)

    def _close_pipe(self, descriptor: int) -> None:
        self._poller.unregister(descriptor)
        self.reading.discard(self._numbers.pop(descriptor))
        os.close(descriptor)

    def text(self, number: int) -> bytes:
        """What came out of pipe 1 or 2, as far as there was room."""
        return b"".join(self._chunks[number])

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is still open."""
        self.close_ends()
        for descriptor in list(self._numbers):
            self._close_pipe(descriptor)
        if self._exit_descriptor is not None:
            os.close(self._exit_descriptor)


def _looks() -> Iterator[float]:
    """Seconds until the next look at a command whose end wakes nobody; soon, then less often."""
    yield _FIRST_LOOK  # here its pipes do, if nothing it has started holds them
    look = _SHORTEST_LOOK
    while True:
        yield look
        look = min(look * 2, _LONGEST_LOOK)


def _exit_descriptor(pid: int) -> Optional[int]:
    """A descriptor that becomes readable when the process ends (Linux, Python 3.9), else None."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _bytes(text: str) -> bytes:
    """UTF-8 whatever the locale says; undecodable bytes of file names stay what they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return clean_text(text).encode("utf-8")
