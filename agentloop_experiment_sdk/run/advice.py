"""What a person is told when a run did not go through: what happened, what is kept, what to do."""

from __future__ import annotations

import logging
import shlex
from typing import Callable, Optional

from ..errors import ResultsDirectoryError, RunAbortedError
from ..lines import counted
from ..results.delivery import Delivery
from ..results.directory import ResultsDirectory

logger = logging.getLogger(__name__)

_QUIET_S = 5.0
_SCORING_QUIET_S = 30.0


def undelivered_message(directory: ResultsDirectory, count: int) -> str:
    """What to log when rows were not delivered."""
    return (
        "{} not delivered to SLS. {} kept in {}; send {} later with: "
        "agentloop-experiment deliver {}".format(
            counted(count, "row", "was", "were"),
            "It is" if count == 1 else "They are",
            directory.path,
            "it" if count == 1 else "them",
            shlex.quote(directory.path),
        )
    )


def left_behind_message(count: int) -> str:
    """What to log when a run that was ended early does not wait for its last rows."""
    return "{} did not end, or not reach the disk, in time; the next run runs {}.".format(
        counted(count, "row"), "it" if count == 1 else "them"
    )


class ScoringNotice:
    """Says once that a run waits for its evaluators, for which there is no time limit.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due_at: Optional[float] = clock() + _SCORING_QUIET_S

    def tell(self, waiting: int) -> None:
        """Log the line if the wait has become long; called again and again while it lasts."""
        if self._due_at is None or self._clock() < self._due_at:
            return
        self._due_at = None
        logger.warning(
            "All rows are answered, and %s still to be scored: the run waits for its evaluators, "
            "however long they take. Ctrl-C ends the wait; the next run scores and sends what is "
            "left.",
            counted(waiting, "row", "is", "are"),
        )


class DrainNotice:
    """Says once that a run whose rows are done waits for SLS, how long at most, and what ends it.

    Args:
        path: The results directory.
        timeout: Seconds without any accepted row after which the wait ends.
        clock: Monotonic seconds.
    """

    def __init__(self, path: str, timeout: float, clock: Callable[[], float]) -> None:
        self._path = path
        self._timeout = timeout
        self._clock = clock
        self._due_at: Optional[float] = clock() + _QUIET_S

    def tell(self, delivery: Delivery) -> None:
        """Log the line if the wait has become one; called again and again while it lasts."""
        if self._due_at is None or delivery.refusal is not None:
            return  # what is refused for good is not waited for
        if not (delivery.is_failing or self._clock() >= self._due_at):
            return
        self._due_at = None
        logger.warning(
            "%s still to be delivered: the run goes on trying for up to %.0f seconds in which SLS "
            "accepts nothing (drain_timeout). Ctrl-C ends the wait; nothing is lost: what was not "
            "sent stays in %s, and agentloop-experiment deliver sends it later.",
            counted(delivery.waiting, "row"),
            self._timeout,
            self._path,
        )


def threadless(error: BaseException) -> Optional[RunAbortedError]:
    """The error of a run that the system refuses a thread, if ``error`` says so."""
    if not isinstance(error, RuntimeError) or "start new thread" not in str(error):
        return None
    failure = RunAbortedError(
        "The system starts no more threads. Pass a smaller n_workers, or raise the limit of "
        "threads and processes, and run again to go on: rows that are done are kept."
    )
    failure.__cause__ = error
    return failure


def unwritable(path: str, error: BaseException) -> ResultsDirectoryError:
    """The error of a run whose results directory cannot be written."""
    failure = ResultsDirectoryError(
        "The results directory {} cannot be written: {}. Make room or mend its permissions, then "
        "run again: rows that are done are kept.".format(path, error),
        code="ResultsDirectoryNotWritable",
    )
    failure.__cause__ = error
    return failure
