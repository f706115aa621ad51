"""Event streams, from the wire to one answer."""

from __future__ import annotations

import gzip
import json
import sys
from typing import Any, List

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, call

from agentloop_experiment_sdk.models import HttpRequestSpec, SolutionOutput
from agentloop_experiment_sdk.solutions import extractors
from agentloop_experiment_sdk.solutions.client import HttpClient
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.options import HttpOptions


def event(value: Any, kind: str = "") -> str:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ("event: %s\n" % kind if kind else "") + "data: %s\n\n" % data


def t(data: Any) -> Any:
    return data["t"]


def streamed(text: str, extractor: Any = t, **options: Any) -> SolutionOutput:
    return call(lambda _, reply: reply.stream(text), chunk_extractor=extractor, **options)


def test_the_pieces_are_joined() -> None:
    output = streamed(event({"t": "Hel"}) + ": ping\n\n" + event({"t": "lo"}))
    assert output.success
    assert output.output == "Hello"


def test_without_extractor_the_data_is_joined_with_nothing_between() -> None:
    assert streamed(event("a") + event('{"b": 1}') + event(" c"), None).output == 'a{"b": 1} c'


def test_an_event_stream_is_utf8_whatever_its_charset_says() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.whole(event({"t": "天气…"}), "text/event-stream; charset=windows-1252")

    assert call(handler, chunk_extractor=t).output == "天气…"


def test_chunk_borders_carry_no_meaning() -> None:
    body = (event({"t": "你好🌏"}) + event({"t": "end"})).encode("utf-8")

    def handler(request: Request, reply: Reply) -> None:
        reply.chunks([body[i : i + 1] for i in range(len(body))])

    assert call(handler, chunk_extractor=t).output == "你好🌏end"


def test_a_compressed_stream_is_read() -> None:
    def handler(request: Request, reply: Reply) -> None:
        body = gzip.compress(event({"t": "ok"}).encode("utf-8"))
        reply.whole(body, "text/event-stream", Content_Encoding="gzip")

    assert call(handler, chunk_extractor=t).output == "ok"


def test_a_stream_cut_before_its_last_chunk_fails_and_keeps_its_text() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.chunks([event({"t": "partial"}).encode("utf-8")], end=False)

    output = call(handler, chunk_extractor=t)
    assert not output.success
    assert output.meta["error_type"] == "IncompleteResponse"
    assert output.output == "partial"


def test_a_stream_that_ends_with_its_connection_is_complete() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/event-stream")
        reply.send(event({"t": "ok"}).encode("utf-8"))

    assert call(handler, chunk_extractor=t).output == "ok"


def ended_within(
    rest: str, framed: bool, extractor: Any = t, end_mark: Any = None
) -> SolutionOutput:
    body = event({"t": "A"} if extractor else "A") + rest

    def handler(request: Request, reply: Reply) -> None:
        if framed:
            reply.stream(body)
        else:
            reply.head(Content_Type="text/event-stream")
            reply.send(body.encode("utf-8"))

    return call(handler, chunk_extractor=extractor, end_mark=end_mark)


@pytest.mark.parametrize(
    "rest, framed, extractor, text",
    [
        ('data: {"t": "B"}', True, t, "AB"),
        ('data: {"t": "B"}', False, t, "AB"),
        ('data: {"t": "B"}\n', False, t, "AB"),
        ('data: {"t": "B', False, t, "A"),
        ("data: B", True, None, "AB"),
        ("data: B", False, None, "A"),
        ("data: B\n", False, None, "AB"),
        ('data: "B"', False, lambda value: value if isinstance(value, str) else value["t"], "AB"),
        ('data: "B', False, lambda value: value if isinstance(value, str) else value["t"], "A"),
        ("event: x\n", True, None, "A"),
    ],
)
def test_a_last_event_without_blank_line_is_kept_where_it_is_surely_whole(
    rest: str, framed: bool, extractor: Any, text: str
) -> None:
    output = ended_within(rest, framed, extractor)
    assert output.success
    assert output.output == text


def text_or_nothing(value: Any) -> Any:
    return value["t"] if isinstance(value, dict) else None


@pytest.mark.parametrize(
    "rest, mark",
    [
        ("data: [DONE]", "[DONE]"),
        ("data:[DONE]", "[DONE]"),
        ("id: 7\ndata: [DONE]", "[DONE]"),
        ("event: end\ndata: [DONE]", "end"),
        ('event: done\ndata: "[DONE]"', "done"),
        ("data: THE END", "THE END"),
    ],
)
def test_an_end_mark_that_the_connection_ends_behind_is_the_end(rest: str, mark: str) -> None:
    output = ended_within(rest, False, text_or_nothing, mark)
    assert output.success, output
    assert output.output == "A"


@pytest.mark.parametrize(
    "rest, mark",
    [
        ("data: [DON", "[DONE]"),
        ("data: [DONE] ", "[DONE]"),
        ("data: say\ndata: [DONE]", "[DONE]"),
        ("data: THE", "THE END"),
        ("data: [DONE]", "THE END"),
        ("event: [DONE]", "[DONE]"),
    ],
)
def test_an_end_mark_that_did_not_arrive_whole_is_none(rest: str, mark: str) -> None:
    output = ended_within(rest, False, text_or_nothing, mark)
    assert output.meta["error_type"] == "IncompleteResponse"
    assert output.output == "A"


def test_done_ends_the_stream_only_as_the_whole_data() -> None:
    text = event({"t": "say [DONE]"}) + event({"t": " ok"}) + event("[DONE]") + event("{bad")
    output = streamed(text)
    assert output.success
    assert output.output == "say [DONE] ok"


def test_the_extractor_never_sees_done() -> None:
    seen: List[Any] = []
    streamed(event({"t": 1}) + event("plain") + event("[DONE]"), seen.append)
    assert seen == [{"t": 1}, "plain"]


def test_a_stream_that_stays_open_after_done_is_over() -> None:
    with RawServer(lambda _, reply: _stay_open(server, reply)) as server:
        output = http_solution_with(server.url(), timeout=CAP, chunk_extractor=t)(a_task())
    assert output.success
    assert output.output == "ok"


def _stay_open(server: RawServer, reply: Reply) -> None:
    reply.head(Content_Type="text/event-stream", Transfer_Encoding="chunked")
    reply.chunk((event({"t": "ok"}) + event("[DONE]")).encode("utf-8"))
    server.released.wait(CAP)


def test_the_connection_of_a_finished_stream_is_used_again() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.chunks([event({"t": "ok"}).encode("utf-8"), event("[DONE]").encode("utf-8")])

    with RawServer(handler) as server:
        solution = http_solution_with(server.url(), timeout=CAP, chunk_extractor=t)
        for _ in range(3):
            assert solution(a_task()).output == "ok"
        assert server.connections == 1


@pytest.mark.parametrize("nothing", [None, ""])
def test_none_and_empty_text_add_nothing(nothing: Any) -> None:
    assert streamed(event({"t": "a"}) + event({"t": nothing}) + event({"t": "b"})).output == "ab"


def test_what_is_no_text_is_added_as_json() -> None:
    assert (
        streamed(event({"t": 1}) + event({"t": True}) + event({"t": ["x"]})).output == '1true["x"]'
    )


def test_an_extractor_that_fails_fails_the_row_and_keeps_the_text() -> None:
    text = event({"choices": [{"delta": {"content": "Hi"}}]}) + event({"choices": []})

    def content(data: Any) -> Any:
        return data["choices"][0]["delta"]["content"]

    output = streamed(text, content)
    assert not output.success
    assert "in content" in output.meta["traceback"]
    assert "stream.py" not in output.meta["traceback"]
    assert output.meta["error_type"] == "ChunkExtractorError"
    assert "IndexError" in output.meta["error_message"]
    assert output.output == "Hi"


def test_the_traceback_of_an_extractor_holds_no_secret_of_the_request() -> None:
    def extract(data: Any) -> Any:
        raise ValueError("cannot read " + data["echo"])

    headers = {"Authorization": "Bearer abcdef1234567890"}
    output = streamed(event({"echo": "abcdef1234567890"}), extract, headers=headers)
    assert "cannot read ***" in output.meta["traceback"]
    assert "abcdef1234567890" not in repr(output.meta)


def test_an_extractor_that_exits_fails_the_row_and_keeps_the_text() -> None:
    def extract(data: Any) -> Any:
        return data["t"] if "t" in data else sys.exit("no text")

    output = streamed(event({"t": "Hi"}) + event({}), extract)
    assert output.meta["error_type"] == "ChunkExtractorError"
    assert "SystemExit: no text" in output.meta["error_message"]
    assert output.output == "Hi"


def test_an_extractor_with_an_event_parameter_gets_the_type() -> None:
    def extract(data: Any, event: str = "") -> Any:
        return data["t"] if event == "delta" else None

    text = event({"t": "a"}, "delta") + event({"t": "aa"}, "completed")
    assert streamed(text, extract).output == "a"


def test_a_builtin_can_be_the_extractor() -> None:
    assert streamed(event("5"), str).output == "5"


@pytest.mark.parametrize(
    "bad, message",
    [
        (event("it broke", "error"), "it broke"),
        (event("", "error"), "The stream reported an error."),
        (event({"error": {"message": "overloaded", "type": "x"}}), "overloaded"),
        (event({"error": "no quota"}), "no quota"),
        (event({"type": "error", "error": {"message": "Overloaded"}}, "error"), "Overloaded"),
        (event({"event": "error", "status": 400, "message": "bad app"}), "bad app"),
        (event({"code": "Throttling", "message": "slow down"}, "error"), "slow down"),
        (
            event({"type": "response.failed", "response": {"error": {"message": "no"}}}),
            "no",
        ),
        (
            event({"last_error": {"code": 5, "msg": "gone"}}, "conversation.chat.failed"),
            "gone",
        ),
        (
            event({"event": "workflow_finished", "data": {"status": "failed", "error": "node"}}),
            "node",
        ),
    ],
)
def test_an_error_within_the_stream_fails_the_row_and_keeps_the_text(
    bad: str, message: str
) -> None:
    output = streamed(event("so far") + bad + event("never"), None)
    assert not output.success
    assert output.meta["error_type"] == "StreamError"
    assert output.meta["error_message"] == message
    assert output.output == "so far"


@pytest.mark.parametrize(
    "fine",
    [
        {"error": None},
        {"error": ""},
        {"error": {"code": 0, "message": ""}},
        {"last_error": {"code": 0, "msg": ""}},
        {"event": "workflow_finished", "data": {"status": "succeeded"}},
        {"event": "workflow_finished"},
    ],
)
def test_an_error_field_that_holds_nothing_is_no_error(fine: Any) -> None:
    assert streamed(event(fine), lambda data: "x").success


def test_a_demanded_end_mark_that_does_not_come_fails_the_row() -> None:
    output = streamed(event({"t": "a"}), end_mark="[DONE]")
    assert output.meta["error_type"] == "IncompleteResponse"
    assert "[DONE]" in output.meta["error_message"]
    assert output.output == "a"


@pytest.mark.parametrize(
    "mark, last",
    [
        ("[DONE]", event("[DONE]")),
        ("message_stop", event({"type": "message_stop", "t": ""})),
        ("message_end", event({"event": "message_end", "t": ""})),
        ("done", event({"t": ""}, "done")),
        ("done", event('"[DONE]"', "done")),
        ("end", event("[DONE]", "end")),
        ("THE END", event("THE END")),
    ],
)
def test_an_end_mark_is_data_or_a_type(mark: str, last: str) -> None:
    def extract(data: Any) -> Any:
        return data["t"] if isinstance(data, dict) else None

    output = streamed(event({"t": "a"}) + last + event({"t": "late"}), extract, end_mark=mark)
    assert output.success, output
    assert output.output == "a"


def test_done_is_no_substitute_for_another_end_mark() -> None:
    assert not streamed(event({"t": "a"}) + event("[DONE]"), end_mark="message_stop").success


def test_time_to_first_content_is_measured_at_the_first_text() -> None:
    times = iter(range(100))
    client = HttpClient(HttpOptions(CAP, chunk_extractor=t), clock=lambda: float(next(times)))
    with RawServer(lambda _, reply: reply.stream(event({"t": ""}) + event({"t": "a"}))) as server:
        answer = client.exchange(HttpRequestSpec(server.url(), timeout=1000))
    assert answer.streamed
    assert answer.ttft_ms is not None and answer.ttft_ms % 1000 == 0
    assert answer.meta()["ttft_ms"] == answer.ttft_ms


def test_a_stream_without_content_has_no_first_content() -> None:
    output = streamed(event({"t": ""}))
    assert output.output == ""
    assert "ttft_ms" not in output.meta


def test_a_stream_beyond_the_bound_fails_and_keeps_its_text() -> None:
    output = streamed(event({"t": "a"}) + event({"t": "b" * 100000}), max_response_bytes=70000)
    assert output.meta["error_type"] == "ResponseTooLarge"


def test_every_event_is_shown_to_the_caller() -> None:
    seen: List[Any] = []
    client = HttpClient(HttpOptions(CAP))
    with RawServer(lambda _, reply: reply.stream(event({"id": 1}) + event("x"))) as server:
        client.exchange(HttpRequestSpec(server.url()), on_event=seen.append)
    assert seen == [{"id": 1}, "x"]


def test_an_error_status_with_stream_type_is_an_error() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.whole(event({"t": "no"}), "text/event-stream", "503 Busy")

    output = call(handler, chunk_extractor=t, transport_retries=0)
    assert output.meta["error_message"].startswith("HTTP 503 Busy")


OPENAI = (
    event({"model": "gpt", "choices": [{"delta": {"role": "assistant", "content": ""}}]})
    + event({"model": "gpt", "choices": [{"delta": {"content": "Hi"}}]})
    + event({"model": "gpt", "choices": [{"delta": {"content": "!"}}]})
    + event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    + event("[DONE]")
)
ANTHROPIC = (
    event({"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 3}}})
    + event({"type": "ping"}, "ping")
    + event({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi!"}})
    + event({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 2}})
    + event({"type": "message_stop"}, "message_stop")
)
DASHSCOPE = (
    "id:1\nevent:result\n:HTTP_STATUS/200\n"
    'data:{"output":{"choices":[{"message":{"content":"Hi!"}}]},'
    '"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5},"request_id":"r"}\n\n'
)
COZE = (
    event(
        {"id": "1", "status": "created", "last_error": {"code": 0, "msg": ""}},
        "conversation.chat.created",
    )
    + event({"type": "answer", "content": "Hi"}, "conversation.message.delta")
    + event({"type": "answer", "content": "!"}, "conversation.message.delta")
    + event({"type": "answer", "content": "Hi!"}, "conversation.message.completed")
    + event(
        {"usage": {"token_count": 5, "output_count": 2, "input_count": 3}},
        "conversation.chat.completed",
    )
    + event('"[DONE]"', "done")
)


@pytest.mark.parametrize(
    "text, extractor",
    [
        (OPENAI, extractors.openai_chat_extractor),
        (ANTHROPIC, extractors.anthropic_extractor),
        (DASHSCOPE, extractors.dashscope_extractor),
        (COZE, extractors.coze_extractor),
    ],
)
def test_the_streams_of_known_services_are_read(text: str, extractor: Any) -> None:
    output = streamed(text, extractor)
    assert output.success, output
    assert output.output == "Hi!"
    assert {**output.meta["usage"], "model": ""} == {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        "model": "",
    }


def test_a_silence_between_events_beyond_idle_timeout_fails_the_row() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/event-stream", Transfer_Encoding="chunked")
        reply.chunk(event({"t": "a"}).encode("utf-8"))
        # comments are no events: a stuck agent may still send them
        while not server.released.wait(0.05):
            reply.chunk(b": ping\n\n")

    with RawServer(handler) as server:
        solution = http_solution_with(
            server.url(), timeout=CAP, chunk_extractor=t, idle_timeout=0.5
        )
        output = solution(a_task())
    assert output.meta["error_type"] == "IdleTimeout"
    assert output.output == "a"


def test_idle_timeout_also_bounds_the_wait_for_the_first_event() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/event-stream", Transfer_Encoding="chunked")
        server.released.wait(CAP)

    with RawServer(handler) as server:
        output = http_solution_with(server.url(), timeout=CAP, idle_timeout=0.3)(a_task())
    assert output.meta["error_type"] == "IdleTimeout"
