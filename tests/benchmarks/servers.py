"""The other processes of a benchmark: the platform, an agent, and the process that is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any, Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "agentloop_experiment_sdk"


def environment() -> Dict[str, str]:
    """The environment of a child: the package of this checkout, and no keys of the caller.

    Bytecode is kept, as on a user's machine: compiling both clients takes longer than a second.
    """
    prefixes = ("AGENTLOOP_", "ALIBABA_", "HTTP_PROXY", "HTTPS_PROXY", "PYTHONDONTWRITEBYTECODE")
    kept = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(prefixes)
    }
    return dict(kept, PYTHONPATH=ROOT)


class Child:
    """A server that prints one line when it is ready and ends when its input is closed."""

    def __init__(self, arguments: List[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable] + arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline()
        if not self.first_line:
            raise RuntimeError("{} did not start".format(arguments))

    def cpu_s(self) -> float:
        """The CPU time that it has used."""
        with open("/proc/{}/stat".format(self._process.pid)) as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Platform(Child):
    """LocalAgentLoop with one dataset and its plan.

    Args:
        dataset: A .jsonl file.
        openapi_ms: Latency of the AgentLoop OpenAPI.
        put_logs_ms: Latency of PutLogs.
        more: Further arguments of ``python -m agentloop_experiment_sdk.local``.
    """

    def __init__(
        self, dataset: str, openapi_ms: float = 5.0, put_logs_ms: float = 20.0, more: Any = ()
    ) -> None:
        arguments = ["-m", PACKAGE + ".local", "--dataset", dataset]
        arguments += ["--openapi-ms", str(openapi_ms), "--put-logs-ms", str(put_logs_ms), *more]
        super().__init__(arguments)
        self.facts: Dict[str, Any] = json.loads(self.first_line)
        self.openapi_s, self.put_logs_s = openapi_ms / 1000.0, put_logs_ms / 1000.0

    def requests(self) -> Dict[str, int]:
        """Requests so far, by action."""
        counts: Dict[str, int] = self.ask("requests")
        return counts

    def ask(self, what: str, body: Optional[Dict[str, Any]] = None) -> Any:
        """Inspect or control it; see ``local/control.py``."""
        return _http_json(
            "{}/_local/{}".format(self.facts["agentloop_endpoint"], what),
            None if body is None else json.dumps(body).encode(),
        )

    def job(self, rows: int, **more: Any) -> Dict[str, Any]:
        """The part of a job that says where things are."""
        return dict(more, platform=self.facts, plan_id=self.facts["plan_id"], rows=rows)


class AgentServer(Child):
    """The agent of ``agent.py``."""

    def __init__(self, *arguments: str) -> None:
        super().__init__([os.path.join(HERE, "agent.py"), *arguments])
        self.url = "http://127.0.0.1:{}".format(int(self.first_line))

    def counts(self) -> Dict[str, List[float]]:
        """When calls were allowed and refused, monotonic seconds of the agent."""
        answer: Dict[str, List[float]] = _http_json(self.url + "/counts")
        return answer


def measure(job: Dict[str, Any], timeout: float = 600.0) -> Dict[str, Any]:
    """Do a job in a process of its own."""
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "measured.py"), json.dumps(job)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0:
        raise RuntimeError("The measured process failed with {}.".format(done.returncode))
    found: Dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _http_json(url: str, data: Optional[bytes] = None) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with opener.open(request, timeout=60) as answer:
        return json.loads(answer.read())
