"""What a notebook shows of a result or comparison: a fragment without script or style sheet."""

from __future__ import annotations

from typing import Iterable

from .sections import Section, Table, markup

_CELL = "text-align:{};padding:2px 12px 2px 0;vertical-align:top"


def fragment(sections: Iterable[Section]) -> str:
    """A report's sections as an HTML fragment."""
    return "<div>{}</div>".format("".join(map(_section, sections)))


def _section(section: Section) -> str:
    size = {1: "h3", 2: "h4"}.get(section.level, "h5")
    lines = "".join("<div>{}</div>".format(markup(line)) for line in section.lines)
    table = "" if section.table is None else _table(section.table)
    return "<{0}>{1}</{0}>{2}{3}".format(size, markup(section.title), lines, table)


def _table(table: Table) -> str:
    rows = [("th", table.header)] + [("td", row) for row in table.rows]
    lines = []
    for tag, row in rows:
        cells = (
            '<{0} style="{1}">{2}</{0}>'.format(
                tag, _CELL.format("right" if place in table.right else "left"), markup(text)
            )
            for place, text in enumerate(row)
        )
        lines.append("<tr>{}</tr>".format("".join(cells)))
    return "<table>{}</table>".format("".join(lines))
