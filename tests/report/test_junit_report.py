"""JUnit XML, held against the rules of the strictest schema in circulation (Ant's)."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from results_builder import build, row

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.report.baseline import Baseline
from agentloop_experiment_sdk.report.compare import compare
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.junit import render_junit
from agentloop_experiment_sdk.report.summary import load_result

SUITE = {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"}
COUNTS = ("tests", "failures", "errors", "skipped", "id")


def checked(text):
    """The parsed document, after every rule of the schema was checked."""
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert root.tag == "testsuites" and not root.attrib
    for number, suite in enumerate(root):
        assert suite.tag == "testsuite" and set(suite.attrib) == SUITE | {"skipped"}
        assert suite.get("name") and suite.get("hostname") and suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
        assert all(re.fullmatch(r"\d+", suite.get(name)) for name in COUNTS)
        _check_children(suite)
    return root


def _check_children(suite):
    tags = [child.tag for child in suite]
    cases = suite.findall("testcase")
    assert tags == ["properties"] + ["testcase"] * len(cases) + ["system-out", "system-err"]
    for entry in suite.find("properties"):
        assert entry.tag == "property" and set(entry.attrib) == {"name", "value"}
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"} and len(case) <= 1
        assert re.fullmatch(r"\d+\.\d+", case.get("time"))
        for outcome in case:
            assert outcome.tag in ("skipped", "error", "failure")
            assert outcome.tag == "skipped" or set(outcome.attrib) == {"type", "message"}
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert len(suite.findall("testcase/" + tag)) == int(suite.get(name))
    assert len(cases) == int(suite.get("tests"))


def test_every_row_is_a_test_case(tmp_path):
    rows = [
        row("a", latency_ms=1500.0),
        row("b", status="failed", error=("Timeout", "too late")),
        row("c", status="skipped"),
        row("d", status="incomplete"),
    ]
    (suite,) = checked(render_junit(load_result(build(tmp_path, rows))))
    a, b, c, d = suite.findall("testcase")
    assert (a.get("classname"), a.get("name"), a.get("time")) == ("faq", "a", "1.500")
    assert len(a) == 0
    assert b[0].attrib == {"type": "Timeout", "message": "too late"} and "trace id" in b[0].text
    assert c[0].tag == "skipped" and d[0].tag == "error"
    properties = {entry.get("name"): entry.get("value") for entry in suite.find("properties")}
    assert properties["record_id"] == "record-1" and properties["success_rate"] == "0.5"


def test_a_failed_metric_fails_the_row_when_asked(tmp_path):
    rows = [row("a", scores={"em": False}, output={"k": 1}), row("b", scores={"em": True})]
    result = load_result(build(tmp_path, rows))
    assert checked(render_junit(result))[0].get("failures") == "0"
    suite = checked(render_junit(result, metrics=["em"]))[0]
    (failure,) = suite.iter("failure")
    assert failure.attrib == {"type": "em", "message": "failed em"} and '"k": 1' in failure.text


def test_a_failed_metric_says_why(tmp_path):
    root = build(tmp_path, [row("a", scores={"em": False})])
    (path,) = tmp_path.rglob("em.json")
    stored = dict(json.loads(path.read_text(encoding="utf-8")), message='Expected "1", got "2".')
    path.write_text(json.dumps(stored), encoding="utf-8")
    (failure,) = checked(render_junit(load_result(root), metrics=["em"])).iter("failure")
    assert failure.get("message") == 'failed em: Expected "1", got "2".'


def test_repeats_have_names_of_their_own(tmp_path):
    path = build(tmp_path, [row("a"), row("a", repeat="1")], repeats=2)
    names = [case.get("name") for case in checked(render_junit(load_result(path))).iter("testcase")]
    assert names == ["a [0]", "a [1]"]


def test_control_characters_and_markup_of_an_agent_are_harmless(tmp_path):
    nasty = '\x00\x1b[0m\x0b\ufffe "quote" & <failure> ]]> \ttab\nline \U0001f600'
    rows = [row(nasty, status="failed", error=(nasty, nasty), trace_id="")]
    result = load_result(build(tmp_path, rows, created_at="yesterday", benchmark={"name": nasty}))
    suite = checked(render_junit(result))[0]
    failure = next(suite.iter("failure"))
    expected = '\ufffd\ufffd[0m\ufffd\ufffd "quote" & <failure> ]]> \ttab\nline \U0001f600'
    assert failure.get("message") == expected and failure.text in (None, "")
    assert suite.get("timestamp") == "1970-01-01T00:00:00"


def test_a_run_without_answers_is_a_document_too(tmp_path):
    path = build(
        tmp_path, [row("", status="incomplete")], benchmark={}, record_name="", evaluation_name=""
    )
    checked(render_junit(load_result(path)))


def test_newly_broken_items_are_the_failures_of_a_comparison(tmp_path):
    old = build(tmp_path / "a", [row("x", output="one"), row("y")])
    new = build(tmp_path / "b", [row("x", status="failed"), row("y")])
    comparison = compare([old, new], names=["old", "new"])
    suite = checked(render_junit(comparison))[0]
    (failure,) = suite.iter("failure")
    assert suite.get("name") == "new" and failure.get("message") == "no longer passes: success"
    assert "-one" in failure.text
    files = compare([Baseline.of(load_result(old)), Baseline.of(load_result(new))])
    assert next(checked(render_junit(files)).iter("failure")).text in (None, "")


@pytest.mark.parametrize("passed", [True, False])
def test_every_condition_of_a_gate_is_a_test_case(tmp_path, passed):
    path = build(tmp_path, [row("a", delivered=passed)])
    suite = checked(render_junit(gate(path)))[0]
    assert suite.get("failures") == ("0" if passed else "1")
    assert [case.get("name") for case in suite.iter("testcase")][0] == "answered"


@pytest.mark.parametrize("metrics", ["em", None, 5, [5], {1: 1}])
def test_metrics_that_are_no_list_of_texts_are_refused(tmp_path, metrics):
    result = load_result(build(tmp_path, [row("a", scores={"em": False})]))
    with pytest.raises(ConfigurationError, match="metrics must be a list of texts"):
        render_junit(result, metrics=metrics)


def test_a_metric_that_no_row_has_is_refused_where_rows_succeeded(tmp_path):
    scored = load_result(build(tmp_path / "a", [row("a", scores={"em": False})]))
    with pytest.raises(ConfigurationError, match="no row has a score 'typo'; the result has em"):
        render_junit(scored, metrics=["em", "typo"])
    unanswered = load_result(build(tmp_path / "b", [row("a", status="incomplete")]))
    checked(render_junit(unanswered, metrics=["em"]))
