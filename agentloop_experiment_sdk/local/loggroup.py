"""The body of PutLogs: a compressed protobuf ``LogGroup`` to log rows.

Source of the message: ``sls.proto`` of Log Service; of the encoding: protobuf.dev "Encoding".

    LogGroup{ repeated Log Logs=1; string Topic=3; string Source=4; string MachineUUID=5;
              repeated LogTag LogTags=6{ string Key=1; string Value=2 } }
    Log{ uint32 Time=1; repeated Content Contents=2{ string Key=1; bytes Value=2 };
         fixed32 Time_ns=4 }
"""

from __future__ import annotations

import zlib
from typing import Dict, Iterator, List, Optional, Tuple, Union

from .exchange import Request, ServiceError

MAX_RAW_BYTES = 10 * 1024 * 1024
_Field = Tuple[int, int, Union[int, bytes]]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def decode_put_logs(request: Request) -> List[Dict[str, str]]:
    """The rows of a PutLogs request; each has ``__time__``, ``__source__`` and ``__topic__``.

    Raises:
        ServiceError: The size, the compression or the message is wrong; then no row is taken.
    """
    raw = _raw_body(request)
    try:
        return parse_log_group(raw)
    except ValueError as error:
        raise ServiceError(
            400, "PostBodyInvalid", "Protobuffer content cannot be parsed: {}".format(error)
        ) from error


def parse_log_group(raw: bytes) -> List[Dict[str, str]]:
    """A serialized ``LogGroup`` as rows.

    Raises:
        ValueError: The bytes are no such message, or a log lacks a time, a key or a value.
    """
    logs: List[bytes] = []
    common = {"__source__": "", "__topic__": ""}
    for number, kind, value in _fields(raw):
        if kind != _BYTES or not isinstance(value, bytes):
            continue
        if number == 1:
            logs.append(value)
        elif number == 3:
            common["__topic__"] = value.decode("utf-8")
        elif number == 4:
            common["__source__"] = value.decode("utf-8")
        elif number == 6:
            key, text = _pair(value)
            common["__tag__:" + key] = text
    return [_row(log, common) for log in logs]


def _raw_body(request: Request) -> bytes:
    size = request.headers.get("x-log-bodyrawsize")
    if size is None:
        raise ServiceError(400, "MissingBodyRawSize", "x-log-bodyrawsize is missing.")
    if not (size.isascii() and size.isdigit()):
        raise ServiceError(400, "InvalidBodyRawSize", "x-log-bodyrawsize is not a number.")
    if int(size) > MAX_RAW_BYTES:
        raise ServiceError(
            400,
            "PostBodyTooLarge",
            "Body size {} must little than {}".format(size, MAX_RAW_BYTES),
        )
    raw = _decompressed(request.body, request.headers.get("x-log-compresstype"), int(size))
    if len(raw) != int(size):
        raise ServiceError(
            400, "PostBodyInvalid", "The body has {} bytes, not {}.".format(len(raw), size)
        )
    return raw


def _decompressed(body: bytes, kind: Optional[str], size: int) -> bytes:
    try:
        if kind is None:
            return body
        if kind == "lz4":
            import lz4.block

            plain: bytes = lz4.block.decompress(body, uncompressed_size=size) if size else b""
            return plain
        if kind == "deflate":
            return zlib.decompressobj().decompress(body, size + 1)
    except Exception as error:
        raise ServiceError(
            400, "PostBodyInvalid", "The body cannot be decompressed: {}".format(error)
        ) from error
    raise ServiceError(400, "InvalidCompressType", "compress type {} is not known".format(kind))


def _row(log: bytes, common: Dict[str, str]) -> Dict[str, str]:
    row: Dict[str, str] = {}
    time = ""
    for number, kind, value in _fields(log):
        if number == 1 and kind == _VARINT:
            time = str(value)
        elif number == 2 and isinstance(value, bytes):
            key, text = _pair(value)
            row[key] = text
    if not time:
        raise ValueError("a log has no time")
    if not row:
        raise ValueError("a log has no contents")
    row.update(common, __time__=time)
    return row


def _pair(data: bytes) -> Tuple[str, str]:
    """Key and value of a content or a tag."""
    quick = _plain_pair(data)
    if quick is not None:
        return quick
    found: Dict[int, bytes] = {}
    for number, _, value in _fields(data):
        if isinstance(value, bytes):
            found[number] = value
    if not found.get(1):
        raise ValueError("a content has no key")
    if 2 not in found:
        raise ValueError("a content has no value")
    return found[1].decode("utf-8"), found[2].decode("utf-8", "replace")


def _plain_pair(data: bytes) -> Optional[Tuple[str, str]]:
    """A short key and then a value and nothing else, as writers send it; None for the rest."""
    end = len(data)
    if end < 4 or data[0] != 0x0A or not 0 < data[1] < 0x80:
        return None
    middle = 2 + data[1]
    if middle + 1 >= end or data[middle] != 0x12:
        return None
    size, at = data[middle + 1], middle + 2
    if size >= 0x80:
        size, at = _varint(data, middle + 1)
    if at + size != end:
        return None
    return data[2:middle].decode("utf-8"), data[at:].decode("utf-8", "replace")


def _fields(data: bytes) -> Iterator[_Field]:
    """The fields of a message in order: number, wire type and value.

    Raises:
        ValueError: The bytes end inside a field, or use a wire type that is not allowed.
    """
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if tag < 8:
            raise ValueError("field number 0")
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        size, at = _size(data, at, kind)
        if at + size > end:
            raise ValueError("the message is cut")
        yield tag >> 3, kind, data[at : at + size]
        at += size


def _size(data: bytes, at: int, kind: int) -> Tuple[int, int]:
    """The number of bytes of a field's value, and where they begin."""
    if kind == _BYTES:
        return _varint(data, at)
    if kind in (_FIXED32, _FIXED64):
        return 4 if kind == _FIXED32 else 8, at
    raise ValueError("wire type {}".format(kind))


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("the message is cut inside a number")
