"""The public face: arguments, hooks, what a builder may do wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, List

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import HttpRequestSpec, SolutionOutput, Task
from agentloop_experiment_sdk.solutions.http import http_solution, http_solution_with
from agentloop_experiment_sdk.solutions.options import HttpOptions

URL = "http://127.0.0.1:9/"


def build(task: Task) -> HttpRequestSpec:
    return HttpRequestSpec(URL, timeout=task.input["timeout"])


@pytest.mark.parametrize(
    "options, word",
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"transport_retries": -1}, "transport_retries"),
        ({"transport_retries": 1.5}, "transport_retries"),
        ({"max_response_bytes": 0}, "max_response_bytes"),
        ({"chunk_extractor": "x"}, "chunk_extractor"),
        ({"usage_extractor": 7}, "usage_extractor"),
        ({"end_mark": ""}, "end_mark"),
        ({"trace_id_response_header": "X Y"}, "Header name"),
        ({"method": "BREW"}, "BREW"),
        ({"body_builder": "x"}, "body_builder"),
        ({"json_body": {}, "data": "x"}, "only one"),
        ({"json_body": {}, "body_builder": lambda task: {}}, "only one"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_at_once(options: Any, word: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        http_solution_with(URL, **options)
    assert word in str(caught.value)


@pytest.mark.parametrize("url", ["", "agent.example", "ftp://h/", "http://", None, "http://h:x/"])
def test_a_url_that_cannot_be_used_is_refused_at_once(url: Any) -> None:
    with pytest.raises(ConfigurationError):
        http_solution_with(url)


def test_a_builder_must_be_callable() -> None:
    with pytest.raises(ConfigurationError):
        http_solution("x")  # type: ignore[arg-type]


def test_the_reference_calls_work_by_position() -> None:
    solution = http_solution(build, 5.0, str, 1, "X-Trace-Id")
    assert solution(a_task(timeout=1)).success is False


@pytest.mark.parametrize(
    "builder, error_type",
    [
        (lambda task: task.input["missing"], "KeyError"),
        (lambda task: HttpRequestSpec("ftp://h/"), "ConfigurationError"),
        (lambda task: {"url": URL}, "TypeError"),
        (lambda task: None, "TypeError"),
    ],
)
def test_what_a_builder_does_wrong_fails_the_row(builder: Any, error_type: str) -> None:
    hooks: List[int] = []
    output = http_solution(builder)(a_task(), lambda: hooks.append(1))
    assert output.success is False
    assert output.meta["error_type"] == error_type
    assert hooks == []


def test_a_body_builder_that_raises_fails_the_row_and_its_line_is_shown() -> None:
    def body_of(task: Task) -> Any:
        return task.input["missing"]

    for solution in (
        http_solution_with(URL, body_builder=body_of),
        http_solution(lambda task: HttpRequestSpec(URL, json=body_of(task))),
    ):
        meta = solution(a_task()).meta
        assert meta["error_type"] == "KeyError"
        assert 'return task.input["missing"]' in meta["traceback"]
        assert "in body_of" in meta["traceback"] and "http_call" not in meta["traceback"]


def test_a_body_builder_may_build_no_body() -> None:
    with RawServer(answer_ok) as server:
        http_solution_with(server.url(), body_builder=lambda task: None, timeout=CAP)(a_task())
        assert server.requests[0].body == b""


def test_an_interrupt_in_a_builder_is_not_swallowed() -> None:
    def interrupted(task: Task) -> HttpRequestSpec:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        http_solution(interrupted)(a_task())


def test_the_hook_is_called_once_right_before_the_call() -> None:
    seen: List[Any] = []
    with RawServer(answer_ok) as server:
        solution = http_solution_with(
            server.url(), timeout=CAP, body_builder=lambda task: seen.append("built")
        )
        solution(a_task(), lambda: seen.append(len(server.requests)))
    assert seen == ["built", 0]


def test_the_answer_is_a_solution_output_with_facts() -> None:
    with RawServer(answer_ok) as server:
        output = http_solution_with(server.url("/p"), params={"a": 1}, timeout=CAP)(a_task())
        url = server.url("/p?a=1")
    assert isinstance(output, SolutionOutput)
    facts = output.meta["http"]
    assert (facts["method"], facts["url"], facts["status"]) == ("POST", url, 200)
    assert [attempt["status"] for attempt in facts["attempts"]] == [200]
    assert output.meta["experiment_input"] == {"a": 1}


def test_a_task_is_never_changed() -> None:
    task = a_task(q="x")
    before = repr(task)
    with RawServer(answer_ok) as server:
        http_solution_with(server.url(), body_builder=lambda t: t.input, timeout=CAP)(task)
    assert repr(task) == before


def test_the_fingerprint_is_stable_and_has_no_secret() -> None:
    url = "https://u:pw@h.example/p?api_key=k&a=1"
    solution = http_solution_with(url, method="get")
    assert solution.fingerprint == "http GET https://***@h.example/p?api_key=***&a=1"
    assert solution.fingerprint in repr(solution)
    assert http_solution(build).fingerprint == "http {}.build".format(__name__)
    assert http_solution(build).built_by is build
    assert http_solution_with(URL).built_by is None


def test_a_call_carries_the_configured_defaults() -> None:
    assert HttpOptions().timeout == 300.0
    assert HttpOptions().transport_retries == 2
    assert HttpOptions().max_response_bytes == 64 * 1024 * 1024


def test_importing_the_module_loads_nothing_heavy() -> None:
    code = (
        "import sys, agentloop_experiment_sdk.solutions.http as h;"
        "h.http_solution_with('http://h/');"
        "heavy = {'ssl', 'http.client', 'socket', 'asyncio', 'email', 'random'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_what_was_asked_is_kept_as_it_was_sent() -> None:
    body = {"q": "first"}

    def refill(request: Request, reply: Reply) -> None:
        body["q"] = "second"  # as a builder that fills one object for every row does
        answer_ok(request, reply)

    with RawServer(refill) as server:
        output = http_solution_with(server.url(), body_builder=lambda task: body)(a_task())
        assert server.requests[0].body == b'{"q":"first"}'
    assert output.meta["experiment_input"] == {"q": "first"}


@pytest.mark.parametrize("params", ["a=b", [("a", "b")]])
def test_parameters_that_are_no_mapping_fail_the_row_and_say_so(params: Any) -> None:
    solution = http_solution(lambda task: HttpRequestSpec(URL, "GET", params=params))
    output = solution(a_task())
    assert output.meta["error_type"] == "ConfigurationError"
    assert "params must be a mapping" in output.meta["error_message"]
