"""Evaluators that compare the answer with an expected value."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .. import jsontext
from ..arguments import check_flags
from ..errors import ConfigurationError, EvaluationError
from ..models import SolutionOutput, Task
from .metric import Verdict, is_number
from .selection import (
    Check,
    Selector,
    check_selector,
    comparison,
    parsed,
    path_steps,
    score_output,
    short,
)

_NUMBER = re.compile(
    # models also write U+2212, the minus of typeset mathematics
    r"(?:(?<!\w)[+\u2212-])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?",
    re.ASCII,
)
_ABSENT = object()
# what an evaluator adds to its reason where it compared an object with a single value
PART_HINT = " The answer is an object: name the part to compare, such as field="


def exact_match(
    *,
    field: Selector = None,
    expected_field: Selector = None,
    ignore_case: bool = False,
    strip: bool = True,
    name: str = "exact_match",
) -> Check:
    """True when the answer equals the expected value.

    Numbers are equal by value; everything else by its text, because dataset columns are text:
    ``42`` equals ``"42"``, and an object equals the JSON text of an equal one.

    Args:
        field: Path into the output (``answer``, ``turns[0].reply``) or a callable; None takes all.
        expected_field: Path into the row or a callable; None takes the task's ground truth.
        ignore_case: Compare without regard to letter case (Unicode case folding).
        strip: Leave out white space around text.
        name: The metric's name.
    """
    tidy = _tidy(ignore_case, strip)

    def compare(actual: Any, expected: Any) -> Tuple[bool, str]:
        numbers = is_number(actual) and is_number(expected)
        same = actual == expected if numbers else _texts_equal(actual, expected, tidy)
        told = "Expected {}, got {}.".format(short(expected), short(actual))
        whole = not isinstance(parsed(expected), (dict, list))
        return same, told + (_part_hint(actual, field) if whole else "")

    return comparison(name, field, expected_field, compare)


def contains(
    text: Union[None, str, Sequence[str]] = None,
    *,
    field: Selector = None,
    expected_field: Selector = None,
    ignore_case: bool = False,
    name: str = "contains",
) -> Check:
    """True when the answer's text contains ``text``, each of several, or the expected value.

    Args:
        text: What to look for; None takes the expected value (of a list: each item).
        field: Path into the output or a callable; None takes all of it.
        expected_field: Path into the row or a callable; None takes the task's ground truth.
        ignore_case: Look without regard to letter case.
        name: The metric's name.

    Raises:
        ConfigurationError: ``text`` is empty: every answer contains that.
    """
    given = [text] if text is None or isinstance(text, str) else text
    wanted = (
        None
        if text is None
        else list(given)
        if isinstance(given, (list, tuple, set, frozenset))
        else []
    )
    if wanted is not None and not (wanted and all(isinstance(w, str) and w for w in wanted)):
        raise ConfigurationError(
            "contains() needs a text that is not empty, not {!r}.".format(text)
        )
    tidy = _tidy(ignore_case, strip=False)

    def compare(actual: Any, needles: Any) -> Tuple[bool, str]:
        content = tidy(jsontext.sls_text(actual))
        absent = [needle for needle in _needles(needles) if tidy(needle) not in content]
        return not absent, "The answer lacks {}.".format(", ".join(map(short, absent)))

    return _against(name, field, wanted, expected_field, compare)


def regex_match(
    pattern: Optional[str] = None,
    *,
    field: Selector = None,
    expected_field: Selector = None,
    flags: int = 0,
    full: bool = False,
    name: str = "regex_match",
) -> Check:
    """True when a regular expression is found in the answer's text.

    Args:
        pattern: The expression (``re`` syntax); None takes the expected value.
        field: Path into the output or a callable; None takes all of it.
        expected_field: Path into the row or a callable; None takes the task's ground truth.
        flags: As for ``re.compile``.
        full: The whole text must match.
        name: The metric's name.

    Raises:
        ConfigurationError: ``pattern`` is not a regular expression, or is empty: every answer
            matches that.
    """
    check_flags(full=full)
    _check_expression(pattern, flags)

    def compare(actual: Any, expression: Any) -> Tuple[bool, str]:
        wanted = jsontext.sls_text(expression)
        if not wanted:
            raise EvaluationError("The expected value is empty: every answer matches that.")
        compiled = re.compile(wanted, flags)
        text = jsontext.sls_text(actual)
        found = compiled.fullmatch(text) if full else compiled.search(text)
        return found is not None, "No match of {} in {}.".format(short(expression), short(text))

    return _against(name, field, pattern, expected_field, compare)


def json_equal(
    *,
    ignore: Sequence[str] = (),
    field: Selector = None,
    expected_field: Selector = None,
    name: str = "json_equal",
) -> Check:
    """True when answer and expected value are the same JSON; text is parsed first.

    Key order does not count, ``1`` equals ``1.0``, ``true`` does not equal ``1``.

    Args:
        ignore: Paths that do not count, such as ``id`` or ``items[*].created_at``; ``*`` is any key
            or index.
        field: Path into the output or a callable; None takes all of it.
        expected_field: Path into the row or a callable; None takes the task's ground truth.
        name: The metric's name.
    """
    if isinstance(ignore, str):
        raise ConfigurationError(
            "ignore must be a list of paths: write ignore=[{!r}].".format(ignore)
        )
    if isinstance(ignore, (bytes, Mapping)) or not isinstance(ignore, Iterable):
        raise ConfigurationError("ignore must be a list of paths, not {!r}.".format(ignore))
    ignored = [path_steps(path) for path in ignore]

    def compare(actual: Any, expected: Any) -> Tuple[bool, str]:
        difference = _difference(_json(actual), _json(expected), [], ignored)
        return difference is None, difference or ""

    return comparison(name, field, expected_field, compare)


def numeric_close(
    tolerance: float = 1e-6,
    *,
    relative: float = 0.0,
    extract: bool = False,
    field: Selector = None,
    expected_field: Selector = None,
    name: str = "numeric_close",
) -> Check:
    """True when the answer is a number near the expected one.

    Args:
        tolerance: The largest difference allowed.
        relative: The largest difference allowed as a share of the expected number; the larger of
            both counts.
        extract: Take the last number in the answer's text ("The result is 1,234.5 km" is 1234.5);
            else the whole text must be one number.
        field: Path into the output or a callable; None takes all of it.
        expected_field: Path into the row or a callable; None takes the task's ground truth.
        name: The metric's name.

    Raises:
        ConfigurationError: A tolerance is not a number of 0 or more.
    """
    check_flags(extract=extract)
    for limit in (tolerance, relative):
        if not is_number(limit) or not 0 <= limit < math.inf:
            raise ConfigurationError("A tolerance must be 0 or more, not {!r}.".format(limit))

    def compare(actual: Any, expected: Any) -> Tuple[bool, str]:
        wanted, got = _number(expected, extract=False), _number(actual, extract)
        if wanted is None:
            raise EvaluationError("The expected value {} is not a number.".format(short(expected)))
        if got is None:
            told = "The answer {} is not a number.".format(short(actual))
            return False, told + _part_hint(actual, field)
        close = abs(got - wanted) <= max(tolerance, relative * abs(wanted))
        return close, "Expected {!r}, got {!r}.".format(wanted, got)

    return comparison(name, field, expected_field, compare)


def _against(
    name: str,
    field: Selector,
    fixed: Any,
    expected_field: Selector,
    compare: Callable[[Any, Any], Tuple[bool, str]],
) -> Check:
    """A comparison with a fixed value, or with the row's expected value when that is None."""
    if fixed is None:
        return comparison(name, field, expected_field, compare)
    check_selector(field)

    def score(task: Task, output: SolutionOutput) -> Verdict:
        return score_output(output, field, lambda actual: (actual, fixed), compare)

    return Check(name, score)


def _check_expression(pattern: Any, flags: Any) -> None:
    if isinstance(flags, bool) or not isinstance(flags, int) or flags < 0:
        raise ConfigurationError(
            "flags must be those of re.compile, such as re.IGNORECASE, not {!r}.".format(flags)
        )
    if pattern is not None and not (isinstance(pattern, str) and pattern):
        raise ConfigurationError(
            "regex_match() cannot use {!r}: give the expression as a text that is not empty, or "
            "None for the expected value.".format(pattern)
        )
    try:
        re.compile(pattern or "", flags)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(
            "regex_match() cannot use {!r} with flags={!r}: {}.".format(pattern, flags, error)
        ) from error


def _tidy(ignore_case: bool, strip: bool) -> Callable[[str], str]:
    check_flags(ignore_case=ignore_case, strip=strip)

    def tidy(text: str) -> str:
        text = text.strip() if strip else text
        return text.casefold() if ignore_case else text

    return tidy


def _texts_equal(actual: Any, expected: Any, tidy: Callable[[str], str]) -> bool:
    if isinstance(actual, (dict, list)) or isinstance(expected, (dict, list)):
        actual, expected = parsed(actual), parsed(expected)
    return tidy(_canonical(actual)) == tidy(_canonical(expected))


def _canonical(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(jsontext.to_jsonable(value), sort_keys=True, ensure_ascii=False)


def _needles(expected: Any) -> List[str]:
    values = expected if isinstance(expected, (list, tuple)) else [expected]
    needles = [jsontext.sls_text(value) for value in values]
    if not needles or not all(needles):
        raise EvaluationError("The expected value is empty: every answer contains that.")
    return needles


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _difference(
    actual: Any, expected: Any, path: List[str], ignored: Sequence[Sequence[str]]
) -> Optional[str]:
    """Where and how two JSON values differ first, or None."""
    if any(_matches(path, pattern) for pattern in ignored):
        return None
    pairs = _children(actual, expected)
    if pairs is None:
        same = actual is not _ABSENT and expected is not _ABSENT and _same_atom(actual, expected)
        return None if same else _describe(actual, expected, path)
    for step, mine, other in pairs:
        found = _difference(mine, other, path + [step], ignored)
        if found:
            return found
    return None


def _children(actual: Any, expected: Any) -> Optional[List[Tuple[str, Any, Any]]]:
    """The pairs below two values of the same kind; None when they must be compared as a whole."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        keys = list(expected) + [key for key in actual if key not in expected]
        return [(key, actual.get(key, _ABSENT), expected.get(key, _ABSENT)) for key in keys]
    if isinstance(actual, list) and isinstance(expected, list):
        size = max(len(actual), len(expected))
        padded = [values + [_ABSENT] * (size - len(values)) for values in (actual, expected)]
        return [(str(index), mine, other) for index, (mine, other) in enumerate(zip(*padded))]
    return None


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(path) == len(pattern) and all(p in ("*", s) for s, p in zip(path, pattern))


def _same_atom(actual: Any, expected: Any) -> bool:
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    return bool(actual == expected)


def _describe(actual: Any, expected: Any, path: Sequence[str]) -> str:
    where = "At {}: ".format(".".join(path)) if path else ""
    if actual is _ABSENT:
        return "{}expected {}, but it is absent.".format(where, short(expected))
    if expected is _ABSENT:
        return "{}{} is not expected.".format(where, short(actual))
    return "{}expected {}, got {}.".format(where, short(expected), short(actual))


def _part_hint(actual: Any, field: Selector) -> str:
    """How to compare a part of an object that was taken whole; "" for anything else."""
    if field is not None or not isinstance(actual, Mapping) or not actual:
        return ""
    return "{}{}.".format(PART_HINT, short(str(next(iter(actual)))))


def _number(value: Any, extract: bool) -> Optional[float]:
    if is_number(value):
        text = repr(value)
    elif isinstance(value, str):
        text = value.strip()
    else:
        return None
    found = _NUMBER.findall(text)
    if not found or not (extract or found[0] == text):
        return None
    number = float(found[-1].replace(",", "").replace("\u2212", "-"))
    return number if math.isfinite(number) else None
