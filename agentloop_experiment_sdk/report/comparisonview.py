"""What a report says of a comparison and of a gate's verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from .. import jsontext
from ..lines import counted
from .deltas import MetricDelta
from .sections import (
    LISTED,
    Section,
    Table,
    measure_name,
    measure_text,
    number,
    shorten,
    signed,
    signed_interval,
)

if TYPE_CHECKING:
    from .compare import CandidateComparison, Comparison, ItemChange
    from .gate import GateResult


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
        "corrected for that: about one in {:.0f} shows a difference by chance. Of numbers, p is "
        "that of the sign test, which counts ups and downs but not their size; the verdict follows "
        "the interval, and where fewer than 20 items changed also p.".format(
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
        Section("Checks", verdict.notes, Table(("", "check", "found"), rows, wrap=True)),
    ]
    if verdict.comparison is not None:
        sections += candidate_sections(verdict.comparison)
    return sections


def _pair_lines(candidate: CandidateComparison) -> List[str]:
    lines = [counted(len(candidate.pairs), "item") + " in common"]
    if candidate.changed_inputs:
        changed = candidate.changed_inputs
        have = "has" if changed == 1 else "have"
        lines.append("{} of them {} another input".format(number(changed), have))
    for side, items in (
        (candidate.baseline.name, candidate.only_baseline),
        (candidate.name, candidate.only_candidate),
    ):
        if items:
            lines.append("{} only in {}".format(counted(len(items), "item"), side))
    return lines


def _delta_table(candidate: CandidateComparison) -> Optional[Table]:
    rows = tuple(_delta_row(delta) for delta in candidate.deltas.values())
    header = ("measure", "baseline", "this run", "change", "interval", "p", "verdict")
    # a narrow terminal keeps the change and its interval, on which the verdict rests
    return Table(header, rows, frozenset((1, 2, 3, 4, 5)), spare=(5, 1, 2)) if rows else None


def _delta_row(delta: MetricDelta) -> Tuple[str, ...]:
    name, kind = delta.name, delta.kind
    return (
        measure_name(name),
        measure_text(name, kind, delta.baseline),
        measure_text(name, kind, delta.candidate),
        signed(name, kind, delta.delta.value),
        signed_interval(name, kind, delta.delta.low, delta.delta.high),
        "{:.3f}".format(delta.p_value) if delta.p_value >= 0.001 else "<0.001",
        delta.verdict,
    )


def _changes_section(
    title: str, candidate: CandidateComparison, changes: Sequence[ItemChange]
) -> Section:
    rows = tuple(_change_row(candidate, change) for change in changes[:LISTED])
    lines = ("The first {} are listed.".format(LISTED),) if len(changes) > LISTED else ()
    table = Table(("item", "in", "baseline", "this run"), rows) if rows else None
    return Section("{} ({})".format(title, len(changes)) if rows else title, lines, table, level=3)


def _change_row(candidate: CandidateComparison, change: ItemChange) -> Tuple[str, ...]:
    texts = candidate.answers(change.pair)
    old, new = ("\u2013" if text is None else shorten(text, 120) for text in texts)
    return (change.label, ", ".join(change.measures), old, new)


def _labels_section(candidate: CandidateComparison) -> Section:
    rows = [
        (name, old, new, number(count))
        for name, moves in candidate.label_changes.items()
        for (old, new), count in list(moves.items())[:LISTED]
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
