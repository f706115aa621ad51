"""Local evaluators: (task, output) → metric results."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# loaded at first use: the root imports this package whenever it is imported itself
_LAZY = {
    "Evaluator": "evaluator",
    "MetricResult": "metric",
    "NamedEvaluator": "evaluator",
    "contains": "matching",
    "evaluate_output": "evaluator",
    "evaluate_output_async": "evaluator",
    "exact_match": "matching",
    "json_equal": "matching",
    "latency_below": "limits",
    "llm_judge": "judge",
    "missing_evaluators": "evaluator",
    "named_evaluators": "evaluator",
    "numeric_close": "matching",
    "regex_match": "matching",
    "tokens_below": "limits",
    "ttft_below": "limits",
}

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

if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))
        return getattr(import_module("." + module, __name__), name)
