"""Calling any callable as a solution: which arguments it takes, what its answer becomes."""

from __future__ import annotations

import functools
import inspect
import os
import traceback
from collections import abc
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Optional, Tuple

from ..errors import ConfigurationError
from ..models import SolutionOutput, Task
from .redact import redact_error
from .refusals import refusal_of

Prepared = Callable[[Task, Callable[[], None]], Any]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FRAMES_KEPT = 20
_TRACEBACK_CHARACTERS = 8000
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def prepare(solution: Any) -> Prepared:
    """Decide once how ``solution`` takes its arguments; the result is called per attempt.

    The task is the first positional argument. ``pre_hook`` goes to a parameter of that name, else
    to a second positional without default, else to ``*args``; never into a defaulted parameter of
    the user's own. A callable whose signature cannot be read (some builtins) gets the task only.

    Args:
        solution: Any callable: function, method, ``functools.partial``, object with ``__call__``.

    Returns:
        ``invoke(task, pre_hook)``, which returns what the solution returned, coroutines included.

    Raises:
        ConfigurationError: ``solution`` is not callable, takes no task, or requires more.
    """
    if not callable(solution):
        raise ConfigurationError(
            "The solution must be callable, such as a function that takes the task; "
            "{!r} is not.".format(type(solution).__name__)
        )
    parameters = _parameters(solution)
    if parameters is None:
        return lambda task, pre_hook: solution(task)
    positions, keywords = _placement(_name(solution), parameters)
    return _invocation(solution, positions, keywords)


def _parameters(solution: Any) -> Optional[List[inspect.Parameter]]:
    try:
        signature = inspect.signature(solution, follow_wrapped=False)
        if any(item.kind is item.VAR_POSITIONAL for item in signature.parameters.values()):
            # a decorator's (*args, **kwargs) says nothing; what it wraps does
            signature = inspect.signature(solution)
    except (ValueError, TypeError):
        return None
    bound = solution.keywords if isinstance(solution, functools.partial) else {}
    return [item for name, item in signature.parameters.items() if name not in bound]


def _placement(
    name: str, parameters: List[inspect.Parameter]
) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    """What goes to each position, and to each keyword: ``task`` or ``pre_hook``."""
    positional = [item for item in parameters if item.kind in _POSITIONAL]
    star = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    taken = {item.name: "pre_hook" for item in parameters if _is_hook(item)}
    free = [item for item in positional if item.name not in taken]
    first = free[0] if free else None if star else _keyword_task(name, parameters)
    if first is not None:
        taken[first.name] = "task"
    if "pre_hook" not in taken.values() and len(free) > 1 and _required(free[1]):
        taken[free[1].name] = "pre_hook"
    _refuse_more(name, [item.name for item in parameters if _required(item)], taken)
    positions = _leading(positional, taken)
    keywords = {item.name: taken[item.name] for item in parameters if _by_keyword(item, taken)}
    for used in positions:
        keywords.pop(used, None)
    filled = [taken[used] for used in positions]
    if star and len(free) <= 1:
        present = filled + list(keywords.values())
        filled += [what for what in ("task", "pre_hook") if what not in present]
    return tuple(filled), keywords


def _is_hook(item: inspect.Parameter) -> bool:
    return item.name == "pre_hook" and item.kind not in _VARIABLE


def _required(item: inspect.Parameter) -> bool:
    return item.default is item.empty and item.kind not in _VARIABLE


def _by_keyword(item: inspect.Parameter, taken: Dict[str, str]) -> bool:
    return item.name in taken and item.kind is not item.POSITIONAL_ONLY


def _leading(positional: List[inspect.Parameter], taken: Dict[str, str]) -> List[str]:
    """The names that can be filled by position: those before the user's first own parameter."""
    names = []
    for item in positional:
        if item.name not in taken:
            break
        names.append(item.name)
    return names


def _keyword_task(name: str, parameters: List[inspect.Parameter]) -> inspect.Parameter:
    """Without a positional parameter the task goes to ``task=``, or the only one required."""
    named = [item for item in parameters if item.kind is item.KEYWORD_ONLY and not _is_hook(item)]
    wanted = [item for item in named if item.name == "task"] or list(filter(_required, named))
    if not wanted:
        raise ConfigurationError(
            "The solution {} takes no argument for the task; give it one (a class must be "
            "instantiated first).".format(name)
        )
    return wanted[0]


def _refuse_more(name: str, required: List[str], taken: Dict[str, str]) -> None:
    missing = [item for item in required if item not in taken]
    if missing:
        raise ConfigurationError(
            "The solution {} requires {} besides the task and pre_hook; bind what else it needs, "
            "for instance with functools.partial.".format(name, ", ".join(missing))
        )


def _invocation(
    solution: Callable[..., Any], positions: Tuple[str, ...], keywords: Dict[str, str]
) -> Prepared:
    if positions == ("task",) and not keywords:
        return lambda task, pre_hook: solution(task)
    if positions == ("task", "pre_hook"):
        return solution

    def invoke(task: Task, pre_hook: Callable[[], None]) -> Any:
        given = {"task": task, "pre_hook": pre_hook}
        named = {name: given[what] for name, what in keywords.items()}
        return solution(*[given[what] for what in positions], **named)

    return invoke


def _name(solution: Any) -> str:
    if isinstance(solution, functools.partial):
        return _name(solution.func)
    return str(getattr(solution, "__qualname__", type(solution).__qualname__))


def is_async(solution: Any) -> bool:
    """Whether calling ``solution`` gives a coroutine or an async generator, as far as can be told.

    True for async functions and methods, objects with an async ``__call__`` and partials of them.
    A plain callable that returns an awaitable is only found out when it returns: ``needs_loop``.
    """
    while isinstance(solution, functools.partial):
        solution = solution.func
    if not callable(solution):
        return False
    return _defined_async(solution) or _defined_async(type(solution).__call__)


def _defined_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def needs_loop(value: Any) -> bool:
    """Whether a returned value has to be awaited or collected on an event loop."""
    return inspect.isawaitable(value) or isinstance(value, abc.AsyncIterator)


async def finish_async(value: Any) -> SolutionOutput:
    """The output of what an async solution returned: awaited, and collected if it is a stream."""
    while inspect.isawaitable(value):
        value = await value
    if isinstance(value, abc.AsyncIterator):
        return await collect_async(value)
    return to_output(value)


def to_output(value: Any) -> SolutionOutput:
    """What a solution returned as a ``SolutionOutput``; call it where the solution ran.

    A ``SolutionOutput`` is passed on as it is. A generator or other iterator is collected (this
    runs the user's code): pieces of text are joined, other items become a list; a
    ``SolutionOutput`` as last item, or a generator's ``return`` value, is the answer itself. If it
    raises half way, the row fails and keeps the pieces. Any other value is a success.
    """
    if isinstance(value, SolutionOutput):
        return _complete(value)
    if isinstance(value, abc.Iterator):
        return _collect(value)
    return SolutionOutput(True, value)


def _complete(output: SolutionOutput) -> SolutionOutput:
    """``output``; one of a subclass that never called ``super().__init__`` raises here."""
    output.success, output.output, output.trajectory, output.meta  # noqa: B018
    return output


def _collect(stream: Iterator[Any]) -> SolutionOutput:
    pieces: List[Any] = []
    try:
        while True:
            pieces.append(next(stream))
    except StopIteration as end:
        returned = end.value
    except Exception as error:
        return failure_from(error, output=_joined(pieces))
    if returned is None:
        return _streamed(pieces)
    if isinstance(returned, SolutionOutput):
        return _complete(returned)
    return SolutionOutput(True, returned, trajectory=pieces)


async def collect_async(stream: AsyncIterator[Any]) -> SolutionOutput:
    """The output of an async generator, collected like ``to_output`` collects a generator."""
    pieces: List[Any] = []
    try:
        async for piece in stream:
            pieces.append(piece)
    except Exception as error:
        return failure_from(error, output=_joined(pieces))
    return _streamed(pieces)


def _streamed(pieces: List[Any]) -> SolutionOutput:
    if pieces and isinstance(pieces[-1], SolutionOutput):
        return _complete(pieces[-1])
    return SolutionOutput(True, _joined(pieces))


def _joined(pieces: List[Any]) -> Any:
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces


def failure_from(error: BaseException, output: Any = "") -> SolutionOutput:
    """The failed output of a solution that raised; ``meta["traceback"]`` shows the user's frames.

    What looks like a credential in the texts is masked.

    Args:
        error: Any exception; ``SystemExit`` and ``CancelledError`` are failures of the row too.
        output: What was answered before it was raised.
    """
    meta: Dict[str, Any] = {"traceback": user_traceback(error), **refusal_of(error)}
    return SolutionOutput.failure(type(error).__name__, _message(error), meta, output)


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return "the solution called sys.exit({!r})".format(error.code)
    try:
        return redact_error(str(error) or repr(error))
    except Exception:
        return "its message cannot be read: str() of the exception raised"


def user_traceback(error: BaseException) -> str:
    """The end of a traceback, without our own frames above the user's code, and redacted."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    lines = traceback.format_exception(
        type(error), error, first or error.__traceback__, limit=-_FRAMES_KEPT
    )
    return redact_error("".join(lines)[-_TRACEBACK_CHARACTERS:])
