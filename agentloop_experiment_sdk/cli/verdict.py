"""The gate's options, its verdict, and the exit code that follows from both."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Collection, Dict, Optional, Sequence, Tuple

from ..errors import ConfigurationError, ExperimentError
from ..lines import counted
from . import exits
from .solutions import pair

if TYPE_CHECKING:
    from ..report.gate import GateResult
    from ..report.summary import ExperimentResult

_LIMITS = (
    "baseline",
    "min_success_rate",
    "max_regressions",
    "min_score",
    "max_p90_latency",
    "max_cost",
)
_DELIVERED = "delivered"  # the gate's check that is about the cloud, not about the agent


def add_options(parser: argparse.ArgumentParser, optional: bool) -> None:
    """The gate's options; ``optional`` adds the one that asks for the gate at all."""
    group = parser.add_argument_group(
        "gate", "any of the limits asks for the gate" if optional else None
    )
    add = group.add_argument
    if optional:
        add(
            "--gate",
            action="store_true",
            help="ask for the gate without a limit: no empty run, "
            "no missing row, no row of another version",
        )
    add("--baseline", metavar="DIR|FILE", help="a run, or a file of --export-baseline")
    add("--min-success-rate", type=share, metavar="SHARE", help="such as 0.95 or 95%%")
    add("--max-regressions", type=int, metavar="N", help="items of the baseline that may break")
    add("--min-score", action="append", metavar="METRIC=MEAN", help="may be given again")
    add("--max-p90-latency", type=float, metavar="SECONDS", help="90th percentile of the calls")
    add("--max-cost", type=float, metavar="AMOUNT", help="needs --price")
    add(
        "--price",
        action="append",
        metavar="MODEL=IN,OUT",
        help="per million tokens; * is any other model; may be given again",
    )
    add("--allow-undelivered", action="store_true", help="rows may be missing in SLS")
    add("--allow-stale", action="store_true", help="rows of another version of the agent count")
    add("--allow-incomplete", action="store_true", help="rows may have no result")


class GateOptions:
    """The gate as the options ask for it; reads the baseline at once, so that it must exist.

    Raises:
        ConfigurationError: An option cannot be used, or lacks what it needs.
    """

    def __init__(self, options: argparse.Namespace, always: bool = False) -> None:
        from ..report.sides import load_run

        self.wanted = always or options.gate or _any_limit(options)
        self.require_delivered = not options.allow_undelivered
        self._require_complete = not options.allow_incomplete
        self._part = any(getattr(options, name, None) for name in ("limit", "item_id"))
        self._limits: Dict[str, Any] = {
            "min_success_rate": options.min_success_rate,
            "max_regressions": options.max_regressions,
            "min_scores": _scores(options),
            "max_p90_latency": options.max_p90_latency,
            "max_cost": options.max_cost,
            "prices": _prices(options),
            "allow_stale": options.allow_stale,
            "allow_incomplete": options.allow_incomplete,
            "require_delivered": self.require_delivered,
        }
        _check(options)
        self.baseline = None if options.baseline is None else load_run(options.baseline)

    def check_metrics(self, evaluators: Sequence[Any], earlier: Optional[str]) -> None:
        """Refuse a metric that no evaluator can give, before any row runs.

        Args:
            evaluators: Those of the run.
            earlier: A directory whose scores count too, if it has any.

        Raises:
            ConfigurationError: There is such a metric.
        """
        from ..evaluate.evaluator import named_evaluators

        names = [evaluator.name for evaluator in named_evaluators(evaluators)]
        # an evaluator that returns several scores names them <evaluator>.<key>
        unknown = [
            metric
            for metric in self._limits["min_scores"] or ()
            if not any(metric == name or metric.startswith(name + ".") for name in names)
        ]
        if unknown and earlier is not None:
            scored = _scored(earlier)
            unknown = [metric for metric in unknown if metric not in scored]
        if unknown:
            raise ConfigurationError(
                "--min-score {}: no evaluator of the run gives this score ({}). Give its "
                "--evaluator, or mend the name.".format(
                    unknown[0], "there are " + ", ".join(names) if names else "there is none"
                )
            )

    def judge(self, result: ExperimentResult) -> Optional[GateResult]:
        """The gate's verdict on a run, None where no gate was asked for."""
        from ..report.gate import gate

        if not self.wanted:
            return None
        return gate(result, self.baseline, **self._limits)

    def is_incomplete(self, result: ExperimentResult, verdict: Optional[GateResult]) -> bool:
        """Whether rows that were to run have no result, although no gate looks at that."""
        # rows outside the part that was asked for are none of its business
        ended_early = result.status == "interrupted" or not self._part
        asked = verdict is None and self._require_complete
        return asked and ended_early and result.counts.incomplete > 0

    def remark(self, result: ExperimentResult, verdict: Optional[GateResult]) -> str:
        """What failed rows mean for the exit code of a run without a gate, or ""."""
        from ..report.gate import all_failed

        counts = result.counts
        if verdict is not None or not counts.failed:
            return ""
        if all_failed(result):
            return (
                "error: AllRowsFailed: {}. Mend the agent and run again with --retry-failed; "
                "--min-success-rate 0 lets such a run pass."
            ).format(all_failed(result))
        return (
            "{} of {} failed. No gate was asked for, so that does not change the exit code; "
            "--min-success-rate 95% would."
        ).format(counts.failed, counted(counts.succeeded + counts.failed, "row"))

    def exit_code(self, result: ExperimentResult, verdict: Optional[GateResult]) -> int:
        """What the run's end means to a CI job; a fault of the agent comes before the cloud's."""
        from ..report.gate import all_failed

        checks = () if verdict is None else verdict.checks
        if verdict is None and all_failed(result):
            return exits.GATE_FAILED
        if any(not check.passed and check.name != _DELIVERED for check in checks):
            return exits.GATE_FAILED
        if self.require_delivered and result.counts.undelivered:
            return exits.INFRASTRUCTURE
        return exits.INFRASTRUCTURE if self.is_incomplete(result, verdict) else exits.OK


def share(text: str) -> float:
    """``0.95`` or ``95%`` as a share, for argparse."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("{!r} is no share: write 0.95 or 95%".format(text))
    return value


def _scored(path: str) -> Collection[str]:
    """The metrics of the results in a directory, if there are any."""
    from ..report.summary import load_result

    try:
        return load_result(path).metrics
    except ExperimentError:
        return ()


def _any_limit(options: argparse.Namespace) -> bool:
    return any(getattr(options, name) is not None for name in _LIMITS)


def _check(options: argparse.Namespace) -> None:
    """What the gate would refuse after the run is refused before it."""
    if options.max_regressions is not None and options.baseline is None:
        raise ConfigurationError("--max-regressions needs --baseline.")
    if options.max_cost is not None and not options.price:
        raise ConfigurationError("--max-cost needs --price MODEL=IN,OUT.")
    for name in ("max_regressions", "max_p90_latency", "max_cost"):
        value = getattr(options, name)
        if value is not None and not 0 <= value < float("inf"):
            raise ConfigurationError(
                "--{} must be 0 or more, not {}.".format(name.replace("_", "-"), value)
            )


def _scores(options: argparse.Namespace) -> Optional[Dict[str, float]]:
    found = dict(pair(text, "--min-score") for text in options.min_score or ())
    return {name: _number(text, "--min-score") for name, text in found.items()} or None


def _prices(options: argparse.Namespace) -> Optional[Dict[str, Tuple[float, float]]]:
    prices: Dict[str, Tuple[float, float]] = {}
    for text in options.price or ():
        model, numbers = pair(text, "--price")
        parts = numbers.split(",")
        if len(parts) != 2:
            raise ConfigurationError("--price must be written as MODEL=IN,OUT.")
        prices[model] = (_number(parts[0], "--price"), _number(parts[1], "--price"))
    return prices or None


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise ConfigurationError("{}: {!r} is no number.".format(option, text))
    return value
