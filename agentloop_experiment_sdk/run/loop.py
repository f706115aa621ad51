"""The one event loop of the process, on a daemon thread, shared by all runs.

A client that a solution opened in one row, or one run, works in the next, because the loop under it
stays the same. The loop carries users' code only.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import os
import queue
import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Awaitable, Callable, ContextManager, Iterator, List, Optional

from ..errors import ConfigurationError

logger = logging.getLogger(__name__)

_SLICE_S = 0.2


class DaemonThreadExecutor(concurrent.futures.ThreadPoolExecutor):
    """The loop's default executor (``to_thread``) on daemon threads.

    The interpreter joins the threads of an ordinary pool at exit, so one stuck call would keep an
    interrupted process alive. The class is a subclass only because the loop demands one.
    """

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers)
        self._limit = max_workers
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._spawned: List[threading.Thread] = []
        self._free = threading.Semaphore(0)
        self._growing = threading.Lock()

    def grow(self, max_workers: int) -> None:
        """Allow at least this many threads from now on."""
        with self._growing:
            self._limit = max(self._limit, max_workers)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``fn`` on one of the threads."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._jobs.put((future, fn, args, kwargs))
        if not self._free.acquire(blocking=False):
            with self._growing:
                if len(self._spawned) < self._limit:
                    thread = threading.Thread(target=self._work, name="agentloop-to-thread")
                    thread.daemon = True
                    self._spawned.append(thread)
                    thread.start()
        return future

    def shutdown(self, wait: bool = True, **_kwargs: Any) -> None:
        """Nothing to wait for: the threads are daemons."""

    def _work(self) -> None:
        while True:
            try:
                future, fn, args, kwargs = self._jobs.get_nowait()
            except queue.Empty:
                # idle only now: a thread that goes on with a queued job is not free for another
                self._free.release()
                future, fn, args, kwargs = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, fn, args, kwargs


class LoopThread:
    """An event loop that runs for as long as the process; a fork gets a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._executor: Optional[DaemonThreadExecutor] = None
        self._pid = -1

    def get(self, n_workers: int) -> asyncio.AbstractEventLoop:
        """The running loop, whose default executor has at least ``n_workers`` threads."""
        with self._lock:
            if self._loop is None or self._executor is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._executor = DaemonThreadExecutor(n_workers)
                self._loop.set_default_executor(self._executor)
                self._pid = os.getpid()
                thread = threading.Thread(target=_run_forever, args=(self._loop,), daemon=True)
                thread.name = "agentloop-event-loop"
                thread.start()
            self._executor.grow(n_workers)
            return self._loop

    @property
    def is_current(self) -> bool:
        """Whether the calling code runs on the loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while not loop.is_closed():
        try:
            loop.run_forever()
            logger.warning("A task of a solution stopped the event loop; other rows need it.")
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a task leave run_forever; others must go on
            logger.warning("A task of a solution raised %r out of the event loop.", error)


PROCESS_LOOP = LoopThread()
_is_blocked: ContextVar[bool] = ContextVar("agentloop_loop_is_blocked", default=False)


def check_not_on_loop() -> None:
    """Refuse to wait for something that needs the event loop while the loop waits for this.

    Raises:
        ConfigurationError: An async solution has called the SDK and waits for it.
    """
    if _is_blocked.get() or PROCESS_LOOP.is_current:
        raise ConfigurationError(
            "An async solution cannot wait for a run, or an evaluation, with something async in "
            "it: both need the same event loop. Use `await Experiment(...).arun()`, or await the "
            "other function itself."
        )


@contextmanager
def waiting() -> Iterator[None]:
    """While the block waits for a run, no thread of that run waits for a loop that it blocks."""
    token = _is_blocked.set(_is_blocked.get() or PROCESS_LOOP.is_current)
    try:
        yield
    finally:
        _is_blocked.reset(token)


def resolve(ended: asyncio.Future[None]) -> None:
    """Let whoever awaits ``ended`` go on; on its loop."""
    if not ended.done():
        ended.set_result(None)


def call_on(
    loop: asyncio.AbstractEventLoop, action: Callable[..., object], *arguments: Any
) -> bool:
    """Have ``action`` called on ``loop``, from any thread; False when the loop is closed."""
    try:
        loop.call_soon_threadsafe(action, *arguments)
    except RuntimeError:
        return False
    return True


def awaiter(
    loop: Callable[[], asyncio.AbstractEventLoop],
    on_cancel: Callable[[Callable[[], object]], ContextManager[Any]] = lambda _: nullcontext(),
) -> Callable[[Awaitable[Any]], Any]:
    """A function that awaits on ``loop`` from another thread and returns the result.

    ``on_cancel`` is that of the attempt's scope: it lets a stopping run cancel what is awaited.
    """

    def wait(awaitable: Awaitable[Any]) -> Any:
        try:
            check_not_on_loop()
        except ConfigurationError:
            _close(awaitable)
            raise
        future = asyncio.run_coroutine_threadsafe(_as_coroutine(awaitable), loop())
        try:
            with on_cancel(future.cancel):
                ended = threading.Event()
                future.add_done_callback(lambda _: ended.set())
                while not ended.wait(_SLICE_S):
                    pass  # a signal that came just before a wait without end would not be seen
                return future.result()
        finally:
            # after an interrupt it must not go on alone; nothing happens to one that is done
            future.cancel()

    return wait


def _close(awaitable: Any) -> None:
    """Close a coroutine that is not begun, and what it was to await: else Python warns of both."""
    if inspect.iscoroutine(awaitable):
        for value in inspect.getcoroutinelocals(awaitable).values():
            _close(value)
        awaitable.close()


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Heartbeat:
    """Warns when a blocking call stalls the loop, and names the row that made it.

    Args:
        loop: The loop to watch.
        every_s: Seconds between beats; a beat unanswered until the next one is a stall.
        closed: Called once if somebody has closed the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every_s: float = 5.0,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._loop = loop
        self._closed = closed
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="agentloop-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End watching; does not wait."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                self._closed()  # the caller's own loop
                return
            if not answered.wait(self._every_s) and not self._stop.is_set():
                logger.warning(
                    "The event loop has been blocked for over %g s by %s: a blocking call inside "
                    "an async solution stops all rows. Use an async client or asyncio.to_thread.",
                    self._every_s,
                    _running_task(self._loop),
                )
                while not answered.wait(self._every_s) and not self._stop.is_set():
                    pass  # one warning for one stall


def _running_task(loop: asyncio.AbstractEventLoop) -> str:
    try:
        task = asyncio.current_task(loop)
    except RuntimeError:
        task = None
    return task.get_name() if task is not None else "a callback"
