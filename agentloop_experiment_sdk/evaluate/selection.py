"""Picking the values that an evaluator compares: a path into the output, a column of the row."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple, Union

from .. import jsontext
from ..errors import ConfigurationError, EvaluationError
from ..models import SolutionOutput, Task
from .metric import Verdict

Selector = Union[None, str, Callable[[Any], Any]]
Compare = Callable[[Any, Any], Tuple[bool, str]]

_STEP = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class Check:
    """A built-in evaluator: a name and the function that scores."""

    name: str
    score: Callable[[Task, SolutionOutput], Verdict]

    def __post_init__(self) -> None:
        check_name(self.name)

    def __call__(self, task: Task, output: SolutionOutput) -> Verdict:
        """Score one row."""
        return self.score(task, output)


class MissingValueError(EvaluationError):
    """There is nothing at the path that was asked for."""

    code = "MissingValue"


def path_steps(path: str) -> List[str]:
    """``a.b[0].c`` as ``["a", "b", "0", "c"]``."""
    steps = _STEP.findall(path) if isinstance(path, str) else []
    if not steps:
        raise ConfigurationError(
            "A path such as 'answer' or 'turns[0].reply' is needed, not {!r}.".format(path)
        )
    return steps


def check_name(name: Any) -> None:
    """Raise ConfigurationError unless ``name`` can be a metric's name."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(
            "name must be the metric's name, a text that is not empty; not {!r}.".format(name)
        )


def check_selector(selector: Selector) -> None:
    """Raise ConfigurationError unless ``selector`` is None, a path or a callable."""
    if selector is not None and not callable(selector):
        path_steps(selector)


def select(value: Any, selector: Selector) -> Any:
    """What ``selector`` picks of ``value``: all of it, what a callable returns, or a path.

    Text that holds JSON is read first when a path leads into it; a list takes an index, -1 is the
    last; a key that is the whole path is taken before its steps.

    Raises:
        MissingValueError: The path leads nowhere.
    """
    if selector is None:
        return value
    if callable(selector):
        return selector(value)
    value = parsed(value)
    if isinstance(value, Mapping) and selector in value:
        return value[selector]
    for step in path_steps(selector):
        value = _step(parsed(value), step, selector)
    return value


def select_expected(task: Task, selector: Selector) -> Any:
    """The expected value: ``task.ground_truth``, or what ``selector`` picks of the row.

    Raises:
        EvaluationError: The row has none.
    """
    if selector is not None:
        return select(task.input, selector)
    if task.ground_truth is None or task.ground_truth == "":
        raise EvaluationError(
            "The row has no ground truth; set the config's ground_truth_field, or name the column "
            "with expected_field."
        )
    return task.ground_truth


def comparison(name: str, field: Selector, expected: Selector, compare: Compare) -> Check:
    """A check of the output against the row's expected value; a failed row does not match."""
    check_selector(field)
    check_selector(expected)

    def score(task: Task, output: SolutionOutput) -> Verdict:
        return score_output(
            output, field, lambda value: (value, select_expected(task, expected)), compare
        )

    return Check(name, score)


def score_output(
    output: SolutionOutput,
    field: Selector,
    operands: Callable[[Any], Tuple[Any, Any]],
    compare: Compare,
) -> Verdict:
    """The verdict of ``compare`` on what ``field`` picks; False where nothing is there."""
    if not output.success:
        return failed_row(output)
    try:
        actual = select(output.output, field)
    except MissingValueError as error:
        return {"score": False, "reason": error.message}
    matched, reason = compare(*operands(actual))
    return {"score": matched, "reason": "" if matched else reason}


def failed_row(output: SolutionOutput, score: Any = False) -> Verdict:
    """The verdict on a row without an answer: leaving it out would make the others' mean better."""
    kind = output.meta.get("error_type") or "UnknownError"
    return {"score": score, "reason": "The row failed: {}.".format(kind)}


def parsed(value: Any) -> Any:
    """``value``, or what it holds if it is the text of a JSON object or array."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def short(value: Any) -> str:
    """``value`` as text for a message, at most 200 characters."""
    text = jsontext.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _step(value: Any, step: str, path: str) -> Any:
    try:
        if isinstance(value, Mapping):
            return value[step]
        if isinstance(value, (list, tuple)):
            return value[int(step)]
    except (LookupError, ValueError):
        pass
    raise MissingValueError("There is no {!r} at {!r} in {}.".format(step, path, short(value)))


def optional_expected(task: Task, selector: Selector) -> Optional[Any]:
    """The expected value, or None where the row has none."""
    try:
        return select_expected(task, selector)
    except EvaluationError:
        return None
