"""One HTTP/1.1 exchange over a kept-alive connection whose every send and receive has a deadline.

Source: RFC 9112.
"""

from __future__ import annotations

import socket
import time
from typing import Dict, Optional, Tuple

from .connection import Connection, ConnectionPool
from .deadline import Clock, Deadline, Interruption
from .dial import TlsContexts, dial
from .faults import CONNECTION_ERROR, INCOMPLETE_RESPONSE, PROTOCOL_ERROR, ExchangeFault
from .message import (
    Body,
    Head,
    IncompleteMessage,
    MalformedMessage,
    OpenBody,
    body_of,
    head_end,
    parse_head,
)
from .proxies import Proxy, Snapshot, proxy_for, snapshot
from .request import Origin, WireRequest

_READ_SIZE = 65536


class WireResponse:
    """An answer whose head has arrived and whose body is read piece by piece.

    Attributes:
        status: The status code.
        reason: The reason phrase, often "".
        headers: Names in lower case; the values of repeated headers are joined with ", ".
        ends_with_connection: Whether only the end of the connection ends the body.
    """

    def __init__(self, head: Head, body: Body, connection: Connection, close: bool) -> None:
        self.status, self.reason, self.headers = head.status, head.reason, head.headers
        self._body = body
        self._connection = connection
        self.ends_with_connection = isinstance(body, OpenBody)
        self._close = close or not head.persistent or self.ends_with_connection

    @property
    def complete(self) -> bool:
        """Whether the body has arrived as a whole."""
        return self._body.complete

    @property
    def length(self) -> Optional[int]:
        """Bytes of the body still to come, if the head announced them."""
        return self._body.left

    @property
    def reusable(self) -> bool:
        """Whether the connection can serve another exchange now."""
        return self._body.complete and not self._close

    def read_some(self) -> bytes:
        """The next bytes of the body as they arrive, ``b""`` at its proper end.

        Raises:
            ExchangeFault: The body ended early (``IncompleteResponse``) or is malformed.
        """
        body = self._body
        try:
            while not body.complete:
                received = self._connection.receive()
                if not received:
                    body.end()
                    break
                data, rest = body.take(received)
                if rest:
                    self._connection.give_back(rest)
                if data:
                    return data
        except IncompleteMessage as error:
            raise _cut(str(error)) from error
        except MalformedMessage as error:
            raise _malformed(error) from error
        return b""


def _malformed(error: MalformedMessage) -> ExchangeFault:
    return ExchangeFault(PROTOCOL_ERROR, "The answer is not valid HTTP: {}.".format(error))


def _cut(why: str) -> ExchangeFault:
    message = "The connection was closed before the answer was complete: {}.".format(why)
    return ExchangeFault(INCOMPLETE_RESPONSE, message)


class Transport:
    """Sends requests; owns the pool, the TLS settings and the choice of proxies.

    Args:
        clock: A monotonic clock in seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._pool = ConnectionPool(clock)
        self._contexts = TlsContexts()
        self._proxies: Tuple[Snapshot, Dict[Origin, Optional[Proxy]]] = ((), {})

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    def connect(self, origin: Origin, deadline: Deadline, interruption: Interruption) -> Exchange:
        """An exchange on an idle or new connection, over which ``send`` comes next.

        Raises:
            ExchangeFault: There is no connection; ``retryable`` says whether it failed.
        """
        route = (origin, self._proxy(origin))
        connection = self._pool.take(route)
        if connection is None:
            sock = dial(origin, route[1], self._contexts, deadline, interruption)
            connection = Connection(sock, route)
        return Exchange(connection, self._pool, deadline, interruption)

    def _proxy(self, origin: Origin) -> Optional[Proxy]:
        variables = snapshot()
        if self._proxies[0] != variables:
            self._proxies = (variables, {})
        known = self._proxies[1]
        if origin not in known:
            known[origin] = proxy_for(origin, variables)
        return known[origin]


class Exchange:
    """One request on its connection; a context manager that gives the connection back."""

    response: WireResponse

    def __init__(
        self,
        connection: Connection,
        pool: ConnectionPool,
        deadline: Deadline,
        interruption: Interruption,
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._deadline = deadline
        self._interruption = interruption

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._release(self.response.reusable)

    def send(self, request: WireRequest) -> None:
        """Send the request and wait for the head of its answer.

        Raises:
            ExchangeFault: No answer began; ``retryable`` says whether the connection failed.
        """
        try:
            self._connection.begin(self._deadline, self._interruption)
            broken = self._send_bytes(request)
            head, body = self._receive_head(request.method, broken)
        except BaseException:
            self._release(False)
            raise
        close = broken is not None or _asks_to_close(request)
        self.response = WireResponse(head, body, self._connection, close)

    def _send_bytes(self, request: WireRequest) -> Optional[OSError]:
        """Send; a connection that the server closes meanwhile may still hold an answer."""
        origin, proxy = self._connection.route
        forwarded = proxy is not None and origin.scheme == "http"
        extra = {}
        if forwarded and proxy is not None and proxy.authorization:
            extra["Proxy-Authorization"] = proxy.authorization
        head = request.head(absolute=forwarded, extra=extra)
        body = request.body or b""
        try:
            if len(body) <= _READ_SIZE:
                self._connection.send(head + body)
            else:
                self._connection.send(head)
                self._connection.send(body)
        except OSError as error:
            self._check_limits(error)
            return error
        return None

    def _receive_head(self, method: str, broken: Optional[OSError]) -> Tuple[Head, Body]:
        try:
            while True:
                head = self._read_head()
                # informational answers (RFC 9110 15.2) come before the real one
                if not 100 <= head.status < 200 or head.status == 101:
                    return head, body_of(head, method)
        except OSError as error:
            self._check_limits(error)
            message = "The connection to {} broke before an answer came: {}.".format(
                self._connection.route[0].authority, broken or error
            )
            raise ExchangeFault(CONNECTION_ERROR, message, retryable=True) from error
        except MalformedMessage as error:
            raise _malformed(error) from error

    def _read_head(self) -> Head:
        received, end = b"", -1
        while end < 0:
            data = self._connection.receive()
            if not data:
                raise ConnectionResetError("it was closed by the other side")
            searched, received = len(received), received + data
            end = head_end(received, searched)
        self._connection.give_back(received[end:])
        return parse_head(received[:end])

    def read_some(self) -> bytes:
        """The next bytes of the body, as ``WireResponse.read_some``, with the connection's faults.

        Raises:
            ExchangeFault: The body did not arrive whole or in time.
        """
        try:
            data = self.response.read_some()
            if not data:
                # a cancelled connection looks like one that the server ended
                self._interruption.check()
            return data
        except ExchangeFault:
            self._interruption.check()
            raise
        except OSError as error:
            self._check_limits(error)
            raise _cut(str(error) or type(error).__name__) from error

    def shorten(self, seconds: float) -> None:
        """Wait no longer than ``seconds`` for the rest of the body."""
        self._deadline = Deadline(min(seconds, self._deadline.left()))
        self._connection.begin(self._deadline, self._interruption)

    def _check_limits(self, error: BaseException) -> None:
        """Raise the fault that explains an IO error: a cancellation or a limit that passed."""
        self._interruption.check()
        if isinstance(error, socket.timeout) and error.errno is None:
            # ours; the operating system's own time-out carries an errno
            raise self._deadline.fault() from error

    def _release(self, reusable: bool) -> None:
        self._connection.end(self._interruption)
        if reusable:
            self._pool.give(self._connection)
        else:
            self._connection.close()


def _asks_to_close(request: WireRequest) -> bool:
    return any(
        name.lower() == "connection" and value.lower() == "close"
        for name, value in request.headers.items()
    )
