"""The rows that SLS has not got yet: what is sent next, and what a failure means. Pure.

A failing batch is tried three times and then split, so that one bad row cannot hold the others; a
row that keeps failing alone stands behind all others, and is given up once others are accepted.
While nothing is accepted, one batch at a time probes whether SLS is back.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, List, Mapping, Optional

from ..cloud.limits import MAX_BATCH_ROWS
from ..errors import CloudError
from .journal import Saved
from .rows import Answer

LINGER_S = 0.5
FULL_ROWS = 512
FULL_BYTES = 500_000
BATCH_TRIES = 3
ALONE_TRIES = 5
REFUSED_PARTS = 16
BACKOFF_S = (0.2, 8.0)
REFUSAL_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0

# HTTP statuses that find fault with what was sent, not with who sent it
_CONTENT_STATUSES = (400, 413)


@dataclass
class Outgoing:
    """A row on its way: its journal entry, and its answer while the memory budget allows.

    ``pipeline`` and ``metrics`` are what the stages before delivery added; they stay.
    """

    saved: Saved
    answer: Optional[Answer] = None
    pipeline: Optional[Mapping[str, Any]] = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    queued_at: float = 0.0
    failures_alone: int = 0
    accepted_before: Optional[int] = None


@dataclass
class Batch:
    """Rows that are sent together.

    ``tries`` counts how often that failed, ``held`` the rows that are still being sent.
    """

    rows: List[Outgoing]
    tries: int = 0
    held: int = 0


def around_one() -> float:
    """A random factor for a pause, so that many clients do not come back at once."""
    return random.uniform(0.7, 1.3)


class Backlog:
    """Rows waiting, and the memory of what SLS did with earlier ones.

    It has no lock and no clock of its own: ``now`` is monotonic seconds.
    """

    def __init__(self, now: float, jitter: Callable[[], float] = around_one) -> None:
        self.refusal: Optional[CloudError] = None
        self._jitter = jitter
        self._fresh: Deque[Outgoing] = deque()
        self._fresh_bytes = 0
        self._again: Deque[Batch] = deque()
        self._alone: Deque[Outgoing] = deque()
        self._alone_is_next = False
        self._sending = 0
        self._accepted = 0
        self._failures = 0
        self._refused_parts = 0
        self._paused_until = now
        self._last_accepted_at = now
        self._draining = False

    def add(self, row: Outgoing, now: float) -> None:
        """Queue a fresh row."""
        row.queued_at = now
        self._fresh.append(row)
        self._fresh_bytes += row.saved.size

    @property
    def waiting(self) -> int:
        """How many rows are queued or being sent."""
        again = sum(len(batch.rows) for batch in self._again)
        return len(self._fresh) + again + len(self._alone) + self._sending

    @property
    def sending(self) -> int:
        """How many rows are being sent."""
        return self._sending

    @property
    def is_failing(self) -> bool:
        """Whether SLS accepted nothing since a request failed."""
        return self._failures > 0

    def drain(self, now: float) -> None:
        """From now on nothing lingers; what was refused before is asked once more, now."""
        if not self._draining:
            self._draining = True
            self._last_accepted_at = self._paused_until = now
            self.refusal = None

    def is_drained(self, now: float, timeout: float) -> bool:
        """Whether nothing is left, SLS refuses us, or accepted nothing for ``timeout`` seconds."""
        if self.waiting == 0 or (self.refusal is not None and self._sending == 0):
            return True
        return now - self._last_accepted_at >= timeout

    def pause(self, now: float) -> Optional[float]:
        """Seconds until a batch may be taken; None while only an event can change that."""
        if not (self._fresh or self._again or self._alone):
            return None
        if self._failures and self._sending:
            return None
        if self._paused_until > now:
            return self._paused_until - now
        if self._again or not self._fresh or self._fresh_is_due(now):
            return 0.0
        return self._fresh[0].queued_at + LINGER_S - now

    def take(self) -> Batch:
        """The next batch, which is then being sent; only when ``pause`` is 0."""
        batch = self._next()
        batch.held = len(batch.rows)
        self._sending += batch.held
        return batch

    def release(self, batch: Batch, count: Optional[int] = None) -> None:
        """So many rows of a batch, or all, are dealt with or queued again."""
        count = batch.held if count is None else count
        batch.held -= count
        self._sending -= count

    def put_back(self, rows: List[Outgoing]) -> None:
        """Queue rows of a batch that were not tried."""
        if rows:
            self._again.append(Batch(rows))

    def accepted(self, count: int, now: float) -> None:
        """SLS accepted so many rows."""
        self._accepted += count
        self._failures = self._refused_parts = 0
        self._paused_until = self._last_accepted_at = now
        self.refusal = None

    def failed(self, batch: Batch, error: CloudError, now: float) -> Optional[Outgoing]:
        """Queue a failed batch again; returns the row that is given up, if it is one."""
        for row in batch.rows:
            if row.accepted_before is None:
                row.accepted_before = self._accepted
        if error.retryable:
            return self._retry_later(batch, error, now)
        if error.status in _CONTENT_STATUSES:
            return self._separate(batch, error, now)
        self._refuse(error, now)
        self._again.append(batch)
        return None

    def _fresh_is_due(self, now: float) -> bool:
        if not self._fresh:
            return False
        full = len(self._fresh) >= FULL_ROWS or self._fresh_bytes >= FULL_BYTES
        return self._draining or full or now >= self._fresh[0].queued_at + LINGER_S

    def _next(self) -> Batch:
        if self._again:
            return self._again.popleft()
        if self._alone and (self._alone_is_next or not self._fresh):
            self._alone_is_next = False
            return Batch([self._alone.popleft()])
        # rows that failed alone must not keep the others from being tried, nor the other way round
        self._alone_is_next = True
        return Batch(self._take_fresh())

    def _take_fresh(self) -> List[Outgoing]:
        rows: List[Outgoing] = []
        total = 0
        while self._fresh and len(rows) < MAX_BATCH_ROWS and total < FULL_BYTES:
            row = self._fresh.popleft()
            rows.append(row)
            total += row.saved.size
        self._fresh_bytes -= total
        return rows

    def _retry_later(self, batch: Batch, error: CloudError, now: float) -> Optional[Outgoing]:
        batch.tries += 1
        self._failures += 1
        low, high = BACKOFF_S
        pause = min(high, low * 2 ** min(self._failures - 1, 20)) * self._jitter()
        asked = min(error.retry_after or 0.0, LONGEST_PAUSE_S)
        self._paused_until = max(self._paused_until, now + max(pause, asked))
        if len(batch.rows) > 1:
            self._put_back_failed(batch, split=batch.tries >= BATCH_TRIES)
            return None
        row = batch.rows[0]
        row.failures_alone += 1
        if row.failures_alone >= ALONE_TRIES and self._others_accepted(row):
            return row
        self._alone.append(row)
        return None

    def _separate(self, batch: Batch, error: CloudError, now: float) -> Optional[Outgoing]:
        """SLS finds fault with the content: split at once, to find the row."""
        self._refused_parts += 1
        if len(batch.rows) > 1:
            self._put_back_failed(batch, split=True)
        elif self._others_accepted(batch.rows[0]):
            return batch.rows[0]
        else:
            self._alone.append(batch.rows[0])
        nothing_else = not self._again and not self._fresh and self._sending <= len(batch.rows)
        if nothing_else or self._refused_parts >= REFUSED_PARTS:
            self._refuse(error, now)
        return None

    def _refuse(self, error: CloudError, now: float) -> None:
        """SLS refuses us, not the rows: keep them, and ask again now and then."""
        self.refusal = error
        self._failures += 1
        self._paused_until = now + REFUSAL_PAUSE_S

    def _put_back_failed(self, batch: Batch, split: bool) -> None:
        if not split:
            self._again.appendleft(batch)
            return
        # behind the other parts: whatever of them is accepted tells a bad row from a bad time
        middle = len(batch.rows) // 2
        self._again.append(Batch(batch.rows[:middle]))
        self._again.append(Batch(batch.rows[middle:]))

    def _others_accepted(self, row: Outgoing) -> bool:
        return self._accepted > (row.accepted_before or 0)
