"""One self-contained HTML file per run or comparison: nothing is loaded, nothing is sent.

The summary is plain markup and paints at once. The rows follow as JSON: an index, from which the
page's script draws only the rows in view, and the payloads in chunks that are parsed when a row is
opened. A content security policy names the page's own script by hash and forbids everything else,
and the script writes agents' texts as text nodes only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import pkgutil
import time
import uuid
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from ..arguments import check_count, path_of
from ..errors import ConfigurationError
from ..results import layout
from . import cards, pagedata
from .compare import Comparison
from .gate import GateResult
from .sections import Section, Table, markup
from .summary import ExperimentResult, PathLike

Page = Union[ExperimentResult, Comparison, GateResult]


def render_html(subject: Page, *, max_chars: int = pagedata.MAX_CHARS) -> str:
    """A result, comparison or gate verdict as one self-contained HTML page.

    Args:
        subject: What to render; the page of a gate's verdict is that of its run, with the verdict
            at the top and what changed against the baseline.
        max_chars: Most characters of one value; longer ones end with a note where the whole is.

    Raises:
        ConfigurationError: An argument is something else.
    """
    return "".join(html_parts(subject, max_chars))


def write_html(subject: Page, path: PathLike, *, max_chars: int = pagedata.MAX_CHARS) -> None:
    """Write a result, comparison or verdict to ``path`` as one self-contained HTML page.

    It is written part by part: memory holds no more than a chunk of rows.

    Args:
        subject: What to render, as for ``render_html``.
        path: The file to write; replaced atomically.
        max_chars: Most characters of one value; longer ones end with a note where the whole is.

    Raises:
        ConfigurationError: An argument is something else.
        OSError: The file cannot be written.
    """
    target = path_of("path", path)
    layout.check_target(target)
    parts = html_parts(subject, max_chars)
    # a name that nobody knows beforehand: in a folder that others write to it could be a link
    temporary = "{}.{}.tmp".format(target, uuid.uuid4().hex)
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
        layout.replace_with_retry(temporary, target, time.sleep)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def html_parts(subject: Page, max_chars: int = pagedata.MAX_CHARS) -> Iterator[str]:
    """The page in order, as pieces of text."""
    check_count("max_chars", max_chars, 1)
    if isinstance(subject, Comparison):
        return _parts(
            subject,
            pagedata.comparison_index(subject),
            pagedata.comparison_payloads(subject, max_chars),
        )
    verdict = subject if isinstance(subject, GateResult) else None
    result = subject if verdict is None else verdict.result
    if not isinstance(result, ExperimentResult):
        raise ConfigurationError(
            "An HTML report shows a result, a comparison or a gate's verdict, not {}.".format(
                type(subject).__name__
            )
        )
    index = pagedata.result_index(result, None if verdict is None else verdict.comparison)
    return _parts(result, index, pagedata.result_payloads(result, max_chars), verdict)


def _parts(
    subject: cards.Page,
    index: Dict[str, Any],
    payloads: Iterable[List[Any]],
    verdict: Optional[GateResult] = None,
) -> Iterator[str]:
    style, script = _asset("report.css"), _asset("report.js")
    sections = subject.sections()
    yield _HEAD.format(policy=_policy(style, script), title=markup(sections[0].title), style=style)
    yield '<header class="top"><div><p class="eyebrow">{}</p><h1>{}</h1>{}</div>{}</header>'.format(
        "AgentLoop experiment" if index["kind"] == "result" else "AgentLoop comparison",
        markup(sections[0].title),
        cards.facts(subject),
        _THEME_BUTTON,
    )
    if verdict is not None:
        yield _verdict(verdict)
    yield cards.cards(subject)
    yield '<section class="panels">{}{}</section>'.format(
        cards.charts(subject), "".join(map(_section, _tables(sections[1:])))
    )
    yield _explorer(index)
    yield _data("index", index)
    yield "<script>{}</script>\n".format(script)
    for number, chunk in enumerate(payloads):
        yield _data("chunk-{}".format(number), chunk)
    yield "</body></html>\n"


def _verdict(verdict: GateResult) -> str:
    """The gate's verdict, its reasons and checks, and what changed against the baseline."""
    headline, *rest = verdict.sections()
    reasons = "".join("<li>{}</li>".format(markup(reason)) for reason in verdict.reasons)
    return (
        '<section class="gate {}"><h2>{}</h2>{}</section><section class="panels gate-panels">{}'
        "</section>"
    ).format(
        "good" if verdict.passed else "bad",
        markup(headline.title),
        "<ul>{}</ul>".format(reasons) if reasons else "",
        "".join(map(_section, rest)),
    )


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style></head>
<body>
"""

_THEME_BUTTON = (
    '<button id="theme" class="ghost" type="button" title="Light or dark" '
    'aria-label="Switch between light and dark">\u25d0</button>'
)


def _policy(style: str, script: str) -> str:
    """Only this style and this script; no request to anywhere.

    Source: W3C Content Security Policy Level 3, hash sources.
    """
    return (
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; "
        "form-action 'none'"
    ).format(_sha256(style), _sha256(script))


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    """A file of the package, with the line ends that the page's hashes are taken over."""
    data = pkgutil.get_data(__package__, "assets/" + name)
    if data is None:  # only a loader that keeps no data files answers so
        raise ConfigurationError("The package lacks its file report/assets/{}.".format(name))
    return data.decode("utf-8").replace("\r\n", "\n")


def _data(name: str, value: Any) -> str:
    return '<script type="application/json" id="{}">{}</script>\n'.format(
        name, pagedata.script_json(value)
    )


_ON_CARDS = ("Measures", "Scores")


def _tables(sections: Iterable[Section]) -> Iterator[Section]:
    """The sections that the cards do not already tell."""
    return (section for section in sections if section.title not in _ON_CARDS)


def _section(section: Section) -> str:
    if section.table is None:
        head = "h2" if section.level == 2 else "h3"
        return '<div class="full"><{0}>{1}</{0}><p class="note">{2}</p></div>'.format(
            head, markup(section.title), markup(". ".join(section.lines))
        )
    lines = "".join('<p class="note">{}</p>'.format(markup(line)) for line in section.lines)
    width = "wide" if section.level == 2 or len(section.table.header) == 3 else "full"
    return '<section class="panel {}"><h3>{}</h3>{}{}</section>'.format(
        width, markup(section.title), _table(section.table), lines
    )


def _table(table: Table) -> str:
    head = "".join(map(_cell, _cells("th", table.header, table)))
    rows = "".join(
        "<tr>{}</tr>".format("".join(map(_cell, _cells("td", row, table)))) for row in table.rows
    )
    return (
        '<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, rows)


# so few characters stay on one line
_SHORT = 26
_VERDICTS = {
    "worse": "bad",
    "better": "good",
    "no evidence": "none",
    "FAIL": "bad",
    "pass": "good",
}


def _cells(tag: str, texts: Tuple[str, ...], table: Table) -> Iterator[Tuple[str, str, str]]:
    for place, text in enumerate(texts):
        kind = "right" if place in table.right else "short" if len(text) <= _SHORT else ""
        if tag == "td" and text in _VERDICTS:
            kind = "verdict " + _VERDICTS[text]
        yield (tag, kind, text)


def _cell(cell: Tuple[str, str, str]) -> str:
    tag, kind, text = cell
    attribute = ' class="{}"'.format(kind) if kind else ""
    return "<{0}{1}>{2}</{0}>".format(tag, attribute, markup(text))


def _explorer(index: Dict[str, Any]) -> str:
    noun = "rows" if index["kind"] == "result" else "items"
    return _EXPLORER.format(count="{:,}".format(len(index["rows"])), noun=noun)


_EXPLORER = """
<section class="explorer" id="explorer">
<div class="bar"><h2>{count} {noun}</h2>
<input id="search" type="search" placeholder="Search in everything" aria-label="Search"
 autocomplete="off" spellcheck="false">
<div id="filters" class="filters"></div><span id="shown" class="note"></span></div>
<div id="grid" class="grid" role="table" tabindex="0" aria-label="{noun}">
<div id="grid-head" class="grid-head" role="row"></div>
<div id="grid-body" class="grid-body"></div></div>
<noscript><p class="note">The rows need JavaScript; the summary above does not.</p></noscript>
</section>
<aside id="detail" class="detail" hidden aria-label="Row details"></aside>
"""
