"""What tests of whole runs share: configs over LocalAgentLoop, processes of their own, agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import agentloop_experiment_sdk
from agentloop_experiment_sdk import AgentLoopConfig, Experiment, local_config
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results.journal import JournalState, read_state

CAP_S = 60.0
PROGRAM = str(Path(__file__).parent / "programs" / "experiment.py")
ROOT = str(Path(agentloop_experiment_sdk.__file__).parents[1])


def item_rows(count: int) -> List[Dict[str, str]]:
    """Dataset rows with ids 0, 1, …"""
    return [{"id": str(n), "q": "question {}".format(n)} for n in range(count)]


def config_for(
    local: LocalAgentLoop, count: int = 3, *, dataset: str = "dataset", **plan: Any
) -> AgentLoopConfig:
    """A plan over ``count`` rows, and the config that runs it."""
    name = local.load_dataset(item_rows(count), dataset)
    return local_config(local, local.create_plan(name, **plan))


def answer(task: Any) -> str:
    """A solution that always answers."""
    return "answer to " + str(task.input["q"])


def run(config: AgentLoopConfig, solution: Any, path: Any, **options: Any) -> Any:
    """Run an experiment and return its result."""
    return Experiment(config, solution, path, **options).run()


def wait_until(condition: Callable[[], Any], cap: float = CAP_S) -> None:
    """Wait for something that no event tells; fails after ``cap`` seconds."""
    ends = time.monotonic() + cap
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.005)


def statuses(local: LocalAgentLoop, record_id: str) -> List[str]:
    """The statuses that a record was told, in order."""
    return [update["status"] for update in local.updates(record_id) if "status" in update]


def done_counts(local: LocalAgentLoop, record_id: str) -> List[int]:
    """How many rows were done, in each update of status ``running`` after the first."""
    running = [u for u in local.updates(record_id) if u.get("status") == "running"]
    return [update["completedTasks"] + update["failedTasks"] for update in running[1:]]


def counters(local: LocalAgentLoop, record_id: str) -> Dict[str, Any]:
    """Status and counters of a record."""
    record = local.record(record_id)
    names = ("status", "totalTasks", "completedTasks", "failedTasks")
    return {name: record[name] for name in names}


def completed(total: int, failed: int = 0) -> Dict[str, Any]:
    """The counters of a completed record."""
    return {
        "status": "completed",
        "totalTasks": total,
        "completedTasks": total - failed,
        "failedTasks": failed,
    }


def items(local: LocalAgentLoop, record_id: Optional[str] = None) -> List[str]:
    """The dataset ids of the rows in SLS, in the order they came."""
    return [row["dataset.id"] for row in local.rows(record_id)]


def journal(path: Any) -> JournalState:
    """What the journal of a results directory says."""
    return read_state(os.path.join(str(path), "journal.jsonl"))


def solutions(path: Any) -> List[Path]:
    """All ``solution.json`` of a results directory."""
    return sorted(Path(path).glob("*/*/solution.json"))


def meta_of(path: Any) -> Dict[str, Any]:
    """``evaluation_meta.json``."""
    read: Dict[str, Any] = json.loads((Path(path) / "evaluation_meta.json").read_text("utf-8"))
    return read


def edit_meta(path: Any, **changes: Any) -> None:
    """Change ``evaluation_meta.json`` as a crash may have left it."""
    meta = dict(meta_of(path), **changes)
    (Path(path) / "evaluation_meta.json").write_text(json.dumps(meta), "utf-8")


class Program:
    """An experiment in a process of its own; see ``programs/experiment.py``.

    It prints a line for each call of its solution, which ``wait_for_calls`` counts.
    """

    def __init__(
        self,
        config: AgentLoopConfig,
        path: Any,
        *,
        solution: str = "sync",
        wrapper: Any = (),
        **job: Any,
    ) -> None:
        settings = {
            name: getattr(config, name)
            for name in (
                "agent_space",
                "experiment_plan_id",
                "region_id",
                "access_key_id",
                "access_key_secret",
                "agentloop_endpoint",
                "sls_endpoint",
            )
        }
        text = json.dumps(dict(job, config=settings, path=str(path), solution=solution))
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, PROGRAM, text],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=ROOT),
            start_new_session=True,
        )
        self.calls: List[str] = []
        self.lines: List[str] = []
        self._changed = threading.Condition()
        self._errors: List[bytes] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close()

    def wait_for_calls(self, count: int) -> None:
        """Wait until the solution was called so often."""
        self.wait_for(lambda: len(self.calls) >= count)

    def wait_for_line(self, text: str) -> None:
        """Wait for a line that the program prints."""
        self.wait_for(lambda: text in self.lines)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that depends on what was printed."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: condition() or self.process.poll() is not None, CAP_S
            ), "timed out; stderr: {}".format(self.stderr)
            assert condition(), self.stderr

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        self._close()

    def end(self) -> int:
        """Wait for its end and return the exit code."""
        code = self.process.wait(CAP_S)
        self._close()
        return code

    @property
    def stderr(self) -> str:
        """What it wrote to stderr, log lines included."""
        return b"".join(self._errors).decode("utf-8", "replace")

    @property
    def outcome(self) -> Dict[str, Any]:
        """The last line it printed."""
        read: Dict[str, Any] = json.loads(self.lines[-1])
        return read

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                text = line.decode("utf-8").rstrip("\n")
                self.lines.append(text)
                if text.startswith("call "):
                    self.calls.append(text[5:])
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line)

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(CAP_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def http_agent(reply: Callable[[Dict[str, Any]], Any]) -> Iterator[str]:
    """A real HTTP agent; ``reply`` gets the JSON body and may block. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(reply(body)).encode("utf-8")
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True

        def log_message(self, *_args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

        def handle_error(self, *_args: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield "http://127.0.0.1:{}/chat".format(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(CAP_S)
