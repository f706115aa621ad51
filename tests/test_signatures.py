"""The call interface that users' scripts already have: names, order, kinds and defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, Callable, Dict, List, Tuple

import pytest

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk.errors import ConfigurationError

REQUIRED = inspect.Parameter.empty

CAMEL = ("session_id", "sessionId", "SessionId")
BODY_PATHS = ("trace_ids.gateway", "trace_ids.agent", "trace_ids.model", "traceId", "trace_id")
SENT_HEADERS = ("X-Session-Id", "X-Conversation-Id", "X-Thread-Id")
READ_HEADERS = (
    ("x-session-id", "x-sessionid", "session-id", "x-conversation-id", "conversation-id")
    + ("openai-conversation-id", "x-thread-id", "thread-id")
)  # fmt: skip
ANY = object()

# name -> (parameters that may be given by position, parameters by keyword), in their order
INTERFACE: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    "AgentLoopConfig": (
        {"agent_space": REQUIRED, "experiment_plan_id": REQUIRED, "region_id": REQUIRED},
        {
            "project": None,
            "max_rows": 1000,
            "ground_truth_field": None,
            "experiment_name": None,
            "access_key_id": None,
            "access_key_secret": None,
            "agentloop_endpoint": None,
            "sls_endpoint": None,
            "security_token": None,
        },
    ),
    "Task": (
        {"id": REQUIRED, "input": REQUIRED, "ground_truth": "", "tags": None, "metadata": ANY},
        {},
    ),
    "SolutionOutput": (
        {"success": REQUIRED, "output": "", "trajectory": None, "meta": None},
        {},
    ),
    "HttpRequestSpec": (
        {
            "url": REQUIRED,
            "method": "POST",
            "headers": None,
            "json": None,
            "data": None,
            "params": None,
            "timeout": None,
        },
        {},
    ),
    "http_solution": (
        {
            "build_request": REQUIRED,
            "default_timeout": 300.0,
            "chunk_extractor": None,
            "transport_retries": 2,
            "trace_id_response_header": None,
        },
        {},
    ),
    "http_solution_with": (
        {"url": REQUIRED},
        {
            "method": "POST",
            "headers": None,
            "json_body": None,
            "data": None,
            "params": None,
            "body_builder": None,
            "timeout": 300.0,
            "chunk_extractor": None,
            "transport_retries": 2,
            "trace_id_response_header": None,
        },
    ),
    "command_solution": (
        {"build_command": REQUIRED, "default_timeout": 60.0, "cwd": None, "env": None},
        {},
    ),
    "command_solution_with": (
        {"command_or_builder": REQUIRED},
        {"default_timeout": 60.0, "cwd": None, "env": None},
    ),
    "run_experiment": (
        {
            "config": REQUIRED,
            "solution": REQUIRED,
            "result_dir": "./results",
            "n_repeat": 1,
            "n_workers": 1,
        },
        {},
    ),
    "run_experiment_parallel": (
        {
            "config": REQUIRED,
            "solution": REQUIRED,
            "result_dir": "./results",
            "n_repeat": 1,
            "n_workers": 4,
        },
        {},
    ),
    "multi_turn_http_solution": (
        {
            "send_turn": REQUIRED,
            "session_id": None,
            "turns_field": "turns",
            "turn_extractor": None,
            "turns_fallback_fields": (),
            "on_missing_turns": "skip",
            "session_id_factory": None,
        },
        {},
    ),
    "multi_turn_http_solution_with": (
        {"url": REQUIRED},
        {
            "session_id": None,
            "headers": None,
            "turns_field": "turns",
            "turn_extractor": None,
            "turns_fallback_fields": (),
            "on_missing_turns": "skip",
            "session_field": "session_id",
            "message_field": "message",
            "body_builder": None,
            "timeout": 300.0,
            "trace_id_body_paths": BODY_PATHS,
            "trace_id_response_headers": ("traceid", "eagleeye-traceid", "x-trace-id"),
            "inject_session_headers": True,
            "session_id_request_headers": SENT_HEADERS,
            "session_id_response_headers": READ_HEADERS,
            "session_id_body_paths": ANY,
            "chunk_extractor": None,
        },
    ),
    "multi_turn_cli_solution": (
        {"command_builder": REQUIRED},
        {
            "session_id": None,
            "output_parser": None,
            "trace_id_resolver": None,
            "per_turn_timeout": 1800.0,
            "cwd": None,
            "env": None,
            "turns_field": "turns",
            "turn_extractor": None,
            "session_id_factory": None,
            "on_missing_turns": "fail",
        },
    ),
    "run_multi_turn_experiment": (
        {"config": REQUIRED, "url": REQUIRED},
        {
            "session_id": None,
            "result_dir": "./results",
            "n_repeat": 1,
            "n_workers": 4,
            "parallel": True,
        },
    ),
    "run_multi_turn_agent_experiment": (
        {"config": REQUIRED, "command_builder": REQUIRED},
        {
            "session_id": None,
            "result_dir": "./results",
            "n_repeat": 1,
            "n_workers": 1,
            "parallel": False,
        },
    ),
    "default_session_id": ({}, {}),
    "uuid_session_id": ({}, {}),
}


def parameters(function: Callable[..., Any], *kinds: Any) -> List[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    return [item for item in found if item.kind in kinds]


def assert_defaults(found: List[inspect.Parameter], expected: Dict[str, Any]) -> None:
    assert [item.name for item in found] == list(expected)
    for item in found:
        wanted = expected[item.name]
        assert wanted is ANY or (item.default == wanted and type(item.default) is type(wanted))


@pytest.mark.parametrize("name", list(INTERFACE))
def test_positional_parameters_are_those_and_no_more(name: str) -> None:
    found = parameters(getattr(sdk, name), inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert_defaults(found, INTERFACE[name][0])


@pytest.mark.parametrize("name", list(INTERFACE))
def test_keyword_parameters_are_there_in_this_order(name: str) -> None:
    expected = INTERFACE[name][1]
    found = parameters(getattr(sdk, name), inspect.Parameter.KEYWORD_ONLY)
    assert_defaults([item for item in found if item.name in expected], expected)


@pytest.mark.parametrize("name", list(INTERFACE))
def test_what_was_added_has_a_default(name: str) -> None:
    found = parameters(getattr(sdk, name), inspect.Parameter.KEYWORD_ONLY)
    assert all(item.default is not REQUIRED for item in found)


def test_a_task_has_its_own_metadata_by_default() -> None:
    first, second = sdk.Task("1", {}), sdk.Task("2", {})
    assert first.metadata == {} and first.metadata is not second.metadata


def test_outputs_are_built_by_class_and_read_by_instance() -> None:
    good = sdk.SolutionOutput.success("answer", meta={"a": 1})
    assert good.success is True
    assert good.to_dict() == {
        "success": True,
        "output": "answer",
        "trajectory": [],
        "meta": {"a": 1},
    }
    assert sdk.SolutionOutput.from_dict(good.to_dict()) == good
    bad = sdk.SolutionOutput.failure("", "why", {"b": 2}, "partial")
    assert bad.success is False and bad.output == "partial"
    assert bad.meta == {"b": 2, "error_type": "UnknownError", "error_message": "why"}


def test_builders_of_outputs_take_these_arguments() -> None:
    success = inspect.signature(sdk.SolutionOutput.success)
    failure = inspect.signature(sdk.SolutionOutput.failure)
    assert list(success.parameters) == ["output", "meta"]
    assert list(failure.parameters) == ["error_type", "error_message", "meta", "output"]
    assert failure.parameters["output"].default == ""


def test_a_resolved_config_has_these_fields() -> None:
    config = sdk.AgentLoopConfig("space", "plan", "cn-hangzhou")
    for name in ("dataset", "plan_name", "pipeline_name", "plan_evaluators"):
        assert getattr(config, name) is None
    assert config.selected_item_ids is None and config.query_sql is None
    assert callable(config.resolve_experiment_plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "ftp://host/"},
        {"method": "BREW"},
        {"json": {}, "data": "x"},
        {"timeout": 0},
        {"timeout": -1},
    ],
)
def test_a_request_is_checked_when_it_is_built(changes: Dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        sdk.HttpRequestSpec(**{"url": "http://host/", **changes})
    assert dataclasses.is_dataclass(sdk.HttpRequestSpec)


def test_session_ids_have_their_form() -> None:
    assert re.fullmatch(r"sess-\d{8}-\d{6}-[0-9a-f]{8}", sdk.default_session_id())
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", sdk.uuid_session_id())


def test_session_ids_are_looked_for_in_these_places_and_never_at_the_top_level_id() -> None:
    parameter = inspect.signature(sdk.multi_turn_http_solution_with).parameters
    paths = parameter["session_id_body_paths"].default
    names = ("session", "conversation", "thread", "chat")
    for prefix in ("", "data.", "result."):
        for name in names:
            forms = (name + "_id", name + "Id", name.capitalize() + "Id", name + ".id")
            assert all(prefix + form in paths for form in forms)
    assert paths[:3] == CAMEL
    assert "id" not in paths
