"""Reading a results directory: without lock, without network, also while a run writes into it.

Directories of this package and plain ones in AgentScope's evaluation file format (no journal, no
``tasks.json``, any folder name as task id) are read alike. The journal spares opening the files: a
row is opened only when its journal line is missing, when the file on disk has another size than the
line says, or when somebody asks for what is in it.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ..errors import ResultsDirectoryError
from ..models import Identity
from . import attempts, layout, places
from .journal import JournalState, Key, Saved, read_state
from .metadata import check_format, repeats_of
from .stored import (
    ResultRow,
    StoredResults,
    TaskRef,
    mapping_of,
    number_or_none,
    read_task_meta,
)

_ITEM_KEY = "dataset_item_id"
_LONGEST_ID = 80
_NOT_MEASURED = -1.0


def read_results(path: Union[str, "os.PathLike[str]"]) -> StoredResults:
    """Read the results directory at ``path``.

    Args:
        path: A directory that an experiment wrote, also one that is still running, one under
            ``history/``, or one in AgentScope's evaluation file format (``schema_version`` 1).

    Returns:
        The directory's metadata and rows; payloads are read later, row by row.

    Raises:
        ResultsDirectoryError: It is absent, cannot be read, holds no results, or was written in a
            newer format.
    """
    root = os.path.abspath(os.fspath(path))
    names = _entry_names(root)
    meta = layout.read_json_object(os.path.join(root, layout.META_FILE)) or {}
    check_format(root, meta)
    listed = _listed_tasks(root)
    tasks = _found_tasks(root, names) if listed is None else listed
    if not meta and not tasks:
        raise _no_results(root, names)
    present = {task_id for task_id, _ in tasks}
    stale = [name for name in names if layout.is_task_folder(name) and name not in present]
    journal = _journal(root)
    rows = tuple(_Reading(root, meta, journal, listed is None).rows(tasks))
    expected = _expected(meta, tasks, rows, listed is None)
    left_behind = _left_behind(root, meta, journal, rows)
    return StoredResults(
        root, meta, tuple(tasks), tuple(stale), journal, expected, rows, left_behind
    )


def _left_behind(
    root: str, meta: Mapping[str, Any], journal: JournalState, rows: Sequence[ResultRow]
) -> int:
    """Rows that left the run before they were delivered, and are still owed to SLS."""
    if "format_version" not in meta:
        return 0
    left = journal.left_behind({row.key for row in rows})
    return sum(1 for saved in left if _is_whole(root, saved))


def _is_whole(root: str, saved: Saved) -> bool:
    path = os.path.join(layout.attempt_folder(root, *saved.key), layout.SOLUTION_FILE)
    try:
        return all(map(places.is_one_name, saved.key)) and os.stat(path).st_size == saved.size
    except OSError:
        return False


def _journal(root: str) -> JournalState:
    path = os.path.join(root, layout.JOURNAL_FILE)
    try:
        return read_state(path)
    except OSError as error:
        raise ResultsDirectoryError(
            "{} cannot be read: {}.".format(path, error.strerror or error)
        ) from error


def _entry_names(root: str) -> List[str]:
    try:
        return sorted(os.listdir(root), key=_natural)
    except FileNotFoundError as error:
        raise ResultsDirectoryError(
            "There is no results directory at {}; run an experiment with this result_dir "
            "first, or check the path.".format(root)
        ) from error
    except OSError as error:
        raise ResultsDirectoryError(
            "The results directory {} cannot be read: {}. Give the directory itself, "
            "not a file in it.".format(root, error.strerror or error)
        ) from error


def _no_results(root: str, names: Sequence[str]) -> ResultsDirectoryError:
    hint = "run an experiment with this result_dir first, or check the path"
    if layout.HISTORY_DIR in names:
        hint = "earlier experiments are in its folder {}/".format(layout.HISTORY_DIR)
    return ResultsDirectoryError("{} holds no experiment results; {}.".format(root, hint))


def _listed_tasks(root: str) -> Optional[List[TaskRef]]:
    """The tasks of ``tasks.json``, or None when there is none that can be read."""
    content = layout.read_json_object(os.path.join(root, layout.TASKS_FILE)) or {}
    try:
        listed = [(str(task_id), _item_text(item_id)) for task_id, item_id in content["tasks"]]
    except (KeyError, TypeError, ValueError):
        return None
    for task_id, _ in listed:
        if not places.is_one_name(task_id):
            raise ResultsDirectoryError(
                "{} lists the task {!r}, which is no folder in it; it was not written by this "
                "package.".format(os.path.join(root, layout.TASKS_FILE), task_id[:_LONGEST_ID])
            )
    return listed


def _found_tasks(root: str, names: Sequence[str]) -> List[TaskRef]:
    """The tasks that folders show, for directories that list none."""
    found: List[TaskRef] = []
    for name in names:
        folder = os.path.join(root, name)
        task_meta = read_task_meta(folder)
        if task_meta or _found_repeats(folder):
            found.append((name, _item_text(mapping_of(task_meta.get("metadata")).get(_ITEM_KEY))))
    return found


def _found_repeats(folder: str) -> List[str]:
    """The names of the folder's subfolders that hold a solution."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    held = (name for name in names if _has_solution(os.path.join(folder, name)))
    return sorted(held, key=_natural)


def _has_solution(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, layout.SOLUTION_FILE))


class _Reading:
    """One pass over the attempts of a directory.

    ``found`` says that the tasks were found on disk, so that repeats nobody declared count too.
    """

    def __init__(
        self, root: str, meta: Mapping[str, Any], journal: JournalState, found: bool
    ) -> None:
        self._root = root
        self._journal = journal
        self._found = found
        self._declared = [str(index) for index in range(repeats_of(meta))]
        self._record_id = str(meta.get("record_id") or "") if "format_version" in meta else None
        self._experiment = _experiment(meta)

    def rows(self, tasks: Sequence[TaskRef]) -> Iterator[ResultRow]:
        """The rows of ``tasks``, task by task."""
        for task_id, item_id in tasks:
            for repeat_id in self._repeat_ids(task_id):
                folder = layout.attempt_folder(self._root, task_id, repeat_id)
                saved = self._saved(folder, (task_id, repeat_id))
                if saved is None:
                    yield ResultRow(folder, task_id, repeat_id, item_id)
                else:
                    yield self._row(folder, item_id, saved)

    def _repeat_ids(self, task_id: str) -> List[str]:
        """The repeats that the run declares; where it declares none, those on disk."""
        if self._declared and not self._found:
            return self._declared
        on_disk = _found_repeats(os.path.join(self._root, task_id))
        return self._declared + [name for name in on_disk if name not in self._declared]

    def _row(self, folder: str, item_id: Optional[str], saved: Saved) -> ResultRow:
        delivered = None
        if self._record_id is not None:
            newest = self._journal.delivered.get(saved.key)
            delivered = newest == (saved.number, self._record_id)
        return ResultRow(
            folder,
            saved.task_id,
            saved.repeat_id,
            item_id,
            saved.status,
            saved.number,
            saved.latency_ms if 0 <= saved.latency_ms < math.inf else None,
            saved.usage,
            saved.error,
            delivered,
        )

    def _saved(self, folder: str, key: Key) -> Optional[Saved]:
        """What the journal or, failing that, ``solution.json`` says; None without a result."""
        path = os.path.join(folder, layout.SOLUTION_FILE)
        try:
            size = os.stat(path).st_size
        except OSError:
            return None
        saved = self._journal.saved.get(key)
        if saved is not None and saved.size == size:
            return saved
        document = attempts.read_solution(self._root, key)
        if document is None or attempts.names_another(document, self._experiment):
            return None
        saved = attempts.saved_of(document, key, size)
        latency = attempts.latency_of(document)
        return replace(
            saved,
            latency_ms=_NOT_MEASURED if latency is None else latency,
            usage=_usage(folder) or saved.usage,
        )


def _experiment(meta: Mapping[str, Any]) -> str:
    """The digest that the directory's own answers carry, or "" when it cannot be known."""
    try:
        return attempts.experiment_key(Identity(**meta["identity"]))
    except (KeyError, TypeError):
        return ""


def _usage(folder: str) -> Dict[str, Tuple[int, int]]:
    """Tokens by model from ``stats.json``, which may name several models; an answer names one."""
    stats = layout.read_json_object(os.path.join(folder, layout.STATS_FILE)) or {}
    usage: Dict[str, Tuple[int, int]] = {}
    for model, counts in mapping_of(stats.get("chat_usage")).items():
        usage.update(attempts.chat_usage(dict(mapping_of(counts), model=model)))
    return usage


def _expected(
    meta: Mapping[str, Any], tasks: Sequence[TaskRef], rows: Sequence[ResultRow], found: bool
) -> int:
    """Rows of the complete run; a directory without a task list may not yet have all folders."""
    declared = number_or_none(mapping_of(meta.get("benchmark")).get("total_tasks"))
    missing = max(0, int(declared or 0) - len(tasks)) if found else 0
    return len(rows) + missing * max(1, repeats_of(meta))


def _item_text(item_id: Any) -> Optional[str]:
    return None if item_id is None or item_id == "" else str(item_id)


def _natural(name: str) -> List[Tuple[int, int, str]]:
    """A sort key that puts task_2 before task_10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]
