from __future__ import annotations

import random

import pytest
from results_builder import build, build_plain, row

from agentloop_experiment_sdk.errors import ConfigurationError, ResultsDirectoryError
from agentloop_experiment_sdk.report.baseline import Baseline, export_baseline
from agentloop_experiment_sdk.report.compare import compare
from agentloop_experiment_sdk.report.deltas import delta_of
from agentloop_experiment_sdk.report.summary import load_result


def run_with(root, failing, n=200, **meta):
    """A run over ``n`` items in which ``failing`` fail."""
    rows = [
        row("q%d" % i, **({"status": "failed", "error": ("Wrong", "no")} if i in failing else {}))
        for i in range(n)
    ]
    return build(root, rows, **meta)


@pytest.fixture
def noisy():
    """Items that fail in both runs."""
    return {150, 151, 152, 153, 154}


def test_three_of_two_hundred_items_are_found_and_are_no_evidence(tmp_path, noisy):
    old = run_with(tmp_path / "a", noisy)
    new = run_with(tmp_path / "b", noisy | {3, 77, 140})
    comparison = compare([old, new])
    (candidate,) = comparison
    assert [change.label for change in candidate.newly_broken] == ["q3", "q77", "q140"]
    assert candidate.newly_fixed == ()
    success = candidate.deltas["success"]
    assert success.delta.value == pytest.approx(-0.015)
    assert success.delta.low < 0 < success.delta.high
    assert success.verdict == candidate.verdict == "no evidence"
    assert success.p_value == 0.25 and success.test == "McNemar (exact)"


def test_thirty_of_two_hundred_items_are_worse(tmp_path, noisy):
    old = run_with(tmp_path / "a", noisy)
    new = run_with(tmp_path / "b", noisy | set(range(30)))
    candidate = compare([old, new])[0]
    assert len(candidate.newly_broken) == 30
    assert candidate.verdict == "worse" and candidate.deltas["success"].delta.high < 0
    back = compare([old, new], baseline=1)[0]
    assert back.verdict == "better" and len(back.newly_fixed) == 30
    assert back.deltas["success"].relative == pytest.approx(0.15 / 0.825)


def scored(root, score_of, n=200, **meta):
    return build(root, [row("q%d" % i, scores={"f": score_of(i)}) for i in range(n)], **meta)


def test_numbers_are_judged_by_the_paired_bootstrap(tmp_path):
    rng = random.Random(1)
    base = [rng.random() for _ in range(200)]
    old = scored(tmp_path / "a", lambda i: base[i])
    new = scored(tmp_path / "b", lambda i: base[i] - 0.05 + rng.gauss(0, 0.1))
    delta = compare([old, new])[0].deltas["f"]
    assert (delta.verdict, delta.test, delta.kind) == ("worse", "paired bootstrap", "numerical")
    assert delta.delta.low < -0.05 < delta.delta.high < 0
    same = scored(tmp_path / "c", lambda i: base[i] + rng.gauss(0, 0.1))
    assert compare([old, same])[0].deltas["f"].verdict == "no evidence"


def test_a_few_large_changes_of_a_number_are_no_evidence(tmp_path):
    old = scored(tmp_path / "a", lambda i: 0.5)
    new = scored(tmp_path / "b", lambda i: 0.1 if i < 5 else 0.5)
    delta = compare([old, new])[0].deltas["f"]
    assert (delta.verdict, delta.test) == ("no evidence", "sign test")
    new = scored(tmp_path / "c", lambda i: 0.1 if i < 6 else 0.5)
    assert compare([old, new])[0].deltas["f"].verdict == "worse"


def test_lower_may_be_better(tmp_path):
    old = scored(tmp_path / "a", lambda i: True)
    new = scored(tmp_path / "b", lambda i: i > 30)
    candidate = compare([old, new], lower_is_better=["f"])[0]
    assert candidate.deltas["f"].verdict == "better" and candidate.deltas["f"].lower_is_better
    assert len(candidate.newly_fixed) == 31 and not candidate.newly_broken
    assert compare([old, new])[0].verdict == "worse"


def test_an_item_broken_in_several_measures_is_one_item(tmp_path):
    old = build(tmp_path / "a", [row("x", scores={"em": True}), row("y", scores={"em": True})])
    new = build(
        tmp_path / "b",
        [row("x", status="failed", scores={"em": False}), row("y", scores={"em": True})],
    )
    (change,) = compare([old, new]).newly_broken
    assert change.label == "x" and change.measures == ("success", "em")
    assert compare([old, new]).newly_fixed == ()


def test_repeats_are_averaged_per_item_and_pass_by_majority(tmp_path):
    def repeats(root, passes):
        rows = [
            row(item, repeat=str(n), scores={"em": n < count})
            for item, count in passes.items()
            for n in range(3)
        ]
        return build(root, rows, repeats=3)

    old = repeats(tmp_path / "a", {"x": 3, "y": 3, "z": 1})
    new = repeats(tmp_path / "b", {"x": 2, "y": 1, "z": 2})
    candidate = compare([old, new])[0]
    assert [change.label for change in candidate.newly_broken] == ["y"]
    assert [change.label for change in candidate.newly_fixed] == ["z"]
    delta = candidate.deltas["em"]
    assert delta.delta.n == 3 and delta.delta.value == pytest.approx((-1 / 3 - 2 / 3 + 1 / 3) / 3)
    assert delta.kind == "pass/fail" and delta.test == "sign test"


def test_latency_ttft_and_tokens_are_compared_but_do_not_decide(tmp_path):
    def run(root, factor):
        return build(
            root,
            [
                row(
                    "q%d" % i,
                    latency_ms=100.0 * factor + i,
                    ttft_ms=10 * factor,
                    usage={"input_tokens": 10 * factor, "output_tokens": 5},
                )
                for i in range(40)
            ],
        )

    candidate = compare([run(tmp_path / "a", 1), run(tmp_path / "b", 3)])[0]
    assert candidate.verdict == "no evidence"
    for name, change in (("latency_ms", 200), ("ttft_ms", 20), ("tokens", 20)):
        delta = candidate.deltas[name]
        assert delta.delta.value == pytest.approx(change) and delta.verdict == "worse"


def test_categories_tell_which_values_became_which(tmp_path):
    def run(root, labels):
        return build(root, [row(str(i), scores={"tone": label}) for i, label in enumerate(labels)])

    old = run(tmp_path / "a", ["kind", "kind", "rude", "kind"])
    new = run(tmp_path / "b", ["kind", "rude", "kind", "rude"])
    candidate = compare([old, new])[0]
    assert candidate.label_changes == {"tone": {("kind", "rude"): 2, ("rude", "kind"): 1}}
    assert "tone" not in candidate.deltas


def test_the_configuration_shows_what_differs(tmp_path):
    solution = {"name": "agent.answer", "hash": "other"}
    old = run_with(tmp_path / "a", (), 3, version="v1", parameters={"t": 0, "k": 1})
    new = run_with(
        tmp_path / "b",
        (),
        3,
        version="v2",
        parameters={"t": 1, "k": 1, "z": None},
        solution=solution,
    )
    candidate = compare([old, new])[0]
    assert candidate.configuration == {
        "version": ("v1", "v2"),
        "solution hash": ("hash-1", "other"),
        "parameters.t": (0, 1),
    }
    assert (candidate.baseline.name, candidate.name) == ("v1", "v2")


def test_rows_that_only_one_run_answered_are_outside_the_pairs(tmp_path):
    old = build(tmp_path / "a", [row("x"), row("y"), row("s", status="skipped")])
    new = build(tmp_path / "b", [row("x"), row("z"), row("s"), row("y", status="incomplete")])
    candidate = compare([old, new])[0]
    assert [pair.label for pair in candidate.pairs] == ["x"]
    assert [item.label for item in candidate.only_baseline] == ["y"]
    assert [item.label for item in candidate.only_candidate] == ["z", "s"]


def test_a_changed_row_is_paired_by_its_item_id_and_marked(tmp_path):
    old = build(tmp_path / "a", [row("x", input={"id": "x", "q": "old"}), row("y")])
    new = build(tmp_path / "b", [row("x", input={"id": "x", "q": "new"}), row("y")])
    candidate = compare([old, new])[0]
    assert [pair.input_changed for pair in candidate.pairs] == [True, False]
    assert candidate.changed_inputs == 1


def test_runs_without_a_common_item_say_nothing(tmp_path):
    candidate = compare([run_with(tmp_path / "a", (), 2), build(tmp_path / "b", [row("z")])])[0]
    assert candidate.pairs == () and candidate.deltas == {} and candidate.verdict == "no evidence"


def test_the_diff_of_two_answers(tmp_path):
    old = build(tmp_path / "a", [row("x", output="one\ntwo"), row("y", output={"k": [1]})])
    new = build(tmp_path / "b", [row("x", output="one\nthree"), row("y", status="failed")])
    candidate = compare([old, new], names=["old", "new"])[0]
    assert candidate.diff("x").splitlines()[:2] == ["--- old", "+++ new"]
    assert "-two" in candidate.diff("x") and "+three" in candidate.diff("x")
    assert '-  "k": [' in candidate.diff("y") and "+ERROR: Boom - it broke" in candidate.diff("y")
    assert compare([old, old])[0].diff("x") == ""
    with pytest.raises(ConfigurationError, match="No item 'q'"):
        candidate.diff("q")


def test_up_to_five_runs_of_any_form(tmp_path):
    paths = [run_with(tmp_path / str(i), set(range(i)), 10, version="v%d" % i) for i in range(5)]
    export_baseline(load_result(paths[0]), tmp_path / "baseline.json")
    runs = [str(tmp_path / "baseline.json"), load_result(paths[1]), tmp_path / "2"]
    runs += [Baseline.of(load_result(paths[3])), paths[4]]
    comparison = compare(runs, baseline=2)
    assert comparison.baseline.name == "v2" and len(comparison) == 4
    assert [candidate.name for candidate in comparison] == ["v0", "v1", "v3", "v4"]
    assert [len(candidate.newly_broken) for candidate in comparison] == [0, 0, 1, 2]
    assert len(comparison.newly_fixed) == 2 + 1
    assert [side.name for side in comparison.sides] == ["v2", "v0", "v1", "v3", "v4"]
    with pytest.raises(ConfigurationError, match="holds no answers"):
        comparison[0].diff("q5")


def test_runs_without_versions_are_called_by_their_directories(tmp_path):
    old = run_with(tmp_path / "results-old", (), 2, version="", record_name="plan 08:00:00")
    new = run_with(tmp_path / "results-new", (), 2, version="", record_name="plan 08:00:07")
    names = [side.name for side in compare([old, load_result(new)]).sides]
    assert names == ["results-old", "results-new"]
    export_baseline(load_result(old), tmp_path / "baseline.json")
    assert compare([tmp_path / "baseline.json", new]).baseline.name == "baseline.json"
    bare = compare([Baseline.of(load_result(old)), new])
    assert [side.name for side in bare.sides] == ["plan 08:00:00", "results-new"]
    same = run_with(tmp_path / "later" / "results-old", (), 2, version="", record_name="plan 9")
    assert [side.name for side in compare([old, same]).sides] == ["plan 08:00:00", "plan 9"]


def test_runs_of_one_version_get_numbered_names(tmp_path):
    path = run_with(tmp_path / "a", (), 2)
    comparison = compare([path, path])
    assert [side.name for side in comparison.sides] == [
        "nightly 2026/11/29 08:00:00 #1",
        "nightly 2026/11/29 08:00:00 #2",
    ]


def test_plain_agentscope_directories_are_paired_by_task(tmp_path):
    old = build_plain(tmp_path / "a", [row("t1"), row("t2")])
    new = build_plain(tmp_path / "b", [row("t2", status="failed"), row("t3")])
    candidate = compare([old, new])[0]
    assert [change.label for change in candidate.newly_broken] == ["t2"]


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("a",), "a list of two to five"),
        ((["a"],), "two to five runs, not 1"),
        ((["a"] * 6,), "not 6"),
        ((["a", "b"], 2), "position in runs"),
        ((["a", "b"], True), "position in runs"),
        (([1, 2],), "results directory, a loaded result or a baseline file"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        compare(*arguments)


def test_bad_options_are_refused(tmp_path):
    path = run_with(tmp_path / "a", (), 2)
    with pytest.raises(ConfigurationError, match="as many names"):
        compare([path, path], names=["one"])
    for names in ("ab", 5, {"a", "b"}, iter("ab")):
        with pytest.raises(ConfigurationError, match="names must be a list"):
            compare([path, path], names=names)
    for lower in ("latency", None, 5, [None], {5: 1}):
        with pytest.raises(ConfigurationError, match="lower_is_better must be a list of texts"):
            compare([path, path], lower_is_better=lower)
    for confidence in (0, 1.0, 95, "0.9"):
        with pytest.raises(ConfigurationError, match="confidence"):
            compare([path, path], confidence=confidence)
    with pytest.raises(ResultsDirectoryError):
        compare([path, tmp_path / "nowhere"])


def test_a_change_needs_pairs_and_equal_values_are_no_change():
    assert delta_of("f", []) is None
    delta = delta_of("f", [(0, 0.0, 0.0)])
    assert delta.verdict == "no evidence" and delta.relative is None
