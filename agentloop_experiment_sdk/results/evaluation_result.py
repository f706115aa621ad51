"""``evaluation_result.json``: what a run adds up to, in AgentScope's ``schema_version`` 1. Pure."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

from ..models import Task
from .journal import JournalState, Saved
from .layout import SCHEMA_VERSION


def evaluation_result(
    tasks: Sequence[Task],
    n_repeat: int,
    state: JournalState,
    metrics: Mapping[str, Mapping[str, Any]],
) -> Dict[str, Any]:
    """The aggregate over the plan's present tasks.

    Args:
        tasks: The plan's present tasks.
        n_repeat: How often each was run.
        state: What is on disk.
        metrics: Repeat id to the aggregated metrics of local evaluators.

    Returns:
        AgentScope's keys, and for each repeat also ``failed_tasks``: completed ones that failed.
    """
    repeats = {
        str(repeat): _repeat(tasks, str(repeat), state, metrics.get(str(repeat), {}))
        for repeat in range(n_repeat)
    }
    total = _no_stats()
    for repeat_result in repeats.values():
        _add_stats(total, repeat_result["stats"])
    return {
        "total_tasks": len(tasks),
        "total_repeats": n_repeat,
        "total_stats": total,
        "repeats": repeats,
        "schema_version": SCHEMA_VERSION,
    }


def _repeat(
    tasks: Sequence[Task], repeat_id: str, state: JournalState, metrics: Mapping[str, Any]
) -> Dict[str, Any]:
    stats = _no_stats()
    completed, incomplete, failed = [], [], 0
    for task in tasks:
        saved = state.saved.get((task.id, repeat_id))
        if saved is None:
            incomplete.append(task.id)
            continue
        completed.append(task.id)
        failed += saved.status == "failed"
        _add_usage(stats, saved)
    return {
        "completed_tasks": len(completed),
        "incomplete_tasks": len(incomplete),
        "failed_tasks": failed,
        "metrics": dict(metrics),
        "completed_ids": completed,
        "incomplete_ids": incomplete,
        "stats": stats,
    }


def _no_stats() -> Dict[str, Any]:
    return {"llm": {}, "agent": 0, "tool": {}, "embedding": {}, "chat_usage": {}}


def _add_usage(stats: Dict[str, Any], saved: Saved) -> None:
    for model, (input_tokens, output_tokens) in saved.usage.items():
        stats["llm"][model] = stats["llm"].get(model, 0) + 1
        _add_tokens(stats["chat_usage"], model, input_tokens, output_tokens)


def _add_tokens(usage: Dict[str, Any], model: str, input_tokens: int, output_tokens: int) -> None:
    tokens = usage.setdefault(model, {"input_tokens": 0, "output_tokens": 0})
    tokens["input_tokens"] += input_tokens
    tokens["output_tokens"] += output_tokens


def _add_stats(total: Dict[str, Any], stats: Mapping[str, Any]) -> None:
    for model, calls in stats["llm"].items():
        total["llm"][model] = total["llm"].get(model, 0) + calls
    for model, tokens in stats["chat_usage"].items():
        _add_tokens(total["chat_usage"], model, tokens["input_tokens"], tokens["output_tokens"])
