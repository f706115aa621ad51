"""When the official clients are imported."""

from __future__ import annotations

import subprocess
import sys

from agentloop_experiment_sdk.cloud.loading import load_clients

BEFORE_THE_FIRST_ROW = """
import sys
from agentloop_experiment_sdk import LocalAgentLoop, local_config, run_experiment_parallel

CLIENTS = ["alibabacloud_agentloop20260520.client", "aliyun.log"]
seen = []

def solution(task):
    seen.append([name in sys.modules for name in CLIENTS])
    return "answer"

with LocalAgentLoop() as local:
    config = local_config(local, local.create_plan(local.load_dataset([{"q": "1"}])))
    assert not any(name in sys.modules for name in CLIENTS)
    run_experiment_parallel(config, solution, sys.argv[1])
print(seen)
"""


def test_both_are_there_before_the_first_row(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_THE_FIRST_ROW, str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[[True, True]]", done.stderr


def test_the_thread_ends_when_the_second_client_is_there() -> None:
    load_clients().join()
    assert "aliyun.log" in sys.modules
