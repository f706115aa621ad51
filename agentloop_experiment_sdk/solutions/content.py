"""An answer's body: content codings undone, size bounded, text and JSON decoded.

Sources: RFC 9110 8.3 and 8.4 (types, codings), RFC 8259 (JSON), RFC 1950 to 1952 (zlib, gzip).
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections import abc
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

from ..jsontext import sls_text
from .faults import DECODING_ERROR, INCOMPLETE_RESPONSE, RESPONSE_TOO_LARGE, ExchangeFault

_PART = 65536
_MOST_CODINGS = 4
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
_MESSAGE_KEYS = ("message", "msg", "detail", "error_description", "error", "reason", "title")
_LONGEST_EXCERPT = 500


class _Inflater:
    """Undoes gzip or deflate piece by piece; never holds more than one part of the result.

    ``limit`` is the most bytes of its result: also the layers of a body that was coded twice have
    one, for a layer between could be a thousand times as long as what goes into it.
    """

    def __init__(self, coding: str, limit: int) -> None:
        self._coding = coding
        self._limit = limit
        self._total = 0
        self._inflate: Any = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        part = b""
        # a full part may leave more behind although all input is taken
        while data or len(part) == _PART:
            if self._inflate is None and not self._begin_member(data):
                return
            part = self._decompress(data)
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data, self._inflate, rest = self._inflate.unused_data, None, part
                part = b""
                yield rest
            elif part:
                yield part

    def _begin_member(self, data: bytes) -> bool:
        """Whether ``data`` begins a member; what follows the last one is padding to ignore."""
        if not data or (self._members and (self._coding != "gzip" or data[:1] != b"\x1f")):
            return False
        self._members += 1
        self._inflate = zlib.decompressobj(self._window_bits(data))
        return True

    def _decompress(self, data: bytes) -> bytes:
        try:
            part = bytes(self._inflate.decompress(data, _PART))
        except zlib.error as error:
            message = "The answer is not valid {}: {}.".format(self._coding, error)
            raise ExchangeFault(DECODING_ERROR, message) from error
        self._total += len(part)
        if self._total > self._limit:
            raise too_large(self._limit)
        return part

    def _window_bits(self, data: bytes) -> int:
        if self._coding == "gzip":
            return 31
        # "deflate" is the zlib format, but several servers send it bare (RFC 9110 8.4.1.2)
        is_zlib = data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] * 256 + data[1]) % 31 == 0)
        return 15 if is_zlib else -15

    def end(self) -> None:
        if self._inflate is not None:
            message = "The {} data of the answer is cut off.".format(self._coding)
            raise ExchangeFault(INCOMPLETE_RESPONSE, message)


def _inflaters(headers: Mapping[str, str], limit: int) -> List[_Inflater]:
    codings = [name.strip().lower() for name in headers.get("content-encoding", "").split(",")]
    names = [name.replace("x-gzip", "gzip") for name in codings if name not in ("", "identity")]
    unknown = [name for name in names if name not in ("gzip", "deflate")]
    if unknown:
        raise ExchangeFault(
            DECODING_ERROR,
            "The answer's Content-Encoding {} cannot be undone; let the agent send gzip, deflate "
            "or none.".format(unknown[0]),
        )
    if len(names) > _MOST_CODINGS:
        raise ExchangeFault(DECODING_ERROR, "The answer was coded {} times.".format(len(names)))
    return [_Inflater(name, limit) for name in reversed(names)]


def decoded_parts(
    read_some: Callable[[], bytes], headers: Mapping[str, str], limit: int
) -> Iterator[bytes]:
    """The body as it arrives, content codings undone.

    Args:
        read_some: Gives the next bytes from the wire, ``b""`` at the end.
        headers: The answer's headers, names in lower case.
        limit: The most bytes the body may have after decoding, and between two codings.

    Raises:
        ExchangeFault: It is too large, cut, or in a coding that is not known.
    """
    inflaters = _inflaters(headers, limit)
    total = 0
    while True:
        data = read_some()
        if not data:
            break
        for part in _inflated(data, inflaters):
            total += len(part)
            if total > limit:
                raise too_large(limit)
            yield part
    for inflater in inflaters:
        inflater.end()


def _inflated(data: bytes, inflaters: List[_Inflater]) -> Iterator[bytes]:
    if not inflaters:
        yield data
        return
    for part in inflaters[0].feed(data):
        yield from _inflated(part, inflaters[1:])


def too_large(limit: int) -> ExchangeFault:
    """The fault of a body over ``limit`` bytes."""
    message = "The answer is larger than max_response_bytes ({} bytes).".format(limit)
    return ExchangeFault(RESPONSE_TOO_LARGE, message)


def media_type(headers: Mapping[str, str]) -> Tuple[str, Optional[str]]:
    """Type in lower case ("" if undeclared) and charset of an answer."""
    declared = headers.get("content-type", "")
    charset = _CHARSET.search(declared)
    return declared.split(";", 1)[0].strip().lower(), charset.group(1) if charset else None


def decode_body(body: bytes, headers: Mapping[str, str]) -> Any:
    """The value of a body: parsed JSON, text, or bytes if it is neither.

    The declared type governs. Without one, what parses as a JSON object or array is JSON. JSON that
    does not parse is kept as text.
    """
    kind, charset = media_type(headers)
    if not body:
        return ""
    is_json = kind in ("application/json", "text/json") or kind.endswith("+json")
    if is_json or (not kind and body.lstrip()[:1] in (b"{", b"[")):
        try:
            return parse_json(body, charset)
        except (ValueError, RecursionError):
            return _decode_text(body, charset)
    if kind and not kind.startswith("text/") and charset is None:
        return _text_or_bytes(body)
    return _decode_text(body, charset)


def parse_json(body: bytes, charset: Optional[str] = None) -> Any:
    """The JSON value of ``body``; a byte order mark is ignored (RFC 8259 8.1).

    Raises:
        ValueError: It is not JSON.
    """
    encoding = _known(charset) or json.detect_encoding(body)
    return json.loads(body.decode(encoding, "replace").lstrip("\ufeff"))


def _decode_text(body: bytes, charset: Optional[str]) -> str:
    text = body.decode(_known(charset) or "utf-8", "replace")
    return text[1:] if text.startswith("\ufeff") else text


def _text_or_bytes(body: bytes) -> Any:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body


def _known(charset: Optional[str]) -> Optional[str]:
    """``charset`` if Python has a text codec of that name."""
    try:
        info = codecs.lookup(charset or "")
        b" ".decode(info.name, "replace")
    except (LookupError, ValueError):
        return None
    return info.name


def error_text(value: Any) -> str:
    """What an error body or event says went wrong, in at most 500 characters."""
    found = _message_in(value)
    text = (found if found is not None else sls_text(value)).strip()
    return text if len(text) <= _LONGEST_EXCERPT else text[:_LONGEST_EXCERPT] + "…"


def _message_in(value: Any) -> Optional[str]:
    if isinstance(value, str):
        return value
    if not isinstance(value, abc.Mapping):
        return None
    inner = value.get("error")
    if isinstance(inner, abc.Mapping):
        return _message_in(inner)
    found = (value[key] for key in _MESSAGE_KEYS if isinstance(value.get(key), str))
    return next((text for text in found if text), None)
