"""The turns of a row: what counts as a message, and where rows keep them."""

import json
import subprocess
import sys

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions.turns import TurnSource, messages_in

PARTS = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
IMAGE = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {}}]


@pytest.mark.parametrize(
    ("held", "messages"),
    [
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        (' [{"content": "a"}, {"content": "b"}]', ["a", "b"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ("just a question", ["just a question"]),
        ("[draft] not JSON", ["[draft] not JSON"]),
        ("{unclosed", ["{unclosed"]),
        ("(1, 2)", ["(1, 2)"]),
        ({"turns": ["a"]}, ["a"]),
        ('{"messages": [{"role": "user", "content": "a"}]}', ["a"]),
        ({"message": "a"}, ["a"]),
        ({"turns": "a", "text": "b"}, ["b"]),
        ([1, 2.5], ["1", "2.5"]),
        ([True], [True]),
        (iter(["a"]), ["a"]),
        ("[" * 100000, ["[" * 100000]),
    ],
)
def test_turns_come_as_list_or_json_text_or_object_of_a_list(held, messages):
    assert messages_in(held) == messages


@pytest.mark.parametrize("key", ["content", "message", "text", "query", "input", "question"])
def test_items_may_be_objects_with_their_text_under_a_usual_key(key):
    assert messages_in([{key: "a", "id": 7}]) == ["a"]


def test_of_items_with_a_role_only_the_users_are_turns():
    recorded = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "an answer"},
        {"role": "User", "content": PARTS},
        {"content": "no role"},
    ]
    assert messages_in(recorded) == ["a", "one two", "no role"]
    shared = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    assert messages_in(shared) == ["a"]
    assert messages_in([{"from": "alice", "text": "a"}]) == ["a"]


def test_blank_items_are_left_out_and_content_that_is_no_text_is_kept():
    assert messages_in(["a", "", "  ", None, {"content": ""}, {"content": None, "text": "b"}]) == [
        "a",
        "b",
    ]
    assert messages_in([{"content": IMAGE}]) == [IMAGE]
    assert messages_in([{"picture": "p.png"}]) == [{"picture": "p.png"}]
    assert messages_in([{"content": 5}]) == ["5"]
    for nothing in (None, "", "  ", [], "[]", [""], "[null]"):
        assert messages_in(nothing) == []


def test_columns_are_asked_in_order_until_one_holds_turns():
    source = TurnSource("turns", ["dialog", "question"])
    assert source.messages(Task("t", {"turns": "[]", "question": "q", "dialog": ["d"]})) == ["d"]
    assert source.messages(Task("t", {"turns": None, "question": "q"})) == ["q"]
    assert source.messages(Task("t", {"other": "x"})) == []
    assert "turns, dialog, question" in source.missing


def test_an_extractor_replaces_the_columns():
    source = TurnSource(extractor=lambda task: json.loads(task.input["log"])["said"])
    row = {"turns": ["not these"], "log": '{"said": [{"text": "a"}, "b"]}'}
    assert source.messages(Task("t", row)) == ["a", "b"]
    assert "turn_extractor" in source.missing


@pytest.mark.parametrize(
    "arguments",
    [("",), (3,), ("turns", "dialog"), ("turns", [3]), ("turns", (), "not callable")],
)
def test_unusable_sources_are_refused(arguments):
    with pytest.raises(ConfigurationError):
        TurnSource(*arguments)


CHAINS = ("1" + "+1" * 200_000, "a" + "()" * 200_000, "a" + ".a" * 200_000, "-" * 200_000 + "1")


@pytest.mark.parametrize("chain", [*CHAINS, "[" * 100_000, "''" + "[0]" * 200_000], ids=range(6))
def test_a_text_made_to_exhaust_the_parser_stays_a_text(chain):
    """In a process of its own: such a text killed Python 3.8."""
    program = (
        "import sys; from agentloop_experiment_sdk.solutions.turns import messages_in\n"
        "text = sys.stdin.read(); assert messages_in(text) == [text]"
    )
    text = "['it', " + chain + "]"
    done = subprocess.run([sys.executable, "-c", program], input=text.encode(), timeout=60)
    assert done.returncode == 0


def test_what_python_writes_of_plain_values_is_still_read():
    value = [{"role": "user", "content": [-1, 2.5e-7, None, True, (), ("a", "b\n'\""), {}]}, "b"]
    assert messages_in(repr(value)) == messages_in(value)
