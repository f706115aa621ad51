"""Reading what the platform's evaluators wrote for a run.

A record names its evaluation task (``evaluationTaskId``); the scores are rows of the logstore
``evaluation_detail`` in the agent space's SLS project, one per score, with that id as ``task_id``.

Checked against LocalAgentLoop and the documented fields only, not against a live evaluation: the
names of the score rows' fields, how a score is linked to its row (``item_id``, ``trace_id``: the
field page does not show them, several spellings are tried), the words for a task's status, and
that the counts of the evaluation runs are a lower bound of the rows. What none of this knows stays
readable in ``CloudScore.row``.

Source: https://help.aliyun.com/zh/agentloop/field-descriptions-for-evaluation-results and the
models of the official client (GetEvaluationTask, ListEvaluationRuns).
"""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Tuple,
)

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from .agentloop import AgentLoopApi

logger = logging.getLogger(__name__)

SCORES_LOGSTORE = "evaluation_detail"

_PAGE = 100
_INCOMPLETE_TRIES = 3
_PAUSES_S = (1.0, 2.0, 5.0)
# how long rows of a task that is done may stay out of the index
_INDEX_LAG_S = 30.0
_CLOCK_SLACK_S = 3600
_NO_START_S = 30 * 86400
_ENDED_WELL = ("completed", "complete", "success", "succeeded", "finished", "done")
_ENDED_BADLY = ("failed", "error", "stopped", "stop", "cancelled", "canceled", "timeout")
_DONE = frozenset(_ENDED_WELL + _ENDED_BADLY)
_ITEM_FIELDS = ("dataset_item_id", "data_item_id", "item_id", "datasetItemId")
_TRACE_FIELDS = ("trace_id", "traceId", "traceID")


class ScoreLogstore(Protocol):
    """What is needed of the logstore; ``SlsLogstore`` is one."""

    def read(
        self, query: str, from_s: int, to_s: int, *, offset: int = 0, size: int = 100
    ) -> Tuple[List[Dict[str, str]], bool]:
        """A page of logs, and whether the answer is complete."""
        ...


@dataclass(frozen=True)
class CloudScore:
    """One score that an evaluator of the platform gave.

    Attributes:
        evaluator: The evaluator's name.
        name: The score's name.
        value: The score, None if the evaluator failed or gave none.
        normalized: The score scaled to 0..1, or None.
        range: (lowest, highest) possible score, or None.
        status: ``success``, ``failed`` or ``unknown``.
        item_id: The dataset item id, if the row names it.
        trace_id: The trace that was scored, if the row names it.
        row: All fields as they stand in the logstore.
    """

    evaluator: str
    name: str
    value: Optional[float]
    normalized: Optional[float]
    range: Optional[Tuple[float, float]]
    status: str
    item_id: Optional[str]
    trace_id: Optional[str]
    row: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class CloudScores:
    """The platform's scores of one run; iterating gives them.

    Attributes:
        record_id: The experiment record.
        task_id: The evaluation task, "" when the record has none (yet).
        status: The evaluation task's status as AgentLoop answers it, "" without a task.
        finished: Whether the evaluation task is done.
        complete: Whether SLS answered every page in full; scores may be missing otherwise.
        scores: The scores, oldest first.
    """

    record_id: str
    task_id: str = ""
    status: str = ""
    finished: bool = False
    complete: bool = True
    scores: Tuple[CloudScore, ...] = ()

    def __iter__(self) -> Iterator[CloudScore]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def means(self) -> Dict[str, float]:
        """Score name to the mean of its values; scores without a value are left out."""
        values: Dict[str, List[float]] = {}
        for score in self.scores:
            if score.value is not None:
                values.setdefault(score.name, []).append(score.value)
        return {name: math.fsum(found) / len(found) for name, found in values.items()}


def read_scores(
    api: AgentLoopApi,
    space: str,
    logstore_factory: Callable[[str, str], ScoreLogstore],
    record_id: str,
    wait: float = 0.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> CloudScores:
    """The scores of a record, as far as they are there after at most ``wait`` seconds.

    Args:
        api: AgentLoop.
        space: The agent space of the record.
        logstore_factory: Takes an SLS project and a logstore name.
        record_id: The experiment record.
        wait: Seconds to wait until the evaluation task is done and its rows can be found; 0 reads
            once what is there.
        clock: Monotonic seconds.
        now: Seconds since the epoch.
        sleep: Called with seconds between two looks.

    Raises:
        ConfigurationError: ``wait`` is no number of seconds, or there is no record.
        CloudError: AgentLoop or SLS refused or did not answer.
    """
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait < math.inf:
        raise ConfigurationError("wait must be a number of seconds from 0, not {!r}.".format(wait))
    if not record_id:
        raise ConfigurationError("The run has no experiment record, so there are no scores of it.")
    look = _Look(api, space, logstore_factory, record_id, now)
    return _wait_for(look, wait, clock, sleep)


def _wait_for(
    look: _Look, wait: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> CloudScores:
    """Look until everything is there or the time is up."""
    deadline = clock() + wait
    done_at: Optional[float] = None
    tries = 0
    while True:
        found = look.take()
        if found.finished:
            done_at = clock() if done_at is None else done_at
            deadline = min(deadline, done_at + _INDEX_LAG_S)
            if found.complete and len(found) >= look.expected:
                return found
        left = deadline - clock()
        if left <= 0:
            return found
        sleep(min(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)], left))
        tries += 1


class _Look:
    """One look after the other at the record, its evaluation task and the rows."""

    def __init__(
        self,
        api: AgentLoopApi,
        space: str,
        logstore_factory: Callable[[str, str], ScoreLogstore],
        record_id: str,
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._space = space
        self._logstore_factory = logstore_factory
        self._record_id = record_id
        self._now = now
        self._logstore: Optional[ScoreLogstore] = None
        self.expected = 0

    def take(self) -> CloudScores:
        """What is there now."""
        record = self._api.get_run(self._space, self._record_id).get("record") or {}
        task_id = str(record.get("evaluationTaskId") or "")
        if not task_id:
            return CloudScores(self._record_id)
        task = self._api.get_evaluation_task(self._space, task_id)
        status = str(task.get("status") or "")
        finished = status.lower() in _DONE
        self.expected = self._scored(task_id) if finished else 0
        rows, complete = self._rows(task_id, _start_of(record, self._now()))
        scores = tuple(map(_score, sorted(rows, key=_time_of)))
        return CloudScores(self._record_id, task_id, status, finished, complete, scores)

    def _scored(self, task_id: str) -> int:
        """How many scores the runs of the task say they have given."""
        answer = self._api.list_evaluation_runs(self._space, task_id)
        runs = [run for run in answer.get("evaluationRuns") or [] if isinstance(run, dict)]
        return sum(_count(run, "successCount") + _count(run, "failedCount") for run in runs)

    def _rows(self, task_id: str, from_s: int) -> Tuple[List[Dict[str, str]], bool]:
        """All rows of the task, equal ones (sent twice) once, and whether they are all."""
        to_s = int(self._now()) + _CLOCK_SLACK_S
        query = 'task_id: "{}"'.format(task_id.replace("\\", "\\\\").replace('"', '\\"'))
        found: Dict[Tuple[Tuple[str, str], ...], Dict[str, str]] = {}
        offset, all_complete = 0, True
        while True:
            page, complete = self._page(query, from_s, to_s, offset)
            all_complete = all_complete and complete
            found.update((tuple(sorted(row.items())), row) for row in page)
            offset += len(page)
            if len(page) < _PAGE:
                return list(found.values()), all_complete

    def _page(
        self, query: str, from_s: int, to_s: int, offset: int
    ) -> Tuple[List[Dict[str, str]], bool]:
        """One page; asked again while SLS answers that it has not looked at everything."""
        logstore = self._open()
        for _ in range(_INCOMPLETE_TRIES):
            page, complete = logstore.read(query, from_s, to_s, offset=offset, size=_PAGE)
            if complete:
                return page, True
        logger.warning("SLS did not complete a query of %s; scores may be missing.", query)
        return page, False

    def _open(self) -> ScoreLogstore:
        if self._logstore is None:
            project = str(self._api.get_agent_space(self._space).get("slsProject") or "")
            if not project:
                raise ConfigurationError(
                    "The agent space {!r} is not bound to an SLS project, so it has no "
                    "scores.".format(self._space)
                )
            self._logstore = self._logstore_factory(project, SCORES_LOGSTORE)
        return self._logstore


def _start_of(record: Mapping[str, Any], now_s: float) -> int:
    """From when on to look, in seconds since the epoch: no score is older than its run."""
    executed = _number(record.get("executedAt"))
    start = now_s - _NO_START_S if not executed else executed / 1000
    return max(0, int(start) - _CLOCK_SLACK_S)


def _score(row: Mapping[str, str]) -> CloudScore:
    return CloudScore(
        evaluator=row.get("evaluator_name") or row.get("evaluator_display_name") or "",
        name=row.get("score_name") or row.get("evaluator_name") or "",
        value=_number(row.get("score_value")),
        normalized=_number(row.get("normalized_score_value")),
        range=_range(row.get("score_range")),
        status=row.get("status") or "unknown",
        item_id=_first(row, _ITEM_FIELDS),
        trace_id=_first(row, _TRACE_FIELDS),
        row=dict(row),
    )


def _first(row: Mapping[str, str], names: Tuple[str, ...]) -> Optional[str]:
    return next((row[name] for name in names if row.get(name)), None)


def _time_of(row: Mapping[str, str]) -> float:
    return _number(row.get("timestamp")) or 0.0


def _count(run: Mapping[str, Any], name: str) -> int:
    return int(_number(run.get(name)) or 0)


def _number(value: Any) -> Optional[float]:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _range(text: Optional[str]) -> Optional[Tuple[float, float]]:
    """``[min,max]`` as two numbers."""
    try:
        ends = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(ends, list) or len(ends) != 2:
        return None
    low, high = map(_number, ends)
    return None if low is None or high is None else (low, high)
