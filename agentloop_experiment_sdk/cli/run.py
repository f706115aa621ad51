"""``run``, ``resume`` and ``check``: an experiment from the command line."""

from __future__ import annotations

import argparse
import contextlib
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Tuple

from ..api import Experiment
from ..errors import ExperimentError, ResumeError, RunAbortedError
from ..lines import counted
from . import evaluators, exits, options, reports, settings, signals, solutions, verdict
from .console import Console
from .executors import executor_of
from .wording import in_options

if TYPE_CHECKING:
    from ..report.summary import ExperimentResult

logger = logging.getLogger(__name__)

_EPILOG = "\n\n".join((solutions.EPILOG, evaluators.EPILOG, options.CLOUD_EPILOG, exits.HELP))
_LIMIT = "only the first N rows, as the file of --local or the plan orders them, else by id"
_USAGE = "[options] (SOLUTION | --http URL | --command ARGV…)"
_RUN = """\
agentloop-experiment run agent.py:answer --local questions.jsonl \\
    --ground-truth-field answer --evaluator exact_match
agentloop-experiment run --http http://localhost:8000/chat --body-field message={question} \\
    --space my-space --plan exp-plan-1 --region cn-hangzhou \\
    --baseline baseline.json --max-regressions 2 --min-success-rate 95% --html report.html"""
_RESUME = """\
agentloop-experiment resume ./results agent.py:answer"""
_CHECK = """\
agentloop-experiment check agent.py:answer --space my-space --plan exp-plan-1 \\
    --region cn-hangzhou --limit 1"""


def add_commands(commands: Any) -> None:
    """Add the three commands."""
    run = options.add_command(
        commands, "run", _run, "run an agent over a plan's dataset", _RUN, _EPILOG, _USAGE
    )
    _add_experiment(run)
    _add_directory(run)
    resume = options.add_command(
        commands,
        "resume",
        _resume,
        "go on with the experiment of a results directory",
        _RESUME,
        "Plan, repeats, version and parameters are those of the directory; give --limit, "
        "--item-id,\n--ground-truth-field and --evaluator again if the run had them.\n\n" + _EPILOG,
        "DIR " + _USAGE,
    )
    resume.add_argument("result_dir", metavar="DIR", help="the results directory")
    resume.set_defaults(resume=True, resuming=True)
    _add_experiment(resume)
    check = options.add_command(
        commands,
        "check",
        _check,
        "ask for everything a run needs, creating no record",
        _CHECK,
        "Takes every option of run, so that a command can be checked as it will be run.\n\n"
        + _EPILOG,
        _USAGE,
    )
    _add_experiment(check, limit=_LIMIT + "; the agent is called for them")
    _add_directory(check)


def _add_experiment(parser: argparse.ArgumentParser, limit: str = _LIMIT) -> None:
    solutions.add_options(parser)
    options.add_plan(parser)
    options.add_connection(parser)
    options.add_rows(parser, limit)
    options.add_execution(parser)
    verdict.add_options(parser, optional=True)
    reports.add_options(parser)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument(
        "--result-dir", default="./results", metavar="DIR", help="default: ./results"
    )
    resume = group.add_mutually_exclusive_group()
    resume.add_argument(
        "--resume",
        action="store_true",
        default=None,
        help="go on with the earlier run in DIR, or fail; by default a run of the same plan goes "
        "on, and any other is moved to DIR/history",
    )
    resume.add_argument(
        "--no-resume", dest="resume", action="store_false", help="start afresh in any case"
    )


def _run(given: argparse.Namespace, console: Console) -> int:
    return _execute(given, console, {})


def _resume(given: argparse.Namespace, console: Console) -> int:
    from ..report.summary import load_result

    meta = load_result(given.result_dir).meta
    if not meta.get("identity"):
        raise ResumeError("{} holds no run that can be continued.".format(given.result_dir))
    if meta.get("evaluators") and not given.evaluator:
        logger.warning(
            "The run was scored by %s; without --evaluator its new rows get no score.",
            ", ".join(map(str, meta["evaluators"])),
        )
    return _execute(given, console, meta)


@contextlib.contextmanager
def _prepared(
    given: argparse.Namespace, console: Console, meta: Mapping[str, Any]
) -> Iterator[Tuple[Experiment, verdict.GateOptions]]:
    """The experiment and the gate behind it, once all options are known to be usable."""
    solution = solutions.solution_of(given)
    arguments = settings.experiment_options(given, meta)
    arguments["on_event"] = _teller(console)
    gate = verdict.GateOptions(given)
    earlier = None if given.resume is False else given.result_dir
    gate.check_metrics(arguments["evaluators"], earlier)
    reports.check_places(given, console)
    with executor_of(given.executor, solution) as executor, settings.config_of_run(
        given, meta
    ) as config:
        arguments["executor"] = executor
        yield Experiment(config, solution, given.result_dir, **arguments), gate


def _execute(given: argparse.Namespace, console: Console, meta: Mapping[str, Any]) -> int:
    with _prepared(given, console, meta) as (experiment, gate):
        try:
            with signals.stopped_by_signals(experiment.stop):
                result = experiment.run()
        except RunAbortedError as error:
            return _aborted(given, console, error)
        except KeyboardInterrupt:
            console.note(_how_to_go_on(given))
            raise
    return _conclude(given, console, result, gate)


def _conclude(
    given: argparse.Namespace,
    console: Console,
    result: ExperimentResult,
    gate: verdict.GateOptions,
) -> int:
    from ..report.text import render_text

    judged = gate.judge(result)
    code = gate.exit_code(result, judged)
    console.text(render_text(result, encoding=console.encoding))
    if judged is not None:
        console.text("\n" + in_options(render_text(judged, encoding=console.encoding)))
    written = reports.write_reports(given, console, result, judged)
    places = ["\nresults in {}".format(result.path), *map("wrote {}".format, written)]
    console.text("\n".join(places))
    remark = gate.remark(result, judged)
    if remark:
        console.note(remark)
    if gate.is_incomplete(result, judged):
        left = counted(result.counts.incomplete, "row", "has", "have")
        console.note(
            "error: IncompleteRun: {} no result. {} --allow-incomplete lets such a run "
            "pass.".format(left, _how_to_go_on(given))
        )
    console.event(
        "result", exit_code=code, result_dir=result.path, **reports.report_dict(result, judged)
    )
    return code


def _aborted(given: argparse.Namespace, console: Console, error: RunAbortedError) -> int:
    """A run that its own limits ended: what is done is still worth a report."""
    from ..report.summary import load_result
    from ..report.text import render_text

    code = exits.exit_code_of(error)
    result = load_result(given.result_dir)
    console.text(render_text(result, encoding=console.encoding))
    reports.write_reports(given, console, result)
    console.event("result", exit_code=code, result_dir=result.path, **result.to_dict())
    console.error(error, code)
    return code


def _how_to_go_on(given: argparse.Namespace) -> str:
    from ..report.summary import load_result

    try:
        counts = load_result(given.result_dir).counts
    except ExperimentError:
        return "Nothing was written yet; run the same command again."
    return "{} of {} done; {}.".format(
        counts.succeeded + counts.failed + counts.skipped,
        counted(counts.total, "row", "is", "are"),
        "run the same command without --no-resume to go on"
        if given.resume is False
        else "run the same command again to go on",
    )


def _check(given: argparse.Namespace, console: Console) -> int:
    with _prepared(given, console, {}) as (experiment, _):
        report = experiment.check(given.limit)
    console.text(in_options(str(report)))
    for item in report:
        console.event("check", name=item.name, ok=item.ok, message=in_options(item.message))
    code = exits.OK if report else _code_of_check(report)
    console.event("result", exit_code=code, ok=report.ok)
    return code


def _code_of_check(report: Any) -> int:
    """What the failed checks come to; an agent that does not answer is not a setting."""
    codes = {
        exits.INFRASTRUCTURE if item.name == "agent" else exits.exit_code_of(item.error)
        for item in report.failed
    }
    return max(codes)


_EVENTS = {
    "RecordCreated": "record_created",
    "AttemptDone": "attempt_done",
    "RowsDelivered": "rows_delivered",
    "LimitChanged": "limit_changed",
    "Progress": "progress",
    "RunFinished": "run_finished",
}


def _teller(console: Console) -> Optional[Callable[[Any], None]]:
    """Tells the run's events as JSON lines."""
    if not console.json_lines:
        return None
    return lambda event: console.event(_EVENTS[type(event).__name__], **asdict(event))
