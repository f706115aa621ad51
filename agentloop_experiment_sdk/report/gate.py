"""The gate of a CI job: a run passes or fails for stated reasons, and never by accident."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from ..arguments import check_flags
from ..errors import ConfigurationError
from ..lines import counted
from ..results.attempts import is_other, setup_of
from ..results.stored import mapping_of
from .compare import CandidateComparison, compare
from .deltas import WORSE
from .limits import GateCheck, check_limits, limit_checks
from .measures import PASS_FAIL
from .pricing import Prices
from .sides import Run, load_run
from .summary import ExperimentResult, PathLike

if TYPE_CHECKING:
    from .sections import Section

_NAMED_ITEMS = 10


@dataclass(frozen=True, repr=False)
class GateResult:
    """Whether a run may pass, and why not. Its truth value is ``passed``.

    Attributes:
        result: The run.
        checks: Every condition that was looked at.
        comparison: The comparison with the baseline, when one was given.
        notes: What does not decide but should be known.
    """

    result: ExperimentResult
    checks: Tuple[GateCheck, ...]
    comparison: Optional[CandidateComparison] = None
    notes: Tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every condition held."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> List[str]:
        """Why the run did not pass; empty when it did."""
        return [check.message for check in self.checks if not check.passed]

    def __repr__(self) -> str:
        if self.passed:
            return "<GateResult passed>"
        return "<GateResult failed: {}>".format("; ".join(self.reasons))

    def __bool__(self) -> bool:
        return self.passed

    def to_dict(self) -> Dict[str, Any]:
        """The verdict as plain JSON values."""
        from .jsonreport import gate_dict

        return gate_dict(self)

    def sections(self) -> List[Section]:
        """The parts of a report on this verdict, the headline first."""
        from .comparisonview import gate_sections

        return gate_sections(self)

    def _repr_html_(self) -> str:
        from .notebook import fragment

        return fragment(self.sections())


def gate(
    result: Union[PathLike, ExperimentResult],
    baseline: Optional[Run] = None,
    *,
    min_success_rate: Optional[float] = None,
    max_regressions: Optional[int] = None,
    min_scores: Optional[Mapping[str, float]] = None,
    max_p90_latency: Optional[float] = None,
    max_cost: Optional[float] = None,
    require_delivered: bool = True,
    allow_stale: bool = False,
    allow_incomplete: bool = False,
    prices: Optional[Prices] = None,
) -> GateResult:
    """Decide whether a run is good enough. Calls no agent and no cloud.

    A run without a single answered row never passes, nor one whose rows all failed (unless
    ``min_success_rate`` decides about that), nor one that lacks rows, nor one with rows that
    another solution, version or parameters answered (left from an earlier run in the same
    directory).

    Args:
        result: A results directory or a loaded result.
        baseline: A run to hold it against: a results directory, a result, or a ``baseline.json``
            of ``export_baseline``. A score that is worse with evidence fails the gate; so does the
            success rate, and a pass/fail metric, unless ``max_regressions`` decides about those.
            Items answered here that lack a score of the baseline fail it too.
        min_success_rate: Least share of succeeded rows, 0 to 1; skipped rows do not count.
        max_regressions: Most items that passed in the baseline and no longer pass.
        min_scores: Metric name to its least mean.
        max_p90_latency: Most **seconds** at the 90th percentile of the agent calls.
        max_cost: Most cost, in the currency of ``prices``.
        require_delivered: Whether undelivered rows fail the gate.
        allow_stale: Whether rows of another solution fingerprint, version or parameters may count.
        allow_incomplete: Whether rows without a result may be missing.
        prices: ``{model: (input, output)}`` **per million tokens**; ``"*"`` stands for any other.

    Returns:
        The verdict with its reasons.

    Raises:
        ConfigurationError: A limit is out of range, or lacks what it needs (a baseline, prices).
        ResultsDirectoryError: A directory cannot be read.
    """
    check_flags(
        require_delivered=require_delivered,
        allow_stale=allow_stale,
        allow_incomplete=allow_incomplete,
    )
    check_limits(
        baseline, min_success_rate, max_regressions, min_scores, max_p90_latency, max_cost, prices
    )
    loaded = load_run(result)
    if not isinstance(loaded, ExperimentResult):
        raise ConfigurationError("gate() judges a results directory, not a baseline file.")
    checks = [_answered(loaded, may_all_fail=min_success_rate is not None)]
    checks += _soundness(loaded, require_delivered, allow_stale, allow_incomplete)
    checks += limit_checks(loaded, min_success_rate, min_scores, max_p90_latency, max_cost, prices)
    if baseline is None:
        return GateResult(loaded, tuple(checks))
    candidate = compare([baseline, loaded], names=("baseline", "this run"))[0]
    checks += _against_baseline(candidate, max_regressions)
    return GateResult(loaded, tuple(checks), candidate, tuple(_notes(candidate)))


def _soundness(
    result: ExperimentResult, require_delivered: bool, allow_stale: bool, allow_incomplete: bool
) -> List[GateCheck]:
    """Whether the results mean anything at all."""
    counts = result.counts
    checks = []
    if not allow_incomplete:
        checks.append(_none_of("complete", counts.incomplete, counts.total))
    if require_delivered:
        checks.append(_none_of("delivered", counts.undelivered, counts.total))
    if not allow_stale:
        checks.append(_none_of("current solution", stale_rows(result), counts.total))
    return checks


def _answered(result: ExperimentResult, may_all_fail: bool) -> GateCheck:
    """Whether there is anything to judge; ``may_all_fail`` leaves failures to another check."""
    counts = result.counts
    if not counts.succeeded + counts.failed:
        return GateCheck("answered", False, "no row was answered: an empty run never passes")
    if not counts.succeeded and not may_all_fail:
        return GateCheck("answered", False, all_failed(result))
    message = counted(counts.succeeded + counts.failed, "row", "was", "were") + " answered"
    return GateCheck("answered", True, message)


def all_failed(result: ExperimentResult) -> str:
    """What is wrong with a run none of whose rows succeeded, or ""."""
    failed = result.counts.failed
    if not failed or result.counts.succeeded:
        return ""
    return "every row failed ({} of {})".format(failed, failed)


_NONE_OF = {
    "complete": (
        "every row has a result",
        "{} of {} no result; resume the run",
        ("has", "have"),
    ),
    "delivered": (
        "every row is delivered",
        "{} of {} not delivered; send them with `agentloop-experiment deliver`",
        ("is", "are"),
    ),
    "current solution": (
        "every row was answered by the run's solution",
        "{} of {} answered by another version of the solution; "
        "run again with resume=False, or pass allow_stale=True",
        ("was", "were"),
    ),
}


def _none_of(name: str, count: int, total: int) -> GateCheck:
    fine, wrong, verbs = _NONE_OF[name]
    told = wrong.format(count, counted(total, "row", *verbs)) if count else fine
    return GateCheck(name, not count, told)


def stale_rows(result: ExperimentResult) -> int:
    """Rows whose solution fingerprint, version or parameters are not the run's.

    What the run, or the row, does not say is no difference.
    """
    current = str(mapping_of(result.meta.get("solution")).get("hash") or "")
    setup = setup_of(result.meta)
    return sum(
        1
        for measure in result.measures
        if measure.row.done
        and (current not in ("", measure.solution_hash) or is_other(measure.setup, setup))
    )


def _against_baseline(
    candidate: CandidateComparison, max_regressions: Optional[int]
) -> List[GateCheck]:
    if not candidate.pairs:
        return [GateCheck("baseline", False, "the run has no item in common with the baseline")]
    checks = _lacking(candidate)
    if max_regressions is not None:
        checks.append(_regressions(candidate, max_regressions))
    for name, delta in candidate.quality.items():
        if max_regressions is None or delta.kind != PASS_FAIL:
            message = "{} went from {:.4g} to {:.4g} over {}: {}".format(
                name,
                delta.baseline,
                delta.candidate,
                counted(delta.delta.n, "item"),
                delta.verdict,
            )
            checks.append(GateCheck("baseline " + name, delta.verdict != WORSE, message))
    return checks


def _lacking(candidate: CandidateComparison) -> List[GateCheck]:
    """A failed check per metric of the baseline that answered items of the run lack.

    Without it a forgotten or broken evaluator would hide every regression. Items none of whose rows
    succeeded are broken anyway: ``success`` says so.
    """
    lacking: "Counter[str]" = Counter()
    for pair in candidate.pairs:
        old, new = pair.baseline, pair.candidate
        if new.passed:
            lacking.update(name for name in old.scores if name not in new.scores)
            known = {*new.labels, *new.scores}
            lacking.update(name for name in old.labels if name not in known)
    result = candidate.candidate.result
    failed = tuple({name for m in (result.measures if result else ()) for name in m.unscored})
    return [
        GateCheck(
            "baseline has " + name,
            False,
            "the baseline has {} for {} no score here: {}".format(
                name,
                counted(count, "item", "that has", "that have"),
                "its evaluator failed; mend it and score the run again"
                if name in failed or name.startswith(tuple(part + "." for part in failed))
                else "give its evaluator, or export a new baseline without it",
            ),
        )
        for name, count in sorted(lacking.items())
    ]


def _regressions(candidate: CandidateComparison, most: int) -> GateCheck:
    broken = candidate.newly_broken
    message = "{} (at most {:,} allowed)".format(
        counted(len(broken), "item", "no longer passes", "no longer pass"), most
    )
    if broken:
        named = ", ".join(change.label for change in broken[:_NAMED_ITEMS])
        rest = len(broken) - _NAMED_ITEMS
        message += ": " + named + (" and {} more".format(rest) if rest > 0 else "")
    return GateCheck("max_regressions", len(broken) <= most, message)


def _notes(candidate: CandidateComparison) -> List[str]:
    notes = []
    if candidate.only_baseline:
        notes.append(
            "{} of the baseline without an answer in this run".format(
                counted(len(candidate.only_baseline), "item")
            )
        )
    if candidate.changed_inputs:
        notes.append(
            "{} another input than in the baseline".format(
                counted(candidate.changed_inputs, "item", "has", "have")
            )
        )
    return notes
