"""Connections that outlive an exchange, and the pool they wait in."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
import weakref
from typing import Dict, List, Optional, Tuple

from .deadline import Clock, Deadline, Interruption
from .proxies import Proxy
from .request import Origin

_READ_SIZE = 65536
_LONGEST_SEND = 262144
# a connection idle for longer is likelier to be gone than worth a try
_LONGEST_IDLE = 30.0
# by so much a send or receive may pass its deadline
_TOLERANCE_S = 0.005
_POLL = getattr(select, "poll", None)  # Windows has none
_READABLE = getattr(select, "POLLIN", 0)

Route = Tuple[Origin, Optional[Proxy]]


class Connection:
    """A socket to an agent or proxy, used by one exchange at a time.

    Args:
        sock: Connected, handshake done.
        route: What it leads to; connections with equal routes can stand in for each other.
    """

    def __init__(self, sock: socket.socket, route: Route) -> None:
        self.route = route
        self.idle_since = 0.0
        self.socket = sock
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._deadline: Optional[Deadline] = None
        self._timeout = -1.0
        self._unread = b""

    def begin(self, deadline: Deadline, interruption: Interruption) -> None:
        """From here the connection serves the exchange with this deadline."""
        self._deadline = deadline
        interruption.watch(self.socket)

    def end(self, interruption: Interruption) -> None:
        """The exchange is over; it can no longer be cancelled through this connection."""
        interruption.watch(None)
        self._deadline = None

    def send(self, data: bytes) -> None:
        """Send all of ``data`` before the deadline."""
        deadline = self._deadline
        assert deadline is not None
        if not self._secure and len(data) <= _LONGEST_SEND:
            # a plain socket's sendall keeps to its timeout as a whole
            self._set_timeout(deadline.left())
            self.socket.sendall(data)
            return
        view = memoryview(data)
        while view:
            self._set_timeout(deadline.left())
            view = view[self.socket.send(view[:_LONGEST_SEND]) :]

    def receive(self) -> bytes:
        """What arrives next; b"" at the end."""
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        assert self._deadline is not None
        self._set_timeout(self._deadline.left())
        return self.socket.recv(_READ_SIZE)

    def give_back(self, data: bytes) -> None:
        """``receive`` gives these bytes again."""
        self._unread = data + self._unread

    def is_usable(self) -> bool:
        """Whether an idle connection still stands and nothing unasked has arrived on it."""
        if self._unread:
            return False
        try:
            if not self._secure and _POLL is not None:
                waiting = _POLL()
                waiting.register(self.socket.fileno(), _READABLE)
                return not waiting.poll(0)
            self._set_timeout(0.0)
            self.socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, ValueError):  # a closed socket has no descriptor
            pass
        return False

    def _set_timeout(self, seconds: float) -> None:
        """Each change is a system call, during which other threads fight for the interpreter."""
        if 0.0 in (seconds, self._timeout) or abs(seconds - self._timeout) > _TOLERANCE_S:
            self.socket.settimeout(seconds)
            self._timeout = seconds

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class ConnectionPool:
    """Idle connections by route, the latest used first. Safe for threads and for forks."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: Dict[Route, List[Connection]] = {}
        # also when the program ends: a solution lives as long as the script that made it
        weakref.finalize(self, _close_all, self._idle)
        self._process = os.getpid()

    def take(self, route: Route) -> Optional[Connection]:
        """An idle connection that is still open, or None."""
        if self._process != os.getpid():
            # the parent of a forked process goes on using these sockets
            self._reset()
        while True:
            with self._lock:
                waiting = self._idle.get(route)
                connection = waiting.pop() if waiting else None
            if connection is None:
                return None
            if self._is_fresh(connection) and connection.is_usable():
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        """Keep ``connection`` for the next exchange; close those that idled for too long."""
        connection.idle_since = self._clock()
        stale = []
        with self._lock:
            waiting = self._idle.setdefault(connection.route, [])
            # idle times ascend, so the stale ones come first
            while waiting and not self._is_fresh(waiting[0]):
                stale.append(waiting.pop(0))
            waiting.append(connection)
        for old in stale:
            old.close()

    def _is_fresh(self, connection: Connection) -> bool:
        return self._clock() - connection.idle_since < _LONGEST_IDLE

    def close(self) -> None:
        """Close all idle connections; the pool can be used again."""
        with self._lock:
            idle = dict(self._idle)
            self._idle.clear()
        _close_all(idle)


def _close_all(idle: Dict[Route, List[Connection]]) -> None:
    for connection in [each for waiting in idle.values() for each in waiting]:
        connection.close()
