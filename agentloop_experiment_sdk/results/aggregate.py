"""The metrics of a repeat, summed up for ``evaluation_result.json`` in AgentScope's keys. Pure."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Sequence

CATEGORY = "category"
NUMERICAL = "numerical"

# task id -> metric name -> content of evaluation/<metric>.json
Evaluations = Mapping[str, Mapping[str, Mapping[str, Any]]]


def aggregate_metrics(evaluations: Evaluations, involved: Sequence[str]) -> Dict[str, Any]:
    """Metric name to its aggregate over one repeat, sorted by name.

    Args:
        evaluations: What is stored, by task id and metric name.
        involved: Ids of the tasks that should have scores: the present ones, without skipped rows.

    Returns:
        For each metric ``type`` (``numerical`` when every score is a number), ``involved_tasks``,
        ``completed_tasks`` (those with a score), ``incomplete_tasks``, ``aggregation`` (mean, max
        and min, or each category's share) and ``distribution`` (task id to score, or category to
        task ids). True and False are the categories ``true`` and ``false``. Mean and shares are
        over the tasks that have a score: a failed evaluator is no bad answer.
    """
    names = {name for task_id in involved for name in evaluations.get(task_id, {})}
    return {name: _aggregate(name, evaluations, involved) for name in sorted(names)}


def _aggregate(name: str, evaluations: Evaluations, involved: Sequence[str]) -> Dict[str, Any]:
    found = {task_id: evaluations.get(task_id, {}).get(name, {}) for task_id in involved}
    scores: Dict[str, Any] = {
        task_id: content["result"]
        for task_id, content in found.items()
        if isinstance(content.get("result"), (bool, str)) or _is_number(content.get("result"))
    }
    summed = _numerical if scores and all(map(_is_number, scores.values())) else _categories
    return dict(
        summed(scores),
        involved_tasks=len(found),
        completed_tasks=len(scores),
        incomplete_tasks=len(found) - len(scores),
    )


def _is_number(score: Any) -> bool:
    try:
        return type(score) in (int, float) and math.isfinite(score)
    except OverflowError:  # an int beyond every float
        return False


def _numerical(scores: Mapping[str, float]) -> Dict[str, Any]:
    values = list(scores.values())
    mean = math.fsum(value / len(values) for value in values)  # the sum itself could overflow
    aggregation = {"mean": mean, "max": max(values), "min": min(values)}
    return {"type": NUMERICAL, "aggregation": aggregation, "distribution": dict(scores)}


def _categories(scores: Mapping[str, Any]) -> Dict[str, Any]:
    categories: Dict[str, List[str]] = {}
    for task_id, score in scores.items():
        text = str(score).lower() if isinstance(score, bool) else str(score)
        categories.setdefault(text, []).append(task_id)
    distribution = dict(sorted(categories.items()))
    shares = {category: len(ids) / len(scores) for category, ids in distribution.items()}
    return {"type": CATEGORY, "aggregation": shares, "distribution": distribution}
