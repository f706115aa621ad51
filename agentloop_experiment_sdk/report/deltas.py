"""How one measure changed between two runs, and whether that is evidence or noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from . import statistics
from .measures import NUMERICAL, PASS_FAIL, is_pass_fail
from .statistics import CONFIDENCE, Estimate

BETTER, WORSE, NO_EVIDENCE = "better", "worse", "no evidence"

# With fewer changed pairs than this an interval of the bootstrap is too narrow to be believed
# alone, and the sign test, which is exact at any size, has to agree.
_FEW_CHANGES = 20


@dataclass(frozen=True)
class MetricDelta:
    """The change of one measure over the paired items.

    Attributes:
        name: ``success``, a metric's name, ``latency_ms``, ``ttft_ms`` or ``tokens``.
        kind: ``pass/fail`` or ``numerical``.
        lower_is_better: Whether a smaller value is the better one.
        baseline, candidate: Means over the pairs.
        delta: Candidate minus baseline with its interval; ``n`` is the number of pairs.
        p_value: Of the exact McNemar test for pass/fail, of the sign test for numbers.
        test: Which tests decided.
        verdict: ``better``, ``worse`` or ``no evidence``.
        broken, fixed: For pass/fail, the pairs' positions that no longer pass, or now pass.
    """

    name: str
    kind: str
    lower_is_better: bool
    baseline: float
    candidate: float
    delta: Estimate
    p_value: float
    test: str
    verdict: str
    broken: Tuple[int, ...] = ()
    fixed: Tuple[int, ...] = ()

    @property
    def relative(self) -> Optional[float]:
        """The change as a share of the baseline, or None when that is 0."""
        return self.delta.value / abs(self.baseline) if self.baseline else None


def delta_of(
    name: str,
    pairs: Sequence[Tuple[int, float, float]],
    *,
    pass_fail: bool = False,
    lower_is_better: bool = False,
    confidence: float = CONFIDENCE,
) -> Optional[MetricDelta]:
    """The change over ``pairs`` of (position, baseline value, candidate value); None without any.

    Values are means over the repeats of an item. A pass/fail measure with one repeat a task is
    decided by the exact McNemar test; with repeats its values are shares, and like numbers they are
    decided by the paired bootstrap, and by the sign test where few pairs changed. P values are not
    corrected for the number of measures that are looked at.
    """
    if not pairs:
        return None
    old = [pair[1] for pair in pairs]
    new = [pair[2] for pair in pairs]
    single = pass_fail and is_pass_fail(old) and is_pass_fail(new)
    decide = _mcnemar if single else _bootstrap
    delta, p_value, test, evident = decide(old, new, confidence)
    broken, fixed = _changed(pairs, lower_is_better) if pass_fail else ((), ())
    return MetricDelta(
        name,
        PASS_FAIL if pass_fail else NUMERICAL,
        lower_is_better,
        math.fsum(old) / len(old),
        math.fsum(new) / len(new),
        delta,
        p_value,
        test,
        _verdict(delta.value, evident, lower_is_better),
        broken,
        fixed,
    )


_Decision = Tuple[Estimate, float, str, bool]


def _mcnemar(old: Sequence[float], new: Sequence[float], confidence: float) -> _Decision:
    lost = sum(1 for before, after in zip(old, new) if before > after)
    won = sum(1 for before, after in zip(old, new) if before < after)
    both = sum(1 for before, after in zip(old, new) if before and after)
    neither = len(old) - both - lost - won
    delta = statistics.paired_proportions(both, lost, won, neither, confidence)
    p_value = statistics.mcnemar_exact(lost, won)
    return delta, p_value, "McNemar (exact)", p_value < 1 - confidence


def _bootstrap(old: Sequence[float], new: Sequence[float], confidence: float) -> _Decision:
    differences = [after - before for before, after in zip(old, new)]
    delta = statistics.paired_bootstrap(old, new, confidence)
    p_value = statistics.sign_test(differences)
    evident = delta.low > 0 or delta.high < 0
    if sum(1 for difference in differences if difference) < _FEW_CHANGES:
        return delta, p_value, "sign test", evident and p_value < 1 - confidence
    return delta, p_value, "paired bootstrap", evident


def _verdict(change: float, evident: bool, lower_is_better: bool) -> str:
    if not evident or change == 0:
        return NO_EVIDENCE
    return BETTER if (change < 0) == lower_is_better else WORSE


def _changed(
    pairs: Sequence[Tuple[int, float, float]], lower_is_better: bool
) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    broken: List[int] = []
    fixed: List[int] = []
    for position, before, after in pairs:
        passed = _passes(before, lower_is_better), _passes(after, lower_is_better)
        if passed == (True, False):
            broken.append(position)
        elif passed == (False, True):
            fixed.append(position)
    return tuple(broken), tuple(fixed)


def _passes(value: float, lower_is_better: bool) -> bool:
    """Whether more than half of the repeats passed."""
    return value < 0.5 if lower_is_better else value > 0.5
