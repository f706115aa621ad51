"""The README's table of a suite: ratios and costs per row, no seconds of one machine."""

from __future__ import annotations

import statistics
from typing import Any, Callable, Dict, List, Tuple

Line = Dict[str, Any]


def markdown(lines: List[Line]) -> str:
    """One row for each kind of run, medians where it was repeated."""
    rows = ["| scenario | measured | target |", "|---|---|---|"]
    groups: Dict[Tuple[str, ...], List[Line]] = {}
    for line in lines:
        groups.setdefault(_name(line), []).append(line)
    for name, group in groups.items():
        measured, target = _VERDICTS[name[0]](_medians(group))
        rows.append("| {} | {} | {} |".format(", ".join(name[1:]), measured, target))
    return "\n".join(rows + _start_up(lines))


def _start_up(lines: List[Line]) -> List[str]:
    found = [line["start_up_s"] for line in lines if line.get("rows") == 1000 and "place" in line]
    row = "| start-up: clients, plan, dataset of 1,000 rows | {:.2f} s | ≤ 1.2 s |"
    return [row.format(statistics.median(found))] if found else []


def _name(line: Line) -> Tuple[str, ...]:
    words = [line["scenario"], _TITLES[line["scenario"]]]
    if "rows" in line:
        words.append("{:,} rows".format(line["rows"]))
    if "workers" in line:
        words.append("1 worker" if line["workers"] == 1 else "{} workers".format(line["workers"]))
    if "latency_ms" in line:
        words.append("{:g} ms".format(line["latency_ms"]))
    if "place" in line:
        words.append("on tmpfs" if line["place"] == "memory" else "on disk")
    return tuple(words)


def _medians(group: List[Line]) -> Line:
    found: Line = dict(group[0])
    for key, value in found.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = statistics.median(line[key] for line in group)
    return found


def _overhead(line: Line) -> Tuple[str, str]:
    cost = "{:.2f} ms CPU a row, {:,.0f} rows/s, {:.1f} × file floor, {} PutLogs".format(
        line["cpu_ms_per_row"], line["rows_per_s"], line["times_file_floor"], line["put_logs"]
    )
    if line["place"] == "disk":
        return cost, "≤ 2 × file floor"
    if line["rows"] < 10_000:
        return cost, ""
    return cost, "≤ 0.6 ms, ≥ 2,000 rows/s" if line["workers"] == 16 else "≤ 0.6 ms"


def _ratio(line: Line) -> str:
    return "{:.2f} × limit, {:.2f} ms CPU a row".format(line["ratio"], line["cpu_ms_per_row"])


def _async(line: Line) -> Tuple[str, str]:
    text = "{}, {} threads".format(_ratio(line), line["peak_threads"])
    return text, "≤ 1.10" if line["workers"] <= 256 else "≤ 1.30"


def _http(line: Line) -> Tuple[str, str]:
    return _ratio(line), "≤ 1.15" if line["workers"] <= 16 else "≤ 1.50"


def _big(line: Line) -> Tuple[str, str]:
    return "{:.0f} MB above dataset and clients".format(line["rss_above_mb"]), "≤ 100 MB"


def _import(line: Line) -> Tuple[str, str]:
    text = "{:.2f} × the standard modules, {:.2f} of the clients"
    return text.format(line["ratio"], line["share_of_clients"]), "≤ 1.5, < 0.2"


def _rate(line: Line) -> Tuple[str, str]:
    text = "{:.0%} of the allowed rate, {:.1%} refused".format(
        line["share_of_rate"], line["refused_share"]
    )
    return text, "≥ 90 %, ≤ 2 %"


_TITLES = {
    "overhead": "trivial solution",
    "async": "async solution",
    "http": "HTTP agent",
    "stream": "event stream of 50 events",
    "command": "command `true`",
    "pipeline": "pipeline after 20 s",
    "big": "100 KB in and out",
    "import": "import of four names",
    "resume": "resume of a finished run",
    "load": "dataset load",
    "rate": "token bucket of 50 a second",
}
_VERDICTS: Dict[str, Callable[[Line], Tuple[str, str]]] = {
    "overhead": _overhead,
    "async": _async,
    "http": _http,
    "stream": lambda line: (_ratio(line), "≤ 1.25"),
    "command": lambda line: ("{:.2f} × bare subprocess.run".format(line["ratio"]), "≤ 1.30"),
    "pipeline": lambda line: ("{:.2f} × limit".format(line["ratio"]), "≤ 1.30"),
    "big": _big,
    "import": _import,
    "resume": lambda line: ("{:,.0f} rows/s".format(line["rows_per_s"]), "≥ 20,000"),
    "load": lambda line: ("{:.2f} × pages × latency".format(line["ratio"]), "≤ 1.15"),
    "rate": _rate,
}
