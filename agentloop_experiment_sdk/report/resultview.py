"""What a report says of one run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..lines import counted
from .measures import CATEGORY, PASS_FAIL, MetricSummary, Percentiles, of_others
from .sections import (
    LISTED,
    NOT_SCORED,
    Section,
    Table,
    interval_text,
    measure_name,
    measure_text,
    milliseconds,
    number,
    share,
    shorten,
)

if TYPE_CHECKING:
    from .summary import ExperimentResult


def result_sections(result: ExperimentResult) -> List[Section]:
    """The sections of a run."""
    sections = [
        Section(result.name, tuple(_headline(result)), level=1),
        Section("Measures", table=_measures_table(result)),
        _metrics_section(result),
        _repeats_section(result),
        _tokens_section(result),
        _errors_section(result),
        _skipped_section(result),
    ]
    return [section for section in sections if section.lines or section.table]


def _headline(result: ExperimentResult) -> List[str]:
    counts = result.counts
    parts = [counted(counts.total, "row")]
    for name in ("succeeded", "failed", "skipped", "incomplete", "undelivered"):
        count = getattr(counts, name)
        if count or name == "succeeded":
            parts.append("{} {}".format(number(count), name))
    facts = [
        ("record", result.record_id),
        ("dataset", result.dataset),
        ("version", result.meta.get("version")),
        ("status", result.status),
    ]
    lines = [
        ", ".join(parts),
        ", ".join("{} {}".format(name, value) for name, value in facts if value),
    ]
    if counts.stale:
        lines.append(
            "{} to rows that changed in or left the dataset; not counted".format(
                counted(counts.stale, "task folder", "belongs", "belong")
            )
        )
    others = of_others(result.meta, result.measures)
    if others:
        lines.append(
            "{} answered by another version or with other parameters".format(
                counted(others, "row", "was", "were")
            )
        )
    return [line for line in lines if line]


def _measures_table(result: ExperimentResult) -> Optional[Table]:
    rows: List[Tuple[str, ...]] = []
    if result.success.n:
        success = result.success
        rows.append(("success rate", share(success.value), interval_text(success, PASS_FAIL)))
    for name, spread in (("latency_ms", result.latency), ("ttft_ms", result.ttft)):
        if spread is not None:
            rows.append((measure_name(name), "p50 " + milliseconds(spread.p50), _tail(spread)))
    return Table(("measure", "value", "95% interval / tail"), tuple(rows)) if rows else None


def _tail(spread: Percentiles) -> str:
    return "p90 {}, p99 {}, max {}".format(*map(milliseconds, (spread.p90, spread.p99, spread.max)))


def _metrics_section(result: ExperimentResult) -> Section:
    rows = tuple(_metric_row(summary) for summary in result.metrics.values())
    header = ("metric", "value", "95% interval", "rows", "unscored")
    table = Table(header, rows, frozenset((3, 4))) if rows else None
    return Section("Scores", table=table)


def _metric_row(summary: MetricSummary) -> Tuple[str, ...]:
    tail = (number(summary.n), number(summary.unscored) if summary.unscored else "")
    if not summary.n:
        return (summary.name, NOT_SCORED, "") + tail
    if summary.kind == CATEGORY or summary.estimate is None:
        top = list(summary.distribution.items())[:4]
        return (summary.name, ", ".join("{} {}".format(*pair) for pair in top), "") + tail
    value = measure_text(summary.name, summary.kind, summary.estimate.value)
    return (summary.name, value, interval_text(summary.estimate, summary.kind)) + tail


def _repeats_section(result: ExperimentResult) -> Section:
    """pass@k and pass^k of success and each pass/fail metric, when there are repeats."""
    title, repeats = "Repeats", result.repeats
    if repeats < 2:
        return Section(title)
    names = [name for name, metric in result.metrics.items() if metric.kind == PASS_FAIL]
    rows = []
    for name in [None] + names:
        best, every = result.pass_at(repeats, name), result.pass_hat(repeats, name)
        if best is not None and every is not None:
            rows.append((name or "success", share(best.value), share(every.value), number(best.n)))
    header = ("measure", "pass@{}".format(repeats), "pass^{}".format(repeats), "tasks")
    table = Table(header, tuple(rows), frozenset((1, 2, 3))) if rows else None
    return Section(title, table=table)


def _tokens_section(result: ExperimentResult) -> Section:
    rows = tuple(
        (model, number(used.input), number(used.output), number(used.total), number(used.calls))
        for model, used in result.tokens.items()
    )
    header = ("model", "input", "output", "total", "rows")
    table = Table(header, rows, frozenset((1, 2, 3, 4))) if rows else None
    return Section("Tokens", table=table)


def _errors_section(result: ExperimentResult) -> Section:
    rows = []
    for error, count in list(result.errors.items())[:LISTED]:
        head = next(head for head in result.heads if head.error_type == error)
        example = result.rows_of(head.task_id)
        row = next((row for row in example if row.error_type == error), example[0])
        rows.append((error, number(count), head.label, shorten(row.error_message)))
    header = ("error", "rows", "for example", "message")
    table = Table(header, tuple(rows), frozenset((1,)), wrap=True)
    return Section("Failures", table=table if rows else None)


def _skipped_section(result: ExperimentResult) -> Section:
    skipped = [head for head in result.heads if head.status == "skipped"]
    if not skipped:
        return Section("Skipped rows")
    first = replace(skipped[0])  # what is read of a head stays in memory
    row = (number(len(skipped)), first.label, shorten(first.skip_reason))
    table = Table(("rows", "for example", "reason"), (row,), frozenset((0,)), wrap=True)
    return Section("Skipped rows", table=table)
