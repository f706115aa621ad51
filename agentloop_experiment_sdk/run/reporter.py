"""The cloud record of an open run: kept up to date, and closed with the truth."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

from ..errors import CloudError
from .tally import Counts

logger = logging.getLogger(__name__)

MILESTONES = (10, 25, 50, 75, 100)
_FINAL_PAUSES_S = (0.5, 2.0, 5.0)
_SLICE_S = 0.05


class OutOfTime(Exception):
    """The run was ended, and AgentLoop takes longer than that leaves."""


class UpdateApi(Protocol):
    """The call to AgentLoop that keeps a record up to date."""

    def update_run(
        self, space: str, record_id: str, body: Dict[str, Any], *, timeout: Optional[float] = None
    ) -> Dict[str, Any]:
        """UpdateExperimentRun."""
        ...


class RecordReporter:
    """Keeps a record up to date from one thread of its own, in order.

    A progress update that fails is logged and never stops the run.
    """

    def __init__(
        self,
        api: UpdateApi,
        space: str,
        record_id: str,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._space = space
        self._record_id = record_id
        self._now = now
        self._sleep = sleep
        self._due: List[int] = []
        self._failed_with: Optional[Counts] = None
        self._updates: queue.SimpleQueue[Optional[Tuple[Dict[str, Any], Optional[float]]]] = (
            queue.SimpleQueue()
        )
        self._thread: Optional[threading.Thread] = None
        self._ends_at = float("inf")

    def hurry(self, seconds: float) -> None:
        """From any thread: what waits without a time of its own has so many seconds from now."""
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)

    def begin(self, counts: Counts, *, announce: bool) -> None:
        """Plan the milestones still ahead; ``announce`` sends ``running`` and the total."""
        ahead = [-(-percent * counts.total // 100) for percent in MILESTONES]
        self._due = [count for count in ahead if count > counts.done]
        if announce:
            self._send_later({"status": "running", "executedAt": self._ms(), **counts.body()})

    def advance(self, counts: Counts) -> None:
        """Send every milestone that ``counts`` has reached."""
        while self._due and counts.done >= self._due[0]:
            self._due.pop(0)
            self._send_later({"status": "running", **counts.body()})

    def fail_now(self, counts: Counts, timeout: float) -> None:
        """Queue ``failed``, once for the same counts; no progress is sent after it."""
        self._due.clear()
        if self._failed_with == counts:
            return
        self._failed_with = counts
        body = {"status": "failed", "completedAt": self._ms(), **counts.body()}
        self._send_later(body, timeout)

    def complete(self, counts: Counts) -> None:
        """Send ``completed``, after everything else.

        Raises:
            CloudError: The record could not be completed, tried several times.
            OutOfTime: ``hurry`` was called, and its time is up.
        """
        self.join(None)
        failures: List[BaseException] = []

        def work() -> None:
            try:
                self._complete(counts)
            except BaseException as error:
                failures.append(error)

        # on a thread that can be left behind: a request may take minutes to fail
        thread = threading.Thread(target=work, name="agentloop-record", daemon=True)
        thread.start()
        self._wait_for(thread)
        if failures:
            raise failures[0]

    def _complete(self, counts: Counts) -> None:
        body = {"status": "completed", "completedAt": self._ms(), **counts.body()}
        for pause in _FINAL_PAUSES_S:
            try:
                self._api.update_run(self._space, self._record_id, body)
                return
            except CloudError as error:
                if not error.retryable:
                    raise
                logger.warning("Record %s could not be completed yet: %s", self._record_id, error)
                self._sleep(error.retry_after or pause)
        self._api.update_run(self._space, self._record_id, body)

    def join(self, timeout: Optional[float]) -> None:
        """Wait until the queued updates are sent; at most ``timeout`` seconds.

        Raises:
            OutOfTime: Without a timeout only, as ``complete``.
        """
        if self._thread is not None:
            self._updates.put(None)
            if timeout is None:
                self._wait_for(self._thread)
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning(
                    "Record %s has not acknowledged its last update in time; its status may be "
                    "out of date until the experiment is run again.",
                    self._record_id,
                )
            self._thread = None

    def _wait_for(self, thread: threading.Thread) -> None:
        while thread.is_alive():
            if time.monotonic() >= self._ends_at:
                raise OutOfTime
            thread.join(_SLICE_S)

    def _ms(self) -> int:
        return int(self._now() * 1000)

    def _send_later(self, body: Dict[str, Any], timeout: Optional[float] = None) -> None:
        self._updates.put((body, timeout))
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._send_forever, name="agentloop-record", daemon=True
            )
            self._thread.start()

    def _send_forever(self) -> None:
        while True:
            update = self._updates.get()
            if update is None:
                return
            body, timeout = update
            try:
                self._api.update_run(self._space, self._record_id, body, timeout=timeout)
            except Exception as error:
                logger.warning(
                    "Record %s could not be updated to %s: %s",
                    self._record_id,
                    body.get("status"),
                    error,
                )
