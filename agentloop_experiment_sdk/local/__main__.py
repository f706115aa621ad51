"""``python -m agentloop_experiment_sdk.local``: LocalAgentLoop as a process of its own.

Prints one line of JSON with the endpoints, keys, datasets and plans, then serves until its
standard input is closed (or, with ``--forever``, until a signal). See ``control.py`` for how
another process reads its rows and injects faults.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from typing import Any, Dict, List, Optional, Sequence

from .embedded import LocalAgentLoop


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Serve; returns the exit code."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    local = LocalAgentLoop(
        options.path,
        port=options.port,
        agent_space=options.agent_space,
        project=options.project,
        region_id=options.region_id,
        access_key_id=options.access_key_id,
        access_key_secret=options.access_key_secret,
        writable_sql=options.writable_sql,
    )
    try:
        with local:
            print(json.dumps(_prepare(local, options)), flush=True)
            _wait(options.forever)
    except KeyboardInterrupt:
        return 130
    return 0


def _prepare(local: LocalAgentLoop, options: argparse.Namespace) -> Dict[str, Any]:
    """Load the datasets, set the latencies, and say where everything is."""
    plans: Dict[str, str] = {}
    for text in options.dataset:
        name, _, path = text.rpartition("=")
        name = name or os.path.splitext(os.path.basename(path))[0]
        local.load_dataset(path, name)
        plans[name] = local.create_plan(
            name, "local plan of " + name, pipeline_name=options.pipeline_name
        )
    if options.put_logs_ms:
        local.faults.latency(options.put_logs_ms / 1000.0, "PutLogs")
    if options.openapi_ms:
        local.faults.latency(options.openapi_ms / 1000.0, "openapi:*")
    first: List[str] = list(plans.values())[:1]
    return dict(
        vars(local.endpoints), plans=plans, plan_id=first[0] if first else None, pid=os.getpid()
    )


def _wait(forever: bool) -> None:
    if forever:
        threading.Event().wait()
    sys.stdin.buffer.read()


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentloop_experiment_sdk.local",
        description="Serve an embedded AgentLoop and SLS on 127.0.0.1 until stdin is closed.",
    )
    add = parser.add_argument
    add("--path", help="a file for the data, which survives a restart (default: memory)")
    add("--port", type=int, default=0, help="the port to listen on (default: any free one)")
    add(
        "--dataset",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a .jsonl or .csv file to load and to make a plan for; may be given again",
    )
    add("--pipeline-name", default="", help="the pipeline that the plans name")
    add("--agent-space", default="local")
    add("--project", default="local-project")
    add("--region-id", default="cn-local")
    add("--access-key-id", default="local-ak")
    add("--access-key-secret", default="local-sk")
    add("--writable-sql", action="store_true", help="let ExecuteQuery change rows")
    add("--put-logs-ms", type=float, default=0.0, help="latency of PutLogs")
    add("--openapi-ms", type=float, default=0.0, help="latency of the AgentLoop OpenAPI")
    add("--forever", action="store_true", help="do not end when stdin is closed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
