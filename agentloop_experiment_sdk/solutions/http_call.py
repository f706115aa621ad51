"""One HTTP call per task: the solution behind ``http_solution`` and ``http_solution_with``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

from ..models import HttpRequestSpec, SolutionOutput, Task
from ..tracing import task_members
from .arguments import returned
from .call import failure_from
from .client import HttpClient
from .options import HttpOptions

PreHook = Optional[Callable[[], Any]]


class HttpSolution:
    """A solution that makes one HTTP call per task.

    Args:
        build_request: From a task to the request.
        options: How calls are made.
        fingerprint: What tells this solution from another: method and redacted URL.
        built_by: The user's builder, whose code is part of the solution's.
    """

    def __init__(
        self,
        build_request: Callable[[Task], HttpRequestSpec],
        options: HttpOptions,
        fingerprint: str,
        built_by: Any,
    ) -> None:
        self._build_request = build_request
        self._client = HttpClient(options)
        self.fingerprint = fingerprint
        self.built_by = built_by

    def __call__(self, task: Task, pre_hook: PreHook = None) -> SolutionOutput:
        """Call the agent for ``task``; ``pre_hook`` is called right before."""
        try:
            spec = self._build_request(task)
        except Exception as error:
            return failure_from(error)
        if not isinstance(spec, HttpRequestSpec):
            message = "build_request must return an HttpRequestSpec, not " + type(spec).__name__
            return SolutionOutput.failure("TypeError", message)
        if pre_hook is not None:
            pre_hook()
        return self._client.exchange(spec, members=task_members(task)).to_output()

    def close(self) -> None:
        """Close connections that are kept for the next call."""
        self._client.close()

    def __repr__(self) -> str:
        return "<HttpSolution {}>".format(self.fingerprint)


@dataclass(frozen=True)
class FixedRequest:
    """The request of ``http_solution_with``: the same for every task, but for a built body."""

    spec: HttpRequestSpec
    body_builder: Optional[Callable[[Task], Any]]

    def __call__(self, task: Task) -> HttpRequestSpec:
        if self.body_builder is None:
            return self.spec
        spec = self.spec
        body = returned("body_builder", self.body_builder(task))
        return HttpRequestSpec(spec.url, spec.method, spec.headers, body, None, spec.params)
