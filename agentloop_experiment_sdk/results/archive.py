"""Moving an earlier experiment of a results directory to ``history/``, safe against a crash.

The move is written down first (``status: archiving`` and the target), every entry is renamed, and
``evaluation_meta.json`` goes last. Whatever step a crash hits, the next open finishes the move.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from typing import Any, Dict, List, Mapping

from . import layout, places

ARCHIVING = "archiving"
_UNSAFE = re.compile(r"[^A-Za-z0-9._\-]")
# a metadata file that cannot be read is kept under this name
DAMAGED_META_FILE = "evaluation_meta.damaged"
_OWN_FILES = (
    layout.RESULT_FILE,
    layout.TASKS_FILE,
    layout.JOURNAL_FILE,
    layout.PIPELINE_FILE,
    DAMAGED_META_FILE,
)


def archive(root: str, meta: Mapping[str, Any], now: datetime.datetime) -> str:
    """Move the experiment that ``meta`` describes to ``history/``.

    Args:
        root: The results directory, locked.
        meta: Its ``evaluation_meta.json``; ``{}`` when it has none that can be read.
        now: The time that names the target, in UTC.

    Returns:
        The target's path.
    """
    name = "{}-{}".format(
        now.strftime("%Y%m%dT%H%M%SZ"), _UNSAFE.sub("_", str(meta.get("record_id") or "unknown"))
    )
    target = _free_name(root, name)
    path = os.path.join(root, layout.META_FILE)
    if not meta and os.path.lexists(path):
        _move(path, os.path.join(root, DAMAGED_META_FILE))
    plan = dict(meta, status=ARCHIVING, archived_status=meta.get("status"), archive_to=target)
    layout.write_json(path, plan)
    return finish(root, plan)


def finish(root: str, meta: Mapping[str, Any]) -> str:
    """Make, or go on with, the move that ``meta`` has written down; returns the target's path."""
    name = os.path.basename(str(meta["archive_to"]))
    if not places.is_one_name(name):
        name = "unknown"
    target = os.path.join(root, layout.HISTORY_DIR, name)
    os.makedirs(target, exist_ok=True)
    layout.remove_leftovers(target)
    for name in own_entries(root):
        _move(os.path.join(root, name), os.path.join(target, name))
    restored = _restored(meta)
    if restored:
        layout.write_json(os.path.join(target, layout.META_FILE), restored)
    os.unlink(os.path.join(root, layout.META_FILE))
    return target


def is_unfinished(meta: Mapping[str, Any]) -> bool:
    """Whether ``meta`` has written down a move that is still to be finished."""
    return meta.get("status") == ARCHIVING and bool(meta.get("archive_to"))


def _move(source: str, target: str) -> None:
    layout.replace_with_retry(source, target, time.sleep)


def own_entries(root: str) -> List[str]:
    """The entries of ``root`` that runs write, but ``evaluation_meta.json``; a user's stay out."""
    names = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name in _OWN_FILES or _is_task(entry):
                names.append(entry.name)
    return sorted(names)


def _is_task(entry: Any) -> bool:
    if not entry.is_dir(follow_symlinks=False):
        return False
    return layout.is_task_folder(entry.name) or os.path.exists(
        os.path.join(entry.path, layout.TASK_META_FILE)
    )


def _restored(meta: Mapping[str, Any]) -> Dict[str, Any]:
    kept = {key: value for key, value in meta.items() if key != "archive_to"}
    status = kept.pop("archived_status", None)
    kept.pop("status", None)
    if status is not None:
        kept["status"] = status
    return kept


def _free_name(root: str, name: str) -> str:
    history = os.path.join(root, layout.HISTORY_DIR)
    candidate, number = name, 1
    while os.path.lexists(os.path.join(history, candidate)):
        number += 1
        candidate = "{}-{}".format(name, number)
    return candidate
