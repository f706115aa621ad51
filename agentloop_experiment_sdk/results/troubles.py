"""Failures of delivery in the log: the first at once, the rest now and then with their number."""

from __future__ import annotations

from typing import Optional

from ..lines import counted, excerpt

EVERY_S = 30.0
_LONGEST_MESSAGE = 300


class Troubles:
    """What to log of failures that repeat while SLS is away; has no lock and no clock."""

    def __init__(self) -> None:
        self._unsaid = 0
        self._next_at: Optional[float] = None

    def line(self, rows: int, error: BaseException, now: float) -> Optional[str]:
        """The line for one more failure, or None while the last line is fresh.

        Args:
            rows: How many rows it kept from being delivered.
            error: The failure.
            now: Monotonic seconds.
        """
        if self._next_at is not None and now < self._next_at:
            self._unsaid += 1
            return None
        self._next_at = now + EVERY_S
        unsaid, self._unsaid = self._unsaid, 0
        before = " ({} since the last line)".format(counted(unsaid + 1, "failure"))
        return "{} not delivered yet{}: {}".format(
            counted(rows, "row", "was", "were"),
            before if unsaid else "",
            excerpt(str(error), _LONGEST_MESSAGE),
        )
