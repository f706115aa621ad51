"""The size limits of one SLS write, and how a row over them is cut. Pure.

Sources: PutLogs refuses a log group over 10 MB raw (SLS API 2020-12-30, PutLogs); 0.5 MB of that is
left for what we cannot see from here.
"""

from __future__ import annotations

import json
from typing import Any, List, Optional, Sequence, Tuple

from .. import jsontext

MAX_GROUP_BYTES = 9_500_000
MAX_BATCH_BYTES = 4_000_000
MAX_BATCH_ROWS = 4096

Contents = Sequence[Tuple[str, str]]

# protobuf framing of one key and value: three tags and up to three length bytes each
_FRAMING = 16
_MARK_ROOM = 48


def row_size(contents: Contents) -> int:
    """Bytes of one log in the protobuf, at most."""
    return sum(_utf8(key) + _utf8(value) + _FRAMING for key, value in contents) + _FRAMING


def fitted(contents: Contents, limit: int = MAX_GROUP_BYTES) -> Contents:
    """``contents``, or a copy whose longest values are cut so that the row stays within ``limit``.

    A cut text ends in ``…[truncated N bytes]``; a JSON object or array is cut inside its longest
    strings, so that it stays JSON.
    """
    excess = row_size(contents) - limit
    if excess <= 0:
        return contents
    cut = list(contents)
    while excess > 0:
        index = max(range(len(cut)), key=lambda n: len(cut[n][1]))
        key, value = cut[index]
        shorter = _shortened(value, excess)
        if len(shorter) >= len(value):
            break
        cut[index] = (key, shorter)
        excess = row_size(cut) - limit
    return cut


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _shortened(value: str, excess: int) -> str:
    if value[:1] in ("{", "["):
        document = _json_shortened(value, excess)
        if document is not None:
            return document
    return _cut_text(value, excess)


def _json_shortened(value: str, excess: int) -> Optional[str]:
    try:
        document = json.loads(value)
    except ValueError:
        return None
    holder, slot = _longest_string(document)
    if holder is None or _utf8(holder[slot]) <= 2 * _MARK_ROOM:
        return None
    # an escaped character takes more room in the document than in the string
    holder[slot] = _cut_text(holder[slot], excess)
    return jsontext.dumps(document)


def _longest_string(document: Any) -> Tuple[Any, Any]:
    """The container and the index or key of the longest string inside ``document``."""
    best: Tuple[Any, Any] = (None, None)
    length = 0
    stack: List[Any] = [document]
    while stack:
        holder = stack.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for slot, item in items:
            if isinstance(item, (dict, list)):
                stack.append(item)
            elif isinstance(item, str) and len(item) > length:
                best, length = (holder, slot), len(item)
    return best


def _cut_text(text: str, excess: int) -> str:
    data = text.encode("utf-8")
    keep = max(0, len(data) - excess - _MARK_ROOM)
    kept = data[:keep].decode("utf-8", "ignore")
    return "{}…[truncated {} bytes]".format(kept, len(data) - len(kept.encode("utf-8")))


def batch_end(sizes: Sequence[int], start: int = 0) -> int:
    """The end of the longest batch from ``start`` within both batch limits; one row at least."""
    total = 0
    for index in range(start, min(len(sizes), start + MAX_BATCH_ROWS)):
        total += sizes[index]
        if total > MAX_BATCH_BYTES and index > start:
            return index
    return min(len(sizes), start + MAX_BATCH_ROWS)
