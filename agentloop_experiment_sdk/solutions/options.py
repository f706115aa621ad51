"""How HTTP calls are made and their answers read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Optional, Tuple

from ..errors import ConfigurationError
from . import MAX_RESPONSE_BYTES as MAX_RESPONSE_BYTES

if TYPE_CHECKING:
    from .usage import UsageExtractor

TRACE_HEADER_VARIABLE = "AGENTLOOP_TRACE_ID_RESPONSE_HEADER"
DEFAULT_TRACE_HEADERS = ("eagleeye-traceId", "traceId")


@dataclass(frozen=True)
class HttpOptions:
    """How calls are made and their answers read.

    Args:
        timeout: Seconds for a whole exchange, dial to last byte, unless the request has its own.
        chunk_extractor: From an event's JSON (else its text) to the text it adds; see
            ``http_solution``.
        transport_retries: How often one call may be sent again, 0 for never.
        trace_id_response_headers: Response headers that may hold the trace id, in order; None
            takes the environment's, then ``eagleeye-traceId`` and ``traceId``.
        idle_timeout: Seconds of silence allowed between two events of a stream; None: no limit.
        end_mark: What must end a stream; None demands nothing.
        max_response_bytes: The largest answer, after decompression.
        usage_extractor: From an answer or event to its token usage; None knows the common shapes.

    Raises:
        ConfigurationError: A value cannot be used.
    """

    timeout: float = 300.0
    chunk_extractor: Optional[Callable[..., Any]] = None
    transport_retries: int = 2
    trace_id_response_headers: Optional[Tuple[str, ...]] = None
    idle_timeout: Optional[float] = None
    end_mark: Optional[str] = None
    max_response_bytes: int = MAX_RESPONSE_BYTES
    usage_extractor: Optional[UsageExtractor] = None

    def __post_init__(self) -> None:
        from .arguments import check_callback  # not for a script that only imports the package
        from .request import checked_headers

        check(_is_positive(self.timeout), "timeout must be a number of seconds above 0")
        check(
            self.idle_timeout is None or _is_positive(self.idle_timeout),
            "idle_timeout must be a number of seconds above 0, or None",
        )
        check(_is_count(self.transport_retries), "transport_retries must be 0 or a whole number")
        check(
            _is_count(self.max_response_bytes) and self.max_response_bytes > 0,
            "max_response_bytes must be a whole number above 0",
        )
        for name in ("chunk_extractor", "usage_extractor"):
            check_callback(name, getattr(self, name))
        check(
            self.end_mark is None or (isinstance(self.end_mark, str) and self.end_mark != ""),
            "end_mark must be a text that is not empty, or None",
        )
        checked_headers(dict.fromkeys(self.trace_id_response_headers or (), ""))


def check(usable: bool, demand: str) -> None:
    """Raise the ``ConfigurationError`` of an argument that does not meet ``demand``."""
    if not usable:
        raise ConfigurationError("HTTP solution: {}.".format(demand))


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def trace_header_names(options: HttpOptions, environ: Mapping[str, str] = os.environ) -> List[str]:
    """The response headers that are asked for the trace id, in order."""
    if options.trace_id_response_headers is not None:
        return list(options.trace_id_response_headers)
    configured = environ.get(TRACE_HEADER_VARIABLE, "").strip()
    return [configured, *DEFAULT_TRACE_HEADERS] if configured else list(DEFAULT_TRACE_HEADERS)
