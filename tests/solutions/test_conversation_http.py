"""Conversations over HTTP: one row is one whole conversation in one session."""

import asyncio
import json
import re
import threading

import pytest
from raw_http import RawServer

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import SolutionOutput, Task
from agentloop_experiment_sdk.scope import AttemptScope, entered
from agentloop_experiment_sdk.solutions.call import finish_async, is_async, needs_loop
from agentloop_experiment_sdk.solutions.conversation import (
    multi_turn_http_solution,
    multi_turn_http_solution_with,
)
from agentloop_experiment_sdk.solutions.fingerprint import fingerprint_of
from agentloop_experiment_sdk.tracing import trace_headers

ID = "0af7651916cd43dd8448eb211c80319c"
OTHER = "1" * 32
ROW = {"turns": ["hello", {"content": "how are you?"}, "bye"], "name": "x"}
TASK = Task("t-1", ROW, metadata={"record_id": "rec-1", "dataset_item_id": "7"})
USAGE = {"prompt_tokens": 10, "completion_tokens": 2}


class Agent:
    """A chat server that remembers what each session said."""

    def __init__(self, own_session=None, extra=None, headers=None):
        self.own_session = own_session
        self.extra = extra or {}
        self.headers = headers or {}
        self.sessions = {}

    def __call__(self, request, reply):
        body = json.loads(request.body)
        said = self.sessions.setdefault(body["session_id"], [])
        said.append(body["message"])
        answer = {"answer": "heard {}".format(len(said)), "usage": USAGE, **self.extra}
        if self.own_session:
            answer.update(self.own_session)
        reply.whole(json.dumps(answer), **self.headers)


def converse(agent, task=TASK, **options):
    with RawServer(agent) as server:
        output = multi_turn_http_solution_with(server.url("/chat"), **options)(task)
    return output, server.requests


def bodies(requests):
    return [json.loads(request.body) for request in requests]


def test_a_row_is_one_conversation_in_one_generated_session():
    agent = Agent()
    output, requests = converse(agent)
    assert output.success is True
    session_id = output.output["session_id"]
    assert re.fullmatch(r"sess-\d{8}-\d{6}-[0-9a-f]{8}", session_id)
    assert agent.sessions == {session_id: ["hello", "how are you?", "bye"]}
    assert output.output == {
        "session_id": session_id,
        "turns_total": 3,
        "turns": [{"answer": "heard %d" % n, "usage": USAGE} for n in (1, 2, 3)],
        "final_reply": "heard 3",
        "usage_total": {"input_tokens": 30, "output_tokens": 6, "total_tokens": 36},
    }
    assert output.meta["session_id"] == session_id
    assert output.meta["experiment_input"] == ROW
    assert output.meta["usage"] == output.output["usage_total"]
    assert [turn["http"]["status"] for turn in output.meta["turns"]] == [200, 200, 200]
    assert all(turn["ms"] > 0 for turn in output.meta["turns"])
    for request in requests:
        for name in ("X-Session-Id", "X-Conversation-Id", "X-Thread-Id"):
            assert request.get(name) == session_id


def test_every_turn_carries_its_trace_and_the_first_anchors_the_row():
    output, requests = converse(Agent())
    sent = [request.get("traceparent").split("-")[1] for request in requests]
    assert len(set(sent)) == 3
    assert output.meta["traceId"] == sent[0] and output.meta["trace_ids"] == sent
    assert all("traffic.agentloop.experiment.id=rec-1" in r.get("baggage") for r in requests)


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        (Agent(headers={"traceid": ID}), {}),
        (Agent(headers={"X-Trace-Id": ID.upper()}), {}),
        (
            Agent(headers={"x-mine": ID, "traceid": OTHER}),
            {"trace_id_response_headers": ["X-Mine"]},
        ),
        (Agent(extra={"trace_ids": {"agent": ID}}), {}),
        (Agent(extra={"traceId": "0" * 32, "trace_id": ID}), {}),
        (Agent(extra={"meta": {"t": ID}}), {"trace_id_body_paths": ["meta.t"]}),
        (Agent(extra={"trace_id": OTHER}, headers={"eagleeye-traceid": ID}), {}),
    ],
)
def test_the_trace_id_that_the_agent_names_is_recorded(agent, options):
    output, _ = converse(agent, **options)
    assert output.meta["traceId"] == ID


def test_no_header_is_asked_for_the_trace_when_none_is_named():
    output, requests = converse(Agent(headers={"traceid": ID}), trace_id_response_headers=())
    assert output.meta["traceId"] == requests[0].get("traceparent").split("-")[1]


def test_the_header_of_the_environment_is_asked_before_the_usual_ones(monkeypatch):
    monkeypatch.setenv("AGENTLOOP_TRACE_ID_RESPONSE_HEADER", "X-Ours")
    output, _ = converse(Agent(headers={"x-ours": ID, "traceid": OTHER}))
    assert output.meta["traceId"] == ID


@pytest.mark.parametrize(
    "agent",
    [
        Agent(own_session={"session_id": "theirs"}),
        Agent(own_session={"data": {"conversationId": "theirs"}}),
        Agent(own_session={"conversation": {"id": "theirs"}}),
        Agent(headers={"Conversation-Id": "theirs"}),
        Agent(own_session={"session_id": "not me"}, headers={"X-Session-Id": "theirs"}),
    ],
)
def test_a_session_that_the_agent_took_is_used_from_the_next_turn_on(agent):
    output, requests = converse(agent, session_id="ours")
    assert [body["session_id"] for body in bodies(requests)] == ["ours", "theirs", "theirs"]
    assert [request.get("X-Session-Id") for request in requests] == ["ours", "theirs", "theirs"]
    assert output.output["session_id"] == output.meta["session_id"] == "theirs"
    assert output.output["requested_session_id"] == "ours"


def test_the_answers_own_id_is_not_taken_for_a_session():
    output, requests = converse(Agent(own_session={"id": "resp-1"}), session_id="ours")
    assert {body["session_id"] for body in bodies(requests)} == {"ours"}
    assert "requested_session_id" not in output.output


def test_where_session_and_message_go_and_come_from_can_be_told():
    def handler(request, reply):
        reply.whole('{"deep": {"sid": 42}, "reply": "ok"}', x_sid="ignored")

    options = {
        "session_field": "sid",
        "message_field": "say",
        "session_id_request_headers": ["X-Sid"],
        "session_id_response_headers": [],
        "session_id_body_paths": ["deep.sid"],
        "headers": {"Authorization": "Bearer tok-123456", "x-sid": "fixed"},
    }
    output, requests = converse(handler, session_id="ours", **options)
    assert bodies(requests)[0] == {"sid": "ours", "say": "hello"}
    assert bodies(requests)[1]["sid"] == "42"
    assert requests[0].all("x-sid") == ["fixed"] and requests[0].get("X-Session-Id") is None
    assert requests[0].get("Authorization") == "Bearer tok-123456"
    assert "tok-123456" not in json.dumps(output.to_dict())


def test_session_headers_can_be_left_out():
    _, requests = converse(Agent(), inject_session_headers=False)
    assert requests[0].get("X-Session-Id") is None


def test_a_body_builder_gets_message_session_index_and_task():
    def build(message, session_id, turn_index, task):
        return {"session_id": session_id, "message": [task.id, turn_index, message]}

    agent = Agent()
    converse(agent, session_id="s", body_builder=build)
    assert agent.sessions["s"][1] == ["t-1", 1, "how are you?"]


def test_a_failing_turn_fails_the_row_and_keeps_the_turns_so_far():
    def handler(request, reply):
        if b"how are you" in request.body:
            reply.whole('{"error": "overloaded"}', status="500 Internal Server Error", traceid=ID)
        else:
            reply.whole('{"reply": "fine", "usage": {"input_tokens": 1, "output_tokens": 1}}')

    output, requests = converse(handler)
    assert output.success is False and len(requests) == 2
    assert output.output["turns"] == [
        {"reply": "fine", "usage": {"input_tokens": 1, "output_tokens": 1}}
    ]
    assert output.output["turns_total"] == 3 and output.output["final_reply"] == "fine"
    assert output.output["usage_total"]["total_tokens"] == 2
    assert output.output["failed_turn"] == {
        "index": 1,
        "message": "how are you?",
        "raw": {"error": "overloaded"},
    }
    assert output.meta["error_message"].startswith("turn 2 of 3: HTTP 500 Internal Server Error")
    assert "overloaded" in output.meta["error_message"]
    assert output.meta["trace_ids"][1] == ID
    assert output.meta["turns"][1]["http"]["status"] == 500


def test_a_builder_that_raises_fails_its_row():
    output, requests = converse(Agent(), body_builder=lambda *args: {}["no"])
    assert not requests and output.meta["error_type"] == "KeyError"
    assert output.meta["error_message"] == "turn 1 of 3: 'no'"
    assert "body_builder" in output.meta["traceback"]
    assert output.output["turns"] == [] and output.output["final_reply"] == ""


def test_a_turn_has_its_own_deadline():
    def handler(request, reply):
        server.released.wait(20)

    with RawServer(handler) as server:
        output = multi_turn_http_solution_with(server.url(), timeout=0.2)(TASK)
    assert output.success is False and "turn 1 of 3" in output.meta["error_message"]


def test_streamed_turns_are_joined_and_searched_for_session_and_usage():
    def handler(request, reply):
        events = [
            {"event": "message", "answer": "Hel", "conversation_id": "theirs"},
            {"event": "message", "answer": "lo", "conversation_id": "theirs"},
            {"event": "message_end", "metadata": {"usage": USAGE}, "trace_id": ID},
        ]
        reply.stream("".join("data: {}\n\n".format(json.dumps(event)) for event in events))

    output, requests = converse(handler, chunk_extractor=lambda data: data.get("answer"))
    assert output.output["turns"] == ["Hello"] * 3 and output.output["final_reply"] == "Hello"
    assert bodies(requests)[1]["session_id"] == "theirs"
    assert output.output["usage_total"]["total_tokens"] == 36
    assert output.meta["traceId"] == ID and output.meta["ttft_ms"] >= 0


def test_an_answer_without_reply_text_is_the_reply_itself():
    output, _ = converse(lambda request, reply: reply.whole('{"score": 3}'))
    assert output.output["final_reply"] == {"score": 3}


def test_a_row_without_turns_is_skipped_or_failed_as_configured():
    empty = Task("t", {"q": "x", "turns": "[]"})
    seen = []
    with RawServer(Agent()) as server:
        skipped = multi_turn_http_solution_with(server.url())(empty, lambda: seen.append(1))
        failing = multi_turn_http_solution_with(server.url(), on_missing_turns="fail")
        failed = failing(empty, lambda: seen.append(1))
    assert not server.requests and not seen
    assert skipped.success is True and skipped.meta["skipped"] is True
    assert skipped.output["skipped"] is True and "turns" in skipped.output["reason"]
    assert skipped.meta["experiment_input"] == empty.input
    assert failed.success is False and failed.meta["error_type"] == "MissingTurns"


def test_pre_hook_is_called_before_the_first_turn_only():
    seen = []
    with RawServer(Agent()) as server:
        solution = multi_turn_http_solution_with(server.url())
        solution(TASK, lambda: seen.append(len(server.requests)))
    assert seen == [0]


def test_a_cancelled_attempt_ends_its_conversation():
    arrived = threading.Event()

    def handler(request, reply):
        arrived.set()
        server.released.wait(20)

    outputs = []
    scope = AttemptScope("rec", "1")

    def attempt():
        with entered(scope):
            outputs.append(multi_turn_http_solution_with(server.url())(TASK))

    with RawServer(handler) as server:
        thread = threading.Thread(target=attempt)
        thread.start()
        assert arrived.wait(20)
        scope.cancel()
        thread.join(20)
        assert not thread.is_alive()
    assert outputs[0].success is False and len(server.requests) == 1


def test_conversations_in_parallel_keep_to_their_sessions():
    agent = Agent()
    with RawServer(agent) as server:
        solution = multi_turn_http_solution_with(server.url())
        threads = [threading.Thread(target=solution, args=(TASK,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert len(agent.sessions) == 8
    assert set(map(tuple, agent.sessions.values())) == {("hello", "how are you?", "bye")}


# ------------------------------------------------------------ a send_turn of the user's own


def test_a_function_of_the_users_sends_the_turns():
    seen = []

    def send_turn(message, session_id, turn_index, task):
        seen.append((message, session_id, turn_index, task.id))
        return {
            "reply": message.upper(),
            "trace_id": ID,
            "usage": {"input_tokens": 2, "output_tokens": 1, "model": "small"},
            "raw": {"n": turn_index},
            "session_id": 7,
        }

    output = multi_turn_http_solution(send_turn, "ours")(TASK)
    assert seen[0] == ("hello", "ours", 0, "t-1") and seen[1] == ("how are you?", "7", 1, "t-1")
    assert output.output["turns"] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert output.output["final_reply"] == "BYE"
    assert output.output["requested_session_id"] == "ours"
    assert output.meta["traceId"] == ID
    assert output.meta["usage"] == {
        "input_tokens": 6,
        "output_tokens": 3,
        "total_tokens": 9,
        "model": "small",
    }


def test_a_send_turn_may_return_just_the_reply_or_a_solution_output():
    plain = multi_turn_http_solution(lambda m, s, i, t: "re: " + m)(TASK)
    assert plain.output["turns"] == ["re: hello", "re: how are you?", "re: bye"]
    assert plain.output["usage_total"] == dict.fromkeys(
        ("input_tokens", "output_tokens", "total_tokens"), 0
    )
    assert "usage" not in plain.meta and "traceId" not in plain.meta

    def wrapped(message, session_id, turn_index, task):
        if turn_index == 1:
            return SolutionOutput.failure("Refused", "no more", output="half")
        return SolutionOutput.success("yes", meta={"traceId": ID, "usage": USAGE})

    output = multi_turn_http_solution(wrapped)(TASK)
    assert output.success is False and output.meta["error_message"] == "turn 2 of 3: no more"
    assert output.meta["error_type"] == "Refused" and output.meta["traceId"] == ID
    assert output.output["turns"] == ["yes"] and output.output["failed_turn"]["raw"] == "half"
    assert output.output["usage_total"]["total_tokens"] == 12


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit("bad")])
def test_a_send_turn_that_raises_fails_the_row_and_keeps_the_turns_so_far(error):
    def send_turn(message, session_id, turn_index, task):
        if turn_index == 2:
            raise error
        return message

    output = multi_turn_http_solution(send_turn)(TASK)
    assert output.output["turns"] == ["hello", "how are you?"]
    assert output.meta["error_message"] == "turn 3 of 3: bad"
    assert output.meta["error_type"] == type(error).__name__


def test_an_interrupt_is_not_a_failed_turn():
    def send_turn(message, session_id, turn_index, task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        multi_turn_http_solution(send_turn)(TASK)


def test_trace_headers_of_a_send_turn_give_the_row_its_trace():
    sent = []
    scope = AttemptScope("rec", "1")
    with entered(scope):
        multi_turn_http_solution(lambda m, s, i, t: sent.append(trace_headers()))(TASK)
    assert {headers["traceparent"].split("-")[1] for headers in sent} == {scope.trace_id}


async def _async_send(message, session_id, turn_index, task):
    await asyncio.sleep(0)
    if message == "bye":
        raise RuntimeError("hung up")
    return {"reply": message, "session_id": "theirs"}


def test_an_async_send_turn_is_awaited():
    solution = multi_turn_http_solution(_async_send)
    assert is_async(solution)
    output = asyncio.run(finish_async(solution(TASK, lambda: None)))
    assert output.output["turns"] == ["hello", "how are you?"]
    assert output.output["session_id"] == "theirs"
    assert output.meta["error_message"] == "turn 3 of 3: hung up"


def test_a_send_turn_that_turns_out_to_be_async_is_awaited_from_there_on():
    def send_turn(message, session_id, turn_index, task):
        if turn_index == 1:
            return _async_send(message, session_id, turn_index, task)
        return message

    solution = multi_turn_http_solution(send_turn)
    assert not is_async(solution)
    value = solution(TASK)
    assert needs_loop(value)
    output = asyncio.run(finish_async(value))
    assert output.success and output.output["turns"] == ["hello", "how are you?", "bye"]


def test_a_cancelled_async_conversation_stays_cancelled():
    async def main():
        started = asyncio.Event()

        async def send_turn(message, session_id, turn_index, task):
            started.set()
            await asyncio.sleep(60)

        conversation = asyncio.ensure_future(multi_turn_http_solution(send_turn)(TASK))
        await started.wait()
        conversation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await conversation

    asyncio.run(main())


def test_an_extractor_or_factory_that_raises_fails_its_row():
    def broken(*args):
        raise LookupError("no such column")

    for options in ({"turn_extractor": broken}, {"session_id_factory": lambda task: broken()}):
        output = multi_turn_http_solution(lambda *args: "x", **options)(TASK)
        assert output.meta["error_type"] == "LookupError"


def test_an_unusable_usage_or_trace_is_left_out():
    turn = {"reply": "x", "usage": "many", "trace_id": "req-1", "session_id": ""}
    output = multi_turn_http_solution(lambda *args: turn, "ours")(TASK)
    assert output.success and "traceId" not in output.meta
    assert output.output["session_id"] == "ours" and "usage" not in output.meta


@pytest.mark.parametrize(
    "make",
    [
        lambda: multi_turn_http_solution("not callable"),
        lambda: multi_turn_http_solution(print, on_missing_turns="ignore"),
        lambda: multi_turn_http_solution(print, session_id=""),
        lambda: multi_turn_http_solution(print, turns_fallback_fields="turns"),
        lambda: multi_turn_http_solution_with("ftp://host/"),
        lambda: multi_turn_http_solution_with("http://host/", timeout=0),
        lambda: multi_turn_http_solution_with("http://host/", body_builder={"a": 1}),
        lambda: multi_turn_http_solution_with("http://host/", headers={"a b": "c"}),
        lambda: multi_turn_http_solution_with("http://host/", max_response_bytes=0),
    ],
)
def test_unusable_arguments_are_refused_when_the_solution_is_made(make):
    with pytest.raises(ConfigurationError):
        make()


def build_body(message, session_id, turn_index, task):
    return {}


def test_the_fingerprint_names_the_agent_without_secrets():
    own = multi_turn_http_solution(_async_send)
    assert own.fingerprint == "conversation by {}._async_send".format(__name__)
    url = "https://u:p@agent.example/chat?api_key=k123"
    solution = multi_turn_http_solution_with(url)
    assert solution.fingerprint == (
        "conversation over http POST https://***@agent.example/chat?api_key=***"
    )
    built = multi_turn_http_solution_with(url, body_builder=build_body)
    assert fingerprint_of(solution)["hash"] != fingerprint_of(built)["hash"]
