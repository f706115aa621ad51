"""The names of a results directory, and the atomic way its files are written.

The layout is AgentScope's evaluation file format (``schema_version`` 1); what we add is extra files
and extra keys in files whose readers ignore unknown keys. ``solution.json`` keeps exactly that
format's four keys (its reader passes them as arguments), so the facts of the attempt lie inside
``meta`` under ``ATTEMPT_KEY``.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from typing import Any, Callable, Dict, Optional

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
_serial = itertools.count()


def is_task_folder(name: str) -> bool:
    """Whether ``name`` can be a task id of ours (a lower-case UUID)."""
    return bool(_UUID.match(name))


def attempt_folder(root: str, task_id: str, repeat_id: str) -> str:
    """``<root>/<task_id>/<repeat_id>``."""
    return os.path.join(root, task_id, repeat_id)


def metric_file_name(metric: str) -> str:
    """A file name for a metric: other characters than ``A-Za-z0-9._-`` become ``%XX`` of UTF-8."""
    name = _UNSAFE.sub(lambda m: "".join("%%%02X" % b for b in m.group().encode("utf-8")), metric)
    return (name if name.strip(".") else name.replace(".", "%2E")) + ".json"


def replace_with_retry(source: str, target: str, sleep: Callable[[float], None]) -> None:
    """``os.replace``, tried for half a second while a reader on Windows holds the target open."""
    for pause in (0.01, 0.02, 0.05, 0.1, 0.3):
        try:
            return os.replace(source, target)
        except PermissionError:
            sleep(pause)
    os.replace(source, target)


def write_atomically(
    path: str,
    data: bytes,
    *,
    fsync: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write ``data`` so that a reader sees the old file or the whole new one, never a part."""
    temporary = "{}.{}-{}.tmp".format(path, os.getpid(), next(_serial))
    handle = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644
    )
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


def write_json(path: str, value: Any, *, indent: Optional[int] = 2, fsync: bool = False) -> None:
    """``value`` as strict JSON in UTF-8, written atomically."""
    write_atomically(path, jsontext.dumps(value, indent).encode("utf-8"), fsync=fsync)


def read_json_object(path: str) -> Optional[Dict[str, Any]]:
    """The JSON object in ``path``, or None when it is absent, torn, or something else."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
