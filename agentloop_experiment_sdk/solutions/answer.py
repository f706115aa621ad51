"""What one HTTP call of an agent came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional

from ..models import SolutionOutput


@dataclass(frozen=True)
class HttpAnswer:
    """What one call of an agent came to.

    Attributes:
        success: Whether a whole answer with a good status arrived and reported no error.
        output: Parsed JSON, text, a stream's text, or bytes. Of a failed call, what there was.
        status: The HTTP status; None when no answer began.
        headers: The answer's headers, names in lower case. They may hold secrets: never store them.
        error_type: Why it failed, "" if it did not; one of ``faults``.
        error_message: The same as a sentence, without secrets.
        trace_id: The trace that the agent saw; None if nothing was sent.
        asked: What was asked, for ``experiment_input``; None if the request had nothing in it.
        usage: ``input_tokens``, ``output_tokens``, ``total_tokens`` and perhaps ``model``.
        ttft_ms: Milliseconds from the call's begin to the first content of a stream.
        streamed: Whether the answer was an event stream.
        traceback: Where the user's own code failed on the answer; None if it did not.
        facts: Method, URL, status, headers and attempts, redacted, for ``meta["http"]``.
    """

    success: bool
    output: Any = ""
    status: Optional[int] = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    error_type: str = ""
    error_message: str = ""
    trace_id: Optional[str] = None
    asked: Any = None
    usage: Optional[Dict[str, Any]] = None
    ttft_ms: Optional[float] = None
    streamed: bool = False
    traceback: Optional[str] = None
    facts: Dict[str, Any] = field(default_factory=dict)

    def meta(self) -> Dict[str, Any]:
        """The facts under the names that ``SolutionOutput.meta`` has for them."""
        meta: Dict[str, Any] = {"http": self.facts}
        named = (
            ("experiment_input", self.asked),
            ("traceId", self.trace_id),
            ("usage", self.usage),
            ("ttft_ms", self.ttft_ms),
            ("traceback", self.traceback),
        )
        meta.update((name, value) for name, value in named if value is not None)
        return meta

    def to_output(self) -> SolutionOutput:
        """The answer as a solution's output."""
        if self.success:
            return SolutionOutput(True, self.output, meta=self.meta())
        return SolutionOutput.failure(
            self.error_type, self.error_message, meta=self.meta(), output=self.output
        )
