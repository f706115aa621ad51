"""The judge's HTTP request: one deadline for the whole exchange, no redirects, proxies."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import Any

import pytest
from chat_server import chat_server

from agentloop_experiment_sdk.evaluate import post as post_module
from agentloop_experiment_sdk.evaluate.post import post


def test_any_status_comes_back_whole() -> None:
    def answer(handler: Any) -> None:
        handler.answer(418, "short and stout", X_Kind="pot")

    with chat_server(answer) as server:
        status, headers, body = post(server.base_url + "/x?y=1", {"X-A": "b"}, b'{"q": 1}', 30)
    assert (status, headers["X-Kind"], body) == (418, "pot", b"short and stout")
    (request,) = server.requests
    assert (request["path"], request["body"]) == ("/v1/x?y=1", {"q": 1})
    assert request["headers"]["X-A"] == "b"


def test_a_redirect_is_not_followed() -> None:
    with chat_server((200, "never asked for")) as other:

        def redirect(handler: Any) -> None:
            handler.answer(302, "", Location=other.base_url)

        with chat_server(redirect) as server:
            assert post(server.base_url, {}, b"{}", 30)[0] == 302
        assert other.requests == []


def ticking(step: float) -> Any:
    """A clock that moves by ``step`` seconds each time it is read."""
    counter = itertools.count()
    return lambda: next(counter) * step


@pytest.mark.parametrize("in_headers", [True, False])
def test_a_server_that_drips_bytes_is_left_at_the_deadline(in_headers: bool) -> None:
    def drip(handler: Any) -> None:
        handler.send_response(200)
        if in_headers:
            handler.flush_headers()
        else:
            handler.end_headers()
        while not handler.server.released.wait(0.001):
            try:
                handler.wfile.write(b"X-Drip: y\r\n")
            except OSError:
                return

    with chat_server(drip) as server, pytest.raises(OSError, match="within the timeout"):
        post(server.base_url, {}, b"{}", 30, clock=ticking(1.0))


def test_a_silent_server_is_left_at_the_deadline() -> None:
    def silent(handler: Any) -> None:
        handler.server.released.wait(30)

    with chat_server(silent) as server, pytest.raises(socket.timeout):
        post(server.base_url, {}, b"{}", 0.2)


def test_a_torn_answer_is_a_connection_error() -> None:
    def torn(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")

    with chat_server(torn) as server, pytest.raises(ConnectionError, match="96 bytes early"):
        post(server.base_url, {}, b"{}", 30)


def test_a_torn_chunked_answer_is_a_connection_error() -> None:
    def torn(handler: Any) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"5\r\nhalf")
        handler.close_connection = True

    with chat_server(torn) as server, pytest.raises(ConnectionError, match="IncompleteRead"):
        post(server.base_url, {}, b"{}", 30)


def test_an_answer_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_module, "MAX_BYTES", 10)
    with chat_server((200, "x" * 11)) as server, pytest.raises(OSError, match="larger than 10"):
        post(server.base_url, {}, b"{}", 30)


def test_nobody_listening_is_an_os_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(OSError):
            post("http://127.0.0.1:{}/".format(port), {}, b"{}", 30)


def test_a_proxy_is_used_but_not_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server((200, "from the proxy")) as proxy, chat_server((200, "direct")) as server:
        monkeypatch.setenv("http_proxy", proxy.base_url[:-3])
        assert post("http://judge.example/v1", {}, b"{}", 30)[2] == b"from the proxy"
        assert post(server.base_url, {}, b"{}", 30)[2] == b"direct"
        local = server.base_url.replace("127.0.0.1", "localhost")
        assert post(local, {}, b"{}", 30)[2] == b"direct"
    assert proxy.requests[0]["path"] == "http://judge.example/v1"


def test_a_tls_handshake_that_never_ends_is_left_at_the_deadline() -> None:
    released = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)

        def accept() -> None:
            connection, _ = listener.accept()
            released.wait(30)
            connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            with pytest.raises(OSError, match="timed out"):
                post("https://127.0.0.1:{}/".format(listener.getsockname()[1]), {}, b"{}", 0.2)
        finally:
            released.set()
            thread.join()
