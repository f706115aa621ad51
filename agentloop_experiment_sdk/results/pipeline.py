"""The plan's pipeline: what it makes of the trace of each attempt, without a waiting worker.

Traces reach SLS some time after the agent answered, so a preview may find nothing yet. Every row
has its own timer: asked right after it was saved, then every ten seconds for two minutes. Source:
GetPipeline and PreviewPipeline of the AgentLoop API 2026-05-20.
"""

from __future__ import annotations

import copy
import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from ..errors import CloudError
from .delivery import Outgoing

logger = logging.getLogger(__name__)

RETRY_S = 10.0
GIVE_UP_S = 120.0
PREVIEWS_AT_ONCE = 8
_MARGIN_S = 60


class PipelineApi(Protocol):
    """The two calls to AgentLoop that a pipeline needs."""

    def get_pipeline(self, space: str, name: str) -> Dict[str, Any]:
        """The definition, with every key the cloud answered."""
        ...

    def preview_pipeline(self, space: str, body: Mapping[str, Any]) -> Dict[str, Any]:
        """What the definition makes of the logs its source finds."""
        ...


@dataclass(frozen=True)
class Waiting:
    """A row whose pipeline fields are due."""

    row: Outgoing
    trace_id: Optional[str]
    started_at_ms: int


# row, its fields, and why there are none
Done = Callable[[Outgoing, Optional[Mapping[str, Any]], str], None]


@dataclass
class _Timers:
    due: List[Tuple[float, int, Waiting, float]] = field(default_factory=list)
    running: int = 0
    closed: bool = False
    reasons: Dict[str, int] = field(default_factory=Counter)


class Pipeline:
    """Asks for the pipeline's fields of each row and passes the row on.

    Args:
        api: AgentLoop.
        space: The AgentSpace.
        name: The pipeline's name.
        done: Gets each row once: with its fields, or with None and the reason.
        definition: A definition that is known already; else it is fetched once, when needed.
        keep: Gets the fetched definition, to store it.
        clock: Monotonic seconds.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        api: PipelineApi,
        space: str,
        name: str,
        done: Done,
        *,
        definition: Optional[Mapping[str, Any]] = None,
        keep: Callable[[Mapping[str, Any]], None] = lambda definition: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._space = space
        self._name = name
        self._done = done
        self._definition = definition
        self._keep = keep
        self._clock = clock
        self._now = now
        self._changed = threading.Condition()
        self._timers = _Timers()
        self._serial = itertools.count()
        self._threads: List[threading.Thread] = []

    def submit(self, waiting: Waiting) -> None:
        """Ask for a row's fields: now, and again until they are there or time is up."""
        if not waiting.trace_id:
            self._finish(waiting, None, "the solution returned no trace id")
            return
        now = self._clock()
        with self._changed:
            entry = (now, next(self._serial), waiting, now + GIVE_UP_S)
            heapq.heappush(self._timers.due, entry)
            start = len(self._threads) < min(PREVIEWS_AT_ONCE, len(self._timers.due))
            self._changed.notify()
        if start:
            self._start_thread()

    @property
    def waiting(self) -> int:
        """How many rows are still without an answer."""
        with self._changed:
            return len(self._timers.due) + self._timers.running

    def close(self) -> List[Outgoing]:
        """Stop asking; the rows still waiting are returned, not passed on."""
        with self._changed:
            self._timers.closed = True
            left = [entry[2].row for entry in self._timers.due]
            self._timers.due.clear()
            self._changed.notify_all()
        return left

    def report(self) -> None:
        """Log each reason for missing fields once, with the number of rows."""
        for reason, count in sorted(self._timers.reasons.items()):
            logger.warning("%d rows have no fields of pipeline %s: %s.", count, self._name, reason)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._ask_forever, name="agentloop-pipeline", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ask_forever(self) -> None:
        while True:
            taken = self._next()
            if taken is None:
                return
            due, _, waiting, deadline = taken
            try:
                self._ask(waiting, due, deadline)
            except Exception as error:
                logger.exception("The pipeline preview of a row failed unexpectedly.")
                self._finish(waiting, None, "an unexpected error: {}".format(error))
            finally:
                with self._changed:
                    self._timers.running -= 1
                    self._changed.notify_all()

    def _next(self) -> Optional[Tuple[float, int, Waiting, float]]:
        with self._changed:
            while not self._timers.closed:
                if not self._timers.due:
                    self._changed.wait()
                    continue
                if self._definition is None and self._timers.running:
                    # one thread fetches the definition; the others wait for it
                    self._changed.wait()
                    continue
                pause = self._timers.due[0][0] - self._clock()
                if pause <= 0:
                    self._timers.running += 1
                    return heapq.heappop(self._timers.due)
                self._changed.wait(pause)
            return None

    def _ask(self, waiting: Waiting, due: float, deadline: float) -> None:
        try:
            fields = self._preview(waiting)
            reason = "its trace was not in the pipeline's source within {:.0f} s".format(GIVE_UP_S)
        except UnboundSourceError as error:
            return self._finish(waiting, None, str(error))
        except CloudError as error:
            if not error.retryable:
                return self._finish(waiting, None, str(error))
            fields, reason = None, str(error)
        if fields is not None or due + RETRY_S > deadline:
            return self._finish(waiting, fields, reason)
        # the grid counts from the first preview, not from the answer of this one
        again = (due + RETRY_S, next(self._serial), waiting, deadline)
        with self._changed:
            if not self._timers.closed:
                heapq.heappush(self._timers.due, again)

    def _preview(self, waiting: Waiting) -> Optional[Mapping[str, Any]]:
        if self._definition is None:
            self._definition = self._api.get_pipeline(self._space, self._name)
            self._keep(self._definition)
        body = preview_body(
            self._definition, str(waiting.trace_id), waiting.started_at_ms, self._now()
        )
        rows = self._api.preview_pipeline(self._space, body).get("data")
        found = isinstance(rows, list) and rows and isinstance(rows[0], dict)
        return rows[0] if rows and found else None

    def _finish(self, waiting: Waiting, fields: Optional[Mapping[str, Any]], reason: str) -> None:
        if fields is None:
            with self._changed:
                self._timers.reasons[reason] += 1
                first = self._timers.reasons[reason] == 1
            if first:
                logger.warning("A row has no fields of pipeline %s: %s.", self._name, reason)
        self._done(waiting.row, fields, reason)


class UnboundSourceError(Exception):
    """The pipeline's source cannot be narrowed to one trace; the message says why."""


def preview_body(
    definition: Mapping[str, Any], trace_id: str, started_at_ms: int, now: float
) -> Dict[str, Any]:
    """The PreviewPipeline request that binds ``definition`` to one trace.

    Times are seconds: from 60 s before the attempt began to 60 s from now.

    Raises:
        UnboundSourceError: The source cannot be bound to a trace.
    """
    source = definition.get("source")
    nodes = (definition.get("pipeline") or {}).get("nodes")
    if not isinstance(source, Mapping) or not isinstance(source.get("logstore"), Mapping):
        raise UnboundSourceError("its source is not a logstore, so it is not bound to one trace")
    if not nodes:
        raise UnboundSourceError("its definition has no nodes")
    bound = copy.deepcopy(dict(source))
    bound["logstore"]["query"] = bound_query(str(bound["logstore"].get("query") or "*"), trace_id)
    return {
        "fromTime": started_at_ms // 1000 - _MARGIN_S,
        "toTime": int(now) + _MARGIN_S,
        "source": bound,
        "pipeline": copy.deepcopy(definition["pipeline"]),
    }


def bound_query(query: str, trace_id: str) -> str:
    """``query`` narrowed to one trace; an analysis part behind ``|`` is kept.

    Source: SLS query syntax, ``<search> | <analysis>``.
    """
    search, bar, analysis = _split_analysis(query)
    bound = '({}) and traceId: "{}"'.format(search.strip() or "*", trace_id)
    return "{} |{}".format(bound, analysis) if bar else bound


def _split_analysis(query: str) -> Tuple[str, str, str]:
    quoted = False
    for index, character in enumerate(query):
        if character == '"' and (index == 0 or query[index - 1] != "\\"):
            quoted = not quoted
        elif character == "|" and not quoted:
            return query[:index], "|", query[index + 1 :]
    return query, "", ""
