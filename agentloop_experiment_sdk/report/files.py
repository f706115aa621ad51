"""Writing a report to a file, in the format that the file's name asks for."""

from __future__ import annotations

import os
from typing import Any

from ..arguments import path_of
from ..errors import ConfigurationError
from ..results import layout
from .arguments import no_subject
from .compare import Comparison
from .gate import GateResult
from .html import write_html
from .jsonreport import render_json
from .junit import render_junit
from .markdown import render_markdown
from .summary import ExperimentResult, PathLike
from .text import render_text

_RENDER = {
    ".json": render_json,
    ".md": render_markdown,
    ".txt": lambda subject: render_text(subject, width=100),
    ".xml": render_junit,
}


def write_report(subject: Any, path: PathLike) -> None:
    """Write a report on a result, comparison or gate verdict; an existing file is replaced.

    Args:
        subject: What to report on.
        path: The file; ``.html`` gives the page, ``.md`` Markdown, ``.json`` JSON, ``.xml`` JUnit
            XML and ``.txt`` plain text.

    Raises:
        ConfigurationError: The name ends otherwise, or the subject is something else.
        OSError: The file cannot be written.
    """
    if not isinstance(subject, (ExperimentResult, Comparison, GateResult)):
        raise no_subject(subject)
    target = path_of("path", path)
    kind = os.path.splitext(target)[1].lower()
    if kind in (".html", ".htm"):
        write_html(subject, target)
    elif kind in _RENDER:
        layout.check_target(target)
        layout.write_atomically(target, _RENDER[kind](subject).encode("utf-8"))
    else:
        raise ConfigurationError(
            "A report ends in .html, .md, .json, .xml or .txt, not {!r}.".format(kind or target)
        )
