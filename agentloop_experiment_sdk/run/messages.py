"""What the other threads of a run tell its flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from ..models import Attempt, Result
from ..results.delivery import Outgoing
from ..results.journal import Saved
from .limits import Signal


@dataclass(frozen=True)
class Written:
    """A result and its journal entry, or why it could not be written; ``seconds`` it took."""

    result: Result
    saved: Optional[Saved]
    error: Optional[BaseException]
    seconds: float = 0.0


@dataclass(frozen=True)
class Dropped:
    """An attempt that came to nothing: the run was stopping, or ``error`` must stop it."""

    attempt: Attempt
    error: Optional[BaseException]


@dataclass(frozen=True)
class Scored:
    """An attempt that local evaluators are through with."""

    saved: Saved
    scores: Mapping[str, Any]
    error: Optional[Exception]


@dataclass(frozen=True)
class Delivered:
    """Rows that SLS acknowledged."""

    rows: List[Outgoing]


@dataclass(frozen=True)
class Undeliverable:
    """A row that delivery gave up."""

    row: Outgoing
    reason: str


@dataclass(frozen=True)
class Answered:
    """An attempt that runs no longer; its result is being written."""

    attempt: Attempt
    signal: Signal


@dataclass(frozen=True)
class Refused:
    """The agent refused a call of an attempt that runs on."""

    attempt: Attempt
    signal: Signal


@dataclass(frozen=True)
class Stop:
    """End the run early; ``error`` is what it then raises."""

    error: Optional[BaseException]
