"""One whole HTTP call of an agent: attempts, retries, redirects, and the answer they end in.

Imported when the first call is made; ``client.py`` is its light face.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional

from ..errors import ConfigurationError
from ..models import HttpRequestSpec
from ..scope import AttemptScope
from ..tracing import TraceContext, inject, trace_id_from_headers
from .answer import HttpAnswer
from .content import decode_body, decoded_parts, error_text, media_type, too_large
from .deadline import Clock, Deadline, Interruption
from .faults import REDIRECT_ERROR, STATUS_ERROR, ExchangeFault
from .options import HttpOptions, trace_header_names
from .redact import redact_headers, redact_text, redact_url, secret_values
from .request import IDEMPOTENT_METHODS, WireRequest, asked, prepare, redirected
from .sse import SseParser
from .stream import StreamAnswer, last_event
from .transport import Exchange, Transport
from .usage import UsageMeter

MAX_REDIRECTS = 10

_FOLLOWED = frozenset((301, 302, 303, 307, 308))
_RETRIED = frozenset((429, 503))
_FIRST_BACKOFF = 0.25
_LONGEST_BACKOFF = 8.0
_BODILESS = frozenset((204, 205, 304))
# how much of an answer nobody wants is read so that its connection can be used again
_LARGEST_DISCARDED = 65536
_LONGEST_END = 0.05
_HEADERS_OF_INTEREST = re.compile(
    r"content-type|content-encoding|date|server|retry-after|location|www-authenticate|via"
    r"|.*(request-?id|trace|session|conversation|thread|rate-?limit|model|version|processing).*"
)

Pause = Callable[[float], None]


@dataclass
class _Call:
    """What one call has come to so far."""

    spec: HttpRequestSpec
    options: HttpOptions
    deadline: Deadline
    interruption: Interruption
    clock: Clock
    pause: Pause
    began: float
    retries_left: int
    request: Optional[WireRequest] = None
    trace_id: Optional[str] = None
    attempts: List[Dict[str, Any]] = field(default_factory=list)
    redirects: List[Dict[str, Any]] = field(default_factory=list)
    secrets: List[str] = field(default_factory=list)

    def elapsed_ms(self) -> float:
        return round((self.clock() - self.began) * 1000, 3)


@dataclass
class _Content:
    """What was read of an answer; ``fault`` says why that is not all of it."""

    output: Any = ""
    fault: Optional[ExchangeFault] = None
    streamed: bool = False
    ttft_ms: Optional[float] = None


def run_exchange(
    transport: Transport,
    spec: HttpRequestSpec,
    options: HttpOptions,
    *,
    trace: TraceContext,
    members: Mapping[str, str],
    scope: Optional[AttemptScope] = None,
    on_event: Optional[Callable[[Any], None]] = None,
    clock: Clock = time.monotonic,
    pause: Optional[Pause] = None,
) -> HttpAnswer:
    """Send ``spec`` and read its answer; every fault becomes an unsuccessful answer."""
    interruption = Interruption()
    deadline = Deadline(spec.timeout or options.timeout, options.idle_timeout, clock)
    call = _Call(
        spec,
        options,
        deadline,
        interruption,
        clock,
        pause or interruption.pause,
        clock(),
        options.transport_retries,
    )
    try:
        request = prepare(spec)
    except ConfigurationError as error:
        return _failed(call, ExchangeFault(type(error).__name__, str(error)))
    headers, call.trace_id = inject(request.headers, trace, members)
    call.request = replace(request, headers=headers)
    call.secrets = secret_values(headers, spec.params, spec.url)
    with _cancelled_by(scope, interruption):
        answer = _answer(call, transport, on_event)
    if scope is not None and answer.trace_id:
        scope.note_trace(answer.trace_id)
    return answer


def _cancelled_by(
    scope: Optional[AttemptScope], interruption: Interruption
) -> ContextManager[object]:
    return contextlib.nullcontext() if scope is None else scope.on_cancel(interruption.cancel)


def _answer(
    call: _Call, transport: Transport, on_event: Optional[Callable[[Any], None]]
) -> HttpAnswer:
    try:
        exchange = _follow(call, transport)
    except ExchangeFault as fault:
        return _failed(call, fault)
    meter = UsageMeter(call.options.usage_extractor)
    with exchange:
        content = _read(call, exchange, meter, on_event)
    _close_attempt(call)
    return _finished(call, exchange, content, meter)


def _follow(call: _Call, transport: Transport) -> Exchange:
    """The exchange with the final answer, behind at most ``MAX_REDIRECTS`` redirects."""
    while True:
        exchange = _attempt(call, transport)
        response = exchange.response
        location = response.headers.get("location")
        if response.status not in _FOLLOWED or not location:
            return exchange
        _discard(exchange)
        call.redirects.append({"status": response.status, "location": redact_url(location)})
        _close_attempt(call)
        if len(call.redirects) > MAX_REDIRECTS:
            message = "More than {} redirects; the last led to {}.".format(
                MAX_REDIRECTS, redact_url(location)
            )
            raise ExchangeFault(REDIRECT_ERROR, message)
        call.request = _next_request(call, response.status, location)


def _next_request(call: _Call, status: int, location: str) -> WireRequest:
    assert call.request is not None
    try:
        return redirected(call.request, status, location)
    except ConfigurationError as error:
        message = "HTTP {} redirects to a place that cannot be used: {}".format(status, error)
        raise ExchangeFault(REDIRECT_ERROR, message) from error


def _attempt(call: _Call, transport: Transport) -> Exchange:
    """The first answer that is not worth a retry, or that no retry is left for."""
    assert call.request is not None
    while True:
        call.interruption.check()
        call.attempts.append({"_began": call.elapsed_ms()})
        wait = _backoff(call)
        try:
            exchange = transport.open(call.request, call.deadline, call.interruption)
        except ExchangeFault as fault:
            call.attempts[-1]["error"] = _scrubbed(call, fault.message)
            _close_attempt(call)
            retryable = fault.retryable and call.request.method in IDEMPOTENT_METHODS
            if not retryable or not _may_retry(call, wait):
                raise
        else:
            status = exchange.response.status
            call.attempts[-1]["status"] = status
            asked_for = retry_after(exchange.response.headers.get("retry-after"))
            wait = wait if asked_for is None else asked_for
            if status not in _RETRIED or not _may_retry(call, wait):
                return exchange
            _discard(exchange)
            call.attempts[-1]["waited"] = wait
            _close_attempt(call)
        call.pause(wait)


def _close_attempt(call: _Call) -> None:
    attempt = call.attempts[-1]
    attempt["ms"] = round(call.elapsed_ms() - attempt.pop("_began"), 3)


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


def retry_after(value: Optional[str], now: Callable[[], float] = time.time) -> Optional[float]:
    """The seconds that a Retry-After header asks for, or None (RFC 9110 10.2.3)."""
    text = (value or "").strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _discard(exchange: Exchange) -> None:
    """Read a short body to its end so that the connection can be used again."""
    received = 0
    with exchange:
        if (exchange.response.length or 0) > _LARGEST_DISCARDED:
            return
        with contextlib.suppress(ExchangeFault):
            while received <= _LARGEST_DISCARDED and not exchange.response.complete:
                received += len(exchange.read_some())


def _read(
    call: _Call,
    exchange: Exchange,
    meter: UsageMeter,
    on_event: Optional[Callable[[Any], None]],
) -> _Content:
    response = exchange.response
    if response.status in _BODILESS or call.spec.method == "HEAD":
        return _Content()
    limit = call.options.max_response_bytes
    streams = media_type(response.headers)[0] == "text/event-stream" and response.status < 300
    if streams:
        return _read_stream(call, exchange, meter, on_event)
    body = bytearray()
    fault: Optional[ExchangeFault] = None
    try:
        if (response.length or 0) > limit:
            raise too_large(limit)
        for part in decoded_parts(exchange.read_some, response.headers, limit):
            body += part
    except ExchangeFault as error:
        fault = error
    output = decode_body(bytes(body), response.headers)
    if fault is None:
        meter.add(output)
    return _Content(output, fault)


def _read_stream(
    call: _Call,
    exchange: Exchange,
    meter: UsageMeter,
    on_event: Optional[Callable[[Any], None]],
) -> _Content:
    options = call.options
    answer = StreamAnswer(
        options.chunk_extractor, options.end_mark, meter, call.elapsed_ms, on_event
    )
    fault: Optional[ExchangeFault] = None
    try:
        _take_events(call, exchange, answer)
        answer.finish()
    except ExchangeFault as error:
        fault = error
    return _Content(answer.text, fault, True, answer.ttft_ms)


def _take_events(call: _Call, exchange: Exchange, answer: StreamAnswer) -> None:
    parser = SseParser()
    response = exchange.response
    call.deadline.event()
    parts = decoded_parts(exchange.read_some, response.headers, call.options.max_response_bytes)
    for part in parts:
        for event in parser.feed(part):
            call.deadline.event()
            answer.take(event)
            if answer.ended:
                _read_to_end(exchange)
                return
    last = last_event(parser, framed=not response.ends_with_connection)
    if last is not None:
        answer.take(last)


def _read_to_end(exchange: Exchange) -> None:
    """Take the end of a finished stream if it is here already, so that the connection is reused."""
    exchange.shorten(_LONGEST_END)
    with contextlib.suppress(ExchangeFault):
        while exchange.read_some():
            pass


def _finished(call: _Call, exchange: Exchange, content: _Content, meter: UsageMeter) -> HttpAnswer:
    response = exchange.response
    names = trace_header_names(call.options)
    trace_id = trace_id_from_headers(response.headers, names) or call.trace_id
    fault = _verdict(response.status, response.reason, content)
    facts = _facts(call, response.status, response.headers)
    if meter.error:
        facts["usage_error"] = _scrubbed(call, meter.error)
    return HttpAnswer(
        success=fault is None,
        output=content.output if fault is None else _scrubbed_output(call, content.output),
        status=response.status,
        headers=response.headers,
        error_type="" if fault is None else fault.error_type,
        error_message="" if fault is None else _scrubbed(call, fault.message),
        trace_id=trace_id,
        asked=asked(call.spec),
        usage=meter.usage,
        ttft_ms=content.ttft_ms,
        streamed=content.streamed,
        facts=facts,
    )


def _verdict(status: int, reason: str, content: _Content) -> Optional[ExchangeFault]:
    """Why the answer is a failure, or None. A bad status says more than a body that was cut."""
    line = "HTTP {} {}".format(status, reason).strip()
    if status >= 400:
        detail = error_text(content.output)
        if content.fault is not None:
            detail = "{} ({})".format(detail, content.fault.message).strip()
        return ExchangeFault(STATUS_ERROR, "{}: {}".format(line, detail) if detail else line)
    if status >= 300:
        return ExchangeFault(REDIRECT_ERROR, line + " cannot be followed: it names no Location.")
    return content.fault


def _facts(call: _Call, status: int, headers: Mapping[str, str]) -> Dict[str, Any]:
    request = call.request
    assert request is not None
    interesting = {
        name: redact_text(value, call.secrets)
        for name, value in headers.items()
        if _HEADERS_OF_INTEREST.fullmatch(name)
    }
    return {
        **_request_facts(call),
        "status": status,
        "response_headers": redact_headers(interesting),
    }


def _request_facts(call: _Call) -> Dict[str, Any]:
    facts: Dict[str, Any] = {
        "method": call.spec.method,
        "url": redact_url(call.spec.url),
        "attempts": call.attempts,
    }
    if call.request is not None:
        facts.update(
            method=call.request.method,
            url=redact_url(call.request.url),
            request_headers=redact_headers(call.request.headers),
        )
    if call.redirects:
        facts["redirects"] = call.redirects
    return facts


def _failed(call: _Call, fault: ExchangeFault) -> HttpAnswer:
    """The answer of a call that never got one."""
    return HttpAnswer(
        success=False,
        error_type=fault.error_type,
        error_message=_scrubbed(call, fault.message),
        trace_id=call.trace_id if call.attempts else None,
        asked=asked(call.spec),
        facts=_request_facts(call),
    )


def _scrubbed(call: _Call, text: str) -> str:
    return redact_text(text, call.secrets)


def _scrubbed_output(call: _Call, value: Any) -> Any:
    """What a failed call left, without credentials that an error page may quote."""
    if isinstance(value, str):
        return _scrubbed(call, value)
    if isinstance(value, Mapping):
        return {key: _scrubbed_output(call, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed_output(call, item) for item in value]
    return value
