"""Calling a solution for one task, without plan, record or directory."""

from __future__ import annotations

import threading
from typing import List, Optional

from ..errors import ConfigurationError, RunAbortedError
from ..models import Attempt, Result, SolutionOutput, Task
from ..solutions.call import prepare
from .engine import Outlet
from .executor import Workers, check_loop, make_engine
from .invoke import CallFacts
from .loop import waiting
from .options import Solution
from .settings import seconds


def call_solution(
    solution: Solution, task: Task, timeout: Optional[float] = None
) -> SolutionOutput:
    """Call a solution once, as a run would: own copy of the task, trace, sync or async.

    Nothing is written and no cloud is asked. Also works inside a running event loop.

    Args:
        solution: Any solution.
        task: The task, for instance ``Task(id="try", input={"question": "…"})``.
        timeout: Seconds after which the call fails; None waits for as long as it takes.

    Returns:
        What the solution answered; an exception it raised is a failed output. ``meta`` also has
        ``latency_ms`` and, if the call carried one, ``traceId``.

    Raises:
        ConfigurationError: ``solution`` takes no task, ``task`` is none, ``timeout`` is no time,
            or an async solution would wait here for another one.
        RunAbortedError: The call was interrupted from inside.
    """
    timeout = seconds("timeout", timeout)
    if not isinstance(task, Task):
        raise ConfigurationError(
            "The task must be a Task, such as Task('try', {{'question': '…'}}), not {}.".format(
                type(task).__name__
            )
        )
    results: List[Result] = []
    errors: List[BaseException] = []
    finished = threading.Event()

    def took(result: Result) -> None:
        results.append(result)
        finished.set()

    def dropped(_attempt: Attempt, error: Optional[BaseException]) -> None:
        errors.append(error or RunAbortedError("The call was stopped."))
        finished.set()

    check_loop(solution)
    with waiting():
        facts = CallFacts(prepare(solution))
        workers = Workers(1, task_timeout=timeout)
        engine = make_engine(solution, facts, Outlet(took, dropped), workers)
        engine.submit(Attempt(task, str(task.metadata.get("repeat_id", "0"))))
        try:
            engine.assist(finished)
        finally:
            engine.stop()
            engine.close()
    if not results:
        raise errors[0]
    return _with_facts(results[0])


def _with_facts(result: Result) -> SolutionOutput:
    output = result.output
    facts = dict(output.meta, latency_ms=result.latency_ms)
    if result.trace_id:
        facts["traceId"] = result.trace_id
    return SolutionOutput(output.success, output.output, output.trajectory, facts)
