"""Running evaluators over a row: verdicts, names, isolated errors, sync and async."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import decimal
import enum
import fractions
import functools
import sys
import threading
from typing import Any, Dict, List

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.evaluate import (
    MetricResult,
    NamedEvaluator,
    evaluate_output,
    evaluate_output_async,
    missing_evaluators,
    named_evaluators,
)
from agentloop_experiment_sdk.evaluate.matching import exact_match
from agentloop_experiment_sdk.evaluate.metric import metric_type
from agentloop_experiment_sdk.models import SolutionOutput, Task

TASK = Task("t-1", {"q": "2+2", "list": [1]}, "4")
OUTPUT = SolutionOutput.success({"answer": "4", "steps": [1]})
NOW = "2024-02-29 01:02:03"


def named(name: str, verdict: Any) -> Any:
    def evaluator(task: Task, output: SolutionOutput) -> Any:
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    evaluator.__name__ = name
    return evaluator


def run(*evaluators: Any, output: SolutionOutput = OUTPUT, **options: Any) -> Any:
    return evaluate_output(evaluators, TASK, output, now=lambda: NOW, **options)


class Grade(enum.Enum):
    GOOD = "good"


@dataclasses.dataclass
class Scored:
    score: float
    reason: str


@pytest.mark.parametrize(
    "verdict, result, kind",
    [
        (True, True, "category"),
        (False, False, "category"),
        ("good", "good", "category"),
        ("", "", "category"),
        (Grade.GOOD, "good", "category"),
        (3, 3, "numerical"),
        (0.5, 0.5, "numerical"),
        (decimal.Decimal("0.25"), 0.25, "numerical"),
        (fractions.Fraction(1, 4), 0.25, "numerical"),
    ],
)
def test_a_plain_verdict_is_one_metric_under_the_evaluators_name(
    verdict: Any, result: Any, kind: str
) -> None:
    (metric,) = run(named("m", verdict))
    assert metric == MetricResult("m", result, NOW, None, {"evaluator": "m"})
    assert metric.metric_type == kind
    assert type(metric.result) is type(result)
    assert metric.to_dict() == {
        "name": "m",
        "result": result,
        "created_at": NOW,
        "message": None,
        "metadata": {"evaluator": "m"},
    }


@pytest.mark.parametrize(
    "verdict",
    [
        {"score": 0.5, "reason": "half", "model": "x"},
        MetricResult("other", 0.5, "then", "half", {"model": "x"}),
    ],
)
def test_a_dict_with_a_score_is_one_metric_with_its_reason(verdict: Any) -> None:
    (metric,) = run(named("m", verdict))
    assert (metric.name, metric.result, metric.message) == ("m", 0.5, "half")
    assert metric.metadata == {"evaluator": "m", "model": "x"}


def test_a_dataclass_with_a_score_counts_as_its_dict() -> None:
    (metric,) = run(named("m", Scored(1.0, "")))
    assert (metric.result, metric.message) == (1.0, None)


def test_any_other_dict_is_several_metrics() -> None:
    results = run(named("m", {"f1": 0.5, "ok": {"score": True, "reason": "fine"}, 3: "c"}))
    assert [(r.name, r.result, r.message) for r in results] == [
        ("m.f1", 0.5, None),
        ("m.ok", True, "fine"),
        ("m.3", "c", None),
    ]
    assert {r.metadata["evaluator"] for r in results} == {"m"}


@pytest.mark.parametrize(
    "verdict, hint",
    [
        (None, "is None"),
        (float("nan"), "is None"),
        (decimal.Decimal("NaN"), "is None"),
        (10**400, "return True or False"),
        ([1], "[1]"),
        ({}, "empty dict"),
        ({"score": None}, "is None"),
        ({"a": 1, "b": [2]}, "'m.b' is [2]"),
    ],
)
def test_what_is_no_verdict_is_an_error_and_no_score(verdict: Any, hint: str) -> None:
    (metric,) = run(named("m", verdict))
    assert (metric.name, metric.result, metric.metric_type) == ("m", None, None)
    assert hint in metric.message
    assert metric.metadata["error"]["type"] == "EvaluationError"


class RudeError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error, message",
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError("x"), "CancelledError: x"),
        (ValueError("half \ud800"), "ValueError: half \ufffd"),
        (RudeError(), "RudeError: (its text cannot be had)"),
    ],
)
def test_an_evaluator_that_fails_costs_only_its_own_score(error: Any, message: str) -> None:
    first, second = run(named("bad", error), named("good", 1))
    assert (first.result, first.message) == (None, message)
    assert first.metadata["evaluator"] == "bad"
    assert second.result == 1


def test_an_interrupt_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(named("m", KeyboardInterrupt()))


def test_skipped_rows_are_not_evaluated_failed_ones_are() -> None:
    seen: List[bool] = []

    def evaluator(task: Task, output: SolutionOutput) -> bool:
        seen.append(output.success)
        return output.success

    skipped = SolutionOutput.success({"skipped": True}, meta={"skipped": True})
    assert run(evaluator, output=skipped) == ()
    assert run(evaluator, output=SolutionOutput.failure("E", "m"))[0].result is False
    assert seen == [False]


def test_evaluators_see_stored_values_and_cannot_spoil_anything() -> None:
    seen: Dict[str, Any] = {}

    def vandal(task: Task, output: SolutionOutput) -> bool:
        task.input["list"].append("spoiled")
        task.metadata["spoiled"] = True
        output.output["answer"] = "spoiled"
        output.meta.clear()
        return True

    def witness(task: Task, output: SolutionOutput) -> bool:
        seen.update(input=task.input, output=output.output, meta=output.meta)
        return True

    output = SolutionOutput.success({"answer": ("a", decimal.Decimal("1.5"))}, meta={"m": {1}})
    run(vandal, witness, output=output)
    assert seen == {
        "input": {"q": "2+2", "list": [1]},
        "output": {"answer": ["a", "1.5"]},
        "meta": {"m": [1]},
    }
    assert (TASK.input["list"], TASK.metadata) == ([1], {})
    assert output.output == {"answer": ("a", decimal.Decimal("1.5"))}


class Callable:
    def __call__(self, task: Task, output: SolutionOutput) -> int:
        return 1


class Named(Callable):
    name = "chosen"


class AsyncCallable:
    async def __call__(self, task: Task, output: SolutionOutput) -> int:
        return 5


def test_names_come_from_the_attribute_the_function_or_the_class() -> None:
    evaluators = [
        named("function", 1),
        Named(),
        Callable(),
        functools.partial(named("wrapped", 1)),
        functools.partial(Named()),
        lambda task, output: 1,
        named("half \ud800", 1),
    ]
    names = [evaluator.name for evaluator in named_evaluators(evaluators)]
    assert names == [
        "function",
        "chosen",
        "Callable",
        "wrapped",
        "partial",
        "<lambda>",
        "half \ufffd",
    ]
    assert named_evaluators(named_evaluators(evaluators)) == named_evaluators(evaluators)
    assert named_evaluators(None) == named_evaluators([]) == ()


def test_two_evaluators_of_one_name_are_refused() -> None:
    for other in ("same", "SAME"):
        with pytest.raises(ConfigurationError, match="give each its own name"):
            named_evaluators([named("same", 1), named(other, 1)])


@pytest.mark.parametrize(
    "evaluators, hint",
    [
        (["text"], "must be a callable"),
        ([Named], "instance of the class"),
        (Named(), "must be a list"),
        ([named(" ", 1)], "no usable name"),
        ([exact_match], r"exact_match does not take \(task, output\).*call it: exact_match\("),
        ([lambda task: True], "does not take"),
        (5, "must be a list of evaluators, or None"),
        (1.5, "must be a list of evaluators, or None"),
        (True, "must be a list of evaluators, or None"),
        (b"x", "must be a list of evaluators, or None"),
        ({"name": named("a", 1)}, "must be a list of evaluators, or None"),
    ],
)
def test_what_is_no_evaluator_is_refused(evaluators: Any, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        named_evaluators(evaluators)


@pytest.mark.parametrize("evaluators", [0, 0.0, False, "", b"", {}])
def test_what_is_empty_but_no_list_does_not_mean_no_scoring(evaluators: Any) -> None:
    with pytest.raises(ConfigurationError, match="evaluators must be a list"):
        named_evaluators(evaluators)


def test_any_iterable_of_evaluators_will_do() -> None:
    given = [named("a", 1), named("b", 1)]
    for evaluators in (given, tuple(given), iter(given), dict(zip("ab", given)).values()):
        assert [found.name for found in named_evaluators(evaluators)] == ["a", "b"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [5, [], 0, False, " "])
def test_a_name_that_is_not_text_is_refused(name: Any) -> None:
    strange = Named()
    strange.name = name
    with pytest.raises(ConfigurationError, match="no usable name"):
        named_evaluators([strange])


@pytest.mark.parametrize("name, call", [("", Named()), (5, Named()), ("n", 5)])
def test_a_named_evaluator_needs_a_name_and_a_callable(name: Any, call: Any) -> None:
    with pytest.raises(ConfigurationError, match="name must be|must be a callable"):
        NamedEvaluator(name, call)


def test_metrics_that_would_share_a_file_get_a_number() -> None:
    results = run(named("a", {"B": 1, "b": 2}), named("a.b", 3))
    assert [r.name for r in results] == ["a.B", "a.b#2", "a.b#3"]


async def async_evaluator(task: Task, output: SolutionOutput) -> float:
    await asyncio.sleep(0)
    return 0.5


async def async_exit(task: Task, output: SolutionOutput) -> float:
    sys.exit(4)


def test_async_evaluators_run_on_the_loop_that_is_given() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        def await_in_loop(awaitable: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(awaitable, loop).result(30)

        results = run(
            async_evaluator, AsyncCallable(), async_exit, named("s", 1), await_in_loop=await_in_loop
        )
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
    assert [r.result for r in results] == [0.5, 5, None, 1]
    assert "sys.exit(4)" in results[2].message


def refuse(awaitable: Any) -> Any:
    raise RuntimeError("the loop has ended")


@pytest.mark.parametrize("await_in_loop, hint", [(None, "no event loop"), (refuse, "has ended")])
@pytest.mark.filterwarnings("error")
def test_without_a_loop_an_async_evaluator_is_an_error(await_in_loop: Any, hint: str) -> None:
    (metric,) = run(async_evaluator, await_in_loop=await_in_loop)
    assert metric.result is None and hint in metric.message


def test_an_awaitable_that_is_no_coroutine_is_awaited_too() -> None:
    class Later:
        def __await__(self) -> Any:
            yield from ()
            return 7

    def step(coroutine: Any) -> Any:
        with pytest.raises(StopIteration) as stopped:
            coroutine.send(None)
        return stopped.value.value

    assert run(named("m", Later()), await_in_loop=step)[0].result == 7
    assert "no event loop" in run(named("m", Later()))[0].message


def test_on_a_loop_sync_evaluators_run_off_it_and_async_ones_on_it() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    threads: Dict[str, Any] = {}

    def sync(task: Task, output: SolutionOutput) -> str:
        threads["sync"] = threading.current_thread()
        return variable.get()

    async def on_loop(task: Task, output: SolutionOutput) -> float:
        threads["async"] = threading.current_thread()
        return 1.5

    async def main() -> Any:
        variable.set("acme")
        evaluators = [
            sync,
            on_loop,
            functools.partial(async_exit),
            AsyncCallable(),
            named("bad", ValueError("no")),
            lambda task, output: async_evaluator(task, output),
        ]
        return await evaluate_output_async(evaluators, TASK, OUTPUT, now=lambda: NOW)

    results = asyncio.run(main())
    assert [r.result for r in results] == ["acme", 1.5, None, 5, None, 0.5]
    assert threads["async"] is threading.main_thread() is not threads["sync"]


def test_on_a_loop_the_threads_can_be_chosen_and_skipped_rows_are_skipped() -> None:
    calls: List[Any] = []

    async def in_thread(call: Any) -> Any:
        calls.append(call)
        return call()

    async def main() -> Any:
        skipped = SolutionOutput.success("", meta={"skipped": True})
        assert await evaluate_output_async([named("m", 1)], TASK, skipped) == ()
        return await evaluate_output_async([named("m", 1)], TASK, OUTPUT, in_thread=in_thread)

    (metric,) = asyncio.run(main())
    assert metric.result == 1 and len(calls) == 1
    assert len(metric.created_at) == len(NOW)


def test_cancelling_the_evaluation_is_not_an_evaluators_error() -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def waits(task: Task, output: SolutionOutput) -> float:
            started.set()
            await asyncio.Event().wait()
            return 1.0

        running = asyncio.ensure_future(evaluate_output_async([waits], TASK, OUTPUT))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())


def test_what_an_earlier_run_left_is_not_missing() -> None:
    evaluators = [named("several", 1), named("failed", 1), named("plain", 1), named("new", 1)]
    stored = {
        "several.f1": {"metadata": {"evaluator": "several"}},
        "failed": {"result": None, "metadata": {"evaluator": "failed", "error": {}}},
        "plain": {"result": 1, "metadata": None},
    }
    assert [e.name for e in missing_evaluators(evaluators, stored)] == ["new"]
    assert len(missing_evaluators(evaluators, {})) == 4


def test_only_scores_have_a_type() -> None:
    assert metric_type("x") == metric_type(True) == "category"
    assert metric_type(1) == metric_type(1.5) == "numerical"
    assert metric_type(None) is metric_type(float("inf")) is metric_type(10**400) is None
