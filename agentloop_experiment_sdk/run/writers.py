"""Threads that write finished attempts to disk, off the workers and the flow."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, List, Optional

from ..models import Result
from ..results.attempts import AttemptWriter
from .messages import Written
from .pace import BLOCK, Pace

GATHER_S = 0.002
_LONGEST_BATCH_S = 0.01
_BEHIND = 8


class WriterPool:
    """Writes results and tells ``written``: their journal entries, or why there are none.

    One thread writes: several would take the interpreter from each other at every step of a file,
    and from the workers. More help while a slow disk holds the run up.

    Args:
        writer: Writes one attempt.
        written: Called from a writer thread; each result comes once.
        n_workers: How many attempts run at once; with as many waiting to be written, writing holds
            the run up.
        pace: Whether results are gathered, and how many threads may write.
        clock, sleep: Seconds.
    """

    def __init__(
        self,
        writer: AttemptWriter,
        written: Callable[[List[Written]], None],
        n_workers: int,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._writer = writer
        self._written = written
        self._behind = min(_BEHIND, n_workers)
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._due: queue.SimpleQueue[Optional[Result]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: List[threading.Thread] = []
        self._closed = False
        self._given_up = False

    def start(self) -> None:
        """Start the first thread."""
        self._add_thread(1)

    def put(self, result: Result) -> None:
        """Take a result; returns at once. It is dropped after ``close``, as too late."""
        if not self._closed:
            self._due.put(result)

    def close(self, patience: float) -> None:
        """End the threads once all is written; waits for them at most ``patience`` seconds.

        What is not on disk by then is dropped: the directory may be another run's soon.
        """
        self._closed = True
        self._due.put(None)
        ends = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        self._given_up = True  # first: what the closed writer refuses is no error of the disk
        self._writer.close()

    def _add_thread(self, most: int) -> None:
        with self._lock:
            if len(self._threads) < most:
                thread = threading.Thread(target=self._work, name="agentloop-writer", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _work(self) -> None:
        while True:
            result = self._due.get()
            if result is None or self._given_up:
                self._due.put(None)  # the other threads end, too
                return
            self._written(self._batch(result))
            if self._due.qsize() >= self._behind:
                self._get_help()

    def _batch(self, result: Optional[Result]) -> List[Written]:
        """Write a result, and while results are gathered those that follow; each once."""
        if self._pace.gathers and self._due.empty():
            self._sleep(GATHER_S)
        ends = self._clock() + _LONGEST_BATCH_S
        batch: List[Written] = []
        while result is not None:
            written = self._save(result)
            if written is not None:
                batch.append(written)
            full = len(batch) >= BLOCK or self._clock() >= ends
            stops = full or self._given_up or not self._pace.gathers
            result = None if stops else self._next()
        return batch

    def _next(self) -> Optional[Result]:
        try:
            result = self._due.get_nowait()
        except queue.Empty:
            return None
        if result is None:
            self._due.put(None)  # for the next look
        return result

    def _save(self, result: Result) -> Optional[Written]:
        """Write a result; None if it came too late."""
        began = self._clock()
        try:
            saved = self._writer.save(result)
        except BaseException as error:
            return None if self._given_up else Written(result, None, error)
        return Written(result, saved, None, self._clock() - began)

    def _get_help(self) -> None:
        try:
            self._add_thread(self._pace.writers)
        except RuntimeError:  # the system allows no more threads: it takes longer without
            pass
