from __future__ import annotations

import math

import pytest
from results_builder import build, build_plain, row

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.report.baseline import export_baseline
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.html import render_html
from agentloop_experiment_sdk.report.summary import load_result
from agentloop_experiment_sdk.report.text import render_text

USAGE = {"input_tokens": 1_000_000, "output_tokens": 500_000, "model": "qwen"}


@pytest.fixture
def good(tmp_path):
    rows = [
        row("q%d" % i, latency_ms=1000.0 + i, scores={"em": True, "f": 0.8}, usage=USAGE)
        for i in range(10)
    ]
    return build(tmp_path / "good", rows)


def only_reason(verdict):
    assert not verdict and not verdict.passed
    (reason,) = verdict.reasons
    return reason


def test_a_sound_run_passes_without_limits(good):
    verdict = gate(good)
    assert verdict and verdict.passed and verdict.reasons == []
    assert [check.name for check in verdict.checks] == [
        "answered",
        "complete",
        "delivered",
        "current solution",
    ]


def test_every_limit_that_holds_passes(good):
    verdict = gate(
        load_result(good),
        min_success_rate=1,
        min_scores={"em": 1, "f": 0.8},
        max_p90_latency=1.01,
        max_cost=60,
        prices={"qwen": (2, 8)},
    )
    assert verdict.passed and len(verdict.checks) == 9


def test_what_just_misses_a_limit_does_not_read_like_it(tmp_path):
    scores = (1, 0.5, 0.5)
    rows = [row(n, latency_ms=123.4, scores={"f": score}) for n, score in enumerate(scores)]
    path = build(tmp_path, rows)
    assert only_reason(gate(path, min_scores={"f": 0.6667})) == "f 0.6666666667 is below 0.6667"
    assert only_reason(gate(path, max_p90_latency=0.123)) == "p90 latency 0.1234 s is above 0.123 s"


def test_what_equals_a_limit_reaches_it_whatever_floating_point_adds_up_to(tmp_path):
    scores = (0.7, 0.2, 0.6, 0.7)
    assert math.fsum(scores) / 4 < 0.55
    usage = {"input_tokens": 100_000, "output_tokens": 0}
    rows = [
        row(n, scores={"f": score}, usage=dict(usage, model=str(n % 3)))
        for n, score in enumerate(scores)
    ]
    prices = {"0": (0.5, 0), "1": (2, 0), "2": (3, 0)}
    verdict = gate(build(tmp_path, rows), min_scores={"f": 0.55}, max_cost=0.6, prices=prices)
    assert verdict.passed, verdict.reasons
    assert "f 0.55 is at least 0.55" in [check.message for check in verdict.checks]


def test_every_limit_that_does_not_hold_is_a_reason(good):
    verdict = gate(
        good,
        min_scores={"f": 0.9, "unknown": 0},
        max_p90_latency=1.0,
        max_cost=59.99,
        prices={"*": (2, 8)},
    )
    assert len(verdict.reasons) == 4
    assert "f 0.8 is below 0.9" in verdict.reasons[2]
    assert "no scores 'unknown' (metrics: em, f)" in verdict.reasons[3]
    assert "p90 latency 1.008 s is above 1 s" in verdict.reasons[0]
    assert "cost 60.0000 is above 59.99" in verdict.reasons[1]


@pytest.mark.parametrize("status", ["incomplete", "skipped"])
def test_a_run_without_answers_never_passes(tmp_path, status):
    path = build(tmp_path, [row("a", status=status)])
    verdict = gate(
        path, min_success_rate=0, max_p90_latency=9, allow_incomplete=True, require_delivered=False
    )
    assert "no row was answered: an empty run never passes" in verdict.reasons
    assert len(verdict.reasons) == 3


def test_the_success_rate_counts_without_skipped_rows(tmp_path):
    rows = [row("a"), row("b", status="failed"), row("c", status="skipped")]
    path = build(tmp_path, rows)
    assert gate(path, min_success_rate=0.5)
    assert only_reason(gate(path, min_success_rate=0.51)) == ("success rate 50.00% is below 51.00%")


def test_an_incomplete_run_does_not_pass_unless_allowed(tmp_path):
    path = build(tmp_path, [row("a"), row("b", status="incomplete")], status="interrupted")
    assert only_reason(gate(path)) == "1 of 2 rows have no result; resume the run"
    assert gate(path, allow_incomplete=True)


def test_undelivered_rows_do_not_pass_unless_allowed(tmp_path):
    path = build(tmp_path, [row("a"), row("b", delivered=False)])
    assert "1 of 2 rows are not delivered" in only_reason(gate(path))
    assert gate(path, require_delivered=False)


def test_rows_of_another_solution_do_not_pass_unless_allowed(tmp_path):
    rows = [row("a"), row("b", solution_hash="older"), row("c", solution_hash=None)]
    path = build(tmp_path, rows)
    assert "2 of 3 rows were answered by another version" in only_reason(gate(path))
    assert gate(path, allow_stale=True)


def test_a_plain_directory_knows_neither_delivery_nor_fingerprints(tmp_path):
    assert gate(build_plain(tmp_path, [row("a")]))
    assert "no latency" in only_reason(gate(tmp_path, max_p90_latency=1))


def test_scores_of_a_part_of_the_rows_do_not_pass(tmp_path):
    path = build(tmp_path, [row("a", scores={"em": 1}), row("b")])
    assert only_reason(gate(path, min_scores={"em": 1})) == (
        "1 of 2 succeeded rows have no score 'em'"
    )


def test_a_category_has_no_mean_to_gate_on(tmp_path):
    path = build(tmp_path, [row("a", scores={"tone": "kind"})])
    reason = only_reason(gate(path, min_scores={"tone": 1}))
    assert reason == "'tone' is a category, so it has no mean"


def test_an_unknown_cost_does_not_pass(tmp_path, good):
    assert "no price is given for qwen" in only_reason(
        gate(good, max_cost=1000, prices={"gpt": (1, 1)})
    )
    silent = build(tmp_path / "silent", [row("a")])
    assert "reported no tokens" in only_reason(gate(silent, max_cost=1, prices={"*": (1, 1)}))


def broken(root, numbers, n=40, score=0.8):
    return build(
        root,
        [row("q%d" % i, scores={"em": i not in numbers, "f": score + i / 1000}) for i in range(n)],
    )


def test_regressions_are_counted_against_the_baseline_and_named(tmp_path):
    old, new = broken(tmp_path / "a", ()), broken(tmp_path / "b", (1, 2))
    assert gate(new, old, max_regressions=2)
    verdict = gate(new, old, max_regressions=1)
    assert only_reason(verdict) == "2 items no longer pass (at most 1 allowed): q1, q2"
    assert [change.label for change in verdict.comparison.newly_broken] == ["q1", "q2"]
    many = broken(tmp_path / "c", range(12))
    assert only_reason(gate(many, old, max_regressions=0)).endswith("q9 and 2 more")


def test_without_a_number_of_regressions_evidence_decides(tmp_path):
    old = broken(tmp_path / "a", ())
    assert gate(broken(tmp_path / "b", (1, 2)), old)
    verdict = gate(broken(tmp_path / "c", range(12)), old)
    assert only_reason(verdict) == "em went from 1 to 0.7 over 40 items: worse"


def test_a_worse_number_fails_even_when_regressions_are_allowed(tmp_path):
    old, new = broken(tmp_path / "a", ()), broken(tmp_path / "b", (), score=0.7)
    assert "f went from 0.8195 to 0.7195" in only_reason(gate(new, old, max_regressions=5))


def test_a_committed_baseline_file_serves(tmp_path, good):
    export_baseline(load_result(good), tmp_path / "baseline.json")
    assert gate(good, tmp_path / "baseline.json", max_regressions=0)
    other = build(tmp_path / "other", [row("z")])
    assert "no item in common" in only_reason(gate(other, str(tmp_path / "baseline.json")))
    with pytest.raises(ConfigurationError, match="not a baseline file"):
        gate(tmp_path / "baseline.json")


def test_what_does_not_decide_is_noted(tmp_path):
    old = build(tmp_path / "a", [row("x", input={"id": "x", "q": 1}), row("y")])
    new = build(tmp_path / "b", [row("x", input={"id": "x", "q": 2})])
    assert gate(new, old).notes == (
        "1 item of the baseline without an answer in this run",
        "1 item has another input than in the baseline",
    )


@pytest.mark.parametrize(
    "options,message",
    [
        ({"min_success_rate": 95}, "share between 0 and 1"),
        ({"min_success_rate": -0.1}, "share"),
        ({"min_success_rate": True}, "share"),
        ({"min_success_rate": float("nan")}, "share"),
        ({"max_p90_latency": "2"}, "number of seconds"),
        ({"max_p90_latency": float("inf")}, "number of seconds"),
        ({"max_regressions": 1}, "needs a baseline"),
        ({"max_regressions": 1.5, "baseline": "x"}, "whole number"),
        ({"max_regressions": -1, "baseline": "x"}, "whole number"),
        ({"max_cost": 1}, "needs prices"),
        ({"max_cost": -1, "prices": {}}, "amount from 0"),
        ({"prices": {"m": 3}}, "per million tokens"),
        ({"min_scores": 0.9}, "map metric names"),
        ({"min_scores": {1: 0.9}}, "map metric names"),
        ({"min_scores": {"em": "high"}}, "must be a number"),
        ({"min_scores": {"em": float("nan")}}, "must be a number"),
        ({"allow_stale": "no"}, "allow_stale must be True or False"),
        ({"allow_incomplete": "false"}, "allow_incomplete must be True or False"),
        ({"require_delivered": None}, "require_delivered must be True or False"),
    ],
)
def test_bad_limits_are_refused_before_anything_is_read(tmp_path, options, message):
    with pytest.raises(ConfigurationError, match=message):
        gate(tmp_path / "nowhere", **options)


def test_a_run_whose_rows_all_failed_passes_only_where_a_success_rate_decides(tmp_path):
    result = load_result(build(tmp_path, [row("q%d" % n, status="failed") for n in range(3)]))
    verdict = gate(result)
    assert verdict.reasons == ["every row failed (3 of 3)"]
    assert gate(result, max_p90_latency=9).reasons == verdict.reasons
    assert gate(result, min_success_rate=0).passed
    assert gate(result, min_success_rate=0.5).reasons == ["success rate 0.00% is below 50.00%"]


@pytest.mark.parametrize("most", [None, 0, 99])
def test_a_metric_of_the_baseline_that_the_run_lacks_fails_the_gate(tmp_path, most):
    scores = {"em": True, "tone": "kind", "f": 0.5}
    old = build(tmp_path / "old", [row(n, scores=scores) for n in range(3)])
    new = build(tmp_path / "new", [row(n, output="wrong", scores={"f": 0.5}) for n in range(3)])
    verdict = gate(new, old, max_regressions=most)
    assert verdict.reasons == [
        "the baseline has em for 3 items that have no score here: "
        "give its evaluator, or export a new baseline without it",
        "the baseline has tone for 3 items that have no score here: "
        "give its evaluator, or export a new baseline without it",
    ]
    assert gate(old, old, max_regressions=most)
    assert gate(new, new, max_regressions=most)


def test_an_evaluator_that_fails_or_says_something_else_does_not_hide_regressions(tmp_path):
    old = build(tmp_path / "old", [row(n, scores={"em": True}) for n in range(3)])
    broken = [row(0, scores={"em": True}), row(1, scores={"em": None}), row(2, scores={"em": None})]
    verdict = gate(build(tmp_path / "broken", broken), old, max_regressions=0)
    assert only_reason(verdict) == (
        "the baseline has em for 2 items that have no score here: "
        "its evaluator failed; mend it and score the run again"
    )
    words = build(tmp_path / "words", [row(n, scores={"em": "no"}) for n in range(3)])
    assert "em for 3 items that have no score here" in only_reason(gate(words, old))


def test_a_row_that_failed_needs_no_score_to_count_as_broken(tmp_path):
    old = build(tmp_path / "old", [row(n, scores={"em": True}) for n in range(3)])
    rows = [row(0, scores={"em": True}), row(1, scores={"em": True}), row(2, status="failed")]
    new = build(tmp_path / "new", rows)
    assert gate(new, old, max_regressions=1)
    assert "1 item no longer passes" in only_reason(gate(new, old, max_regressions=0))


def test_rows_of_another_version_or_parameters_do_not_pass_unless_allowed(tmp_path):
    def setup(version, **parameters):
        return {"version": version, "parameters": parameters}

    rows = [
        row("a", setup=setup("v1", top=3, model="m")),
        row("b", setup=setup("v0", top=3, model="m")),
        row("c", setup=setup("v1", top=4, model="m")),
        row("d", setup=setup("v0"), solution_hash="older"),
        row("e"),  # of a directory that does not say
    ]
    path = build(tmp_path, rows, version="v1", parameters={"model": "m", "top": 3})
    assert only_reason(gate(path)).startswith("3 of 5 rows were answered by another version")
    assert gate(path, allow_stale=True)
    assert "3 rows were answered by another version or with other parameters" in render_text(
        load_result(path)
    )
    assert "<b>of other versions or parameters</b>3 rows<" in render_html(load_result(path))


def test_a_metric_whose_evaluator_always_failed_is_not_called_unknown(tmp_path):
    path = build(tmp_path, [row(n, scores={"em": None}) for n in range(3)])
    assert only_reason(gate(path, min_scores={"em": 1})) == (
        "no row has a score 'em': its evaluator failed in all of them"
    )


def test_the_parts_of_an_evaluator_that_failed_are_told_as_its_own(tmp_path):
    old = build(tmp_path / "old", [row(n, scores={"judge.tone": 1}) for n in range(3)])
    new = build(tmp_path / "new", [row(n, scores={"judge": None}) for n in range(3)])
    assert "judge.tone for 3 items that have no score here: its evaluator failed" in only_reason(
        gate(new, old)
    )
