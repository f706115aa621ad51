"""The attempt that the running code belongs to: its trace identity and how to cancel it."""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar, Token
from typing import Callable, ContextManager, List, Optional

logger = logging.getLogger(__name__)

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
        self.on_refusal: Optional[Callable[[str, Optional[float]], object]] = None
        self._lock = threading.RLock()  # a signal handler may cancel, too
        self._waiting: List[_OnCancel] = []

    def note_trace(self, trace_id: str) -> None:
        """Record the trace id that a call made inside the attempt carried; the first one stays."""
        if self.trace_id is None:
            self.trace_id = trace_id

    def note_refusal(self, reason: str, retry_after: Optional[float] = None) -> None:
        """Tell the run at once that the agent asked for fewer calls, even if a retry succeeds.

        Args:
            reason: Such as ``429``.
            retry_after: Seconds that the agent asked to be left alone.
        """
        if self.on_refusal is not None:
            self.on_refusal(reason, retry_after)

    def on_cancel(self, callback: Callable[[], object]) -> ContextManager[None]:
        """While the block runs, ``cancel()`` calls ``callback`` (once, from another thread).

        An attempt that is cancelled already calls it at once. After the block the callback is not
        running and never will be, so a socket or process id may be given to somebody else.
        """
        return _OnCancel(self, callback)

    def cancel(self) -> None:
        """End what the attempt waits for: its sockets are closed, its processes killed."""
        with self._lock:
            self.cancelled = True
        for item in iter(self._take, None):
            item.call()

    def _take(self) -> Optional[_OnCancel]:
        with self._lock:
            if not self._waiting:
                return None
            item = self._waiting.pop(0)
            item.called = threading.Event()
            return item

    def _add(self, item: _OnCancel) -> bool:
        """False when the attempt is cancelled already."""
        with self._lock:
            if not self.cancelled:
                self._waiting.append(item)
            return not self.cancelled

    def _remove(self, item: _OnCancel) -> None:
        with self._lock:
            if item in self._waiting:
                self._waiting.remove(item)


class _OnCancel:
    """The block of ``AttemptScope.on_cancel``; a class, as it is entered for every call.

    ``called`` is set once the callback has run, None before ``cancel()`` took it.
    """

    __slots__ = ("_scope", "_callback", "called")

    def __init__(self, scope: AttemptScope, callback: Callable[[], object]) -> None:
        self._scope = scope
        self._callback = callback
        self.called: Optional[threading.Event] = None

    def __enter__(self) -> None:
        if not self._scope._add(self):
            self.call()

    def __exit__(self, *_: object) -> None:
        self._scope._remove(self)
        if self.called is not None:
            self.called.wait()

    def call(self) -> None:
        """Call the callback; what it raises must not keep the others from being called."""
        try:
            self._callback()
        except Exception:
            logger.warning("Could not end a cancelled attempt's call.", exc_info=True)
        finally:
            if self.called is not None:
                self.called.set()


def current_scope() -> Optional[AttemptScope]:
    """The scope of the attempt this code runs in, or None outside a run."""
    return _current.get()


def entered(scope: AttemptScope) -> ContextManager[AttemptScope]:
    """Make ``scope`` the current one while the block runs."""
    return _Entered(scope)


class _Entered:
    """The block of ``entered``; a class, as it is entered for every call."""

    __slots__ = ("_scope", "_token")

    def __init__(self, scope: AttemptScope) -> None:
        self._scope = scope

    def __enter__(self) -> AttemptScope:
        self._token: Token[Optional[AttemptScope]] = _current.set(self._scope)
        return self._scope

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
