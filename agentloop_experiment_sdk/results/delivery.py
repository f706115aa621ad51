"""Delivering rows to SLS: a few threads that send what the backlog says is next.

A row is *queued* once its attempt is on disk, and *acknowledged* once PutLogs returned. What fails
is tried again here and nowhere else.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Protocol, Sequence, Tuple

from ..cloud.limits import MAX_GROUP_BYTES, Contents, batch_end, fitted, row_size
from ..errors import CloudError, ExperimentError
from ..lines import counted
from .backlog import Backlog, Batch, around_one
from .backlog import Outgoing as Outgoing
from .troubles import Troubles

logger = logging.getLogger(__name__)

MEMORY_BYTES = 8_000_000
SENDERS = 4

Wait = Callable[[threading.Condition, Optional[float]], object]


class Logstore(Protocol):
    """Where rows go."""

    def put(self, rows: Sequence[Contents]) -> None:
        """Write rows with one request, or raise CloudError."""
        ...


@dataclass(frozen=True)
class Callbacks:
    """What delivery tells the run; called from sender threads, so keep them short.

    ``delivered`` gets the rows SLS acknowledged; ``undeliverable`` a row that is given up, with
    the reason.
    """

    delivered: Callable[[List[Outgoing]], None]
    undeliverable: Callable[[Outgoing, str], None]


class Delivery:
    """The way of rows from the results directory to one logstore.

    Args:
        logstore: Where rows go.
        build: Turns a row into its fields; reads the results directory when ``answer`` is None.
            None when the row cannot be read.
        callbacks: What to tell the run.
        clock: Monotonic seconds.
        jitter: A factor for each backoff pause, around 1.
        wait: Waits on a condition for so many seconds of ``clock``, or until it is notified.
    """

    def __init__(
        self,
        logstore: Logstore,
        build: Callable[[Outgoing], Optional[Contents]],
        callbacks: Callbacks,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = around_one,
        wait: Wait = threading.Condition.wait,
    ) -> None:
        self._logstore = logstore
        self._build = build
        self._callbacks = callbacks
        self._clock = clock
        self._wait = wait
        self._changed = threading.Condition()
        self._backlog = Backlog(clock(), jitter)
        self._troubles = Troubles()
        self._memory = 0
        self._started = False
        self._closed = False

    def enqueue(self, row: Outgoing) -> None:
        """Queue a row whose attempt is on disk."""
        with self._changed:
            if row.answer is not None:
                if self._memory + row.saved.size > MEMORY_BYTES:
                    row.answer = None  # it is read again when its turn comes
                else:
                    self._memory += row.saved.size
            now = self._clock()
            before = self._backlog.pause(now)
            self._backlog.add(row, now)
            # one sender has to watch the first row's linger, and one to take what became due
            if before is None or (before > 0 and self._backlog.pause(now) == 0):
                self._changed.notify()
            start, self._started = not self._started, True
        if start:
            self._start()

    @property
    def waiting(self) -> int:
        """How many rows are queued or being sent."""
        with self._changed:
            return self._backlog.waiting

    @property
    def sending(self) -> int:
        """How many rows are being sent; after ``close`` it falls to 0, and no row follows."""
        with self._changed:
            return self._backlog.sending

    @property
    def refusal(self) -> Optional[CloudError]:
        """Why SLS refuses everything (keys, permissions, a missing logstore), if it does."""
        with self._changed:
            return self._backlog.refusal

    @property
    def is_failing(self) -> bool:
        """Whether the last request failed."""
        with self._changed:
            return self._backlog.is_failing

    def drain(self) -> None:
        """Send what is queued without waiting for batches to fill."""
        with self._changed:
            self._backlog.drain(self._clock())
            self._changed.notify_all()

    def is_drained(self, timeout: float) -> bool:
        """Whether nothing is left to send, or waiting longer is pointless.

        Args:
            timeout: Seconds without any accepted row after which the drain gives up.
        """
        with self._changed:
            return self._backlog.is_drained(self._clock(), timeout)

    def close(self) -> None:
        """End the sender threads; a request on its way is not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        for number in range(SENDERS):
            threading.Thread(
                target=self._send_forever, name="agentloop-delivery-{}".format(number), daemon=True
            ).start()

    def _send_forever(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            try:
                self._send(batch)
            except Exception:  # a fault of ours; the rows stay in the outbox
                logger.exception(
                    "Delivering %s failed unexpectedly.", counted(len(batch.rows), "row")
                )
            finally:
                with self._changed:
                    self._backlog.release(batch)
                    self._changed.notify_all()

    def _next_batch(self) -> Optional[Batch]:
        with self._changed:
            while not self._closed:
                pause = self._backlog.pause(self._clock())
                if pause is not None and pause <= 0:
                    self._changed.notify()  # another sender watches what this one leaves
                    return self._backlog.take()
                self._wait(self._changed, pause)
            return None

    def _send(self, batch: Batch) -> None:
        built = [(row, *sized) for row in batch.rows for sized in self._fields(row)]
        sizes = [size for _, _, size in built]
        start = 0
        while start < len(built):
            end = batch_end(sizes, start)
            part = [row for row, _, _ in built[start:end]]
            error = self._put([fields for _, fields, _ in built[start:end]])
            if error is not None:
                return self._failed(batch, part, error, [row for row, _, _ in built[end:]])
            self._accepted(batch, part)
            start = end

    def _fields(self, row: Outgoing) -> Tuple[Tuple[Contents, int], ...]:
        """The row's fields and their bytes, or nothing when it cannot be built: one row must not
        hold the others."""
        try:
            built = self._build(row)
            if built is not None:
                size = row_size(built)
                if size > MAX_GROUP_BYTES:
                    built = fitted(built)
                    size = row_size(built)
                return ((built, size),)
            reason = "its solution.json cannot be read"
        except Exception as error:
            logger.exception("The row of an attempt could not be built.")
            reason = "its row could not be built: {}: {}".format(type(error).__name__, error)
        self._give_up(row, reason)
        return ()

    def _put(self, rows: List[Contents]) -> Optional[CloudError]:
        try:
            self._logstore.put(rows)
        except CloudError as error:
            return error
        except ExperimentError as error:  # the keys cannot be had
            return CloudError(str(error), code=error.code)
        except Exception as error:
            logger.exception("Delivering %s failed unexpectedly.", counted(len(rows), "row"))
            return CloudError("{}: {}".format(type(error).__name__, error), retryable=True)
        return None

    def _accepted(self, batch: Batch, rows: List[Outgoing]) -> None:
        self._callbacks.delivered(rows)
        with self._changed:
            self._backlog.accepted(len(rows), self._clock())
            self._backlog.release(batch, len(rows))
            self._forget(rows)

    def _failed(
        self, batch: Batch, rows: List[Outgoing], error: CloudError, untried: List[Outgoing]
    ) -> None:
        with self._changed:
            given_up = self._backlog.failed(Batch(rows, batch.tries), error, self._clock())
            self._backlog.put_back(untried)
            self._backlog.release(batch)
            line = None if given_up else self._troubles.line(len(rows), error, self._clock())
        if given_up is not None:
            return self._give_up(given_up, str(error))
        if line is not None:
            logger.warning("%s", line)

    def _give_up(self, row: Outgoing, reason: str) -> None:
        with self._changed:
            self._forget([row])
        self._callbacks.undeliverable(row, reason)

    def _forget(self, rows: List[Outgoing]) -> None:
        for row in rows:
            if row.answer is not None:
                self._memory -= row.saved.size
                row.answer = None
