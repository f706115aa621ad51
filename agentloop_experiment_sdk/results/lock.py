"""The lock of a results directory: one process at a time runs an experiment in it."""

from __future__ import annotations

import errno
import logging
import os
import threading
from typing import Any, Set

from ..errors import DirectoryLockedError, ResultsDirectoryError

logger = logging.getLogger(__name__)

_LOCKED_BYTE = 1 << 30

# POSIX record locks belong to the process, so runs of one process must know of each other: a
# second open and close of the file would even drop the first one's lock.
_held: Set[str] = set()
_held_lock = threading.Lock()


class DirectoryLock:
    """An advisory lock on a file of its own; it ends with the process, however that ends.

    ``fcntl.lockf`` is used rather than ``flock``: a child that was forked by an agent and outlives
    a killed run does not inherit it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._name = os.path.realpath(path)
        self._handle = -1

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            DirectoryLockedError: Another process, or another run of this one, holds it.
            ResultsDirectoryError: The lock file cannot be made.
        """
        with _held_lock:
            if self._name in _held:
                raise _locked(self._path)
            _held.add(self._name)
        try:
            self._lock_file()
        except BaseException:
            self._forget()
            raise

    def release(self) -> None:
        """Give the lock back; releasing twice is fine."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._forget()

    def _forget(self) -> None:
        with _held_lock:
            _held.discard(self._name)

    def _lock_file(self) -> None:
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ResultsDirectoryError(
                "The results directory {} cannot be written: {}. Mend its permissions or pass "
                "another result_dir.".format(os.path.dirname(self._path), error)
            ) from error
        try:
            _lock_handle(handle)
        except (BlockingIOError, PermissionError) as error:
            os.close(handle)
            raise _locked(self._path) from error
        except OSError as error:
            logger.warning(
                "Locks do not work in %s (%s): make sure that no second run uses it.",
                os.path.dirname(self._path),
                error,
            )
        self._handle = handle
        _note_holder(handle)


def _note_holder(handle: int) -> None:
    """Write down who holds the lock, for a person who looks; a full disk does not matter."""
    try:
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, '{{"pid":{}}}\n'.format(os.getpid()).encode("ascii"))
    except OSError:
        pass


def _locked(path: str) -> DirectoryLockedError:
    return DirectoryLockedError(
        "Another run is using the results directory {}. Wait for it, end it, or pass another "
        "result_dir.".format(os.path.dirname(path))
    )


def _lock_handle(handle: int) -> None:
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(handle)
        return
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_on_windows(handle: int) -> None:
    import msvcrt

    module: Any = msvcrt
    # far behind the content, which stays readable
    os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
    try:
        module.locking(handle, module.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            raise BlockingIOError(str(error)) from error
        raise
