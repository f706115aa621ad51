"""Whole runs over a real Dask cluster: a scheduler and two worker processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from pool_agents import (
    Deadly,
    Endless,
    Gated,
    Heavy,
    Unloadable,
    facts,
    large,
    names,
    note,
    on_the_loop,
)
from run_support import completed, config_for, counters, items, run, solutions, wait_until

from agentloop_experiment_sdk import ConfigurationError, Experiment
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.run.cluster import Cluster

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    ) as running:
        yield running


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def outputs(path: Any) -> List[Any]:
    return [json.loads(file.read_text("utf-8"))["output"] for file in solutions(path)]


def test_rows_run_on_both_workers_and_are_traced_saved_and_delivered(
    client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    result = run(config_for(local, 20), facts, tmp_path / "r", executor=client, version="v7")
    answers = outputs(tmp_path / "r")
    workers = set(client.run(os.getpid).values())
    assert {answer["pid"] for answer in answers} <= workers
    assert {answer["version"] for answer in answers} == {"v7"}
    assert all(result.record_id in answer["baggage"] for answer in answers)
    traces = {row["traceId"] for row in local.rows(result.record_id)}
    assert traces == {answer["traceparent"].split("-")[1] for answer in answers}
    assert sorted(items(local, result.record_id), key=int) == [str(n) for n in range(20)]
    assert counters(local, result.record_id) == completed(20)


def test_both_workers_are_busy_at_once(
    client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    """Row 0 holds its worker until the others are through, so the other worker did them."""
    config, solution = config_for(local, 6), Gated(notes)
    opener = threading.Thread(
        target=lambda: (wait_until(lambda: len(names(notes, "begun")) == 6), note(notes, "gate"))
    )
    opener.start()
    result = run(config, solution, tmp_path / "r", executor=client.get_executor())
    opener.join()
    assert result.counts.succeeded == 6
    assert len({name.split("-")[2] for name in names(notes, "begun")}) == 2


def test_the_rows_of_a_killed_worker_are_run_by_another_one(
    client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    killed: List[int] = []

    def kill() -> None:
        wait_until(lambda: names(notes, "begun-0-"))
        killed.append(int(names(notes, "begun-0-")[0].split("-")[2]))
        os.kill(killed[0], signal.SIGKILL)
        note(notes, "gate")

    killer = threading.Thread(target=kill)
    killer.start()
    result = run(config_for(local, 20), Gated(notes), tmp_path / "r", executor=client)
    killer.join()
    assert len(names(notes, "begun-0-")) == 2  # the second call of row 0, in another process
    assert counters(local, result.record_id) == completed(20)
    assert sorted(items(local, result.record_id), key=int) == [str(n) for n in range(20)]
    assert result.counts.undelivered == 0


def test_a_row_that_kills_every_worker_fails_alone(
    cluster: Any, client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    note(notes, "gate")
    scheduler, patience = cluster.scheduler, cluster.scheduler.allowed_failures
    scheduler.allowed_failures = 0  # give a row up at the first worker that dies under it
    try:
        result = run(config_for(local, 12), Deadly(notes, "3"), tmp_path / "r", executor=client)
    finally:
        scheduler.allowed_failures = patience
    failed = [row for row in local.rows(result.record_id) if row["dataset.id"] == "3"]
    assert "WorkerLost" in failed[0]["experiment_output"]
    assert counters(local, result.record_id) == completed(12, failed=1)


def test_stop_cancels_the_rows_of_all_workers(
    client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    experiment = Experiment(config_for(local, 20), Endless(notes), tmp_path / "r", executor=client)
    stopper = threading.Thread(
        target=lambda: (wait_until(lambda: len(names(notes, "begun")) >= 2), experiment.stop())
    )
    stopper.start()
    result = experiment.run()
    stopper.join()
    wait_until(lambda: len(names(notes, "cancelled")) == len(names(notes, "begun")))
    assert not solutions(tmp_path / "r")
    assert counters(local, result.record_id)["status"] == "failed"
    again = run(config_for(local, 3, dataset="again"), facts, tmp_path / "s", executor=client)
    assert again.counts.succeeded == 3


def test_async_solutions_share_one_loop_in_each_worker(
    client: Any, local: LocalAgentLoop, tmp_path: Path
) -> None:
    run(config_for(local, 10), on_the_loop, tmp_path, executor=client)
    answers = outputs(tmp_path)
    loops = {(answer["pid"], answer["loop"]) for answer in answers}
    assert len(loops) == len({answer["pid"] for answer in answers})


def test_a_big_solution_travels_to_a_worker_once_and_large_answers_come_back(
    client: Any, local: LocalAgentLoop, tmp_path: Path, notes: Path
) -> None:
    config = config_for(local, 12)
    result = run(config, Heavy(notes, 3_000_000), tmp_path / "h", executor=client)
    assert result.counts.succeeded == 12
    loaded = [name.split("-")[1] for name in names(notes, "loaded")]
    assert len(loaded) == len(set(loaded)) <= 2
    run(config_for(local, 2, dataset="large"), large, tmp_path / "l", executor=client)
    assert [len(output) for output in outputs(tmp_path / "l")] == [10_000_000] * 2


def test_a_solution_that_workers_cannot_load_is_refused_before_any_request(
    client: Any, local: LocalAgentLoop, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="cannot load the solution"):
        run(config_for(local), Unloadable(), tmp_path, executor=client)
    assert not local.requests and not list(tmp_path.iterdir())


def test_a_client_that_awaits_is_refused(cluster: Any) -> None:
    async def refuse() -> None:
        async with distributed.Client(cluster.scheduler_address, asynchronous=True) as awaiting:
            with pytest.raises(ConfigurationError, match="asynchronous"):
                Cluster(awaiting, facts, {})

    asyncio.run(refuse())


def test_a_closed_client_is_refused_before_any_request(
    cluster: Any, local: LocalAgentLoop, tmp_path: Path
) -> None:
    client = distributed.Client(cluster)
    executor = client.get_executor()
    client.close()
    with pytest.raises(ConfigurationError):
        run(config_for(local), facts, tmp_path, executor=executor)
    assert not local.requests


def test_n_workers_is_the_least_for_a_cluster_that_may_grow(client: Any) -> None:
    assert Cluster(client, facts, {}).make_ready(1) == 4
    assert Cluster(client, facts, {}).make_ready(40) == 40
