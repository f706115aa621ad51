"""The flow thread: owns directory, journal, counters and record, and decides what happens next.

Workers call the solution, writers write files, delivery sends rows; all of them report here, and
only here is the state of the run changed.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Set

from ..models import Attempt, Result
from ..results.delivery import Outgoing
from ..results.directory import ResultsDirectory
from ..results.journal import Key, Saved
from .advice import DrainNotice, ScoringNotice, left_behind_message, unwritable
from .dispatch import Dispatch
from .engine import Engine, Outlet
from .events import AttemptDone, Event, Progress, RowsDelivered, tell
from .leftovers import already_delivered
from .messages import Answered, Delivered, Dropped, Refused, Scored, Stop, Undeliverable, Written
from .pace import Pace
from .reporter import RecordReporter
from .scoring import ScoringPool
from .settings import RunSettings
from .starts import Starts
from .tally import FailureLimits, Skips, Tally
from .writers import WriterPool

logger = logging.getLogger(__name__)

RUNNING_GRACE_S = 2.0
_BATCH = 512
_NO_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_TICK_S = 0.05


@dataclass
class _State:
    """What is under way: attempts handed to the engine and not yet settled."""

    due: Deque[Attempt]
    in_flight: int = 0
    stopping: bool = False
    stopped_at: float = 0.0
    error: Optional[BaseException] = None
    undeliverable: Dict[Key, str] = field(default_factory=dict)
    retrying: Dict[Key, Saved] = field(default_factory=dict)
    done_here: int = 0
    sends_no_more: bool = False


class Flow:
    """One run from its first attempt to its last delivered row.

    Args:
        directory: The results directory, begun.
        reporter: The record.
        dispatch: The way to SLS.
        settings: The run's settings.
        due: The attempts to run, in order.
        tally: Counts, those of earlier runs included.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        directory: ResultsDirectory,
        reporter: RecordReporter,
        settings: RunSettings,
        due: Sequence[Attempt],
        tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._reporter = reporter
        self._settings = settings
        self._listeners = settings.listeners()
        self._tally = tally
        self._clock = clock
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._limits = FailureLimits(
            tally.counts.total, settings.max_failures, settings.stop_if_first
        )
        self._skips = Skips()
        self._state = _State(deque(due))
        self.starts = Starts(settings, self._inbox, clock)
        self.pace = Pace(settings.n_workers, awaited=settings.awaits_each_row or self.starts.exact)
        self._began = clock()
        self._delivered = already_delivered(directory, self._state.due)
        self._in_sls: Set[Key] = set()
        self.finished = threading.Event()

    def connect(
        self,
        engine: Engine,
        dispatch: Dispatch,
        writers: Optional[WriterPool] = None,
        scoring: Optional[ScoringPool] = None,
    ) -> None:
        """Set those that report to this flow; they need it, and it needs them."""
        self._engine = engine
        self._writers = writers
        self._dispatch = dispatch
        self._scoring = scoring

    def outlet(self, writers: WriterPool) -> Outlet:
        """Where an engine puts what comes out: results go to disk, the rest comes here."""
        return Outlet(
            self.starts.heard_by(writers.put),
            lambda attempt, error: self._inbox.put(Dropped(attempt, error)),
        )

    def written(self, batch: List[Written]) -> None:
        """A writer is through with results."""
        for message in batch:
            self._inbox.put(message)

    def delivered(self, rows: List[Outgoing]) -> None:
        """SLS acknowledged rows."""
        self._inbox.put(Delivered(rows))

    def undeliverable(self, row: Outgoing, reason: str) -> None:
        """A row was given up."""
        self._inbox.put(Undeliverable(row, reason))

    def scored(self, saved: Saved, scores: Mapping[str, Any], error: Optional[Exception]) -> None:
        """Local evaluators are through with an attempt."""
        self._inbox.put(Scored(saved, scores, error))

    def stop(self, error: Optional[BaseException] = None) -> None:
        """End the run early; from any thread. ``error`` is what the run then raises."""
        self._inbox.put(Stop(error))

    @property
    def error(self) -> Optional[BaseException]:
        """Why the run was ended early, if it was for an error."""
        return self._state.error

    @property
    def was_stopped(self) -> bool:
        """Whether the run was ended early."""
        return self._state.stopping

    def run(self, undelivered: Sequence[Saved], unscored: Sequence[Saved] = ()) -> None:
        """Run everything that is due and drain the delivery.

        Args:
            undelivered: Done attempts whose rows are still to be sent.
            unscored: Done attempts whose rows are in SLS but lack local scores.
        """
        self._in_sls.update(saved.key for saved in unscored)
        try:
            if self._writers is not None:
                self._writers.start()
            for saved in [*undelivered, *unscored]:
                self._hand_on(saved, None, afresh=False)
            self._began = self._clock()
            self._handle(self._rest())  # it may have been stopped before it began
            self._fill()
            while self._is_executing():
                self._handle(self._receive(_TICK_S if self.was_stopped else self.starts.pause))
                self._fill()
            self._engine.close()
            self._finish_writing()
            self._skips.report()
            self._drain()
        except BaseException:
            # no further call is made, and no row sent whose acknowledgement nobody writes down
            self._engine.stop()
            self._engine.close()
            self._close()
            raise

    @property
    def grace_left(self) -> float:
        """Seconds that a run which was ended early may still take."""
        return max(0.5, self._settings.stop_grace - (self._clock() - self._state.stopped_at))

    def progress(self) -> Progress:
        """How far the run is now."""
        counts = self._tally.counts
        took = max(self._clock() - self._began, 1e-9)
        rate = self._state.done_here / took
        eta = (counts.total - counts.done) / rate if rate else None
        rows = (counts.total, counts.succeeded, counts.failed, counts.skipped, self._delivered)
        return Progress(*rows, rate, eta, self.starts.limit)

    def _is_executing(self) -> bool:
        state = self._state
        if state.in_flight == 0:
            return bool(state.due) and not state.stopping
        grace = min(RUNNING_GRACE_S, self._settings.stop_grace)
        return not state.stopping or self._clock() - state.stopped_at < grace

    def _fill(self) -> None:
        state = self._state
        while state.due and state.in_flight < self.pace.window and not state.stopping:
            if not self.starts.may_start(state.due[0]):
                return
            state.in_flight += 1
            self._engine.submit(state.due.popleft())

    def _receive(self, pause: float) -> List[Any]:
        """What has come in, at most a batch; waits so many seconds for the first."""
        try:
            messages = [self._inbox.get(timeout=pause)]
        except queue.Empty:
            return []
        while len(messages) < _BATCH:
            try:
                messages.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        return messages

    def _handle(self, messages: List[Any]) -> None:
        self._settle([message for message in messages if isinstance(message, Written)])
        for message in messages:
            if isinstance(message, Written):
                continue
            if isinstance(message, (Answered, Refused)):
                change = self.starts.regulate(message)
                if change is not None:
                    self._tell(change)
            elif isinstance(message, Dropped):
                self._state.in_flight -= 1
                self.starts.dropped(message.attempt)
                if message.error is not None:
                    self._begin_stop(message.error)
            elif isinstance(message, Undeliverable):
                self._note_undeliverable(message)
            elif isinstance(message, Scored):
                self._take_scores(message)
            elif isinstance(message, Stop):
                self._begin_stop(message.error)
        self._acknowledge([row for m in messages if isinstance(m, Delivered) for row in m.rows])

    def _settle(self, messages: List[Written]) -> None:
        """Journal the attempts that are on disk, count them and hand their rows on."""
        self._state.in_flight -= len(messages)
        written = [(item.result, item.saved, item.seconds) for item in messages if item.saved]
        for message in messages:
            if message.error is not None:
                self._cannot_write(message.error)
        try:
            self._directory.note_saved([row[1] for row in written], fsync=self._settings.fsync)
        except OSError as error:
            self._cannot_write(error, journal=True)
            return
        for result, saved, seconds in written:
            self.pace.settled(saved, seconds)
            self._pass_on(result, saved)
        if written:
            self._reporter.advance(self._tally.counts)
            self._tell(self.progress())

    def _pass_on(self, result: Result, saved: Saved) -> None:
        self._state.done_here += 1
        self._tally.add(saved)
        self._skips.add(saved, result.output.output)
        self._state.retrying.pop(saved.key, None)
        if saved.status == "failed" and self._retry(result.attempt):
            self._state.retrying[saved.key] = saved
            return
        self._hand_on(saved, result, afresh=True)
        self._tell(
            AttemptDone(
                saved.task_id,
                saved.repeat_id,
                saved.number,
                saved.status,
                saved.latency_ms,
                saved.error,
            )
        )
        too_many = self._limits.check(saved, result.output.meta.get("error_message"))
        if too_many is not None:
            self._begin_stop(too_many)

    def _hand_on(self, saved: Saved, result: Optional[Result], *, afresh: bool) -> None:
        """On to the evaluators, or straight to SLS."""
        if self._scoring is None:
            self._dispatch.send(saved, result)
        else:
            self._scoring.put(saved, afresh=afresh)

    def _take_scores(self, message: Scored) -> None:
        if message.error is not None:
            self._cannot_write(message.error)
        elif message.saved.key not in self._in_sls:
            self._dispatch.send(message.saved, None, message.scores)

    def _retry(self, attempt: Attempt) -> bool:
        """Put a failed attempt in line again if ``row_retries`` allows it."""
        state = self._state
        if state.stopping or attempt.tries > self._settings.row_retries:
            return False
        state.due.appendleft(replace(attempt, number=attempt.number + 1, tries=attempt.tries + 1))
        return True

    def _acknowledge(self, rows: List[Outgoing]) -> None:
        if not rows:
            return
        keys = [(row.saved.key, row.saved.number) for row in rows]
        record_id = str(self._directory.meta["record_id"])
        try:
            self._directory.note_delivered(keys, record_id, fsync=self._settings.fsync)
        except OSError as error:
            # the rows are in SLS; without the line they are sent once more by the next run
            self._cannot_write(error, journal=True)
            return
        self._delivered += len(rows)
        self._tell(RowsDelivered(len(rows)))

    def _cannot_write(self, error: BaseException, journal: bool = False) -> None:
        """End the run, and send no row that could not be noted as sent: it would be doubled."""
        if journal or getattr(error, "errno", None) in _NO_DISK:
            self._state.sends_no_more = True
            self._dispatch.delivery.close()
        self._begin_stop(unwritable(self._directory.path, error))

    def _note_undeliverable(self, message: Undeliverable) -> None:
        self._state.undeliverable[message.row.saved.key] = message.reason
        if len(self._state.undeliverable) == 1:
            logger.error(
                "A row could not be delivered and stays in %s: %s",
                self._directory.path,
                message.reason,
            )

    def _begin_stop(self, error: Optional[BaseException]) -> None:
        state = self._state
        if state.error is None:
            state.error = error
        if state.stopping:
            return
        state.stopping = True
        state.stopped_at = self._clock()
        state.due.clear()
        self._engine.stop()
        self._reporter.fail_now(self._tally.counts, self._settings.stop_grace)

    def _finish_writing(self) -> None:
        """Have all on disk that was answered, in what a stop leaves of time."""
        if self._writers is not None:
            self._writers.close(self.grace_left / 2)
        self._handle(self._rest())
        if self._state.in_flight:
            logger.warning("%s", left_behind_message(self._state.in_flight))

    def _drain(self) -> None:
        """Wait for the pipeline, then for SLS; what a stop leaves over stays in the outbox."""
        for saved in self._state.retrying.values():
            self._hand_on(saved, None, afresh=True)
        scoring = ScoringNotice(self._clock)
        while self._scoring and self._scoring.waiting and not self._state.stopping:
            scoring.tell(self._scoring.waiting)
            self._handle(self._receive(_TICK_S))
        self._handle(self._rest())
        while self._dispatch.waiting_for_pipeline and not self._state.stopping:
            self._handle(self._receive(_TICK_S))
        delivery = self._dispatch.delivery
        delivery.drain()
        patience = self._settings.drain_timeout
        notice = DrainNotice(self._directory.path, patience, self._clock)
        state = self._state
        while not delivery.is_drained(patience) and (delivery.sending or not state.sends_no_more):
            notice.tell(delivery)
            stopped_for = self._clock() - self._state.stopped_at
            if self._state.stopping and stopped_for >= self._settings.stop_grace:
                break
            self._handle(self._receive(_TICK_S))
        self._close()
        self._handle(self._rest())

    def _close(self) -> None:
        self._dispatch.close()
        if self._writers is not None:
            self._writers.close(self.grace_left)
        if self._scoring is not None:
            self._scoring.close()

    def _rest(self) -> List[Any]:
        """All that has come in."""
        messages: List[Any] = []
        while True:
            try:
                messages.append(self._inbox.get_nowait())
            except queue.Empty:
                return messages

    def _tell(self, event: Event) -> None:
        tell(self._listeners, event)
