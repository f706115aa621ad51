"""Reading logs: search, then optionally SQL over what was found, run by SQLite."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from .platform import LOGSTORE, Platform
from .search import parse_search, split_query
from .sql import DEFAULT_LIMIT, GuardedDatabase, masked, plain_value, quoted
from .store import LogRow

_CLAUSE = re.compile(r"\b(from|where|group|having|order|limit)\b", re.IGNORECASE)


@dataclass(frozen=True)
class LogQuery:
    """What to read: begin ≤ time < end in seconds; an open end is None."""

    project: str
    logstore: str
    query: str
    begin: Optional[int] = None
    end: Optional[int] = None


@dataclass(frozen=True)
class LogAnswer:
    """What was found; ``keys`` in their order, and the two halves of the query."""

    rows: List[Dict[str, Any]]
    keys: List[str]
    search: str
    sql: Optional[str]


def read_logs(platform: Platform, query: LogQuery, limit: int = DEFAULT_LIMIT) -> LogAnswer:
    """All rows that a query finds or computes; ``limit`` bounds SQL without a LIMIT of its own.

    Raises:
        ServiceError: The query is malformed.
    """
    search, sql = split_query(query.query)
    found = list(find_logs(platform, query, search))
    if sql is None:
        return LogAnswer(list(found), [], search, None)
    keys, rows = _analyse(platform, query, found, sql, limit)
    return LogAnswer(rows, keys, search, sql)


def find_logs(platform: Platform, query: LogQuery, search: str) -> Iterator[LogRow]:
    """The rows that the search half finds, in arrival order."""
    parsed = parse_search(search)
    rows = platform.store.logs(
        query.project, query.logstore, begin=query.begin, end=query.end, equal=parsed.equal
    )
    return (row for row in rows if parsed.matches(row))


def _analyse(
    platform: Platform, query: LogQuery, rows: List[LogRow], sql: str, limit: int
) -> Tuple[List[str], List[Dict[str, Any]]]:
    store = platform.store.get(LOGSTORE, query.project, query.logstore) or {}
    keys: Mapping[str, Any] = (store.get("index") or {}).get("keys") or {}
    database = GuardedDatabase()
    try:
        _fill(database, rows, keys)
        result = database.query(with_source(sql), limit=limit)
    finally:
        database.close()
    return result.columns, [
        {name: _text(value) for name, value in zip(result.columns, row)} for row in result.rows
    ]


def _fill(database: GuardedDatabase, rows: List[LogRow], keys: Mapping[str, Any]) -> None:
    """One table ``log`` with a column for each key that occurs or is indexed."""
    # names of columns are the same in any letter case in SQLite: the first spelling wins
    names: Dict[str, str] = {}
    for name in ("__time__", "__source__", "__topic__", *keys):
        names.setdefault(name.lower(), name)
    for row in rows:
        for name in row:
            names.setdefault(name.lower(), name)
    columns = list(names.values())
    database.connection.execute("CREATE TABLE log ({})".format(", ".join(map(quoted, columns))))
    kinds = {name: str(keys.get(name, {}).get("type")) for name in columns}
    kinds["__time__"] = "long"
    database.connection.executemany(
        "INSERT INTO log VALUES ({})".format(", ".join("?" * len(columns))),
        ([_typed(row.get(name), kinds[name]) for name in columns] for row in rows),
    )


def _typed(text: Optional[str], kind: str) -> Any:
    """A value as its index has it: numbers where the index says so, null where it is no number."""
    read = _READERS.get(kind)
    if text is None or read is None:
        return text
    try:
        return plain_value(read(text))
    except (ValueError, OverflowError):
        return None


def _whole(text: str) -> Optional[int]:
    """All digits of a whole number; None where it is larger than a ``long``."""
    number = int(text) if text.isascii() and text.isdigit() else int(float(text))
    return number if -(2**63) <= number < 2**63 else None


_READERS: Dict[str, Callable[[str], Any]] = {"long": _whole, "double": float}


def with_source(sql: str) -> str:
    """``sql`` with ``FROM log`` put in if it names no source, as the cloud allows."""
    depth = 0
    plain = masked(sql)
    at = 0
    for match in re.finditer(r"[()]|" + _CLAUSE.pattern, plain, re.IGNORECASE):
        if match.group() in "()":
            depth += 1 if match.group() == "(" else -1
        elif depth == 0:
            if match.group().lower() == "from":
                return sql
            at = match.start()
            break
    else:
        at = len(sql.rstrip().rstrip(";"))
    return "{} FROM log {}".format(sql[:at], sql[at:])


def _text(value: Any) -> str:
    return "null" if value is None else value if isinstance(value, str) else str(value)
