"""kill -9 at random moments, each followed by a resume.

The full size: ``pytest tests/run/test_kill.py --kills=40``.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

from run_support import (
    Program,
    completed,
    config_for,
    counters,
    journal,
    meta_of,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import load_result
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.run.pace import AHEAD

ROWS, WORKERS = 200, 8
Key = Tuple[str, str, str]


def test_a_killed_run_is_resumed_without_loss(
    local: LocalAgentLoop, tmp_path: Path, kill_number: int, kill_seed: int
) -> None:
    chance = random.Random(kill_seed * 1000 + kill_number)
    config = config_for(local, ROWS)
    path = tmp_path / "results"
    after = chance.randrange(0, ROWS + 1)
    pause = chance.random() * 0.05
    options = {"n_workers": WORKERS}
    # some batches are on their way at any time
    local.faults.latency(0.05, "PutLogs")
    with Program(config, path, seconds=0.06, options=options, tell=["RecordCreated"]) as first:
        first.wait_for_line("event RecordCreated")
        first.wait_for_calls(after)
        time.sleep(pause)  # somewhere between two calls, or after the last one
        first.kill()
    on_disk, known = len(solutions(path)), journal(path)
    with Program(config, path, options=options) as second:
        assert second.end() == 0, second.stderr
    calls = Counter(first.calls + second.calls)
    again = sorted(item for item, count in calls.items() if count > 1)
    rows = local.rows(second.outcome["record_id"])
    copies = Counter(identity(row) for row in rows)
    doubled = [key for key, count in copies.items() if count > 1]
    print(
        "killed after {} calls + {:.0f} ms: {} on disk, {} journaled, {} delivered; then {} "
        "called again, {} rows doubled in SLS".format(
            after,
            pause * 1000,
            on_disk,
            len(known.saved),
            len(known.delivered),
            len(again),
            len(doubled),
        )
    )
    # each row is executed once, plus at most those that ran or were not saved yet
    assert sorted(calls) == sorted(str(n) for n in range(ROWS))
    assert max(calls.values()) <= 2 and len(again) <= 2 * WORKERS
    assert len(second.calls) == ROWS - on_disk
    assert_delivered(rows, known.delivered, copies)
    (record_id,) = local.records()
    assert second.outcome["record_id"] == record_id
    assert counters(local, record_id) == completed(ROWS)
    assert statuses(local, record_id)[-1] == "completed"
    assert_complete(path)


def identity(row: Dict[str, str]) -> Key:
    return (row["task_id"], row["repeat_id"], row["attempt"])


def assert_delivered(
    rows: List[Dict[str, str]], acknowledged: object, copies: Dict[Key, int]
) -> None:
    """Every row is in SLS, doubled only if its acknowledgement was lost with the process."""
    assert {row["dataset.id"] for row in rows} == {str(n) for n in range(ROWS)}
    for (task_id, repeat_id, _), count in copies.items():
        if count > 1:
            assert (task_id, repeat_id) not in acknowledged  # type: ignore[operator]
    answers: Dict[Key, str] = {}
    for row in rows:
        # copies are the same answer under the same ids
        content = answers.setdefault(identity(row), row["experiment_output"])
        assert row["experiment_output"] == content
    assert len(copies) == ROWS


def assert_complete(path: Path) -> None:
    """The results directory is whole and says what the record says."""
    result = load_result(path)
    assert result.status == "completed" and meta_of(path)["status"] == "completed"
    assert (result.counts.succeeded, result.counts.undelivered) == (ROWS, 0)
    assert not list(path.rglob("*.tmp")), "torn files stay behind"


def test_a_run_that_is_killed_again_and_again_comes_to_its_end(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 60)
    calls: List[str] = []
    kills = 0
    for _ in range(3):
        with Program(config, tmp_path, seconds=0.02, options={"n_workers": 4}) as program:
            program.wait_for_calls(12)
            program.kill()
        kills += 1
        calls += program.calls
    with Program(config, tmp_path, seconds=0.0, options={"n_workers": 4}) as program:
        assert program.end() == 0, program.stderr
    calls += program.calls
    assert set(calls) == {str(n) for n in range(60)}
    assert len(calls) - 60 <= kills * 2 * 4
    (record_id,) = local.records()
    assert counters(local, record_id) == completed(60)
    assert {row["dataset.id"] for row in local.rows(record_id)} == set(calls)


def test_of_quick_rows_that_were_gathered_at_the_kill_a_bounded_number_runs_again(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    rows, workers = 1000, 2
    config = config_for(local, rows)
    calls: List[str] = []
    for after in (400, 300):
        options = {"n_workers": workers}
        with Program(config, tmp_path, options=options, gathers=True) as program:
            program.wait_for_line("event gathers")
            program.wait_for_calls(after)
            program.kill()
        calls += program.calls
    with Program(config, tmp_path, options={"n_workers": workers}) as program:
        assert program.end() == 0, program.stderr
    calls += program.calls
    assert set(calls) == {str(n) for n in range(rows)}
    # those that ran, were answered but not saved, or whose line was not read when it was killed
    assert len(calls) - rows <= 2 * (workers + AHEAD)
    (record_id,) = local.records()
    assert counters(local, record_id) == completed(rows)
    assert {row["dataset.id"] for row in local.rows(record_id)} == set(calls)


def test_a_lock_dies_with_its_process_although_a_child_of_the_agent_lives_on(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 4)
    pids = tmp_path / "pids"
    job = {"seconds": 600, "pids": str(pids), "options": {"n_workers": 2}}
    with Program(config, tmp_path / "r", solution="cli", **job) as first:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) >= 4)
        first.kill()
    alive = [int(text) for text in pids.read_text().split()]
    try:
        for pid in alive:
            os.kill(pid, 0)
        with Program(config, tmp_path / "r") as second:
            assert second.end() == 0, second.stderr
        assert len(second.calls) == 4
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
