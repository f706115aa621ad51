"""From the events of a stream to one answer: text, errors, end marks, first-content time, usage."""

from __future__ import annotations

import inspect
import json
from typing import Any, Callable, List, Optional, Tuple

from ..jsontext import sls_text
from .arguments import returned
from .content import error_text
from .faults import EXTRACTOR_ERROR, INCOMPLETE_RESPONSE, STREAM_ERROR, ExchangeFault
from .sse import ServerSentEvent, SseParser
from .usage import UsageMeter

DONE = "[DONE]"
# Coze's closing event has it as a JSON string
_QUOTED_DONE = '"[DONE]"'

ChunkExtractor = Callable[..., Any]

# events of known services that end an answer as failed
_FAILED_KINDS = ("error", "response.failed", "conversation.chat.failed")


class StreamAnswer:
    """Collects one streamed answer.

    Args:
        extractor: From an event's parsed JSON (else its text) to the text it adds; None joins the
            data payloads. One with a parameter ``event`` also gets the event's type.
        end_mark: What must end the stream: an event's whole data, its type, or the ``type`` or
            ``event`` of its JSON. None demands nothing.
        meter: Sees every event's JSON.
        elapsed_ms: Milliseconds since the call began.
        on_event: Called with every event's parsed JSON (else its text).
    """

    def __init__(
        self,
        extractor: Optional[ChunkExtractor],
        end_mark: Optional[str],
        meter: UsageMeter,
        elapsed_ms: Callable[[], float],
        on_event: Optional[Callable[[Any], None]] = None,
    ) -> None:
        self._extractor = extractor
        self._wants_type = extractor is not None and _has_event_parameter(extractor)
        self._end_mark = end_mark
        self._meter = meter
        self._elapsed_ms = elapsed_ms
        self._on_event = on_event
        self._parts: List[str] = []
        self.ttft_ms: Optional[float] = None
        self.ended = False
        self._marked = False

    @property
    def text(self) -> str:
        """What has been said so far."""
        return "".join(self._parts)

    def take(self, event: ServerSentEvent) -> None:
        """Add one event; sets ``ended`` if it is the last.

        Raises:
            ExchangeFault: The event reports an error, or the extractor failed on it.
        """
        if event.data == DONE or (event.event == "done" and event.data == _QUOTED_DONE):
            self.ended = True
            self._marked = self._end_mark in (DONE, event.data, event.event)
            return
        value = _parsed(event.data)
        self._meter.add(value)
        if self._on_event is not None:
            self._on_event(value)
        problem = stream_error(event.event, value)
        if problem is not None:
            raise ExchangeFault(STREAM_ERROR, problem)
        self._add(event, value)
        self._marked = self._end_mark is not None and self._end_mark in _names(event, value)
        self.ended = self._marked

    def _add(self, event: ServerSentEvent, value: Any) -> None:
        if self._extractor is None:
            text = event.data
        else:
            text = self._extract(event, value)
        if text:
            if self.ttft_ms is None:
                self.ttft_ms = self._elapsed_ms()
            self._parts.append(text)

    def _extract(self, event: ServerSentEvent, value: Any) -> str:
        assert self._extractor is not None
        try:
            if self._wants_type:
                text = self._extractor(value, event=event.event)
            else:
                text = self._extractor(value)
            if type(text) is not str:
                returned("chunk_extractor", text)
        except (Exception, SystemExit) as error:  # what was said so far is kept
            message = "chunk_extractor failed on an event: {}: {}".format(
                type(error).__name__, error
            )
            raise ExchangeFault(EXTRACTOR_ERROR, message) from error
        return "" if text is None else sls_text(text)

    def finish(self) -> None:
        """The stream is over.

        Raises:
            ExchangeFault: An end mark is demanded and did not come.
        """
        if self._end_mark is not None and not self._marked:
            message = "The stream ended without its end mark {!r}.".format(self._end_mark)
            raise ExchangeFault(INCOMPLETE_RESPONSE, message)


def _has_event_parameter(extractor: ChunkExtractor) -> bool:
    try:
        return "event" in inspect.signature(extractor).parameters
    except (TypeError, ValueError):
        return False


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


def _names(event: ServerSentEvent, value: Any) -> List[Any]:
    """Everything an end mark may be compared with."""
    names: List[Any] = [event.data, event.event]
    if isinstance(value, dict):
        names += [value.get("type"), value.get("event")]
    return names


def stream_error(kind: str, value: Any) -> Optional[str]:
    """What an event says went wrong, or None if it reports no error.

    An error is an event of type ``error``, or JSON whose ``error`` holds something, whose ``type``
    or ``event`` is a known failure.
    """
    names: Tuple[Any, ...] = (kind,)
    if isinstance(value, dict):
        if _holds_something(value.get("error")):
            return error_text(value)
        names = (kind, value.get("type"), value.get("event"))
    if not any(name in _FAILED_KINDS for name in names) and not _is_failed_workflow(value):
        return None
    return error_text(_failure_details(value)) or "The stream reported an error."


def _holds_something(error: Any) -> bool:
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _is_failed_workflow(value: Any) -> bool:
    """Dify closes a failed workflow like any other; only the status inside tells."""
    if not isinstance(value, dict) or value.get("event") != "workflow_finished":
        return False
    data = value.get("data")
    return isinstance(data, dict) and data.get("status") == "failed"


def _failure_details(value: Any) -> Any:
    """Some services keep the reason one step below the failed object."""
    if isinstance(value, dict):
        for name in ("response", "last_error", "data"):
            if isinstance(value.get(name), dict):
                return value[name]
    return value


def last_event(
    parser: SseParser, framed: bool, end_mark: Optional[str] = None
) -> Optional[ServerSentEvent]:
    """The event that a stream ended within, if it can be trusted to be whole.

    The standard drops it, users behind proxies lose their last words: it is kept if the HTTP
    message is provably complete (``framed``), its last line was ended, or its data is JSON,
    ``[DONE]`` or the end mark.
    """
    cut = parser.within_line and not framed
    event = parser.end()
    if event is None or not cut:
        return event
    is_whole = event.data in (DONE, end_mark) or _is_json(event.data)
    return event if is_whole else None


def _is_json(data: str) -> bool:
    return _parsed(data) is not data  # a JSON string is parsed to another one
