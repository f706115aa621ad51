"""The server speaks HTTP/1.1 properly, and only to loopback names."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import pytest
from alibabacloud_agentloop20260520 import models as m
from official_clients import log_client, openapi_client, put

from agentloop_experiment_sdk.local.exchange import Reply, Request
from agentloop_experiment_sdk.local.server import LoopServer

SPACE = "local"


def talk(local, *parts, until_closed=False):
    """Send raw bytes; everything that comes back (of one answer, or until the end)."""
    port = int(local.endpoints.sls_endpoint.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        data = b""
        while until_closed or not complete(data):
            more = connection.recv(65536)
            if not more:
                break
            data += more
        return data


def complete(data):
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return len(body) >= length


def status(data):
    return int(data.split(b" ")[1])


GET = b"GET /_local/requests HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_a_connection_is_kept_for_the_next_request(local):
    data = talk(
        local, GET + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), until_closed=True
    )
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert data.endswith(b"{}")


def test_a_request_may_arrive_byte_by_byte(local):
    assert status(talk(local, *(bytes((byte,)) for byte in GET))) == 200


def test_a_body_may_arrive_in_pieces(local):
    body = json.dumps({"call": "clear"}).encode()
    head = (
        "POST /_local/faults HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n".format(len(body))
    ).encode()
    assert status(talk(local, head + body[:3], body[3:])) == 200


def test_an_older_client_gets_its_connection_closed(local):
    data = talk(local, GET.replace(b"HTTP/1.1", b"HTTP/1.0"), until_closed=True)
    assert status(data) == 200


def test_head_has_no_body(local):
    data = talk(
        local,
        GET.replace(b"GET", b"HEAD").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        until_closed=True,
    )
    assert status(data) == 404
    assert data.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "message, expected",
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / SPDY/3\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70000, 431),
    ],
)
def test_what_is_not_http_is_answered_and_closed(local, message, expected):
    data = talk(local, message, until_closed=True)
    assert status(data) == expected
    assert b"connection: close" in data


@pytest.mark.parametrize(
    "host",
    ["example.com", "127.0.0.1.example.com", "a.b.127.0.0.1", "127.0.0.2", "", "evil@127.0.0.1/"],
)
@pytest.mark.parametrize("path", ["/_local/requests", "/agentspace"])
def test_other_host_names_are_refused(local, host, path):
    data = talk(local, "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n".format(path, host).encode())
    assert status(data) == 400
    assert b"InvalidHost" in data


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "localhost",
        "LOCALHOST:1",
        "[::1]:9",
        "http://127.0.0.1:8080",
        "p.127.0.0.1",
    ],
)
def test_loopback_names_are_accepted(local, host):
    data = talk(local, "GET /_local/requests HTTP/1.1\r\nHost: {}\r\n\r\n".format(host).encode())
    assert status(data) == 200


ODD_HOSTS = [
    b"Host: evil.example://127.0.0.1",
    b"Host: user@127.0.0.1",
    b"Host: a,b.127.0.0.1",
    b"Host: 127.0.0.1.",
    b"Host: LOCALHOST.",
    b"Host: 127.0.0.1.evil.example",
    b"Host: evil.example:127.0.0.1",
    b"Host: 127.0.0.1:80:80",
    b"Host: [::1].evil.example",
    b"Host: [::ffff:127.0.0.1]",
    b"Host: 0.0.0.0",
    b"Host: 2130706433",
    b"Host: 127.0.0.1\nHost: evil.example",
    b"Host:",
    b"X-Forwarded-Host: 127.0.0.1",
    b"Host : 127.0.0.1",
    b" Host: 127.0.0.1",
    b"Host: 127.0.0.1\r\nHost: evil.example",
    b"Host: evil.example\r\nHost: 127.0.0.1",
    b"Host: 127.0.0.1\r\nHost: 127.0.0.1",
    b"Host: 127.0.0.1\r\n Host: evil.example",
]
CONTROLS = [b"GET /_local/endpoints", b"POST /_local/faults", b"GET /", b"OPTIONS *"]


@pytest.mark.parametrize("start", CONTROLS)
@pytest.mark.parametrize("host", ODD_HOSTS)
def test_odd_forms_of_a_host_are_refused(local, host, start):
    data = talk(local, start + b" HTTP/1.1\r\n" + host + b"\r\n\r\n")
    assert status(data) == 400
    assert b"access_key_secret" not in data


@pytest.mark.parametrize(
    "target",
    [
        b"http://evil.example/_local/endpoints",
        b"HTTP://evil.example/_local/endpoints",
        b"http://127.0.0.1@evil.example/_local/endpoints",
        b"http://evil.example?/_local/endpoints",
        b"http:///_local/endpoints",
    ],
)
def test_a_target_that_names_another_host_is_refused(local, target):
    data = talk(local, b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (status(data), b"InvalidHost" in data) == (400, True)


def test_a_target_that_names_this_host_does_not_replace_a_wrong_header(local):
    head = b"GET http://127.0.0.1/_local/requests HTTP/1.1\r\nHost: %s\r\n\r\n"
    assert status(talk(local, head % b"127.0.0.1:1")) == 200
    assert status(talk(local, head % b"evil.example")) == 400


def test_it_listens_on_the_loopback_address_only(local):
    port = int(local.endpoints.sls_endpoint.rpartition(":")[2])
    bound = local._server.call(
        lambda: [c._transport.get_extra_info("sockname") for c in local._server.connections]
    )
    assert bound == []
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(GET)
        connection.recv(1)
        bound = local._server.call(
            lambda: [c._transport.get_extra_info("sockname") for c in local._server.connections]
        )
    assert bound == [("127.0.0.1", port)]
    # another address of this machine: all of 127/8 is loopback on Linux, but only one is bound
    with socket.socket() as other:
        other.settimeout(20)
        assert other.connect_ex(("127.0.0.2", port)) != 0


def test_a_length_of_many_digits_is_refused(local):
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + b"9" * 5000
    assert status(talk(local, head + b"\r\n\r\n")) == 413


def test_sls_hears_of_a_wrong_host_in_its_own_words(local):
    data = talk(local, b"GET / HTTP/1.1\r\nHost: example.com\r\nx-log-apiversion: 0.6.0\r\n\r\n")
    assert b'"errorCode":"InvalidHost"' in data


def test_the_server_works_as_its_own_proxy(local):
    client = openapi_client(local, http_proxy=local.endpoints.agentloop_endpoint)
    assert client.get_agent_space(SPACE, m.GetAgentSpaceRequest()).body.agent_space == SPACE
    logs = log_client(local)
    if not hasattr(logs, "_session"):
        pytest.skip("this LogClient has no session whose proxy could be set")
    logs._session.trust_env = False
    logs._session.proxies = {"http": local.endpoints.sls_endpoint}
    put(logs, {"a": "1"})
    assert len(local.rows()) == 1


def test_an_endpoint_with_a_scheme_works(local):
    client = openapi_client(local, endpoint=local.endpoints.agentloop_endpoint, protocol=None)
    assert client.get_agent_space(SPACE, m.GetAgentSpaceRequest()).body.agent_space == SPACE


def test_a_target_without_a_path_is_the_root():
    assert Request("GET", "http://127.0.0.1:1", {}).path == "/"
    assert Request("GET", "http://127.0.0.1:1/a?b", {}).query_string == "b"


def test_fifty_connections_at_once(local):
    client = openapi_client(local)
    failures = []

    def ask():
        try:
            for _ in range(5):
                client.get_agent_space(SPACE, m.GetAgentSpaceRequest())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert local.requests["GetAgentSpace"] == 250


def test_a_status_without_a_name_and_a_header_beyond_latin_1_are_sent(local):
    server = LoopServer(lambda request: Reply(299, {"x": "é中"}, b"ok"))
    port = server.start(0)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(GET)
        data = connection.recv(65536)
    server.close()
    server.close()
    assert data.startswith(b"HTTP/1.1 299 Unknown\r\nx: \xe9?\r\n")


def test_a_delay_counts_from_the_arrival_of_its_request():
    times = []

    def handle(request):
        loop = asyncio.get_running_loop()
        call_at = loop.call_at
        times.append(loop.time())
        loop.call_at = lambda when, *args: times.append(when) or call_at(when, *args)
        time.sleep(0.05)
        reply = Reply()
        reply.delay = 0.2
        return reply

    server = LoopServer(handle)
    port = server.start(0)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(GET)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
    server.close()
    began, answered = times
    assert answered <= began + 0.2


def post(path, body, kind):
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
    return head.format(path, kind, len(body)).encode() + body


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=json", "application/jsonx"])
def test_only_json_reaches_the_controls(local, kind):
    # a web page may send text/plain with any parameter to another origin unasked
    assert status(talk(local, post("/_local/faults", b'{"call": "clear"}', kind))) == 415


def test_a_body_that_is_nested_too_deeply_is_refused(local):
    data = talk(local, post("/_local/faults", b"[" * 200000, "application/json"))
    assert status(data) == 400
    assert b"nested too deeply" in data
