"""The built-in checks of latency, time to first token and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.evaluate import (
    evaluate_output,
    latency_below,
    tokens_below,
    ttft_below,
)
from agentloop_experiment_sdk.models import SolutionOutput, Task


def metric(check: Any, meta: Any, success: bool = True) -> Any:
    (result,) = evaluate_output([check], Task("t", {}), SolutionOutput(success, "x", meta=meta))
    return result


@pytest.mark.parametrize(
    "check, meta, result",
    [
        (latency_below(100), {"agentloop.attempt": {"latency_ms": 99.9}}, True),
        (latency_below(100), {"agentloop.attempt": {"latency_ms": 100}}, False),
        (latency_below(100), {"agentloop.attempt": {}}, None),
        (latency_below(100), {"agentloop.attempt": "text"}, None),
        (latency_below(100), {}, None),
        (ttft_below(50), {"ttft_ms": 20.5}, True),
        (ttft_below(50), {"ttft_ms": 60}, False),
        (ttft_below(50), {"ttft_ms": "20"}, None),
        (ttft_below(50), {}, None),
        (tokens_below(100), {"usage": {"total_tokens": 99}}, True),
        (tokens_below(100), {"usage": {"total_tokens": 100}}, False),
        (tokens_below(100), {"usage": {"input_tokens": 60, "output_tokens": 30}}, True),
        (tokens_below(100), {"usage": {"input_tokens": 60}}, None),
        (tokens_below(100), {"usage": None}, None),
        (tokens_below(100), {}, None),
        (tokens_below(100, kind="output_tokens"), {"usage": {"output_tokens": 5}}, True),
        (tokens_below(100, kind="output_tokens"), {"usage": {"total_tokens": 5}}, None),
    ],
)
def test_a_limit_holds_breaks_or_cannot_be_told(check: Any, meta: Any, result: Any) -> None:
    assert metric(check, meta).result is result


def test_the_measured_value_is_kept_and_named_when_it_breaks_the_limit() -> None:
    broken = metric(latency_below(100), {"agentloop.attempt": {"latency_ms": 250.5}})
    assert broken.message == "latency_ms is 250.5, the limit 100."
    assert broken.metadata == {"evaluator": "latency_below", "latency_ms": 250.5}
    assert metric(tokens_below(9, name="cheap"), {"usage": {"total_tokens": 5}}).message is None


@pytest.mark.parametrize("check", [latency_below(9e9), ttft_below(9e9), tokens_below(9e9)])
def test_a_failed_row_keeps_no_limit_however_fast_it_failed(check: Any) -> None:
    meta = {"agentloop.attempt": {"latency_ms": 1}, "ttft_ms": 1, "usage": {"total_tokens": 1}}
    result = metric(check, meta, success=False)
    assert (result.result, result.message) == (False, "The row failed: UnknownError.")


@pytest.mark.parametrize("limit", [0, -1, float("nan"), True, "5", None])
@pytest.mark.parametrize("build", [latency_below, ttft_below, tokens_below])
def test_an_unusable_limit_is_refused(build: Any, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        build(limit)


def test_an_unknown_kind_of_tokens_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="kind must be one of"):
        tokens_below(5, kind="tokens")


@pytest.mark.parametrize("name", ["", None, [], 5])
@pytest.mark.parametrize("build", [latency_below, ttft_below, tokens_below])
def test_a_name_that_names_nothing_is_refused(build: Any, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name must be the metric's name"):
        build(5, name=name)
