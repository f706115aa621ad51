"""call_solution: one synthetic task, nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from run_support import http_agent

from agentloop_experiment_sdk import (
    ConfigurationError,
    SolutionOutput,
    Task,
    call_solution,
    http_solution_with,
    trace_headers,
)

TASK = Task(id="try", input={"question": "why?"})


def test_a_plain_answer_comes_back_with_its_latency() -> None:
    output = call_solution(lambda task: task.input["question"], TASK)
    assert (output.success, output.output) == (True, "why?")
    assert output.meta["latency_ms"] >= 0 and "traceId" not in output.meta


def test_async_solutions_work_also_inside_a_running_loop() -> None:
    async def solution(task: Task) -> str:
        await asyncio.sleep(0)
        return "later"

    async def cell() -> SolutionOutput:
        return call_solution(solution, TASK)

    assert call_solution(solution, TASK).output == "later"
    assert asyncio.run(cell()).output == "later"


def test_an_exception_is_a_failed_output() -> None:
    def solution(task: Task) -> None:
        raise ValueError("no such key")

    output = call_solution(solution, TASK)
    assert not output.success
    assert (output.meta["error_type"], output.meta["error_message"]) == (
        "ValueError",
        "no such key",
    )


def test_the_task_is_not_changed_and_the_trace_id_is_told() -> None:
    def solution(task: Task) -> Any:
        task.input["question"] = "changed"
        return trace_headers()["traceparent"]

    output = call_solution(solution, TASK)
    assert output.meta["traceId"] in output.output
    assert TASK.input == {"question": "why?"}


def test_a_real_agent_is_called_once() -> None:
    asked = []

    def reply(body: Any) -> Any:
        asked.append(body)
        return {"answer": 42}

    with http_agent(reply) as url:
        output = call_solution(http_solution_with(url, json_body=TASK.input), TASK)
    assert output.success and output.meta["http"]["status"] == 200
    assert asked == [{"question": "why?"}]


def test_a_call_past_its_time_fails() -> None:
    async def solution(task: Task) -> None:
        await asyncio.sleep(60)

    assert call_solution(solution, TASK, timeout=0.05).meta["error_type"] == "TaskTimeout"


@pytest.mark.parametrize("timeout", [0, -1, True, "5"])
def test_a_time_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be"):
        call_solution(lambda task: 1, TASK, timeout=timeout)


def test_a_solution_that_takes_no_task_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="takes no argument"):
        call_solution(lambda: 1, TASK)


def test_an_interrupt_from_inside_is_raised() -> None:
    def solution(task: Task) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_solution(solution, TASK)


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call_solution(lambda task: 1, TASK)
    assert list(tmp_path.iterdir()) == []


def test_an_async_solution_that_waits_for_another_one_is_told_how() -> None:
    async def inner(task: Task) -> int:
        return 5

    async def outer(task: Task) -> Any:
        return call_solution(inner, task)

    output = call_solution(outer, TASK)  # without the refusal it would never return
    assert not output.success and "arun()" in output.meta["error_message"]


@pytest.mark.parametrize("task", [None, {"question": "why?"}, "why?"])
def test_what_is_no_task_is_refused(task: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a Task"):
        call_solution(lambda given: given, task)
