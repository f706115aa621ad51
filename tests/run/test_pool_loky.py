"""Whole runs over loky, whose workers are spawned and whose solutions may be closures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

import pytest
from pool_agents import Deadly
from run_support import completed, config_for, counters, run, solutions

from agentloop_experiment_sdk import RunAbortedError
from agentloop_experiment_sdk.local import LocalAgentLoop

loky = pytest.importorskip("loky")


@pytest.fixture
def executor() -> Iterator[Any]:
    reusable = loky.get_reusable_executor(max_workers=2)
    yield reusable
    reusable.shutdown(kill_workers=True)


def test_closures_run_in_its_workers(executor: Any, local: LocalAgentLoop, tmp_path: Path) -> None:
    here = os.getpid()

    def elsewhere(task: Any) -> bool:
        return os.getpid() != here

    result = run(config_for(local, 8), elsewhere, tmp_path, executor=executor)
    assert {row["experiment_output"] for row in local.rows(result.record_id)} == {"true"}
    assert counters(local, result.record_id) == completed(8)


def test_a_worker_that_dies_ends_the_run_with_nothing_lost(
    executor: Any, local: LocalAgentLoop, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    config, path = config_for(local, 8), tmp_path / "r"
    with pytest.raises(RunAbortedError) as caught:
        run(config, Deadly(notes, "1"), path, executor=executor)
    assert caught.value.code == "ExecutorBroken"
    result = run(config, lambda task: "alive", path, executor=loky.get_reusable_executor(2))
    assert counters(local, result.record_id) == completed(8)
    assert len(solutions(path)) == 8
