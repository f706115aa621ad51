"""The plan's pipeline: what it makes of the trace of each attempt, without a waiting worker.

Traces reach SLS some time after the agent answered, so a preview may find nothing yet. Every row
has its own timer: asked right after it was saved, then every ten seconds for two minutes. Source:
GetPipeline and PreviewPipeline of the AgentLoop API 2026-05-20.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from ..errors import CloudError
from ..lines import counted
from .backlog import Outgoing
from .preview import UnboundSourceError, preview_body

logger = logging.getLogger(__name__)

RETRY_S = 10.0
GIVE_UP_S = 120.0
PREVIEWS_AT_ONCE = 8


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


Wait = Callable[[threading.Condition, Optional[float]], object]
_Timer = Tuple[float, int, Waiting, float]  # when it is due, order, whose it is, its deadline


@dataclass
class _Reason:
    """Why rows have no fields: the first one's words, and how many there are."""

    text: str
    count: int = 0


@dataclass
class _State:
    due: List[_Timer] = field(default_factory=list)
    running: int = 0
    threads: int = 0
    closed: bool = False
    reasons: Dict[str, _Reason] = field(default_factory=dict)


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
        wait: Waits on a condition for so many seconds of ``clock``, or until it is notified.
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
        wait: Wait = threading.Condition.wait,
    ) -> None:
        self._api = api
        self._name = name
        self._done = done
        self._definition = _Definition(api, space, name, keep, clock, definition)
        self._space = space
        self._clock = clock
        self._now = now
        self._wait = wait
        self._changed = threading.Condition()
        self._state = _State()
        self._serial = itertools.count()

    def submit(self, waiting: Waiting) -> None:
        """Ask for a row's fields: now, and again until they are there or time is up."""
        if not waiting.trace_id:
            return self._finish(waiting, None, "no trace id", "the solution returned no trace id")
        now = self._clock()
        with self._changed:
            state = self._state
            heapq.heappush(state.due, (now, next(self._serial), waiting, now + GIVE_UP_S))
            start = state.threads < min(PREVIEWS_AT_ONCE, state.running + len(state.due))
            state.threads += start
            self._changed.notify()
        if start:
            threading.Thread(
                target=self._ask_forever, name="agentloop-pipeline", daemon=True
            ).start()

    @property
    def waiting(self) -> int:
        """How many rows are still without an answer."""
        with self._changed:
            return len(self._state.due) + self._state.running

    def close(self) -> List[Outgoing]:
        """Stop asking; the rows still waiting are returned, not passed on."""
        with self._changed:
            self._state.closed = True
            left = [timer[2].row for timer in self._state.due]
            self._state.due.clear()
            self._changed.notify_all()
        return left

    def report(self) -> None:
        """Log each reason for missing fields once, with the number of rows."""
        with self._changed:
            reasons = sorted(self._state.reasons.items())
        for _, reason in reasons:
            logger.warning(
                "%s no fields of pipeline %s: %s.",
                counted(reason.count, "row", "has", "have"),
                self._name,
                reason.text,
            )

    def _ask_forever(self) -> None:
        while True:
            timer = self._next()
            if timer is None:
                return
            try:
                self._ask(timer)
            except Exception as error:
                logger.exception("The pipeline preview of a row failed unexpectedly.")
                kind = type(error).__name__
                self._finish(timer[2], None, kind, "an unexpected {}: {}".format(kind, error))
            finally:
                with self._changed:
                    self._state.running -= 1
                    self._changed.notify_all()

    def _next(self) -> Optional[_Timer]:
        with self._changed:
            while not self._state.closed:
                pause = self._pause()
                if pause is not None and pause <= 0:
                    self._state.running += 1
                    return heapq.heappop(self._state.due)
                self._wait(self._changed, pause)
            return None

    def _pause(self) -> Optional[float]:
        """Seconds until the next preview; None while only an event can change that."""
        state = self._state
        # one thread fetches the definition; the others wait for it
        if not state.due or (state.running and not self._definition.is_known):
            return None
        return state.due[0][0] - self._clock()

    def _ask(self, timer: _Timer) -> None:
        waiting = timer[2]
        try:
            fields = self._preview(waiting)
            code = "no rows"
            reason = "its trace was not in the pipeline's source within {:.0f} s".format(GIVE_UP_S)
        except UnboundSourceError as error:
            return self._finish(waiting, None, "unbound source", str(error))
        except CloudError as error:
            code, reason = _kind(error), str(error).rstrip(".")
            if not error.retryable:
                return self._finish(waiting, None, code, reason)
            fields = None
        if fields is not None or not self._ask_again(timer):
            self._finish(waiting, fields, code, reason)

    def _ask_again(self, timer: _Timer) -> bool:
        """Set the row's next timer; False when its time is up."""
        due, _, waiting, deadline = timer
        # the grid counts from the first preview, not from the answer of this one
        missed = math.floor((self._clock() - due) / RETRY_S)
        again = due + RETRY_S * (max(0, missed) + 1)
        if again > deadline:
            return False
        with self._changed:
            if not self._state.closed:
                heapq.heappush(self._state.due, (again, next(self._serial), waiting, deadline))
        return True

    def _preview(self, waiting: Waiting) -> Optional[Mapping[str, Any]]:
        body = preview_body(
            self._definition.get(), str(waiting.trace_id), waiting.started_at_ms, self._now()
        )
        rows = self._api.preview_pipeline(self._space, body).get("data")
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            return rows[0]
        return None

    def _finish(
        self, waiting: Waiting, fields: Optional[Mapping[str, Any]], code: str, reason: str
    ) -> None:
        if fields is None:
            with self._changed:
                known = self._state.reasons.setdefault(code, _Reason(reason))
                known.count += 1
                first = known.count == 1
            if first:
                logger.info("A row has no fields of pipeline %s: %s.", self._name, reason)
        self._done(waiting.row, fields, reason)


class _Definition:
    """The pipeline's definition: fetched by one thread, once, with every key the cloud answers.

    What is refused for good is not asked for again; after another error the next rows get the same
    error for a while, so that a thousand rows do not ask a thousand times.
    """

    def __init__(
        self,
        api: PipelineApi,
        space: str,
        name: str,
        keep: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], float],
        known: Optional[Mapping[str, Any]],
    ) -> None:
        self._fetch: Callable[[], Dict[str, Any]] = lambda: api.get_pipeline(space, name)
        self._keep = keep
        self._clock = clock
        self._known = known
        self._error: Optional[CloudError] = None
        self._error_until = 0.0

    @property
    def is_known(self) -> bool:
        """Whether ``get`` answers without asking the cloud."""
        if self._known is not None:
            return True
        return self._error is not None and self._clock() < self._error_until

    def get(self) -> Mapping[str, Any]:
        """The definition.

        Raises:
            CloudError: It cannot be had, or not now.
        """
        if self._error is not None and self._clock() < self._error_until:
            raise self._error
        if self._known is None:
            self._known = self._fetched()
            try:
                self._keep(self._known)
            except OSError as error:
                logger.warning("The pipeline's definition could not be stored: %s", error)
        return self._known

    def _fetched(self) -> Dict[str, Any]:
        try:
            return self._fetch()
        except CloudError as error:
            self._error = error
            pause = RETRY_S / 2 if error.retryable else math.inf
            self._error_until = self._clock() + pause
            raise


def _kind(error: CloudError) -> str:
    """What errors have in common that differ in request ids only."""
    return "{} {}".format(error.status, error.code)
