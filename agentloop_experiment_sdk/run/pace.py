"""How rows are settled: each at once, or a few at a time where that is quicker."""

from __future__ import annotations

from dataclasses import dataclass

from ..results.journal import Saved

BLOCK = 16
"""Rows between two decisions, and the most that are told together."""
QUICK_CALL_MS = 10.0
AHEAD = 32
_SHORT_RUN = 3 * BLOCK
_LARGE_BYTES = 65536
_WRITERS = ((0.0003, 2), (0.005, 8))
"""Seconds of a write, and how many threads then write: 2 on a busy disk, 8 on a network disk."""


@dataclass
class _Block:
    """The extremes of the rows since the last decision."""

    largest: int = 0
    slowest_call_ms: float = 0.0
    quickest_write_s: float = float("inf")


class Pace:
    """Decides from the rows so far how the next ones are written and told.

    To wake a thread for each row costs more than its files. Where nobody waits for a row's news,
    rows are gathered: written and told a few at a time, with more attempts in the engine meanwhile
    if the agent is quick. Not in the first rows, so that a short run shows each at once; not on a
    slow disk, nor while answers are large: they would pile up unwritten.

    Args:
        n_workers: How many attempts run at once.
        awaited: Somebody waits for each row's news.

    Attributes:
        gathers: Whether rows are gathered now.
        writers: How many threads may write now, if one does not keep up.
        window: How many attempts may be running, or answered but not yet settled.
    """

    def __init__(self, n_workers: int, *, awaited: bool = False) -> None:
        self.gathers = False
        self.writers = 1
        self.window = 2 * n_workers
        self._n_workers = n_workers
        self._awaited = awaited
        self._settled = 0
        self._block = _Block()

    def settled(self, saved: Saved, write_s: float) -> None:
        """An attempt is on disk; writing it took so many seconds."""
        block = self._block
        block.largest = max(block.largest, saved.size)
        block.slowest_call_ms = max(block.slowest_call_ms, saved.latency_ms)
        # one slow write says nothing: its thread may have waited for the interpreter
        block.quickest_write_s = min(block.quickest_write_s, write_s)
        self._settled += 1
        if self._settled % BLOCK == 0:
            self._decide()
            self._block = _Block()

    def _decide(self) -> None:
        block = self._block
        worth = [count for seconds, count in _WRITERS if block.quickest_write_s > seconds]
        self.writers = worth[-1] if worth else 1
        quick = self.writers == 1 and block.largest <= _LARGE_BYTES
        self.gathers = quick and not self._awaited and self._settled >= _SHORT_RUN
        ahead = AHEAD if self.gathers and block.slowest_call_ms <= QUICK_CALL_MS else 0
        self.window = self._n_workers + max(self._n_workers, ahead)
