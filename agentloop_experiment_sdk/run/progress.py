"""What a person sees while a run goes on: a bar where tqdm is installed, else a few log lines."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Dict, Optional, Union

from ..errors import ConfigurationError
from ..lines import counted, one_line
from .events import Event, LimitChanged, Progress, RecordCreated, RunFinished

logger = logging.getLogger(__name__)

LOG_EVERY_S = 30.0
_MILESTONES = (10, 25, 50, 75, 100)

Listener = Callable[[Event], None]


def progress_listener(progress: Union[None, bool, Listener]) -> Optional[Listener]:
    """The listener for the ``progress`` option.

    Args:
        progress: None logs at milestones and every 30 s (level INFO); True shows a tqdm bar if the
            extra ``[progress]`` is installed, else logs; False says nothing; a callable gets every
            event.
    """
    if progress is False:
        return None
    if progress is None:
        return ProgressLog()
    if progress is True:
        return progress_bar() or ProgressLog()
    if not callable(progress):
        raise ConfigurationError(
            "progress must be None, True, False or a callable, not {!r}.".format(progress)
        )
    return progress


class ProgressLog:
    """One log line at each of 10, 25, 50, 75 and 100 percent, and at least every 30 seconds.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = clock() + LOG_EVERY_S
        self._percent = 0

    def __call__(self, event: Event) -> None:
        """Log what is worth a line."""
        if isinstance(event, RecordCreated):
            verb = "continues" if event.resumed else "created"
            logger.info(
                "Experiment record %s %s: %s", event.record_id, verb, one_line(event.record_name)
            )
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, LimitChanged):
            logger.info("%s", event)
        elif isinstance(event, RunFinished):
            logger.info(
                "Experiment record %s %s; %s undelivered.",
                event.record_id,
                event.status,
                counted(event.undelivered, "row"),
            )

    def _progress(self, event: Progress) -> None:
        percent = 100 * event.done // event.total if event.total else 100
        reached = max([mark for mark in _MILESTONES if mark <= percent], default=0)
        now = self._clock()
        if reached > self._percent or now >= self._next_at:
            self._percent = max(reached, self._percent)
            self._next_at = now + LOG_EVERY_S
            logger.info("%s", progress_text(event))


def progress_text(event: Progress) -> str:
    """One line: done, failed, skipped, not yet delivered, rate, remaining time, limit."""
    parts = ["{:,}/{} done".format(event.done, counted(event.total, "row"))]
    if event.failed:
        parts.append("{} failed".format(event.failed))
    if event.skipped:
        parts.append("{} skipped".format(event.skipped))
    waiting = event.done - event.delivered
    if waiting:
        parts.append("{} to deliver".format(waiting))
    parts.append("{:.1f} rows/s".format(event.rows_per_s))
    if event.eta_s is not None and event.done < event.total:
        parts.append("about {} left".format(_duration(event.eta_s)))
    if event.limit:
        parts.append("limit {}".format(event.limit))
    return ", ".join(parts)


def progress_bar() -> Optional[Listener]:
    """A tqdm bar (a widget in notebooks), or None without the extra ``[progress]``."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.info("Install the extra [progress] for a progress bar.")
        return None
    return ProgressBar(tqdm)


class ProgressBar:
    """Draws ``Progress`` events on a tqdm bar."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None
        self._change: Optional[LimitChanged] = None

    def __call__(self, event: Event) -> None:
        """Draw what changed."""
        if isinstance(event, Progress):
            if self._bar is None:
                self._bar = self._tqdm(total=event.total, unit="row", dynamic_ncols=True)
            self._bar.n = event.done
            shown: Dict[str, Any] = {"failed": event.failed}
            shown["to deliver"] = event.done - event.delivered
            shown["limit"] = self._limit_text(event.limit)
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(0)
        elif isinstance(event, RunFinished) and self._bar is not None:
            self._bar.refresh()
            self._bar.close()
        elif isinstance(event, LimitChanged):
            self._change = event

    def _limit_text(self, limit: int) -> str:
        """The limit, and why it is what it is while it is what it last fell to."""
        change = self._change
        if change is None or change.after != limit:
            return str(limit)
        return "{}→{}: {}".format(change.before, limit, change.reason)


def _duration(seconds: float) -> str:
    if seconds >= 5400:
        return "{:.1f} h".format(seconds / 3600)
    if seconds >= 90:
        return "{:.0f} min".format(seconds / 60)
    return "{:.0f} s".format(seconds)
