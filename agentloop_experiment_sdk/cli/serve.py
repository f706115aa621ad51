"""``serve``: an AgentLoop and SLS on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import shlex
import threading
from typing import TYPE_CHECKING, Any, Dict

from ..errors import ConfigurationError
from . import exits, options
from .console import Console
from .embedded import check_dataset, dataset_name, load_plan

if TYPE_CHECKING:
    from ..local import LocalAgentLoop

_EXAMPLE = """\
agentloop-experiment serve --dataset questions.jsonl --port 8801 --store agentloop.sqlite"""


def add_commands(commands: Any) -> None:
    """Add the command."""
    serve = options.add_command(
        commands,
        "serve",
        _serve,
        "serve an AgentLoop and SLS on 127.0.0.1 until Ctrl-C",
        _EXAMPLE,
        "Prints the variables that point this and other programs at it. Ctrl-C and SIGTERM end it\n"
        "with exit code 0.\n\n" + exits.HELP,
    )
    add = serve.add_argument
    add("--port", type=int, default=0, metavar="N", help="default: any free one")
    add("--store", metavar="FILE", help="keep the data in this file; default: memory")
    add(
        "--dataset",
        action="append",
        default=[],
        metavar="FILE",
        help="a .jsonl or .csv file to make a plan for; may be given again",
    )


def _serve(given: argparse.Namespace, console: Console) -> int:
    local = _start(given)
    try:
        plans = _load(local, given)
        _announce(local, plans, console)
        _wait()
    except KeyboardInterrupt:
        console.note("ended")
    finally:
        local.close()
    return exits.OK


def _wait() -> None:
    """Until a signal raises; in slices, so that Ctrl-C is seen on every platform."""
    while not threading.Event().wait(1.0):
        pass


def _start(given: argparse.Namespace) -> LocalAgentLoop:
    import sqlite3

    from ..local import LocalAgentLoop

    if not 0 <= given.port <= 65535:
        raise ConfigurationError("--port must be 0 to 65535, not {}.".format(given.port))
    names = list(map(dataset_name, given.dataset))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigurationError(
            "Two files of --dataset are called {!r}: rename one, or it would take the other's "
            "place.".format(twice[0])
        )
    for path in given.dataset:
        check_dataset(path)
    try:
        return LocalAgentLoop(given.store, port=given.port).start()
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(
            "It cannot be served on port {}{}: {}.".format(
                given.port, " from " + given.store if given.store else "", error
            )
        ) from error


def _load(local: LocalAgentLoop, given: argparse.Namespace) -> Dict[str, str]:
    return {os.path.basename(path): load_plan(local, path) for path in given.dataset}


def _announce(local: LocalAgentLoop, plans: Dict[str, str], console: Console) -> None:
    endpoints = local.endpoints
    variables = {
        "AGENTLOOP_ENDPOINT": endpoints.agentloop_endpoint,
        "AGENTLOOP_SLS_ENDPOINT": endpoints.sls_endpoint,
        "AGENTLOOP_SPACE": endpoints.agent_space,
        "AGENTLOOP_REGION": endpoints.region_id,
        "AGENTLOOP_AK": endpoints.access_key_id,
        "AGENTLOOP_SK": endpoints.access_key_secret,
    }
    lines = ["export {}={}".format(name, shlex.quote(value)) for name, value in variables.items()]
    lines += [
        "export AGENTLOOP_PLAN_ID={}  # {}".format(plan_id, name) for name, plan_id in plans.items()
    ]
    console.text("\n".join(lines))
    console.event("serving", **vars(endpoints), plans=plans)
    console.note("AgentLoop is served on {}; Ctrl-C ends it.".format(endpoints.agentloop_endpoint))
