"""What earlier runs left over in a results directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence

from ..lines import counted
from ..models import Attempt
from ..results.directory import ResultsDirectory
from ..results.journal import Saved
from .scoring import Scorer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leftovers:
    """What earlier runs left over: rows to send, and rows that only lack local scores."""

    undelivered: List[Saved]
    unscored: List[Saved]


def leftovers(
    directory: ResultsDirectory, record_id: str, due: Sequence[Attempt], scorer: Optional[Scorer]
) -> Leftovers:
    """What is left over besides the attempts that are due.

    Args:
        directory: The results directory.
        record_id: The record that rows belong to.
        due: Attempts that run now; a failed one among them is sent with its new answer.
        scorer: Tells which rows lack scores; None without evaluators.
    """
    again = {attempt.key for attempt in due}
    undelivered = [saved for saved in directory.undelivered(record_id) if saved.key not in again]
    left = [saved for saved in undelivered if saved.key not in directory.state.saved]
    if left:
        logger.warning(
            "%s no part of this run (changed dataset rows, fewer repeats) and not delivered yet; "
            "sent now.",
            counted(len(left), "answer", "is", "are"),
        )
    if scorer is None:
        return Leftovers(undelivered, [])
    known = again.union(saved.key for saved in undelivered)
    done = (saved for saved in directory.state.saved.values() if saved.key not in known)
    return Leftovers(undelivered, unscored(done, scorer))


def unscored(done: Iterable[Saved], scorer: Scorer) -> List[Saved]:
    """Attempts of the run that evaluators are still to be run on; they pass over skipped ones."""
    own = (saved for saved in done if saved.status != "skipped" and saved.task_id in scorer.tasks)
    return [saved for saved in own if scorer.lacks(saved.key)]


def already_delivered(directory: ResultsDirectory, due: Iterable[Attempt]) -> int:
    """Rows of earlier runs in SLS, without those that run again."""
    state, record_id = directory.state, str(directory.meta.get("record_id") or "")
    again = {attempt.key for attempt in due}
    return sum(key not in again and state.is_delivered(key, record_id) for key in state.saved)
