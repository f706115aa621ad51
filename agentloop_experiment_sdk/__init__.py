"""Run your agent over a dataset offline, and trust what comes back."""

from ._version import __version__
from .api import run_experiment, run_experiment_parallel
from .errors import ExperimentError
from .models import HttpRequestSpec, SolutionOutput, Task
from .plan.config import AgentLoopConfig
from .solutions.command import command_solution, command_solution_with
from .solutions.http import http_solution, http_solution_with
from .tracing import trace_headers

__all__ = [
    "AgentLoopConfig",
    "ExperimentError",
    "HttpRequestSpec",
    "SolutionOutput",
    "Task",
    "__version__",
    "command_solution",
    "command_solution_with",
    "http_solution",
    "http_solution_with",
    "run_experiment",
    "run_experiment_parallel",
    "trace_headers",
]
