"""Runs somebody else's SQL on a SQLite database: read-only by an authorizer, and bounded.

SQLite itself parses and judges every statement. Only two things differ from plain SQLite, as in
the cloud: a double-quoted name is always a name, never a string, and a query without a LIMIT
answers at most 100 rows.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional, Tuple

from .exchange import ServiceError

DEFAULT_LIMIT = 100
# text that starts so is a JSON value of ours: white space that JSON allows and nobody writes
JSON_MARK = "\t \r\n \t\r \n"

_SELECT, _READ, _FUNCTION, _RECURSIVE = 21, 20, 31, 33
_DELETE, _INSERT, _UPDATE = 9, 18, 23
_READING = frozenset((_SELECT, _READ, _FUNCTION, _RECURSIVE))
_WRITING = frozenset((_DELETE, _INSERT, _UPDATE))
_CATALOGUE = frozenset(("sqlite_master", "sqlite_schema", "sqlite_temp_master"))
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"((?:[^"]|"")*)"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_LIMIT_TWICE = 'near "LIMIT": syntax error'


@dataclass
class QueryResult:
    """What a statement answered."""

    columns: List[str]
    rows: List[List[Any]]
    affected: int = 0
    types: List[str] = field(default_factory=list)


class GuardedDatabase:
    """A SQLite database whose own code may do all, and whose guests may read (or edit rows).

    Args:
        path: The file; None for memory.
        seconds: How long one query of a guest may run.
    """

    def __init__(self, path: Optional[str] = None, seconds: float = 30.0) -> None:
        self.connection = sqlite3.connect(
            path or ":memory:", check_same_thread=False, isolation_level=None
        )
        self.seconds = seconds
        self._guest = False
        self._writable = False
        self._wrote = False
        self.connection.set_authorizer(self._authorize)
        for name, count, function in _FUNCTIONS:
            self.connection.create_function(name, count, function)

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def query(
        self,
        sql: str,
        *,
        writable: bool = False,
        limit: int = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> QueryResult:
        """Run one statement of a guest.

        Args:
            sql: The statement.
            writable: Let it insert, update and delete rows.
            limit: Rows to answer if the statement has no LIMIT of its own.
            offset: Rows to skip in that case.

        Raises:
            ServiceError: SQLite refuses the statement; the message says why.
        """
        statement = standard_names(sql).strip().rstrip(";").rstrip()
        if not statement:
            raise ServiceError(400, "ParameterInvalid", "The query is empty.")
        deadline = time.monotonic() + self.seconds
        self.connection.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
        self._guest, self._writable = True, writable
        try:
            return self._run(statement, limit, offset)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise _refusal(error) from error
        finally:
            self._guest = False
            self.connection.set_progress_handler(None, 0)

    def _run(self, statement: str, limit: int, offset: int) -> QueryResult:
        # the comments keep a guest's text apart from ours in the cache of compiled statements
        bare = statement + "\n/*guest*/"
        if not self._edits(bare):
            try:
                return self._result(
                    "{}\nLIMIT {:d} OFFSET {:d} /*guest*/".format(statement, limit, offset)
                )
            except sqlite3.OperationalError as error:
                # it has its own LIMIT, or cannot take one; SQLite decides, not a parser of ours
                if _LIMIT_TWICE not in str(error):
                    raise
        return self._result(bare)

    def _edits(self, statement: str) -> bool:
        """Whether the statement changes rows; it is compiled, not run."""
        if not self._writable:
            return False
        self._wrote = False
        self.connection.execute("EXPLAIN " + statement).close()
        return self._wrote

    def _result(self, statement: str) -> QueryResult:
        cursor = self.connection.execute(statement)
        columns = [column[0] for column in cursor.description or ()]
        rows = [[plain_value(value) for value in row] for row in cursor]
        return QueryResult(columns, rows, max(cursor.rowcount, 0), _types(columns, rows))

    def _authorize(
        self,
        action: int,
        first: Optional[str],
        second: Optional[str],
        database: Optional[str],
        trigger: Optional[str],
    ) -> int:
        if not self._guest:
            return sqlite3.SQLITE_OK
        if action in _WRITING:
            self._wrote = True
            return sqlite3.SQLITE_OK if self._writable else sqlite3.SQLITE_DENY
        if action not in _READING or (action == _READ and first in _CATALOGUE):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def quoted(name: str) -> str:
    """A table or column name as SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def standard_names(sql: str) -> str:
    """``sql`` with every ``"name"`` written as a backtick-quoted name.

    SQLite takes an unknown double-quoted name for a string, which would hide a missing column;
    the cloud reports it.
    """

    def rewrite(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group(0)
        return "`{}`".format(name.replace('""', '"').replace("`", "``"))

    return _TOKEN.sub(rewrite, sql)


def masked(sql: str) -> str:
    """``sql`` with the inside of strings, quoted names and comments blanked out, equally long."""
    return _TOKEN.sub(lambda match: "\x00" * len(match.group(0)), sql)


def plain_value(value: Any) -> Any:
    """A value of SQLite as a JSON value."""
    if isinstance(value, str):
        return _marked_value(value) if value.startswith(JSON_MARK) else value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and value - value != 0.0:  # an infinity
        return None
    return value


def stored_value(value: Any) -> Any:
    """A JSON value as SQLite keeps it; what SQLite has no type for becomes marked JSON text."""
    if isinstance(value, (dict, list, bool)):
        return JSON_MARK + json.dumps(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # in quotes: a column of whole numbers would make a float of text that is a number, and
        # trim the mark before it; no other text that SQLite can keep is marked
        return JSON_MARK + json.dumps(str(value))
    if isinstance(value, str) and not is_utf8(value):
        return JSON_MARK + json.dumps(value)
    return value


def _marked_value(text: str) -> Any:
    value = json.loads(text)
    return int(value) if isinstance(value, str) and is_utf8(value) else value


def is_utf8(text: str) -> bool:
    """Whether SQLite can keep ``text`` as it is; a lone surrogate has no form in UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _types(columns: List[str], rows: List[List[Any]]) -> List[str]:
    return [
        _type_name(next((row[at] for row in rows if row[at] is not None), None))
        for at in range(len(columns))
    ]


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint"
    if isinstance(value, float):
        return "double"
    return "json" if isinstance(value, (dict, list)) else "varchar"


def _refusal(error: Exception) -> ServiceError:
    text = str(error)
    if text == "interrupted":
        return ServiceError(400, "QueryTimeout", "The query ran too long and was stopped.")
    if "not authorized" in text or "prohibited" in text:
        text += "; only SELECT is answered (LocalAgentLoop(writable_sql=True) edits rows as well)"
    return ServiceError(400, "ParameterInvalid", "SQL error: {}".format(text))


def _extract_scalar(document: Optional[str], path: str) -> Optional[str]:
    """``json_extract_scalar`` of the cloud's SQL, for paths of names such as ``$.a.b``."""
    try:
        value = json.loads(document or "null")
        for name in path.lstrip("$").strip(".").split("."):
            value = value[name] if name else value
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if value is None or isinstance(value, (dict, list)):
        return None
    return value if isinstance(value, str) else json.dumps(value)


_FUNCTIONS: Tuple[Tuple[str, int, Callable[..., Any]], ...] = (
    ("json_extract_scalar", 2, _extract_scalar),
)
