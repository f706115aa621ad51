"""Starting a command with the C library's ``posix_spawn``, at half the cost of ``subprocess``.

``subprocess`` takes longer to prepare a short command than that runs, and before Python 3.10 it
copies the page tables of this process for each. Where ``start`` cannot do what is asked it says so,
and the caller goes back to ``subprocess``.

Source: ``posix_spawn(3)`` and ``spawn.h`` of glibc, whose version 2.34 is the first that can close
what a child must not inherit.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

Added = Mapping[bytes, Optional[bytes]]
"""Variables beyond the inherited ones; None takes one away."""

_SET_SIGNAL_DEFAULTS = 0x04
_SET_SESSION = 0x80
_ROOM = 1024  # the largest of glibc's structures here has 336 bytes
# what Python ignores, and a program expects at its default
_SIGNALS = ("SIGPIPE", "SIGXFSZ")


class Spawned:
    """A started process: the part of ``subprocess.Popen`` that is needed here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        """The return code if it has ended, which reaps it."""
        return self._reap(os.WNOHANG)

    def wait(self) -> Optional[int]:
        """Wait for its end, reap it and return its code."""
        return self._reap(0)

    def abandon(self) -> None:
        """Wait for it no longer; a later start reaps it, as ``subprocess`` does with its own."""
        with _reaping:
            _abandoned.append(self)

    def _reap(self, options: int) -> Optional[int]:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # the kernel or somebody else reaped it
                pid, status = self.pid, 0
            if pid:
                killed = os.WIFSIGNALED(status)
                self.returncode = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
        return self.returncode


_abandoned: List[Spawned] = []
_reaping = threading.RLock()  # a signal handler may start a command, too


def _reap_abandoned() -> None:
    if _abandoned:
        with _reaping:
            _abandoned[:] = [process for process in _abandoned if process.poll() is None]


def inherited() -> Dict[bytes, bytes]:
    """The variables of this process."""
    # past os.environb, which calls two functions for each of them
    return dict(getattr(os.environb, "_data", os.environb))


def start(
    argv: Sequence[bytes], added: Added, cwd: Optional[bytes], ends: Mapping[int, int]
) -> Optional[Spawned]:
    """Start a command in a session of its own; None where only ``subprocess`` can, or can say why
    it cannot.

    No text may hold a zero byte, nor the name of a variable ``=``: ``command_call`` refuses them.

    Args:
        argv: Its program, which is looked for as ``execvp(3)`` does, and its arguments.
        added: Its variables beyond those of this process.
        cwd: Its working directory.
        ends: The descriptors that become its 0 (by default ``/dev/null``), 1 and 2; it inherits no
            others.
    """
    _reap_abandoned()
    library = _library()
    # a descriptor below 3 could be overwritten by another before it is used
    if library is None or min(ends.values()) < 3:
        return None
    environment = inherited()
    program = _program(argv[0], added.get(b"PATH", environment.get(b"PATH")))
    if program is None:
        return None
    sys.audit("os.posix_spawn", program, argv, {**environment, **added})
    try:
        return Spawned(library.spawn(program, argv, environment, added, cwd, ends))
    except OSError:  # it may have gone
        _program.cache_clear()
        return None


@functools.lru_cache(maxsize=64)
def _program(name: bytes, path: Optional[bytes]) -> Optional[bytes]:
    """Where a command lies, looked up once rather than tried in every folder for every row.

    None where only the child can tell: a PATH with folders relative to its directory.
    """
    if b"/" in name:
        return name
    folders = (path or b"").split(b":")
    if not all(folder.startswith(b"/") for folder in folders):
        return None
    return shutil.which(name, path=os.fsdecode(path or b""))


class _Variables(NamedTuple):
    """The environment of a child as the C library takes it: so many inherited, so many added."""

    inherited: Dict[bytes, bytes]
    added: int
    array: Any


class _Last(threading.local):
    """The environment of the last child that this thread started.

    To write it anew takes as long as the rest of a start, and only what is added differs.
    """

    variables: Optional[_Variables] = None

    def taken(
        self, make: Callable[[List[bytes]], Any], environment: Dict[bytes, bytes], added: Added
    ) -> _Variables:
        """All variables of a child, to be put back when it has started: a signal handler may start
        another meanwhile. ``make`` makes what the C library takes."""
        last, self.variables = self.variables, None
        own = [name + b"=" + value for name, value in added.items() if value is not None]
        if not environment.keys().isdisjoint(added):
            kept = [k + b"=" + v for k, v in environment.items() if k not in added]
            return _Variables({}, 0, make(kept + own))
        if last is None or last.inherited != environment or last.added != len(own):
            every = [k + b"=" + v for k, v in environment.items()] + own
            return _Variables(environment, len(own), make(every))
        for index, text in enumerate(own, len(environment)):
            last.array[index] = text
        return last


class _Library:
    """The C library's functions.

    Those of ``_quick`` keep the interpreter's lock: they take less time than handing it over.
    """

    def __init__(self, ctypes: Any) -> None:
        self._ctypes = ctypes
        self._quick = ctypes.PyDLL(None)
        self._spawn = ctypes.CDLL(None).posix_spawn
        self._last = _Last()
        self._close_from = self._quick.posix_spawn_file_actions_addclosefrom_np
        self._change_directory = self._quick.posix_spawn_file_actions_addchdir_np
        self._attributes = self._buffer()
        self._checked(self._quick.posix_spawnattr_init(self._attributes))
        signals = self._buffer()
        self._checked(self._quick.sigemptyset(signals))
        for name in _SIGNALS:
            self._checked(self._quick.sigaddset(signals, int(getattr(signal, name))))
        self._checked(self._quick.posix_spawnattr_setsigdefault(self._attributes, signals))
        flags = ctypes.c_short(_SET_SIGNAL_DEFAULTS | _SET_SESSION)
        self._checked(self._quick.posix_spawnattr_setflags(self._attributes, flags))

    def spawn(
        self,
        program: bytes,
        argv: Sequence[bytes],
        environment: Dict[bytes, bytes],
        added: Added,
        cwd: Optional[bytes],
        ends: Mapping[int, int],
    ) -> int:
        """Start a program and return its process id.

        Raises:
            OSError: It cannot be started.
        """
        pid = self._ctypes.c_int()
        arguments = self._texts(argv)
        variables = self._last.taken(self._texts, environment, added)
        actions = self._buffer()
        self._checked(self._quick.posix_spawn_file_actions_init(actions))
        try:
            self._add(actions, cwd, ends)
            found = self._ctypes.byref(pid)
            texts = (arguments, variables.array)
            self._checked(self._spawn(found, program, actions, self._attributes, *texts))
        except BaseException:  # Ctrl-C, when it runs already
            if pid.value:
                os.kill(pid.value, signal.SIGKILL)
                Spawned(pid.value).wait()
            raise
        finally:
            self._quick.posix_spawn_file_actions_destroy(actions)
        self._last.variables = variables
        return int(pid.value)

    def _add(self, actions: Any, cwd: Optional[bytes], ends: Mapping[int, int]) -> None:
        """What the child does before it becomes the program."""
        add_open = self._quick.posix_spawn_file_actions_addopen
        add_copy = self._quick.posix_spawn_file_actions_adddup2
        if 0 not in ends:
            self._checked(add_open(actions, 0, os.devnull.encode(), os.O_RDONLY, 0))
        for number, descriptor in ends.items():
            self._checked(add_copy(actions, descriptor, number))
        self._checked(self._close_from(actions, 3))
        if cwd is not None:
            self._checked(self._change_directory(actions, cwd))

    def _texts(self, items: Sequence[bytes]) -> Any:
        return (self._ctypes.c_char_p * (len(items) + 1))(*items, None)

    def _buffer(self) -> Any:
        return self._ctypes.create_string_buffer(_ROOM)

    def _checked(self, error: int) -> None:
        if error:
            raise OSError(error, os.strerror(error))


@functools.lru_cache(maxsize=None)
def _library() -> Optional[_Library]:
    """None where the C library lacks something, or cannot be called."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        return _Library(ctypes)
    except Exception:  # no ctypes, an older C library, a system or a hook that forbids such calls
        return None
