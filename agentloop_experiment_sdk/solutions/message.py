"""An answer as HTTP/1.1 puts it on the wire: its head, and where its body ends. Pure.

Our own in place of ``http.client``'s, whose header parser is made for mail and took a third of a
call's time, and which gives up a stream's chunks line by line. Source: RFC 9112.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Protocol, Tuple

LONGEST_HEAD = 262144
_LONGEST_LINE = 65536

_PROTOCOL = b"HTTP/"
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/([0-9]+)\.([0-9]+)[ \t]+([1-9][0-9]{2})(?:[ \t]+(.*))?")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_BODILESS = frozenset((204, 304))
# all that may surround a value; str.strip would take bytes of UTF-8 too, as A0 in that of "à"
_SPACE = " \t\r"


class MalformedMessage(ValueError):
    """The bytes are not valid HTTP/1.1; the text says what is wrong."""


class IncompleteMessage(EOFError):
    """The connection ended within the body; the text says what is missing."""


@dataclass(frozen=True)
class Head:
    """The head of an answer.

    Attributes:
        status: The status code.
        reason: The reason phrase, often "".
        headers: Names in lower case; the values of repeated headers are joined with ", ".
        persistent: Whether the server keeps the connection (RFC 9112 9.3).
    """

    status: int
    reason: str
    headers: Dict[str, str]
    persistent: bool


def head_end(data: bytes, searched: int = 0) -> int:
    """The offset behind the blank line that ends a head, or -1 while it has not arrived.

    Args:
        data: The bytes since the head began.
        searched: How many of them were looked at before.

    Raises:
        MalformedMessage: It is longer than ``LONGEST_HEAD`` bytes, or no HTTP from its first
            letters on; a server of another protocol may never say more.
    """
    if not data.startswith(_PROTOCOL[: len(data)]):
        raise MalformedMessage("it begins with {!r}, not with a status".format(data[:80]))
    found = _HEAD_END.search(data, max(0, searched - 3))
    if found is not None:
        return found.end()
    if len(data) > LONGEST_HEAD:
        raise MalformedMessage("its head is longer than {} bytes".format(LONGEST_HEAD))
    return -1


def parse_head(data: bytes) -> Head:
    """The head of an answer, from its first byte to the blank line; each byte is a character.

    Folded lines are joined and lines that are no header are passed over, as browsers do.

    Raises:
        MalformedMessage: It does not begin with a status line.
    """
    first, *lines = data.decode("latin-1").split("\n")
    match = _STATUS_LINE.fullmatch(first.rstrip("\r"))
    if match is None:
        raise MalformedMessage("its status line is {!r}".format(first[:80]))
    major, minor, status, reason = match.groups()
    headers = _headers(lines)
    persistent = _is_persistent((int(major), int(minor)), headers)
    return Head(int(status), (reason or "").strip(), headers, persistent)


def _headers(lines: List[str]) -> Dict[str, str]:
    headers: Dict[str, str] = {}
    last = ""
    for line in lines:
        if line[:1] in (" ", "\t"):
            text = line.strip(_SPACE)
            if last and text:
                headers[last] = "{} {}".format(headers[last], text).strip(_SPACE)
            continue
        name, colon, value = line.partition(":")
        last = name.strip().lower() if colon else ""
        if last:
            text = value.strip(_SPACE)
            headers[last] = "{}, {}".format(headers[last], text) if last in headers else text
    return headers


def _is_persistent(version: Tuple[int, int], headers: Mapping[str, str]) -> bool:
    options = headers.get("connection", "").lower()
    if version >= (1, 1):
        return "close" not in options
    return "keep-alive" in options or "keep-alive" in headers


class Body(Protocol):
    """Where a body ends; fed with what arrives.

    Attributes:
        complete: Whether its end has arrived.
        left: Bytes still to come, where the head announced them.
    """

    complete: bool
    left: Optional[int]

    def take(self, data: bytes) -> Tuple[bytes, bytes]:
        """Of what arrived, the body's own bytes, and those behind its end.

        Raises:
            MalformedMessage: The framing is broken.
        """
        ...

    def end(self) -> None:
        """The connection ended.

        Raises:
            IncompleteMessage: That was too early.
        """
        ...


def body_of(head: Head, method: str) -> Body:
    """The framing of the body behind ``head`` (RFC 9112 6.3).

    Raises:
        MalformedMessage: A transfer coding that nobody asked for, or a Content-Length that is no
            number or two of them: what is the answer's end would be a guess.
    """
    coding = head.headers.get("transfer-encoding", "").strip().lower()
    if coding not in ("", "chunked", "identity"):
        raise MalformedMessage(
            "its Transfer-Encoding {!r} was not asked for and cannot be undone".format(coding)
        )
    if method == "HEAD" or head.status < 200 or head.status in _BODILESS:
        return SizedBody(0)
    if coding == "chunked":
        return ChunkedBody()
    length = _content_length(head.headers)
    return OpenBody() if length is None else SizedBody(length)


def _content_length(headers: Mapping[str, str]) -> Optional[int]:
    declared = headers.get("content-length")
    if declared is None:
        return None
    lengths = {text.strip() for text in declared.split(",")}
    length = lengths.pop()
    if lengths or not re.fullmatch("[0-9]{1,18}", length):
        raise MalformedMessage("its Content-Length {!r} is not one number".format(declared[:80]))
    return int(length)


class SizedBody:
    """A body of a known length."""

    def __init__(self, length: int) -> None:
        self.left: Optional[int] = length
        self.complete = length == 0

    def take(self, data: bytes) -> Tuple[bytes, bytes]:
        """The bytes up to the announced length, and those behind it."""
        left = self.left or 0
        own, rest = data[:left], data[left:]
        self.left = left - len(own)
        self.complete = self.left == 0
        return own, rest

    def end(self) -> None:
        """Raises: the length has not been reached."""
        raise IncompleteMessage("{} bytes are missing".format(self.left))


class OpenBody:
    """A body that only the end of the connection ends."""

    left: Optional[int] = None

    def __init__(self) -> None:
        self.complete = False

    def take(self, data: bytes) -> Tuple[bytes, bytes]:
        """All of it."""
        return data, b""

    def end(self) -> None:
        """That is how it ends."""
        self.complete = True


class ChunkedBody:
    """A body in chunks (RFC 9112 7.1); extensions and trailers are passed over."""

    left: Optional[int] = None

    def __init__(self) -> None:
        self.complete = False
        self._pending = b""
        self._missing = 0  # bytes of the chunk under way
        self._expects = self._size

    def take(self, data: bytes) -> Tuple[bytes, bytes]:
        """The content of all chunks in ``data``, and what is behind the last one."""
        data = self._pending + data
        at, parts = 0, []
        while not self.complete:
            if self._missing:
                part = data[at : at + self._missing]
                parts.append(part)
                at += len(part)
                self._missing -= len(part)
                if self._missing:
                    break
            line_end = data.find(b"\n", at)
            if line_end < 0:
                break
            line = data[at:line_end].rstrip(b"\r")
            at = line_end + 1
            self._expects(line)
        self._pending = b"" if self.complete else data[at:]
        if len(self._pending) > _LONGEST_LINE:
            raise MalformedMessage("a line between its chunks has no end")
        return b"".join(parts), data[at:] if self.complete else b""

    def _size(self, line: bytes) -> None:
        text = line.partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(text):
            raise MalformedMessage("{!r} is no chunk size".format(line[:80]))
        self._missing = int(text, 16)
        self._expects = self._behind_chunk if self._missing else self._trailer

    def _behind_chunk(self, line: bytes) -> None:
        if line:
            raise MalformedMessage("a chunk is longer than its size says")
        self._expects = self._size

    def _trailer(self, line: bytes) -> None:
        self.complete = not line

    def end(self) -> None:
        """Servers that leave out the blank line behind the last chunk are borne with."""
        if self._expects != self._trailer:
            raise IncompleteMessage("its last chunk is missing")
        self.complete = True
