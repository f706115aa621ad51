"""Text that others wrote as one line that steers nothing: for terminals, logs and reports."""

from __future__ import annotations

import re
import unicodedata

_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_ESCAPED = {code: "\\u{:04x}".format(code) for code in range(0x7F, 0xA0)}
_COMMAND = re.compile(r"^\s*::|##(?=\w*\[)", re.MULTILINE)
_SPACES = str.maketrans("\n\t", "  ")
# the characters that reports write themselves
_PLAIN = {
    "\u00b1": "+-",
    "\u00b7": "*",
    "\u00d7": "x",
    "\u2013": "-",
    "\u2026": "...",
    "\u2192": "->",
    "\u2212": "-",
    "\ufffd": "?",
}


def one_line(text: str) -> str:
    """``text`` on one line, with control characters shown as U+FFFD.

    Neither an escape sequence (ECMA-48) nor a line break gets through, so an agent's answer cannot
    steer a terminal or forge a line of a log; nor do bidirectional overrides (Unicode Standard
    Annex #9), which could make a line read as another one.
    """
    if text.isascii() and text.isprintable():
        return text
    spaced = text.replace("\r\n", " ").translate(_SPACES)
    if spaced.isascii() and spaced.isprintable():
        return spaced
    return "".join("\ufffd" if _unsafe(char) else char for char in spaced)


def excerpt(text: str, most: int) -> str:
    """``text`` as ``one_line``, white space joined; ``…`` stands for what is beyond ``most``."""
    joined = " ".join(text.split())
    return one_line(joined if len(joined) <= most else joined[:most] + "…")


def encodable(text: str, encoding: str) -> str:
    """``text`` as ``encoding`` can hold it: signs become ASCII, other characters their escapes."""
    try:
        text.encode(encoding)
        return text
    except (UnicodeEncodeError, LookupError):
        return "".join(_encodable_char(char, encoding) for char in text)


def _encodable_char(char: str, encoding: str) -> str:
    try:
        char.encode(encoding)
        return char
    except (UnicodeEncodeError, LookupError):
        return _PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode("ascii")


def counted(count: int, noun: str, one: str = "", many: str = "") -> str:
    """A number and its noun: ``1 row``, ``2 rows``, ``1,000 rows``.

    ``one`` or ``many`` follows, as the number asks: ``1 row was``, ``2 rows were``.
    """
    text = "{:,} {}{}".format(count, noun, "" if count == 1 else "s")
    return "{} {}".format(text, one if count == 1 else many) if one else text


def _unsafe(char: str) -> bool:
    # joiners hold emoji and some scripts together and cannot reorder anything
    return unicodedata.category(char) in _UNSAFE and char not in "\u200c\u200d"


def terminal_json(text: str) -> str:
    """JSON ``text`` with the control characters escaped that JSON leaves as they are.

    Source: RFC 8259 section 7: only those below U+0020 must be; terminals obey the others too.
    """
    return text.translate(_ESCAPED)


def no_command(text: str) -> str:
    """``text`` without the marks by which a CI system takes a printed line for a command to it.

    Sources: GitHub Docs, "Workflow commands for GitHub Actions" (``::name::``, and the older
    ``##[name]``); Azure Pipelines, "Logging commands" (``##vso[…]``); TeamCity, "Service messages"
    (``##teamcity[…]``). The first counts behind blanks at the start of a line, the others anywhere.
    """
    return _COMMAND.sub(lambda match: match.group()[:-1] + " " + match.group()[-1], text)


def each_line(text: str) -> str:
    """``text`` with its line breaks, each line as ``one_line`` makes it."""
    return "\n".join(map(one_line, text.split("\n")))
