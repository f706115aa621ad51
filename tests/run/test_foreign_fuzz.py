"""Results directories with arbitrary damage: read, or refused with an error that says so."""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import Any, Callable, Iterator, List, Tuple

import pytest
from run_support import config_for, run

from agentloop_experiment_sdk import (
    SolutionOutput,
    compare,
    deliver,
    evaluate,
    export_baseline,
    gate,
    latency_below,
    render_html,
    render_junit,
    render_markdown,
    render_text,
)
from agentloop_experiment_sdk.errors import ExperimentError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.report.summary import load_result

ODD = (None, True, -1, 0, 1.5, 10**12, 10**400, 1e300, float("inf"), float("nan"), -(10**30))
ODD += ("", "x", "../..", "\0", "\ud800", "9" * 5000, [], {}, [[]], ["a"], {"a": 1})  # type: ignore[assignment]


def reporting(task: Any) -> SolutionOutput:
    if task.input["id"] == "1":
        raise ValueError("no")
    usage = {"input_tokens": 1, "output_tokens": 2, "model": "m"}
    return SolutionOutput.success({"a": 1}, meta={"usage": usage, "ttft_ms": 3})


def places(value: Any, place: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, held in list(inner):
        yield (*place, name)
        if isinstance(held, (dict, list)):
            yield from places(held, (*place, name))


def damage(value: Any, chance: random.Random) -> None:
    """Replace or remove a few values, at any depth."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        *way, last = chance.choice(list(places(value)) or [("x",)])
        holder = value
        for step in way:
            holder = holder[step]
        if chance.random() < 0.2 and isinstance(holder, dict):
            holder.pop(last, None)
        elif isinstance(holder, dict) or last < len(holder):
            holder[last] = chance.choice(ODD)


def spoil(path: str, chance: random.Random) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines() if path.endswith(".jsonl") else [text]
    documents = [json.loads(line) for line in lines]
    for document in documents:
        damage(document, chance)
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write("".join(json.dumps(document) + "\n" for document in documents))


def report(result: Any, other: Any) -> None:
    limits = {"max_cost": 5, "prices": {"*": (1, 1)}}
    for subject in (result, gate(result, other, **limits), compare([other, result])):
        for render in (render_text, render_markdown, render_junit, render_html):
            render(subject)
        json.dumps(subject.to_dict())
    result.to_dicts()


def works(config: Any, fine: Any, path: str, baseline: str) -> List[Callable[[], Any]]:
    """Everything that reads what others may have made."""
    return [
        lambda: report(load_result(path), fine),
        lambda: report(fine, baseline),
        lambda: deliver(path, config, drain_timeout=1),
        lambda: evaluate(path, [latency_below(9)]),
        lambda: run(config, reporting, path, n_repeat=2, drain_timeout=1),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_damage_of_any_kind_is_read_or_refused(
    local: LocalAgentLoop, tmp_path: Any, seed: int
) -> None:
    chance = random.Random(seed)
    config, whole = config_for(local), str(tmp_path / "whole")
    fine = run(config, reporting, whole, evaluators=[latency_below(9)], n_repeat=2)
    export_baseline(fine, tmp_path / "baseline.json")
    files = sorted(os.path.join(at, name) for at, _, names in os.walk(whole) for name in names)
    files = [path for path in files if path.endswith((".json", ".jsonl"))]
    for number in range(10):
        path, baseline = str(tmp_path / str(number)), str(tmp_path / "b{}.json".format(number))
        shutil.copytree(whole, path)
        shutil.copy(str(tmp_path / "baseline.json"), baseline)
        spoil(chance.choice(files).replace(whole, path), chance)
        spoil(baseline, chance)
        for work in works(config, fine, path, baseline):
            try:
                work()
            except ExperimentError:
                pass  # said in words, and nothing else
