"""Running the command line as a real process, away from the checkout."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "agentloop_experiment_sdk"]


class Done(NamedTuple):
    """How a process ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> List[Dict[str, Any]]:
        """The JSON lines of stdout; each line must be one."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def environment(**changes: str) -> Dict[str, str]:
    """The tests' environment with the checkout importable and fixed names unset."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    found.update(PYTHONPATH=str(ROOT), PYTHONIOENCODING="utf-8", **changes)
    return found


def start(*arguments: Any, cwd: Any, env: Optional[Dict[str, str]] = None) -> Any:
    """Start ``agentloop-experiment`` in ``cwd``."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=str(cwd),
        env=environment() if env is None else env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
    )


def run(*arguments: Any, cwd: Any, env: Optional[Dict[str, str]] = None) -> Done:
    """Run ``agentloop-experiment`` to its end."""
    process = start(*arguments, cwd=cwd, env=env)
    stdout, stderr = process.communicate(timeout=120)
    return Done(process.returncode, stdout, stderr)
