"""What a run holds in memory does not grow with the rows that it has done."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

from agentloop_experiment_sdk import Experiment, LocalAgentLoop, local_config

ANSWER_BYTES = 200_000


def peak_bytes(folder: Path, rows: int) -> int:
    """The most memory that Python held while so many rows ran."""

    def solution(task: Any) -> str:
        return "{:06d}".format(task.input["n"]) * (ANSWER_BYTES // 6)

    with LocalAgentLoop(folder / "platform.db") as local:
        plan = local.create_plan(local.load_dataset([{"n": n} for n in range(rows)]))
        experiment = Experiment(
            local_config(local, plan), solution, folder / "results", n_workers=4, progress=False
        )
        tracemalloc.start()
        try:
            experiment.run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_many_answers_take_no_more_memory_than_few(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = peak_bytes(tmp_path / "few", 150)
    many = peak_bytes(tmp_path / "many", 450)
    # 300 further answers are 60 MB
    assert many - few < 20_000_000, (few, many)
