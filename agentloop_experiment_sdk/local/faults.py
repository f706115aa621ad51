"""Faults that a test can inject into LocalAgentLoop, and the verdict on each request.

Every method returns a :class:`Fault`: it counts its ``hits`` and is taken back by ``stop()`` or by
leaving its ``with`` block. All of it may be called from any thread while requests are served.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..arguments import check_count, check_flags, unusable
from ..errors import ConfigurationError
from .arguments import check_seconds, check_texts
from .exchange import Request
from .fault import ANY, SLS_ACTIONS, Actions, Condition, Fault, Verdict

_REOPENED = ("running", "pending")
_CLOSED = ("completed", "failed", "cancelled", "timeout")
_TRACE = re.compile(r'traceId\s*:\s*"?([0-9a-fA-F]+)', re.IGNORECASE)
_OUTAGES: Dict[str, Tuple[int, str, str]] = {
    "500": (500, "InternalServerError", "internal server error"),
    "503": (503, "ServerBusy", "the server is busy, please try again later"),
    "403": (403, "WriteQuotaExceed", "Project write quota exceed: inflow: 100"),
    "429": (429, "ExceedQuota", "too many requests"),
}
OUTAGE_MODES = tuple(_OUTAGES) + ("refuse", "hang")


class Faults:
    """All faults of one LocalAgentLoop; ``local.faults``.

    Args:
        clock: A monotonic clock in seconds, for ``empty_previews(seconds=…)``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._faults: List[Fault] = []
        self._previews: List[_EmptyPreviews] = []
        self._reopening: Optional[_RefusedReopening] = None
        self._ignores_tokens = False

    def latency(
        self,
        seconds: float,
        action: Actions = ANY,
        *,
        after: int = 0,
        times: Optional[int] = None,
        every: int = 1,
        when: Optional[Condition] = None,
        containing: str = "",
    ) -> Fault:
        """Answer ``action`` no sooner than that many seconds after its request has arrived.

        The request itself is carried out at once, and what that takes is a part of the seconds.
        The latency of a named action replaces the one of ``"*"`` and of its service. ``after``,
        ``times``, ``every``, ``when`` and ``containing`` are those of :class:`Fault`.
        """
        check_seconds("seconds", seconds)
        return self._add(
            Fault(
                Verdict(delay=seconds),
                action,
                after=after,
                times=times,
                every=every,
                when=when,
                containing=containing,
            )
        )

    def slow_previews(self, seconds: float) -> Fault:
        """Answer PreviewPipeline no sooner than that many seconds after its request has arrived."""
        return self.latency(seconds, "PreviewPipeline")

    def fail(
        self,
        action: Actions,
        status: int = 500,
        code: str = "InternalServerError",
        *,
        message: str = "",
        retry_after: Optional[float] = None,
        after: int = 0,
        times: Optional[int] = None,
        every: int = 1,
        when: Optional[Condition] = None,
        containing: str = "",
    ) -> Fault:
        """Answer with an error; the request is not carried out.

        Args:
            action: Action names, ``"*"``, ``"sls:*"`` or ``"openapi:*"``.
            status: The HTTP status.
            code: The error code in the body.
            message: The error message; by default it says that the fault was injected.
            retry_after: Seconds for ``Retry-After`` and, in ms, ``x-acs-retry-after``.
            after, times, every, when, containing: As in :class:`Fault`.
        """
        _check_error(status, code)
        check_texts(message=message, may_be_empty=True)
        check_seconds("retry_after", 0 if retry_after is None else retry_after)
        text = message or "injected fault {}".format(code)
        effect = Verdict(status=status, code=code, message=text, retry_after=retry_after)
        return self._add(
            Fault(
                effect,
                action,
                after=after,
                times=times,
                every=every,
                when=when,
                containing=containing,
            )
        )

    def drop(
        self,
        action: Actions,
        *,
        stored: bool,
        after: int = 0,
        times: Optional[int] = None,
        every: int = 1,
        when: Optional[Condition] = None,
        containing: str = "",
    ) -> Fault:
        """Close the connection instead of answering.

        Args:
            action: Action names, ``"*"``, ``"sls:*"`` or ``"openapi:*"``.
            stored: True carries the request out first, so that only its answer is lost.
            after, times, every, when, containing: As in :class:`Fault`.
        """
        check_flags(stored=stored)
        return self._add(
            Fault(
                Verdict(cut="after" if stored else "before"),
                action,
                after=after,
                times=times,
                every=every,
                when=when,
                containing=containing,
            )
        )

    def outage(
        self,
        mode: str = "503",
        action: Actions = SLS_ACTIONS,
        *,
        after: int = 0,
        times: Optional[int] = None,
        when: Optional[Condition] = None,
    ) -> Fault:
        """Begin an outage, by default of SLS as a whole; it ends with ``stop()``.

        Args:
            mode: ``"500"``, ``"503"``, ``"403"`` (write quota), ``"429"``, ``"refuse"`` (the
                connection is closed) or ``"hang"`` (no answer ever).
            action: What is out; ``"PutLogs"`` for writes alone.
            after: Requests of ``action`` that pass before the outage begins.
            times: Requests it hits before it ends by itself; None for no end.
            when: Hit only requests for which this returns true.
        """
        if mode not in OUTAGE_MODES:
            raise unusable("mode", mode, "one of " + ", ".join(OUTAGE_MODES))
        if mode in _OUTAGES:
            status, code, message = _OUTAGES[mode]
            effect = Verdict(status=status, code=code, message=message)
        else:
            effect = Verdict(cut="before") if mode == "refuse" else Verdict(hang=True)
        return self._add(Fault(effect, action, after=after, times=times, when=when))

    def empty_previews(
        self,
        *,
        seconds: Optional[float] = None,
        calls: Optional[int] = None,
        per_trace: bool = True,
    ) -> None:
        """Answer PreviewPipeline with no rows at first, as while traces are still on their way.

        Args:
            seconds: Empty for so long, counted from the first preview.
            calls: Empty for so many calls.
            per_trace: Count for each trace id on its own, or for all previews together.
        """
        if (seconds is None) == (calls is None):
            raise ConfigurationError("empty_previews() takes either seconds or calls.")
        check_seconds("seconds", 0 if seconds is None else seconds)
        check_flags(per_trace=per_trace)
        check_count("calls", 0 if calls is None else calls, 0)
        with self._lock:
            self._previews.append(_EmptyPreviews(self.clock, seconds, calls, per_trace))

    def refuse_reopen(
        self, *, status: int = 409, code: str = "ExperimentRecordClosed", answer: str = ""
    ) -> None:
        """Do not let a record that has ended run again.

        Args:
            status: The HTTP status of the refusal.
            code: The error code of the refusal.
            answer: ``"persisted"`` answers 200 with the status the record keeps; another text
                answers 200 with that status. Nothing of such an update is stored.
        """
        _check_error(status, code)
        check_texts(answer=answer, may_be_empty=True)
        with self._lock:
            self._reopening = _RefusedReopening(status, code, answer)

    def ignore_client_tokens(self, ignored: bool = True) -> None:
        """Create a new run for every CreateExperimentRun, if ``ignored``, whatever its token."""
        check_flags(ignored=ignored)
        with self._lock:
            self._ignores_tokens = ignored

    def clear(self) -> None:
        """Take every fault back."""
        with self._lock:
            faults, self._faults = self._faults, []
            self._previews = []
            self._reopening = None
            self._ignores_tokens = False
        for fault in faults:
            fault.stop()

    @property
    def ignores_client_tokens(self) -> bool:
        """Whether client tokens are ignored."""
        return self._ignores_tokens

    @property
    def looks_inside(self) -> bool:
        """Whether some fault depends on the contents of requests."""
        with self._lock:
            return any(fault.looks_inside for fault in self._faults)

    def judge(self, request: Request, group: str) -> Verdict:
        """The verdict on a request of ``group`` (``sls:*`` or ``openapi:*``)."""
        if not self._faults:
            return Verdict()
        with self._lock:
            self._faults = [fault for fault in self._faults if fault.active]
            faults = list(self._faults)
        verdict = Verdict()
        delays: Dict[bool, float] = {}
        for fault in faults:
            late = not fault.effect.final
            if (late or not verdict.final) and fault.strikes(request, group):
                if late:
                    delays[request.action in fault.actions] = fault.effect.delay
                else:
                    verdict = Verdict(**vars(fault.effect))
        verdict.delay = delays.get(True, delays.get(False, 0.0))
        return verdict

    def preview_is_empty(self, query: str) -> bool:
        """Whether the preview of ``query`` is answered without rows; counts it."""
        with self._lock:
            previews = list(self._previews)
        found = _TRACE.search(query)
        trace = found.group(1).lower() if found else query
        struck = [rule.strikes(trace) for rule in previews]  # each rule counts each preview
        return any(struck)

    def reopening(self, persisted: str, asked: str) -> Optional[_RefusedReopening]:
        """The refusal of the change from ``persisted`` to ``asked``, or None if it is allowed."""
        if persisted in _CLOSED and asked in _REOPENED:
            return self._reopening
        return None

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault


def _check_error(status: Any, code: Any) -> None:
    check_count("status", status, 200, 599)
    check_texts(code=code)


@dataclass(frozen=True)
class _RefusedReopening:
    status: int
    code: str
    answer: str


class _EmptyPreviews:
    def __init__(
        self,
        clock: Callable[[], float],
        seconds: Optional[float],
        calls: Optional[int],
        per_trace: bool,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._calls = calls
        self._per_trace = per_trace
        self._first: Dict[str, float] = {}
        self._count: Dict[str, int] = {}

    def strikes(self, trace: str) -> bool:
        name = trace if self._per_trace else ""
        if self._calls is not None:
            self._count[name] = self._count.get(name, 0) + 1
            return self._count[name] <= self._calls
        now = self._clock()
        return now - self._first.setdefault(name, now) < (self._seconds or 0.0)
