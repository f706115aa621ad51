"""Threads that write finished attempts to disk, off the workers and the flow."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, Iterator, List, Optional

from ..models import Result
from ..results.attempts import AttemptWriter
from .messages import Written

GATHER_S = 0.002
BATCH = 16
SLOW_S = 0.002
MOST_THREADS = 4
_SLOW_IN_A_ROW = 16


class WriterPool:
    """Writes results and tells ``written``: their journal entries, or why there are none.

    One thread writes: several would take the interpreter from each other at every step of a file,
    and from the workers. Only while the disk is slow, more help.

    Args:
        writer: Writes one attempt.
        written: Called from a writer thread, once for each result.
        n_workers: How many attempts run at once; more threads than these never help.
        gathers: Whether rows are now written a few at a time, so that no thread is woken for each:
            that costs as much as a row's files.
        slow: The disk is known to be slow.
        clock, sleep: Seconds.
    """

    def __init__(
        self,
        writer: AttemptWriter,
        written: Callable[[List[Written]], None],
        n_workers: int,
        gathers: Callable[[], bool] = lambda: False,
        *,
        slow: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._writer = writer
        self._written = written
        self._most = min(MOST_THREADS, n_workers)
        self._gathers = gathers
        self._clock = clock
        self._sleep = sleep
        self._due: queue.SimpleQueue[Optional[Result]] = queue.SimpleQueue()
        self._started = 0
        # one slow write says nothing: its thread may have waited for the interpreter
        self._slow_in_a_row = _SLOW_IN_A_ROW if slow else 0

    def start(self) -> None:
        """Start the first thread."""
        self._start_thread()

    def put(self, result: Result) -> None:
        """Take a result; returns at once."""
        self._due.put(result)

    def close(self) -> None:
        """End the threads once what they have is written."""
        for _ in range(MOST_THREADS):
            self._due.put(None)

    def _start_thread(self) -> None:
        self._started += 1
        threading.Thread(target=self._work, name="agentloop-writer", daemon=True).start()

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                return
            if self._slow_in_a_row >= _SLOW_IN_A_ROW and self._started < self._most:
                self._start_thread()
            self._written([self._save(result) for result in batch])

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
        slow = self._clock() - began > SLOW_S
        self._slow_in_a_row = self._slow_in_a_row + 1 if slow else 0
        return Written(result, saved, None)
