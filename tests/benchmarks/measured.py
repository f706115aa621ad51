"""The measured process: takes a job as JSON, runs one experiment, prints its cost as JSON.

The job says what ``servers.Platform`` knows about the platform and what ``scenarios`` wants run.
Only the public face of the package is used, but for the measurement of a dataset's load alone.
"""

from __future__ import annotations

import gc
import hashlib
import json
import resource
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional


class FirstRow:
    """When the first row began; start-up is what came before."""

    def __init__(self) -> None:
        self.at: Optional[float] = None

    def mark(self) -> None:
        if self.at is None:
            self.at = time.perf_counter()


def trace_of(item: Any) -> str:
    """The trace id that the platform knows for a row."""
    return hashlib.md5(str(item).encode()).hexdigest()


def solution_for(job: Dict[str, Any], first: FirstRow) -> Any:
    """The solution that the job names."""
    return _SOLUTIONS[job["solution"]](job, first)


def _trivial(job: Dict[str, Any], first: FirstRow) -> Any:
    from agentloop_experiment_sdk import SolutionOutput

    def solution(task: Any) -> Any:
        first.mark()
        answer = {"answer": "the answer to " + str(task.input["id"])}
        return SolutionOutput.success(answer, {"experiment_input": task.input["question"]})

    return solution


def _asynchronous(job: Dict[str, Any], first: FirstRow) -> Any:
    import asyncio

    seconds = job["latency_s"]

    async def solution(task: Any) -> Any:
        first.mark()
        await asyncio.sleep(seconds)
        return "the answer to " + str(task.input["id"])

    return solution


def _traced(job: Dict[str, Any], first: FirstRow) -> Any:
    from agentloop_experiment_sdk import SolutionOutput

    def solution(task: Any) -> Any:
        first.mark()
        return SolutionOutput.success("done", {"traceId": trace_of(task.input["id"])})

    return solution


def _big(job: Dict[str, Any], first: FirstRow) -> Any:
    def solution(task: Any) -> Any:
        first.mark()
        return task.input["question"][::-1]

    return solution


def _http(job: Dict[str, Any], first: FirstRow) -> Any:
    from agentloop_experiment_sdk import http_solution_with

    def body(task: Any) -> Dict[str, Any]:
        first.mark()
        return {"question": task.input["question"]}

    extractor = (lambda data: data["delta"]) if job.get("stream") else None
    return http_solution_with(
        job["url"], body_builder=body, chunk_extractor=extractor, timeout=60.0
    )


def _command(job: Dict[str, Any], first: FirstRow) -> Any:
    from agentloop_experiment_sdk import command_solution_with

    def command(task: Any) -> Any:
        first.mark()
        return ["true"]

    return command_solution_with(command)


_SOLUTIONS: Dict[str, Callable[[Dict[str, Any], FirstRow], Any]] = {
    "trivial": _trivial,
    "async": _asynchronous,
    "traced": _traced,
    "big": _big,
    "http": _http,
    "command": _command,
}


def config_for(job: Dict[str, Any]) -> Any:
    """The config of the job's plan."""
    from agentloop_experiment_sdk import AgentLoopConfig

    names = ("agent_space", "region_id", "access_key_id", "access_key_secret")
    known = {name: job["platform"][name] for name in names}
    known["agentloop_endpoint"] = job["platform"]["agentloop_endpoint"]
    known["sls_endpoint"] = job["platform"]["sls_endpoint"]
    return AgentLoopConfig(experiment_plan_id=job["plan_id"], max_rows=job["rows"], **known)


def load(job: Dict[str, Any]) -> Dict[str, Any]:
    """Import the clients and load the dataset, each timed; then the memory both take."""
    began = time.perf_counter()
    import alibabacloud_agentloop20260520.client  # noqa: F401
    import aliyun.log  # noqa: F401

    from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi
    from agentloop_experiment_sdk.plan.tasks import load_tasks
    from agentloop_experiment_sdk.run import experiment  # noqa: F401

    imported = time.perf_counter()
    config = config_for(job)
    api = AgentLoopApi(config.connection.access())
    plan = config.resolve_experiment_plan(api=api)
    resolved = time.perf_counter()
    tasks = load_tasks(api, plan)
    loaded = time.perf_counter()
    gc.collect()
    return {
        "rows": len(tasks),
        "import_s": imported - began,
        "plan_s": resolved - imported,
        "load_s": loaded - resolved,
        "rss_mb": _memory_mb("VmRSS"),
        "peak_rss_mb": _memory_mb("VmHWM"),
    }


def run(job: Dict[str, Any]) -> Dict[str, Any]:
    """Run the experiment."""
    from agentloop_experiment_sdk import run_experiment, run_experiment_parallel

    first = FirstRow()
    config, solution = config_for(job), solution_for(job, first)
    function = run_experiment if job["workers"] == 1 else run_experiment_parallel
    workers: Any = job["workers"]
    if isinstance(workers, list):
        workers = tuple(workers)
    threads = _Threads()
    before, children = time.process_time(), _children_s()
    began = time.perf_counter()
    record_id = function(
        config, solution, job["results"], n_workers=workers, **job.get("options", {})
    )
    ended = time.perf_counter()
    started = first.at or began
    return {
        "record_id": record_id,
        "wall_s": ended - began,
        "start_up_s": started - began,
        "run_s": ended - started,
        "cpu_s": time.process_time() - before,
        "cpu_children_s": _children_s() - children,
        "peak_rss_mb": _memory_mb("VmHWM"),
        "peak_threads": threads.most,
    }


class _Threads:
    """The most threads there were, looked up now and then."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, threading.active_count() - 1)
            time.sleep(0.1)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_mb(name: str) -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024.0
    raise LookupError(name)


def main() -> None:
    """Do the job that is the only argument."""
    job = json.loads(sys.argv[1])
    measured = load(job) if "load" in job["what"] else {}
    if "run" in job["what"]:
        if measured:
            # what a resumed run costs beyond imports and dataset: load once more, all warm
            measured = load(job)
        measured.update(run(job))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
