"""What a solution is made with is looked at before any row runs; what callbacks return, after."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Dict, List, Tuple

import pytest
from raw_http import RawServer

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import HttpRequestSpec, Task
from agentloop_experiment_sdk.solutions.command import command_solution, command_solution_with
from agentloop_experiment_sdk.solutions.conversation import (
    multi_turn_cli_solution,
    multi_turn_http_solution,
    multi_turn_http_solution_with,
)
from agentloop_experiment_sdk.solutions.http import http_solution, http_solution_with

URL = "http://127.0.0.1:9/"
TASK = Task("t-1", {"turns": ["hello"], "q": "x"})

http = functools.partial(http_solution_with, URL)
chat = functools.partial(multi_turn_http_solution_with, URL)
own = functools.partial(multi_turn_http_solution, lambda message, *rest: message)
command = functools.partial(command_solution_with, ["true"])
turns = functools.partial(multi_turn_cli_solution, lambda message, *rest: ["true"])

CALLBACKS: Tuple[Tuple[Callable[..., Any], str], ...] = (
    (http, "body_builder"),
    (http, "chunk_extractor"),
    (http, "usage_extractor"),
    (chat, "body_builder"),
    (chat, "chunk_extractor"),
    (chat, "turn_extractor"),
    (chat, "session_id_factory"),
    (own, "turn_extractor"),
    (own, "session_id_factory"),
    (command, "trace_id_resolver"),
    (command, "stdin"),
    (turns, "output_parser"),
    (turns, "trace_id_resolver"),
)


async def asynchronous(*_: Any) -> Any:
    return "x"


class Asynchronous:
    async def __call__(self, *_: Any) -> Any:
        return "x"


@pytest.mark.parametrize("make, name", CALLBACKS)
@pytest.mark.parametrize(
    "function", [asynchronous, Asynchronous(), functools.partial(asynchronous, 1)]
)
def test_an_async_callback_is_refused_and_named(
    make: Callable[..., Any], name: str, function: Any
) -> None:
    with pytest.raises(ConfigurationError, match=name + " must be a plain function"):
        make(**{name: function})


@pytest.mark.parametrize("make, name", [item for item in CALLBACKS if item[1] != "stdin"])
@pytest.mark.parametrize("value", ["text", 5, True, ["list"]])
def test_a_callback_that_cannot_be_called_is_refused(
    make: Callable[..., Any], name: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=name + " must be a function"):
        make(**{name: value})


@pytest.mark.parametrize(
    "make",
    [http_solution, command_solution, command_solution_with, multi_turn_cli_solution],
)
def test_an_async_builder_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be a plain function"):
        make(asynchronous)


RETURNED: Tuple[Tuple[Callable[..., Any], str], ...] = (
    (http_solution_with, "body_builder"),
    (multi_turn_http_solution_with, "body_builder"),
    (multi_turn_http_solution_with, "turn_extractor"),
    (multi_turn_http_solution_with, "session_id_factory"),
)


@pytest.mark.parametrize("make, name", RETURNED)
def test_a_callback_that_returns_a_coroutine_fails_the_row_and_sends_nothing(
    make: Callable[..., Any], name: str
) -> None:
    def factory(*_: Any) -> Any:
        return asynchronous()

    with RawServer(lambda request, reply: reply.whole("{}")) as server, warnings.catch_warnings():
        warnings.simplefilter("error")  # nor does Python warn of it
        output = make(server.url("/"), **{name: factory})(TASK)
    assert not output.success and server.requests == []
    assert name + " returned something to be awaited" in output.meta["error_message"]


def test_a_body_that_is_a_function_fails_the_row_and_is_not_sent() -> None:
    with RawServer(lambda request, reply: reply.whole("{}")) as server:
        output = http_solution_with(server.url("/"), body_builder=lambda task: asynchronous)(TASK)
    assert not output.success and server.requests == []
    assert "body_builder returned a function" in output.meta["error_message"]


def test_a_chunk_extractor_that_returns_a_coroutine_fails_the_row() -> None:
    with RawServer(lambda request, reply: reply.stream("data: x\n\n")) as server:
        output = http_solution_with(server.url("/"), chunk_extractor=lambda _: asynchronous())(TASK)
    assert not output.success and output.output == ""
    assert "chunk_extractor" in output.meta["error_message"]


def test_a_parser_that_returns_a_coroutine_fails_its_turn() -> None:
    made = turns(output_parser=lambda stdout: asynchronous())
    output = made(TASK)
    assert not output.success
    assert "output_parser returned something to be awaited" in output.meta["error_message"]


def test_the_parser_of_one_turn_is_looked_at_too() -> None:
    built: Dict[str, Any] = {"argv": ["true"], "parser": "json"}
    output = multi_turn_cli_solution(lambda *turn: built)(TASK)
    assert not output.success and "parser must be a function" in output.meta["error_message"]


LISTS = (
    "turns_fallback_fields",
    "trace_id_body_paths",
    "trace_id_response_headers",
    "session_id_request_headers",
    "session_id_response_headers",
    "session_id_body_paths",
)


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("value", ["X-Chat", None, 5, [1], ["a", ""], b"a"])
def test_a_list_of_names_is_a_list_of_names(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name + " must be a list of texts"):
        chat(**{name: value})


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_names_may_be_empty_or_any_iterable(name: str) -> None:
    chat(**{name: ()})
    chat(**{name: (item for item in ["a", "b"])})


@pytest.mark.parametrize("inject", [True, False])
def test_a_session_header_that_http_forbids_is_refused(inject: bool) -> None:
    with pytest.raises(ConfigurationError, match="a b"):
        chat(session_id_request_headers=["a b"], inject_session_headers=inject)


@pytest.mark.parametrize("name", ["session_field", "message_field", "turns_field"])
@pytest.mark.parametrize("value", [None, "", 1, ["a"]])
def test_a_field_is_a_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name + " must be"):
        chat(**{name: value})


def test_session_and_message_cannot_share_a_field() -> None:
    with pytest.raises(ConfigurationError, match="would overwrite"):
        chat(session_field="x", message_field="x")
    chat(session_field="x", message_field="x", body_builder=lambda *turn: {})  # not used then


@pytest.mark.parametrize("make", [command, turns])
@pytest.mark.parametrize("value", [1e6, 1.5, float("inf"), True, "9", 0])
def test_the_bound_of_a_commands_output_is_a_whole_number(
    make: Callable[..., Any], value: Any
) -> None:
    with pytest.raises(ConfigurationError, match="max_output_bytes must be a"):
        make(max_output_bytes=value)


@pytest.mark.parametrize("value", [["x-trace"], 5, b"x"])
def test_the_trace_header_is_one_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="trace_id_response_header must be the name"):
        http(trace_id_response_header=value)
    requests: List[HttpRequestSpec] = [HttpRequestSpec(URL)]
    with pytest.raises(ConfigurationError, match="trace_id_response_header must be the name"):
        http_solution(lambda task: requests[0], trace_id_response_header=value)
