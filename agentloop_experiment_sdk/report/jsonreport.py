"""The reports as strict JSON, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Dict, Optional

from .. import jsontext
from ..arguments import check_count
from .arguments import check_subject
from .deltas import MetricDelta
from .measures import MetricSummary
from .sections import Subject
from .statistics import Estimate

if TYPE_CHECKING:
    from .compare import CandidateComparison, Comparison, ItemChange
    from .gate import GateResult
    from .summary import ExperimentResult


def render_json(subject: Subject, *, indent: Optional[int] = 2) -> str:
    """A result, comparison or gate verdict as strict JSON (RFC 8259).

    Args:
        subject: What to render; a result's rows are left out (``to_dicts()`` has them).
        indent: Spaces per level; None writes one line.

    Raises:
        ConfigurationError: An argument is something else.
    """
    check_subject(subject)
    if indent is not None:
        check_count("indent", indent, 0)
    return jsontext.dumps(subject.to_dict(), indent)


def result_dict(result: ExperimentResult) -> Dict[str, Any]:
    """The summary of a run."""
    return {
        "record_id": result.record_id,
        "name": result.name,
        "status": result.status,
        "dataset": result.dataset,
        "path": result.path,
        "counts": asdict(result.counts),
        "success_rate": result.success_rate,
        "success": _estimate(result.success if result.success.n else None),
        "latency_ms": None if result.latency is None else asdict(result.latency),
        "ttft_ms": None if result.ttft is None else asdict(result.ttft),
        "tokens": {
            model: {"input": used.input, "output": used.output, "total": used.total}
            for model, used in result.tokens.items()
        },
        "errors": result.errors,
        "metrics": {name: _metric(summary) for name, summary in result.metrics.items()},
    }


def comparison_dict(comparison: Comparison) -> Dict[str, Any]:
    """A comparison, one entry per candidate."""
    return {
        "baseline": {
            "name": comparison.baseline.name,
            "record_id": comparison.baseline.baseline.record_id,
        },
        "confidence": comparison.confidence,
        "candidates": [_candidate(candidate) for candidate in comparison],
    }


def gate_dict(verdict: GateResult) -> Dict[str, Any]:
    """A gate's verdict."""
    return {
        "passed": verdict.passed,
        "reasons": verdict.reasons,
        "notes": list(verdict.notes),
        "checks": [asdict(check) for check in verdict.checks],
        "record_id": verdict.result.record_id,
        "name": verdict.result.name,
    }


def _estimate(estimate: Optional[Estimate]) -> Optional[Dict[str, Any]]:
    return None if estimate is None else asdict(estimate)


def _metric(summary: MetricSummary) -> Dict[str, Any]:
    return {
        "kind": summary.kind,
        "mean": None if summary.estimate is None else summary.estimate.value,
        "interval": _estimate(summary.estimate),
        "distribution": dict(summary.distribution),
        "rows": summary.n,
        "unscored": summary.unscored,
    }


def _candidate(candidate: CandidateComparison) -> Dict[str, Any]:
    return {
        "name": candidate.name,
        "record_id": candidate.candidate.baseline.record_id,
        "verdict": candidate.verdict,
        "pairs": len(candidate.pairs),
        "changed_inputs": candidate.changed_inputs,
        "only_baseline": [item.label for item in candidate.only_baseline],
        "only_candidate": [item.label for item in candidate.only_candidate],
        "deltas": {name: _delta(delta) for name, delta in candidate.deltas.items()},
        "newly_broken": [_change(change) for change in candidate.newly_broken],
        "newly_fixed": [_change(change) for change in candidate.newly_fixed],
        "label_changes": {
            name: [{"from": old, "to": new, "items": n} for (old, new), n in moves.items()]
            for name, moves in candidate.label_changes.items()
        },
        "configuration": {
            name: {"baseline": old, "candidate": new}
            for name, (old, new) in candidate.configuration.items()
        },
    }


def _delta(delta: MetricDelta) -> Dict[str, Any]:
    return {
        "kind": delta.kind,
        "lower_is_better": delta.lower_is_better,
        "baseline": delta.baseline,
        "candidate": delta.candidate,
        "delta": _estimate(delta.delta),
        "p_value": delta.p_value,
        "test": delta.test,
        "verdict": delta.verdict,
        "broken": len(delta.broken),
        "fixed": len(delta.fixed),
    }


def _change(change: ItemChange) -> Dict[str, Any]:
    return {
        "item": change.label,
        "baseline_task": change.pair.baseline.task_id,
        "candidate_task": change.pair.candidate.task_id,
        "measures": list(change.measures),
    }
