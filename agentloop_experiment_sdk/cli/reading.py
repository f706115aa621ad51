"""``show``, ``compare``, ``gate`` and ``report``: reading results directories, without network."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict, List

from ..errors import ConfigurationError
from ..lines import one_line
from . import exits, options, reports, verdict
from .console import Console
from .wording import in_options

if TYPE_CHECKING:
    from ..report.compare import CandidateComparison
    from ..report.summary import ExperimentResult
    from ..results.stored import ResultRow

_LISTED = 10
_SHOW = """\
agentloop-experiment show ./results
agentloop-experiment show ./results --failures
agentloop-experiment show ./results --item 17"""
_COMPARE = """\
agentloop-experiment compare ./results-v1 ./results-v2
agentloop-experiment compare baseline.json ./results --html comparison.html"""
_GATE = """\
agentloop-experiment gate ./results --min-success-rate 95% \\
    --baseline baseline.json --max-regressions 2"""
_REPORT = """\
agentloop-experiment report ./results --html report.html --junit junit.xml
agentloop-experiment report ./results --export-baseline baseline.json
agentloop-experiment report ./results-v1 ./results-v2 --markdown -"""


def add_commands(commands: Any) -> None:
    """Add the four commands."""
    show = options.add_command(
        commands, "show", _show, "summarise the results of a run", _SHOW, exits.HELP
    )
    show.add_argument("result_dir", metavar="DIR", help="a results directory")
    show.add_argument("--failures", action="store_true", help="also every failed or skipped row")
    show.add_argument("--item", metavar="ID", help="one row in full: its item id or task id")
    compare = options.add_command(
        commands, "compare", _compare, "compare two to five runs", _COMPARE, exits.HELP
    )
    _add_compared(compare)
    gate = options.add_command(
        commands, "gate", _gate, "decide whether a run is good enough", _GATE, exits.HELP
    )
    gate.add_argument("result_dir", metavar="DIR", help="a results directory")
    _add_gate(gate)
    report = options.add_command(
        commands, "report", _report, "write reports of a run or a comparison", _REPORT, exits.HELP
    )
    report.add_argument("runs", metavar="DIR", nargs="+", help="one run, or several to compare")
    reports.add_options(report)


def _add_compared(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+", help="results directories or baseline files")
    add(
        "--baseline", type=int, default=1, metavar="N", help="which RUN is the baseline; default: 1"
    )
    add("--name", action="append", metavar="TEXT", help="what to call each run, in order")
    add(
        "--lower-is-better",
        action="append",
        default=[],
        metavar="METRIC",
        help="may be given again; latency and tokens always are",
    )
    add("--diff", metavar="ITEM", help="also the difference of the answers to this item")
    reports.add_options(parser, of_one_run=False)


def _add_gate(parser: argparse.ArgumentParser) -> None:
    verdict.add_options(parser, optional=False)
    parser.set_defaults(gate=True)
    reports.add_options(parser)


def _show(given: argparse.Namespace, console: Console) -> int:
    from ..report.summary import load_result
    from ..report.text import render_text

    result = load_result(given.result_dir)
    rows: List[ResultRow] = []
    if given.item is not None:
        rows = [row for row in result if given.item in (row.label, row.task_id)]
        if not rows:
            raise ConfigurationError(_no_row(result, given.item))
    else:
        console.text(render_text(result, encoding=console.encoding))
        console.event("result", exit_code=exits.OK, **result.to_dict())
        rows = _not_answered(result) if given.failures else []
    for row in rows:
        _show_row(console, row, full=given.item is not None)
    return exits.OK


def _no_row(result: ExperimentResult, item: str) -> str:
    known = list(dict.fromkeys(head.label for head in result.heads))
    more = "" if len(known) <= _LISTED else " and {:,} more".format(len(known) - _LISTED)
    return "{} has no row {!r}; its items are {}{}.".format(
        result.path, item, ", ".join(map(repr, known[:_LISTED])) or "none", more
    )


def _not_answered(result: ExperimentResult) -> List[ResultRow]:
    return [row for row in result if row.status in ("failed", "skipped")]


def _show_row(console: Console, row: ResultRow, full: bool) -> None:
    from ..report.compare import answer_text

    facts = {
        "item": row.label,
        "task": row.task_id,
        "repeat": row.repeat_id,
        "status": row.status,
        "latency_ms": row.latency_ms,
        "trace_id": row.trace_id,
        "version": row.attempt.get("version"),
        "input": row.input,
        "ground_truth": row.ground_truth,
    }
    if full:
        facts["scores"] = {name: found.get("result") for name, found in row.evaluations.items()}
        facts["reasons"] = _reasons(row)
    console.event("row", **facts, output=row.output, error=row.error_message)
    console.text("")
    for name, value in facts.items():
        if name != "reasons" and value not in (None, "", {}):
            console.text("{:<13} {}".format(name, _shown(value, full)))
    for name, reason in _reasons(row).items() if full else ():
        console.text("{:<13} {}".format("reason", _shown("{}: {}".format(name, reason), full)))
    console.text("{:<13} {}".format("answer", _shown(answer_text(row), full)))


def _reasons(row: ResultRow) -> Dict[str, str]:
    """What the evaluators say of their scores, by metric."""
    said = {name: found.get("message") for name, found in row.evaluations.items()}
    return {name: str(message) for name, message in said.items() if message}


def _shown(value: Any, full: bool) -> str:
    """A value for a terminal: what an agent wrote must not steer it."""
    from .. import jsontext

    text = value if isinstance(value, str) else jsontext.dumps(value)
    if not full and len(text) > 500:
        text = text[:500] + "\u2026"
    return ("\n" + " " * 14).join(map(one_line, text.splitlines() or [""]))


def _compare(given: argparse.Namespace, console: Console) -> int:
    from ..report.compare import compare
    from ..report.text import render_text

    reports.check_places(given, console)
    if not 1 <= given.baseline <= len(given.runs):
        raise ConfigurationError("--baseline counts the runs from 1 to {}.".format(len(given.runs)))
    comparison = compare(
        given.runs,
        given.baseline - 1,
        names=given.name,
        lower_is_better=given.lower_is_better,
    )
    console.text(render_text(comparison, encoding=console.encoding))
    for candidate in comparison if given.diff is not None else ():
        _show_diff(console, candidate, given.diff)
    _write(given, console, comparison)
    console.event("result", exit_code=exits.OK, **comparison.to_dict())
    return exits.OK


def _show_diff(console: Console, candidate: CandidateComparison, item: str) -> None:
    diff = candidate.diff(item)
    told = diff or "{}: the answer to {!r} is the same.".format(candidate.name, item)
    console.text("\n" + "\n".join(map(one_line, told.splitlines())))
    console.event("diff", item=item, name=candidate.name, diff=diff)


def _gate(given: argparse.Namespace, console: Console) -> int:
    from ..report.summary import load_result
    from ..report.text import render_text

    reports.check_places(given, console)
    gate = verdict.GateOptions(given, always=True)
    result = load_result(given.result_dir)
    judged = gate.judge(result)
    assert judged is not None
    code = gate.exit_code(result, judged)
    console.text(in_options(render_text(judged, encoding=console.encoding)))
    _write(given, console, result, judged)
    console.event("result", exit_code=code, **judged.to_dict())
    return code


def _report(given: argparse.Namespace, console: Console) -> int:
    from ..report.compare import compare
    from ..report.summary import load_result

    if all(getattr(given, name) is None for name in reports.OPTIONS):
        raise ConfigurationError(
            "Say what to write: --html, --junit, --markdown, --report-json or --export-baseline."
        )
    reports.check_places(given, console)
    one = len(given.runs) == 1
    subject: Any = load_result(given.runs[0]) if one else compare(given.runs)
    written = _write(given, console, subject)
    console.event("result", exit_code=exits.OK, written=written)
    return exits.OK


def _write(
    given: argparse.Namespace, console: Console, subject: Any, judged: Any = None
) -> List[str]:
    written = reports.write_reports(given, console, subject, judged)
    for path in written:
        console.note("wrote {}".format(path))
    return written
