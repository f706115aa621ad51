from __future__ import annotations

import json

import pytest
from results_builder import build, row

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.report.baseline import (
    Baseline,
    export_baseline,
    input_hash,
    load_baseline,
)
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.summary import load_result


@pytest.fixture
def result(tmp_path):
    usage = {"input_tokens": 10, "output_tokens": 4}
    rows = [
        row("a", latency_ms=10.04, ttft_ms=3, usage=usage, scores={"em": True, "tone": "kind"}),
        row("b", status="failed"),
        row(0, scores={"em": 0.123456789}),
        row("s", status="skipped"),
        row("i", status="incomplete"),
    ]
    return load_result(build(tmp_path / "run", rows))


def test_a_baseline_comes_back_as_it_was_exported(result, tmp_path):
    export_baseline(result, tmp_path / "baseline.json")
    read, made = load_baseline(tmp_path / "baseline.json"), Baseline.of(result)
    assert (read.name, read.record_id) == (made.name, made.record_id)
    assert read.configuration == made.configuration and read.kinds == made.kinds
    assert [item.label for item in read.items] == ["a", "b", "0"]
    for old, new in zip(made.items, read.items):
        assert (old.task_id, old.item_id, old.tries, old.passed) == (
            new.task_id,
            new.item_id,
            new.tries,
            new.passed,
        )
        assert old.input_hash == new.input_hash != ""
    first = read.items[0]
    assert (first.latency_ms, first.ttft_ms, first.tokens) == (10.04, 3.0, 14.0)
    assert first.scores == {"em": 1.0} and first.labels == {"tone": "kind"}
    assert read.items[2].scores == {"em": 0.123456789}


def test_a_run_is_no_worse_than_its_own_baseline(tmp_path):
    """Two thirds rounded up in the file made every item a little worse, which is evidence."""
    scores = [{"em": 1, "f": 0.9}, {"em": 1, "f": 0.8}, {"em": 0, "f": 0.3}]

    def repeats(order):
        return [
            row(n, repeat=str(at), scores=scores[place], latency_ms=100.04)
            for n in range(30)
            for at, place in enumerate(order)
        ]

    run = load_result(build(tmp_path / "run", repeats((0, 1, 2)), repeats=3))
    again = load_result(build(tmp_path / "again", repeats((2, 0, 1)), repeats=3))
    export_baseline(run, tmp_path / "baseline.json")
    for result in (run, again):
        verdict = gate(result, tmp_path / "baseline.json")
        assert verdict.passed, verdict.reasons
        assert {delta.verdict for delta in verdict.comparison.deltas.values()} == {"no evidence"}


def test_the_file_is_compact_stable_and_has_one_item_a_line(result, tmp_path):
    export_baseline(result, tmp_path / "1.json")
    export_baseline(load_result(result.path), tmp_path / "2.json")
    text = (tmp_path / "1.json").read_text(encoding="utf-8")
    assert text == (tmp_path / "2.json").read_text(encoding="utf-8")
    assert len(json.loads(text)["items"]) == sum(
        line.startswith('  {"item"') for line in text.splitlines()
    )
    assert "answer" not in text.split('"items"')[1]


def test_a_run_without_answers_cannot_be_a_baseline(tmp_path):
    empty = load_result(build(tmp_path / "run", [row("a", status="incomplete")]))
    with pytest.raises(ConfigurationError, match="no answered row"):
        export_baseline(empty, tmp_path / "baseline.json")
    assert not (tmp_path / "baseline.json").exists()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "x"}', '{"format": "agentloop-baseline", "format_version": 2}'],
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(ConfigurationError, match="export_baseline"):
        load_baseline(tmp_path / "b.json")


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_baseline(tmp_path / "none.json")


def test_the_input_hash_ignores_the_order_of_keys():
    assert input_hash({"a": 1, "b": 2}) == input_hash({"b": 2, "a": 1}) != input_hash({"a": 1})
    assert input_hash(None) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"tries": 0},
        {"tries": -1},
        {"tries": 10**400},
        {"tries": float("inf")},
        {"passed": 2},
        {"passed": -1},
        {"scores": {"em": 10**400}},
        {"scores": {"em": "1"}},
        {"scores": []},
        {"labels": 3},
    ],
    ids=range(10),
)
def test_a_file_that_no_run_can_have_written_is_refused(tmp_path, change):
    result = load_result(build(tmp_path / "r", [row("q")]))
    path = tmp_path / "baseline.json"
    export_baseline(result, path)
    document = json.loads(path.read_text("utf-8"))
    document["items"][0].update(change)
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="no baseline file of this version"):
        gate(result, path)


def test_a_baseline_that_is_absent_or_of_another_form_says_how_to_write_one(result, tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    for name in ("bad.json", "missing.json"):
        with pytest.raises(ConfigurationError, match="--export-baseline FILE`, or export_base"):
            gate(result, tmp_path / name)


@pytest.mark.parametrize("path", [None, 0, "", b"", "a\0b"])
def test_what_is_no_path_is_refused(result, path):
    with pytest.raises(ConfigurationError, match="path must be a path"):
        load_baseline(path)
    with pytest.raises(ConfigurationError, match="path must be a path"):
        export_baseline(result, path)


def test_a_baseline_is_made_of_a_result_only(result, tmp_path):
    for other in (None, result.path, Baseline.of(result)):
        with pytest.raises(ConfigurationError, match="of load_result"):
            export_baseline(other, tmp_path / "baseline.json")
    assert not (tmp_path / "baseline.json").exists()
