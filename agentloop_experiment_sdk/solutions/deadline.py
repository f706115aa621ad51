"""How long an exchange may still take, and how another thread ends it."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, Optional

from .faults import CANCELLED, IDLE_TIMEOUT, TIMEOUT, ExchangeFault

# the C type behind socket timeouts is small on some platforms
_LONGEST_WAIT = 86400.0

Clock = Callable[[], float]


class Deadline:
    """The moment by which the whole exchange must be over, and optionally the next event.

    Args:
        seconds: From now to the end of the exchange.
        idle_seconds: The longest silence between two events of a stream; None for no limit.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self, seconds: float, idle_seconds: Optional[float] = None, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._idle_seconds = idle_seconds
        self._idle_end: Optional[float] = None

    def left(self) -> float:
        """Seconds until the next limit, always above 0.

        Raises:
            ExchangeFault: A limit has passed (``Timeout`` or ``IdleTimeout``).
        """
        left = self._limit() - self._clock()
        if left <= 0:
            raise self.fault()
        return min(left, _LONGEST_WAIT)

    def fault(self) -> ExchangeFault:
        """The fault of the limit that comes first."""
        if self._idle_end is not None and self._idle_end < self._end:
            message = "No event for {:g} s (idle_timeout)."
            return ExchangeFault(IDLE_TIMEOUT, message.format(self._idle_seconds))
        message = "No complete answer within {:g} s; raise timeout if the agent needs longer."
        return ExchangeFault(TIMEOUT, message.format(self._seconds))

    def _limit(self) -> float:
        return self._end if self._idle_end is None else min(self._end, self._idle_end)

    def allows(self, seconds: float) -> bool:
        """Whether a wait of ``seconds`` ends before the exchange must."""
        return self._clock() + seconds < self._end

    def event(self) -> None:
        """An event of the stream arrived: the silence is measured anew from here."""
        if self._idle_seconds is not None:
            self._idle_end = self._clock() + self._idle_seconds


class Interruption:
    """Ends an exchange from another thread by shutting down the socket it waits on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._socket: Optional[socket.socket] = None

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._woken.is_set()

    def cancel(self) -> None:
        """Wake whatever the exchange waits for: its socket or the pause before a retry."""
        # under the lock, or the socket could already serve another row; shutdown does not block
        with self._lock:
            self._woken.set()
            if self._socket is not None:
                _shut_down(self._socket)

    def watch(self, sock: Optional[socket.socket]) -> None:
        """From now on the exchange waits on ``sock`` (None: on no socket).

        Raises:
            ExchangeFault: The exchange was cancelled.
        """
        with self._lock:
            self._socket = sock
        if sock is not None:
            self.check()

    def check(self) -> None:
        """Raise the ``Cancelled`` fault if the exchange was cancelled."""
        if self._woken.is_set():
            raise ExchangeFault(CANCELLED, "The run was interrupted or the row ran out of time.")

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until ``cancel``."""
        self._woken.wait(seconds)


def _shut_down(sock: socket.socket) -> None:
    try:
        # SSLSocket.shutdown would also drop the TLS state that the reading thread is using
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass
