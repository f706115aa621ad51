"""Comparing runs: what got better or worse, with what evidence, and which items changed."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from .. import jsontext
from ..arguments import texts_of
from ..errors import ConfigurationError
from ..lines import counted
from ..results.stored import ResultRow
from .baseline import ItemOutcome
from .deltas import BETTER, NO_EVIDENCE, WORSE, MetricDelta, delta_of
from .measures import CATEGORY, PASS_FAIL
from .pairing import ItemPair, Pairing, pair_items
from .sides import Run, Side, load_sides
from .statistics import CONFIDENCE

if TYPE_CHECKING:
    from .sections import Section


SUCCESS, LATENCY, TTFT, TOKENS = "success", "latency_ms", "ttft_ms", "tokens"
MEASURED = (LATENCY, TTFT, TOKENS)

_MOST_RUNS = 5


@dataclass(frozen=True)
class ItemChange:
    """An item whose outcome flipped, and the pass/fail measures in which it did."""

    label: str
    pair: ItemPair
    measures: Tuple[str, ...]


@dataclass(frozen=True, repr=False)
class CandidateComparison:
    """One run against the baseline.

    Attributes:
        baseline, candidate: The two runs.
        pairs: The items both answered.
        only_baseline, only_candidate: Items that only one of them has an answer for.
        deltas: Measure name to its change: ``success``, the metrics, ``latency_ms``, ``ttft_ms``
            and ``tokens``; measures that no pair has are left out.
        newly_broken, newly_fixed: Items whose outcome flipped in ``success`` or a pass/fail metric;
            with repeats an item passes when more than half of them do.
        label_changes: Category metric to how many items went from one value to another.
        configuration: Setting to (baseline's value, candidate's value) where they differ.
    """

    baseline: Side
    candidate: Side
    pairs: Tuple[ItemPair, ...]
    only_baseline: Tuple[ItemOutcome, ...]
    only_candidate: Tuple[ItemOutcome, ...]
    deltas: Mapping[str, MetricDelta]
    newly_broken: Tuple[ItemChange, ...]
    newly_fixed: Tuple[ItemChange, ...]
    label_changes: Mapping[str, Mapping[Tuple[str, str], int]]
    configuration: Mapping[str, Tuple[Any, Any]]

    def __repr__(self) -> str:
        return "<CandidateComparison {!r} against {!r}: {}, {} newly broken>".format(
            self.name, self.baseline.name, self.verdict, counted(len(self.newly_broken), "item")
        )

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.candidate.name

    @property
    def verdict(self) -> str:
        """``worse`` if success or any score is, else ``better`` if any is, else ``no evidence``."""
        verdicts = {delta.verdict for delta in self.quality.values()}
        return WORSE if WORSE in verdicts else BETTER if BETTER in verdicts else NO_EVIDENCE

    @property
    def quality(self) -> Dict[str, MetricDelta]:
        """The deltas of success and the scores, without times and tokens."""
        return {name: delta for name, delta in self.deltas.items() if name not in MEASURED}

    @property
    def changed_inputs(self) -> int:
        """Pairs whose dataset row differs between the runs."""
        return sum(1 for pair in self.pairs if pair.input_changed)

    def outputs(self, pair: ItemPair) -> Optional[Tuple[str, str]]:
        """Both answers to the item as text (its first repeat); None for an imported baseline."""
        old, new = self.answers(pair)
        return None if old is None or new is None else (old, new)

    def answers(self, pair: ItemPair) -> Tuple[Optional[str], Optional[str]]:
        """Each side's answer to the item as text; None of a side that is an imported baseline."""
        rows = (self.baseline.first_row(pair.baseline), self.candidate.first_row(pair.candidate))
        old, new = (None if row is None else answer_text(row) for row in rows)
        return (old, new)

    def diff(self, label: str) -> str:
        """The unified diff of both answers to the item ``label``; "" when they are equal.

        Raises:
            ConfigurationError: No such item is paired, or a side is an imported baseline, which
                holds no answers.
        """
        pair = next((pair for pair in self.pairs if pair.label == label), None)
        if pair is None:
            raise ConfigurationError("No item {!r} was answered in both runs.".format(label))
        texts = self.outputs(pair)
        if texts is None:
            raise ConfigurationError(
                "A baseline file holds no answers; compare two results directories to see diffs."
            )
        return unified(texts, self.baseline.name, self.candidate.name)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two to five runs, each but one compared against the baseline.

    Iterating over it, its length and an index give the entries of ``candidates``.

    Attributes:
        baseline: The run that the others are held against.
        candidates: One entry per other run, with its ``verdict``, measures and changed items.
        confidence: The level of intervals and verdicts, between 0 and 1.
    """

    baseline: Side
    candidates: Tuple[CandidateComparison, ...]
    confidence: float = CONFIDENCE

    def __repr__(self) -> str:
        verdicts = ", ".join("{!r} {}".format(one.name, one.verdict) for one in self)
        return "<Comparison against {!r}: {}>".format(self.baseline.name, verdicts)

    def __iter__(self) -> Iterator[CandidateComparison]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: int) -> CandidateComparison:
        return self.candidates[index]

    @property
    def newly_broken(self) -> Tuple[ItemChange, ...]:
        """The newly broken items of all candidates."""
        return tuple(change for candidate in self for change in candidate.newly_broken)

    @property
    def newly_fixed(self) -> Tuple[ItemChange, ...]:
        """The newly fixed items of all candidates."""
        return tuple(change for candidate in self for change in candidate.newly_fixed)

    @property
    def sides(self) -> Tuple[Side, ...]:
        """All runs, the baseline first."""
        return (self.baseline,) + tuple(candidate.candidate for candidate in self.candidates)

    def to_dict(self) -> Dict[str, Any]:
        """The comparison as plain JSON values."""
        from .jsonreport import comparison_dict

        return comparison_dict(self)

    def sections(self) -> List[Section]:
        """The parts of a report on this comparison, the headline first."""
        from .comparisonview import comparison_sections

        return comparison_sections(self)

    def _repr_html_(self) -> str:
        from .notebook import fragment

        return fragment(self.sections())


def compare(
    runs: Sequence[Run],
    baseline: int = 0,
    *,
    names: Optional[Sequence[str]] = None,
    lower_is_better: Sequence[str] = (),
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Compare two to five runs over the items they have in common. Calls no agent and no cloud.

    Items are paired by task id, then dataset item id, then input; repeats are averaged per item
    first. P values and intervals are not corrected for the number of measures and runs.

    Args:
        runs: Results directories, loaded results, or ``baseline.json`` files and ``Baseline`` s.
        baseline: The position in ``runs`` of the one that the others are held against.
        names: What to call the runs; None takes versions where all differ, else the names of
            their directories or files, else the record names.
        lower_is_better: Metrics of which a smaller value is the better one; latency, time to first
            token and tokens always are.
        confidence: The level of intervals and verdicts, between 0 and 1.

    Returns:
        A comparison with one entry per run other than the baseline.

    Raises:
        ConfigurationError: The arguments do not fit together, or a baseline file cannot be read.
        ResultsDirectoryError: A directory cannot be read.
    """
    _check(runs, baseline, names, confidence)
    lower = frozenset(texts_of("lower_is_better", lower_is_better))
    sides = load_sides(runs, names)
    first = sides.pop(baseline)
    candidates = tuple(_compare(first, side, lower, confidence) for side in sides)
    return Comparison(first, candidates, confidence)


def answer_text(row: ResultRow) -> str:
    """An answer as text for diffs: text as it is, values as indented JSON, a failure as ERROR."""
    if row.status == "failed":
        return "ERROR: {} - {}".format(row.error_type, row.error_message)
    return row.output if isinstance(row.output, str) else jsontext.dumps(row.output, 2)


def unified(texts: Tuple[str, str], old_name: str, new_name: str) -> str:
    """The unified diff of two texts, "" when they are equal."""
    old, new = (text.splitlines() for text in texts)
    return "\n".join(difflib.unified_diff(old, new, old_name, new_name, lineterm="", n=2))


def _check(runs: Any, baseline: Any, names: Any, confidence: Any) -> None:
    if isinstance(runs, (str, bytes)) or not isinstance(runs, Sequence):
        raise ConfigurationError("Give compare() a list of two to five runs.")
    if not 2 <= len(runs) <= _MOST_RUNS:
        raise ConfigurationError("compare() takes two to five runs, not {}.".format(len(runs)))
    whole = isinstance(baseline, int) and not isinstance(baseline, bool)
    if not whole or not 0 <= baseline < len(runs):
        raise ConfigurationError(
            "baseline must be a position in runs (0 to {}), not {!r}.".format(
                len(runs) - 1, baseline
            )
        )
    if names is not None:
        if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
            raise ConfigurationError("names must be a list, one a run, not {!r}.".format(names))
        if len(names) != len(runs):
            raise ConfigurationError("Give as many names as runs.")
    if not isinstance(confidence, float) or not 0 < confidence < 1:
        raise ConfigurationError(
            "confidence must be between 0 and 1, such as 0.95, not {!r}.".format(confidence)
        )


def _compare(
    first: Side, side: Side, lower: "frozenset[str]", confidence: float
) -> CandidateComparison:
    pairing = pair_items(first.baseline.items, side.baseline.items)
    deltas = _deltas(first, side, pairing, lower, confidence)
    return CandidateComparison(
        first,
        side,
        pairing.pairs,
        pairing.only_baseline,
        pairing.only_candidate,
        deltas,
        _changes(pairing, {name: delta.broken for name, delta in deltas.items()}),
        _changes(pairing, {name: delta.fixed for name, delta in deltas.items()}),
        _label_changes(first, side, pairing),
        _differences(first.baseline.configuration, side.baseline.configuration),
    )


def _deltas(
    first: Side, side: Side, pairing: Pairing, lower: "frozenset[str]", confidence: float
) -> Dict[str, MetricDelta]:
    kinds = (first.baseline.kinds, side.baseline.kinds)
    scored = [name for name in kinds[0] if name in kinds[1]]
    deltas: Dict[str, MetricDelta] = {}
    for name in [SUCCESS] + scored + list(MEASURED):
        delta = delta_of(
            name,
            _values(pairing, name),
            pass_fail=name == SUCCESS or all(kind.get(name) == PASS_FAIL for kind in kinds),
            lower_is_better=name in MEASURED or name in lower,
            confidence=confidence,
        )
        if delta is not None:
            deltas[name] = delta
    return deltas


def _values(pairing: Pairing, name: str) -> List[Tuple[int, float, float]]:
    values = []
    for position, pair in enumerate(pairing.pairs):
        old, new = _value(pair.baseline, name), _value(pair.candidate, name)
        if old is not None and new is not None:
            values.append((position, old, new))
    return values


def _value(item: ItemOutcome, name: str) -> Optional[float]:
    if name == SUCCESS:
        return item.passed / item.tries
    if name in MEASURED:
        measured = {LATENCY: item.latency_ms, TTFT: item.ttft_ms, TOKENS: item.tokens}
        return measured[name]
    return item.scores.get(name)


def _changes(pairing: Pairing, positions: Mapping[str, Sequence[int]]) -> Tuple[ItemChange, ...]:
    names: Dict[int, List[str]] = {}
    for name, changed in positions.items():
        for position in changed:
            names.setdefault(position, []).append(name)
    return tuple(
        ItemChange(pairing.pairs[position].label, pairing.pairs[position], tuple(names[position]))
        for position in sorted(names)
    )


def _label_changes(
    first: Side, side: Side, pairing: Pairing
) -> Dict[str, Dict[Tuple[str, str], int]]:
    changes: Dict[str, Dict[Tuple[str, str], int]] = {}
    for name, kind in side.baseline.kinds.items():
        if kind == CATEGORY and first.baseline.kinds.get(name) == CATEGORY:
            changes[name] = dict(_moves(pairing, name).most_common())
    return changes


def _moves(pairing: Pairing, name: str) -> "Counter[Tuple[str, str]]":
    moves: "Counter[Tuple[str, str]]" = Counter()
    for pair in pairing.pairs:
        old, new = pair.baseline.labels.get(name), pair.candidate.labels.get(name)
        if old is not None and new is not None and old != new:
            moves[(old, new)] += 1
    return moves


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    names = list(old) + [name for name in new if name not in old]
    return {
        name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    }
