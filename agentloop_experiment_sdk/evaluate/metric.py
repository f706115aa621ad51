"""The result of one metric for one row, and how an evaluator's verdict becomes such results."""

from __future__ import annotations

import decimal
import fractions
import math
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Union

from .. import jsontext
from ..errors import EvaluationError

Score = Union[bool, int, float, str]
Verdict = Union[Score, Mapping[str, Any]]

CATEGORY = "category"
NUMERICAL = "numerical"


@dataclass(frozen=True)
class MetricResult:
    """What one metric says of one row, in AgentScope's schema for ``evaluation/<metric>.json``.

    Args:
        name: The metric's name.
        result: True or False, a number or a category; None when the evaluator failed.
        created_at: Local time, ``YYYY-MM-DD HH:MM:SS``.
        message: The reason for the score, or what went wrong.
        metadata: ``evaluator`` (whose result it is), ``error`` (type and message of a failure), and
            whatever else the evaluator said.
    """

    name: str
    result: Optional[Score]
    created_at: str
    message: Optional[str] = None
    metadata: Optional[Dict[str, Any]] = None

    @property
    def metric_type(self) -> Optional[str]:
        """``category`` (text, True, False) or ``numerical``; None without a score."""
        return metric_type(self.result)

    def to_dict(self) -> Dict[str, Any]:
        """The five keys of the file."""
        return {
            "name": self.name,
            "result": self.result,
            "created_at": self.created_at,
            "message": self.message,
            "metadata": self.metadata,
        }


def metric_type(result: Any) -> Optional[str]:
    """``category`` for text and bool, ``numerical`` for finite numbers, None for anything else."""
    if isinstance(result, (bool, str)):
        return CATEGORY
    try:
        return NUMERICAL if math.isfinite(result) else None
    except (TypeError, OverflowError):  # an int beyond every float is no score either
        return None


def is_number(value: Any) -> bool:
    """Whether ``value`` counts as a number; True and False do not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def timestamp() -> str:
    """The present local time as the evaluation files write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def results_of(evaluator: str, verdict: Any, created_at: str) -> Tuple[MetricResult, ...]:
    """An evaluator's verdict as metric results.

    A bool or text is a category, a number numerical. A dict with the key ``score`` is one metric:
    ``reason`` becomes its message, other keys its metadata. Any other dict is several metrics,
    named ``<evaluator>.<key>``, each value again a score or a dict with ``score``.

    Raises:
        EvaluationError: The verdict is none of these, or a number is not finite.
    """
    plain = _plain(verdict)
    if not isinstance(plain, dict):
        plain = {"score": plain}
    if "score" in plain:
        return (_single(evaluator, evaluator, plain, created_at),)
    if not plain:
        raise EvaluationError("The evaluator {!r} returned an empty dict.".format(evaluator))
    return tuple(_several(evaluator, plain, created_at))


def failure_of(evaluator: str, error: BaseException, created_at: str) -> MetricResult:
    """The result of an evaluator that failed: an error and no score."""
    kind = type(error).__name__
    text = jsontext.clean_text(_text_of(error))
    metadata = {"evaluator": evaluator, "error": {"type": kind, "message": text}}
    return MetricResult(evaluator, None, created_at, "{}: {}".format(kind, text), metadata)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be had)"


def _several(
    evaluator: str, verdicts: Mapping[str, Any], created_at: str
) -> Iterator[MetricResult]:
    for key, value in verdicts.items():
        plain = value if isinstance(value, dict) and "score" in value else {"score": value}
        yield _single("{}.{}".format(evaluator, key), evaluator, plain, created_at)


def _single(name: str, evaluator: str, verdict: Mapping[str, Any], created_at: str) -> MetricResult:
    score, reason = verdict["score"], verdict.get("reason")
    if metric_type(score) is None:
        raise EvaluationError(
            "The metric {!r} is {}; return True or False, a finite number, text, or a dict of "
            "these.".format(name, "None" if score is None else jsontext.dumps(score)[:200])
        )
    metadata: Dict[str, Any] = {"evaluator": evaluator}
    metadata.update((k, v) for k, v in verdict.items() if k not in ("score", "reason"))
    message = None if reason in (None, "") else jsontext.sls_text(reason)
    return MetricResult(name, score, created_at, message, metadata)


def _plain(verdict: Any) -> Any:
    if isinstance(verdict, MetricResult):
        return dict(verdict.metadata or {}, score=verdict.result, reason=verdict.message)
    if isinstance(verdict, Mapping):
        return {jsontext.sls_text(key): _plain(value) for key, value in verdict.items()}
    if isinstance(verdict, (decimal.Decimal, fractions.Fraction)):
        number = float(verdict)
        return number if math.isfinite(number) else None
    return jsontext.to_jsonable(verdict)
