"""Connections are kept between calls, and never used once they are gone."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from typing import Any, List

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.models import HttpRequestSpec
from agentloop_experiment_sdk.solutions.client import HttpClient
from agentloop_experiment_sdk.solutions.connection import Connection, ConnectionPool
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.http_call import HttpSolution
from agentloop_experiment_sdk.solutions.options import HttpOptions
from agentloop_experiment_sdk.solutions.request import Origin


def solution_for(server: RawServer, **options: Any) -> HttpSolution:
    return http_solution_with(server.url(), timeout=CAP, **options)


def test_rows_share_a_connection() -> None:
    with RawServer(answer_ok) as server:
        solution = solution_for(server)
        assert all(solution(a_task()).success for _ in range(10))
        assert server.connections == 1


def test_threads_use_no_more_connections_than_they_are() -> None:
    with RawServer(answer_ok) as server:
        solution = solution_for(server)
        outputs: List[Any] = []

        def work() -> None:
            outputs.extend(solution(a_task()) for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CAP)
        assert len(outputs) == 160 and all(output.success for output in outputs)
        assert server.connections <= 8


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_connection_that_the_server_closed_is_not_used(method: str) -> None:
    with RawServer(answer_ok) as server:
        solution = solution_for(server, method=method)
        assert solution(a_task()).success
        server.drop_connections()
        output = solution(a_task())
        assert output.success
        assert len(output.meta["http"]["attempts"]) == 1
        assert len(server.requests) == server.connections == 2


def test_a_post_is_sent_once_when_its_kept_connection_breaks() -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.number == 0:
            answer_ok(request, reply)

    with RawServer(handler) as server:
        solution = solution_for(server)
        assert solution(a_task()).success
        output = solution(a_task())
        assert len(server.requests) == 2
    assert output.meta["error_type"] == "ConnectionError"


@pytest.mark.parametrize(
    "extra", [b"unasked", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"]
)
def test_bytes_that_nobody_asked_for_end_a_connections_use(extra: bytes) -> None:
    def handler(request: Request, reply: Reply) -> None:
        body = b'{"answer": "ok"}'
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        reply.send(head % len(body) + body + extra)
        reply.keep = True

    with RawServer(handler) as server:
        solution = solution_for(server)
        for _ in range(3):
            assert solution(a_task()).output == {"answer": "ok"}
        assert server.connections == 3


@pytest.mark.parametrize("who", ["server", "client", "http/1.0"])
def test_either_side_may_ask_to_close(who: str) -> None:
    def handler(request: Request, reply: Reply) -> None:
        if who == "http/1.0":
            reply.send(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
            reply.keep = True
        else:
            reply.whole("{}", **({"Connection": "close"} if who == "server" else {}))

    with RawServer(handler) as server:
        headers = {"connection": "Close"} if who == "client" else {}
        solution = solution_for(server, headers=headers)
        for _ in range(2):
            assert solution(a_task()).success
        assert server.connections == 2


def test_a_failed_answer_that_is_whole_keeps_its_connection() -> None:
    with RawServer(lambda _, reply: reply.whole("no", "text/plain", "500 No")) as server:
        solution = solution_for(server)
        for _ in range(2):
            assert not solution(a_task()).success
        assert server.connections == 1


def test_origins_do_not_share_connections() -> None:
    with RawServer(answer_ok) as one, RawServer(answer_ok) as other:
        client = HttpClient(HttpOptions(CAP))
        for server in (one, other, one, other):
            assert client.exchange(HttpRequestSpec(server.url())).success
        assert one.connections == other.connections == 1


def test_a_closed_client_can_be_used_again() -> None:
    with RawServer(answer_ok) as server:
        solution = solution_for(server)
        solution.close()
        assert solution(a_task()).success
        solution.close()
        assert solution(a_task()).success
        assert server.connections == 2


class TestThePool:
    ROUTE = (Origin("http", "h", 80), None)

    def pair(self) -> "tuple[Connection, socket.socket]":
        ours, theirs = socket.socketpair()
        return Connection(ours, self.ROUTE), theirs

    def test_the_latest_used_comes_first(self) -> None:
        pool = ConnectionPool()
        (first, a), (second, b) = self.pair(), self.pair()
        pool.give(first)
        pool.give(second)
        assert pool.take(self.ROUTE) is second
        assert pool.take(self.ROUTE) is first
        assert pool.take(self.ROUTE) is None
        for each in (first, second, a, b):
            each.close()

    def test_what_idled_for_too_long_is_closed(self) -> None:
        now = [0.0]
        pool = ConnectionPool(lambda: now[0])
        (old, a), (new, b) = self.pair(), self.pair()
        pool.give(old)
        now[0] = 31.0
        pool.give(new)
        assert old.socket.fileno() == -1
        now[0] = 62.0
        assert pool.take(self.ROUTE) is None
        assert new.socket.fileno() == -1
        a.close()
        b.close()

    def test_a_reset_connection_is_dropped(self) -> None:
        pool = ConnectionPool()
        connection, theirs = self.pair()
        connection.socket.close()
        pool.give(connection)
        theirs.close()
        assert pool.take(self.ROUTE) is None

    def test_a_forked_child_leaves_its_parents_connections_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = ConnectionPool()
        connection, theirs = self.pair()
        pool.give(connection)
        child = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: child)
        assert pool.take(self.ROUTE) is None
        assert connection.socket.fileno() != -1
        connection.close()
        theirs.close()

    def test_close_leaves_nothing_open(self) -> None:
        pool = ConnectionPool()
        connection, theirs = self.pair()
        pool.give(connection)
        pool.close()
        assert connection.socket.fileno() == -1
        theirs.close()


def build(task: Any) -> HttpRequestSpec:
    return HttpRequestSpec(task.input["url"])


def test_a_client_travels_without_its_connections() -> None:
    client = HttpClient(HttpOptions(CAP))
    with RawServer(answer_ok) as server:
        assert client.exchange(HttpRequestSpec(server.url())).success
        copy = pickle.loads(pickle.dumps(client))
        assert copy.exchange(HttpRequestSpec(server.url())).success
        assert server.connections == 2
    assert copy.options == client.options


def test_a_solution_can_be_pickled() -> None:
    with RawServer(answer_ok) as server:
        solution = http_solution_with(server.url(), timeout=CAP, json_body={"a": 1})
        assert solution(a_task()).success
        copy = pickle.loads(pickle.dumps(solution))
        assert copy.fingerprint == solution.fingerprint
        assert copy(a_task()).success


ONE_CALL = """
import sys
from agentloop_experiment_sdk import http_solution_with
from agentloop_experiment_sdk.models import Task

solution = http_solution_with(sys.argv[1], json_body={"a": 1})
assert solution(Task("t", {})).success
"""


def test_idle_connections_are_closed_when_the_program_ends() -> None:
    with RawServer(answer_ok) as server:
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", ONE_CALL, server.url()],
            stderr=subprocess.PIPE,
            timeout=CAP,
        )
    assert done.returncode == 0 and b"ResourceWarning" not in done.stderr
