"""The built-in checks that compare the answer with an expected value."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.evaluate import (
    contains,
    evaluate_output,
    exact_match,
    json_equal,
    numeric_close,
    regex_match,
)
from agentloop_experiment_sdk.models import SolutionOutput, Task


def score(check: Any, output: Any, expected: Any = "", row: Any = None) -> Any:
    """(score, reason) of one check of one answer."""
    task = Task("t", row or {}, expected)
    (metric,) = evaluate_output([check], task, SolutionOutput.success(output))
    return metric.result, metric.message


@pytest.mark.parametrize(
    "actual, expected, options, same",
    [
        ("a", "a", {}, True),
        ("a", "b", {}, False),
        (" a\n", "a", {}, True),
        (" a", "a", {"strip": False}, False),
        ("Straße", "STRASSE", {"ignore_case": True}, True),
        ("A", "a", {}, False),
        (42, "42", {}, True),
        (42, 42.0, {}, True),
        (42, "42.0", {}, False),
        (True, 1, {}, False),
        (True, "true", {}, True),
        (None, "null", {}, True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {}, True),
        ({"a": 1, "b": 2}, '{"b": 2, "a": 1}', {}, True),
        ('{"b": 2, "a": 1}', {"a": 1, "b": 2}, {}, True),
        ([1, 2], "[1, 2]", {}, True),
        ([1, 2], "[1, 2", {}, False),
        ("{}", "{ }", {}, False),
    ],
)
def test_exact_match(actual: Any, expected: Any, options: Any, same: bool) -> None:
    result, message = score(exact_match(**options), actual, expected)
    assert result is same
    assert (message is None) is same
    assert same or message.startswith("Expected ")


@pytest.mark.parametrize(
    "field, expected_field, result",
    [
        ("answer", None, True),
        ("turns[0].reply", None, True),
        ("turns.-1.reply", "columns.last", True),
        ("with.dot", None, True),
        ("text.answer", None, True),
        ("turns[5].reply", None, False),
        ("turns.first", None, False),
        ("answer.deeper", None, False),
        ("absent", None, False),
        (lambda output: output["answer"].upper(), lambda row: "YES", True),
    ],
)
def test_both_sides_can_be_picked_by_path_or_callable(
    field: Any, expected_field: Any, result: bool
) -> None:
    output = {
        "answer": "yes",
        "turns": [{"reply": "yes"}, {"reply": "bye"}],
        "with.dot": "yes",
        "text": '{"answer": "yes"}',
    }
    row = {"columns": '{"last": "bye"}'}
    check = exact_match(field=field, expected_field=expected_field)
    got, message = score(check, output, "yes", row)
    assert got is result
    assert result or "There is no" in message


def test_text_that_holds_json_is_read_before_a_path_leads_into_it() -> None:
    assert score(exact_match(field="a.b"), ' {"a": {"b": 1}}', "1")[0] is True


def test_a_failed_row_matches_nothing_and_says_so() -> None:
    failed = SolutionOutput.failure("TimeoutError", "late", output="4")
    for check in (exact_match(), contains("4"), regex_match("4"), json_equal(), numeric_close()):
        (metric,) = evaluate_output([check], Task("t", {}, "4"), failed)
        assert (metric.result, metric.message) == (False, "The row failed: TimeoutError.")


@pytest.mark.parametrize("check", [exact_match(), contains(), regex_match(), numeric_close()])
@pytest.mark.parametrize("expected", ["", None])
def test_a_row_without_ground_truth_gets_no_score(check: Any, expected: Any) -> None:
    result, message = score(check, "x", expected)
    assert result is None and "set the config's ground_truth_field" in message


def test_a_row_without_the_expected_column_gets_no_score() -> None:
    result, message = score(exact_match(expected_field="gold"), "x", "x", {"other": 1})
    assert result is None and "'gold'" in message


@pytest.mark.parametrize(
    "check, output, expected, result, hint",
    [
        (contains("ell"), "hello", "", True, None),
        (contains(["he", "lo"]), "hello", "", True, None),
        (contains(["he", "LO"]), "hello", "", False, 'lacks "LO"'),
        (contains(["he", "LO"], ignore_case=True), "hello", "", True, None),
        (contains(), "it is 42.", "42", True, None),
        (contains(), "it is 42.", ["42", "it"], True, None),
        (contains(), "it is 42.", ["42", "she"], False, 'lacks "she"'),
        (contains(), {"a": "it is"}, "it is", True, None),
        (contains(field="a"), {"a": "x", "b": "needle"}, "needle", False, "lacks"),
        (contains("x", field="a"), {"a": "x"}, "", True, None),
        (contains("x", field="b"), {"a": "x"}, "", False, "There is no 'b'"),
        (contains(), "x", [], None, "is empty"),
        (contains(), "x", ["x", ""], None, "is empty"),
    ],
)
def test_contains(check: Any, output: Any, expected: Any, result: Any, hint: Any) -> None:
    got, message = score(check, output, expected)
    assert got is result
    assert hint is None or hint in message


@pytest.mark.parametrize("text", ["", [], ["a", ""], [1]])
def test_contains_refuses_what_every_answer_contains(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="not empty"):
        contains(text)


@pytest.mark.parametrize(
    "check, output, expected, result",
    [
        (regex_match(r"\d+"), "a 42", "", True),
        (regex_match(r"\d+", full=True), "a 42", "", False),
        (regex_match(r"\d+", full=True), "42", "", True),
        (regex_match(r"\d+", full=True), 42, "", True),
        (regex_match("^A", flags=re.IGNORECASE), "abc", "", True),
        (regex_match(), "abc", "b.", True),
        (regex_match(), "abc", "z", False),
        (regex_match(), "abc", "(", None),
    ],
)
def test_regex_match(check: Any, output: Any, expected: Any, result: Any) -> None:
    assert score(check, output, expected)[0] is result


@pytest.mark.parametrize("pattern", ["(", 5, b"x", re.compile("x"), ["x"]])
def test_regex_match_refuses_what_is_no_expression(pattern: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot use"):
        regex_match(pattern)


def test_regex_match_refuses_what_every_answer_matches() -> None:
    with pytest.raises(ConfigurationError, match="a text that is not empty"):
        regex_match("")
    result, message = score(regex_match(expected_field="pattern"), "x", "", {"pattern": ""})
    assert result is None and "every answer matches that" in message


@pytest.mark.parametrize("flags", [-1, "i", None, 1.5, True, re.LOCALE, 2**70])
@pytest.mark.parametrize("pattern", ["g", None])
def test_regex_match_refuses_what_are_no_flags(pattern: Any, flags: Any) -> None:
    with pytest.raises(ConfigurationError, match="flags"):
        regex_match(pattern, flags=flags)


@pytest.mark.parametrize(
    "actual, expected, ignore, difference",
    [
        ({"a": 1, "b": 2}, '{"b": 2.0, "a": 1}', [], None),
        ('{"a": [1, {"x": null}]}', {"a": [1, {"x": None}]}, [], None),
        ({"a": True}, {"a": 1}, [], "At a: expected 1, got true."),
        ({"a": 1}, {"a": 1, "b": 2}, [], "At b: expected 2, but it is absent."),
        ({"a": 1, "b": None}, {"a": 1}, [], "At b: null is not expected."),
        ({"a": None}, {}, [], "At a: null is not expected."),
        ([1, 2], [1], [], "At 1: 2 is not expected."),
        ([1], [1, 2], [], "At 1: expected 2, but it is absent."),
        ({"a": [1]}, {"a": {"0": 1}}, [], 'At a: expected {"0":1}, got [1].'),
        ("plain", "other", [], 'expected "other", got "plain".'),
        ("not json", {"a": 1}, [], 'expected {"a":1}, got "not json".'),
        ({"id": 1, "v": 2}, {"id": 9, "v": 2}, ["id"], None),
        ({"v": 2}, {"id": 9, "v": 2}, ["id"], None),
        ({"i": [{"t": 1, "v": 1}]}, {"i": [{"t": 2, "v": 1}]}, ["i[*].t"], None),
        ({"i": [{"t": 1, "v": 1}]}, {"i": [{"t": 2, "v": 3}]}, ["i.*.t"], "At i.0.v: expected 3"),
        ({"i": {"t": {"deep": 1}}}, {"i": {"t": 2}}, ["i.t"], None),
        ({"i": {"t": 1}}, {"i": {"t": 2}}, ["t", "i.t.x"], "At i.t: expected 2, got 1."),
    ],
)
def test_json_equal(actual: Any, expected: Any, ignore: Any, difference: Any) -> None:
    result, message = score(json_equal(ignore=ignore), actual, expected)
    assert result is (difference is None)
    assert difference is None or message.startswith(difference)


@pytest.mark.parametrize("ignore", ["id", [""], [5], None, 5, b"id", {"id": 1}])
def test_json_equal_refuses_what_are_no_paths(ignore: Any) -> None:
    with pytest.raises(ConfigurationError, match="list of paths|A path such as"):
        json_equal(ignore=ignore)


@pytest.mark.parametrize(
    "options, actual, expected, result",
    [
        ({}, 42, "42", True),
        ({}, "42.0000001", 42, True),
        ({}, "42.1", 42, False),
        ({"tolerance": 0.5}, "42.4", "42", True),
        ({"tolerance": 0}, 0.3, 0.1 + 0.2, False),
        ({"relative": 0.1}, 109, 100, True),
        ({"relative": 0.1}, 111, 100, False),
        ({}, "1,234.5", 1234.5, True),
        ({}, "1,23", 1.23, False),
        ({}, " -1e3 ", -1000, True),
        ({}, ".5", 0.5, True),
        ({}, "5.", 5, True),
        ({}, "the answer is 42", 42, False),
        ({}, "nan", 42, False),
        ({}, None, 42, False),
        ({}, True, 1, False),
        ({}, "1" * 400, 1, False),
        ({"extract": True}, "step 1: 3+4; so 1,234.5 km.", 1234.5, True),
        ({"extract": True}, "The answer is 42.", 42, True),
        ({"extract": True}, "2024-02-29", 29, True),
        ({"extract": True}, "from 5 to -3", -3, True),
        ({"extract": True}, "so x = \u22125.", -5, True),
        ({"extract": True}, "so x = \u22125.", 5, False),
        ({}, "\u22121,234", -1234, True),
        ({"extract": True}, "none", 42, False),
        ({}, 42, "many", None),
        ({}, 42, [42], None),
    ],
)
def test_numeric_close(options: Any, actual: Any, expected: Any, result: Any) -> None:
    assert score(numeric_close(**options), actual, expected)[0] is result


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf"), "1", True])
def test_numeric_close_refuses_unusable_tolerances(tolerance: Any) -> None:
    with pytest.raises(ConfigurationError, match="0 or more"):
        numeric_close(tolerance)
    with pytest.raises(ConfigurationError, match="0 or more"):
        numeric_close(relative=tolerance)


def test_a_path_is_checked_when_the_evaluator_is_built() -> None:
    for build in (exact_match, contains, regex_match, json_equal, numeric_close):
        with pytest.raises(ConfigurationError, match="A path such as"):
            build(field="")
        with pytest.raises(ConfigurationError, match="A path such as"):
            build(expected_field="..")
    with pytest.raises(ConfigurationError, match="A path such as"):
        contains("x", field=5)  # type: ignore[arg-type]


def test_long_values_are_shortened_in_reasons() -> None:
    message = score(exact_match(), "x" * 5000, "y" * 5000)[1]
    assert len(message) < 500 and "…" in message


def test_each_can_be_named() -> None:
    assert exact_match(name="strict").name == "strict"
    assert [f(name="n").name for f in (contains, regex_match, json_equal)] == ["n"] * 3


@pytest.mark.parametrize("name", ["", " ", None, [], 5])
@pytest.mark.parametrize(
    "build",
    [
        exact_match,
        json_equal,
        numeric_close,
        contains,
        functools.partial(contains, "x"),
        functools.partial(regex_match, "x"),
    ],
)
def test_a_name_that_names_nothing_is_refused(build: Any, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name must be the metric's name"):
        build(name=name)


@pytest.mark.parametrize(
    ("check", "expected", "hinted"),
    [
        (exact_match(), "42", True),
        (exact_match(), '{"answer": "43"}', False),
        (exact_match(field="answer"), "43", False),
        (numeric_close(), "42", True),
    ],
)
def test_an_object_that_is_compared_whole_hints_at_its_parts(check, expected, hinted):
    output = SolutionOutput.success({"answer": {"text": "42"}})
    verdict = check(Task("t", {}, expected), output)
    assert verdict["score"] is False
    assert ('field="answer"' in verdict["reason"]) is hinted


@pytest.mark.parametrize("text", [3, 3.5, {"a": 1}, object(), [], [1], b"x"])
def test_contains_refuses_what_is_no_text(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a text"):
        contains(text)


@pytest.mark.parametrize("flag", ["no", "", 0, None])
@pytest.mark.parametrize(
    "build, name",
    [
        (exact_match, "ignore_case"),
        (exact_match, "strip"),
        (functools.partial(contains, "x"), "ignore_case"),
        (functools.partial(regex_match, "x"), "full"),
        (numeric_close, "extract"),
    ],
)
def test_a_text_does_not_count_as_true(build: Any, name: str, flag: Any) -> None:
    with pytest.raises(ConfigurationError, match=name + " must be True or False"):
        build(**{name: flag})
