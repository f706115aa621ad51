"""``deliver``: send what a results directory still owes SLS."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import asdict
from typing import Any, Iterator, Optional

from ..api import local_config
from ..errors import ResultsDirectoryError
from ..lines import counted
from ..plan.config import AgentLoopConfig
from . import connections, embedded, exits, options
from .console import Console

_EXAMPLE = "agentloop-experiment deliver ./results"


def add_commands(commands: Any) -> None:
    """Add the command."""
    deliver = options.add_command(
        commands,
        "deliver",
        _deliver,
        "send the rows of a results directory that SLS has not got",
        _EXAMPLE,
        "It calls no agent and may be repeated: what is there is not sent again. Where to send is "
        "in\nthe directory; the keys come from the environment.\n\n{}\n\n{}".format(
            options.CLOUD_EPILOG, exits.HELP
        ),
    )
    deliver.add_argument("result_dir", metavar="DIR", help="also an entry of history/")
    deliver.add_argument(
        "--drain-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="go on so long while SLS accepts nothing; default: 300",
    )
    options.add_connection(deliver)
    # those of a plan are fixed by the directory
    deliver.set_defaults(
        plan=None, project=None, max_rows=None, ground_truth_field=None, experiment_name=None
    )


def _deliver(given: argparse.Namespace, console: Console) -> int:
    from ..run.deliver import deliver

    with _config(given) as config:
        report = deliver(given.result_dir, config, drain_timeout=given.drain_timeout)
    code = exits.INFRASTRUCTURE if report.undelivered else exits.OK
    console.text(
        "{} delivered, {} undelivered (record {})".format(
            counted(report.delivered, "row"), report.undelivered, report.record_id
        )
    )
    console.event("result", exit_code=code, **asdict(report))
    return code


@contextlib.contextmanager
def _config(given: argparse.Namespace) -> Iterator[Optional[AgentLoopConfig]]:
    from ..report.summary import load_result

    known = connections.settings_of(load_result(given.result_dir).meta)
    if "experiment_plan_id" not in known:
        raise ResultsDirectoryError(
            "The results in {} were not written by this package; there is nothing to "
            "deliver.".format(given.result_dir)
        )
    if not embedded.is_local(given, known):
        yield connections.config_of(given, known)
        return
    embedded.check_alone(given)
    with embedded.local_loop(given.result_dir) as local:
        yield local_config(local, known["experiment_plan_id"])
