"""The results directory of one experiment: what is done, what is due, and what SLS has not got."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
from dataclasses import replace
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..errors import ResultsDirectoryError, ResumeError
from ..models import Attempt, Identity, Task
from . import archive, attempts, layout, places
from .journal import Journal, JournalState, Key, Saved, delivered_line, read_state, saved_line
from .lock import DirectoryLock
from .metadata import COMPLETED as COMPLETED
from .metadata import FAILED as FAILED
from .metadata import INTERRUPTED as INTERRUPTED
from .metadata import RUNNING as RUNNING
from .metadata import Description as Description
from .metadata import check_format, difference, new_meta, read_meta, repeats_of

logger = logging.getLogger(__name__)

_UTC = datetime.timezone.utc

BEGIN, CONTINUE, ARCHIVE = "begin", "continue", "archive"


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
        # tasks of earlier runs that a run of a part leaves alone
        self.others: Tuple[str, ...] = ()
        # what the journal said when it was opened, attempts that left the plan included
        self._journaled: Dict[Key, Saved] = {}
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
        # a solution that changes the working directory must not move the results
        path = os.path.abspath(path)
        if resume and not os.path.isdir(path):
            raise ResumeError(
                "There is no results directory {} to resume; check result_dir.".format(path)
            )
        directory = cls(path)
        _make(path)
        places.check_root(path)
        directory._lock.acquire()
        try:
            with _writing(path):
                layout.remove_leftovers(path)
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
        path = os.path.abspath(path)
        if not os.path.exists(os.path.join(path, layout.META_FILE)):
            raise ResultsDirectoryError(
                "{} holds no results: {} is missing.".format(path, layout.META_FILE)
            )
        directory = cls(path)
        places.check_root(path)
        directory._lock.acquire()
        try:
            with _writing(path):
                directory._read()
                directory._take_up()
        except BaseException:
            directory.close()
            raise
        return directory

    def _take_up(self) -> None:
        """Go on with what is there, for ``reopen``."""
        try:
            experiment = attempts.experiment_key(self.identity)
        except (KeyError, TypeError) as error:
            raise ResultsDirectoryError(
                "{} holds no results of this package that could be continued.".format(self.path)
            ) from error
        self.decision = CONTINUE
        self.state = read_state(self._file(layout.JOURNAL_FILE))
        self._journal.open()
        keys = dict.fromkeys(self._listed(), None)
        keys.update(dict.fromkeys(self.state.saved, None))
        self._survey((key for key in keys if all(map(places.is_one_name, key))), experiment)

    def _listed(self) -> List[Key]:
        """The attempts that the last run was about."""
        repeats = range(repeats_of(self.meta))
        return [(name, str(repeat)) for repeat in repeats for name, _ in self._entries()]

    def _entries(self) -> List[Tuple[str, Any]]:
        """The tasks in ``tasks.json``: (task id, dataset item id)."""
        content = layout.read_json_object(self._file(layout.TASKS_FILE)) or {}
        tasks = content.get("tasks")
        found = tasks if isinstance(tasks, list) else []
        return [(str(e[0]), e[1]) for e in found if isinstance(e, list) and len(e) == 2]

    def begin(
        self, description: Description, tasks: Sequence[Task], now_ms: int, *, part: bool = False
    ) -> None:
        """Carry out the decision: move an earlier experiment away, or take up its state.

        Args:
            description: What this run is.
            tasks: The plan's present tasks, in order.
            now_ms: Milliseconds since the epoch.
            part: ``tasks`` are a part of the plan's: those that earlier runs listed stay listed.

        Raises:
            ResultsDirectoryError: The directory cannot be written; nothing of an earlier
                experiment is lost.
        """
        with _writing(self.path):
            self._begin(description, tasks, now_ms, part)

    def _begin(
        self, description: Description, tasks: Sequence[Task], now_ms: int, part: bool
    ) -> None:
        if self.decision == ARCHIVE:
            target = archive.archive(
                self.path, self.meta, datetime.datetime.fromtimestamp(now_ms / 1000, _UTC)
            )
            logger.warning("The earlier results of %s were moved to %s.", self.path, target)
            self.meta = {}
        listed = {task.id: task.metadata.get("dataset_item_id", "") for task in tasks}
        if part and self.decision == CONTINUE:
            earlier = {name: item for name, item in self._entries() if places.is_one_name(name)}
            listed = {**earlier, **listed}
            present = {task.id for task in tasks}
            self.others = tuple(name for name in earlier if name not in present)
        self.meta = new_meta(self.meta, description, len(listed), now_ms)
        layout.write_json(self._file(layout.META_FILE), self.meta)
        content = {"tasks": [list(entry) for entry in listed.items()]}
        layout.write_json(self._file(layout.TASKS_FILE), content, indent=None)
        if self.decision == CONTINUE:
            self.state = read_state(self._file(layout.JOURNAL_FILE))
        self._journal.open()

    def settle(self, due: Iterable[Attempt]) -> List[Attempt]:
        """Compare ``due`` with what is on disk; returns those that have to run.

        Afterwards ``state.saved`` holds exactly the attempts among ``due`` that are done, and those
        of ``others``, which are counted and delivered but not run. An
        attempt whose earlier answer was lost gets a number of its own, so that its new answer is
        told from the old one in SLS.

        Raises:
            ResultsDirectoryError: The journal cannot be written.
        """
        attempts_due = list(due)
        known = JournalState(dict(self.state.saved), self.state.delivered)
        with _writing(self.path):
            keys = [attempt.key for attempt in attempts_due] + self.other_keys()
            self._survey(keys, attempts.experiment_key(self.identity))
        return [
            replace(attempt, number=max(attempt.number, known.next_number(attempt.key)))
            for attempt in attempts_due
            if attempt.key not in self.state.saved
        ]

    def other_keys(self) -> List[Key]:
        """The attempts of ``others`` that belong to the experiment."""
        repeats = map(str, range(self.meta["total_repeats"]))
        return [(name, repeat) for repeat in repeats for name in self.others]

    def _survey(self, keys: Iterable[Key], experiment: str) -> None:
        """Reduce ``state.saved`` to those of ``keys`` that are on disk, and journal what is new."""
        known, self.state.saved = self.state.saved, {}
        self._journaled = known
        found: List[Saved] = []
        for key in keys:
            saved = known.get(key)
            # a failed attempt may have been tried again just before a crash
            if saved is None or saved.status == "failed" or self._size(key) != saved.size:
                on_disk = attempts.saved_from_disk(self.path, key, experiment)
                if on_disk is not None and not _same(on_disk, saved):
                    found.append(on_disk)
                    saved = on_disk
                elif on_disk is None:
                    saved = None
            if saved is not None:
                self.state.saved[key] = saved
        self._journal.append(saved_line(saved) for saved in found)

    @property
    def identity(self) -> Identity:
        """The experiment in the directory, after ``begin``."""
        stored = self.meta["identity"]
        return Identity(**{name: str(stored[name]) for name in Identity.__annotations__})

    def check_due(self, due: Iterable[Attempt]) -> None:
        """Refuse attempts whose files would be written through a symbolic link.

        Raises:
            ResultsDirectoryError: There is one; nothing was written.
        """
        if self.decision == CONTINUE:  # else every folder is made by this run
            places.check_folders(
                self.path, (os.path.join(self.path, *attempt.key) for attempt in due)
            )

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
        """The done attempts whose row SLS has not acknowledged under ``record_id``.

        Those, too, that left the run before SLS had their row: it ran with more repeats, or the
        dataset's row has changed since.
        """
        state = self.state
        due = [
            saved for key, saved in state.saved.items() if not state.is_delivered(key, record_id)
        ]
        left = JournalState(self._journaled, state.delivered).left_behind(state.saved)
        return due + [saved for saved in left if self.holds(saved)]

    def holds(self, saved: Saved) -> bool:
        """Whether the answer that a journal entry speaks of is there, and whole."""
        return all(map(places.is_one_name, saved.key)) and self._size(saved.key) == saved.size

    def stale_folders(self, tasks: Sequence[Task]) -> List[str]:
        """Task folders of rows that changed or left the plan."""
        present = {task.id for task in tasks}.union(self.others)
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
        """Fold the journal into one line; the directory is closed to entries afterwards.

        A journal that cannot be folded (disk full) stays as it is and is as good.
        """
        state = self.state
        try:
            self._journal.fold(JournalState({**self._journaled, **state.saved}, state.delivered))
        except OSError as error:
            logger.warning("The journal of %s was not shortened: %s", self.path, error)

    def close(self) -> None:
        """Close the journal and release the lock; closing twice is fine."""
        self._journal.close()
        self._lock.release()

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _read(self) -> None:
        meta = read_meta(self._file(layout.META_FILE))
        check_format(self.path, meta)
        if archive.is_unfinished(meta):
            target = archive.finish(self.path, meta)
            logger.warning("Finished moving the earlier results of %s to %s.", self.path, target)
            meta = {}
        self.meta = meta

    def _decide(self, identity: Identity, resume: Optional[bool]) -> str:
        occupied = bool(self.meta) or bool(archive.own_entries(self.path))
        other = difference(self.meta, identity) if occupied else "it is empty"
        if resume and other:
            raise ResumeError(
                "The results directory {} cannot be resumed: {}. Pass resume=None to start a new "
                "experiment in it, or another result_dir.".format(self.path, other)
            )
        if not occupied:
            return BEGIN
        return ARCHIVE if other or resume is False else CONTINUE

    def _size(self, key: Key) -> int:
        try:
            return os.stat("/".join((self.path, key[0], key[1], layout.SOLUTION_FILE))).st_size
        except OSError:
            return -1


def _make(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ResultsDirectoryError(
            "The results directory {} cannot be made: {}. Pass a result_dir that can be "
            "written.".format(path, error.strerror or error)
        ) from error


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Says what to do when the file system refuses."""
    try:
        yield
    except OSError as error:
        raise ResultsDirectoryError(
            "The results directory {} cannot be used: {}. Make room or mend its permissions, then "
            "run again: nothing in it is lost.".format(path, error)
        ) from error


def _same(on_disk: Saved, saved: Optional[Saved]) -> bool:
    """Whether a journal entry still speaks of the answer on disk."""
    if saved is None:
        return False
    return (on_disk.number, on_disk.status, on_disk.size) == (
        saved.number,
        saved.status,
        saved.size,
    )
