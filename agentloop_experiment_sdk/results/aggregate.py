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
    scores = {}
    for task_id in involved:
        score = evaluations.get(task_id, {}).get(name, {}).get("result")
        if _is_score(score):
            scores[task_id] = score
    numerical = bool(scores) and all(_is_number(score) for score in scores.values())
    distribution = scores if numerical else _by_category(scores)
    return {
        "type": NUMERICAL if numerical else CATEGORY,
        "involved_tasks": len(involved),
        "completed_tasks": len(scores),
        "incomplete_tasks": len(involved) - len(scores),
        "aggregation": _statistics(list(scores.values())) if numerical else _shares(distribution),
        "distribution": distribution,
    }


def _is_number(score: Any) -> bool:
    return isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score)


def _is_score(score: Any) -> bool:
    return isinstance(score, (bool, str)) or _is_number(score)


def _statistics(scores: List[float]) -> Dict[str, float]:
    mean = math.fsum(scores) / len(scores)
    return {"mean": mean, "max": max(scores), "min": min(scores)}


def _by_category(scores: Mapping[str, Any]) -> Dict[str, List[str]]:
    categories: Dict[str, List[str]] = {}
    for task_id, score in scores.items():
        text = str(score).lower() if isinstance(score, bool) else str(score)
        categories.setdefault(text, []).append(task_id)
    return dict(sorted(categories.items()))


def _shares(categories: Mapping[str, List[str]]) -> Dict[str, float]:
    total = sum(map(len, categories.values()))
    return {category: len(task_ids) / total for category, task_ids in categories.items()}
