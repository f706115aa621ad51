"""One HTTP POST with a deadline for the whole exchange, by the standard library.

Imported where a judge is asked: it loads ``http.client`` and ``ssl``.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import time
import urllib.parse
import urllib.request
from typing import Any, Callable, Mapping, Tuple, Type

MAX_BYTES = 16 * 1024 * 1024

Clock = Callable[[], float]


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    timeout: float,
    clock: Clock = time.monotonic,
) -> Tuple[int, Mapping[str, str], bytes]:
    """Send ``body`` and read the whole answer.

    The environment's proxies are used, but never for a loopback address. Redirects are not
    followed: they would carry the key to another place.

    Args:
        url: An ``http`` or ``https`` URL.
        headers: Request headers.
        body: The request's body.
        timeout: Seconds from connecting to the last byte.
        clock: A monotonic clock.

    Returns:
        Status, headers and body, whatever the status is.

    Raises:
        OSError: No whole answer came in time.
    """
    deadline = _Deadline(clock() + timeout, clock)
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with _opener(request, deadline).open(request, timeout=timeout) as answer:
            content = answer.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise OSError("the answer is larger than {} bytes".format(MAX_BYTES))
            if answer.length:  # read(n) does not complain of an answer that ends too early
                raise ConnectionError("the answer ended {} bytes early".format(answer.length))
            return answer.status, dict(answer.headers.items()), content
    except http.client.HTTPException as error:
        raise ConnectionError("{}: {}".format(type(error).__name__, error)) from error


class _Deadline:
    def __init__(self, at: float, clock: Clock) -> None:
        self._at, self._clock = at, clock

    def left(self) -> float:
        seconds = self._at - self._clock()
        if seconds <= 0:
            raise socket.timeout("no whole answer within the timeout")
        return seconds


class _TimedReader(io.RawIOBase):
    """Reads a socket with the time that is left: a server that drips bytes gains nothing."""

    def __init__(self, sock: socket.socket, raw: Any, deadline: _Deadline) -> None:
        self._sock, self._raw, self._deadline = sock, raw, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        self._sock.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _connection(kind: Type[Any], deadline: _Deadline) -> Any:
    """``kind`` of connection whose answers are read within the deadline."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
            super().__init__(sock, *args, **options)
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_TimedReader(sock, raw, deadline))

    class Connection(kind):  # type: ignore[misc]
        response_class = Response

        def connect(self) -> None:
            self.timeout = deadline.left()
            super().connect()
            self.sock.settimeout(deadline.left())

    return Connection


def _opener(request: urllib.request.Request, deadline: _Deadline) -> urllib.request.OpenerDirector:
    plain = _connection(http.client.HTTPConnection, deadline)
    secure = _connection(http.client.HTTPSConnection, deadline)

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(plain, req)

    class Secure(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(secure, req)

    opener = urllib.request.OpenerDirector()
    proxies: Any = {} if _is_loopback(request.host) else None
    for handler in (urllib.request.ProxyHandler(proxies), Plain(), Secure()):
        opener.add_handler(handler)
    return opener


def _is_loopback(host: str) -> bool:
    name = urllib.parse.urlsplit("//" + host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
