"""What a run tells while it goes on: typed events without payloads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Callable, Iterable, Optional, Union

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordCreated:
    """The cloud record exists; no agent call was made before.

    Attributes:
        record_id: The record's id.
        record_name: Its name.
        resumed: Whether it is the record of an earlier run.
    """

    record_id: str
    record_name: str
    resumed: bool


@dataclass(frozen=True)
class AttemptDone:
    """One attempt is on disk.

    Attributes:
        task_id: The task's id.
        repeat_id: Which repeat of it, from ``"0"``.
        number: Which try of the attempt answered, from 1.
        status: ``success``, ``failed`` or ``skipped``.
        latency_ms: Milliseconds of the agent call.
        error_type: The error type of a failed row, else "".
    """

    task_id: str
    repeat_id: str
    number: int
    status: str
    latency_ms: float
    error_type: str = ""


@dataclass(frozen=True)
class RowsDelivered:
    """SLS acknowledged more rows.

    Attributes:
        count: How many more.
    """

    count: int


@dataclass(frozen=True)
class LimitChanged:
    """Fewer attempts may run at once from now on.

    Attributes:
        before: How many could run at once so far.
        after: How many can from now on.
        reason: Why: ``429``, ``503``, ``latency``…
    """

    before: int
    after: int
    reason: str

    def __str__(self) -> str:
        return "limit {}→{}: {}".format(self.before, self.after, self.reason)


@dataclass(frozen=True)
class Progress:
    """How far the run is.

    Attributes:
        total: Rows times repeats.
        succeeded: Done with success, those of earlier runs included; skipped rows among them.
        failed: Done and failed.
        skipped: Conversations without turns, part of ``succeeded``.
        delivered: Rows SLS has acknowledged under this record.
        rows_per_s: Attempts done per second of this run.
        eta_s: Estimated seconds to the end, None while unknown.
        limit: How many attempts may run at once now.
    """

    total: int
    succeeded: int
    failed: int
    skipped: int
    delivered: int
    rows_per_s: float = 0.0
    eta_s: Optional[float] = None
    limit: int = 0

    @property
    def done(self) -> int:
        """Attempts that are on disk."""
        return self.succeeded + self.failed


@dataclass(frozen=True)
class RunFinished:
    """The run is over, and nothing more will be told.

    Attributes:
        record_id: The record's id.
        status: ``completed``, ``failed``, ``interrupted``, or ``running`` for a record that is held
            until its rows are delivered.
        undelivered: Done rows that SLS has not acknowledged.
    """

    record_id: str
    status: str
    undelivered: int


def tell(listeners: Iterable[Callable[[Event], None]], event: Event) -> None:
    """Tell ``event`` to all; a listener that raises does not stop the run."""
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            logger.exception("A listener of the run's events raised; the run goes on.")


Event = Union[RecordCreated, AttemptDone, RowsDelivered, LimitChanged, Progress, RunFinished]
