"""The benchmark suite: ``python tests/benchmarks/run.py [scenario …]``.

Prints one line of JSON for each run, with ratios to a limit that is computed, never to a past
measurement. Servers and agents run in other processes. Linux only: it reads ``/proc``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform as machine
import sys
import tempfile
import time
from typing import Any, Dict, List

import floors
from scenarios import SCENARIOS, Bench, selected
from table import markdown


def main() -> int:
    """Run the scenarios that are asked for."""
    options = _parser().parse_args()
    if options.table:
        with open(options.table) as file:
            print(markdown([json.loads(line) for line in file if line.strip()]))
        return 0
    lines: List[Dict[str, Any]] = []
    bench = Bench(options.memory, options.disk, options.scale)
    began = time.monotonic()
    try:
        for name in selected(options.scenario):
            _run(name, bench, lines, options.out)
    finally:
        bench.close()
    print("{:.0f} s in all".format(time.monotonic() - began), file=sys.stderr)
    if options.markdown:
        print(markdown(lines))
    return 0


def _run(name: str, bench: Bench, lines: List[Dict[str, Any]], out: str) -> None:
    for result in SCENARIOS[name](bench):
        line = {"scenario": name, **{key: _rounded(value) for key, value in result.items()}}
        line.update(
            calibration_ms=round(floors.calibration_ms(), 1),
            load=round(os.getloadavg()[0], 2),
            python=machine.python_version(),
        )
        lines.append(line)
        text = json.dumps(line)
        print(text, flush=True)
        if out:
            with open(out, "a") as file:
                file.write(text + "\n")


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    add = parser.add_argument
    add("scenario", nargs="*", choices=[[], *SCENARIOS], help="default: all")
    add("--out", default="", metavar="FILE", help="append the JSON lines to a file as well")
    add("--markdown", action="store_true", help="print the table of the README at the end")
    add("--table", metavar="FILE", help="only print the table of the JSON lines in FILE")
    add("--memory", default=memory, help="a folder on tmpfs (default: %(default)s)")
    add("--disk", default=tempfile.gettempdir(), help="a folder on a disk (default: %(default)s)")
    add("--scale", type=float, default=1.0, help="shrink the numbers of rows (default: 1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
