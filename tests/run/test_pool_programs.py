"""Scripts that run an experiment over a process pool, as users write them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from run_support import CAP_S, ROOT, config_for, counters, run, solutions

from agentloop_experiment_sdk.local import LocalAgentLoop

PROGRAM = str(Path(__file__).parent / "programs" / "pool_experiment.py")
SETTINGS = (
    "agent_space",
    "experiment_plan_id",
    "region_id",
    "access_key_id",
    "access_key_secret",
    "agentloop_endpoint",
    "sls_endpoint",
)


def started(config: Any, path: Path, **job: Any) -> subprocess.Popen[str]:
    settings = {name: getattr(config, name) for name in SETTINGS}
    text = json.dumps(dict(job, config=settings, path=str(path)))
    return subprocess.Popen(
        [sys.executable, PROGRAM, text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=ROOT),
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> List[Dict[str, Any]]:
    """The JSON lines it printed."""
    out, _ = process.communicate(timeout=CAP_S)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_a_script_with_a_main_guard_runs_in_spawned_processes(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    (outcome,) = ended(started(config_for(local, 4), tmp_path, method="spawn"))
    assert outcome == {"succeeded": 4}


def test_a_script_without_a_main_guard_is_refused_before_any_request(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    """In the children, and in the parent, whose pool is broken by it."""
    outcomes = ended(started(config_for(local, 4), tmp_path, method="spawn", unguarded=True))
    assert len(outcomes) > 1
    for outcome in outcomes:
        assert outcome["raised"] == "ConfigurationError"
        assert 'if __name__ == "__main__"' in outcome["message"]
    assert not local.requests and not list(tmp_path.iterdir())


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_the_run_and_it_can_be_resumed(
    local: LocalAgentLoop, tmp_path: Path, whole_group: bool
) -> None:
    """A terminal sends Ctrl-C to the workers too; a supervisor only to the script."""
    config = config_for(local, 8)
    process = started(config, tmp_path, method="fork", seconds=3.0)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("call ")
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    (outcome,) = ended(process)
    assert outcome == {"raised": "KeyboardInterrupt"} and process.returncode == 130
    (record,) = local.records()
    assert counters(local, record)["status"] == "failed"
    done = len(solutions(tmp_path))
    assert done < 8
    result = run(config, lambda task: "answer", tmp_path)
    assert result.record_id == record and result.counts.succeeded == 8
