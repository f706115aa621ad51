"""The append-only journal of a results directory: which attempts are saved, which rows delivered.

One entry a line. ``saved``: the attempt's ``solution.json`` is on disk. ``delivered``: SLS
acknowledged the attempt's row under a record. A line cut by a crash is dropped on the next open.
When a run closes the journal, it is folded into one line, an array of the entries that still
count: short to read, and the file is a strict JSON document as a whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Container, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from .. import jsontext
from .layout import open_regular, write_atomically

Key = Tuple[str, str]

_encode = jsontext.compact_encoder(ensure_ascii=True, allow_nan=True)

STATUSES = ("success", "failed", "skipped")


@dataclass(frozen=True)
class Saved:
    """An attempt on disk.

    Attributes:
        task_id, repeat_id: Its folder.
        number: Which try of the attempt it is, from 1.
        status: ``success``, ``failed`` or ``skipped``.
        latency_ms: Milliseconds of the agent call.
        size: Bytes of its ``solution.json``; another size on disk means the file was torn.
        usage: Model name to (input tokens, output tokens).
        error: The error type of a failed attempt, else "".
    """

    task_id: str
    repeat_id: str
    number: int
    status: str
    latency_ms: float
    size: int
    usage: Mapping[str, Tuple[int, int]] = field(default_factory=dict)
    error: str = ""

    @property
    def key(self) -> Key:
        """(task id, repeat id)."""
        return (self.task_id, self.repeat_id)


@dataclass
class JournalState:
    """What the lines of a journal add up to: the newest ``saved`` of each attempt, and what of it
    was delivered (attempt number, record id)."""

    saved: Dict[Key, Saved] = field(default_factory=dict)
    delivered: Dict[Key, Tuple[int, str]] = field(default_factory=dict)

    def next_number(self, key: Key) -> int:
        """The number of the next try of ``key``; no number is given to two answers."""
        saved, delivered = self.saved.get(key), self.delivered.get(key)
        return 1 + max(saved.number if saved else 0, delivered[0] if delivered else 0)

    def is_delivered(self, key: Key, record_id: str) -> bool:
        """Whether the newest saved attempt of ``key`` is in SLS under ``record_id``."""
        saved = self.saved.get(key)
        return saved is not None and self.delivered.get(key) == (saved.number, record_id)

    def left_behind(self, present: Container[Key]) -> List[Saved]:
        """The saved attempts outside ``present`` that were never delivered under any record."""
        return [
            saved
            for key, saved in self.saved.items()
            if key not in present and self.delivered.get(key, (0, ""))[0] != saved.number
        ]


def saved_line(saved: Saved) -> bytes:
    """The journal line of a saved attempt, newline included."""
    return _line(_saved_entry(saved))


def delivered_line(key: Key, number: int, record_id: str) -> bytes:
    """The journal line of a delivered row, newline included."""
    return _line(_delivered_entry(key, number, record_id))


def _saved_entry(saved: Saved) -> Dict[str, Any]:
    entry: Dict[str, Any] = {
        "event": "saved",
        "task": saved.task_id,
        "repeat": saved.repeat_id,
        "attempt": saved.number,
        "status": saved.status,
        "latency_ms": saved.latency_ms,
        "bytes": saved.size,
    }
    if saved.usage:
        entry["tokens"] = {model: list(tokens) for model, tokens in saved.usage.items()}
    if saved.error:
        entry["error"] = saved.error
    return entry


def _delivered_entry(key: Key, number: int, record_id: str) -> Dict[str, Any]:
    return {
        "event": "delivered",
        "task": key[0],
        "repeat": key[1],
        "attempt": number,
        "record": record_id,
    }


def read_state(path: str) -> JournalState:
    """The state of the journal at ``path``; lines that cannot be read are passed over."""
    state = JournalState()
    for entry in _entries(path):
        try:
            _apply(state, entry)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError):
            continue
    return state


class Journal:
    """The journal open for appending; one thread at a time may append."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle = -1
        self._size = 0

    def open(self) -> None:
        """Open for appending, cutting a torn last line first."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._handle = os.open(self._path, flags, 0o644)
        self._size = _end_of_last_line(self._handle)
        os.ftruncate(self._handle, self._size)

    def append(self, lines: Iterable[bytes], fsync: bool = False) -> None:
        """Append whole lines; on an error (disk full) nothing of them stays.

        Raises:
            OSError: The lines could not be written.
        """
        data = b"".join(lines)
        os.lseek(self._handle, self._size, os.SEEK_SET)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
            if fsync:
                os.fsync(self._handle)
        except OSError:
            self._cut_back()
            raise
        self._size += len(data)

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._handle, self._size)
        except OSError:  # the error that brought us here says more
            pass

    def fold(self, state: Optional[JournalState] = None) -> None:
        """Replace all lines by one with the entries that still count, and close the file.

        Args:
            state: What the lines add up to, where the caller knows; else they are read again.

        Raises:
            OSError: The folded journal could not be written; the lines stay.
        """
        self.close()
        state = state or read_state(self._path)
        entries = [_saved_entry(saved) for saved in state.saved.values()]
        entries += [
            _delivered_entry(key, number, record_id)
            for key, (number, record_id) in state.delivered.items()
        ]
        write_atomically(self._path, _line(entries))

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _line(entry: Any) -> bytes:
    return _encode(entry).encode("ascii") + b"\n"


def _entries(path: str) -> Iterator[Any]:
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n"):
                yield from _parsed(line)


def _parsed(line: bytes) -> List[Any]:
    """The entries of a line: one, or those of a folded journal."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else [found]


def _apply(state: JournalState, entry: Dict[str, Any]) -> None:
    key = (str(entry["task"]), str(entry["repeat"]))
    if entry["event"] == "saved" and entry["status"] in STATUSES:
        tokens = entry.get("tokens") or {}
        state.saved[key] = Saved(
            key[0],
            key[1],
            int(entry["attempt"]),
            str(entry["status"]),
            float(entry["latency_ms"]),
            int(entry["bytes"]),
            {str(model): (int(pair[0]), int(pair[1])) for model, pair in tokens.items()},
            str(entry.get("error", "")),
        )
    elif entry["event"] == "delivered":
        state.delivered[key] = (int(entry["attempt"]), str(entry["record"]))


def _end_of_last_line(handle: int) -> int:
    """The offset behind the last newline of the file."""
    end = os.lseek(handle, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        os.lseek(handle, start, os.SEEK_SET)
        found = os.read(handle, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
