"""Counting a run: attempts by status, and when enough of them failed to end it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from ..errors import TooManyFailuresError
from ..lines import counted, excerpt, one_line
from ..results.journal import Key, Saved

logger = logging.getLogger(__name__)

_FIRST = 10
_LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class Counts:
    """How far a run is: of ``total`` attempts some succeeded (skipped included) or failed."""

    total: int
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def done(self) -> int:
        """Attempts that are on disk."""
        return self.succeeded + self.failed

    def body(self) -> Dict[str, Any]:
        """The counters of an UpdateExperimentRun."""
        return {
            "totalTasks": self.total,
            "completedTasks": self.succeeded,
            "failedTasks": self.failed,
        }


class Tally:
    """The newest status of each attempt, and the counts they add up to.

    Args:
        total: Rows times repeats.
        done: Attempts of earlier runs.
    """

    def __init__(self, total: int, done: Iterable[Saved]) -> None:
        self._total = total
        self._status: Dict[Key, str] = {}
        self._counts = {"success": 0, "failed": 0, "skipped": 0}
        for saved in done:
            self.add(saved)

    def add(self, saved: Saved) -> None:
        """Count an attempt; a new try of it replaces the old one."""
        earlier = self._status.get(saved.key)
        if earlier is not None:
            self._counts[earlier] -= 1
        self._status[saved.key] = saved.status
        self._counts[saved.status] += 1

    @property
    def counts(self) -> Counts:
        """The counts now."""
        counted = self._counts
        return Counts(
            self._total,
            counted["success"] + counted["skipped"],
            counted["failed"],
            counted["skipped"],
        )


class FailureLimits:
    """Ends a run early when its rows fail: opt-in, else it only warns.

    Args:
        total: Rows times repeats.
        max_failures: This many failed attempts are too many; a float is a share of ``total``.
        stop_if_first: End when the first so many attempts of this run all failed alike.
    """

    def __init__(
        self, total: int, max_failures: Union[None, int, float], stop_if_first: Optional[int]
    ) -> None:
        self._most: Optional[float] = None
        if max_failures is not None:
            share = isinstance(max_failures, float)
            self._most = max_failures * total if share else max_failures
        self._stop_if_first = stop_if_first
        self._first: Optional[List[str]] = []
        self._failed = 0

    def check(self, saved: Saved, message: Any = None) -> Optional[TooManyFailuresError]:
        """The error that ends the run after this attempt, or None; the first failure is logged.

        Args:
            saved: The attempt.
            message: What a failed one said.
        """
        if saved.status == "failed":
            self._failed += 1
            if self._failed == 1:
                logger.warning(
                    "A row failed: %s: %s. Further failures are counted only.",
                    one_line(saved.error),
                    excerpt(str(message), _LONGEST_MESSAGE).rstrip("."),
                )
        alike = self._first_alike(saved)
        if alike and self._stop_if_first:
            first = self._stop_if_first
            what = "row" if first == 1 else "{} rows all".format(first)
            return _too_many("the first {} failed".format(what), alike)
        if alike:
            logger.warning(
                "The first %d rows all failed with %s; check the agent. The run goes on.",
                _FIRST,
                one_line(alike),
            )
        if saved.status == "failed" and self._most is not None and self._failed > self._most:
            return _too_many(
                "{} failed, more than max_failures allows".format(counted(self._failed, "row")),
                saved.error,
            )
        return None

    def _first_alike(self, saved: Saved) -> str:
        """The error type when the first rows are complete and all failed with it."""
        if self._first is None:
            return ""
        if saved.status != "failed" or (self._first and self._first[0] != saved.error):
            self._first = None
            return ""
        self._first.append(saved.error)
        if len(self._first) < (self._stop_if_first or _FIRST):
            return ""
        self._first = None
        return saved.error


class Skips:
    """Notices a run that only skips: its rows count as done, and nobody was asked anything."""

    def __init__(self) -> None:
        self._count = 0
        self._others = False
        self._reason = ""

    def add(self, saved: Saved, output: Any) -> None:
        """An attempt of this run is done.

        Args:
            saved: The attempt.
            output: Its output; that of a skipped conversation has a ``reason``.
        """
        if saved.status != "skipped":
            self._others = True
            return
        self._count += 1
        if self._count == 1 and isinstance(output, Mapping):
            self._reason = excerpt(str(output.get("reason") or ""), _LONGEST_MESSAGE)

    def report(self) -> None:
        """Warn if there was nothing but skipped rows."""
        if self._count and not self._others:
            logger.warning(
                "Every row was skipped (%d), so the agent was not asked anything: %s. Skipped rows "
                "count as done; mend the cause and pass resume=False to run them.",
                self._count,
                self._reason or "no reason is given",
            )


def _too_many(what: str, error_type: Any) -> TooManyFailuresError:
    return TooManyFailuresError(
        "The run was ended: {} ({}). Mend the agent and run again with retry_failed=True: rows "
        "that are done are kept.".format(what, one_line(str(error_type)))
    )
