"""The size limits of one SLS write, and how a row over them is cut. Pure.

Sources: PutLogs refuses a log group over 10 MB raw (SLS API 2020-12-30, PutLogs); 0.5 MB of that is
left for what we cannot see from here.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any, Iterator, List, Optional, Sequence, Tuple

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
    text = "".join(chain.from_iterable(contents))  # one count instead of dozens
    return _utf8(text) + _FRAMING * (len(contents) + 1)


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
        index = max(range(len(cut)), key=lambda n: _utf8(cut[n][1]))
        key, value = cut[index]
        shorter = _shortened(value, excess)
        if _utf8(shorter) >= _utf8(value):
            break
        cut[index] = (key, shorter)
        excess = row_size(cut) - limit
    return cut


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def _shortened(value: str, excess: int) -> str:
    size = _utf8(value)
    if value[:1] in ("{", "["):
        document = _json_shortened(value, excess)
        # strings that are only a small part of it cannot make it short enough
        if document is not None and _utf8(document) <= max(size - excess, size // 2):
            return document
    return _cut_text(value, size - excess - _MARK_ROOM)


def _json_shortened(value: str, excess: int) -> Optional[str]:
    """The document with its longest strings cut to one length, as long as they can be."""
    try:
        document = json.loads(value)
        strings = sorted(_strings(document), key=lambda found: -found[0])
        longest = _longest_allowed([found[0] for found in strings], excess)
        for size, holder, slot in strings:
            if size <= longest + _MARK_ROOM:
                break
            holder[slot] = _cut_text(holder[slot], longest)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return jsontext.clean_text(text)


def _strings(document: Any) -> Iterator[Tuple[int, Any, Any]]:
    """The bytes of every string inside ``document``, its container, and its index or key."""
    stack: List[Any] = [document]
    while stack:
        holder = stack.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for slot, item in items:
            if isinstance(item, (dict, list)):
                stack.append(item)
            elif isinstance(item, str):
                yield _utf8(jsontext.clean_text(item)), holder, slot


def _longest_allowed(sizes: Sequence[int], excess: int) -> int:
    """To how many bytes all longer strings have to be cut; ``sizes`` are sorted, longest first."""
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        allowed = (total - excess) // count - _MARK_ROOM
        following = sizes[count] if count < len(sizes) else 0
        if allowed >= 0 and allowed + _MARK_ROOM >= following:
            return allowed
    return 0


def _cut_text(text: str, keep: int) -> str:
    """The first ``keep`` bytes of ``text``, and a mark that says how many are missing."""
    data = jsontext.clean_text(text).encode("utf-8")
    kept = data[: max(0, keep)].decode("utf-8", "ignore")
    return "{}…[truncated {} bytes]".format(kept, len(data) - len(kept.encode("utf-8")))


def batch_end(sizes: Sequence[int], start: int = 0) -> int:
    """The end of the longest batch from ``start`` within both batch limits; one row at least."""
    total = 0
    for index in range(start, min(len(sizes), start + MAX_BATCH_ROWS)):
        total += sizes[index]
        if total > MAX_BATCH_BYTES and index > start:
            return index
    return min(len(sizes), start + MAX_BATCH_ROWS)
