"""What a call puts on the wire."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any, Dict
from urllib.parse import quote

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import HTTP_METHODS, HttpRequestSpec
from agentloop_experiment_sdk.solutions.http import http_solution, http_solution_with
from agentloop_experiment_sdk.solutions.request import origin_of, prepare


def sent(path: str = "/", **options: Any) -> Request:
    """The request that arrives at a server."""
    with RawServer(answer_ok) as server:
        output = http_solution_with(server.url(path), timeout=CAP, **options)(a_task(q="你好"))
        assert output.success, output
        return server.requests[0]


def wire_url(url: str, **options: Any) -> str:
    return prepare(HttpRequestSpec(url, **options)).url


@pytest.mark.parametrize("method", HTTP_METHODS)
def test_every_method_arrives(method: str) -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.method == "HEAD":
            reply.head(Content_Length=5)
            reply.keep = True
        else:
            reply.whole("{}")

    with RawServer(handler) as server:
        solution = http_solution_with(server.url(), method=method.lower(), timeout=CAP)
        assert solution(a_task()).success
        assert solution(a_task()).success
        assert [request.method for request in server.requests] == [method, method]
        assert server.connections == 1


def test_a_json_body_is_utf8_and_says_so() -> None:
    request = sent(body_builder=lambda task: {"q": task.input["q"]})
    assert request.body == '{"q":"你好"}'.encode("utf-8")
    assert request.get("Content-Type") == "application/json"
    assert request.all("Content-Length") == [str(len(request.body))]


def test_a_nan_in_the_body_is_sent_as_null() -> None:
    request = sent(body_builder=lambda task: {"t": float("nan"), "i": float("inf")})
    assert json.loads(request.body) == {"t": None, "i": None}


@pytest.mark.parametrize(
    "data, body, kind",
    [
        ("文本", "文本".encode("utf-8"), "text/plain; charset=utf-8"),
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (
            {"q": "a b&c", "n": [1, True, None], "文": "\ud800"},
            b"q=a+b%26c&n=1&n=true&%E6%96%87=%EF%BF%BD",
            "application/x-www-form-urlencoded",
        ),
    ],
)
def test_text_bytes_and_forms_are_bodies(data: Any, body: bytes, kind: str) -> None:
    request = sent(data=data)
    assert request.body == body
    assert request.get("Content-Type") == kind


def test_a_callers_content_type_stays() -> None:
    request = sent(data="<a/>", headers={"content-type": "application/xml"})
    assert request.all("Content-Type") == ["application/xml"]


def test_a_post_without_body_says_that_it_is_empty() -> None:
    request = sent()
    assert request.get("Content-Length") == "0"
    assert request.get("Content-Type") is None


def test_a_get_without_body_names_no_length() -> None:
    assert sent(method="GET").get("Content-Length") is None


def test_the_length_is_ours_whatever_the_caller_wrote() -> None:
    request = sent(data="abc", headers={"Content-Length": "99", "Transfer-Encoding": "chunked"})
    assert request.body == b"abc"
    assert request.all("Content-Length") == ["3"]
    assert request.get("Transfer-Encoding") is None


def test_a_callers_host_and_agent_names_win() -> None:
    request = sent(headers={"host": "agent.internal", "User-Agent": "mine", "ACCEPT": "a/b"})
    assert request.all("Host") == ["agent.internal"]
    assert request.all("User-Agent") == ["mine"]
    assert request.all("Accept") == ["a/b"]


def test_defaults_name_the_sdk_and_the_codings_it_undoes() -> None:
    request = sent()
    assert request.get(
        "User-Agent",
    ).startswith("agentloop-experiment-sdk/")  # type: ignore
    assert request.get("Accept-Encoding") == "gzip, deflate"
    assert request.get(
        "Host",
    ).startswith("127.0.0.1:")  # type: ignore


def test_header_values_outside_latin1_go_out_as_utf8() -> None:
    request = sent(headers={"X-Name": "你好", "X-Number": 7})  # type: ignore[dict-item]
    assert request.get("X-Name").encode("latin-1").decode("utf-8") == "你好"  # type: ignore
    assert request.get("X-Number") == "7"
    assert sent(headers={"X-Name": "é"}).get("X-Name") == "é"


@pytest.mark.parametrize(
    "headers",
    [
        {"X": None},
        {"X": True},
        {"X": ["a"]},
        {"X": "a\r\nY: b"},
        {"X": "a\x00"},
        {"": "v"},
        {"X Y": "v"},
        {"X:": "v"},
        {7: "v"},
        [("X", "v")],
    ],
)
def test_a_header_that_http_does_not_allow_is_refused_at_once(headers: Any) -> None:
    with pytest.raises(ConfigurationError):
        http_solution_with("http://h/", headers=headers)


def test_params_join_an_existing_query_before_the_fragment() -> None:
    params = {"b": [1, True, None, "x y"], "c": None, "d": {"e": 1}}
    assert wire_url("http://h/p?a=1#frag", params=params) == (
        "http://h/p?a=1&b=1&b=true&b=x%20y&d=%7B%22e%22%3A1%7D"
    )
    assert wire_url("http://h", params={"q": "天&="}) == "http://h/?q=%E5%A4%A9%26%3D"
    assert wire_url("http://h/?", params={"q": 1}) == "http://h/?q=1"
    assert wire_url("http://h/?a&", params={"q": 1}) == "http://h/?a&q=1"
    assert wire_url("http://h/?a", params={}) == "http://h/?a"


def test_params_must_be_a_mapping() -> None:
    with pytest.raises(ConfigurationError):
        http_solution_with("http://h/", params=[("a", "b")])  # type: ignore[arg-type]


def test_text_outside_ascii_is_percent_encoded_and_escapes_stay() -> None:
    request = sent("/检索/a%20b?关键词=天气", method="GET")
    assert request.target == "/{}/a%20b?{}={}".format(quote("检索"), quote("关键词"), quote("天气"))


def test_a_question_may_stand_in_the_url() -> None:
    with RawServer(answer_ok) as server:
        solution = http_solution(
            lambda task: HttpRequestSpec(server.url("/ask/" + task.input["q"]), method="GET")
        )
        assert solution(a_task(q="你 100%好")).success
        assert server.requests[0].target == "/ask/" + quote("你 100%好")


@pytest.mark.parametrize(
    "url, target",
    [
        ("http://h", "/"),
        ("http://h/a b|c[1]", "/a%20b%7Cc[1]"),
        ("http://h/?q=a+b'c", "/?q=a+b'c"),
        ("http://h/%zz%4", "/%25zz%254"),
        ("http://h/\ud800", "/%EF%BF%BD"),
    ],
)
def test_what_a_url_may_not_hold_is_encoded(url: str, target: str) -> None:
    assert prepare(HttpRequestSpec(url)).target == target


@pytest.mark.parametrize(
    "url, authority",
    [
        ("http://H.example:80/", "h.example"),
        ("https://h.example:443/", "h.example"),
        ("https://h.example:80/", "h.example:80"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://[fe80::1%25eth0]/", "[fe80::1]"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header_names_the_authority(url: str, authority: str) -> None:
    assert origin_of(url).authority == authority


@pytest.mark.parametrize("url", ["ftp://h/", "http:///", "http://h:99999/", "http://a b/", "x"])
def test_an_origin_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        origin_of(url)


def test_the_refusal_does_not_quote_a_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        origin_of("http://u:pa55-w0rd@a b/")
    assert "pa55" not in str(caught.value)


def test_userinfo_is_sent_as_basic_authorization() -> None:
    with RawServer(answer_ok) as server:
        url = server.url().replace("http://", "http://alice:p%40ss@")
        http_solution_with(url, timeout=CAP)(a_task())
        expected = "Basic " + base64.b64encode(b"alice:p@ss").decode("ascii")
        assert server.requests[0].get("Authorization") == expected


def test_a_callers_authorization_wins_over_userinfo() -> None:
    with RawServer(answer_ok) as server:
        url = server.url().replace("http://", "http://alice:pw@")
        http_solution_with(url, headers={"authorization": "Bearer x"})(a_task())
        assert server.requests[0].all("Authorization") == ["Bearer x"]


def test_an_ipv6_host_is_reached() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        server = RawServer(answer_ok, family=socket.AF_INET6)
    except OSError as error:
        pytest.skip("this machine has no IPv6 loopback: {}".format(error))
    with server:
        assert http_solution_with(server.url(), timeout=CAP)(a_task()).success
        assert server.requests[0].get("Host") == "[::1]:%d" % server.port


def test_a_large_body_arrives_whole() -> None:
    body = b"x" * 3_000_000
    assert sent(data=body).body == body


def test_what_was_asked_is_the_body_or_the_params() -> None:
    def asked(**options: Any) -> Any:
        with RawServer(answer_ok) as server:
            output = http_solution_with(server.url(), timeout=CAP, **options)(a_task())
            return output.meta.get("experiment_input")

    assert asked(json_body={"q": 1, "api_key": "s3"}) == {"q": 1, "api_key": "***"}
    assert asked(data="text", params={"a": 1}) == "text"
    assert asked(data={"password": "s3", "q": 1}) == {"password": "***", "q": 1}
    assert asked(method="GET", params={"q": "x", "token": "s3"}) == {"q": "x", "token": "***"}
    assert asked(method="GET") is None


def test_what_was_asked_is_what_was_sent_whatever_the_builder_does_next() -> None:
    shared: Dict[str, Any] = {}

    def build(task: Any) -> Any:
        shared["q"] = task.input["q"]
        return shared

    with RawServer(answer_ok) as server:
        solution = http_solution_with(server.url(), body_builder=build, timeout=CAP)
        first, second = solution(a_task(q="one")), solution(a_task(q="two"))
    assert first.meta["experiment_input"] == {"q": "one"}
    assert second.meta["experiment_input"] == {"q": "two"}


def test_a_body_of_another_kind_is_refused() -> None:
    bad: Dict[str, Any] = {"data": ["a"]}
    with pytest.raises(ConfigurationError):
        http_solution_with("http://h/", **bad)
