"""Conversations as solutions: one row is one whole conversation with an agent.

Built on the same HTTP and command code as single calls.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, Literal, Mapping, Optional, Sequence, Tuple, Union

from ..arguments import texts_of
from ..errors import ConfigurationError
from ..models import HttpRequestSpec
from .arguments import check_callback
from .call import is_async
from .client import HttpClient
from .command_call import MAX_OUTPUT_BYTES, Directory, Environment, shared_settings
from .command_turns import CommandBuilder, CommandTurns, TurnTraceResolver, parse_stdout
from .dialogue import AsyncConversationSolution, ConversationSolution, Dialogue, Send
from .fingerprint import qualified_name
from .http_turns import AnswerPlaces, BodyBuilder, HttpTurns, PlainBody
from .options import MAX_RESPONSE_BYTES, TRACE_HEADER_VARIABLE, HttpOptions
from .redact import redact_url
from .request import checked_headers, prepare
from .session import (
    SESSION_BODY_PATHS,
    SESSION_REQUEST_HEADERS,
    SESSION_RESPONSE_HEADERS,
    TRACE_BODY_PATHS,
    TRACE_RESPONSE_HEADERS,
    SessionIds,
    default_session_id,
    uuid_session_id,
)
from .turns import TurnExtractor, TurnSource
from .usage import UsageExtractor

OnMissing = Literal["skip", "fail"]
AnyConversation = Union[ConversationSolution, AsyncConversationSolution]


def multi_turn_http_solution(
    send_turn: Send,
    session_id: Optional[str] = None,
    turns_field: str = "turns",
    turn_extractor: Optional[TurnExtractor] = None,
    turns_fallback_fields: Sequence[str] = (),
    on_missing_turns: OnMissing = "skip",
    session_id_factory: Optional[Callable[..., Any]] = None,
) -> AnyConversation:
    """A solution that holds one conversation per row through a function of yours.

    The output is ``{"session_id", "turns_total", "turns", "final_reply", "usage_total"}``, with
    ``requested_session_id`` when the agent took its own. A failing turn fails the row and keeps
    the turns so far; what it came to is under ``failed_turn``.

    Args:
        send_turn: ``send_turn(message, session_id, turn_index, task)``, plain or async, sends one
            message. It returns ``{"reply", "trace_id", "usage", "raw", "session_id"}``, all
            optional, or just the reply; it raises if the turn failed. ``trace_headers()`` gives it
            the headers that link the call to its trace.
        session_id: One session for all conversations; None makes a new one for each. When an agent
            answers with its own, the following turns use that.
        turns_field: The column with the turns: a list or JSON text of one, see
            ``turns.messages_in`` for its items.
        turn_extractor: Takes the task and returns the turns; replaces the columns.
        turns_fallback_fields: Columns asked when ``turns_field`` is missing or empty.
        on_missing_turns: ``"skip"`` writes a row without turns as skipped, ``"fail"`` as failed.
        session_id_factory: Makes a new session id, from nothing or from the task; by default
            ``default_session_id``.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    if not callable(send_turn):
        raise ConfigurationError(
            "send_turn must be a function of message, session_id, turn_index and task."
        )
    dialogue = Dialogue(
        TurnSource(turns_field, turns_fallback_fields, turn_extractor),
        SessionIds(session_id, session_id_factory or default_session_id),
        on_missing_turns,
    )
    kind = AsyncConversationSolution if is_async(send_turn) else ConversationSolution
    name = "conversation by " + qualified_name(send_turn)
    return kind(send_turn, dialogue, name, send_turn)


def multi_turn_http_solution_with(
    url: str,
    *,
    session_id: Optional[str] = None,
    headers: Optional[Mapping[str, str]] = None,
    turns_field: str = "turns",
    turn_extractor: Optional[TurnExtractor] = None,
    turns_fallback_fields: Sequence[str] = (),
    on_missing_turns: OnMissing = "skip",
    session_field: str = "session_id",
    message_field: str = "message",
    body_builder: Optional[BodyBuilder] = None,
    timeout: float = 300.0,
    trace_id_body_paths: Sequence[str] = TRACE_BODY_PATHS,
    trace_id_response_headers: Sequence[str] = TRACE_RESPONSE_HEADERS,
    inject_session_headers: bool = True,
    session_id_request_headers: Sequence[str] = SESSION_REQUEST_HEADERS,
    session_id_response_headers: Sequence[str] = SESSION_RESPONSE_HEADERS,
    session_id_body_paths: Sequence[str] = SESSION_BODY_PATHS,
    chunk_extractor: Optional[Callable[..., Any]] = None,
    session_id_factory: Optional[Callable[..., Any]] = None,
    transport_retries: int = 2,
    idle_timeout: Optional[float] = None,
    end_mark: Optional[str] = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
    usage_extractor: Optional[UsageExtractor] = None,
) -> ConversationSolution:
    """A solution that holds one conversation per row by POSTing every turn to one URL.

    The output is that of ``multi_turn_http_solution``; ``turns`` are the answers' JSON or text.

    Args:
        url: Where the agent listens.
        session_id, turns_field, turn_extractor, turns_fallback_fields, on_missing_turns,
            session_id_factory: As for ``multi_turn_http_solution``.
        headers: Request headers of every turn.
        session_field: The body's key for the session id.
        message_field: The body's key for the message.
        body_builder: ``body_builder(message, session_id, turn_index, task)`` returns the JSON body
            instead.
        timeout: Seconds for one turn.
        trace_id_body_paths: Where an answer may name its trace, as dotted paths.
        trace_id_response_headers: Response headers that may name it; asked first. By default the
            one in AGENTLOOP_TRACE_ID_RESPONSE_HEADER is asked before them.
        inject_session_headers: Whether the session id is sent in headers too.
        session_id_request_headers: Those headers; one that is among ``headers`` is left alone.
        session_id_response_headers: Response headers that may hold the agent's session id.
        session_id_body_paths: Where an answer may hold it, asked after them.
        chunk_extractor, transport_retries, idle_timeout, end_mark, max_response_bytes,
            usage_extractor: As for ``http_solution``.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    names = _trace_headers(trace_id_response_headers)
    options = HttpOptions(
        timeout, chunk_extractor, transport_retries, names, idle_timeout, end_mark
    )
    options = replace(
        options, max_response_bytes=max_response_bytes, usage_extractor=usage_extractor
    )
    places = AnswerPlaces(
        names,
        texts_of("trace_id_body_paths", trace_id_body_paths),
        texts_of("session_id_response_headers", session_id_response_headers),
        texts_of("session_id_body_paths", session_id_body_paths),
    )
    build_body = body_builder or PlainBody(session_field, message_field)
    session_headers = _session_headers(session_id_request_headers, inject_session_headers)
    send = _http_turns(url, headers, options, build_body, session_headers, places)
    dialogue = Dialogue(
        TurnSource(turns_field, turns_fallback_fields, turn_extractor),
        SessionIds(session_id, session_id_factory or default_session_id),
        on_missing_turns,
    )
    name = "conversation over http POST " + redact_url(url)
    return ConversationSolution(send, dialogue, name, body_builder)


def _http_turns(
    url: str,
    headers: Optional[Mapping[str, str]],
    options: HttpOptions,
    build_body: BodyBuilder,
    session_headers: Tuple[str, ...],
    places: AnswerPlaces,
) -> HttpTurns:
    if not isinstance(url, str):
        raise ConfigurationError(
            "The url of a conversation must be text, not {}. A conversation that you made yourself "
            "is a solution: pass it to run_experiment_parallel.".format(type(url).__name__)
        )
    check_callback("body_builder", build_body)
    prepare(HttpRequestSpec(url, headers=headers))
    return HttpTurns(
        HttpClient(options), url, dict(headers or {}), build_body, session_headers, places
    )


def multi_turn_cli_solution(
    command_builder: CommandBuilder,
    *,
    session_id: Optional[str] = None,
    output_parser: Optional[Callable[[str], Any]] = None,
    trace_id_resolver: Optional[TurnTraceResolver] = None,
    per_turn_timeout: float = 1800.0,
    cwd: Directory = None,
    env: Optional[Environment] = None,
    turns_field: str = "turns",
    turn_extractor: Optional[TurnExtractor] = None,
    session_id_factory: Optional[Callable[..., Any]] = None,
    on_missing_turns: OnMissing = "fail",
    turns_fallback_fields: Sequence[str] = (),
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    trace: bool = False,
) -> ConversationSolution:
    """A solution that holds one conversation per row by running a command for every turn.

    The command keeps the session between turns; it is run as by ``command_solution``. The output
    is that of ``multi_turn_http_solution``. A command that cannot be run, exits with another code
    than 0 or takes too long fails its turn.

    Args:
        command_builder: ``command_builder(message, session_id, turn_index, task)`` returns argv,
            or a dict of ``argv`` and, for this turn only, ``env``, ``stdin``, ``timeout``,
            ``cwd`` and ``parser`` (an ``output_parser``).
        session_id: One session for all conversations; None makes a new one for each. When the
            command answers with its own, the following turns get that.
        output_parser: Takes stdout and returns the turn: ``{"reply", "trace_id", "usage", "raw",
            "session_id"}``, all optional. Without it JSON on stdout, whole or one value per line
            as coding agents print it, is searched for them; other text is the reply.
        trace_id_resolver: ``trace_id_resolver(session_id, turn_index, raw)`` returns the trace id
            of a turn, or None.
        per_turn_timeout: Seconds until a turn's command is ended.
        cwd, env, max_output_bytes, trace: As for ``command_solution``.
        turns_field, turn_extractor, turns_fallback_fields, on_missing_turns: As for
            ``multi_turn_http_solution``.
        session_id_factory: By default ``uuid_session_id``.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    made = isinstance(command_builder, (ConversationSolution, AsyncConversationSolution))
    if made or not callable(command_builder):
        raise ConfigurationError(
            "command_builder must be a function of message, session_id, turn_index and task. A "
            "conversation that you made yourself is a solution: pass it to run_experiment."
        )
    check_callback("command_builder", command_builder)
    check_callback("output_parser", output_parser)
    check_callback("trace_id_resolver", trace_id_resolver)
    defaults = shared_settings(per_turn_timeout, cwd, env, max_output_bytes)
    dialogue = Dialogue(
        TurnSource(turns_field, turns_fallback_fields, turn_extractor),
        SessionIds(session_id, session_id_factory or uuid_session_id),
        on_missing_turns,
    )
    send = CommandTurns(
        command_builder, defaults, output_parser or parse_stdout, trace_id_resolver, trace
    )
    name = "conversation with command of " + qualified_name(command_builder)
    return ConversationSolution(send, dialogue, name, command_builder)


def _session_headers(names: Sequence[str], inject: bool) -> Tuple[str, ...]:
    checked = texts_of("session_id_request_headers", names)
    checked_headers(dict.fromkeys(checked, ""))
    return checked if inject else ()


def _trace_headers(names: Sequence[str]) -> Tuple[str, ...]:
    configured = os.environ.get(TRACE_HEADER_VARIABLE, "").strip()
    if configured and names is TRACE_RESPONSE_HEADERS:
        return (configured, *names)
    return texts_of("trace_id_response_headers", names)
