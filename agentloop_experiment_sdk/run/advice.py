"""What a person is told when a run did not go through: what happened, what is kept, what to do."""

from __future__ import annotations

import logging
import shlex
from typing import Callable, Optional

from ..errors import ResultsDirectoryError
from ..lines import counted
from ..results.delivery import Delivery
from ..results.directory import ResultsDirectory

logger = logging.getLogger(__name__)

_QUIET_S = 5.0


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


def unwritable(path: str, error: BaseException) -> ResultsDirectoryError:
    """The error of a run whose results directory cannot be written."""
    failure = ResultsDirectoryError(
        "The results directory {} cannot be written: {}. Make room or mend its permissions, then "
        "run again: rows that are done are kept.".format(path, error),
        code="ResultsDirectoryNotWritable",
    )
    failure.__cause__ = error
    return failure
