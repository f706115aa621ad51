"""When a call is sent again, and when it is not."""

from __future__ import annotations

import email.utils
import socket
from typing import Any, Callable, List

import pytest
from raw_http import CAP, Handler, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.models import HttpRequestSpec
from agentloop_experiment_sdk.solutions.answer import HttpAnswer
from agentloop_experiment_sdk.solutions.client import HttpClient
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.options import HttpOptions
from agentloop_experiment_sdk.solutions.refusals import retry_after


class Caller:
    """A client whose pauses take no time; ``pauses`` are the seconds it would have waited."""

    def __init__(self, **options: Any) -> None:
        self.pauses: List[float] = []
        options.setdefault("timeout", CAP)
        self.client = HttpClient(HttpOptions(**options), pause=self.pauses.append)

    def __call__(self, url: str, method: str = "POST", **spec: Any) -> HttpAnswer:
        return self.client.exchange(HttpRequestSpec(url, method, **spec))


def first_then_ok(first: Handler, times: int = 1) -> Handler:
    def handler(request: Request, reply: Reply) -> None:
        (first if request.number < times else answer_ok)(request, reply)

    return handler


def drop(request: Request, reply: Reply) -> None:
    """Close the connection without an answer."""


def busy(status: str = "503 Busy", **headers: Any) -> Handler:
    return lambda request, reply: reply.whole("later", "text/plain", status, **headers)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_an_idempotent_call_is_sent_again_after_a_dropped_connection(method: str) -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.number:
            reply.head(Content_Length=0)

    call = Caller()
    with RawServer(handler) as server:
        answer = call(server.url(), method)
        assert answer.success
        assert [request.method for request in server.requests] == [method, method]
    assert len(call.pauses) == 1
    assert ["error" in attempt for attempt in answer.facts["attempts"]] == [True, False]
    assert answer.facts["attempts"][1]["status"] == 200
    assert all(attempt["ms"] >= 0 for attempt in answer.facts["attempts"])


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_call_that_is_not_idempotent_is_sent_once(method: str) -> None:
    call = Caller()
    with RawServer(drop) as server:
        answer = call(server.url(), method)
        assert len(server.requests) == 1
    assert not answer.success
    assert answer.error_type == "ConnectionError"
    assert answer.trace_id
    assert call.pauses == []


def test_retries_carry_the_same_trace() -> None:
    call = Caller()
    with RawServer(first_then_ok(drop, 2)) as server:
        answer = call(server.url(), "GET")
        assert {request.get("traceparent").split("-")[1] for request in server.requests} == {  # type: ignore
            answer.trace_id
        }


def test_retries_are_used_up() -> None:
    call = Caller(transport_retries=2)
    with RawServer(drop) as server:
        answer = call(server.url(), "GET")
        assert len(server.requests) == 3
    assert len(answer.facts["attempts"]) == 3
    assert 0.125 <= call.pauses[0] <= 0.25 and 0.25 <= call.pauses[1] <= 0.5


def test_no_retries_means_one_attempt() -> None:
    call = Caller(transport_retries=0)
    with RawServer(drop) as server:
        assert not call(server.url(), "GET").success
        assert len(server.requests) == 1


def test_a_refused_connection_is_retried_and_then_reported() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        call = Caller()
        answer = call("http://127.0.0.1:%d/" % port, "GET")
    assert answer.error_type == "ConnectionError"
    assert "127.0.0.1:%d" % port in answer.error_message
    assert len(answer.facts["attempts"]) == 3


def test_a_host_that_does_not_resolve_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    answer = Caller(transport_retries=0)("http://agent.example/", "GET")
    assert answer.error_type == "ConnectionError"
    assert "agent.example" in answer.error_message


@pytest.mark.parametrize("status", ["429 Slow", "503 Busy"])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_any_method_is_sent_again_after_429_and_503(status: str, method: str) -> None:
    call = Caller()
    with RawServer(first_then_ok(busy(status, Retry_After="7"))) as server:
        answer = call(server.url(), method, json={"q": 1} if method == "POST" else None)
        assert answer.success
        assert server.requests[0].body == server.requests[1].body
        assert server.connections == 1
    assert call.pauses == [7.0]
    assert answer.facts["attempts"][0]["status"] == int(status[:3])
    assert answer.facts["attempts"][0]["waited_ms"] == 7000.0


def test_without_retry_after_the_pause_grows() -> None:
    call = Caller(transport_retries=3)
    with RawServer(first_then_ok(busy(), 3)) as server:
        assert call(server.url()).success
    assert len(call.pauses) == 3
    assert call.pauses[0] <= 0.25 < 0.5 <= call.pauses[2] <= 1.0


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    call = Caller(timeout=5)
    with RawServer(busy(Retry_After="60")) as server:
        answer = call(server.url())
        assert len(server.requests) == 1
    assert answer.error_message == "HTTP 503 Busy: later"
    assert answer.facts["response_headers"]["retry-after"] == "60"
    assert call.pauses == []


def test_both_kinds_count_against_the_same_number() -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.number % 2:
            busy()(request, reply)

    call = Caller(transport_retries=3)
    with RawServer(handler) as server:
        assert not call(server.url(), "GET").success
        assert len(server.requests) == 4


@pytest.mark.parametrize("status", ["500 Oops", "502 Bad", "504 Late", "408 Slow"])
def test_other_statuses_are_not_retried(status: str) -> None:
    with RawServer(busy(status)) as server:
        assert not Caller()(server.url(), "GET").success
        assert len(server.requests) == 1


def test_an_answer_that_began_is_not_asked_for_again() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Length=10)

    with RawServer(handler) as server:
        answer = Caller()(server.url(), "GET")
        assert len(server.requests) == 1
    assert answer.error_type == "IncompleteResponse"


def test_a_large_busy_page_does_not_hold_up_the_retry() -> None:
    def large(request: Request, reply: Reply) -> None:
        reply.head("503 Busy", Content_Length=10_000_000)

    with RawServer(first_then_ok(large)) as server:
        assert Caller()(server.url()).success
        assert server.connections == 2


def test_an_endless_busy_page_is_given_up() -> None:
    def endless(request: Request, reply: Reply) -> None:
        reply.head("503 Busy", Transfer_Encoding="chunked")
        for _ in range(100):
            reply.chunk(b"x" * 10000)

    with RawServer(first_then_ok(endless)) as server:
        assert Caller()(server.url()).success


def test_a_busy_page_that_is_cut_does_not_matter() -> None:
    def cut(request: Request, reply: Reply) -> None:
        reply.head("503 Busy", Content_Length=100)

    with RawServer(first_then_ok(cut)) as server:
        assert Caller()(server.url()).success


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("0", 0.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        (email.utils.formatdate(NOW + 30, usegmt=True), 30.0),
        (email.utils.formatdate(NOW - 30, usegmt=True), 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: Any, seconds: Any) -> None:
    assert retry_after(value, lambda: NOW) == seconds


def test_the_pause_before_a_retry_really_happens() -> None:
    with RawServer(first_then_ok(busy(Retry_After="0.01"))) as server:
        assert http_solution_with(server.url(), timeout=CAP)(a_task()).success


def test_an_answer_that_comes_before_the_body_is_sent_is_read() -> None:
    def refuse(sock: socket.socket) -> None:
        Reply(sock).head("413 Too Large", Content_Length=5, Connection="close")
        sock.sendall(b"large")
        sock.shutdown(socket.SHUT_WR)
        # reading on keeps the answer from being lost to a reset
        while sock.recv(1 << 20):
            pass

    never: Callable[..., None] = lambda request, reply: None  # noqa: E731
    with RawServer(never, on_connect=refuse) as server:
        answer = Caller()(server.url(), data=b"x" * 20_000_000)
    assert answer.status == 413
    assert answer.output == "large"
