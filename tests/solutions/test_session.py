"""Session ids, and finding session id, trace id and reply in what agents answer."""

import re
import uuid

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions import session

TASK = Task("t-1", {"user": "u7"})
ID = "0af7651916cd43dd8448eb211c80319c"


def test_generated_session_ids_have_their_documented_form():
    assert re.fullmatch(r"sess-\d{8}-\d{6}-[0-9a-f]{8}", session.default_session_id())
    assert uuid.UUID(session.uuid_session_id()).version == 4
    assert len({session.default_session_id() for _ in range(50)}) == 50


def test_a_session_id_is_fixed_or_made_for_each_conversation():
    assert session.SessionIds("mine", session.uuid_session_id)(TASK) == "mine"
    made = session.SessionIds(None, session.uuid_session_id)
    assert made(TASK) != made(TASK)
    assert session.SessionIds(None, lambda task: task.input["user"])(TASK) == "u7"
    assert session.SessionIds(None, uuid.uuid4)(TASK) != ""
    assert session.SessionIds(None, lambda prefix="s": prefix)(TASK) == "s"
    assert session.SessionIds(None, dict)(TASK) == "{}"
    with pytest.raises(ConfigurationError, match="no session id"):
        session.SessionIds(None, lambda: None)(TASK)


@pytest.mark.parametrize(
    ("fixed", "factory"),
    [("", dict), (" ", dict), (7, dict), (None, "text"), (None, lambda task, more: "x")],
)
def test_unusable_session_ids_are_refused(fixed, factory):
    with pytest.raises(ConfigurationError):
        session.SessionIds(fixed, factory)


@pytest.mark.parametrize(
    "body",
    [
        {"session_id": "S"},
        {"sessionId": "S"},
        {"SessionId": "S"},
        {"conversation_id": "S"},
        {"ConversationId": "S"},
        {"threadId": " S "},
        {"chat_id": "S"},
        {"session": {"id": "S"}},
        {"conversation": {"id": "S"}},
        {"Thread": {"Id": "S"}},
        {"conversation_id": {"id": "S"}},
        {"data": {"session_id": "S"}},
        {"result": {"chatId": "S"}},
        {"data": {"conversation": {"id": "S"}}},
        {"Data": {"SessionId": "S"}},
    ],
)
def test_the_session_id_of_an_answer_is_found(body):
    assert session.session_id_in(body) == "S"


def test_the_preferred_name_wins_and_other_ids_are_left_alone():
    both = {"thread_id": "t", "session_id": "s", "data": {"session_id": "d"}}
    assert session.session_id_in(both) == "s"
    assert session.session_id_in({"session_id": "", "chat_id": 0}) == "0"
    for body in (
        {"id": "changes-every-turn"},
        {"data": {"id": "x"}},
        {"session_id": True},
        {"session_id": ["x"]},
        "text with session_id",
        ["session_id"],
        None,
    ):
        assert session.session_id_in(body) is None


def test_the_trace_id_of_an_answer_is_found_and_must_be_valid():
    other = "1" * 32
    assert session.trace_id_in({"trace_ids": {"gateway": ID.upper(), "agent": other}}) == ID
    assert session.trace_id_in({"trace_ids": {"gateway": "bad", "model": other}}) == other
    assert session.trace_id_in({"traceId": "0" * 32, "trace_id": ID}) == ID
    assert session.trace_id_in({"trace_id": 5}) is None
    assert session.trace_id_in("text") is None
    assert session.trace_id_in({"meta": [{"t": ID}]}, ["meta.0.t"]) == ID
    assert session.trace_id_in({"meta": [{"t": ID}]}, ["meta.1.t", "meta.x.t"]) is None


@pytest.mark.parametrize(
    "body",
    [
        "hello",
        {"reply": "hello"},
        {"code": 0, "message": "success", "data": {"answer": "hello"}},
        {"choices": [{"message": {"content": "hello"}}]},
        {"choices": [{"text": "hello"}]},
        {"output": {"text": "hello"}},
        {"item": {"type": "agent_message", "text": "hello"}},
        {"message": "hello"},
    ],
)
def test_the_reply_of_an_answer_is_found(body):
    assert session.reply_in(body) == "hello"


def test_an_answer_without_text_has_no_reply():
    assert session.reply_in({"answer": "", "score": 3}) is None
    assert session.reply_in([1]) is None


def test_json_on_stdout_is_read_whole_or_by_line():
    assert session.json_values('\n{\n "a": 1\n}\n') == [{"a": 1}]
    assert session.json_values('[{"a": 1}]') == [[{"a": 1}]]
    assert session.json_values('warming up\n{"a": 1}\r\nnot this\n{"b": 2}\n') == [
        {"a": 1},
        {"b": 2},
    ]
    assert session.json_values('{"level": "info"}\nThe answer is prose.') == []
    assert session.json_values("") == session.json_values("12") == []
    assert session.json_values('{"cut": ') == []
