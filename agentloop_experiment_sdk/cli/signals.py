"""Ctrl-C and SIGTERM: what they raise, and what they do where nobody lets that through."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Iterator, List, NoReturn

from . import exits


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM raises ``Terminated`` in the main thread, so that a run is put in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: Any) -> NoReturn:
        raise exits.Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM also call ``stop``, and what they raise comes out of here in any case.

    An agent in the main thread (``--serial``) may catch it, by ``except:`` or ``except
    BaseException:``; the run would go on with the next row as if nothing had happened.

    Args:
        stop: Is called between any two steps of the main thread, so it must take no lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: List[BaseException] = []

    def also_stop(before: Callable[..., Any]) -> Callable[..., Any]:
        def handle(number: int, frame: Any) -> None:
            stop()
            try:
                before(number, frame)
            except KeyboardInterrupt as error:
                raised.append(error)
                raise

        return handle

    # one that the caller had ignored, as nohup does, stays so
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: before for number, before in found.items() if callable(before)}
    try:
        for number, before in handlers.items():
            signal.signal(number, also_stop(before))
        yield
    finally:
        for number, before in handlers.items():
            signal.signal(number, before)
    if raised:
        raise raised[0]
