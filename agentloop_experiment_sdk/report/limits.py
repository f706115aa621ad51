"""The limits of a gate: which can be meant, and whether a run keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional

from ..errors import ConfigurationError
from ..lines import counted
from .measures import CATEGORY
from .pricing import Prices, check_prices
from .summary import ExperimentResult


@dataclass(frozen=True)
class GateCheck:
    """One condition of the gate: what was asked, whether it held, and what was found."""

    name: str
    passed: bool
    message: str


def check_limits(
    baseline: Any,
    min_success_rate: Any,
    max_regressions: Any,
    min_scores: Any,
    max_p90_latency: Any,
    max_cost: Any,
    prices: Any,
) -> None:
    """Refuse limits that cannot be meant, or lack what they need.

    Raises:
        ConfigurationError: A limit is out of range, or lacks a baseline or prices.
    """
    _check_number("min_success_rate", min_success_rate, "a share between 0 and 1, such as 0.95", 1)
    _check_number("max_p90_latency", max_p90_latency, "a number of seconds from 0")
    _check_number("max_cost", max_cost, "an amount from 0")
    _check_number("max_regressions", max_regressions, "a whole number from 0")
    if max_regressions is not None:
        if int(max_regressions) != max_regressions:
            raise ConfigurationError("max_regressions must be a whole number from 0.")
        if baseline is None:
            raise ConfigurationError("max_regressions needs a baseline to count against.")
    if max_cost is not None and prices is None:
        raise ConfigurationError("max_cost needs prices={model: (input, output)}.")
    if prices is not None:
        check_prices(prices)
    _check_scores(min_scores)


def _check_scores(min_scores: Any) -> None:
    if min_scores is None:
        return
    if not isinstance(min_scores, Mapping) or not all(isinstance(name, str) for name in min_scores):
        raise ConfigurationError("min_scores must map metric names to their least means.")
    for name, least in min_scores.items():
        if isinstance(least, bool) or not isinstance(least, (int, float)) or least != least:
            raise ConfigurationError(
                "min_scores[{!r}] must be a number, not {!r}.".format(name, least)
            )


def _check_number(name: str, value: Any, form: str, most: float = math.inf) -> None:
    if value is None:
        return
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not usable or not 0 <= value <= most or math.isinf(value):
        raise ConfigurationError("{} must be {}, not {!r}.".format(name, form, value))


def limit_checks(
    result: ExperimentResult,
    min_success_rate: Optional[float],
    min_scores: Optional[Mapping[str, float]],
    max_p90_latency: Optional[float],
    max_cost: Optional[float],
    prices: Optional[Prices],
) -> List[GateCheck]:
    """Whether the run keeps each limit that is given."""
    checks = []
    if min_success_rate is not None:
        checks.append(_success(result, min_success_rate))
    if max_p90_latency is not None:
        checks.append(_latency(result, max_p90_latency))
    if max_cost is not None and prices is not None:
        checks.append(_cost(result, max_cost, prices))
    return checks + [_score(result, name, least) for name, least in (min_scores or {}).items()]


def _success(result: ExperimentResult, least: float) -> GateCheck:
    rate = result.success_rate
    if rate is None:
        return GateCheck("min_success_rate", False, "there is no success rate without answers")
    enough = _reaches(rate, least)
    message = "success rate {}% is {} {:.2f}%".format(
        _told(100 * rate, 100 * least, ".2f"), "at least" if enough else "below", 100 * least
    )
    return GateCheck("min_success_rate", enough, message)


def _latency(result: ExperimentResult, most: float) -> GateCheck:
    if result.latency is None:
        return GateCheck("max_p90_latency", False, "no latency was measured")
    p90 = result.latency.p90 / 1000
    within = _reaches(most, p90)
    message = "p90 latency {} s is {} {:g} s".format(
        _told(p90, most, ".3f"), "within" if within else "above", most
    )
    return GateCheck("max_p90_latency", within, message)


def _cost(result: ExperimentResult, most: float, prices: Prices) -> GateCheck:
    cost = result.cost(prices)
    if not result.tokens:
        return GateCheck("max_cost", False, "the agent reported no tokens, so the cost is unknown")
    if cost.unpriced:
        message = "no price is given for {}, so the cost is unknown".format(
            ", ".join(cost.unpriced)
        )
        return GateCheck("max_cost", False, message)
    within = _reaches(most, cost.amount)
    message = "cost {} is {} {:g}".format(
        _told(cost.amount, most, ".4f"), "within" if within else "above", most
    )
    return GateCheck("max_cost", within, message)


def _score(result: ExperimentResult, name: str, least: float) -> GateCheck:
    check = "min_scores[{}]".format(name)
    summary = result.metrics.get(name)
    if summary is not None and summary.kind == CATEGORY:
        return GateCheck(check, False, "{!r} is a category, so it has no mean".format(name))
    if summary is not None and not summary.n:
        message = "no row has a score {!r}: its evaluator failed in all of them".format(name)
        return GateCheck(check, False, message)
    if summary is None or summary.estimate is None:
        known = ", ".join(result.metrics) or "none"
        return GateCheck(check, False, "there are no scores {!r} (metrics: {})".format(name, known))
    missing = sum(1 for m in result.measures if m.row.status == "success" and name not in m.scores)
    if missing:
        message = "{} of {} no score {!r}".format(
            missing, counted(result.counts.succeeded, "succeeded row", "has", "have"), name
        )
        return GateCheck(check, False, message)
    mean = summary.estimate.value
    enough = _reaches(mean, least)
    message = "{} {} is {} {:g}".format(
        name, _told(mean, least, ".4g"), "at least" if enough else "below", least
    )
    return GateCheck(check, enough, message)


def _reaches(value: float, least: float) -> bool:
    """Whether ``value`` is at least ``least``, whatever floating point lost on the way."""
    return value >= least or _same(value, least)


def _same(value: float, other: float) -> bool:
    """Equal in nine digits: the mean of 0.7, 0.2, 0.6 and 0.7 is a little less than 0.55."""
    return math.isclose(value, other, rel_tol=1e-9)


def _told(value: float, limit: float, form: str) -> str:
    """``value`` in ``form``, with more digits where it would read like a limit that it is not."""
    text = format(value, form)
    alike = text == format(limit, form) and not _same(value, limit)
    return "{:.10g}".format(value) if alike else text
