"""A small HTTP/1.1 server: one event loop on one daemon thread, which also owns all stored data.

Handlers run on the loop's thread, one at a time, so nothing they touch needs a lock. Other threads
hand their work over with :meth:`LoopServer.call`.

Source of the message format: RFC 9112.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
from http.client import responses
from typing import Any, Callable, Dict, Optional, Set, Tuple, TypeVar

from .exchange import Reply, Request

MAX_HEAD = 64 * 1024
MAX_BODY = 100 * 1024 * 1024
_ACCEPTING_TURNS = 8
_LONGEST_LENGTH = 19  # digits of a Content-Length; Python refuses to read thousands
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")

_Result = TypeVar("_Result")
_Head = Tuple[str, str, Dict[str, str], int]
_REASONS = {status: text.encode("ascii") for status, text in responses.items()}
_STOPPED = "LocalAgentLoop is not running; use it inside its with block, or call start() first."


class _BadMessage(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LoopServer:
    """Answers HTTP requests on 127.0.0.1 by calling ``handle`` on its own thread.

    Args:
        handle: From a request to its reply; must not raise.
    """

    def __init__(self, handle: Callable[[Request], Reply]) -> None:
        self.handle = handle
        self.connections: Set[_Connection] = set()
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None

    def start(self, port: int) -> int:
        """Listen on 127.0.0.1:``port`` (0: any free port) and return the port.

        Raises:
            OSError: The port cannot be bound.
        """
        loop = asyncio.new_event_loop()
        ready: concurrent.futures.Future[int] = concurrent.futures.Future()
        self.loop = loop
        self._thread = threading.Thread(
            target=self._run, args=(loop, port, ready), name="local-agentloop", daemon=True
        )
        self._thread.start()
        try:
            return ready.result()
        except BaseException:
            self.loop = None
            raise

    def call(self, work: Callable[..., _Result], *args: Any) -> _Result:
        """Run ``work(*args)`` on the server's thread and return what it returns.

        Raises:
            RuntimeError: The server is not running.
        """
        loop = self.loop
        if loop is None:
            raise RuntimeError(_STOPPED)
        if threading.current_thread() is self._thread:
            return work(*args)
        done: concurrent.futures.Future[_Result] = concurrent.futures.Future()
        loop.call_soon_threadsafe(_settle, done, work, args)
        while not concurrent.futures.wait([done], timeout=1.0).done:
            # a call that races close() may never be picked up
            if self._thread is None or not self._thread.is_alive():
                raise RuntimeError(_STOPPED)
        return done.result()

    def close(self) -> None:
        """Stop listening, drop every connection and end the thread. May be called again."""
        loop, self.loop = self.loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        port: int,
        ready: concurrent.futures.Future[int],
    ) -> None:
        asyncio.set_event_loop(loop)
        try:
            listening = loop.create_server(
                lambda: _Connection(self), "127.0.0.1", port, backlog=1024
            )
            server = loop.run_until_complete(listening)
        except BaseException as error:
            ready.set_exception(error)
            loop.close()
            return
        ready.set_result(server.sockets[0].getsockname()[1])
        loop.run_forever()
        loop.run_until_complete(self._hang_up(server))
        loop.close()

    async def _hang_up(self, server: asyncio.AbstractServer) -> None:
        """Stop listening and drop every connection."""
        # asyncio leaks a connection whose acceptance is not finished when its server closes;
        # that takes three turns (on Windows a task of the listener itself never ends)
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
        server.close()
        for connection in list(self.connections):
            connection.abort()
        # one more turn, in which the transports just aborted close their sockets
        await asyncio.sleep(0)


def _settle(
    done: concurrent.futures.Future[_Result], work: Callable[..., _Result], args: Tuple[Any, ...]
) -> None:
    try:
        done.set_result(work(*args))
    except BaseException as error:
        done.set_exception(error)


class _Connection(asyncio.Protocol):
    """One client connection: requests in order, one answer at a time."""

    def __init__(self, server: LoopServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._head: Optional[_Head] = None
        self._transport: Optional[asyncio.Transport] = None
        self._busy = False
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._server.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def abort(self) -> None:
        """Close at once; bytes not yet sent are lost."""
        if self._transport is not None:
            self._transport.abort()

    def _serve(self) -> None:
        while not self._busy and not self._closing:
            try:
                request = self._next_request()
            except _BadMessage as error:
                self._refuse(error)
                return
            if request is None:
                return
            self._answer(request)

    def _answer(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        reply = self._server.handle(request)
        due = arrived + reply.delay
        if request.headers.get("connection", "").lower() == "close":
            reply.headers["connection"] = "close"
        if reply.hang:
            self._busy = True
        elif due > loop.time():
            self._busy = True
            loop.call_at(due, self._resume, request, reply)
        else:
            self._finish(request, reply)

    def _resume(self, request: Request, reply: Reply) -> None:
        self._busy = False
        self._finish(request, reply)
        self._serve()

    def _finish(self, request: Request, reply: Reply) -> None:
        if self._transport is None:
            return
        if reply.cut:
            self._closing = True
            self._transport.close()
            return
        self._transport.write(_message(reply, with_body=request.method != "HEAD"))
        if reply.headers.get("connection") == "close":
            self._closing = True
            self._transport.close()

    def _refuse(self, error: _BadMessage) -> None:
        self._closing = True
        if self._transport is not None:
            text = str(error).encode("utf-8")
            headers = {"connection": "close", "content-type": "text/plain; charset=utf-8"}
            self._transport.write(_message(Reply(error.status, headers, text)))
            self._transport.close()

    def _next_request(self) -> Optional[Request]:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise _BadMessage(431, "The request head is longer than 64 KiB.")
                return None
            self._head = _parse_head(bytes(self._buffer[:end]))
            del self._buffer[: end + 4]
        method, target, headers, length = self._head
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._head = None
        return Request(method, target, headers, body)


def _parse_head(head: bytes) -> _Head:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise _BadMessage(400, "This is not an HTTP/1.1 request line.")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise _BadMessage(400, "A header line has no colon.")
        name = name.lower()
        # a folded line or a blank before the colon would hide a header (RFC 9112 section 5)
        if not _TOKEN.fullmatch(name) or "\n" in value:
            raise _BadMessage(400, "A header's name is not a token, or its value has two lines.")
        if name == "host" and name in headers:
            raise _BadMessage(400, "There is more than one Host header.")
        value = value.strip()
        headers[name] = headers[name] + "," + value if name in headers else value
    if parts[2] == "HTTP/1.0":
        headers["connection"] = headers.get("connection", "close")
    return parts[0], parts[1], headers, _body_length(headers)


def _body_length(headers: Dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise _BadMessage(411, "Send the body with Content-Length; chunks are not accepted.")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise _BadMessage(400, "Content-Length is not a number.")
    if len(text) > _LONGEST_LENGTH or int(text) > MAX_BODY:
        raise _BadMessage(413, "The body is larger than 100 MiB.")
    return int(text)


def _message(reply: Reply, with_body: bool = True) -> bytes:
    reason = _REASONS.get(reply.status, b"Unknown")
    lines = [b"HTTP/1.1 %d %s" % (reply.status, reason)]
    for name, value in reply.headers.items():
        lines.append("{}: {}".format(name, value).encode("latin-1", "replace"))
    lines.append(b"content-length: %d\r\n\r\n" % len(reply.body))
    head = b"\r\n".join(lines)
    return head + reply.body if with_body else head
