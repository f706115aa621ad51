"""Closing a run: what its record is told, and what its directory says from now on."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple

from ..errors import CloudError
from ..lines import counted
from ..models import Task
from ..results import directory as directories
from ..results.evaluation_result import evaluation_result
from ..results.journal import Key
from .advice import undelivered_message, unwritable
from .events import RunFinished, tell
from .flow import Flow
from .opening import Opened
from .reporter import OutOfTime, RecordReporter
from .scoring import metrics_by_repeat
from .settings import HOLD, RunSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to. ``status``: as in ``RunFinished``."""

    record_id: str
    status: str
    undelivered: int


class Closing:
    """The end of an opened run: nothing was due, its flow finished, or it is abandoned.

    Args:
        opened: The run.
        reporter: Of its record.
        settings: Of the run.
        now: Seconds since the epoch.
        suspects: Rows under which workers of a given executor died; None without one.
    """

    def __init__(
        self,
        opened: Opened,
        reporter: RecordReporter,
        settings: RunSettings,
        now: Callable[[], float],
        suspects: Optional[Set[Key]] = None,
    ) -> None:
        self.opened = opened
        self._directory = opened.directory
        self._reporter = reporter
        self._settings = settings
        self._now = now
        self._suspects = suspects
        self._record_is_complete = opened.complete
        self._taken = threading.Lock()

    def claim(self) -> bool:
        """True for the first caller only: the run's flow, or an interruption before it ran."""
        return self._taken.acquire(blocking=False)

    def nothing_was_due(self) -> RunOutcome:
        """All rows were done and delivered by earlier runs; the record has been told.

        Raises:
            ResultsDirectoryError: The directory cannot be written.
        """
        try:
            self._write_result()
            self._directory.fold_journal()
            return self._note(directories.COMPLETED, 0)
        except OSError as error:
            raise unwritable(self._directory.path, error) from error
        finally:
            self._directory.close()

    def finish(self, flow: Flow) -> Tuple[RunOutcome, Optional[BaseException]]:
        """The flow has run, to its end or to a stop.

        Returns:
            What the run came to, and what it raises: why it was ended early, or why its record
            could not be completed.

        Raises:
            OSError: The directory cannot be written.
        """
        left = len(self._directory.undelivered(self.opened.record.record_id))
        if left:
            logger.error("%s", undelivered_message(self._directory, left))
        self._write_result()
        error = flow.error
        if flow.was_stopped:
            status = _status_after(error)
            self._fail_record(flow, left)
        else:
            status, error = self._close_record(left)
        self._directory.fold_journal()
        return self._note(status, left), error

    def abandon(self, error: BaseException) -> None:
        """The run broke, or was interrupted before its flow ran: the record must not stay open."""
        status = _status_after(error)
        record_id = self.opened.record.record_id
        if not self._record_is_complete:
            self._reporter.fail_now(self.opened.tally.counts, self._settings.stop_grace)
            self._reporter.join(self._settings.stop_grace)
        try:
            self._directory.update_meta(status=status)
        except OSError as problem:
            logger.warning("The results directory could not be marked %s: %s", status, problem)
        left = len(self._directory.undelivered(record_id))
        self._directory.close()
        self._tell_end(RunOutcome(record_id, status, left))

    def _fail_record(self, flow: Flow, left: int) -> None:
        counts = self.opened.tally.counts
        self._reporter.fail_now(counts, flow.grace_left)
        self._reporter.join(flow.grace_left)
        if counts.done >= counts.total and left:
            logger.warning(
                "The run was ended when all its rows were answered, but not all sent; run it again "
                "to go on: no row is run twice."
            )
            return
        if counts.done >= counts.total:
            logger.warning(
                "The run was ended, but none of its rows is left to run: all %d are done. Run it "
                "again with retry_failed=True to try failed ones again.",
                counts.total,
            )
            return
        logger.warning(
            "The run was ended early with %d of %s done; run it again to go on.",
            counts.done,
            counted(counts.total, "row"),
        )

    def _close_record(self, left: int) -> Tuple[str, Optional[CloudError]]:
        """Complete the record, or hold it; what the run came to, and what it raises.

        All rows are done, so a failure here does not undo the run.
        """
        try:
            if left and self._settings.on_undelivered == HOLD:
                self._reporter.join(None)
                return directories.RUNNING, None
            self._reporter.complete(self.opened.tally.counts)
        except OutOfTime:
            logger.warning(
                "The run was ended while record %s was being completed; run it again to complete "
                "the record: no row is run twice.",
                self.opened.record.record_id,
            )
            return directories.INTERRUPTED, None
        except CloudError as error:
            logger.error(
                "All rows are done, but record %s could not be completed; run again to complete "
                "it: no row is run twice.",
                self.opened.record.record_id,
            )
            return directories.FAILED, error
        self._record_is_complete = True
        return directories.COMPLETED, None

    def _write_result(self) -> None:
        directory, repeats = self._directory, self._settings.n_repeat
        tasks = [*self.opened.tasks, *(Task(name, {}) for name in directory.others)]
        metrics: Mapping[str, Any] = {}
        if self._settings.evaluators or directory.decision == directories.CONTINUE:
            # else nothing can have been scored, and asking the disk for each row costs as much as
            # writing a part of it
            metrics = metrics_by_repeat(directory.path, tasks, repeats, directory.state)
        directory.write_result(evaluation_result(tasks, repeats, directory.state, metrics))

    def _note(self, status: str, undelivered: int) -> RunOutcome:
        changes: Dict[str, Any] = {"status": status, "finished_at": int(self._now() * 1000)}
        if self._suspects is not None:
            changes["suspects"] = sorted(self._suspects)
        self._directory.update_meta(**changes)
        outcome = RunOutcome(self.opened.record.record_id, status, undelivered)
        self._tell_end(outcome)
        return outcome

    def _tell_end(self, outcome: RunOutcome) -> None:
        event = RunFinished(outcome.record_id, outcome.status, outcome.undelivered)
        tell(self._settings.listeners(), event)


def _status_after(error: Optional[BaseException]) -> str:
    """What a run is that ended early, by ``stop()`` (None) or for an error.

    Ctrl-C may also reach the thread that is just calling the solution.
    """
    interrupted = error is None or isinstance(error, KeyboardInterrupt)
    return directories.INTERRUPTED if interrupted else directories.FAILED
