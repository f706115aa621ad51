"""An experiment in a process of its own, as its one argument (JSON) describes.

Prints ``call <item id>`` when its solution is called, ``event <name>`` for the events named in
``tell``, and a last line of JSON with what came of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, Dict

sys.dont_write_bytecode = True

from agentloop_experiment_sdk import (  # noqa: E402
    AgentLoopConfig,
    Experiment,
    command_solution_with,
    http_solution_with,
)
from agentloop_experiment_sdk.run import pace  # noqa: E402


def main(job: Dict[str, Any]) -> int:
    """Run it; the exit code is 130 after Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs with it ignored
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    tell = set(job.get("tell", ()))

    def on_event(event: Any) -> None:
        if type(event).__name__ in tell:
            say("event " + type(event).__name__)

    if job.get("gathers"):
        gather_on_any_disk()
    experiment = Experiment(
        AgentLoopConfig(**job["config"]),
        SOLUTIONS[job["solution"]](job),
        job["path"],
        on_event=on_event if tell else None,
        progress=False,
        **job.get("options", {}),
    )
    if "stop_after" in job:
        threading.Thread(target=stop_later, args=(experiment, job["stop_after"])).start()
    try:
        result = run(experiment, job)
    except KeyboardInterrupt:
        say(json.dumps({"raised": "KeyboardInterrupt"}))
        return 130
    except Exception as error:
        code = getattr(error, "code", "")
        say(json.dumps({"raised": type(error).__name__, "code": code, "message": str(error)}))
        return 1
    counts = vars(result.counts)
    say(json.dumps(dict(counts, record_id=result.record_id, status=result.status)))
    return 0


def gather_on_any_disk() -> None:
    """Rows are gathered however slow the disk is; says ``event gathers`` when they are."""
    decide = pace.Pace._decide

    def tell(self: pace.Pace) -> None:
        before = self.gathers
        decide(self)
        if self.gathers and not before:
            say("event gathers")

    pace.Pace._decide = tell  # type: ignore[method-assign]
    pace._WRITERS = ()


def run(experiment: Experiment, job: Dict[str, Any]) -> Any:
    """``run`` or ``arun``."""
    if job.get("awaited"):
        return asyncio.run(experiment.arun())
    return experiment.run()


def stop_later(experiment: Experiment, seconds: float) -> None:
    """``stop()`` from another thread."""
    time.sleep(seconds)
    experiment.stop()


def say(line: str) -> None:
    """One write for each line: several threads print."""
    os.write(1, (line + "\n").encode("utf-8"))


def sync(job: Dict[str, Any]) -> Any:
    """Answers after ``seconds``."""
    seconds = job.get("seconds", 0.0)

    def solution(task: Any) -> str:
        say("call " + task.input["id"])
        if seconds:
            time.sleep(seconds)
        return "answer to " + str(task.input["q"]) + job.get("padding", "")

    return solution


def awaited(job: Dict[str, Any]) -> Any:
    """Like ``sync``, but awaits."""
    seconds = job.get("seconds", 0.0)

    async def solution(task: Any) -> str:
        say("call " + task.input["id"])
        await asyncio.sleep(seconds)
        return "answer to " + str(task.input["q"])

    return solution


def http(job: Dict[str, Any]) -> Any:
    """Posts to ``url``."""

    def body(task: Any) -> Dict[str, Any]:
        say("call " + task.input["id"])
        return dict(task.input)

    return http_solution_with(job["url"], body_builder=body, timeout=600)


def cli(job: Dict[str, Any]) -> Any:
    """A shell that starts a child and notes both process ids in ``pids``."""

    def argv(task: Any) -> Any:
        say("call " + task.input["id"])
        script = "sleep {0} & echo $$ $! >> {1}; wait".format(job.get("seconds", 600), job["pids"])
        return ["sh", "-c", script]

    return command_solution_with(argv, default_timeout=600)


SOLUTIONS = {"sync": sync, "async": awaited, "http": http, "cli": cli}

if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
