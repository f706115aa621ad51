"""Server-sent events, parsed incrementally.

Source: WHATWG HTML, section 9.2 (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import codecs
import re
from typing import List, NamedTuple, Optional

# only these end a line; str.splitlines would also split at U+2028, U+0085 and others
_LINE_END = re.compile("\r\n|\n|\r")


class ServerSentEvent(NamedTuple):
    """One dispatched event.

    Attributes:
        data: The ``data`` lines joined with LF.
        event: The event type, ``message`` by default.
        id: The last event id that the stream named, "" before one.
        retry: Milliseconds, if this event's block had a valid ``retry`` field.
    """

    data: str
    event: str = "message"
    id: str = ""
    retry: Optional[int] = None


class SseParser:
    """Turns the bytes of an event stream into events, however they are cut into pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._started = False
        self._after_cr = False
        self._line: List[str] = []
        self._id = ""
        self._clear()

    def _clear(self) -> None:
        self._data: List[str] = []
        self._event = ""
        self._retry: Optional[int] = None

    @property
    def within_line(self) -> bool:
        """Whether the bytes so far end within a line."""
        return bool(self._line)

    def feed(self, data: bytes) -> List[ServerSentEvent]:
        """The events that ``data`` completes."""
        return self._take(self._decoder.decode(data))

    def end(self) -> Optional[ServerSentEvent]:
        """The event under way when the stream ended without its blank line, if it has data.

        The standard discards it; whether to do so is left to the caller.
        """
        tail = self._take(self._decoder.decode(b"", True) + "\n")
        return tail[0] if tail else self._dispatch()

    def _take(self, text: str) -> List[ServerSentEvent]:
        text = self._without_marks(text)
        if "\n" not in text and "\r" not in text:
            if text:
                self._line.append(text)
            return []
        self._after_cr = text.endswith("\r")
        lines = _LINE_END.split("".join(self._line) + text)
        rest = lines.pop()
        self._line = [rest] if rest else []
        events = [self._take_line(line) for line in lines]
        return [event for event in events if event is not None]

    def _without_marks(self, text: str) -> str:
        """``text`` without the stream's byte order mark and the LF of a CRLF that was cut."""
        if text and not self._started:
            self._started = True
            text = text[1:] if text[0] == "\ufeff" else text
        if text and self._after_cr:
            self._after_cr = False
            text = text[1:] if text[0] == "\n" else text
        return text

    def _take_line(self, line: str) -> Optional[ServerSentEvent]:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self._retry = int(value[:15])
        return None

    def _dispatch(self) -> Optional[ServerSentEvent]:
        data, event, retry = self._data, self._event, self._retry
        self._clear()
        if not data:
            return None
        return ServerSentEvent("\n".join(data), event or "message", self._id, retry)
