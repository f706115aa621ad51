"""``--executor``: the same command over processes of this machine, or a Dask cluster."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
import sys
import time
from typing import Any, Iterator

import cli_process
import pytest

from agentloop_experiment_sdk import load_result
from agentloop_experiment_sdk.cli import executors

MORE = """

import threading


def where(task):
    return str(os.getpid())
"""


@pytest.fixture
def agent(work: pathlib.Path) -> pathlib.Path:
    path = work / "agent.py"
    path.write_text(path.read_text("utf-8") + MORE, "utf-8")
    return path


def pids(work: pathlib.Path) -> Any:
    return {row.output for row in load_result(str(work / "results"))}


def test_rows_run_in_processes(agent: pathlib.Path, work: pathlib.Path) -> None:
    process = cli_process.start(
        "run", "agent.py:where", "--local", "sums.jsonl", "--executor", "processes:2", cwd=work
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "6 rows, 6 succeeded" in out
    assert pids(work) and str(process.pid) not in pids(work)


def test_agents_over_http_and_commands_run_in_processes_too(work: pathlib.Path, cli: Any) -> None:
    done = cli(
        *("run", "--local", "sums.jsonl", "--executor", "processes:1"),
        *("--command", "echo", "{question}"),
    )
    assert done.code == 0, done.err
    done = cli(
        *("run", "--local", "sums.jsonl", "--executor", "processes:1", "--result-dir", "h"),
        *("--http", "http://127.0.0.1:9/", "--body-field", "message={question}"),
    )
    # they were called, in a process, and nobody listens there
    assert load_result("h").counts.failed == 6, done.err


def test_check_tries_the_executor_out(work: pathlib.Path, cli: Any) -> None:
    done = cli(
        *("check", "--local", "sums.jsonl", "--executor", "processes:1"),
        *("--command", "echo", "{question}"),
    )
    assert done.code == 0, done.err
    assert "ok   executor: a worker has loaded the solution" in done.out


@pytest.mark.parametrize("where", ["threads", "processes:0", "processes:x", "dask://nowhere"])
def test_what_names_no_executor_is_refused(where: str, cli: Any) -> None:
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--executor", where)
    assert done.code == 2
    assert "--executor" in done.err


def test_serial_and_an_executor_exclude_each_other(cli: Any) -> None:
    done = cli(
        *("run", "agent.py:answer", "--local", "sums.jsonl"),
        *("--executor", "processes", "--serial"),
    )
    assert done.code == 2 and "leave out --executor" in done.err


def test_ctrl_c_ends_a_run_whose_rows_do_not_end(work: pathlib.Path) -> None:
    process = cli_process.start(
        *("run", "agent.py:gated", "--local", "sums.jsonl", "--executor", "processes:2"), cwd=work
    )
    while not list(work.glob("began-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert load_result(str(work / "results")).counts.incomplete == 6


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, dashboard_address=None, silence_logs=logging.CRITICAL
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


def test_a_dask_cluster_runs_a_file_that_it_does_not_have(
    scheduler: str, agent: pathlib.Path, work: pathlib.Path, cli: Any
) -> None:
    done = cli("run", "agent.py:where", "--local", "sums.jsonl", "--executor", scheduler)
    assert done.code == 0, done.err
    assert len(pids(work)) == 1 and str(os.getpid()) not in pids(work)


def test_a_scheduler_that_is_not_there_is_said(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_CONNECT_S", 0.5)
    arguments = ("run", "agent.py:answer", "--local", "sums.jsonl", "--executor")
    done = cli(*arguments, "dask://127.0.0.1:9")
    assert done.code == 2 and "no Dask scheduler" in done.err
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = cli(*arguments, "dask://127.0.0.1:9")
    assert done.code == 2 and "[dask]" in done.err
