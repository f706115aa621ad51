"""The reports as plain text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
import unicodedata
from dataclasses import replace
from typing import Callable, Container, Iterable, List, Optional, Sequence

from ..arguments import check_count
from ..errors import ConfigurationError
from ..lines import encodable, one_line
from .arguments import check_subject
from .sections import Section, Subject, Table

_GAP = "  "
_LEAST_COLUMN = 3
_LEAST_TEXT = 8
_CUT, _ASCII_CUT = "\u2026", "~"


def render_text(subject: Subject, *, width: Optional[int] = None, encoding: str = "utf-8") -> str:
    """A result, comparison or gate verdict as plain text, without colours.

    Control characters of agents' texts are shown as U+FFFD: an answer must not steer a terminal.

    Args:
        subject: What to render.
        width: Columns that a line may take; None takes the terminal's, 80 where there is none.
        encoding: Where the text will go takes this; what it cannot hold is written in ASCII.

    Raises:
        ConfigurationError: An argument is something else.
    """
    check_subject(subject)
    if width is not None:
        check_count("width", width, 1)
    if not isinstance(encoding, str):
        raise ConfigurationError(
            'encoding must be a name such as "utf-8", not {!r}.'.format(encoding)
        )
    columns = max(40, width or shutil.get_terminal_size((80, 24)).columns)
    parts = [_section(_shown(section, encoding), columns) for section in subject.sections()]
    text = "\n\n".join(part for part in parts if part) + "\n"
    # only the marks of cells that were cut can be left: one column, as they were
    return text if encodable(_CUT, encoding) == _CUT else text.replace(_CUT, _ASCII_CUT)


def display_width(text: str) -> int:
    """The columns that ``text`` takes in a terminal.

    Source: Unicode Standard Annex #11 (East Asian Width): wide and full-width characters take two
    columns, combining marks none.
    """
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _shown(section: Section, encoding: str) -> Section:
    """``section`` as it is printed: widths depend on what stands for a character."""

    def printed(text: str) -> str:
        return encodable(one_line(text), encoding)

    return replace(
        section,
        title=printed(section.title),
        lines=tuple(map(printed, section.lines)),
        table=None if section.table is None else _shown_table(section.table, printed),
    )


def _shown_table(table: Table, printed: Callable[[str], str]) -> Table:
    header, *rows = (tuple(map(printed, row)) for row in (table.header,) + table.rows)
    return replace(table, header=header, rows=tuple(rows))


def _section(section: Section, columns: int) -> str:
    lines = _wrapped([section.title], columns)
    if section.level < 3:
        underline = "=" if section.level == 1 else "-"
        lines.append(underline * min(columns, max(map(display_width, lines))))
    lines += _wrapped(section.lines, columns)
    if section.table is not None:
        lines += _table(section.table, columns)
    return "\n".join(lines)


def _wrapped(lines: Iterable[str], columns: int) -> List[str]:
    wrapped: List[str] = []
    for line in lines:
        if display_width(line) <= columns:
            wrapped.append(line)
        else:
            # textwrap counts characters: half as many are safe where some take two columns
            room = columns if display_width(line) <= len(line) else columns // 2
            wrapped += textwrap.wrap(line, room) or [""]
    return wrapped


def _table(table: Table, columns: int) -> List[str]:
    shown = _fitting(table, columns)
    lines = _table_lines(shown, columns)
    left_out = [name for name in table.header if name not in shown.header]
    note = "(left out at this width: {})".format(", ".join(left_out))
    return lines + _wrapped([note] if left_out else [], columns)


def _fitting(table: Table, columns: int) -> Table:
    """``table`` without as many of its spare columns as it takes for a line to fit."""
    shown = table
    for count in range(len(table.spare) + 1):
        shown = table.without(frozenset(table.spare[:count]))
        natural = _natural_widths((shown.header,) + shown.rows)
        if sum(natural) + len(_GAP) * (len(natural) - 1) <= columns:
            break
    return shown


def _natural_widths(cells: Sequence[Sequence[str]]) -> List[int]:
    return [max(display_width(row[place]) for row in cells) for place in range(len(cells[0]))]


def _table_lines(table: Table, columns: int) -> List[str]:
    cells = (table.header,) + table.rows
    widths = _widths(cells, columns, table.right)
    lines = [_line(cells[0], widths, table), _GAP.join("-" * width for width in widths)]
    for row in cells[1:]:
        texts = _wrapped(row[-1:], widths[-1]) if table.wrap else row[-1:]
        lines.append(_line([*row[:-1], texts[0]], widths, table))
        lines += [_line([""] * (len(row) - 1) + [text], widths, table) for text in texts[1:]]
    return lines


def _widths(cells: Sequence[Sequence[str]], columns: int, numbers: Container[int]) -> List[int]:
    """Natural column widths, the wide ones cut to a common width until a line fits.

    Texts are cut before numbers, of which a part would say something else.
    """
    widths = _natural_widths(cells)
    room = columns - len(_GAP) * (len(widths) - 1)
    texts = [place for place in range(len(widths)) if place not in numbers]
    for places, least in ((texts, _LEAST_TEXT), (list(range(len(widths))), _LEAST_COLUMN)):
        cap = max((widths[place] for place in places), default=0)
        while sum(widths) > room and cap > least:
            cap -= 1
            for place in places:
                widths[place] = min(widths[place], cap)
    return widths


def _line(row: Sequence[str], widths: Sequence[int], table: Table) -> str:
    cells = []
    for place, (cell, width) in enumerate(zip(row, widths)):
        text = _cut(cell, width)
        padding = " " * (width - display_width(text))
        cells.append(padding + text if place in table.right else text + padding)
    return _GAP.join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += _char_width(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + _CUT
