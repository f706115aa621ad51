"""The attempt that the running code belongs to: its trace identity and how to cancel it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from contextvars import ContextVar, Token
from typing import Callable, Dict, Iterator, Optional, Set, Tuple

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
        self._changed = threading.Condition()
        self._serial = itertools.count()
        self._callbacks: Dict[int, Callable[[], object]] = {}
        self._running: Set[int] = set()

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

    @contextlib.contextmanager
    def on_cancel(self, callback: Callable[[], object]) -> Iterator[None]:
        """While the block runs, ``cancel()`` calls ``callback`` (once, from another thread).

        An attempt that is cancelled already calls it at once. After the block the callback is not
        running and never will be, so a socket or process id may be given to somebody else.
        """
        key = next(self._serial)
        with self._changed:
            late = self.cancelled
            if not late:
                self._callbacks[key] = callback
        if late:
            _call(callback)
        try:
            yield
        finally:
            with self._changed:
                self._callbacks.pop(key, None)
                self._changed.wait_for(lambda: key not in self._running)

    def cancel(self) -> None:
        """End what the attempt waits for: its sockets are closed, its processes killed."""
        with self._changed:
            self.cancelled = True
        for key, callback in iter(self._take, None):
            try:
                _call(callback)
            finally:
                with self._changed:
                    self._running.discard(key)
                    self._changed.notify_all()

    def _take(self) -> Optional[Tuple[int, Callable[[], object]]]:
        with self._changed:
            if not self._callbacks:
                return None
            key = next(iter(self._callbacks))
            self._running.add(key)
            return key, self._callbacks.pop(key)


def _call(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # the other callbacks must still be called
        logger.warning("Could not end a cancelled attempt's call.", exc_info=True)


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
