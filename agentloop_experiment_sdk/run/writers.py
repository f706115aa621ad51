"""Threads that write finished attempts to disk, off the workers and the flow."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Callable, Deque, Iterator, List, Optional

from ..models import Result
from ..results.attempts import AttemptWriter
from .messages import Written

GATHER_S = 0.002
BATCH = 16
BEHIND = 8
THREADS = ((0.0003, 2), (0.01, 8))
"""How many threads write where even the quickest of the last writes took so many seconds: on a disk
that is busy, and on a network's."""
_LAST = 16


class WriterPool:
    """Writes results and tells ``written``: their journal entries, or why there are none.

    One thread writes: several would take the interpreter from each other at every step of a file,
    and from the workers. More help while a slow disk holds the run up.

    Args:
        writer: Writes one attempt.
        written: Called from a writer thread; each result comes once.
        n_workers: How many attempts run at once; with as many waiting to be written, at least,
            writing holds the run up.
        gathers: Whether rows are now written a few at a time, so that no thread is woken for each:
            that costs as much as a row's files.
        clock, sleep: Seconds.
    """

    def __init__(
        self,
        writer: AttemptWriter,
        written: Callable[[List[Written]], None],
        n_workers: int,
        gathers: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._writer = writer
        self._written = written
        self._behind = min(BEHIND, n_workers)
        self._gathers = gathers
        self._clock = clock
        self._sleep = sleep
        self._due: queue.SimpleQueue[Optional[Result]] = queue.SimpleQueue()
        self._closed = False
        self._threads = 0
        self._last: Deque[float] = deque(maxlen=_LAST)

    def start(self) -> None:
        """Start the first thread."""
        self._start_thread()

    def put(self, result: Result) -> None:
        """Take a result; returns at once. After ``close`` it is too late: the directory may be
        another run's by now."""
        if not self._closed:
            self._due.put(result)

    def close(self) -> None:
        """End the threads once what they have is written."""
        self._closed = True
        self._due.put(None)

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="agentloop-writer", daemon=True).start()

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                self._due.put(None)  # for the next thread
                return
            self._written([self._save(result) for result in batch])
            if self._due.qsize() >= self._behind and self._threads < self._most:
                self._start_thread()

    @property
    def _most(self) -> int:
        """How many threads may write. One slow write says nothing: its thread may have waited for
        the interpreter."""
        quickest = min(self._last) if len(self._last) == _LAST else 0.0
        worth = [count for seconds, count in THREADS if quickest > seconds]
        return worth[-1] if worth else 1

    def _next_batch(self) -> List[Result]:
        """The results to write next, at least one; none when the pool was closed."""
        first = self._due.get()
        if first is None:
            return []
        batch = [first]
        if self._gathers():
            if self._due.empty():
                self._sleep(GATHER_S)
            batch += self._more()
        return batch

    def _more(self) -> Iterator[Result]:
        for _ in range(BATCH - 1):
            try:
                result = self._due.get_nowait()
            except queue.Empty:
                return
            if result is None:
                self._due.put(None)  # the end comes after this batch
                return
            yield result

    def _save(self, result: Result) -> Written:
        began = self._clock()
        try:
            saved = self._writer.save(result)
        except BaseException as error:
            return Written(result, None, error)
        self._last.append(self._clock() - began)
        return Written(result, saved, None)
