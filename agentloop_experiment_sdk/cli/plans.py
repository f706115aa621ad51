"""``plans``: the experiment plans of an agent space."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any, List, Optional, Sequence

from . import connections, exits, options
from .console import Console

_EXAMPLE = "agentloop-experiment plans --space my-space --region cn-hangzhou"
_HEADER = ("PLAN", "NAME", "TYPE", "DATASET", "RUNS", "UPDATED")


def add_commands(commands: Any) -> None:
    """Add the command."""
    plans = options.add_command(
        commands,
        "plans",
        _plans,
        "list the experiment plans of an agent space",
        _EXAMPLE,
        "{}\n\n{}".format(options.CLOUD_EPILOG, exits.HELP),
    )
    plans.add_argument("--name", help="only plans whose name has this in it")
    options.add_connection(plans)


def _plans(given: argparse.Namespace, console: Console) -> int:
    from ..plan.connection import list_plans

    found = list_plans(connections.connection_of(given), plan_name=given.name)
    for plan in found:
        console.event("plan", **asdict(plan))
    rows = [
        (
            plan.plan_id,
            plan.plan_name,
            plan.experiment_type,
            plan.dataset,
            "" if plan.experiment_count is None else str(plan.experiment_count),
            _date(plan.updated_at),
        )
        for plan in found
    ]
    console.text(_table([_HEADER, *rows]) if rows else "There are no plans.")
    return exits.OK


def _date(milliseconds: Optional[int]) -> str:
    if not milliseconds:
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(milliseconds / 1000))


def _table(rows: Sequence[Sequence[str]]) -> str:
    from ..lines import one_line
    from ..report.text import display_width

    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells)]
    lines: List[str] = []
    for row in cells:
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
