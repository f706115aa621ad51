"""The core of every HTTP call: single calls and conversations are both built on ``HttpClient``.

Sockets, TLS and parsers are imported by the first call.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional

from ..models import HttpRequestSpec
from ..scope import current_scope
from ..tracing import TraceContext, begin_trace
from .answer import HttpAnswer
from .options import HttpOptions

if TYPE_CHECKING:
    from .transport import Transport


class HttpClient:
    """Makes calls over connections that it keeps open between them; safe to share by threads.

    Args:
        options: How calls are made.
        clock: A monotonic clock in seconds.
        pause: Waits the given seconds before a retry; None waits in a way that ``cancel`` ends.
    """

    def __init__(
        self,
        options: HttpOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Optional[Callable[[float], None]] = None,
    ) -> None:
        self.options = options
        self._clock = clock
        self._pause = pause
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._transport: Optional[Transport] = None

    def exchange(
        self,
        spec: HttpRequestSpec,
        *,
        members: Optional[Mapping[str, str]] = None,
        trace: Optional[TraceContext] = None,
        on_event: Optional[Callable[[Any], None]] = None,
    ) -> HttpAnswer:
        """Send one request and read its whole answer. Never raises for what an agent does.

        Inside an attempt the call ends when the attempt's scope is cancelled, and its trace id is
        noted on the scope.

        Args:
            spec: What to send; ``traceparent`` and ``baggage`` are added to its headers.
            members: Baggage members, ``tracing.task_members(task)``.
            trace: The trace to send; None begins one.
            on_event: Called with the JSON (else the text) of every event of a stream.
        """
        from .exchange import run_exchange

        scope = current_scope()
        return run_exchange(
            self._open_transport(),
            spec,
            self.options,
            trace=trace or begin_trace(scope),
            members=members or {},
            scope=scope,
            on_event=on_event,
            clock=self._clock,
            pause=self._pause,
        )

    def _open_transport(self) -> Transport:
        if self._transport is None:
            from .transport import Transport

            opened = Transport(self._clock)
            with self._lock:
                self._transport = self._transport or opened
        return self._transport

    def close(self) -> None:
        """Close idle connections. The client can be used again."""
        if self._transport is not None:
            self._transport.close()

    def __getstate__(self) -> Dict[str, Any]:
        """Without connections: they do not travel to another process."""
        return {"options": self.options, "_clock": self._clock, "_pause": self._pause}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
