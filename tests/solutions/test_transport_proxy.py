"""Proxies that the environment names."""

from __future__ import annotations

import base64
from typing import Any, Dict, List

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.models import SolutionOutput
from agentloop_experiment_sdk.solutions.faults import ExchangeFault
from agentloop_experiment_sdk.solutions.http import http_solution_with
from agentloop_experiment_sdk.solutions.proxies import bypassed, proxy_for, snapshot
from agentloop_experiment_sdk.solutions.request import origin_of

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "request_method")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def chosen(url: str, **environ: str) -> Any:
    found = proxy_for(origin_of(url), snapshot(environ))
    return found and "{}:{}".format(found.origin.host, found.origin.port)


def test_the_scheme_decides_and_lower_case_wins() -> None:
    environ = {"http_proxy": "http://a:1", "HTTP_PROXY": "http://b:2", "HTTPS_PROXY": "c:3"}
    assert chosen("http://h/", **environ) == "a:1"
    assert chosen("https://h/", **environ) == "c:3"
    assert chosen("https://h/", http_proxy="http://a:1") is None
    assert chosen("https://h/", all_proxy="http://d:4", http_proxy="http://a:1") == "d:4"
    assert chosen("http://h/") is None
    assert chosen("http://h/", http_proxy="") is None


def test_a_cgi_process_does_not_take_the_clients_header_for_a_proxy() -> None:
    assert chosen("http://h/", HTTP_PROXY="http://evil", REQUEST_METHOD="GET") is None
    assert chosen("http://h/", http_proxy="http://a:1", REQUEST_METHOD="GET") == "a:1"


@pytest.mark.parametrize(
    "no_proxy, url, skipped",
    [
        ("*", "http://h/", True),
        ("h.example", "http://h.example/", True),
        ("H.Example", "http://h.example/", True),
        ("example", "http://h.example/", True),
        (".example", "http://h.example/", True),
        ("*.example", "http://h.example/", True),
        ("ample", "http://h.example/", False),
        ("other, example other2", "http://h.example/", True),
        ("h.example:8080", "http://h.example:8080/", True),
        ("h.example:8080", "http://h.example/", False),
        ("127.0.0.1", "http://127.0.0.1:9/", True),
        ("10.0.0.0/8", "http://10.1.2.3/", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("10.0.0.0/8", "http://h.example/", False),
        ("10.0.0.0/99", "http://10.1.2.3/", False),
        ("::1", "http://[::1]/", True),
        ("[::1]:80", "http://[::1]/", True),
        ("fe80::/10", "http://[fe80::1]/", True),
        ("", "http://h/", False),
        (".", "http://h/", False),
    ],
)
def test_no_proxy_lists_hosts_domains_ports_and_networks(
    no_proxy: str, url: str, skipped: bool
) -> None:
    assert bypassed(origin_of(url), no_proxy) is skipped
    assert (chosen(url, http_proxy="http://p:1", no_proxy=no_proxy) is None) is skipped


@pytest.mark.parametrize("url", ["socks5://u:s3cr3t-pw@p:1", "http://u:s3cr3t-pw@p:99999"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ExchangeFault) as caught:
        chosen("http://h/", http_proxy=url)
    assert caught.value.error_type == "ProxyError"
    assert "s3cr3t" not in caught.value.message


def through(
    monkeypatch: pytest.MonkeyPatch, handler: Any, url: str, **options: Any
) -> "tuple[SolutionOutput, List[Request]]":
    with RawServer(handler) as proxy:
        address = proxy.url("").replace("http://", "http://al:p%40ss-w0rd@")
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("https_proxy", address)
        output = http_solution_with(url, timeout=CAP, **options)(a_task())
        return output, proxy.requests


def test_a_plain_request_goes_through_in_absolute_form(monkeypatch: pytest.MonkeyPatch) -> None:
    output, requests = through(monkeypatch, answer_ok, "http://agent.example:81/p?q=1")
    assert output.success
    assert requests[0].target == "http://agent.example:81/p?q=1"
    assert requests[0].get("Host") == "agent.example:81"
    credentials = base64.b64encode(b"al:p@ss-w0rd").decode("ascii")
    assert requests[0].get("Proxy-Authorization") == "Basic " + credentials
    assert "w0rd" not in repr(output.to_dict())


def test_a_connection_to_a_proxy_is_kept_for_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(answer_ok) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(""))
        solution = http_solution_with("http://agent.example/", timeout=CAP)
        assert all(solution(a_task()).success for _ in range(3))
        assert proxy.connections == 1
        assert proxy.requests[0].get("Proxy-Authorization") is None


def test_the_environment_is_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(answer_ok) as agent, RawServer(answer_ok) as proxy:
        solution = http_solution_with(agent.url(), timeout=CAP)
        assert solution(a_task()).success
        monkeypatch.setenv("http_proxy", proxy.url())
        assert solution(a_task()).success
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert solution(a_task()).success
        assert (len(agent.requests), len(proxy.requests)) == (2, 1)


@pytest.mark.parametrize(
    "answer, message",
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication"),
        (b"garbage\r\n\r\n", "no HTTP answer"),
        (b"", "broke off"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000, "broke off"),
    ],
)
def test_a_refused_tunnel_fails_the_row(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, message: str
) -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.send(answer)

    output, requests = through(monkeypatch, handler, "https://agent.example/")
    assert output.meta["error_type"] == "ProxyError"
    assert message in output.meta["error_message"]
    assert requests[0].method == "CONNECT"
    assert requests[0].target == requests[0].get("Host") == "agent.example:443"
    assert "w0rd" not in repr(output.to_dict())


def test_an_ipv6_target_is_bracketed(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.send(b"HTTP/1.1 403 No\r\n\r\n")

    _, requests = through(monkeypatch, handler, "https://[2001:db8::1]/")
    assert requests[0].target == "[2001:db8::1]:443"


def test_a_proxy_that_says_nothing_ends_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    box: Dict[str, RawServer] = {}
    with RawServer(lambda request, reply: box["p"].released.wait(CAP) and None) as proxy:
        box["p"] = proxy
        monkeypatch.setenv("https_proxy", proxy.url())
        output = http_solution_with("https://agent.example/", timeout=0.4)(a_task())
    assert output.meta["error_type"] == "Timeout"


def test_tls_within_tls_is_refused_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "https://proxy.example")
    output = http_solution_with("https://agent.example/", timeout=CAP)(a_task())
    assert output.meta["error_type"] == "ProxyError"
    assert "http:// proxy" in output.meta["error_message"]


def test_a_socks_proxy_fails_the_row_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    output = http_solution_with("http://agent.example/", timeout=CAP)(a_task())
    assert output.meta["error_type"] == "ProxyError"
    assert "NO_PROXY" in output.meta["error_message"]
