"""A small pool of threads that writes finished attempts to disk, off the workers and the flow."""

from __future__ import annotations

import queue
import threading
from typing import Callable, Optional

from ..models import Result
from ..results.attempts import AttemptWriter
from ..results.journal import Saved

Written = Callable[[Result, Optional[Saved], Optional[BaseException]], None]


class WriterPool:
    """Writes results and tells ``written``: the journal entry, or why there is none.

    Args:
        writer: Writes one attempt.
        written: Called from a writer thread, once for each result.
        count: How many threads.
    """

    def __init__(self, writer: AttemptWriter, written: Written, count: int) -> None:
        self._writer = writer
        self._written = written
        self._due: queue.SimpleQueue[Optional[Result]] = queue.SimpleQueue()
        self._count = count

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._count):
            threading.Thread(target=self._work, name="agentloop-writer", daemon=True).start()

    def put(self, result: Result) -> None:
        """Take a result; returns at once."""
        self._due.put(result)

    def close(self) -> None:
        """End the threads once what they have is written."""
        for _ in range(self._count):
            self._due.put(None)

    def _work(self) -> None:
        while True:
            result = self._due.get()
            if result is None:
                return
            try:
                saved = self._writer.save(result)
            except BaseException as error:
                self._written(result, None, error)
            else:
                self._written(result, saved, None)
