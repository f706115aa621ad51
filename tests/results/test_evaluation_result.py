"""The aggregate in AgentScope's schema."""

from __future__ import annotations

from results_values import saved, task, tasks

from agentloop_experiment_sdk.results.evaluation_result import evaluation_result
from agentloop_experiment_sdk.results.journal import JournalState


def test_counts_and_tokens_are_summed_by_repeat_and_in_total() -> None:
    entries = [
        saved(0, usage={"m": (1, 2)}),
        saved(1, status="failed", usage={"m": (3, 4), "n": (5, 6)}),
        saved(0, repeat_id="1", status="skipped"),
        saved(9, usage={"m": (100, 100)}),  # a row that left the plan
    ]
    state = JournalState({entry.key: entry for entry in entries})
    found = evaluation_result(tasks(2), 2, state, {"0": {"exact": {"type": "numerical"}}})
    assert found["total_tasks"] == 2 and found["total_repeats"] == 2
    assert found["schema_version"] == 1
    first, second = found["repeats"]["0"], found["repeats"]["1"]
    assert first["metrics"] == {"exact": {"type": "numerical"}} and second["metrics"] == {}
    assert (first["completed_tasks"], first["incomplete_tasks"], first["failed_tasks"]) == (2, 0, 1)
    assert second["completed_ids"] == [task(0).id] and second["incomplete_ids"] == [task(1).id]
    assert found["total_stats"] == {
        "llm": {"m": 2, "n": 1},
        "agent": 0,
        "tool": {},
        "embedding": {},
        "chat_usage": {
            "m": {"input_tokens": 4, "output_tokens": 6},
            "n": {"input_tokens": 5, "output_tokens": 6},
        },
    }


def test_a_run_without_answers_has_an_aggregate_too() -> None:
    found = evaluation_result(tasks(1), 1, JournalState(), {})
    assert found["repeats"]["0"]["incomplete_tasks"] == 1
    assert found["total_stats"]["llm"] == {}
