"""The event loop of the process, its executor, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
from run_support import CAP_S, ROOT, config_for, wait_until

from agentloop_experiment_sdk import Experiment, evaluate, run_experiment
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.run.loop import DaemonThreadExecutor, Heartbeat, LoopThread
from agentloop_experiment_sdk.run.single import call_solution


def test_the_executor_makes_no_more_threads_than_allowed_and_uses_idle_ones_again() -> None:
    executor = DaemonThreadExecutor(3)
    release = threading.Event()
    together = [executor.submit(release.wait, CAP_S) for _ in range(8)]
    assert len(executor._spawned) == 3
    release.set()
    assert all(future.result(CAP_S) for future in together)
    for _ in range(10):
        assert executor.submit(threading.current_thread).result(CAP_S) in executor._spawned
    assert len(executor._spawned) == 3


def test_the_executor_grows_although_threads_went_on_with_queued_jobs() -> None:
    executor = DaemonThreadExecutor(1)
    gates = [threading.Event() for _ in range(3)]
    first, second = (executor.submit(gate.wait, CAP_S) for gate in gates[:2])
    gates[0].set()
    first.result(CAP_S)
    # the only thread is busy with the second job; a third one needs a thread of its own
    executor.grow(2)
    assert executor.submit(int, "3").result(CAP_S) == 3
    gates[1].set()
    second.result(CAP_S)
    executor.grow(1)
    assert executor._limit == 2


def test_what_a_job_of_the_executor_raises_reaches_its_future() -> None:
    executor = DaemonThreadExecutor(1)
    with pytest.raises(ValueError):
        executor.submit(int, "x").result(CAP_S)
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 1).result(CAP_S)
    assert executor.submit(int, "1").result(CAP_S) == 1


def test_a_cancelled_job_is_not_run() -> None:
    executor = DaemonThreadExecutor(1)
    release, ran = threading.Event(), threading.Event()
    executor.submit(release.wait, CAP_S)
    waiting = executor.submit(ran.set)
    assert waiting.cancel()
    release.set()
    assert executor.submit(int, "1").result(CAP_S) == 1
    assert not ran.is_set()
    executor.shutdown()


def test_to_thread_runs_n_workers_calls_at_once() -> None:
    inside = threading.Barrier(6)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waits = [loop.run_in_executor(None, inside.wait, CAP_S) for _ in range(6)]
        await asyncio.gather(*waits)

    loop = LoopThread().get(6)
    asyncio.run_coroutine_threadsafe(main(), loop).result(CAP_S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    async def solution(task: Task) -> str:
        await asyncio.sleep(0)
        return "answered"

    assert call_solution(solution, Task("1", {})).output == "answered"
    child = os.fork()
    if child == 0:
        try:
            answered = call_solution(solution, Task("2", {}), timeout=30).output == "answered"
            os._exit(0 if answered else 3)
        finally:
            os._exit(4)
    ended: List[int] = []
    wait_until(lambda: ended or ended.extend([s for p, s in [os.waitpid(child, os.WNOHANG)] if p]))
    assert ended == [0]
    assert call_solution(solution, Task("3", {})).output == "answered"


def run_python(code: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH=ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=CAP_S,
        check=False,
    )


@pytest.mark.parametrize(
    "solution",
    [
        "lambda task: time.sleep(1000)",
        "asleep",
        "in_thread",
        "lambda task: asleep(task)",
    ],
)
def test_stuck_rows_do_not_hold_the_interpreter_at_exit(solution: str) -> None:
    done = run_python(
        """
import asyncio, sys, time
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.run.single import call_solution

async def asleep(task):
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        await asyncio.sleep(1000)

async def in_thread(task):
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, 1000)

print(call_solution({}, Task("1", {{}}), timeout=0.1).meta["error_type"])
""".format(solution)
    )
    assert (done.returncode, done.stdout.strip()) == (0, b"TaskTimeout"), done.stderr


def test_the_heartbeat_ends_with_its_loop_and_while_it_waits() -> None:
    loop = asyncio.new_event_loop()
    closed = Heartbeat(loop, every_s=0.01)
    loop.close()
    closed.start()
    closed._thread.join(CAP_S)
    assert not closed._thread.is_alive()

    idle = asyncio.new_event_loop()  # never runs: every beat goes unanswered
    beat = Heartbeat(idle, every_s=0.01)
    beat.start()
    time.sleep(0.05)
    beat.stop()
    beat._thread.join(CAP_S)
    assert not beat._thread.is_alive()
    idle.close()


def test_the_heartbeat_says_so_when_no_task_is_to_blame(caplog: pytest.LogCaptureFixture) -> None:
    loop = LoopThread().get(1)
    release = threading.Event()
    beat = Heartbeat(loop, every_s=0.02)
    loop.call_soon_threadsafe(release.wait, CAP_S)
    beat.start()
    wait_until(lambda: "by a callback" in caplog.text)
    release.set()
    beat.stop()


def test_a_run_inside_an_async_solution_is_refused_where_it_would_wait_for_ever(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 1)

    async def inner(task: Task) -> str:
        return "inner"

    async def outer(task: Task) -> Any:
        return run_experiment(config, inner, tmp_path / "inner")

    async def awaiting(task: Task) -> Any:
        return (await Experiment(config, inner, tmp_path / "awaited").arun()).counts.succeeded

    failed = Experiment(config, outer, tmp_path / "outer").run()
    assert failed.counts.failed == 1
    (file,) = (tmp_path / "outer").rglob("solution.json")
    assert "arun()" in json.loads(file.read_text("utf-8"))["meta"]["error_message"]
    assert not (tmp_path / "inner").exists()
    assert Experiment(config, awaiting, tmp_path / "outer2").run().counts.succeeded == 1


def test_an_async_solution_waits_for_nothing_async_of_an_inner_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 1)
    run_experiment(config, lambda task: "x", tmp_path / "done")

    async def later(*_: Any) -> bool:
        return True

    async def outer(task: Task) -> Any:
        async_in_sync = Experiment(config, lambda inner: later(), tmp_path / "a").run()
        scored = Experiment(config, lambda inner: "x", tmp_path / "b", evaluators=[later]).run()
        again = evaluate(tmp_path / "done", [later])
        assert async_in_sync.counts.failed == 1  # with the reason in its row, as below
        assert not scored.metrics["later"].n and not again.metrics["later"].n
        return call_solution(lambda inner: later(), task).meta["error_message"]

    experiment = Experiment(config, outer, tmp_path / "outer")
    assert experiment.run().counts.succeeded == 1  # each of them waited for ever
    (file,) = (tmp_path / "outer").rglob("solution.json")
    assert "both need the same event loop" in json.loads(file.read_text("utf-8"))["output"]


def test_a_solution_that_stops_the_event_loop_stops_no_run() -> None:
    async def stops(task: Task) -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "on"

    for _ in range(2):
        assert call_solution(stops, Task("t", {})).output == "on"
