"""The results directory of one experiment: what is done, what is due, and what SLS has not got."""

from __future__ import annotations

import datetime
import logging
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..errors import ResultsDirectoryError, ResumeError
from ..models import Attempt, Identity, Plan, Task
from . import archive, attempts, layout
from .journal import Journal, JournalState, Key, Saved, delivered_line, read_state, saved_line
from .lock import DirectoryLock

logger = logging.getLogger(__name__)

RUNNING, COMPLETED, FAILED, INTERRUPTED = "running", "completed", "failed", "interrupted"

BEGIN, CONTINUE, ARCHIVE = "begin", "continue", "archive"


@dataclass(frozen=True)
class Description:
    """What ``evaluation_meta.json`` says of a run.

    ``solution`` has ``name`` and ``hash``; ``evaluators`` are the names of local evaluators.
    """

    plan: Plan
    n_repeat: int
    solution: Mapping[str, str]
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evaluators: Tuple[str, ...] = ()


class ResultsDirectory:
    """One results directory, locked from ``inspect`` to ``close``.

    ``inspect`` decides what a run in it would mean (``decision``) and changes nothing of an earlier
    experiment but to finish a move that a crash cut short; ``begin`` carries the decision out.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.decision = BEGIN
        self.meta: Dict[str, Any] = {}
        self.state = JournalState()
        self._lock = DirectoryLock(os.path.join(path, layout.LOCK_FILE))
        self._journal = Journal(os.path.join(path, layout.JOURNAL_FILE))

    @classmethod
    def inspect(
        cls, path: str, identity: Identity, resume: Optional[bool] = None
    ) -> ResultsDirectory:
        """Lock the directory, read what is in it and decide.

        Args:
            path: The directory; it is made when absent.
            identity: The experiment that is about to run.
            resume: None continues an experiment of the same identity and moves any other one to
                ``history/``; True demands a continuation; False always starts afresh.

        Raises:
            DirectoryLockedError: Another run uses the directory.
            ResumeError: ``resume=True`` and there is nothing to continue.
            ResultsDirectoryError: The directory cannot be made or written.
        """
        if resume and not os.path.isdir(path):
            raise ResumeError(
                "There is no results directory {} to resume; check result_dir.".format(path)
            )
        directory = cls(path)
        _make(path)
        directory._lock.acquire()
        try:
            directory._read()
            directory.decision = directory._decide(identity, resume)
        except BaseException:
            directory.close()
            raise
        return directory

    @classmethod
    def reopen(cls, path: str) -> ResultsDirectory:
        """Lock an existing directory to go on with what is in it, whatever its identity.

        Raises:
            ResultsDirectoryError: The directory holds no results of ours.
            DirectoryLockedError: Another run uses it.
        """
        if layout.read_json_object(os.path.join(path, layout.META_FILE)) is None:
            raise ResultsDirectoryError(
                "{} holds no results: {} is missing or cannot be read.".format(
                    path, layout.META_FILE
                )
            )
        directory = cls(path)
        directory._lock.acquire()
        try:
            directory._read()
            directory.decision = CONTINUE
            directory.state = read_state(directory._file(layout.JOURNAL_FILE))
            directory._journal.open()
        except BaseException:
            directory.close()
            raise
        return directory

    def begin(self, description: Description, tasks: Sequence[Task], now_ms: int) -> None:
        """Carry out the decision: move an earlier experiment away, or take up its state.

        Args:
            description: What this run is.
            tasks: The plan's present tasks, in order.
            now_ms: Milliseconds since the epoch.
        """
        if self.decision == ARCHIVE:
            target = archive.archive(
                self.path, self.meta, datetime.datetime.fromtimestamp(now_ms / 1000, _UTC)
            )
            logger.warning("The earlier results of %s were moved to %s.", self.path, target)
            self.meta = {}
        self.meta = _meta(self.meta, description, len(tasks), now_ms)
        layout.write_json(self._file(layout.META_FILE), self.meta)
        listed = {"tasks": [[task.id, task.metadata.get("dataset_item_id", "")] for task in tasks]}
        layout.write_json(self._file(layout.TASKS_FILE), listed, indent=None)
        if self.decision == CONTINUE:
            self.state = read_state(self._file(layout.JOURNAL_FILE))
        self._journal.open()

    def settle(self, due: Iterable[Attempt]) -> List[Attempt]:
        """Compare ``due`` with what is on disk; returns those that have to run.

        Afterwards ``state.saved`` holds exactly the attempts among ``due`` that are done.
        """
        known, self.state.saved = self.state.saved, {}
        pending: List[Attempt] = []
        found: List[Saved] = []
        experiment = attempts.experiment_key(self.identity)
        for attempt in due:
            saved = known.get(attempt.key)
            if saved is None or self._size(attempt.key) != saved.size:
                saved = attempts.saved_from_disk(self.path, attempt.key, experiment)
                if saved is not None:
                    found.append(saved)
            if saved is None:
                pending.append(attempt)
            else:
                self.state.saved[attempt.key] = saved
        self._journal.append(saved_line(saved) for saved in found)
        return pending

    @property
    def identity(self) -> Identity:
        """The experiment in the directory, after ``begin``."""
        return Identity(**self.meta["identity"])

    def update_meta(self, **changes: Any) -> None:
        """Change entries of ``evaluation_meta.json``, atomically."""
        self.meta.update(changes)
        layout.write_json(self._file(layout.META_FILE), self.meta)

    def note_saved(self, saved: Sequence[Saved], *, fsync: bool = False) -> None:
        """Write the journal lines of attempts whose files are on disk."""
        self._journal.append([saved_line(entry) for entry in saved], fsync)
        for entry in saved:
            self.state.saved[entry.key] = entry

    def note_delivered(
        self, keys: Sequence[Tuple[Key, int]], record_id: str, *, fsync: bool = False
    ) -> None:
        """Write the journal lines of rows (key, attempt number) that SLS has acknowledged."""
        self._journal.append([delivered_line(key, n, record_id) for key, n in keys], fsync)
        for key, number in keys:
            self.state.delivered[key] = (number, record_id)

    def undelivered(self, record_id: str) -> List[Saved]:
        """The done attempts whose row SLS has not acknowledged under ``record_id``."""
        state = self.state
        return [
            saved for key, saved in state.saved.items() if not state.is_delivered(key, record_id)
        ]

    def stale_folders(self, tasks: Sequence[Task]) -> List[str]:
        """Task folders of rows that changed or left the plan."""
        present = {task.id for task in tasks}
        return [
            name
            for name in archive.own_entries(self.path)
            if layout.is_task_folder(name) and name not in present
        ]

    def write_result(self, aggregate: Mapping[str, Any]) -> None:
        """Write ``evaluation_result.json``."""
        layout.write_json(self._file(layout.RESULT_FILE), aggregate)

    def write_pipeline(self, definition: Mapping[str, Any]) -> None:
        """Keep the raw pipeline definition, for a delivery on another day or machine."""
        layout.write_json(self._file(layout.PIPELINE_FILE), definition)

    def read_pipeline(self) -> Optional[Dict[str, Any]]:
        """The pipeline definition that ``write_pipeline`` kept."""
        return layout.read_json_object(self._file(layout.PIPELINE_FILE))

    def fold_journal(self) -> None:
        """Fold the journal into one line; the directory is closed to entries afterwards."""
        self._journal.fold()

    def close(self) -> None:
        """Close the journal and release the lock; closing twice is fine."""
        self._journal.close()
        self._lock.release()

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _read(self) -> None:
        meta = layout.read_json_object(self._file(layout.META_FILE))
        if meta is not None and meta.get("status") == archive.ARCHIVING:
            target = archive.finish(self.path, meta)
            logger.warning("Finished moving the earlier results of %s to %s.", self.path, target)
            meta = None
        self.meta = meta or {}

    def _decide(self, identity: Identity, resume: Optional[bool]) -> str:
        occupied = bool(self.meta) or bool(archive.own_entries(self.path))
        difference = _difference(self.meta, identity) if occupied else "it is empty"
        if resume and difference:
            raise ResumeError(
                "The results directory {} cannot be resumed: {}. Pass resume=None to start a new "
                "experiment in it, or another result_dir.".format(self.path, difference)
            )
        if not occupied:
            return BEGIN
        return ARCHIVE if difference or resume is False else CONTINUE

    def _size(self, key: Key) -> int:
        try:
            return os.stat("/".join((self.path, key[0], key[1], layout.SOLUTION_FILE))).st_size
        except OSError:
            return -1


_UTC = datetime.timezone.utc


def _make(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ResultsDirectoryError(
            "The results directory {} cannot be made: {}. Pass a result_dir that can be "
            "written.".format(path, error.strerror or error)
        ) from error


def _difference(meta: Mapping[str, Any], identity: Identity) -> str:
    """Why ``meta`` is another experiment than ``identity``; "" when it is the same."""
    if int(meta.get("format_version") or 0) > layout.FORMAT_VERSION:
        raise ResultsDirectoryError(
            "The results directory was written by a newer version of this package (format {}); "
            "update the package or pass another result_dir.".format(meta["format_version"])
        )
    stored = meta.get("identity")
    if not isinstance(stored, dict):
        return "it holds results without an identity (of another tool, or damaged)"
    for name, value in asdict(identity).items():
        if stored.get(name) != value:
            return "its {} is {!r}, this run's is {!r}".format(name, stored.get(name), value)
    return ""


def _meta(
    earlier: Mapping[str, Any], description: Description, total_tasks: int, now_ms: int
) -> Dict[str, Any]:
    plan = description.plan
    meta = {
        "evaluation_name": earlier.get("record_name") or plan.plan_name,
        "created_at": earlier.get("created_at") or _local_time(now_ms),
        "total_repeats": description.n_repeat,
        "benchmark": {
            "name": plan.dataset,
            "description": plan.plan_name,
            "total_tasks": total_tasks,
        },
        "schema_version": layout.SCHEMA_VERSION,
        "format_version": layout.FORMAT_VERSION,
        "record_id": earlier.get("record_id"),
        "record_name": earlier.get("record_name"),
        "client_token": earlier.get("client_token"),
        "status": RUNNING,
        "identity": asdict(plan.identity),
        "plan": {
            "plan_name": plan.plan_name,
            "project": plan.project,
            "dataset": plan.dataset,
            "pipeline_name": plan.pipeline_name,
            "agentloop_endpoint": plan.agentloop_endpoint,
            "sls_endpoint": plan.sls_endpoint,
        },
        "experiment_start_time": earlier.get("experiment_start_time") or now_ms,
        "finished_at": None,
        "solution": dict(description.solution),
        "version": description.version,
        "parameters": dict(description.parameters),
        "evaluators": list(description.evaluators),
    }
    return {**earlier, **meta}


def _local_time(now_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms / 1000))
