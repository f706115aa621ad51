"""The SQL that reads a dataset: names and values quoted, the plan's condition taken apart.

The statements use what SQLite and the SLS dialect share: standard quoting and
``LIMIT offset, count``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence, Tuple

from ..errors import DatasetError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|[();]|[A-Za-z_]\w*""",
    re.DOTALL,
)
_LIMIT = re.compile(r"(\d+)(?:\s*,\s*(\d+)|\s+OFFSET\s+(\d+))?", re.IGNORECASE)
# a name that SQL reads as something else must be quoted; other plain names stay as they are
_RESERVED = re.compile(
    "all|and|any|as|asc|between|by|case|cast|column|create|cross|current|date|default|"
    "delete|desc|distinct|drop|else|end|escape|except|exists|false|for|from|full|group|"
    "having|if|in|index|inner|insert|intersect|into|is|join|key|left|like|limit|natural|"
    "not|null|offset|on|or|order|outer|primary|references|right|row|rows|select|set|table|"
    "then|time|timestamp|to|true|union|unique|update|user|using|values|view|when|where|"
    "with",
    re.IGNORECASE,
)
_Word = Tuple[str, int, int]


def identifier(name: str) -> str:
    """A dataset or column name; in double quotes only where it is not a plain word."""
    if _NAME.fullmatch(name) and not _RESERVED.fullmatch(name):
        return name
    return '"{}"'.format(name.replace('"', '""'))


def literal(text: str) -> str:
    """A text value in single quotes, those inside doubled."""
    return "'{}'".format(text.replace("'", "''"))


@dataclass(frozen=True)
class Selection:
    """The rows to read: a dataset, a condition, and what the plan's own ORDER BY and LIMIT say."""

    dataset: str
    where: str = ""
    order: str = ""
    offset: int = 0
    most: Optional[int] = None

    def page(self, order: Sequence[str], offset: int, count: int) -> str:
        """The statement for ``count`` rows from ``offset`` in this order."""
        terms = ([_closed(self.order)] if self.order else []) + list(order)
        by = " ORDER BY {}".format(", ".join(terms)) if terms else ""
        return "SELECT * FROM {}{} LIMIT {:d}, {:d}".format(
            self._source, by, self.offset + offset, count
        )

    def count(self) -> str:
        """The statement that counts all rows of the condition."""
        return "SELECT count(*) FROM {}".format(self._source)

    def only(self, values: Iterable[str]) -> Selection:
        """The rows of the condition whose id is one of ``values``, which are SQL literals.

        Order and LIMIT of the plan fall away: they choose rows, and the ids do that already.
        """
        chosen = "id IN ({})".format(", ".join(values))
        where = "({}\n) AND {}".format(self.where, chosen) if self.where else chosen
        return Selection(self.dataset, where)

    @property
    def _source(self) -> str:
        where = " WHERE {}".format(_closed(self.where)) if self.where else ""
        return identifier(self.dataset) + where


def _closed(clause: str) -> str:
    """A clause of the plan; a line break ends the comment that it may end with."""
    return clause + "\n" if "--" in clause else clause


def parse_selection(dataset: str, query_sql: str) -> Selection:
    """The selection that a plan's ``query_sql`` states.

    Args:
        dataset: The dataset's name.
        query_sql: A condition, with or without ``WHERE``, ``ORDER BY``, ``LIMIT`` and a semicolon.

    Raises:
        DatasetError: It is a whole statement, several, or its parentheses do not match.
    """
    text = query_sql.strip()
    while text.endswith(";"):
        text = text[:-1].rstrip()
    words = _top_level_words(text, query_sql)
    if words and words[0][0] in ("SELECT", "WITH") and words[0][1] == 0:
        raise _unusable(query_sql, "it must be a condition, such as level > 2, not a statement")
    start = words[0][2] if words and words[0][0] == "WHERE" and words[0][1] == 0 else 0
    limit_at, limit_end = _clause(words, "LIMIT", len(text))
    order_at, order_end = _clause(words, "ORDER", limit_at, "BY")
    offset, most = _limit(text[limit_end:].strip(), query_sql)
    where = text[start : min(order_at, limit_at)].strip()
    return Selection(dataset, where, text[order_end:limit_at].strip(), offset, most)


def _top_level_words(text: str, query_sql: str) -> List[_Word]:
    """The words outside of quotes, comments and parentheses, in upper case, with their places."""
    words: List[_Word] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == ";":
            raise _unusable(query_sql, "it must be one condition, without a semicolon inside")
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            break
        if depth == 0 and (mark[0].isalpha() or mark[0] == "_"):
            words.append((mark.upper(), token.start(), token.end()))
    if depth:
        raise _unusable(query_sql, "its parentheses do not match")
    return words


def _clause(words: List[_Word], name: str, absent: int, second: str = "") -> Tuple[int, int]:
    """Where the last such clause begins, and where its content does."""
    for at in range(len(words) - 1, -1, -1):
        if words[at][0] != name or words[at][1] >= absent:
            continue
        if not second:
            return words[at][1], words[at][2]
        if at + 1 < len(words) and words[at + 1][0] == second:
            return words[at][1], words[at + 1][2]
    return absent, absent


def _limit(text: str, query_sql: str) -> Tuple[int, Optional[int]]:
    if not text:
        return 0, None
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise _unusable(query_sql, "its LIMIT is not a number")
    first, second, offset = match.groups()
    if second is not None:
        return int(first), int(second)
    return int(offset or 0), int(first)


def _unusable(query_sql: str, reason: str) -> DatasetError:
    return DatasetError(
        "The plan's query_sql {!r} cannot be used: {}. Correct it in the plan.".format(
            query_sql, reason
        )
    )
