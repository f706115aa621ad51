"""A call ends by its deadline or when it is cancelled, wherever it is stuck.

Time-outs are short and judged by what they are reported as; ``CAP`` only keeps a hang from lasting.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable, List

import pytest
from raw_http import CAP, Handler, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.models import HttpRequestSpec, SolutionOutput
from agentloop_experiment_sdk.scope import AttemptScope, entered
from agentloop_experiment_sdk.solutions.deadline import Deadline, Interruption
from agentloop_experiment_sdk.solutions.faults import ExchangeFault
from agentloop_experiment_sdk.solutions.http import http_solution, http_solution_with

SHORT = 0.4


def silent(server: List[RawServer]) -> Handler:
    return lambda request, reply: server[0].released.wait(CAP) and None


def dripping(head: Callable[[Reply], None], drip: Callable[[Reply], None]) -> Any:
    """A server that never stops sending a little."""

    def build(server: List[RawServer]) -> Handler:
        def handler(request: Request, reply: Reply) -> None:
            head(reply)
            while not server[0].released.wait(0.02):
                drip(reply)

        return handler

    return build


def no_head(reply: Reply) -> None:
    """Nothing before the drips."""


CASES = {
    "no answer": silent,
    "a head that drips": dripping(
        lambda r: r.send(b"HTTP/1.1 200 OK\r\nX: "), lambda r: r.send(b"x")
    ),
    "a body that drips": dripping(
        lambda r: r.head(Content_Length=10**7, Content_Type="text/plain"), lambda r: r.send(b"x")
    ),
    "chunks that drip": dripping(
        lambda r: r.head(Transfer_Encoding="chunked"), lambda r: r.chunk(b"x")
    ),
    "comments that drip": dripping(
        lambda r: r.head(Transfer_Encoding="chunked", Content_Type="text/event-stream"),
        lambda r: r.chunk(b": ping\n\n"),
    ),
    "endless 100s": dripping(no_head, lambda r: r.send(b"HTTP/1.1 100 Continue\r\n\r\n")),
}


def stuck(name: str, use: Callable[[RawServer], SolutionOutput]) -> SolutionOutput:
    box: List[RawServer] = []
    with RawServer(CASES[name](box)) as server:
        box.append(server)
        return use(server)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_deadline_ends_a_call_that_is_stuck(name: str, method: str) -> None:
    def use(server: RawServer) -> SolutionOutput:
        return http_solution_with(server.url(), method=method, timeout=SHORT)(a_task())

    output = stuck(name, use)
    assert output.meta["error_type"] == "Timeout"
    assert "0.4 s" in output.meta["error_message"]
    assert output.meta["traceId"]
    assert len(output.meta["http"]["attempts"]) == 1


@pytest.mark.parametrize("name", CASES)
def test_a_cancelled_attempt_ends_its_call_at_once(name: str) -> None:
    scope = AttemptScope()

    def use(server: RawServer) -> SolutionOutput:
        arrived = threading.Event()
        inner = server.handler

        def handler(request: Request, reply: Reply) -> None:
            arrived.set()
            inner(request, reply)

        server.handler = handler
        threading.Thread(target=lambda: arrived.wait(CAP) and scope.cancel(), daemon=True).start()
        with entered(scope):
            return http_solution_with(server.url(), timeout=CAP)(a_task())

    output = stuck(name, use)
    assert output.meta["error_type"] == "Cancelled"


def test_an_attempt_that_is_cancelled_already_sends_nothing() -> None:
    scope = AttemptScope()
    scope.cancel()
    with RawServer(answer_ok) as server, entered(scope):
        output = http_solution_with(server.url(), timeout=CAP)(a_task())
        assert server.requests == []
    assert output.meta["error_type"] == "Cancelled"


def test_a_cancellation_ends_the_pause_before_a_retry() -> None:
    scope = AttemptScope()

    def busy(request: Request, reply: Reply) -> None:
        reply.whole(b"", "", "503 Busy", Retry_After="15")
        threading.Thread(target=scope.cancel, daemon=True).start()

    with RawServer(busy) as server, entered(scope):
        output = http_solution_with(server.url(), timeout=CAP)(a_task())
        assert len(server.requests) == 1
    assert output.meta["error_type"] == "Cancelled"


def test_a_cancellation_spares_the_next_user_of_the_connection() -> None:
    with RawServer(answer_ok) as server:
        solution = http_solution_with(server.url(), timeout=CAP)
        with entered(AttemptScope()) as scope:
            assert solution(a_task()).success
        scope.cancel()
        with entered(AttemptScope()):
            assert solution(a_task()).success
        assert server.connections == 1


def test_the_requests_own_timeout_wins() -> None:
    def use(server: RawServer) -> SolutionOutput:
        spec = HttpRequestSpec(server.url(), timeout=SHORT)
        return http_solution(lambda task: spec, default_timeout=CAP)(a_task())

    assert stuck("no answer", use).meta["error_type"] == "Timeout"


def test_a_server_that_reads_nothing_does_not_hold_the_sender() -> None:
    box: List[RawServer] = []
    with RawServer(answer_ok, on_connect=lambda sock: box[0].released.wait(CAP)) as server:  # type: ignore
        box.append(server)
        solution = http_solution_with(server.url(), data=b"x" * 50_000_000, timeout=SHORT)
        output = solution(a_task())
    assert output.meta["error_type"] == "Timeout"


def test_a_connect_that_is_never_accepted_ends_by_the_deadline() -> None:
    listener = socket.socket()
    with listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        output = http_solution_with("http://127.0.0.1:%d/" % address[1], timeout=SHORT)(a_task())
        for filler in fillers:
            filler.close()
    assert output.meta["error_type"] == "Timeout"


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RawServer(answer_ok) as server, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        entries = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (unused.getsockname()[1], server.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: entries)
        assert http_solution_with("http://agent.example/", timeout=CAP)(a_task()).success


def clock_of(*times: float) -> Callable[[], float]:
    steps = iter(times)
    return lambda: next(steps)


def test_a_deadline_counts_down_and_then_raises() -> None:
    deadline = Deadline(10, clock=clock_of(100, 103, 110))
    assert deadline.left() == 7
    with pytest.raises(ExchangeFault) as caught:
        deadline.left()
    assert caught.value.error_type == "Timeout"


def test_a_wait_is_allowed_only_before_the_deadline() -> None:
    deadline = Deadline(10, clock=clock_of(0, 1, 1))
    assert deadline.allows(8)
    assert not deadline.allows(9)


def test_silence_counts_only_from_the_first_event() -> None:
    deadline = Deadline(100, 5, clock=clock_of(0, 50, 50, 52, 55))
    assert deadline.left() == 50
    deadline.event()
    assert deadline.left() == 3
    with pytest.raises(ExchangeFault) as caught:
        deadline.left()
    assert caught.value.error_type == "IdleTimeout"


def test_without_idle_limit_events_change_nothing() -> None:
    deadline = Deadline(10, clock=clock_of(0, 4))
    deadline.event()
    assert deadline.left() == 6


def test_a_very_long_timeout_is_no_overflow() -> None:
    assert Deadline(1e18).left() == 86400.0
    with RawServer(answer_ok) as server:
        assert http_solution_with(server.url(), timeout=1e18)(a_task()).success


def test_an_interruption_bears_a_socket_that_is_gone() -> None:
    interruption = Interruption()
    sock = socket.socket()
    interruption.watch(sock)
    sock.close()
    interruption.cancel()
    assert interruption.cancelled
    interruption.watch(None)
    interruption.pause(CAP)
    with pytest.raises(ExchangeFault):
        interruption.check()
