"""No credential is stored, whatever the call comes to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok, call

from agentloop_experiment_sdk.models import HttpRequestSpec, SolutionOutput
from agentloop_experiment_sdk.solutions.http import http_solution, http_solution_with

HEADERS = {
    "AUTHORIZATION": "Bearer zz-1111-zz",
    "Cookie": "sid=zz-2222-zz",
    "x-api-key": "zz-3333-zz",
    "X-Auth-Token": "zz-4444-zz",
    "Proxy-Authorization": "Basic zz-5555-zz",
    "X-Access-Token": "zz-6666-zz",
    "Api-Key": "zz-7777-zz",
}


def echo(request: Request, reply: Reply) -> None:
    """An agent that quotes everything it got in its error page and headers."""
    quoted = "%s %s" % (request.target, "; ".join(value for _, value in request.headers))
    reply.whole(quoted, "text/plain", "401 No", X_Trace_Echo=quoted, Set_Cookie="zz-8888-zz")


def reset(request: Request, reply: Reply) -> None:
    """No answer."""


def stored(output: SolutionOutput) -> str:
    return repr(output.to_dict())


@pytest.mark.parametrize("handler", [answer_ok, echo, reset])
def test_secret_headers_reach_the_agent_and_are_not_stored(handler: Any) -> None:
    with RawServer(handler) as server:
        output = http_solution_with(server.url(), headers=HEADERS, timeout=CAP)(a_task())
        for name, value in HEADERS.items():
            assert server.requests[0].get(name) == value
    assert "zz-" not in stored(output)
    assert output.meta["http"]["request_headers"]["x-api-key"] == "***"


@pytest.mark.parametrize("handler", [answer_ok, echo, reset])
def test_a_password_in_the_url_is_not_stored(handler: Any) -> None:
    with RawServer(handler) as server:
        url = server.url("/p").replace("http://", "http://alice:pa55-w0rd@")
        solution = http_solution_with(url, timeout=CAP)
        output = solution(a_task())
    assert "pa55-w0rd" not in stored(output) + repr(solution) + solution.fingerprint
    assert "YWxpY2U6" not in stored(output)


@pytest.mark.parametrize("handler", [answer_ok, echo, reset])
@pytest.mark.parametrize("name", ["api_key", "key", "access_token", "sig"])
def test_a_key_in_the_query_is_not_stored(handler: Any, name: str) -> None:
    output = call(
        handler, "/?%s=qq-88-qq" % name, method="GET", params={name: "qq-77-qq", "a": "b"}
    )
    assert "qq-77-qq" not in stored(output)
    assert "qq-88-qq" not in stored(output)
    assert output.meta["experiment_input"] == {name: "***", "a": "b"}


def test_a_successful_answer_is_never_changed() -> None:
    secret = {"Authorization": "Bearer zz-1111-zz"}
    output = call(lambda _, reply: reply.whole('{"a": "zz-1111-zz"}'), headers=secret)
    assert output.output == {"a": "zz-1111-zz"}


def test_an_error_body_of_json_is_scrubbed_at_any_depth() -> None:
    body = '{"error": {"message": "bad key zz-1111-zz", "list": ["zz-1111-zz", 5]}}'
    output = call(
        lambda _, reply: reply.whole(body, status="401 No"), headers={"X-Api-Key": "zz-1111-zz"}
    )
    assert output.output == {"error": {"message": "bad key ***", "list": ["***", 5]}}
    assert output.meta["error_message"] == "HTTP 401 No: bad key ***"


def test_a_builders_error_text_is_masked() -> None:
    def build(task: Any) -> HttpRequestSpec:
        raise ValueError("cannot reach http://u:zz-1111-zz@h/?token=zz-2222-zz")

    assert "zz-" not in stored(http_solution(build)(a_task()))


def test_a_usage_extractors_error_is_scrubbed() -> None:
    def extract(value: Any) -> Any:
        raise ValueError("zz-1111-zz")

    output = call(answer_ok, headers={"X-Token": "zz-1111-zz"}, usage_extractor=extract)
    assert "zz-" not in stored(output)


def test_reprs_show_no_secret() -> None:
    spec = HttpRequestSpec("http://h/", headers=HEADERS)
    from agentloop_experiment_sdk.solutions.request import prepare

    assert "zz-" not in repr(prepare(spec))


def test_a_key_in_the_body_that_an_error_quotes_is_not_stored() -> None:
    def quote(request: Request, reply: Reply) -> None:
        reply.whole(json.dumps({"got": request.body.decode()}), status="401 No")

    output = call(quote, json_body={"q": "hi", "auth": [{"api_key": "zz-1111-zz"}]})
    assert output.meta["experiment_input"] == {"q": "hi", "auth": [{"api_key": "***"}]}
    assert "zz-1111" not in stored(output)


def test_a_key_in_a_redirects_location_is_not_stored() -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.target == "/":
            reply.whole(status="307 Go", Location="/next?access_token=zz-1111-zz")
        else:
            reply.whole("no access to " + request.target, "text/plain", "403 No")

    output = call(handler)
    assert output.output == "no access to /next?access_token=***"
    assert "zz-1111" not in stored(output)
