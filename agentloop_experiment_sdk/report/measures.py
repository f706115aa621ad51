"""What is measured of a run: scores, latency, tokens; per row, and summed up per metric."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ..results.attempts import Setup, is_other, setup_of
from ..results.stored import ResultRow, StoredResults, number_or_none
from . import statistics
from .statistics import Estimate

PASS_FAIL, NUMERICAL, CATEGORY = "pass/fail", "numerical", "category"

Score = Union[float, str]


@dataclass(frozen=True)
class RowMeasures:
    """The small facts of one row that only its files tell.

    ``scores`` has metric name to number (a pass is 1, a fail 0) or category; an evaluation without
    a usable result is named in ``unscored``.
    """

    row: ResultRow
    ttft_ms: Optional[float] = None
    solution_hash: str = ""
    setup: Optional[Setup] = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    unscored: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Percentiles:
    """The spread of a measured time, in milliseconds, over ``n`` rows."""

    p50: float
    p90: float
    p99: float
    mean: float
    max: float
    n: int


@dataclass(frozen=True)
class Tokens:
    """Tokens that agents reported, over ``calls`` rows."""

    input: int = 0
    output: int = 0
    calls: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.input + self.output


@dataclass(frozen=True)
class MetricSummary:
    """One metric over a run.

    Attributes:
        name: The metric's name.
        kind: ``pass/fail`` (all values 0 or 1), ``numerical`` or ``category``.
        estimate: Its mean with the interval, repeats averaged per task first; None of a category,
            and where no row has a score.
        values: The scores of all rows that have one.
        distribution: Category to its number of rows.
        unscored: Rows whose evaluation gave no usable result.
    """

    name: str
    kind: str
    estimate: Optional[Estimate]
    values: Tuple[float, ...] = field(default=(), repr=False)
    distribution: Mapping[str, int] = field(default_factory=dict)
    unscored: int = 0

    @property
    def n(self) -> int:
        """How many rows have a score."""
        return len(self.values) or sum(self.distribution.values())


def measure_rows(stored: StoredResults) -> Tuple[RowMeasures, ...]:
    """One pass over the files of the done rows; payloads are read and let go."""
    return tuple(_measured(row, head) for row, head in zip(stored.rows(), stored.heads))


def of_others(meta: Mapping[str, Any], measures: Iterable[RowMeasures]) -> int:
    """How many rows another version, or other parameters, answered than ``meta`` names."""
    current = setup_of(meta)
    return sum(1 for measure in measures if is_other(measure.setup, current))


def percentiles(values: Sequence[float]) -> Optional[Percentiles]:
    """The usual percentiles of ``values``, or None when there are none."""
    if not values:
        return None
    p50, p90, p99 = (statistics.percentile(values, share) for share in (0.5, 0.9, 0.99))
    mean = math.fsum(values) / len(values)
    return Percentiles(p50, p90, p99, mean, max(values), len(values))


def sum_tokens(rows: Iterable[ResultRow]) -> Dict[str, Tokens]:
    """Tokens by model over ``rows``, sorted by model."""
    sums: Dict[str, Tokens] = {}
    for row in rows:
        for model, (tokens_in, tokens_out) in row.usage.items():
            known = sums.get(model, Tokens())
            sums[model] = Tokens(
                known.input + tokens_in, known.output + tokens_out, known.calls + 1
            )
    return dict(sorted(sums.items()))


def tokens_of(row: ResultRow) -> Optional[float]:
    """Input and output tokens of a row together; None where none, or no real number, was told."""
    return number_or_none(sum(map(sum, row.usage.values()))) if row.usage else None


def summarize_metrics(measures: Sequence[RowMeasures]) -> Dict[str, MetricSummary]:
    """Metric name to its summary; skipped rows are outside."""
    counted = [measure for measure in measures if measure.row.status in ("success", "failed")]
    names = {name for measure in counted for name in measure.scores}
    names.update(name for measure in counted for name in measure.unscored)
    return {name: _summary(name, counted) for name in sorted(names)}


def by_task(measures: Iterable[RowMeasures]) -> Dict[str, List[RowMeasures]]:
    """Task id to its rows, in the order of the run."""
    grouped: Dict[str, List[RowMeasures]] = {}
    for measure in measures:
        grouped.setdefault(measure.row.task_id, []).append(measure)
    return grouped


def is_pass_fail(values: Iterable[float]) -> bool:
    """Whether all values are 0 or 1."""
    return all(value in (0.0, 1.0) for value in values)


def mean_of(values: Iterable[Optional[float]]) -> Optional[float]:
    """The mean of the values that are there, or None."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _measured(row: ResultRow, head: ResultRow) -> RowMeasures:
    if not row.done:
        return RowMeasures(head)
    scores: Dict[str, Score] = {}
    unscored: List[str] = []
    for name, evaluation in row.evaluations.items():
        score = score_of(evaluation.get("result"))
        if score is None:
            unscored.append(name)
        else:
            scores[name] = score
    solution_hash = str(row.attempt.get("solution_hash") or "")
    setup = setup_of(row.attempt)
    return RowMeasures(head, row.ttft_ms, solution_hash, setup, scores, tuple(unscored))


def score_of(result: Any) -> Optional[Score]:
    """A stored result as a number or category; None when it is neither (the evaluator failed)."""
    if isinstance(result, bool):
        return 1.0 if result else 0.0
    if isinstance(result, str):
        return result
    number = number_or_none(result)
    return number if number is not None and math.isfinite(number) else None


def _summary(name: str, measures: Sequence[RowMeasures]) -> MetricSummary:
    scores = [measure.scores[name] for measure in measures if name in measure.scores]
    unscored = sum(1 for measure in measures if name in measure.unscored)
    labels = [score for score in scores if isinstance(score, str)]
    if labels:
        distribution = Counter(str(score) for score in scores)
        ordered = dict(sorted(distribution.items(), key=lambda item: (-item[1], item[0])))
        return MetricSummary(name, CATEGORY, None, (), ordered, unscored)
    values = tuple(float(score) for score in scores)
    if not values:
        return MetricSummary(name, NUMERICAL, None, unscored=unscored)
    kind = PASS_FAIL if is_pass_fail(values) else NUMERICAL
    estimate = _pass_fail if kind == PASS_FAIL else _mean
    return MetricSummary(name, kind, estimate(name, measures), values, {}, unscored)


def _task_scores(name: str, measures: Sequence[RowMeasures]) -> List[List[float]]:
    per_task = (
        [float(measure.scores[name]) for measure in rows if name in measure.scores]
        for rows in by_task(measures).values()
    )
    return [scores for scores in per_task if scores]


def _pass_fail(name: str, measures: Sequence[RowMeasures]) -> Estimate:
    clusters = [(int(sum(scores)), len(scores)) for scores in _task_scores(name, measures)]
    return statistics.clustered_proportion(clusters)


def _mean(name: str, measures: Sequence[RowMeasures]) -> Estimate:
    means = [math.fsum(scores) / len(scores) for scores in _task_scores(name, measures)]
    return statistics.bootstrap_mean(means)


def over_tasks(
    tries: Iterable[Tuple[int, int]], k: int, estimator: Callable[[int, int, int], float]
) -> Optional[Estimate]:
    """pass@k or pass^k over (tries, passed) of each task; tasks with fewer than k tries are out."""
    values = [estimator(trials, passed, k) for trials, passed in tries if trials >= k]
    return statistics.bootstrap_mean(values) if values else None
