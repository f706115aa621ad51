"""Running evaluators over one row: names, isolation of their errors, sync and async."""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
from dataclasses import dataclass, replace
from typing import (
    Any,
    Awaitable,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Set,
    Tuple,
    Union,
)

from .. import jsontext
from ..errors import ConfigurationError, EvaluationError
from ..models import SolutionOutput, Task
from .metric import MetricResult, Verdict, failure_of, results_of, timestamp
from .selection import check_name

logger = logging.getLogger(__name__)

AwaitInLoop = Callable[[Awaitable[Any]], Any]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Evaluator(Protocol):
    """Scores one row: any sync or async callable ``(task, output)``.

    It sees the task and the output as they are stored (JSON values), so that scoring a directory
    again gives the same; the copies are its own. Failed rows are scored too (``output.success`` is
    False), skipped ones are not. A bool or text is a category metric, a number a numerical one;
    a dict is one metric ``{"score", "reason"}`` or several.
    """

    def __call__(
        self, __task: Task, __output: SolutionOutput
    ) -> Union[Verdict, Awaitable[Verdict]]: ...


@dataclass(frozen=True)
class NamedEvaluator:
    """An evaluator and the name its results go by.

    Attributes:
        name: The metric's name.
        call: The evaluator.
    """

    name: str
    call: Callable[[Task, SolutionOutput], Any]

    def __post_init__(self) -> None:
        check_name(self.name)
        if not callable(self.call):
            raise ConfigurationError(
                "An evaluator must be a callable (task, output), not {!r}.".format(self.call)
            )


Evaluators = Sequence[Union[Evaluator, NamedEvaluator]]


def named_evaluators(evaluators: Optional[Evaluators]) -> Tuple[NamedEvaluator, ...]:
    """The evaluators with their names, checked.

    The name is the attribute ``name``, else ``__name__``, else the class's name.

    Raises:
        ConfigurationError: It is neither None nor a list; one is not callable, has no usable name,
            or shares its name (letter case does not count: names become file names) with another.
    """
    if callable(evaluators):
        raise ConfigurationError("evaluators must be a list: write evaluators=[...].")
    given: Any = () if evaluators is None else evaluators
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise ConfigurationError(
            "evaluators must be a list of evaluators, or None for none, not {!r}.".format(given)
        )
    named = tuple(map(_named, given))
    seen: Set[str] = set()
    for evaluator in named:
        if evaluator.name.casefold() in seen:
            raise ConfigurationError(
                "Two evaluators are called {!r}; give each its own name (the name= of a built-in "
                "one, or an attribute `name`).".format(evaluator.name)
            )
        seen.add(evaluator.name.casefold())
    return named


def evaluate_output(
    evaluators: Evaluators,
    task: Task,
    output: SolutionOutput,
    *,
    await_in_loop: Optional[AwaitInLoop] = None,
    now: Optional[Callable[[], str]] = None,
) -> Tuple[MetricResult, ...]:
    """Score one row in the calling thread.

    Args:
        evaluators: Callables or what ``named_evaluators`` made of them.
        task: The row's task.
        output: What the solution answered, with the facts of its attempt in ``meta``.
        await_in_loop: Runs an awaitable on an event loop and returns its result; needed by async
            evaluators only.
        now: Gives the text for ``created_at``; None gives the local time.

    Returns:
        The metric results in the evaluators' order; an evaluator that failed gives one with an
        error and no score. Empty for a skipped row.
    """
    if is_skipped(output):
        return ()
    told = now or timestamp
    results: List[MetricResult] = []
    for evaluator in named_evaluators(evaluators):
        try:
            verdict = evaluator.call(*_own_copies(task, output))
            if inspect.isawaitable(verdict):
                verdict = _in_loop(evaluator.name, verdict, await_in_loop)
            results.extend(results_of(evaluator.name, verdict, told()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: a user's evaluator must not end the run
            results.append(_failed(evaluator.name, error, told()))
    return _distinct(results)


async def evaluate_output_async(
    evaluators: Evaluators,
    task: Task,
    output: SolutionOutput,
    *,
    in_thread: Optional[InThread] = None,
    now: Optional[Callable[[], str]] = None,
) -> Tuple[MetricResult, ...]:
    """Score one row on the running event loop; see ``evaluate_output``.

    ``task``, ``output`` and ``now`` are those of ``evaluate_output``.
    Async evaluators are awaited here, one after the other; others are called by ``in_thread``
    (default: the loop's default executor), with the caller's context variables.
    """
    if is_skipped(output):
        return ()
    told = now or timestamp
    results: List[MetricResult] = []
    for evaluator in named_evaluators(evaluators):
        try:
            call = functools.partial(evaluator.call, *_own_copies(task, output))
            verdict = call() if _is_async(evaluator.call) else await _off_loop(call, in_thread)
            if inspect.isawaitable(verdict):
                verdict = await verdict
            results.extend(results_of(evaluator.name, verdict, told()))
        except (Exception, SystemExit) as error:
            results.append(_failed(evaluator.name, error, told()))
    return _distinct(results)


def is_skipped(output: SolutionOutput) -> bool:
    """Whether the row was skipped (a conversation without turns): nothing to score."""
    return output.meta.get("skipped") is True


def missing_evaluators(
    evaluators: Evaluators, stored: Mapping[str, Mapping[str, Any]]
) -> Tuple[NamedEvaluator, ...]:
    """The evaluators that left nothing in ``stored``: metric name to content of its file.

    One that failed has left its error and is not missing.
    """
    metadata = ((content.get("metadata") or {}) for content in stored.values())
    present = {str(facts.get("evaluator")) for facts in metadata if isinstance(facts, Mapping)}
    present.update(stored)
    return tuple(e for e in named_evaluators(evaluators) if e.name not in present)


def _named(evaluator: Any) -> NamedEvaluator:
    if isinstance(evaluator, NamedEvaluator):
        return evaluator
    if not callable(evaluator) or isinstance(evaluator, type):
        raise ConfigurationError(
            "An evaluator must be a callable (task, output), not {!r}{}.".format(
                evaluator, "; give an instance of the class" if callable(evaluator) else ""
            )
        )
    name = getattr(evaluator, "name", None)
    if name is None or name == "":
        name = getattr(evaluator, "__name__", None)
    if name is None and isinstance(evaluator, functools.partial):
        name = getattr(evaluator.func, "__name__", None)
    if name is None or name == "":
        name = type(evaluator).__name__
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError("The evaluator {!r} has no usable name.".format(evaluator))
    if not _takes_task_and_output(evaluator):
        raise ConfigurationError(
            "The evaluator {0} does not take (task, output). If it makes evaluators, call it: "
            "{0}(...).".format(name)
        )
    return NamedEvaluator(jsontext.clean_text(name), evaluator)


def _takes_task_and_output(call: Any) -> bool:
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # some callables written in C have none
        return True
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    return True


def _own_copies(task: Task, output: SolutionOutput) -> Tuple[Task, SolutionOutput]:
    plain = jsontext.to_jsonable
    copied = Task(
        task.id,
        plain(task.input),
        plain(task.ground_truth),
        plain(task.tags),
        plain(task.metadata or {}),
    )
    return copied, SolutionOutput.from_dict(plain(output.to_dict()))


def _in_loop(name: str, awaitable: Awaitable[Any], await_in_loop: Optional[AwaitInLoop]) -> Any:
    coroutine = _awaited(awaitable)
    try:
        if await_in_loop is None:
            raise EvaluationError(
                "The evaluator {!r} is async and no event loop was given.".format(name)
            )
        return await_in_loop(coroutine)
    finally:
        for unused in (coroutine, awaitable):
            # never awaited (the loop has ended, say): closed, so that Python does not warn of it
            if inspect.iscoroutine(unused) and inspect.getcoroutinestate(unused) == "CORO_CREATED":
                unused.close()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except SystemExit as error:  # it would end the event loop, not only this evaluator
        raise EvaluationError("The evaluator called sys.exit({!r}).".format(error.code)) from error


async def _off_loop(call: Callable[[], Any], in_thread: Optional[InThread]) -> Any:
    bound = functools.partial(contextvars.copy_context().run, call)
    if in_thread is not None:
        return await in_thread(bound)
    import asyncio  # heavy; only needed on a loop, where it is loaded

    return await asyncio.get_running_loop().run_in_executor(None, bound)


def _is_async(call: Any) -> bool:
    while isinstance(call, functools.partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - looked at, not used as a test
    )


def _failed(name: str, error: BaseException, created_at: str) -> MetricResult:
    logger.debug("The evaluator %r failed.", name, exc_info=error)
    return failure_of(name, error, created_at)


def _distinct(results: Iterable[MetricResult]) -> Tuple[MetricResult, ...]:
    """Results whose names make different files: a second one of a name gets ``#2`` and so on."""
    distinct: Dict[str, MetricResult] = {}
    for result in results:
        name, serial = result.name, 1
        while name.casefold() in distinct:
            serial += 1
            name = "{}#{}".format(result.name, serial)
        distinct[name.casefold()] = replace(result, name=name)
    return tuple(distinct.values())
