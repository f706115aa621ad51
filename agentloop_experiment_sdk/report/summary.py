"""The result of an experiment as a person or a program reads it, from its results directory."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..arguments import path_of
from ..errors import ConfigurationError
from ..lines import counted
from ..results.reader import read_results
from ..results.stored import ResultRow, StoredResults
from . import measures, statistics
from .arguments import facts_of
from .measures import MetricSummary, Percentiles, RowMeasures, Tokens
from .pricing import Cost, Prices, cost_of
from .statistics import Estimate

if TYPE_CHECKING:
    from .sections import Section

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Counts:
    """How the rows (attempts: task x repeat) of a run stand.

    Attributes:
        total: Rows of the complete run.
        succeeded, failed: Rows that the agent answered, or failed to.
        skipped: Conversations without turns; outside every rate.
        incomplete: Rows without a result yet.
        undelivered: Done rows that SLS lacks; also those that left the run before they were sent.
        stale: Task folders of rows that changed in or left the dataset; not counted above.
    """

    total: int
    succeeded: int
    failed: int
    skipped: int
    incomplete: int
    undelivered: int
    stale: int


class ExperimentResult:
    """What an experiment came to. Iterating over it gives its rows, task by task.

    Counters come from the journal; what only the rows' files tell (scores, time to first token,
    solution hashes) is read at first use. Payloads are read row by row and let go again.

    Args:
        stored: The results directory as ``read_results`` gives it.
        extras: What only the run knew, kept as it is.
        score_source: ``(record_id, wait) -> scores``; reads the platform's scores.
    """

    def __init__(
        self,
        stored: StoredResults,
        *,
        extras: Optional[Mapping[str, Any]] = None,
        score_source: Optional[Callable[[str, float], Any]] = None,
    ) -> None:
        self._stored = stored
        self._score_source = score_source
        self.extras = facts_of("extras", extras)

    @property
    def path(self) -> str:
        """The results directory."""
        return self._stored.path

    @property
    def record_id(self) -> str:
        """The cloud record's id, or ""."""
        return self._stored.record_id

    @property
    def name(self) -> str:
        """The record's name, else the evaluation's, else the directory's."""
        meta = self.meta
        name = meta.get("record_name") or meta.get("evaluation_name")
        return str(name or os.path.basename(self.path))

    @property
    def status(self) -> str:
        """``running``, ``completed``, ``failed``, ``interrupted``, or "" when nobody noted it."""
        return str(self.meta.get("status") or "")

    @property
    def meta(self) -> Mapping[str, Any]:
        """The content of ``evaluation_meta.json``."""
        return self._stored.meta

    @property
    def dataset(self) -> str:
        """The dataset's name, or ""."""
        benchmark = self.meta.get("benchmark")
        return str(benchmark.get("name") or "") if isinstance(benchmark, dict) else ""

    @property
    def repeats(self) -> int:
        """How many repeats of each task there are."""
        return len({head.repeat_id for head in self.heads}) or 1

    @property
    def heads(self) -> Tuple[ResultRow, ...]:
        """All rows for their counters; iterate over the result itself to read payloads."""
        return self._stored.heads

    @property
    def stale(self) -> Tuple[str, ...]:
        """Task folders on disk that are no longer part of the plan."""
        return self._stored.stale

    @functools.cached_property
    def counts(self) -> Counts:
        """How many rows succeeded, failed, were skipped, are missing or undelivered."""
        by_status = Counter(head.status for head in self.heads)
        done = by_status["success"] + by_status["failed"] + by_status["skipped"]
        return Counts(
            total=self._stored.expected,
            succeeded=by_status["success"],
            failed=by_status["failed"],
            skipped=by_status["skipped"],
            incomplete=self._stored.expected - done,
            undelivered=self._stored.left_behind
            + sum(1 for head in self.heads if head.delivered is False),
            stale=len(self._stored.stale),
        )

    @property
    def success_rate(self) -> Optional[float]:
        """Succeeded over succeeded and failed rows, or None when there are neither."""
        return self.success.value if self.success.n else None

    @functools.cached_property
    def success(self) -> Estimate:
        """The success rate with its Wilson interval; repeats of a task count as one cluster."""
        pairs = [(passed, tries) for tries, passed in self._tries(None)]
        return statistics.clustered_proportion(pairs)

    @functools.cached_property
    def latency(self) -> Optional[Percentiles]:
        """Latency of the agent calls, failed ones too, in ms; None when nothing was measured."""
        return measures.percentiles(
            [head.latency_ms for head in self._answered if head.latency_ms is not None]
        )

    @functools.cached_property
    def ttft(self) -> Optional[Percentiles]:
        """Time to first token of streamed answers, in ms; None when nothing was measured."""
        return measures.percentiles(
            [m.ttft_ms for m in self.measures if m.ttft_ms is not None and _answered(m.row)]
        )

    @functools.cached_property
    def tokens(self) -> Dict[str, Tokens]:
        """Model name to the tokens that the agent reported."""
        return measures.sum_tokens(self.heads)

    @functools.cached_property
    def errors(self) -> Dict[str, int]:
        """Error type to its number of failed rows, most frequent first."""
        counter = Counter(head.error_type for head in self.heads if head.status == "failed")
        return dict(sorted(counter.items(), key=lambda item: (-item[1], item[0])))

    @functools.cached_property
    def metrics(self) -> Dict[str, MetricSummary]:
        """Metric name to its summary, from the local evaluators' files."""
        return measures.summarize_metrics(self.measures)

    @functools.cached_property
    def measures(self) -> Tuple[RowMeasures, ...]:
        """What each row's files tell, in the order of ``heads``; read once."""
        return measures.measure_rows(self._stored)

    @property
    def failures(self) -> List[ResultRow]:
        """The failed rows."""
        return [row for row in self if row.status == "failed"]

    @property
    def undelivered(self) -> List[ResultRow]:
        """The done rows that SLS has not acknowledged."""
        return [row for row in self if row.delivered is False]

    def rows_of(self, task_id: str) -> List[ResultRow]:
        """The done rows of ``task_id``, by repeat; their payloads are read when asked for."""
        return [dataclasses.replace(head) for head in self._by_task.get(task_id, ())]

    def __iter__(self) -> Iterator[ResultRow]:
        return self._stored.rows()

    def __len__(self) -> int:
        return len(self.heads)

    def pass_at(self, k: int, metric: Optional[str] = None) -> Optional[Estimate]:
        """The chance that at least one of ``k`` repeats passes (pass@k), over tasks.

        Args:
            k: How many tries; tasks with fewer repeats are left out.
            metric: A pass/fail metric; None takes the success of the call.

        Returns:
            The estimate with a bootstrap interval over tasks, or None without such tasks.

        Raises:
            ConfigurationError: ``k`` is below 1, or the metric is absent or not pass/fail.
        """
        tries = self._checked_tries(k, metric)
        return measures.over_tasks(tries, k, statistics.pass_at_k)

    def pass_hat(self, k: int, metric: Optional[str] = None) -> Optional[Estimate]:
        """The chance that all of ``k`` repeats pass (pass^k), over tasks.

        ``metric``, the result and the errors are those of ``pass_at``.
        """
        tries = self._checked_tries(k, metric)
        return measures.over_tasks(tries, k, statistics.pass_hat_k)

    def cost(self, prices: Prices) -> Cost:
        """What the run's tokens cost at ``{model: (input, output)}`` prices per million tokens.

        Raises:
            ConfigurationError: ``prices`` has another form.
        """
        return cost_of(self.tokens, prices)

    def cloud_scores(self, wait: float = 0.0) -> Any:
        """What the platform's evaluators wrote for this run.

        Args:
            wait: Seconds to wait for scores that are not there yet.

        Raises:
            ConfigurationError: The result was loaded from disk, without access to the cloud.
        """
        if self._score_source is None:
            raise ConfigurationError(
                "This result was loaded without access to the cloud; read cloud_scores from the "
                "result that Experiment.run() returns."
            )
        return self._score_source(self.record_id, wait)

    def to_dicts(self) -> List[Dict[str, Any]]:
        """One dict per row, with input, output and scores."""
        return [row_dict(row, measure) for row, measure in zip(self, self.measures)]

    def to_pandas(self) -> Any:
        """A pandas ``DataFrame`` with one row per attempt and a column per metric.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ConfigurationError(
                "to_pandas() needs pandas; run `pip install pandas`, or use to_dicts()."
            ) from error
        return pandas.DataFrame([_flat(row) for row in self.to_dicts()])

    def to_dict(self) -> Dict[str, Any]:
        """The summary (no rows) as plain JSON values."""
        from .jsonreport import result_dict

        return result_dict(self)

    def sections(self) -> List[Section]:
        """The parts of a report on this run, the headline first."""
        from .resultview import result_sections

        return result_sections(self)

    def _repr_html_(self) -> str:
        from .notebook import fragment

        return fragment(self.sections())

    def __repr__(self) -> str:
        counts = self.counts
        skipped = ", {} skipped".format(counts.skipped) if counts.skipped else ""
        return "<ExperimentResult {!r}: {}, {} succeeded, {} failed{}>".format(
            self.name, counted(counts.total, "row"), counts.succeeded, counts.failed, skipped
        )

    @functools.cached_property
    def _by_task(self) -> Dict[str, List[ResultRow]]:
        grouped: Dict[str, List[ResultRow]] = {}
        for head in self.heads:
            if head.done:
                grouped.setdefault(head.task_id, []).append(head)
        return grouped

    @property
    def _answered(self) -> List[ResultRow]:
        return [head for head in self.heads if _answered(head)]

    def _checked_tries(self, k: int, metric: Optional[str]) -> Sequence[Tuple[int, int]]:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigurationError(
                "k must be a whole number of tries from 1, not {!r}.".format(k)
            )
        if metric is not None:
            summary = self.metrics.get(metric) if isinstance(metric, str) else None
            if summary is None or summary.kind != measures.PASS_FAIL:
                raise ConfigurationError(
                    "{!r} is no pass/fail metric of this result; it has {}.".format(
                        metric, ", ".join(self.metrics) or "no metrics"
                    )
                )
        return self._tries(metric)

    def _tries(self, metric: Optional[str]) -> List[Tuple[int, int]]:
        """(tries, passed) of each task."""
        passes: Dict[str, List[bool]] = {}
        if metric is None:
            for head in self._answered:
                passes.setdefault(head.task_id, []).append(head.status == "success")
        else:
            for measure in self.measures:
                if metric in measure.scores and _answered(measure.row):
                    passed = measure.scores[metric] == 1.0
                    passes.setdefault(measure.row.task_id, []).append(passed)
        return [(len(tries), sum(tries)) for tries in passes.values()]


def load_result(
    result_dir: PathLike,
    *,
    extras: Optional[Mapping[str, Any]] = None,
    score_source: Optional[Callable[[str, float], Any]] = None,
) -> ExperimentResult:
    """Read a results directory, also a running one or one in AgentScope's format. No network.

    Args:
        result_dir: The directory that the experiment wrote.
        extras: Facts to carry along in ``result.extras``.
        score_source: ``(record_id, wait) -> scores`` behind ``result.cloud_scores()``.

    Returns:
        The result as the directory stands now.

    Raises:
        ConfigurationError: ``result_dir`` is no path.
        ResultsDirectoryError: The directory is absent, holds no results or has a newer format.
    """
    stored = read_results(path_of("result_dir", result_dir))
    return ExperimentResult(stored, extras=extras, score_source=score_source)


def row_dict(row: ResultRow, measure: RowMeasures) -> Dict[str, Any]:
    """One row as a dict; reads its payloads."""
    return {
        "task_id": row.task_id,
        "item_id": row.item_id,
        "repeat_id": row.repeat_id,
        "status": row.status,
        "input": row.input,
        "ground_truth": row.ground_truth,
        "output": row.output,
        "error_type": row.error_type,
        "error_message": row.error_message,
        "latency_ms": row.latency_ms,
        "ttft_ms": measure.ttft_ms,
        "input_tokens": sum(pair[0] for pair in row.usage.values()),
        "output_tokens": sum(pair[1] for pair in row.usage.values()),
        "trace_id": row.trace_id,
        "attempt": row.number,
        "delivered": row.delivered,
        "metrics": dict(measure.scores),
    }


def _answered(row: ResultRow) -> bool:
    return row.status in ("success", "failed")


def _flat(row: Dict[str, Any]) -> Dict[str, Any]:
    scores = row.pop("metrics")
    return dict(row, **{"metric." + name: score for name, score in scores.items()})
