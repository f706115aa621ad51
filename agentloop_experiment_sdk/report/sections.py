"""What a report says, section by section; text, Markdown and HTML only lay it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, FrozenSet, List, Optional, Sequence, Tuple, Union

from .. import jsontext
from .compare import MEASURED, CandidateComparison, Comparison, ItemChange
from .deltas import MetricDelta
from .gate import GateResult
from .measures import CATEGORY, PASS_FAIL, MetricSummary, Percentiles
from .statistics import Estimate
from .summary import ExperimentResult

Subject = Union[ExperimentResult, Comparison, GateResult]

_LISTED = 20
_EXAMPLE = 300


@dataclass(frozen=True)
class Table:
    """Cells of text under a header; ``right`` has the columns that align right."""

    header: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    right: FrozenSet[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A titled part of a report: lines, a table, and a block of preformatted text."""

    title: str
    lines: Tuple[str, ...] = ()
    table: Optional[Table] = None
    block: str = ""
    level: int = field(default=2)


def sections_of(subject: Subject) -> List[Section]:
    """The sections of a report on ``subject``, its headline first."""
    if isinstance(subject, ExperimentResult):
        return result_sections(subject)
    if isinstance(subject, Comparison):
        return comparison_sections(subject)
    return gate_sections(subject)


def result_sections(result: ExperimentResult) -> List[Section]:
    """The sections of a run."""
    sections = [
        Section(result.name, tuple(_headline(result)), level=1),
        Section("Measures", table=_measures_table(result)),
        _metrics_section(result),
        _repeats_section(result),
        _tokens_section(result),
        _errors_section(result),
    ]
    return [section for section in sections if section.lines or section.table]


def comparison_sections(comparison: Comparison) -> List[Section]:
    """The sections of a comparison."""
    names = ", ".join(candidate.name for candidate in comparison)
    title = "{} against {}".format(names, comparison.baseline.name)
    sections = [Section(title, level=1)]
    for candidate in comparison:
        sections += candidate_sections(candidate)
    looked_at = sum(len(candidate.deltas) for candidate in comparison)
    note = (
        "Intervals are at {:.0%}. {} measures were looked at and their p values are not "
        "corrected for that: about one in {:.0f} shows a difference by chance.".format(
            comparison.confidence, looked_at, 1 / (1 - comparison.confidence)
        )
    )
    return sections + [Section("How to read this", (note,), level=3)]


def candidate_sections(candidate: CandidateComparison) -> List[Section]:
    """The sections of one candidate against the baseline."""
    sections = [
        Section("{}: {}".format(candidate.name, candidate.verdict), tuple(_pair_lines(candidate))),
        Section("Changes", table=_delta_table(candidate), level=3),
        _changes_section("Newly broken", candidate, candidate.newly_broken),
        _changes_section("Newly fixed", candidate, candidate.newly_fixed),
        _labels_section(candidate),
        _configuration_section(candidate),
    ]
    return [section for section in sections if section.lines or section.table]


def gate_sections(verdict: GateResult) -> List[Section]:
    """The sections of a gate's verdict."""
    rows = tuple(
        ("pass" if check.passed else "FAIL", check.name, check.message) for check in verdict.checks
    )
    title = "Gate passed" if verdict.passed else "Gate failed"
    lines = (verdict.result.name,) + tuple(verdict.reasons)
    sections = [
        Section(title, lines, level=1),
        Section("Checks", verdict.notes, Table(("", "check", "found"), rows)),
    ]
    if verdict.comparison is not None:
        sections += candidate_sections(verdict.comparison)
    return sections


def share(value: float) -> str:
    """A share as a percentage; never rounded up to 100 or down to 0."""
    percent = 100 * value
    text = "{:.1f}%".format(percent)
    if text == "100.0%" and value < 1:
        return "99.9%"
    if text == "0.0%" and value > 0:
        return "0.1%"
    return text


def milliseconds(value: float) -> str:
    """A time for people: ms below a second, else seconds."""
    if value < 1000:
        return "{:.0f} ms".format(value)
    return "{:.2f} s".format(value / 1000)


def number(value: float) -> str:
    """A number for people: whole ones with separators, others with four digits."""
    if value == int(value) and abs(value) < 1e15:
        return "{:,}".format(int(value))
    return "{:,.1f}".format(value) if abs(value) >= 1000 else "{:.4g}".format(value)


def measure_text(name: str, kind: str, value: float) -> str:
    """A value of the measure ``name`` with its unit."""
    if kind == PASS_FAIL:
        return share(value)
    return milliseconds(value) if name.endswith("_ms") else number(value)


def measure_name(name: str) -> str:
    """What a person calls a measure."""
    names = {"latency_ms": "latency", "ttft_ms": "time to first token", "tokens": "tokens per row"}
    return names.get(name, name)


def interval_text(estimate: Estimate, kind: str, name: str = "") -> str:
    """``low to high`` of an estimate."""
    low, high = (measure_text(name, kind, value) for value in (estimate.low, estimate.high))
    return "{} to {}".format(low, high)


def signed(name: str, kind: str, value: float) -> str:
    """A change with its sign and unit; of a pass rate in percentage points."""
    sign = "+" if value > 0 else "\u2212" if value < 0 else "\u00b1"
    if kind == PASS_FAIL:
        return "{}{:.1f} pp".format(sign, abs(100 * value))
    return sign + measure_text(name, kind, abs(value))


def _headline(result: ExperimentResult) -> List[str]:
    counts = result.counts
    parts = ["{} rows".format(number(counts.total))]
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
            "{} task folders belong to rows that changed in or left the dataset; "
            "they are not counted".format(counts.stale)
        )
    return [line for line in lines if line]


def _measures_table(result: ExperimentResult) -> Optional[Table]:
    rows: List[Tuple[str, ...]] = []
    if result.success.n:
        success = result.success
        rows.append(("success rate", share(success.value), interval_text(success, PASS_FAIL)))
    for name, spread in (("latency", result.latency), ("time to first token", result.ttft)):
        if spread is not None:
            rows.append((name, "p50 " + milliseconds(spread.p50), _tail(spread)))
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
    for error, count in list(result.errors.items())[:_LISTED]:
        head = next(head for head in result.heads if head.error_type == error)
        example = result.rows_of(head.task_id)
        row = next((row for row in example if row.error_type == error), example[0])
        rows.append((error, number(count), head.label, shorten(row.error_message)))
    table = Table(("error", "rows", "for example", "message"), tuple(rows), frozenset((1,)))
    return Section("Failures", table=table if rows else None)


def _pair_lines(candidate: CandidateComparison) -> List[str]:
    lines = ["{} items in common".format(number(len(candidate.pairs)))]
    if candidate.changed_inputs:
        lines.append("{} of them have another input".format(number(candidate.changed_inputs)))
    for side, items in (
        (candidate.baseline.name, candidate.only_baseline),
        (candidate.name, candidate.only_candidate),
    ):
        if items:
            lines.append("{} items only in {}".format(number(len(items)), side))
    return lines


def _delta_table(candidate: CandidateComparison) -> Optional[Table]:
    rows = tuple(_delta_row(delta) for delta in candidate.deltas.values())
    header = ("measure", "baseline", "this run", "change", "interval", "p", "verdict")
    return Table(header, rows, frozenset((1, 2, 3, 5))) if rows else None


def _delta_row(delta: MetricDelta) -> Tuple[str, ...]:
    name, kind = delta.name, delta.kind
    low, high = (signed(name, kind, value) for value in (delta.delta.low, delta.delta.high))
    return (
        measure_name(name),
        measure_text(name, kind, delta.baseline),
        measure_text(name, kind, delta.candidate),
        signed(name, kind, delta.delta.value),
        "{} to {}".format(low, high),
        "{:.3f}".format(delta.p_value) if delta.p_value >= 0.001 else "<0.001",
        delta.verdict,
    )


def _changes_section(
    title: str, candidate: CandidateComparison, changes: Sequence[ItemChange]
) -> Section:
    rows = tuple(_change_row(candidate, change) for change in changes[:_LISTED])
    rest = len(changes) - len(rows)
    lines = ("and {} more".format(number(rest)),) if rest else ()
    table = Table(("item", "in", "baseline", "this run"), rows) if rows else None
    return Section("{} ({})".format(title, len(changes)) if rows else title, lines, table, level=3)


def _change_row(candidate: CandidateComparison, change: ItemChange) -> Tuple[str, ...]:
    texts = candidate.outputs(change.pair) or ("", "")
    measures = ", ".join(change.measures)
    return (change.label, measures, shorten(texts[0], 120), shorten(texts[1], 120))


def _labels_section(candidate: CandidateComparison) -> Section:
    rows = [
        (name, old, new, number(count))
        for name, moves in candidate.label_changes.items()
        for (old, new), count in list(moves.items())[:_LISTED]
    ]
    table = Table(("metric", "from", "to", "items"), tuple(rows), frozenset((3,))) if rows else None
    return Section("Category changes", table=table, level=3)


def _configuration_section(candidate: CandidateComparison) -> Section:
    rows = tuple(
        (name, _setting(old), _setting(new)) for name, (old, new) in candidate.configuration.items()
    )
    table = Table(("setting", "baseline", "this run"), rows) if rows else None
    return Section("Configuration", table=table, level=3)


def _setting(value: Any) -> str:
    if value is None:
        return "\u2013"
    return shorten(value if isinstance(value, str) else jsontext.dumps(value))


def shorten(text: str, limit: int = _EXAMPLE) -> str:
    """``text`` on one line of at most ``limit`` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"


__all__: List[str] = [
    "MEASURED",
    "Section",
    "Subject",
    "Table",
    "interval_text",
    "measure_name",
    "measure_text",
    "milliseconds",
    "number",
    "sections_of",
    "share",
    "shorten",
    "signed",
]
