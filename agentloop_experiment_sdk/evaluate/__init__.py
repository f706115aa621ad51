"""Local evaluators: (task, output) → metric results."""

from .evaluator import (
    Evaluator,
    NamedEvaluator,
    evaluate_output,
    evaluate_output_async,
    missing_evaluators,
    named_evaluators,
)
from .judge import llm_judge
from .limits import latency_below, tokens_below, ttft_below
from .matching import contains, exact_match, json_equal, numeric_close, regex_match
from .metric import MetricResult

__all__ = [
    "Evaluator",
    "MetricResult",
    "NamedEvaluator",
    "contains",
    "evaluate_output",
    "evaluate_output_async",
    "exact_match",
    "json_equal",
    "latency_below",
    "llm_judge",
    "missing_evaluators",
    "named_evaluators",
    "numeric_close",
    "regex_match",
    "tokens_below",
    "ttft_below",
]
