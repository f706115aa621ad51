"""The search half of an SLS query: text to a predicate over log rows.

Offered: ``*``, words, ``"phrases"``, ``key: value``, ``key: "value"``, ``key: *``, the wildcards
``*`` and ``?`` inside words, ``key > 5`` and the like, ``and``, ``or``, ``not``, parentheses. Words
match whole tokens, in any letter case. Source: Log Service "Query syntax" and "Delimiters".
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .exchange import ServiceError

Predicate = Callable[[Mapping[str, str]], bool]

_LEX = re.compile(
    r"""\s+|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign><=|>=|[()<>=:])"""
    r"""|(?P<word>[^\s()<>=:"']+)""",
    re.DOTALL,
)
_DELIMITERS = re.compile("[ ,'\";=()\\[\\]{}?@&<>/:\n\t\r]+")
_KEYWORDS = ("and", "or", "not")
_OWN_FIELDS = ("__time__",)
_COMPARE: Dict[str, Callable[[float, float], bool]] = {
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    "=": lambda left, right: left == right,
}


@dataclass(frozen=True)
class Search:
    """A parsed search.

    Attributes:
        matches: Whether a row is found.
        equal: Fields with the value that every found row has, to narrow a scan by an index.
    """

    matches: Predicate
    equal: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    def is_word(self, *texts: str) -> bool:
        return self.kind == "word" and self.text.lower() in texts

    def is_sign(self, *texts: str) -> bool:
        return self.kind == "sign" and self.text in texts


def split_query(query: str) -> Tuple[str, Optional[str]]:
    """The search and the analysis (SQL) half of a query; the second is None without a ``|``."""
    at = 0
    while at < len(query):
        match = _LEX.match(query, at)
        if query[at] == "|" or (match and match.group("word") and "|" in match.group("word")):
            bar = query.index("|", at)
            return query[:bar].strip(), query[bar + 1 :].strip()
        at = match.end() if match else at + 1
    return query.strip(), None


@lru_cache(maxsize=256)
def parse_search(text: str) -> Search:
    """Compile a search.

    Raises:
        ServiceError: 400 ParameterInvalid; the text is no search.
    """
    try:
        return _Parser(_tokens(text)).parse()
    except RecursionError:
        raise _invalid("it is nested too deeply") from None


def _tokens(text: str) -> List[_Token]:
    found: List[_Token] = []
    at = 0
    while at < len(text):
        match = _LEX.match(text, at)
        if match is None:
            raise _invalid("a quote is not closed: {}".format(text[at:]))
        at = match.end()
        if match.lastgroup == "quoted":
            found.append(_Token("quoted", re.sub(r"\\(.)", r"\1", match.group()[1:-1])))
        elif match.lastgroup:
            found.append(_Token(match.lastgroup, match.group()))
    return found


class _Parser:
    """Recursive descent over: or → and → not → ( … ) | term."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def parse(self) -> Search:
        if not self._tokens:
            return Search(lambda row: True)
        found = self._either()
        if self._at < len(self._tokens):
            raise _invalid("unexpected {!r}".format(self._tokens[self._at].text))
        return found

    def _either(self) -> Search:
        parts = [self._both()]
        while self._take_word("or"):
            parts.append(self._both())
        if len(parts) == 1:
            return parts[0]
        return Search(lambda row: any(part.matches(row) for part in parts))

    def _both(self) -> Search:
        parts = [self._negated()]
        while self._more():
            self._take_word("and")
            parts.append(self._negated())
        if len(parts) == 1:
            return parts[0]
        equal = tuple(pair for part in parts for pair in part.equal)
        return Search(lambda row: all(part.matches(row) for part in parts), equal)

    def _negated(self) -> Search:
        if self._take_word("not"):
            inner = self._negated()
            return Search(lambda row: not inner.matches(row))
        return self._atom()

    def _atom(self) -> Search:
        token = self._next()
        if token.is_sign("("):
            inner = self._either()
            if not self._next().is_sign(")"):
                raise _invalid("a parenthesis is not closed")
            return inner
        if token.is_sign(")", ":", *_COMPARE) or token.is_word(*_KEYWORDS):
            raise _invalid("unexpected {!r}".format(token.text))
        sign = self._peek()
        if sign is not None and sign.is_sign(":", *_COMPARE):
            self._at += 1
            return _field(token.text, sign.text, self._next())
        if token.kind == "word" and token.text == "*":
            return Search(lambda row: True)
        match = _matcher(token)
        return Search(lambda row: any(match(row[name]) for name in row if name not in _OWN_FIELDS))

    def _more(self) -> bool:
        token = self._peek()
        return not (token is None or token.is_word("or") or token.is_sign(")"))

    def _peek(self) -> Optional[_Token]:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> _Token:
        token = self._peek()
        if token is None:
            raise _invalid("the search ends too early")
        self._at += 1
        return token

    def _take_word(self, text: str) -> bool:
        token = self._peek()
        taken = token is not None and token.is_word(text)
        self._at += taken
        return taken


def _field(name: str, sign: str, value: _Token) -> Search:
    if value.kind == "sign":
        raise _invalid("{} has no value".format(name))
    if sign != ":":
        return _comparison(name, sign, value.text)
    if value.kind == "word" and value.text == "*":
        return Search(lambda row: name in row)
    match = _matcher(value)
    equal = () if "*" in value.text or "?" in value.text else ((name, value.text),)
    return Search(lambda row: name in row and match(row[name]), equal)


def _comparison(name: str, sign: str, text: str) -> Search:
    compare = _COMPARE[sign]
    bound = _number(text)
    if bound is None:
        raise _invalid("{} {} needs a number, not {!r}".format(name, sign, text))
    limit = bound

    def matches(row: Mapping[str, str]) -> bool:
        value = _number(row.get(name, ""))
        return value is not None and compare(value, limit)

    return Search(matches)


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _matcher(token: _Token) -> Callable[[str], bool]:
    wild = token.kind == "word" and ("*" in token.text or "?" in token.text)
    if wild:
        pattern = token.text.lower()
        return lambda text: any(fnmatch.fnmatchcase(part, pattern) for part in _words(text))
    wanted = _words(token.text)
    if not wanted:
        return lambda text: text == token.text
    if any(ord(letter) > 0x2E7F for letter in token.text):
        # written without spaces, so there are no tokens to compare
        needle = token.text.lower()
        return lambda text: needle in text.lower()
    return lambda text: _occurs(wanted, _words(text))


def _words(text: str) -> List[str]:
    return [word for word in _DELIMITERS.split(text.lower()) if word]


def _occurs(wanted: List[str], words: List[str]) -> bool:
    size = len(wanted)
    return any(words[at : at + size] == wanted for at in range(len(words) - size + 1))


def _invalid(message: str) -> ServiceError:
    return ServiceError(400, "ParameterInvalid", "ErrorType:SyntaxError; {}".format(message))
