"""The sums of a repeat's metrics in ``evaluation_result.json``."""

from __future__ import annotations

import pytest

from agentloop_experiment_sdk.results.aggregate import aggregate_metrics


def stored(**scores):
    return {name: {"name": name, "result": score} for name, score in scores.items()}


def test_numbers_have_mean_max_and_min_over_the_tasks_with_a_score() -> None:
    evaluations = {
        "a": stored(f1=0.5),
        "b": stored(f1=1),
        "c": stored(f1=None),
        "gone": stored(f1=9),
    }
    assert aggregate_metrics(evaluations, ["a", "b", "c", "d"]) == {
        "f1": {
            "type": "numerical",
            "involved_tasks": 4,
            "completed_tasks": 2,
            "incomplete_tasks": 2,
            "aggregation": {"mean": 0.75, "max": 1, "min": 0.5},
            "distribution": {"a": 0.5, "b": 1},
        }
    }


def test_categories_have_shares_and_the_tasks_of_each() -> None:
    evaluations = {"a": stored(tone="kind"), "b": stored(tone="rude"), "c": stored(tone="kind")}
    tone = aggregate_metrics(evaluations, ["a", "b", "c"])["tone"]
    assert tone["type"] == "category"
    assert tone["distribution"] == {"kind": ["a", "c"], "rude": ["b"]}
    assert tone["aggregation"] == {"kind": pytest.approx(2 / 3), "rude": pytest.approx(1 / 3)}


def test_true_and_false_are_categories_and_never_numbers() -> None:
    evaluations = {"a": stored(ok=True), "b": stored(ok=False)}
    ok = aggregate_metrics(evaluations, ["a", "b"])["ok"]
    assert (ok["type"], ok["distribution"]) == ("category", {"true": ["a"], "false": ["b"]})
    mixed = aggregate_metrics({"a": stored(ok=True), "b": stored(ok=1)}, ["a", "b"])["ok"]
    assert mixed["distribution"] == {"true": ["a"], "1": ["b"]}


def test_metrics_are_sorted_and_one_without_any_score_is_shown() -> None:
    evaluations = {"a": stored(z=1.0, judge=None), "b": {}}
    result = aggregate_metrics(evaluations, ["a", "b"])
    assert list(result) == ["judge", "z"]
    assert result["judge"] == {
        "type": "category",
        "involved_tasks": 2,
        "completed_tasks": 0,
        "incomplete_tasks": 2,
        "aggregation": {},
        "distribution": {},
    }


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 10**400, [1], {"a": 1}])
def test_what_is_no_score_counts_as_incomplete(score: object) -> None:
    result = aggregate_metrics({"a": stored(m=score), "b": stored(m=2)}, ["a", "b"])["m"]
    assert (result["completed_tasks"], result["distribution"]) == (1, {"b": 2})


def test_the_mean_of_huge_numbers_does_not_overflow() -> None:
    evaluations = {"a": stored(m=1.7e308), "b": stored(m=1.7e308)}
    assert aggregate_metrics(evaluations, ["a", "b"])["m"]["aggregation"]["mean"] == 1.7e308


def test_without_evaluations_there_are_no_metrics() -> None:
    assert aggregate_metrics({}, ["a"]) == {}
