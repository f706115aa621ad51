"""Options that several commands share."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Tuple, Union

from .console import LOG_LEVELS
from .executors import FORMS

CLOUD_EPILOG = """\
environment
  AGENTLOOP_SPACE, AGENTLOOP_PLAN_ID, AGENTLOOP_REGION, AGENTLOOP_PROJECT, AGENTLOOP_ENDPOINT,
  AGENTLOOP_SLS_ENDPOINT stand for the options of these names
  AGENTLOOP_AK, AGENTLOOP_SK, AGENTLOOP_SECURITY_TOKEN are the keys; without them those of Alibaba
  Cloud: ALIBABA_CLOUD_ACCESS_KEY_ID, …_SECRET, …_SECURITY_TOKEN, ALIBABA_CLOUD_PROFILE and so on"""

Command = Callable[..., int]


def add_command(
    commands: Any,
    name: str,
    run: Command,
    help: str,
    example: str,
    epilog: str = "",
    usage: str = "",
) -> Any:
    """A parser for one command; its help has an example. ``usage`` is what follows its name."""
    parser = commands.add_parser(
        name,
        usage="%(prog)s " + usage if usage else None,
        help=help,
        description=help[:1].upper() + help[1:] + ".",
        epilog="\n\n".join(
            part for part in ("example:\n  " + example.replace("\n", "\n  "), epilog) if part
        ),
    )
    parser.set_defaults(command=run)
    output = parser.add_argument_group("output").add_argument
    output("--json", action="store_true", help="JSON lines on stdout, everything else on stderr")
    output("--log-level", choices=LOG_LEVELS, default="info", help="default: info")
    return parser


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Region, agent space, endpoints and keys."""
    add = parser.add_argument_group("AgentLoop").add_argument
    add("--space", help="the agent space")
    add("--region", help="such as cn-hangzhou")
    add("--agentloop-endpoint", metavar="URL", help="default: the region's own")
    add("--sls-endpoint", metavar="URL", help="default: the region's own")
    add("--access-key-id", metavar="ID", help="default: from the environment")
    add(
        "--access-key-secret",
        metavar="SECRET",
        help="others on this machine can read it in the list of processes: prefer AGENTLOOP_SK",
    )
    add("--security-token", metavar="TOKEN", help="of temporary keys")


def add_plan(parser: argparse.ArgumentParser) -> None:
    """The plan and how its dataset is read."""
    add = parser.add_argument_group("plan").add_argument
    add("--plan", metavar="ID", help="the experiment plan")
    add("--project", help="the SLS project; default: that of the agent space")
    add(
        "--max-rows",
        type=int,
        metavar="N",
        help="most rows to load; default: 1000, with --local all",
    )
    add("--ground-truth-field", metavar="COLUMN", help="the column with the expected answer")
    add("--experiment-name", metavar="NAME", help="default: experimentA")
    add(
        "--local",
        metavar="FILE",
        help="a .jsonl or .csv file instead of a plan: the run gets an AgentLoop of its own on "
        "this machine, and no account is needed",
    )


def add_rows(parser: argparse.ArgumentParser, limit: str) -> None:
    """Which rows to run; ``limit`` says what ``--limit`` does."""
    add = parser.add_argument_group("rows").add_argument
    add("--limit", type=int, metavar="N", help=limit)
    add("--item-id", action="append", metavar="ID", help="only this row; may be given again")


def workers(text: str) -> Union[int, str, Tuple[int, int]]:
    """``8``, ``auto`` or ``4-32``, as ``n_workers`` takes them."""
    if text == "auto":
        return text
    fewest, dash, most = text.partition("-")
    try:
        return (int(fewest), int(most)) if dash and fewest else int(text)
    except ValueError as error:
        message = "{!r} is no number, no range such as 4-32, and not auto".format(text)
        raise argparse.ArgumentTypeError(message) from error


def _add_workers(add: Any) -> None:
    add(
        "--n-workers",
        type=workers,
        metavar="N",
        help="rows at once; default: 4. auto, or a range such as 4-32, finds out how many the "
        "agent bears",
    )
    add("--max-rps", type=float, metavar="N", help="start at most N rows a second")
    add(
        "--executor",
        metavar="WHERE",
        help="run the rows elsewhere: {}; its size then counts".format(FORMS),
    )


def add_execution(parser: argparse.ArgumentParser) -> None:
    """How the rows are run."""
    add = parser.add_argument_group("execution").add_argument
    add("--n-repeat", type=int, metavar="N", help="run each row N times; default: 1")
    _add_workers(add)
    add("--serial", action="store_true", help="one row after the other, in the main thread")
    add("--task-timeout", type=float, metavar="SECONDS", help="a row fails after this time")
    add("--row-retries", type=int, default=0, metavar="N", help="try failed rows again")
    add("--retry-failed", action="store_true", help="run rows again that failed in earlier runs")
    add("--max-failures", metavar="N", help="end the run when more rows than N, or N%%, failed")
    add(
        "--stop-if-first",
        type=int,
        metavar="N",
        help="end the run when its first N rows all failed alike",
    )
    add("--evaluator", action="append", metavar="NAME", help="scores each row; see below")
    add("--version", metavar="TEXT", help="what is being tested, such as a commit")
    add(
        "--parameter",
        action="append",
        metavar="KEY=VALUE",
        help="kept with the results and given to the agent; may be given again",
    )
    add(
        "--on-undelivered",
        choices=("complete", "hold"),
        default="complete",
        help="when rows cannot be delivered: complete the record (default), or leave it running "
        "until deliver has sent them",
    )
    add(
        "--drain-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="go on so long at the end while SLS accepts nothing; default: 300",
    )
    add(
        "--progress",
        choices=("auto", "bar", "log", "none"),
        default="auto",
        help="auto: a bar on a terminal (extra [progress]), else log lines",
    )
