"""The reports as GitHub-flavoured Markdown, such as a job's step summary."""

from __future__ import annotations

import re
from typing import List, Sequence

from ..arguments import check_count
from ..lines import one_line
from .arguments import check_subject
from .sections import Section, Subject, Table

# A step summary may hold 1 MiB; GitHub drops a larger one whole.
# Source: GitHub Docs, "Workflow commands for GitHub Actions", adding a job summary.
MAX_BYTES = 1024 * 1024

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@$&:-])")
_CUT = "\n\n_The report was cut here: it is longer than fits._\n"


def render_markdown(subject: Subject, *, max_bytes: int = MAX_BYTES) -> str:
    """A result, comparison or gate verdict as Markdown.

    Agents' texts are escaped: they can neither form links, images, mentions nor HTML.

    Args:
        subject: What to render.
        max_bytes: Most bytes of UTF-8; whole sections are left out at the end to fit. The default
            fits a GitHub step summary.

    Raises:
        ConfigurationError: An argument is something else.
    """
    check_subject(subject)
    check_count("max_bytes", max_bytes, 1)
    parts: List[str] = []
    room = max_bytes - len(_CUT)
    for section in subject.sections():
        part = _section(section)
        room -= len(part.encode("utf-8"))
        if room < 0:
            return "".join(parts) + _CUT
        parts.append(part)
    return "".join(parts)


def escape(text: str) -> str:
    """``text`` with every character escaped that Markdown or HTML could read as markup.

    Source: CommonMark 0.31, section 2.4 (backslash escapes).
    """
    escaped = _SPECIAL.sub(r"\\\1", one_line(text))
    # GitHub reads mentions through a backslash; entities it does not
    return escaped.replace("\\@", "&#64;").replace("\\&", "&amp;").replace("\\<", "&lt;")


def _section(section: Section) -> str:
    lines = ["{} {}".format("#" * (section.level + 1), escape(section.title)), ""]
    for line in section.lines:
        lines += [escape(line), ""]
    if section.table is not None:
        lines += _table(section.table) + [""]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> List[str]:
    rules = ["---:" if place in table.right else "---" for place in range(len(table.header))]
    lines = [_row(table.header), "| {} |".format(" | ".join(rules))]
    return lines + [_row([_cell(cell) for cell in row]) for row in table.rows]


def _cell(text: str) -> str:
    marks = {"FAIL": "\u274c", "pass": "\u2705", "worse": "\u274c worse", "better": "\u2705 better"}
    return marks[text] if text in marks else escape(text)


def _row(cells: Sequence[str]) -> str:
    return "| {} |".format(" | ".join(cells))
