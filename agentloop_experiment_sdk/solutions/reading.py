"""Reading an answer's body to its end: whole or as an event stream."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Optional

from .content import decode_body, decoded_parts, media_type, too_large
from .deadline import Deadline
from .faults import RESPONSE_TOO_LARGE, ExchangeFault
from .options import HttpOptions
from .sse import SseParser
from .stream import StreamAnswer, last_event
from .transport import Exchange
from .usage import UsageMeter

_BODILESS = frozenset((204, 205, 304))
# how much of an answer nobody wants is read so that its connection can be used again
_LARGEST_DISCARDED = 65536
_LONGEST_END = 0.05
# of an answer over its bound: enough to see what it was, not what the bound was to keep away
_KEPT_OF_TOO_LARGE = 1_048_576


@dataclass
class Content:
    """What was read of an answer; ``fault`` says why that is not all of it."""

    output: Any = ""
    fault: Optional[ExchangeFault] = None
    streamed: bool = False
    ttft_ms: Optional[float] = None


def is_stream(exchange: Exchange) -> bool:
    """Whether the answer says that it is an event stream; its body is never asked."""
    response = exchange.response
    return media_type(response.headers)[0] == "text/event-stream" and response.status < 300


def read_whole(exchange: Exchange, options: HttpOptions, meter: UsageMeter) -> Content:
    """The value of a body that is not a stream, or of what arrived of it."""
    response, limit = exchange.response, options.max_response_bytes
    if response.complete or response.status in _BODILESS:
        return Content()
    body = bytearray()
    fault: Optional[ExchangeFault] = None
    try:
        if (response.length or 0) > limit:
            raise too_large(limit)
        for part in decoded_parts(exchange.read_some, response.headers, limit):
            body += part
    except ExchangeFault as error:
        fault = error
        if error.error_type == RESPONSE_TOO_LARGE:
            del body[_KEPT_OF_TOO_LARGE:]
    output = decode_body(bytes(body), response.headers)
    if fault is None:
        meter.add(output)
    return Content(output, fault)


def read_stream(
    exchange: Exchange, options: HttpOptions, deadline: Deadline, answer: StreamAnswer
) -> Content:
    """What a stream said, up to its end or to what broke it off."""
    fault: Optional[ExchangeFault] = None
    try:
        _take_events(exchange, options, deadline, answer)
        answer.finish()
    except ExchangeFault as error:
        fault = error
    text = answer.text
    if fault is not None and fault.error_type == RESPONSE_TOO_LARGE:
        text = text[:_KEPT_OF_TOO_LARGE]
    return Content(text, fault, True, answer.ttft_ms)


def _take_events(
    exchange: Exchange, options: HttpOptions, deadline: Deadline, answer: StreamAnswer
) -> None:
    parser = SseParser()
    response = exchange.response
    deadline.event()
    for part in decoded_parts(exchange.read_some, response.headers, options.max_response_bytes):
        for event in parser.feed(part):
            deadline.event()
            answer.take(event)
            if answer.ended:
                _read_to_end(exchange)
                return
    last = last_event(parser, not response.ends_with_connection, options.end_mark)
    if last is not None:
        answer.take(last)


def _read_to_end(exchange: Exchange) -> None:
    """Take the end of a finished stream if it is here already, so that the connection is reused."""
    with contextlib.suppress(ExchangeFault):
        exchange.shorten(_LONGEST_END)
        while exchange.read_some():
            pass


def discard(exchange: Exchange) -> None:
    """Read a short body to its end so that the connection can be used again, and release it."""
    received = 0
    with exchange, contextlib.suppress(ExchangeFault):
        if (exchange.response.length or 0) > _LARGEST_DISCARDED:
            return
        while received <= _LARGEST_DISCARDED and not exchange.response.complete:
            received += len(exchange.read_some())
