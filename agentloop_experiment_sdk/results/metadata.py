"""``evaluation_meta.json``: which experiment a results directory holds, and where it stands."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Tuple

from ..errors import ResultsDirectoryError
from ..models import Identity, Plan
from . import layout
from .stored import number_or_none

logger = logging.getLogger(__name__)

_MOST_REPEATS = 1_000_000

RUNNING, COMPLETED, FAILED, INTERRUPTED = "running", "completed", "failed", "interrupted"


@dataclass(frozen=True)
class Description:
    """What ``evaluation_meta.json`` says of a run.

    ``solution`` has ``name`` and ``hash``; ``evaluators`` are the names of local evaluators.
    """

    plan: Plan
    n_repeat: int
    solution: Mapping[str, str]
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evaluators: Tuple[str, ...] = ()


def read_meta(path: str) -> Dict[str, Any]:
    """The content of ``evaluation_meta.json``; {} when it is absent or damaged.

    Raises:
        OSError: It is there and cannot be read: that must not pass for an empty directory.
    """
    try:
        with layout.open_regular(path) as file:
            found = json.loads(file.read())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        logger.warning("%s is damaged; what is in the directory is moved to history/.", path)
        return {}
    return found if isinstance(found, dict) else {}


def check_format(root: str, meta: Mapping[str, Any]) -> None:
    """Refuse a results directory that a newer version wrote.

    Raises:
        ResultsDirectoryError: The format's version is not one of ours.
    """
    version = meta.get("format_version", layout.FORMAT_VERSION)
    if not isinstance(version, int) or version > layout.FORMAT_VERSION:
        raise ResultsDirectoryError(
            "{} was written by a newer version of this package (results format {}; this one knows "
            "up to {}); upgrade agentloop-experiment-sdk or give another directory.".format(
                root, version, layout.FORMAT_VERSION
            )
        )


def repeats_of(meta: Mapping[str, Any]) -> int:
    """How often each task was to be run; 0 where ``meta`` does not say.

    Raises:
        ResultsDirectoryError: So often that no run can have written it.
    """
    repeats = number_or_none(meta.get("total_repeats"))
    if repeats is None or repeats < 1:
        return 0
    if repeats > _MOST_REPEATS:
        raise ResultsDirectoryError(
            "{} names {:g} repeats; it was not written by this package.".format(
                layout.META_FILE, repeats
            )
        )
    return int(repeats)


def difference(meta: Mapping[str, Any], identity: Identity) -> str:
    """Why ``meta`` is another experiment than ``identity``; "" when it is the same."""
    stored = meta.get("identity")
    if not isinstance(stored, dict):
        return "it holds results without an identity (of another tool, or damaged)"
    for name, value in asdict(identity).items():
        if stored.get(name) != value:
            return "its {} is {!r}, this run's is {!r}".format(name, stored.get(name), value)
    return ""


def new_meta(
    earlier: Mapping[str, Any], description: Description, total_tasks: int, now_ms: int
) -> Dict[str, Any]:
    """The content for a run that begins, or goes on from ``earlier``."""
    plan = description.plan
    start = number_or_none(earlier.get("experiment_start_time"))
    meta = {
        "evaluation_name": earlier.get("record_name") or plan.plan_name,
        "created_at": earlier.get("created_at") or _local_time(now_ms),
        "total_repeats": description.n_repeat,
        "benchmark": {
            "name": plan.dataset,
            "description": plan.plan_name,
            "total_tasks": total_tasks,
        },
        "schema_version": layout.SCHEMA_VERSION,
        "format_version": layout.FORMAT_VERSION,
        "record_id": earlier.get("record_id"),
        "record_name": earlier.get("record_name"),
        "client_token": earlier.get("client_token"),
        "status": RUNNING,
        "identity": asdict(plan.identity),
        "plan": {
            "plan_name": plan.plan_name,
            "project": plan.project,
            "dataset": plan.dataset,
            "pipeline_name": plan.pipeline_name,
            "agentloop_endpoint": plan.agentloop_endpoint,
            "sls_endpoint": plan.sls_endpoint,
        },
        "experiment_start_time": int(start or now_ms),
        "finished_at": None,
        "solution": dict(description.solution),
        "version": description.version,
        "parameters": dict(description.parameters),
        "evaluators": list(description.evaluators),
    }
    return {**earlier, **meta}


def _local_time(now_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms / 1000))
