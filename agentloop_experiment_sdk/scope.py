"""The attempt that the running code belongs to: its trace identity and how to cancel it."""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar, Token
from typing import Callable, Dict, Iterator, Optional

_current: ContextVar[Optional[AttemptScope]] = ContextVar("agentloop_attempt", default=None)


class AttemptScope:
    """Lives as long as one call of a solution; reached through ``current_scope()``.

    Args:
        record_id: Goes into the baggage as the experiment id; "" adds no member.
        item_id: Goes into the baggage as the data item id; "" adds no member.
    """

    def __init__(self, record_id: str = "", item_id: str = "") -> None:
        self.record_id = record_id
        self.item_id = item_id
        self.trace_id: Optional[str] = None
        self.outer_span_id: Optional[int] = None
        self.cancelled = False
        self._lock = threading.Lock()
        self._callbacks: Dict[int, Callable[[], None]] = {}

    def note_trace(self, trace_id: str) -> None:
        """Record the trace id that a call made inside the attempt carried; the first one stays."""
        if self.trace_id is None:
            self.trace_id = trace_id

    @contextlib.contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the block runs, ``cancel()`` calls ``callback`` (once, from another thread).

        An attempt that is cancelled already calls it at once.
        """
        key = id(callback)
        with self._lock:
            self._callbacks[key] = callback
            late = self.cancelled
        if late:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)

    def cancel(self) -> None:
        """End what the attempt waits for: its sockets are closed, its processes killed."""
        with self._lock:
            self.cancelled = True
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()


def current_scope() -> Optional[AttemptScope]:
    """The scope of the attempt this code runs in, or None outside a run."""
    return _current.get()


@contextlib.contextmanager
def entered(scope: AttemptScope) -> Iterator[AttemptScope]:
    """Make ``scope`` the current one while the block runs."""
    token: Token[Optional[AttemptScope]] = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
