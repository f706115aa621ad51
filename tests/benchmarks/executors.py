"""Rows in other processes: ``python tests/benchmarks/executors.py [--rows N] [--rounds N]``.

Prints one line of JSON for each run. CPU-bound rows over two processes are held against two bare
processes that do the same work and nothing else, run right before; trivial rows show what a row
costs the driver. Linux only: it reads ``/proc``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, Iterator, List, Optional

import floors
from measured import config_for
from servers import HERE, Child, Platform, environment

ROW_S = 0.25
PROCESSES = 2
_FILE = os.path.join(HERE, "executors.py")


def burn(loops: int) -> float:
    """A fixed amount of work; returns when it began, in monotonic seconds."""
    began = time.monotonic()
    total = 0
    for number in range(loops):
        total += number & 7
    return began


class Burning:
    """A CPU-bound solution."""

    def __init__(self, loops: int) -> None:
        self.loops = loops

    def __call__(self, task: Any) -> float:
        return burn(self.loops)


def trivial(task: Any) -> float:
    """A solution that costs nothing."""
    return time.monotonic()


def loops_per_row() -> int:
    """The loops that take one row's time on an idle machine."""
    loops, best = 1_000_000, float("inf")
    for _ in range(5):
        began = time.perf_counter()
        burn(loops)
        best = min(best, time.perf_counter() - began)
    return int(loops * ROW_S / best)


def bare(job: Dict[str, Any]) -> Dict[str, Any]:
    """One bare process: its share of the rows."""
    begins = [burn(job["loops"]) for _ in range(job["rows"])]
    return {"began": begins[0], "ended": time.monotonic()}


def measured(job: Dict[str, Any]) -> Dict[str, Any]:
    """The driver: one experiment over the job's executor."""
    solution = Burning(job["loops"]) if job["loops"] else trivial
    if job["executor"] == "processes":
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork")) as pool:
            return _run(job, solution, pool)
    if job["executor"] == "dask":
        from distributed import Client

        with Client(job["scheduler"], set_as_default=False) as client:
            return _run(job, solution, client)
    return _run(job, solution, None)


def _run(job: Dict[str, Any], solution: Any, executor: Any) -> Dict[str, Any]:
    from agentloop_experiment_sdk import Experiment

    experiment = Experiment(
        config_for(job),
        solution,
        job["results"],
        n_workers=1,
        serial=executor is None,
        executor=executor,
        limit=job["limit"],
        progress=False,
    )
    before = time.process_time()
    result = experiment.run()
    ended = time.monotonic()
    cpu_s = time.process_time() - before
    began = min(float(row.output) for row in result)
    return {
        "succeeded": result.counts.succeeded,
        "run_s": ended - began,
        "driver_cpu_s": cpu_s,
        "peak_rss_mb": _memory_mb("VmHWM"),
        "rss_mb": _memory_mb("VmRSS"),
    }


def _memory_mb(name: str) -> float:
    with open("/proc/self/status") as file:
        found = [line for line in file if line.startswith(name + ":")]
    return int(found[0].split()[1]) / 1024.0


def cluster() -> None:
    """A Dask cluster in a process of its own, until its input is closed."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=PROCESSES, threads_per_worker=1, dashboard_address=None) as running:
        print(running.scheduler_address, flush=True)
        sys.stdin.read()


def _start(role: str, job: Dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, _FILE, "--role", role, "--job", json.dumps(job)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str]) -> Dict[str, Any]:
    out, _ = process.communicate(timeout=900)
    if process.returncode != 0:
        raise RuntimeError("A measured process failed with {}.".format(process.returncode))
    found: Dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def bare_rows_per_s(rows: int, loops: int) -> float:
    """What two processes do that have nothing else to do."""
    jobs = [{"rows": rows // PROCESSES, "loops": loops}] * PROCESSES
    done = [_end(process) for process in [_start("bare", job) for job in jobs]]
    return rows / (max(d["ended"] for d in done) - min(d["began"] for d in done))


class Suite:
    """Runs over one platform.

    Args:
        platform: The platform.
        total: How many rows its dataset has.
        folder: For results.
        scheduler: The address of a Dask cluster, or None without Dask.
    """

    def __init__(
        self, platform: Platform, total: int, folder: str, scheduler: Optional[str]
    ) -> None:
        self._platform = platform
        self._total = total
        self._folder = folder
        self._scheduler = scheduler
        self.executors = ["processes"] + (["dask"] if scheduler else [])

    def run(self, executor: str, rows: int, loops: int) -> Dict[str, Any]:
        """One experiment in a process of its own."""
        job = self._platform.job(
            self._total,
            limit=rows,
            executor=executor,
            loops=loops,
            scheduler=self._scheduler,
            results=tempfile.mkdtemp(dir=self._folder),
        )
        found = _end(_start("measured", job))
        if found["succeeded"] != rows:
            raise RuntimeError("Only {} rows succeeded.".format(found["succeeded"]))
        return {
            "executor": executor,
            "rows": rows,
            "run_s": found["run_s"],
            "rows_per_s": rows / found["run_s"],
            "driver_cpu_ms_per_row": found["driver_cpu_s"] / rows * 1000.0,
            "peak_rss_mb": found["peak_rss_mb"],
        }

    def cpu_bound(self, rows: int, rounds: int) -> Iterator[Dict[str, Any]]:
        """Serial, bare and each executor in turn, so that all meet the same load."""
        loops = loops_per_row()
        for number in range(rounds):
            serial = self.run("serial", max(2, rows // 4), loops)
            yield dict(serial, measured="cpu-bound", round=number)
            for executor in self.executors:
                before = bare_rows_per_s(rows, loops)
                found = self.run(executor, rows, loops)
                after = bare_rows_per_s(rows, loops)
                limit = (before + after) / 2.0
                yield dict(
                    found,
                    measured="cpu-bound",
                    round=number,
                    bare_rows_per_s=limit,
                    of_bare=found["rows_per_s"] / limit,
                    of_serial=found["rows_per_s"] / serial["rows_per_s"],
                )

    def trivial(self, sizes: List[int]) -> Iterator[Dict[str, Any]]:
        """What a row costs the driver, and whether its memory grows with their number."""
        for executor in self.executors:
            runs = [self.run(executor, rows, 0) for rows in sorted(sizes)]
            for found in runs:
                yield dict(found, measured="trivial")
            if len(runs) > 1:
                yield dict(_growth(runs[0], runs[-1]), measured="one more row")


def _growth(small: Dict[str, Any], large: Dict[str, Any]) -> Dict[str, Any]:
    """What one more row costs, without what every run costs."""
    more = large["rows"] - small["rows"]
    cpu = [run["driver_cpu_ms_per_row"] * run["rows"] for run in (small, large)]
    return {
        "executor": large["executor"],
        "driver_cpu_ms": (cpu[1] - cpu[0]) / more,
        "driver_kb": (large["peak_rss_mb"] - small["peak_rss_mb"]) * 1024.0 / more,
    }


def main() -> int:
    """Run all of it, or one of its processes."""
    options = _parser().parse_args()
    if options.role == "cluster":
        cluster()
    elif options.role:
        work = bare if options.role == "bare" else measured
        print(json.dumps(work(json.loads(options.job))))
    else:
        suite(options)
    return 0


def suite(options: argparse.Namespace) -> None:
    """Print the lines of the whole suite."""
    folder = tempfile.mkdtemp(prefix="agentloop-bench-", dir=options.memory)
    dataset = os.path.join(folder, "rows.jsonl")
    total = max(options.rows, *options.trivial_rows)
    with open(dataset, "w") as file:
        for number in range(total):
            file.write(json.dumps({"id": number, "question": "what is {}?".format(number)}) + "\n")
    dask = _cluster_process()
    try:
        with Platform(dataset) as platform:
            runs = Suite(platform, total, folder, dask.first_line.strip() if dask else None)
            for line in runs.cpu_bound(options.rows, options.rounds):
                _print(line)
            for line in runs.trivial(options.trivial_rows):
                _print(line)
    finally:
        if dask is not None:
            dask.close()
        shutil.rmtree(folder, ignore_errors=True)


def _cluster_process() -> Optional[Child]:
    try:
        import distributed  # noqa: F401
    except ImportError:
        return None
    return Child([_FILE, "--role", "cluster"])


def _print(line: Dict[str, Any]) -> None:
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}
    rounded.update(
        scenario="executors",
        calibration_ms=round(floors.calibration_ms(), 1),
        load=round(os.getloadavg()[0], 2),
    )
    print(json.dumps(rounded), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    add = parser.add_argument
    add("--rows", type=int, default=80, help="CPU-bound rows of one run (default: 80)")
    add("--rounds", type=int, default=3, help="how often (default: 3)")
    add("--trivial-rows", type=int, nargs="+", default=[2000, 10_000], help="default: 2000 10000")
    add("--memory", default=memory, help="a folder for results (default: %(default)s)")
    add("--role", default="", help=argparse.SUPPRESS)
    add("--job", default="{}", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
