"""Delivering rows to SLS: batches, retries, and the decision when a row cannot be delivered.

A row is *queued* once its attempt is on disk, and *acknowledged* once PutLogs returned. What fails
is tried again here and nowhere else. A failing batch is split after three tries, so that one bad
row cannot hold the others; a row that fails alone five times while others are accepted is given
up. While nothing is accepted, one batch at a time probes whether SLS is back.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, List, Mapping, Optional, Protocol, Sequence, Tuple

from ..cloud.limits import Contents, batch_end, fitted, row_size
from ..errors import CloudError
from .journal import Saved
from .rows import Answer

logger = logging.getLogger(__name__)

LINGER_S = 0.5
FULL_ROWS = 512
FULL_BYTES = 2_000_000
MEMORY_BYTES = 8_000_000
SENDERS = 4
BATCH_TRIES = 3
ALONE_TRIES = 5
_BACKOFF_S = (0.2, 8.0)
_REFUSAL_PAUSE_S = 5.0


class Logstore(Protocol):
    """Where rows go."""

    def put(self, rows: Sequence[Contents]) -> None:
        """Write rows with one request, or raise CloudError."""
        ...


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
class _Batch:
    rows: List[Outgoing]
    tries: int = 0


@dataclass(frozen=True)
class Callbacks:
    """What delivery tells the run; called from sender threads, so keep them short.

    ``delivered`` gets the rows SLS acknowledged; ``undeliverable`` a row that is given up, with
    the reason.
    """

    delivered: Callable[[List[Outgoing]], None]
    undeliverable: Callable[[Outgoing, str], None]


@dataclass
class _State:
    fresh: Deque[Outgoing] = field(default_factory=deque)
    again: Deque[_Batch] = field(default_factory=deque)
    fresh_bytes: int = 0
    memory: int = 0
    sending: int = 0
    accepted: int = 0
    failures_in_row: int = 0
    pause_until: float = 0.0
    last_accepted_at: float = 0.0
    refusal: Optional[CloudError] = None
    draining: bool = False
    closed: bool = False


class Delivery:
    """The way of rows from the results directory to one logstore.

    Args:
        logstore: Where rows go.
        build: Turns a row into its fields; reads the results directory when ``answer`` is None.
            None when the row cannot be read.
        callbacks: What to tell the run.
        clock: Monotonic seconds.
        jitter: A factor for each backoff pause, around 1.
    """

    def __init__(
        self,
        logstore: Logstore,
        build: Callable[[Outgoing], Optional[Contents]],
        callbacks: Callbacks,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: random.uniform(0.7, 1.3),
    ) -> None:
        self._logstore = logstore
        self._build = build
        self._callbacks = callbacks
        self._clock = clock
        self._jitter = jitter
        self._changed = threading.Condition()
        self._state = _State(last_accepted_at=clock())
        self._threads: List[threading.Thread] = []

    def enqueue(self, row: Outgoing) -> None:
        """Queue a row whose attempt is on disk."""
        row.queued_at = self._clock()
        with self._changed:
            state = self._state
            if row.answer is not None:
                if state.memory + row.saved.size > MEMORY_BYTES:
                    row.answer = None
                else:
                    state.memory += row.saved.size
            state.fresh.append(row)
            state.fresh_bytes += row.saved.size
            start = not self._threads
            if len(state.fresh) == 1 or self._is_full():
                self._changed.notify()
        if start:
            self._start()

    @property
    def waiting(self) -> int:
        """How many rows are queued or being sent."""
        with self._changed:
            return self._waiting()

    @property
    def refusal(self) -> Optional[CloudError]:
        """Why SLS refuses everything (keys, permissions, a missing logstore), if it does."""
        return self._state.refusal

    def drain(self) -> None:
        """Send what is queued without waiting for batches to fill."""
        with self._changed:
            if not self._state.draining:
                self._state.draining = True
                self._state.last_accepted_at = self._clock()
                # whatever was refused before is asked once more, now
                self._state.refusal = None
                self._state.pause_until = 0.0
            self._changed.notify_all()

    def is_drained(self, timeout: float) -> bool:
        """Whether nothing is left to send, or waiting longer is pointless.

        Args:
            timeout: Seconds without any accepted row after which the drain gives up.
        """
        with self._changed:
            state = self._state
            if self._waiting() == 0:
                return True
            if state.refusal is not None and state.sending == 0:
                return True
            return self._clock() - state.last_accepted_at >= timeout

    def close(self) -> None:
        """End the sender threads; a request on its way is not waited for."""
        with self._changed:
            self._state.closed = True
            self._changed.notify_all()

    def _waiting(self) -> int:
        state = self._state
        return len(state.fresh) + sum(len(batch.rows) for batch in state.again) + state.sending

    def _is_full(self) -> bool:
        return len(self._state.fresh) >= FULL_ROWS or self._state.fresh_bytes >= FULL_BYTES

    def _start(self) -> None:
        for number in range(SENDERS):
            thread = threading.Thread(
                target=self._send_forever, name="agentloop-delivery-{}".format(number), daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _send_forever(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            try:
                self._send(batch)
            except Exception as error:
                # a fault of ours must not lose the rows or the thread
                logger.exception("Delivering %d rows failed unexpectedly.", len(batch.rows))
                self._failed(batch, CloudError(str(error), retryable=True))
            finally:
                with self._changed:
                    self._state.sending -= len(batch.rows)
                    self._changed.notify_all()

    def _next_batch(self) -> Optional[_Batch]:
        with self._changed:
            while True:
                if self._state.closed:
                    return None
                pause = self._pause()
                if pause is not None and pause <= 0:
                    return self._take()
                self._changed.wait(pause)

    def _pause(self) -> Optional[float]:
        """Seconds until a batch may be taken; None while there is nothing to wait for."""
        state = self._state
        if not state.fresh and not state.again:
            return None
        if state.failures_in_row and state.sending:
            return None
        now = self._clock()
        if state.pause_until > now:
            return state.pause_until - now
        if state.again or state.draining or self._is_full():
            return 0.0
        return state.fresh[0].queued_at + LINGER_S - now

    def _take(self) -> _Batch:
        state = self._state
        batch = state.again.popleft() if state.again else _Batch(self._take_fresh())
        state.sending += len(batch.rows)
        return batch

    def _take_fresh(self) -> List[Outgoing]:
        state = self._state
        rows: List[Outgoing] = []
        total = 0
        while state.fresh and len(rows) < 4096 and total < FULL_BYTES:
            row = state.fresh.popleft()
            rows.append(row)
            total += row.saved.size
        state.fresh_bytes -= total
        return rows

    def _send(self, batch: _Batch) -> None:
        contents, rows = self._contents(batch)
        sizes = [row_size(row) for row in contents]
        start = 0
        while start < len(rows):
            end = batch_end(sizes, start)
            part = _Batch(rows[start:end], batch.tries)
            try:
                self._logstore.put(contents[start:end])
            except CloudError as error:
                self._failed(part, error)
                self._return_rest(rows[end:])
                return
            self._accepted(part.rows)
            start = end

    def _contents(self, batch: _Batch) -> Tuple[List[Contents], List[Outgoing]]:
        contents: List[Contents] = []
        rows: List[Outgoing] = []
        for row in batch.rows:
            built = self._build(row)
            if built is None:
                self._give_up(row, "its solution.json cannot be read")
            else:
                contents.append(fitted(built))
                rows.append(row)
        return contents, rows

    def _return_rest(self, rows: List[Outgoing]) -> None:
        if rows:
            with self._changed:
                self._state.again.append(_Batch(rows))

    def _accepted(self, rows: List[Outgoing]) -> None:
        self._callbacks.delivered(rows)
        with self._changed:
            state = self._state
            state.accepted += len(rows)
            state.failures_in_row = 0
            state.pause_until = 0.0
            state.refusal = None
            state.last_accepted_at = self._clock()
            self._forget(rows)

    def _forget(self, rows: List[Outgoing]) -> None:
        for row in rows:
            if row.answer is not None:
                self._state.memory -= row.saved.size
                row.answer = None

    def _failed(self, batch: _Batch, error: CloudError) -> None:
        given_up: Optional[Outgoing] = None
        with self._changed:
            for row in batch.rows:
                if row.accepted_before is None:
                    row.accepted_before = self._state.accepted
            if error.retryable:
                given_up = self._retry_later(batch, error)
            elif error.status in (400, 413):
                given_up = self._separate(batch, error)
            else:
                self._refused(batch, error)
        logger.warning("%d rows were not delivered yet: %s", len(batch.rows), error)
        if given_up is not None:
            self._give_up(given_up, str(error))

    def _retry_later(self, batch: _Batch, error: CloudError) -> Optional[Outgoing]:
        state = self._state
        batch.tries += 1
        state.failures_in_row += 1
        low, high = _BACKOFF_S
        pause = min(high, low * 2 ** min(state.failures_in_row - 1, 20)) * self._jitter()
        state.pause_until = self._clock() + max(pause, error.retry_after or 0.0)
        if len(batch.rows) > 1:
            self._put_back(batch, split=batch.tries >= BATCH_TRIES)
            return None
        row = batch.rows[0]
        row.failures_alone += 1
        if row.failures_alone >= ALONE_TRIES and self._others_accepted(row):
            return row
        # behind the others: they show whether it is this row or SLS
        state.again.append(batch)
        return None

    def _separate(self, batch: _Batch, error: CloudError) -> Optional[Outgoing]:
        """SLS finds fault with the content: split at once, to find the row."""
        if len(batch.rows) > 1:
            self._put_back(batch, split=True)
            return None
        if self._others_accepted(batch.rows[0]):
            return batch.rows[0]
        self._refused(batch, error)
        return None

    def _refused(self, batch: _Batch, error: CloudError) -> None:
        """SLS refuses us, not the rows: keep them, and ask again now and then."""
        state = self._state
        state.refusal = error
        state.failures_in_row += 1
        state.pause_until = self._clock() + _REFUSAL_PAUSE_S
        state.again.append(batch)

    def _put_back(self, batch: _Batch, split: bool) -> None:
        if not split:
            self._state.again.appendleft(batch)
            return
        middle = len(batch.rows) // 2
        self._state.again.appendleft(_Batch(batch.rows[middle:]))
        self._state.again.appendleft(_Batch(batch.rows[:middle]))

    def _others_accepted(self, row: Outgoing) -> bool:
        return self._state.accepted > (row.accepted_before or 0)

    def _give_up(self, row: Outgoing, reason: str) -> None:
        with self._changed:
            self._forget([row])
        self._callbacks.undeliverable(row, reason)
