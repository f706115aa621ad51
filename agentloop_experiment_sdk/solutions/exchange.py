"""One whole HTTP call of an agent: attempts, retries, redirects, and the answer they end in.

Imported when the first call is made; ``client.py`` is its light face.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, ContextManager, List, Mapping, Optional

from ..errors import ConfigurationError
from ..models import HttpRequestSpec
from ..scope import AttemptScope
from ..tracing import TraceContext, inject, trace_id_from_headers
from .answer import HttpAnswer
from .deadline import Clock, Deadline, Interruption
from .faults import REDIRECT_ERROR, ExchangeFault
from .options import HttpOptions, trace_header_names
from .outcome import CallRecord, answered, unanswered
from .reading import Content, discard, is_stream, read_stream, read_whole
from .redact import redact_url, secret_values
from .refusals import retry_after
from .request import IDEMPOTENT_METHODS, WireRequest, asked, location_text, prepare, redirected
from .stream import StreamAnswer
from .transport import Exchange, Transport
from .usage import UsageMeter

MAX_REDIRECTS = 10

_FOLLOWED = frozenset((301, 302, 303, 307, 308))
_RETRIED = frozenset((429, 503))
_FIRST_BACKOFF = 0.25
_LONGEST_BACKOFF = 8.0

Pause = Callable[[float], None]
OnEvent = Callable[[Any], None]


@dataclass
class _Call:
    """One call under way: its limits, and the record of what it went through."""

    record: CallRecord
    request: WireRequest
    transport: Transport
    options: HttpOptions
    deadline: Deadline
    interruption: Interruption
    clock: Clock
    pause: Pause
    began: float
    retries_left: int
    scope: Optional[AttemptScope]
    attempt_began: float = 0.0

    def elapsed_ms(self) -> float:
        return round((self.clock() - self.began) * 1000, 3)

    def note_sending(self) -> None:
        """From here on the agent may see the trace, even if the row is given up meanwhile."""
        self.record.sent = True
        if self.scope is not None and self.record.trace_id:
            self.scope.note_trace(self.record.trace_id)

    def begin_attempt(self) -> None:
        self.interruption.check()
        self.attempt_began = self.elapsed_ms()

    def end_attempt(self, **facts: Any) -> None:
        facts["ms"] = round(self.elapsed_ms() - self.attempt_began, 3)
        self.record.attempts.append(facts)

    def go_to(self, request: WireRequest) -> None:
        self.request = self.record.request = request


def run_exchange(
    transport: Transport,
    spec: HttpRequestSpec,
    options: HttpOptions,
    *,
    trace: TraceContext,
    members: Mapping[str, str],
    scope: Optional[AttemptScope] = None,
    on_event: Optional[OnEvent] = None,
    clock: Clock = time.monotonic,
    pause: Optional[Pause] = None,
) -> HttpAnswer:
    """Send ``spec`` and read its answer; every fault becomes an unsuccessful answer."""
    began = clock()
    deadline = Deadline(spec.timeout or options.timeout, options.idle_timeout, clock)
    # now: a builder may fill the same object again for the next row while this one is under way
    hidden: List[str] = []
    record = CallRecord(spec, asked(spec, hidden))
    try:
        request = prepare(spec)
    except ConfigurationError as error:
        return unanswered(record, ExchangeFault(type(error).__name__, str(error)))
    headers, sent_trace = inject(request.headers, trace, members)
    record.trace_id = sent_trace
    record.request = request = replace(request, headers=headers)
    record.secrets = secret_values(headers, spec.params, spec.url, hidden)
    interruption = Interruption()
    wait = pause or interruption.pause
    call = _Call(
        record,
        request,
        transport,
        options,
        deadline,
        interruption,
        clock,
        wait,
        began,
        options.transport_retries,
        scope,
    )
    with _cancelled_by(scope, interruption):
        answer = _answer(call, on_event)
    if scope is not None and answer.trace_id and scope.trace_id == sent_trace:
        scope.trace_id = answer.trace_id  # the agent may have named its own
    return answer


def _cancelled_by(
    scope: Optional[AttemptScope], interruption: Interruption
) -> ContextManager[object]:
    return contextlib.nullcontext() if scope is None else scope.on_cancel(interruption.cancel)


def _answer(call: _Call, on_event: Optional[OnEvent]) -> HttpAnswer:
    record = call.record
    try:
        exchange = _follow(call)
    except ExchangeFault as fault:
        return unanswered(record, fault)
    meter = UsageMeter(call.options.usage_extractor)
    with exchange:
        content = _read(call, exchange, meter, on_event)
    response = exchange.response
    call.end_attempt(status=response.status)
    reported = trace_id_from_headers(response.headers, trace_header_names(call.options))
    record.trace_id = reported or record.trace_id
    return answered(record, response.status, response.reason, response.headers, content, meter)


def _read(
    call: _Call, exchange: Exchange, meter: UsageMeter, on_event: Optional[OnEvent]
) -> Content:
    if not is_stream(exchange):
        return read_whole(exchange, call.options, meter)
    options = call.options
    answer = StreamAnswer(
        options.chunk_extractor, options.end_mark, meter, call.elapsed_ms, on_event
    )
    return read_stream(exchange, options, call.deadline, answer)


def _follow(call: _Call) -> Exchange:
    """The exchange with the final answer, behind at most ``MAX_REDIRECTS`` redirects."""
    while True:
        exchange = _attempt(call)
        response = exchange.response
        location = location_text(response.headers.get("location", ""))
        if response.status not in _FOLLOWED or not location:
            return exchange
        discard(exchange)
        call.end_attempt(status=response.status)
        call.record.hide(secret_values(url=location))
        shown = call.record.scrubbed(redact_url(location))
        call.record.redirects.append({"status": response.status, "location": shown})
        if len(call.record.redirects) > MAX_REDIRECTS:
            message = "More than {} redirects; the last led to {}.".format(MAX_REDIRECTS, shown)
            raise ExchangeFault(REDIRECT_ERROR, message)
        call.go_to(_next_request(call.request, response.status, location))


def _next_request(request: WireRequest, status: int, location: str) -> WireRequest:
    try:
        return redirected(request, status, location)
    except ValueError as error:
        message = "HTTP {} redirects to a place that cannot be used. {}".format(status, error)
        raise ExchangeFault(REDIRECT_ERROR, message) from error


def _attempt(call: _Call) -> Exchange:
    """The first answer that is not worth a retry, or that no retry is left for."""
    while True:
        call.begin_attempt()
        wait = _backoff(call)
        try:
            exchange = call.transport.connect(call.request.origin, call.deadline, call.interruption)
            call.note_sending()
            exchange.send(call.request)
        except ExchangeFault as fault:
            call.end_attempt(error=call.record.told(fault.message))
            retryable = fault.retryable and call.request.method in IDEMPOTENT_METHODS
            if not retryable or not _may_retry(call, wait):
                raise
        else:
            response = exchange.response
            asked_for = retry_after(response.headers.get("retry-after"))
            if response.status in _RETRIED and call.scope is not None:
                call.scope.note_refusal(str(response.status), asked_for)
            wait = wait if asked_for is None else asked_for
            if response.status not in _RETRIED or not _may_retry(call, wait):
                return exchange
            discard(exchange)
            call.end_attempt(status=response.status, waited_ms=round(wait * 1000, 3))
        call.pause(wait)


def _may_retry(call: _Call, wait: float) -> bool:
    """Use up one retry if there is one and the wait for it ends before the deadline."""
    if call.retries_left <= 0 or not call.deadline.allows(wait):
        return False
    call.retries_left -= 1
    return True


def _backoff(call: _Call) -> float:
    """Seconds before the next retry: doubled each time, half of it random."""
    number = call.options.transport_retries - call.retries_left
    whole = min(_FIRST_BACKOFF * 2.0**number, _LONGEST_BACKOFF)
    return whole * (0.5 + random.random() / 2)
