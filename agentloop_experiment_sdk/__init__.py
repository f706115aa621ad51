"""Run your agent over a dataset offline, and trust what comes back.

Where to begin; ``help()`` of each name says more:

- what to run: ``AgentLoopConfig``; without a cloud account ``LocalAgentLoop`` and ``local_config``
- calling an agent: ``http_solution_with``, ``command_solution_with``,
  ``multi_turn_http_solution_with``, or any function that takes a ``Task``; ``call_solution``
- running it: ``run_experiment_parallel``; ``Experiment`` for an ``ExperimentResult``; ``deliver``
- scoring: ``exact_match`` and the other evaluators, ``llm_judge``, ``evaluate``
- reading results: ``load_result``, ``compare``, ``gate``, ``write_html``, ``render_text``
- errors: all are an ``ExperimentError``
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

# first: a room that is imported later would take the place of the function of its name
from . import evaluate as _evaluate_room
from ._version import __version__
from .api import (
    Experiment,
    evaluate,
    local_config,
    run_experiment,
    run_experiment_parallel,
    run_multi_turn_agent_experiment,
    run_multi_turn_experiment,
)
from .errors import (
    CloudError,
    ConfigurationError,
    CredentialsError,
    DatasetError,
    DirectoryLockedError,
    EmptyDatasetError,
    EvaluationError,
    ExperimentError,
    PlanError,
    ResultsDirectoryError,
    ResumeError,
    RunAbortedError,
    TooManyFailuresError,
)
from .output import SolutionOutput
from .plan.config import AgentLoopConfig

del _evaluate_room

if TYPE_CHECKING:
    from .evaluate.judge import llm_judge
    from .evaluate.limits import latency_below, tokens_below, ttft_below
    from .evaluate.matching import contains, exact_match, json_equal, numeric_close, regex_match
    from .evaluate.metric import MetricResult
    from .local import LocalAgentLoop
    from .models import HttpRequestSpec, Task
    from .plan.connection import Connection, PlanSummary, list_plans
    from .report.baseline import export_baseline, load_baseline
    from .report.compare import Comparison, compare
    from .report.gate import GateResult, gate
    from .report.html import render_html, write_html
    from .report.jsonreport import render_json
    from .report.junit import render_junit
    from .report.markdown import render_markdown
    from .report.summary import ExperimentResult, load_result
    from .report.text import render_text
    from .results.stored import ResultRow
    from .run.check import CheckItem, CheckReport
    from .run.deliver import DeliveryReport, deliver
    from .run.events import (
        AttemptDone,
        Event,
        LimitChanged,
        Progress,
        RecordCreated,
        RowsDelivered,
        RunFinished,
    )
    from .run.single import call_solution
    from .solutions.command import command_solution, command_solution_with
    from .solutions.conversation import (
        multi_turn_cli_solution,
        multi_turn_http_solution,
        multi_turn_http_solution_with,
    )
    from .solutions.extractors import (
        anthropic_extractor,
        coze_extractor,
        dashscope_extractor,
        dify_extractor,
        openai_chat_extractor,
        openai_completions_extractor,
        openai_responses_extractor,
    )
    from .solutions.http import http_solution, http_solution_with
    from .solutions.session import default_session_id, uuid_session_id
    from .tracing import trace_headers

# loaded at first use, so that a script pays only for what it needs
_LAZY = {
    "AttemptDone": "run.events",
    "CheckItem": "run.check",
    "CheckReport": "run.check",
    "Comparison": "report.compare",
    "Connection": "plan.connection",
    "DeliveryReport": "run.deliver",
    "Event": "run.events",
    "ExperimentResult": "report.summary",
    "GateResult": "report.gate",
    "HttpRequestSpec": "models",
    "LimitChanged": "run.events",
    "LocalAgentLoop": "local",
    "MetricResult": "evaluate.metric",
    "PlanSummary": "plan.connection",
    "Progress": "run.events",
    "RecordCreated": "run.events",
    "ResultRow": "results.stored",
    "RowsDelivered": "run.events",
    "RunFinished": "run.events",
    "Task": "models",
    "anthropic_extractor": "solutions.extractors",
    "call_solution": "run.single",
    "command_solution": "solutions.command",
    "command_solution_with": "solutions.command",
    "compare": "report.compare",
    "contains": "evaluate.matching",
    "coze_extractor": "solutions.extractors",
    "dashscope_extractor": "solutions.extractors",
    "default_session_id": "solutions.session",
    "deliver": "run.deliver",
    "dify_extractor": "solutions.extractors",
    "exact_match": "evaluate.matching",
    "export_baseline": "report.baseline",
    "gate": "report.gate",
    "http_solution": "solutions.http",
    "http_solution_with": "solutions.http",
    "json_equal": "evaluate.matching",
    "latency_below": "evaluate.limits",
    "list_plans": "plan.connection",
    "llm_judge": "evaluate.judge",
    "load_baseline": "report.baseline",
    "load_result": "report.summary",
    "multi_turn_cli_solution": "solutions.conversation",
    "multi_turn_http_solution": "solutions.conversation",
    "multi_turn_http_solution_with": "solutions.conversation",
    "numeric_close": "evaluate.matching",
    "openai_chat_extractor": "solutions.extractors",
    "openai_completions_extractor": "solutions.extractors",
    "openai_responses_extractor": "solutions.extractors",
    "regex_match": "evaluate.matching",
    "render_html": "report.html",
    "render_json": "report.jsonreport",
    "render_junit": "report.junit",
    "render_markdown": "report.markdown",
    "render_text": "report.text",
    "tokens_below": "evaluate.limits",
    "trace_headers": "tracing",
    "ttft_below": "evaluate.limits",
    "uuid_session_id": "solutions.session",
    "write_html": "report.html",
}

__all__ = [
    "AgentLoopConfig",
    "AttemptDone",
    "CheckItem",
    "CheckReport",
    "CloudError",
    "Comparison",
    "ConfigurationError",
    "Connection",
    "CredentialsError",
    "DatasetError",
    "DeliveryReport",
    "DirectoryLockedError",
    "EmptyDatasetError",
    "EvaluationError",
    "Event",
    "Experiment",
    "ExperimentError",
    "ExperimentResult",
    "GateResult",
    "HttpRequestSpec",
    "LimitChanged",
    "LocalAgentLoop",
    "MetricResult",
    "PlanError",
    "PlanSummary",
    "Progress",
    "RecordCreated",
    "ResultRow",
    "ResultsDirectoryError",
    "ResumeError",
    "RowsDelivered",
    "RunAbortedError",
    "RunFinished",
    "SolutionOutput",
    "Task",
    "TooManyFailuresError",
    "__version__",
    "anthropic_extractor",
    "call_solution",
    "command_solution",
    "command_solution_with",
    "compare",
    "contains",
    "coze_extractor",
    "dashscope_extractor",
    "default_session_id",
    "deliver",
    "dify_extractor",
    "evaluate",
    "exact_match",
    "export_baseline",
    "gate",
    "http_solution",
    "http_solution_with",
    "json_equal",
    "latency_below",
    "list_plans",
    "llm_judge",
    "load_baseline",
    "load_result",
    "local_config",
    "multi_turn_cli_solution",
    "multi_turn_http_solution",
    "multi_turn_http_solution_with",
    "numeric_close",
    "openai_chat_extractor",
    "openai_completions_extractor",
    "openai_responses_extractor",
    "regex_match",
    "render_html",
    "render_json",
    "render_junit",
    "render_markdown",
    "render_text",
    "run_experiment",
    "run_experiment_parallel",
    "run_multi_turn_agent_experiment",
    "run_multi_turn_experiment",
    "tokens_below",
    "trace_headers",
    "ttft_below",
    "uuid_session_id",
    "write_html",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))
        found = getattr(import_module("." + module, __name__), name)
        globals()[name] = found
        return found


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
