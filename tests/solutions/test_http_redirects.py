from __future__ import annotations

from typing import Any, Dict

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok, call

from agentloop_experiment_sdk.models import HttpRequestSpec, SolutionOutput
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.request import prepare, redirected


def redirecting(status: int, location: str = "/end") -> Any:
    def handler(request: Request, reply: Reply) -> None:
        if request.target == "/end":
            answer_ok(request, reply)
        else:
            reply.whole(b"moved", "text/plain", "%d Moved" % status, Location=location)

    return handler


@pytest.mark.parametrize(
    "status, method, then",
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (303, "HEAD", "HEAD"),
        (302, "GET", "GET"),
    ],
)
def test_the_method_after_a_redirect(status: int, method: str, then: str) -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.method == "HEAD":
            more = {} if request.target == "/end" else {"Location": "/end"}
            reply.head("%d X" % (status if more else 200), Content_Length=5, **more)
            reply.keep = True
        else:
            redirecting(status)(request, reply)

    with RawServer(handler) as server:
        solution = http_solution_with(server.url("/begin"), method=method, data="body", timeout=CAP)
        output = solution(a_task())
        first, last = server.requests
    assert output.success, output
    assert (last.target, last.method) == ("/end", then)
    assert last.body == (b"" if then in ("GET",) and method != "GET" else first.body)
    assert bool(last.get("Content-Type")) == bool(last.body)
    assert output.meta["http"]["method"] == then
    assert output.meta["http"]["redirects"] == [{"status": status, "location": "/end"}]


def test_the_connection_is_used_again_within_an_origin() -> None:
    with RawServer(redirecting(307)) as server:
        assert http_solution_with(server.url(), timeout=CAP)(a_task()).success
        assert server.connections == 1
        traces = {request.get("traceparent") for request in server.requests}
        assert len(traces) == 1


SECRETS = {
    "Authorization": "Bearer s3cr3t-A",
    "Cookie": "sid=s3cr3t-B",
    "Proxy-Authorization": "Basic s3cr3t-C",
    "X-Api-Key": "s3cr3t-D",
    "Host": "first.example",
    "Referer": "http://first.example/s3cr3t-E",
}


def cross_origin(**options: Any) -> "tuple[SolutionOutput, Request, Request]":
    with RawServer(answer_ok) as target:
        first = redirecting(307, target.url("/x"))
        with RawServer(first) as server:
            url = options.pop("url", server.url)("/")
            output = http_solution_with(url, timeout=CAP, **options)(a_task())
            return output, server.requests[0], target.requests[0]


def test_no_credential_goes_to_another_origin() -> None:
    output, before, after = cross_origin(headers={**SECRETS, "X-Plain": "kept"}, data="body")
    assert output.success
    assert before.get("Authorization") == "Bearer s3cr3t-A"
    assert "s3cr3t" not in repr(after.headers)
    assert after.get(
        "Host",
    ).startswith("127.0.0.1:")  # type: ignore[union-attr]
    assert after.get("X-Plain") == "kept"
    assert after.get("traceparent")
    assert after.body == b"body"


def test_credentials_stay_within_the_origin() -> None:
    with RawServer(redirecting(308)) as server:
        http_solution_with(server.url(), headers=SECRETS, timeout=CAP)(a_task())
        assert server.requests[1].get("Authorization") == "Bearer s3cr3t-A"
        assert server.requests[1].get("Cookie") == "sid=s3cr3t-B"


def test_userinfo_does_not_go_to_another_origin() -> None:
    with RawServer(answer_ok) as target, RawServer(redirecting(302, target.url())) as server:
        url = server.url().replace("http://", "http://alice:pa55@")
        assert http_solution_with(url, timeout=CAP)(a_task()).success
        assert server.requests[0].get("Authorization")
        assert target.requests[0].get("Authorization") is None


def redirect_to(location: str, url: str = "https://h.example/a/b?c=1") -> str:
    return redirected(prepare(HttpRequestSpec(url)), 302, location).url


@pytest.mark.parametrize(
    "location, url",
    [
        ("/x", "https://h.example/x"),
        ("x", "https://h.example/a/x"),
        ("?y=2", "https://h.example/a/b?y=2"),
        ("//other.example/x", "https://other.example/x"),
        ("http://u:p@other.example/x#frag", "http://other.example/x"),
        ("/天 气", "https://h.example/%E5%A4%A9%20%E6%B0%94"),
    ],
)
def test_a_location_is_resolved_against_the_request(location: str, url: str) -> None:
    assert redirect_to(location) == url


@pytest.mark.parametrize(
    "location, target",
    [
        ("/é€".encode(), "/%C3%A9%E2%82%AC"),
        ("/%C3%A9?q=é".encode(), "/%C3%A9?q=%C3%A9"),
        ("/Å".encode(), "/%C3%85"),  # its bytes end in 85 and A0, which are blank in latin-1
        ("/à".encode(), "/%C3%A0"),
        ("/caf\xe9 ?q=%41\xff".encode("latin-1"), "/caf%E9%20?q=%41%FF"),
    ],
)
def test_a_location_beyond_ascii_leads_where_it_leads_a_browser(
    location: bytes, target: str
) -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.target == "/begin":
            reply.send(
                b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % location
            )
            reply.keep = True
        else:
            answer_ok(request, reply)

    with RawServer(handler) as server:
        output = http_solution_with(server.url("/begin"), method="GET", timeout=CAP)(a_task())
        assert output.success, output
        assert server.requests[1].target == target


def test_a_location_in_utf8_is_recorded_as_it_reads() -> None:
    def handler(request: Request, reply: Reply) -> None:
        if request.target == "/begin":
            redirecting(307, "/天气")(request, reply)
        else:
            answer_ok(request, reply)

    output = call(handler, path="/begin")
    assert output.meta["http"]["redirects"] == [{"status": 307, "location": "/天气"}]


def test_another_port_or_scheme_is_another_origin() -> None:
    spec = HttpRequestSpec("https://h.example/", headers={"Authorization": "x"})
    for location in ("http://h.example/", "https://h.example:444/", "https://o.example/"):
        assert "Authorization" not in redirected(prepare(spec), 307, location).headers
    assert "Authorization" in redirected(prepare(spec), 307, "https://H.example:443/").headers


def failed(handler: Any, **options: Any) -> Dict[str, Any]:
    output = call(handler, **options)
    assert not output.success
    return output.meta


@pytest.mark.parametrize("status", ["302 Found", "307 T", "304 Not Modified", "300 Choices"])
def test_a_redirect_that_names_no_location_is_no_answer(status: str) -> None:
    meta = failed(lambda request, reply: reply.whole(b"", "", status))
    assert meta["error_type"] == "RedirectError"
    assert status in meta["error_message"]
    assert meta["http"]["status"] == int(status[:3])


def test_an_endless_redirect_is_given_up() -> None:
    seen = []

    def handler(request: Request, reply: Reply) -> None:
        seen.append(request.number)
        reply.whole(b"", "", "302 Found", Location="/again")

    meta = failed(handler, method="GET")
    assert meta["error_type"] == "RedirectError"
    assert len(seen) == 11
    assert len(meta["http"]["redirects"]) == 11


@pytest.mark.parametrize("location", ["ftp://h/", "javascript:alert(1)", "http://[bad/"])
def test_a_redirect_to_something_else_than_http_fails(location: str) -> None:
    meta = failed(redirecting(302, location))
    assert meta["error_type"] == "RedirectError"


def test_secrets_in_a_location_are_masked() -> None:
    output = call(redirecting(302, "/end?token=s3cr3t-X&a=1"))
    assert "s3cr3t-X" not in repr(output.meta)
