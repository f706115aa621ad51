"""The names of a results directory, and the atomic way its files are written.

The layout is AgentScope's evaluation file format (``schema_version`` 1); what we add is extra files
and extra keys in files whose readers ignore unknown keys. ``solution.json`` keeps exactly that
format's four keys (its reader passes them as arguments), so the facts of the attempt lie inside
``meta`` under ``ATTEMPT_KEY``.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import stat
import time
import uuid
from typing import Any, BinaryIO, Callable, Dict, Optional

from .. import jsontext

FORMAT_VERSION = 1
SCHEMA_VERSION = 1

META_FILE = "evaluation_meta.json"
RESULT_FILE = "evaluation_result.json"
TASKS_FILE = "tasks.json"
JOURNAL_FILE = "journal.jsonl"
PIPELINE_FILE = "pipeline.json"
LOCK_FILE = ".lock"
HISTORY_DIR = "history"

TASK_META_FILE = "task_meta.json"
SOLUTION_FILE = "solution.json"
STATS_FILE = "stats.json"
EVALUATION_DIR = "evaluation"

ATTEMPT_KEY = "agentloop.attempt"

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9._\-]")
# names that Windows keeps for devices, whatever their extension
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?\Z", re.IGNORECASE)
_LONGEST_NAME = 150
_TEMPORARY = ".tmp"
# such as write_atomically makes them; a user's own .tmp files are not ours
_TEMPORARY_NAME = re.compile(r".+\.[0-9]+-[0-9a-f]{12}-[0-9]+\.tmp\Z")
_EXISTING_FILE = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
# of this process: a process id alone comes again, in a container at every start
_token = uuid.uuid4().hex[:12]
_serial = itertools.count()


def is_task_folder(name: str) -> bool:
    """Whether ``name`` can be a task id of ours (a lower-case UUID)."""
    return bool(_UUID.match(name))


def attempt_folder(root: str, task_id: str, repeat_id: str) -> str:
    """``<root>/<task_id>/<repeat_id>``."""
    return os.sep.join((root, task_id, repeat_id))


def metric_file_name(metric: str) -> str:
    """A file name for a metric, valid on every system.

    Characters other than ``A-Za-z0-9._-`` become ``%XX`` of UTF-8; a long name is cut and gets a
    digest of the whole.
    """
    text = jsontext.clean_text(metric)
    name = _UNSAFE.sub(lambda m: "".join("%%%02X" % b for b in m.group().encode("utf-8")), text)
    if not name.strip("."):
        name = name.replace(".", "%2E")
    if _DEVICE.match(name):
        name = "%{:02X}{}".format(ord(name[0]), name[1:])
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]
        name = "{}-{}".format(name[:_LONGEST_NAME], digest)
    return name + ".json"


def replace_with_retry(source: str, target: str, sleep: Callable[[float], None]) -> None:
    """``os.replace``, tried for half a second while a reader on Windows holds the target open."""
    for pause in (0.01, 0.02, 0.05, 0.1, 0.3):
        try:
            return os.replace(source, target)
        except PermissionError:
            sleep(pause)
    os.replace(source, target)


def check_target(path: str) -> None:
    """Refuse a file that cannot be written, by the name that was given and not a temporary one.

    Raises:
        FileNotFoundError: Its folder does not exist.
        IsADirectoryError: It is a folder.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "This is a folder; name a file in it", path)
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise FileNotFoundError(errno.ENOENT, "The folder of this file does not exist", path)


def write_atomically(
    path: str,
    data: bytes,
    *,
    fsync: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write ``data`` so that a reader sees the old file or the whole new one, never a part."""
    temporary = "{}.{}-{}-{}{}".format(path, os.getpid(), _token, next(_serial), _TEMPORARY)
    handle = os.open(temporary, _NEW_FILE, 0o644)
    try:
        try:
            _write_all(handle, data)
            if fsync:
                os.fsync(handle)
        finally:
            os.close(handle)
        replace_with_retry(temporary, path, sleep)
    except BaseException:
        _remove_quietly(temporary)
        raise
    if fsync:
        _sync_folder(os.path.dirname(path))


def remove_leftovers(folder: str) -> None:
    """Remove the temporary files of processes that were killed while they wrote to ``folder``."""
    own = "-{}-".format(_token)
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if _TEMPORARY_NAME.match(name) and own not in name:
            _remove_quietly(os.path.join(folder, name))


def write_json(path: str, value: Any, *, indent: Optional[int] = 2, fsync: bool = False) -> None:
    """``value`` as strict JSON in UTF-8, written atomically."""
    write_atomically(path, jsontext.dumps(value, indent).encode("utf-8"), fsync=fsync)


def open_regular(path: str) -> BinaryIO:
    """Open a file of a results directory for reading; anything but a regular file is refused.

    Opening a named pipe would wait for somebody to write to it, and a device may never end.

    Raises:
        OSError: It cannot be opened, or is something else.
    """
    handle = os.open(path, _EXISTING_FILE)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return open(handle, "rb")


def read_json_object(path: str) -> Optional[Dict[str, Any]]:
    """The JSON object in ``path``, or None when it is absent, torn, or something else."""
    try:
        with open_regular(path) as file:
            value = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _sync_folder(folder: str) -> None:
    """Make a rename in ``folder`` last; Windows has no such call and needs none."""
    try:
        handle = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
