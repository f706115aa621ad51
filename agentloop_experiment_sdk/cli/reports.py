"""The report files that a command is asked to write."""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, List, Optional

from ..errors import ConfigurationError
from .console import Console, printable_json

OPTIONS = ("html", "junit", "markdown", "report_json", "export_baseline")
_STDOUT = "-"
_ON_STDOUT = ("junit", "markdown", "report_json")  # a page is for a browser, a baseline is kept


def add_options(parser: argparse.ArgumentParser, *, of_one_run: bool = True) -> None:
    """The options that name report files; only a run (``of_one_run``) can become a baseline."""
    title = "reports (- is stdout for --junit, --markdown and --report-json)"
    add = parser.add_argument_group(title).add_argument
    add("--html", metavar="FILE", help="one self-contained page")
    add("--junit", metavar="FILE", help="JUnit XML, one test case a row")
    add(
        "--markdown",
        metavar="FILE",
        help="is appended to the file in $GITHUB_STEP_SUMMARY, else the file is replaced",
    )
    add("--report-json", metavar="FILE", help="the numbers, and the gate's verdict")
    if of_one_run:
        add(
            "--export-baseline", metavar="FILE", help="what later runs are gated against: commit it"
        )
    else:
        parser.set_defaults(export_baseline=None)


def check_places(options: argparse.Namespace, console: Console) -> None:
    """Refuse a file that could not be written after hours of running.

    Raises:
        ConfigurationError: The file's folder does not exist, it is a folder itself, stdout is not
            free for it, or it cannot be written of several runs.
    """
    if options.export_baseline is not None and len(getattr(options, "runs", ())) > 1:
        raise ConfigurationError("--export-baseline needs one run, not a comparison.")
    given = {name: getattr(options, name) for name in OPTIONS}
    for name, path in given.items():
        if path is not None and not _is_usable(name, path):
            raise ConfigurationError(
                "--{} {} cannot be written: {}.".format(
                    name.replace("_", "-"),
                    path,
                    "stdout (-) takes --junit, --markdown and --report-json; name a file"
                    if path == _STDOUT
                    else "it needs a file name in a folder that exists",
                )
            )
    files = [os.path.realpath(path) for path in given.values() if path not in (None, _STDOUT)]
    if len(set(files)) < len(files):
        raise ConfigurationError("Two reports cannot be written to the same file.")
    on_stdout = [name for name, path in given.items() if path == _STDOUT]
    if len(on_stdout) > 1 or (on_stdout and options.json):
        raise ConfigurationError(
            "Only one report can go to stdout (-), and none together with --json."
        )
    if on_stdout:
        console.divert()


def _is_usable(name: str, path: str) -> bool:
    if path == _STDOUT:
        return name in _ON_STDOUT
    folder = os.path.dirname(os.path.abspath(path))
    return bool(path) and os.path.isdir(folder) and not os.path.isdir(path)


def write_reports(
    options: argparse.Namespace, console: Console, subject: Any, verdict: Optional[Any] = None
) -> List[str]:
    """Write every report that was asked for; returns the files.

    Args:
        options: The parsed options.
        console: For reports that go to stdout.
        subject: A result or a comparison.
        verdict: The gate's verdict on the result, if there was a gate.
    """
    written: List[str] = []
    for name, write in _WRITERS.items():
        path = getattr(options, name)
        if path is not None:
            write(path, console, subject, verdict)
            written.append(path)
    return [path for path in written if path != _STDOUT]


def _html(path: str, console: Console, subject: Any, verdict: Any) -> None:
    from ..report.html import write_html

    write_html(subject if verdict is None else verdict, path)


def _junit(path: str, console: Console, subject: Any, verdict: Any) -> None:
    from ..report.junit import render_junit
    from ..report.measures import PASS_FAIL
    from ..report.summary import ExperimentResult

    metrics: List[str] = []
    if isinstance(subject, ExperimentResult):
        metrics = [name for name, found in subject.metrics.items() if found.kind == PASS_FAIL]
    _put(path, render_junit(subject, metrics=metrics), console)


def _markdown(path: str, console: Console, subject: Any, verdict: Any) -> None:
    from ..report.markdown import render_markdown

    text = render_markdown(subject)
    if verdict is not None:
        text = "{}\n{}".format(render_markdown(verdict), text)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    _put(path, text, console, append=bool(summary) and path == summary)


def _report_json(path: str, console: Console, subject: Any, verdict: Any) -> None:
    _put(path, _json_text(report_dict(subject, verdict)), console)


def _export_baseline(path: str, console: Console, subject: Any, verdict: Any) -> None:
    from ..report.baseline import export_baseline

    export_baseline(subject, path)


_WRITERS: Dict[str, Any] = {
    "html": _html,
    "junit": _junit,
    "markdown": _markdown,
    "report_json": _report_json,
    "export_baseline": _export_baseline,
}


def report_dict(subject: Any, verdict: Optional[Any]) -> Dict[str, Any]:
    """A result or comparison as plain JSON values, with the verdict of a gate if there was one."""
    found: Dict[str, Any] = subject.to_dict()
    return found if verdict is None else dict(found, gate=verdict.to_dict())


def _json_text(value: Any) -> str:
    from .. import jsontext

    return printable_json(jsontext.dumps(value, 2)) + "\n"


def _put(path: str, text: str, console: Console, append: bool = False) -> None:
    if path == _STDOUT:
        console.raw(text)
        return
    with open(path, "a" if append else "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
