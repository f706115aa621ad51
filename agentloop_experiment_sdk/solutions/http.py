"""Calling an agent over HTTP: ``http_solution`` and ``http_solution_with``.

Every script imports this module, so it stays light: what makes the call is imported when a solution
is made, sockets, TLS and parsers by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Tuple, Union

from . import MAX_RESPONSE_BYTES

if TYPE_CHECKING:
    from ..models import HttpRequestSpec, Task
    from .http_call import HttpSolution
    from .usage import UsageExtractor

Data = Union[None, str, bytes, Mapping[str, Any]]


def http_solution(
    build_request: Callable[[Task], HttpRequestSpec],
    default_timeout: float = 300.0,
    chunk_extractor: Optional[Callable[..., Any]] = None,
    transport_retries: int = 2,
    trace_id_response_header: Optional[str] = None,
    *,
    idle_timeout: Optional[float] = None,
    end_mark: Optional[str] = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
    usage_extractor: Optional[UsageExtractor] = None,
) -> HttpSolution:
    """A solution that sends the request which ``build_request`` makes of each task.

    Args:
        build_request: Takes the task and returns an ``HttpRequestSpec``. An exception it raises
            fails the row.
        default_timeout: Seconds for the whole exchange, from dialling to the last byte, where the
            request names no timeout of its own.
        chunk_extractor: For answers of type ``text/event-stream``: takes an event's parsed JSON
            (else its text) and returns the text it adds; None or "" adds nothing, an exception
            fails the row. One with a parameter named ``event`` also gets the event's type. Without
            it the events' data is joined with nothing between. ``extractors`` has ready-made ones.
        transport_retries: How often a call may be sent again: an idempotent method when the
            connection fails before the answer, any method after 429 or 503.
        trace_id_response_header: The response header that holds the agent's trace id; None takes
            the one in AGENTLOOP_TRACE_ID_RESPONSE_HEADER. ``eagleeye-traceId`` and ``traceId`` are
            asked after it.
        idle_timeout: Seconds of silence allowed between two events of a stream; None: no limit.
        end_mark: What must end a stream, or it counts as cut: an event's whole data, its type, or
            the ``type`` or ``event`` of its JSON, such as ``[DONE]`` or ``message_stop``.
        max_response_bytes: The largest answer, after decompression; a larger one fails the row.
        usage_extractor: Takes an answer's JSON, or each event's, and returns its token usage as a
            mapping with ``input_tokens``, ``output_tokens`` and perhaps ``total_tokens`` and
            ``model``. Without it the shapes of OpenAI, Anthropic and DashScope are known.

    Returns:
        A solution for ``run_experiment`` and ``run_experiment_parallel``. A status of 400 or more,
        a redirect that leads nowhere, an incomplete answer and an error event are failed rows.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    from .arguments import check_callback
    from .fingerprint import qualified_name
    from .http_call import HttpSolution
    from .options import HttpOptions

    check_callback("build_request", build_request, required=True)
    options = HttpOptions(
        default_timeout,
        chunk_extractor,
        transport_retries,
        _trace_headers(trace_id_response_header),
        idle_timeout,
        end_mark,
        max_response_bytes,
        usage_extractor,
    )
    return HttpSolution(
        build_request, options, "http " + qualified_name(build_request), build_request
    )


def _trace_headers(configured: Optional[str]) -> Optional[Tuple[str, ...]]:
    from .options import DEFAULT_TRACE_HEADERS, check

    is_name = configured is None or isinstance(configured, str)
    check(is_name, "trace_id_response_header must be the name of one header, or None")
    return (configured, *DEFAULT_TRACE_HEADERS) if configured else None


def http_solution_with(
    url: str,
    *,
    method: str = "POST",
    headers: Optional[Mapping[str, str]] = None,
    json_body: Any = None,
    data: Data = None,
    params: Optional[Mapping[str, Any]] = None,
    body_builder: Optional[Callable[[Task], Any]] = None,
    timeout: float = 300.0,
    chunk_extractor: Optional[Callable[..., Any]] = None,
    transport_retries: int = 2,
    trace_id_response_header: Optional[str] = None,
    idle_timeout: Optional[float] = None,
    end_mark: Optional[str] = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
    usage_extractor: Optional[UsageExtractor] = None,
) -> HttpSolution:
    """A solution that sends every task to one URL.

    Args:
        url: Where the agent listens. ``user:password@`` in it is sent as Basic authorization and
            never stored.
        method: GET, POST, PUT, DELETE, PATCH, HEAD or OPTIONS.
        headers: Request headers. Those that look like credentials are masked in what is stored.
        json_body: A JSON body that is the same for every task.
        data: A text or bytes body, or a mapping that is sent as a form.
        params: Query parameters, added to those of the URL.
        body_builder: Takes the task and returns its JSON body. Only one of ``json_body``, ``data``
            and ``body_builder`` may be given.
        timeout: Seconds for the whole exchange, from dialling to the last byte.
        chunk_extractor, transport_retries, trace_id_response_header, idle_timeout, end_mark,
            max_response_bytes, usage_extractor: As for ``http_solution``.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    from ..models import HttpRequestSpec
    from .arguments import check_callback
    from .http_call import FixedRequest, HttpSolution
    from .options import HttpOptions, check
    from .redact import redact_url
    from .request import prepare

    bodies = [body for body in (json_body, data, body_builder) if body is not None]
    check(len(bodies) < 2, "give only one of json_body, data and body_builder")
    check_callback("body_builder", body_builder)
    fixed = HttpRequestSpec(url, method, headers, json_body, data, params)
    prepare(fixed)
    options = HttpOptions(
        timeout,
        chunk_extractor,
        transport_retries,
        _trace_headers(trace_id_response_header),
        idle_timeout,
        end_mark,
        max_response_bytes,
        usage_extractor,
    )
    fingerprint = "http {} {}".format(fixed.method, redact_url(url))
    return HttpSolution(FixedRequest(fixed, body_builder), options, fingerprint, body_builder)
