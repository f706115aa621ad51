"""Evaluators of what a call cost: its latency, its time to the first piece, its tokens."""

from __future__ import annotations

from typing import Any, Callable

from ..errors import ConfigurationError, EvaluationError
from ..models import SolutionOutput, Task
from .metric import Verdict, is_number
from .selection import Check, failed_row

_ATTEMPT = "agentloop.attempt"  # where the results directory keeps the facts of the attempt
_KINDS = ("total_tokens", "input_tokens", "output_tokens")


def latency_below(ms: float, *, name: str = "latency_below") -> Check:
    """True when the agent call took less than ``ms`` milliseconds; False for a failed row.

    Args:
        ms: Milliseconds, above 0.
        name: The metric's name.

    Raises:
        ConfigurationError: ``ms`` is not a number above 0.
    """

    def measure(output: SolutionOutput) -> Any:
        attempt = output.meta.get(_ATTEMPT)
        return attempt.get("latency_ms") if isinstance(attempt, dict) else None

    return _limit(name, ms, "latency_ms", measure, "The row has no latency recorded.")


def ttft_below(ms: float, *, name: str = "ttft_below") -> Check:
    """True when the first piece of a streamed answer came within ``ms`` milliseconds.

    A failed row is False; a row without a measured time (not streamed) gets no score.

    Args:
        ms: Milliseconds, above 0.
        name: The metric's name.

    Raises:
        ConfigurationError: ``ms`` is not a number above 0.
    """
    hint = "The row has no time to first token: only streamed answers have."
    return _limit(name, ms, "ttft_ms", lambda output: output.meta.get("ttft_ms"), hint)


def tokens_below(limit: float, *, kind: str = "total_tokens", name: str = "tokens_below") -> Check:
    """True when the agent reported fewer than ``limit`` tokens; False for a failed row.

    Args:
        limit: Number of tokens, above 0.
        kind: ``total_tokens``, ``input_tokens`` or ``output_tokens``.
        name: The metric's name.

    Raises:
        ConfigurationError: ``limit`` is not a number above 0, or ``kind`` is another one.
    """
    if kind not in _KINDS:
        raise ConfigurationError(
            "kind must be one of {}, not {!r}.".format(", ".join(_KINDS), kind)
        )

    def measure(output: SolutionOutput) -> Any:
        usage = output.meta.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        if kind in usage or kind != "total_tokens":
            return usage.get(kind)
        parts = [usage.get("input_tokens"), usage.get("output_tokens")]
        return sum(parts) if all(map(is_number, parts)) else None

    return _limit(name, limit, kind, measure, "The agent reported no {}.".format(kind))


def _limit(
    name: str,
    limit: float,
    key: str,
    measure: Callable[[SolutionOutput], Any],
    hint: str,
) -> Check:
    if not is_number(limit) or not limit > 0:
        raise ConfigurationError("{} needs a limit above 0, not {!r}.".format(name, limit))

    def score(task: Task, output: SolutionOutput) -> Verdict:
        if not output.success:
            return failed_row(output)
        value = measure(output)
        if not is_number(value):
            raise EvaluationError(hint)
        reason = "" if value < limit else "{} is {:g}, the limit {:g}.".format(key, value, limit)
        return {"score": bool(value < limit), "reason": reason, key: value}

    return Check(name, score)
