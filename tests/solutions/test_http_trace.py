"""The trace id that is recorded is the one the agent saw."""

from __future__ import annotations

import re
import socket
from typing import Any, Dict

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok, call

from agentloop_experiment_sdk import tracing
from agentloop_experiment_sdk.models import HttpRequestSpec, Task
from agentloop_experiment_sdk.scope import AttemptScope, entered
from agentloop_experiment_sdk.solutions.client import HttpClient
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.options import HttpOptions

GOOD = "0af7651916cd43dd8448eb211c80319c"
OWN = "00-{}-b7ad6b7169203331-00".format("1" * 32)
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")


@pytest.fixture(autouse=True)
def no_configured_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTLOOP_TRACE_ID_RESPONSE_HEADER", raising=False)


def test_each_call_has_its_own_trace_and_records_it() -> None:
    with RawServer(answer_ok) as server:
        solution = http_solution_with(server.url(), timeout=CAP)
        recorded = [solution(a_task()).meta["traceId"] for _ in range(3)]
        matches = [TRACEPARENT.fullmatch(r.get("traceparent") or "") for r in server.requests]
    sent = [match.group(1) for match in matches if match]
    assert sent == recorded
    assert len(set(sent)) == 3


def baggage(**options: Any) -> Dict[str, str]:
    task = options.pop("task", a_task())
    with RawServer(answer_ok) as server:
        assert http_solution_with(server.url(), timeout=CAP, **options)(task).success
        (header,) = server.requests[0].all("baggage")
    return dict(member.split("=", 1) for member in header.split(","))


@pytest.mark.parametrize(
    "item_id, encoded",
    [
        ("问题-1", "%E9%97%AE%E9%A2%98-1"),
        ("a,b;c d", "a%2Cb%3Bc%20d"),
        ("100%41", "100%2541"),
        (0, "0"),
    ],
)
def test_baggage_names_experiment_and_item(item_id: Any, encoded: str) -> None:
    assert baggage(task=a_task(item_id=item_id)) == {
        tracing.EXPERIMENT_ID: "record-1",
        tracing.DATA_ITEM_ID: encoded,
    }


def test_baggage_of_the_caller_is_kept() -> None:
    members = baggage(headers={"Baggage": "tenant=acme;prop=1, user=7%20a"})
    assert members["tenant"] == "acme;prop=1"
    assert members["user"] == "7%20a"
    assert members[tracing.DATA_ITEM_ID] == "item-1"


def test_outside_a_run_there_is_a_trace_but_no_member() -> None:
    with RawServer(answer_ok) as server:
        http_solution_with(server.url(), timeout=CAP)(Task("t", {}))
        assert TRACEPARENT.fullmatch(server.requests[0].get("traceparent") or "")
        assert server.requests[0].get("baggage") is None


def test_a_callers_valid_traceparent_wins() -> None:
    with RawServer(answer_ok) as server:
        output = http_solution_with(server.url(), headers={"Traceparent": OWN}, timeout=CAP)(
            a_task()
        )
        assert server.requests[0].all("traceparent") == [OWN]
    assert output.meta["traceId"] == "1" * 32


def recorded(status: str = "200 OK", headers: Any = None, **options: Any) -> Any:
    """The trace id recorded for an answer with these headers, and the one that was sent."""
    sent = []

    def handler(request: Request, reply: Reply) -> None:
        sent.append((request.get("traceparent") or "").split("-")[1])
        lines = "".join("%s: %s\r\n" % pair for pair in (headers or {}).items())
        reply.send(("HTTP/1.1 %s\r\nContent-Length: 0\r\n%s\r\n" % (status, lines)).encode())

    output = call(handler, **options)
    return output.meta["traceId"], sent[0]


@pytest.mark.parametrize("name", ["traceId", "eagleeye-traceId", "EAGLEEYE-TRACEID"])
def test_a_valid_id_in_the_answer_wins(name: str) -> None:
    assert recorded(headers={name: GOOD.upper()})[0] == GOOD


def test_it_wins_over_the_callers_own_and_for_failures_too() -> None:
    with RawServer(lambda _, reply: reply.whole(b"", "", "500 No", traceId=GOOD)) as server:
        solution = http_solution_with(server.url(), headers={"traceparent": OWN}, timeout=CAP)
        assert solution(a_task()).meta["traceId"] == GOOD


@pytest.mark.parametrize("bad", ["0" * 32, "g" * 32, "abc123", GOOD[:31], ""])
def test_an_invalid_id_in_the_answer_is_ignored(bad: str) -> None:
    found, sent = recorded(headers={"traceId": bad})
    assert found == sent


def test_eagleeye_comes_before_trace_id() -> None:
    assert recorded(headers={"traceId": "2" * 32, "eagleeye-traceId": GOOD})[0] == GOOD


@pytest.mark.parametrize(
    "value, taken", [(GOOD, True), ("req-7f3a not a trace", False), ("", False)]
)
def test_the_header_named_by_the_environment_is_asked(
    value: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLOOP_TRACE_ID_RESPONSE_HEADER", "X-Trace-Id")
    found, sent = recorded(headers={"X-Trace-Id": value})
    assert found == (GOOD if taken else sent)


def test_the_parameter_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLOOP_TRACE_ID_RESPONSE_HEADER", "X-Env")
    headers = {"X-Env": "2" * 32, "X-Param": GOOD, "traceId": "3" * 32}
    assert recorded(headers=headers, trace_id_response_header="X-Param")[0] == GOOD
    del headers["X-Param"]
    assert recorded(headers=headers, trace_id_response_header="X-Param")[0] == "3" * 32


def test_the_trace_is_noted_on_the_attempt() -> None:
    with RawServer(answer_ok) as server, entered(AttemptScope()) as scope:
        output = http_solution_with(server.url(), timeout=CAP)(a_task())
    assert scope.trace_id == output.meta["traceId"]


def test_the_trace_is_noted_when_it_is_sent_for_a_row_that_is_given_up() -> None:
    noted = []

    def late(request: Request, reply: Reply) -> None:
        noted.append((scope.trace_id, request.get("traceparent")))
        reply.whole("{}", traceId=GOOD)

    with RawServer(late) as server, entered(AttemptScope()) as scope:
        http_solution_with(server.url(), timeout=CAP)(a_task())
    (while_waiting, sent), *_ = noted
    assert while_waiting is not None and while_waiting in str(sent)
    assert scope.trace_id == GOOD


def test_a_later_call_of_the_attempt_leaves_its_trace() -> None:
    with RawServer(answer_ok) as server, entered(AttemptScope()) as scope:
        solution = http_solution_with(server.url(), timeout=CAP)
        first, second = solution(a_task()), solution(a_task())
    assert scope.trace_id == first.meta["traceId"] != second.meta["traceId"]


def test_a_call_that_was_never_sent_has_no_trace() -> None:
    client = HttpClient(HttpOptions(CAP))
    with entered(AttemptScope()) as scope:
        answer = client.exchange(HttpRequestSpec("http://h/", headers={"bad name": "x"}))
    assert not answer.success
    assert answer.error_type == "ConfigurationError"
    assert answer.trace_id is None
    assert scope.trace_id is None
    assert "traceId" not in answer.meta()


def test_a_call_that_reached_nobody_has_no_trace() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d/" % sock.getsockname()[1]
        with entered(AttemptScope()) as scope:
            output = http_solution_with(url, method="GET", transport_retries=1)(a_task())
    assert output.meta["error_type"] == "ConnectionError"
    assert "traceId" not in output.meta
    assert scope.trace_id is None


def test_a_call_that_was_dropped_unanswered_has_its_trace() -> None:
    with RawServer(lambda request, reply: None) as server:
        output = http_solution_with(server.url(), timeout=CAP)(a_task())
        sent = server.requests[0].get("traceparent")
    assert not output.success
    assert sent is not None and output.meta["traceId"] == sent.split("-")[1]


def test_an_open_opentelemetry_span_is_what_the_agent_continues() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    tracer = sdk.TracerProvider().get_tracer("tests")
    with RawServer(answer_ok) as server:
        solution = http_solution_with(server.url(), timeout=CAP)
        with entered(AttemptScope()), tracer.start_as_current_span("row") as span:
            output = solution(a_task())
        context = span.get_span_context()
        header = server.requests[0].get("traceparent") or ""
    assert header.startswith("00-{:032x}-{:016x}-".format(context.trace_id, context.span_id))
    assert output.meta["traceId"] == format(context.trace_id, "032x")
