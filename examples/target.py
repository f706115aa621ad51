"""Where the examples run: the cloud by environment variables, or an embedded LocalAgentLoop.

AGENTLOOP_SPACE, AGENTLOOP_PLAN_ID and AGENTLOOP_REGION name an offline experiment plan; the keys
are found as the README says (AGENTLOOP_AK and AGENTLOOP_SK, for instance).
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys

from agentloop_experiment_sdk import AgentLoopConfig, LocalAgentLoop, local_config

HERE = pathlib.Path(__file__).resolve().parent
AGENT = HERE / "small_agent.py"


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--local", action="store_true", help="run on an embedded LocalAgentLoop")
    parser.add_argument("--result-dir", default="./results")
    parser.add_argument("--n-workers", type=int, default=4)
    return parser.parse_args()


@contextlib.contextmanager
def config(local):
    """The config of the cloud's plan, or of a local plan over questions.jsonl."""
    if not local:
        yield cloud_config()
        return
    with LocalAgentLoop() as server:
        dataset = server.load_dataset(HERE / "questions.jsonl")
        yield local_config(server, server.create_plan(dataset), ground_truth_field="expected")


def cloud_config():
    names = ("AGENTLOOP_SPACE", "AGENTLOOP_PLAN_ID", "AGENTLOOP_REGION")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        sys.exit("Set {}, or pass --local.".format(", ".join(missing)))
    space, plan_id, region = (os.environ[name] for name in names)
    return AgentLoopConfig(space, plan_id, region, max_rows=100)


@contextlib.contextmanager
def small_http_agent():
    """The URL of a small HTTP agent in a process of its own."""
    command = [sys.executable, "-B", str(AGENT), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, universal_newlines=True) as agent:
        try:
            yield agent.stdout.readline().strip()
        finally:
            agent.terminate()
