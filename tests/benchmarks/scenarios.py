"""The scenarios: what is run, and the limit that each is held against.

The limit is what no implementation can avoid: ``ceil(rows / workers)`` times the agent's latency,
one PutLogs and the last update of the record (and the pipeline's delay). Start-up, from the call to
the first row, is reported apart and is in neither.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional

import floors
from measured import trace_of
from servers import AgentServer, Platform, measure

Result = Dict[str, Any]

BIG_BYTES = 100 * 1024
COMMAND_RUNS = 5
CLIENTS = "import alibabacloud_agentloop20260520.client, aliyun.log"
STANDARD = "import json, logging, dataclasses, urllib.parse"
FOUR_NAMES = (
    "from agentloop_experiment_sdk import AgentLoopConfig, SolutionOutput, http_solution_with, "
    "run_experiment_parallel"
)


class Bench:
    """Folders and sizes of one suite; what it wrote is removed at the end, not between runs:
    deleting many small files slows the creations after it.

    Args:
        memory: A folder on tmpfs.
        disk: A folder on a disk.
        scale: Shrinks the numbers of rows, for a quick look.
    """

    def __init__(self, memory: str, disk: str, scale: float = 1.0) -> None:
        self.memory = tempfile.mkdtemp(prefix="agentloop-bench-", dir=memory)
        self.disk = tempfile.mkdtemp(prefix="agentloop-bench-", dir=disk)
        self.scale = scale

    def rows(self, count: int) -> int:
        return max(4, int(count * self.scale))

    def results(self, folder: str) -> str:
        return os.path.join(folder, "results-" + uuid.uuid4().hex[:8])

    def dataset(self, rows: int, characters: int = 60, traced: bool = False) -> str:
        """A .jsonl file of so many rows."""
        path = os.path.join(self.disk, "dataset-{}-{}.jsonl".format(rows, characters))
        with open(path, "w") as file:
            for number in range(rows):
                # each row's text differs, so that neither memory nor wire can share it
                text = "{:08d} what is asked here? ".format(number) * (characters // 27 + 1)
                row = {"id": "row-{:06d}".format(number), "question": text[:characters]}
                row["expected"] = "answer {}".format(number)
                file.write(json.dumps(row) + "\n")
        return path

    def close(self) -> None:
        for folder in (self.memory, self.disk):
            shutil.rmtree(folder, ignore_errors=True)


def measured_run(platform: Platform, job: Dict[str, Any], limit_s: float, **more: Any) -> Result:
    """Run a job; its cost beside the limit."""
    before = platform.requests().get("PutLogs", 0)
    server_cpu = platform.cpu_s()
    found = measure(job)
    rows = job["rows"]
    record = platform.ask("record?record=" + found["record_id"])
    if record["status"] != "completed" or record["completedTasks"] != rows:
        raise RuntimeError("The run did not complete: {}".format(record))
    limit_s += platform.put_logs_s + platform.openapi_s
    result = {
        "rows": rows,
        "workers": job["workers"],
        "wall_s": found["wall_s"],
        "start_up_s": found["start_up_s"],
        "run_s": found["run_s"],
        "rows_per_s": rows / found["run_s"],
        "cpu_ms_per_row": found["cpu_s"] / rows * 1000.0,
        "peak_rss_mb": found["peak_rss_mb"],
        "peak_threads": found["peak_threads"],
        "put_logs": platform.requests()["PutLogs"] - before,
        "limit_s": limit_s,
        "ratio": found["run_s"] / limit_s,
        "server_cpu_ms_per_row": (platform.cpu_s() - server_cpu) / rows * 1000.0,
    }
    result.update(more)
    return result


def waves_s(rows: int, workers: int, latency_s: float) -> float:
    """Seconds that the agent alone needs."""
    return math.ceil(rows / workers) * latency_s


def overhead(bench: Bench) -> Iterator[Result]:
    """(a) A trivial sync solution: what a row costs."""
    with Platform(bench.dataset(bench.rows(10_000))) as platform:
        for place in ("memory", "disk"):
            folder = getattr(bench, place)
            for rows in (bench.rows(1000), bench.rows(10_000)):
                for workers in (1, 4, 16, 64):
                    before = floors.file_floor_ms(folder, min(rows, 2000))
                    job = platform.job(
                        rows,
                        what=["run"],
                        solution="trivial",
                        workers=workers,
                        results=bench.results(folder),
                    )
                    result = measured_run(platform, job, 0.0, place=place)
                    after = floors.file_floor_ms(folder, min(rows, 2000))
                    floor = (before["ms"] + after["ms"]) / 2
                    result["file_floor_ms"] = floor
                    result["ms_per_row"] = result["run_s"] / rows * 1000.0
                    result["times_file_floor"] = result["ms_per_row"] / floor
                    yield result


def asynchronous(bench: Bench) -> Iterator[Result]:
    """(b) An async solution that waits: 20 waves, or 5,000 rows."""
    with Platform(bench.dataset(5000)) as platform:
        for workers, latency_ms in ((4, 50), (64, 100), (256, 500), (1000, 2000)):
            rows = bench.rows(min(20 * workers, 5000))
            yield _waiting(bench, platform, rows, workers, latency_ms / 1000.0, solution="async")


def _waiting(
    bench: Bench, platform: Platform, rows: int, workers: int, latency_s: float, **job: Any
) -> Result:
    asked = platform.job(
        rows, what=["run"], workers=workers, results=bench.results(bench.memory), **job
    )
    asked["latency_s"] = latency_s
    limit_s = waves_s(rows, workers, latency_s)
    return measured_run(platform, asked, limit_s, latency_ms=latency_s * 1000.0)


def http_json(bench: Bench) -> Iterator[Result]:
    """(c) An HTTP agent that answers JSON after 50 ms."""
    rows = bench.rows(2000)
    with Platform(bench.dataset(rows)) as platform, AgentServer() as agent:
        for workers in (16, 64):
            url = agent.url + "/json?ms=50"
            yield _waiting(bench, platform, rows, workers, 0.05, solution="http", url=url)


def http_stream(bench: Bench) -> Iterator[Result]:
    """(d) An HTTP agent that streams 50 events in 50 ms."""
    rows = bench.rows(1000)
    with Platform(bench.dataset(rows)) as platform, AgentServer() as agent:
        url = agent.url + "/stream?ms=50&events=50"
        yield _waiting(bench, platform, rows, 16, 0.05, solution="http", url=url, stream=True)


def command(bench: Bench) -> Iterator[Result]:
    """(e) The command ``true``, against bare ``subprocess.run`` before and after.

    Both take a quarter of a second, in which a machine may do anything: of several runs the one
    with the median ratio, and the ratios of all.
    """
    rows, workers = bench.rows(500), 4
    with Platform(bench.dataset(rows)) as platform:
        results = sorted(
            (_commands(bench, platform, rows, workers) for _ in range(COMMAND_RUNS)),
            key=lambda result: float(result["ratio"]),
        )
    yield dict(results[len(results) // 2], ratios=[round(item["ratio"], 3) for item in results])


def _commands(bench: Bench, platform: Platform, rows: int, workers: int) -> Result:
    before = floors.command_floor_s(rows, workers)
    job = platform.job(
        rows,
        what=["run"],
        solution="command",
        workers=workers,
        results=bench.results(bench.memory),
    )
    result = measured_run(platform, job, 0.0)
    bare = (before + floors.command_floor_s(rows, workers)) / 2
    limit = result["limit_s"] + bare
    return dict(result, limit_s=limit, ratio=result["run_s"] / limit, bare_s=bare)


def pipeline(bench: Bench) -> Iterator[Result]:
    """(f) A pipeline whose traces become visible after 20 s."""
    rows, workers, delay_s = bench.rows(100), 4, 20.0
    name = "benchmark-pipeline"
    path = bench.dataset(rows)
    with Platform(path, more=["--pipeline-name", name]) as platform:
        _make_pipeline(platform, name, rows)
        # counted from the first preview, which comes a moment after the call of the agent
        platform.ask("faults", {"call": "empty_previews", "seconds": delay_s - 0.1})
        job = platform.job(
            rows,
            what=["run"],
            solution="traced",
            workers=workers,
            results=bench.results(bench.memory),
        )
        result = measured_run(platform, job, delay_s + platform.openapi_s, delay_s=delay_s)
        delivered = platform.ask("rows")
        result["with_fields"] = sum("pipeline.answer" in row for row in delivered)
        yield result


def _make_pipeline(platform: Platform, name: str, rows: int) -> None:
    from alibabacloud_agentloop20260520 import models
    from alibabacloud_agentloop20260520.client import Client
    from alibabacloud_tea_openapi.utils_models import Config

    facts = platform.facts
    client = Client(
        Config(
            protocol="http",
            endpoint=facts["agentloop_endpoint"].split("://")[1],
            access_key_id=facts["access_key_id"],
            access_key_secret=facts["access_key_secret"],
        )
    )
    logstore = "logstore-tracing"
    request = models.CreatePipelineRequest().from_map(
        {
            "pipelineName": name,
            "source": {
                "type": "logstore",
                "logstore": {"project": facts["project"], "logstore": logstore, "query": "*"},
            },
            "pipeline": {"nodes": [{"type": "project", "parameters": {"answer": "answer"}}]},
        }
    )
    client.create_pipeline(facts["agent_space"], request)
    traces = [
        {"traceId": trace_of("row-{:06d}".format(number)), "answer": str(number)}
        for number in range(rows)
    ]
    platform.ask("logs", {"logstore": logstore, "rows": traces})


def big_rows(bench: Bench) -> Iterator[Result]:
    """(g) Inputs and outputs of 100 KB: memory above the dataset, for few rows and for many."""
    for rows in (bench.rows(1000), bench.rows(5000)):
        store = os.path.join(bench.disk, "platform-{}.db".format(rows))
        with Platform(bench.dataset(rows, BIG_BYTES), more=["--path", store]) as platform:
            loaded = measure(platform.job(rows, what=["load"]))
            job = platform.job(
                rows,
                what=["run"],
                solution="big",
                workers=16,
                results=bench.results(bench.disk),
            )
            result = measured_run(platform, job, 0.0, rss_loaded_mb=loaded["rss_mb"])
            result["rss_above_mb"] = result["peak_rss_mb"] - loaded["rss_mb"]
            yield result


def imports(bench: Bench) -> Iterator[Result]:
    """(h) What the first lines of a script cost to import, in CPU milliseconds."""
    standard, names, clients = (
        floors.import_times(code) for code in (STANDARD, FOUR_NAMES, CLIENTS)
    )
    yield {
        "import_ms": names,
        "standard_ms": standard,
        "clients_ms": clients,
        "ratio": names / standard,
        "share_of_clients": names / clients,
    }


def resume(bench: Bench) -> Iterator[Result]:
    """(i) A finished directory is run again: nothing is left to do."""
    rows = bench.rows(10_000)
    with Platform(bench.dataset(rows)) as platform:
        results = bench.results(bench.memory)
        job = platform.job(rows, solution="trivial", workers=16, results=results)
        measure(dict(job, what=["run"]))
        found = measure(dict(job, what=["load", "run"]))
        own_s = found["wall_s"] - found["plan_s"] - found["load_s"]
        yield {
            "rows": rows,
            "workers": 16,
            "wall_s": found["wall_s"],
            "load_s": found["load_s"],
            "own_s": own_s,
            "rows_per_s": rows / own_s,
            "cpu_ms_per_row": found["cpu_s"] / rows * 1000.0,
            "peak_rss_mb": found["peak_rss_mb"],
        }


def dataset_load(bench: Bench) -> Iterator[Result]:
    """(j) A dataset of 20,000 rows, 20 ms a page."""
    rows = bench.rows(20_000)
    with Platform(bench.dataset(rows), openapi_ms=20.0) as platform:
        found = measure(platform.job(rows, what=["load"]))
        pages = platform.requests()["ExecuteQuery"]
        limit_s = pages * platform.openapi_s
        yield {
            "rows": rows,
            "pages": pages,
            "wall_s": found["load_s"],
            "rows_per_s": rows / found["load_s"],
            "limit_s": limit_s,
            "ratio": found["load_s"] / limit_s,
            "import_s": found["import_s"],
        }


def rate_control(bench: Bench) -> Iterator[Result]:
    """(k) An agent behind a token bucket, workers and pace found by the run; and ``max_rps``."""
    rate, warm_up_s = 50.0, 10.0
    for workers, options, wanted in (
        ("auto", {}, rate),
        ([4, 32], {}, rate),
        (16, {"max_rps": 40.0}, 40.0),
    ):
        rows = bench.rows(int(45 * wanted))
        with Platform(bench.dataset(rows)) as platform, AgentServer(
            "--rate", str(rate), "--burst", "25"
        ) as agent:
            job = platform.job(
                rows,
                what=["run"],
                solution="http",
                workers=workers,
                url=agent.url + "/limited?ms=100",
                results=bench.results(bench.memory),
                options=options,
            )
            result = measured_run(platform, job, rows / wanted)
            result.update(_shares(agent.counts(), wanted, warm_up_s), allowed_rps=wanted)
            yield result


def _shares(counts: Dict[str, List[float]], rate: float, warm_up_s: float) -> Result:
    """How much of the allowed rate was used, and how much was refused, after warm-up."""
    begin = min(counts["allowed"]) + warm_up_s
    end = max(counts["allowed"])
    allowed = sum(begin <= at < end for at in counts["allowed"])
    refused = sum(begin <= at < end for at in counts["refused"])
    return {
        "share_of_rate": allowed / (end - begin) / rate if end > begin else None,
        "refused_share": refused / max(1, allowed + refused),
        "refused_in_all": len(counts["refused"]),
    }


SCENARIOS: Dict[str, Callable[[Bench], Iterator[Result]]] = {
    "overhead": overhead,
    "async": asynchronous,
    "http": http_json,
    "stream": http_stream,
    "command": command,
    "pipeline": pipeline,
    "big": big_rows,
    "import": imports,
    "resume": resume,
    "load": dataset_load,
    "rate": rate_control,
}


def selected(names: Optional[List[str]]) -> List[str]:
    """The scenarios to run, in order."""
    return [name for name in SCENARIOS if not names or name in names]
