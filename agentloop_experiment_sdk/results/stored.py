"""What a results directory holds, as its readers see it."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import urllib.parse
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from . import layout
from .journal import JournalState, Key

INCOMPLETE = "incomplete"

TaskRef = Tuple[str, Optional[str]]


@dataclass(frozen=True)
class ResultRow:
    """One attempt of a results directory; payloads are read from its files when asked for.

    Attributes:
        folder: The attempt's folder.
        task_id, repeat_id: Which attempt it is.
        item_id: The dataset item id as text, or None when the directory does not name one.
        status: ``success``, ``failed``, ``skipped``, or ``incomplete`` when there is no result yet.
        number: Which try of the attempt answered, from 1; 0 when incomplete.
        latency_ms: Milliseconds of the agent call, or None when nobody measured it.
        usage: Model name to (input tokens, output tokens).
        error_type: The error type of a failed row, else "".
        delivered: Whether SLS acknowledged the row under the run's record; None in a directory
            that knows no delivery.
    """

    folder: str
    task_id: str
    repeat_id: str
    item_id: Optional[str] = None
    status: str = INCOMPLETE
    number: int = 0
    latency_ms: Optional[float] = None
    usage: Mapping[str, Tuple[int, int]] = dataclasses.field(default_factory=dict)
    error_type: str = ""
    delivered: Optional[bool] = None

    @property
    def key(self) -> Key:
        """(task id, repeat id)."""
        return (self.task_id, self.repeat_id)

    @property
    def label(self) -> str:
        """What a person calls the row: the dataset item id, else the task id."""
        return self.task_id if self.item_id is None else self.item_id

    @property
    def done(self) -> bool:
        """Whether the row has a result."""
        return self.status != INCOMPLETE

    @functools.cached_property
    def solution(self) -> Dict[str, Any]:
        """The content of ``solution.json``: success, output, trajectory, meta; {} without one."""
        return layout.read_json_object(os.path.join(self.folder, layout.SOLUTION_FILE)) or {}

    @functools.cached_property
    def task_meta(self) -> Dict[str, Any]:
        """The content of the task's ``task_meta.json``; {} without one."""
        return read_task_meta(os.path.dirname(self.folder))

    @functools.cached_property
    def evaluations(self) -> Dict[str, Dict[str, Any]]:
        """Metric name to the content of its ``evaluation/<metric>.json``, sorted by name."""
        return _read_evaluations(os.path.join(self.folder, layout.EVALUATION_DIR))

    @property
    def output(self) -> Any:
        """What the agent answered; "" when incomplete."""
        return self.solution.get("output", "")

    @property
    def trajectory(self) -> Any:
        """The steps the agent reported."""
        return self.solution.get("trajectory") or []

    @property
    def meta(self) -> Dict[str, Any]:
        """Facts about the call, as the solution gave them."""
        return mapping_of(self.solution.get("meta"))

    @property
    def attempt(self) -> Dict[str, Any]:
        """The SDK's own facts of the attempt (number, times, solution hash, trace id)."""
        return mapping_of(self.meta.get(layout.ATTEMPT_KEY))

    @property
    def input(self) -> Any:
        """The dataset row."""
        return self.task_meta.get("input")

    @property
    def ground_truth(self) -> Any:
        """The expected answer, if the dataset names one."""
        return self.task_meta.get("ground_truth")

    @property
    def error_message(self) -> str:
        """The error message of a failed row, else ""."""
        message = self.meta.get("error_message")
        return "" if self.status != "failed" or message is None else str(message)

    @property
    def skip_reason(self) -> str:
        """Why a skipped row was skipped, as its output says; else ""."""
        reason = mapping_of(self.output).get("reason") if self.status == "skipped" else None
        return "" if reason is None else str(reason)

    @property
    def trace_id(self) -> Optional[str]:
        """The trace id that links the row to its trace, or None."""
        trace_id = self.attempt.get("trace_id") or self.meta.get("traceId")
        return str(trace_id) if trace_id else None

    @property
    def ttft_ms(self) -> Optional[float]:
        """Milliseconds until the first piece of a streamed answer, or None."""
        return number_or_none(self.meta.get("ttft_ms"))


@dataclass(frozen=True)
class StoredResults:
    """A results directory as it was when it was read.

    Attributes:
        path: The directory.
        meta: The content of ``evaluation_meta.json``; {} when it is missing or torn.
        tasks: (task id, dataset item id) of the plan's present tasks, in the plan's order.
        stale: Task folders whose rows changed in or left the dataset; they are not counted.
        journal: What the journal adds up to.
        expected: How many rows the run has when it is complete.
        left_behind: Rows that are no part of the run any more, but were not delivered while they
            were: those of changed dataset rows, and of repeats that a later run had fewer of.
    """

    path: str
    meta: Mapping[str, Any]
    tasks: Tuple[TaskRef, ...]
    stale: Tuple[str, ...]
    journal: JournalState
    expected: int
    _rows: Tuple[ResultRow, ...] = dataclasses.field(repr=False)
    left_behind: int = 0

    @property
    def record_id(self) -> str:
        """The cloud record of the run, or "" when there is none."""
        return str(self.meta.get("record_id") or "")

    @property
    def heads(self) -> Tuple[ResultRow, ...]:
        """All rows, for their counters: do not read payloads here, they would stay in memory."""
        return self._rows

    def rows(self) -> Iterator[ResultRow]:
        """All rows, task by task and repeat by repeat; what is read of one is freed with it."""
        return (dataclasses.replace(row) for row in self._rows)


def number_or_none(value: Any) -> Optional[float]:
    """``value`` as a float if it is a finite number and not a bool, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:  # JSON has whole numbers of any length
        return None
    return found if math.isfinite(found) else None


def read_task_meta(folder: str) -> Dict[str, Any]:
    """The content of ``task_meta.json`` in a task's folder; {} without one."""
    return layout.read_json_object(os.path.join(folder, layout.TASK_META_FILE)) or {}


def _read_evaluations(folder: str) -> Dict[str, Dict[str, Any]]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return {}
    read: Dict[str, Dict[str, Any]] = {}
    for name in names:
        content = layout.read_json_object(os.path.join(folder, name))
        if content is not None and "result" in content:
            read[str(content.get("name") or urllib.parse.unquote(name[:-5]))] = content
    return read


def mapping_of(value: Any) -> Dict[str, Any]:
    """``value`` if it is a dict, else {}."""
    return value if isinstance(value, dict) else {}
