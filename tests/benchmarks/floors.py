"""What a machine allows: the bare work that no implementation can leave out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Dict

from servers import environment

_TASK = json.dumps({"id": "0" * 36, "input": {"id": 1, "question": "q" * 60}, "tags": None})
_SOLUTION = json.dumps({"success": True, "output": "a" * 60, "meta": {"facts": "f" * 360}})


def calibration_ms() -> float:
    """A fixed loop, at best of five: longer than usual means that the machine was busy."""
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        total = 0
        for number in range(200_000):
            total += number & 7
        best = min(best, time.perf_counter() - began)
    return best * 1000.0


def file_floor_ms(folder: str, rows: int) -> Dict[str, float]:
    """Milliseconds per row for the folders and atomic writes of a results directory, bare.

    ``ms`` is elapsed time, ``cpu_ms`` what of it was this process's own work.
    """
    root = os.path.join(folder, "floor-" + uuid.uuid4().hex)
    os.mkdir(root)
    names = [str(uuid.uuid4()) for _ in range(rows)]
    began, cpu = time.perf_counter(), time.process_time()
    for name in names:
        task = root + "/" + name
        os.mkdir(task)
        _write(task + "/task_meta.json", _TASK)
        os.mkdir(task + "/0")
        _write(task + "/0/solution.json", _SOLUTION)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"ms": elapsed / rows * 1000.0, "cpu_ms": cpu / rows * 1000.0}


def _write(path: str, text: str) -> None:
    handle = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(handle, text.encode())
    os.close(handle)
    os.replace(path + ".tmp", path)


def command_floor_s(count: int, parallel: int) -> float:
    """Seconds for ``subprocess.run(["true"])``, so many times and so many at once.

    In a process of its own, whose size is that of a script that only does this.
    """
    code = "import floors; print(floors.run_commands({}, {}))".format(count, parallel)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(done.stdout)


def run_commands(count: int, parallel: int) -> float:
    """Run them, here; the output is captured, as an experiment has to."""
    with ThreadPoolExecutor(parallel) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: subprocess.run(["true"], capture_output=True), range(count)))
        return time.perf_counter() - began


def import_times(code: str, base: str = "pass", tries: int = 15) -> float:
    """CPU milliseconds that ``code`` takes in a new interpreter beyond ``base``, at best."""
    found = {text: min(_process_cpu_ms(text) for _ in range(tries)) for text in (base, code)}
    return found[code] - found[base]


def _process_cpu_ms(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code], env=environment())
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        raise RuntimeError("{!r} failed".format(code))
    return (used.ru_utime + used.ru_stime) * 1000.0
