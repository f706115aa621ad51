"""TLS with a throw-away certificate authority."""

from __future__ import annotations

import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
from typing import Any, List, NamedTuple, Optional

import pytest
from raw_http import CAP, RawServer, Reply, Request, a_task, answer_ok

from agentloop_experiment_sdk.models import SolutionOutput
from agentloop_experiment_sdk.solutions import dial
from agentloop_experiment_sdk.solutions.dial import TlsContexts
from agentloop_experiment_sdk.solutions.faults import ExchangeFault
from agentloop_experiment_sdk.solutions.http import http_solution_with

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Authority(NamedTuple):
    ca: pathlib.Path
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command to make a certificate authority with")
    folder = tmp_path_factory.mktemp("ca")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=str(folder), check=True, capture_output=True)

    (folder / "v3.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    run(*new, "-x509", "-days", "2", "-subj", "/CN=Test CA", "-keyout", "ca.key", "-out", "ca.pem")
    run(*new, "-subj", "/CN=localhost", "-keyout", "s.key", "-out", "s.csr")
    sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    run("x509", "-req", "-in", "s.csr", *sign, "-extfile", "v3.ext", "-out", "s.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(folder / "s.pem"), str(folder / "s.key"))
    return Authority(folder / "ca.pem", context)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CA_VARIABLES + ("SSL_CERT_DIR", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def called(server: RawServer, host: str = "127.0.0.1", **options: Any) -> SolutionOutput:
    options.setdefault("timeout", CAP)
    url = "https://%s:%d/" % (host, server.port)
    return http_solution_with(url, **options)(a_task())


@pytest.mark.parametrize("variable", CA_VARIABLES)
def test_the_standard_variables_name_the_authority(
    authority: Authority, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(authority.ca))
    with RawServer(answer_ok, context=authority.context) as server:
        assert called(server).output == {"answer": "ok"}
        assert called(server, "localhost").success


def test_a_directory_of_authorities_can_be_named(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    shutil.copy(str(authority.ca), str(tmp_path / "ca.pem"))
    found = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", "ca.pem"],
        cwd=str(tmp_path),
        check=True,
        capture_output=True,
    )
    (tmp_path / "ca.pem").rename(tmp_path / (found.stdout.decode().strip() + ".0"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    with RawServer(answer_ok, context=authority.context) as server:
        assert called(server).success


def test_an_unknown_authority_fails_the_row_and_says_what_to_do(authority: Authority) -> None:
    with RawServer(answer_ok, context=authority.context) as server:
        output = called(server, method="GET")
        assert server.requests == []
    assert output.meta["error_type"] == "TLSError"
    assert "SSL_CERT_FILE" in output.meta["error_message"]
    assert len(output.meta["http"]["attempts"]) == 1


def test_a_certificate_for_another_host_fails_the_row(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with RawServer(answer_ok, context=authority.context) as server:
        resolve = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *args, **kw: resolve("127.0.0.1", *args, **kw)
        )
        output = called(server, "other.example")
    assert output.meta["error_type"] == "TLSError"
    assert "other.example" in output.meta["error_message"]


def test_an_authority_file_that_cannot_be_read_fails_the_row(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file.pem")
    with RawServer(answer_ok, context=authority.context) as server:
        output = called(server)
    assert output.meta["error_type"] == "TLSError"
    assert "/no/such/file.pem" in output.meta["error_message"]


def test_connections_are_kept_and_checked_with_tls_too(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with RawServer(answer_ok, context=authority.context) as server:
        url = server.url(scheme="https")
        solution = http_solution_with(url, timeout=CAP, data=b"x" * 600_000)
        assert all(solution(a_task()).success for _ in range(3))
        assert server.connections == 1
        server.drop_connections()
        assert solution(a_task()).success
        assert server.connections == 2
        assert len(server.requests[0].body) == 600_000


def test_a_handshake_that_is_stuck_ends_by_the_deadline(authority: Authority) -> None:
    box: List[RawServer] = []
    with RawServer(answer_ok, on_connect=lambda sock: box[0].released.wait(CAP) and None) as server:
        box.append(server)
        assert called(server, timeout=0.4).meta["error_type"] == "Timeout"


def test_a_server_that_speaks_no_tls_fails_the_row() -> None:
    def plain(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 This is HTTP\r\n\r\n")

    with RawServer(answer_ok, on_connect=plain) as server:
        output = called(server)
    assert output.meta["error_type"] == "TLSError"


def test_a_handshake_that_breaks_is_retried_for_idempotent_calls() -> None:
    with RawServer(answer_ok, on_connect=lambda sock: sock.close()) as server:
        output = called(server, method="GET")
    assert output.meta["error_type"] == "TLSError"
    assert len(output.meta["http"]["attempts"]) == 3


def test_the_deadline_holds_against_a_tls_server_that_drips(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))

    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Length=10**7)
        while not server.released.wait(0.02):
            reply.send(b"x")

    with RawServer(handler, context=authority.context) as server:
        assert called(server, timeout=0.6).meta["error_type"] == "Timeout"


def tunnelling(agent: RawServer) -> Any:
    """A proxy that connects every CONNECT to ``agent``."""

    def handler(request: Request, reply: Reply) -> None:
        upstream = socket.create_connection(("127.0.0.1", agent.port))
        reply.send(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        threads = [
            threading.Thread(target=pump, args=pair, daemon=True)
            for pair in ((reply.sock, upstream), (upstream, reply.sock))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CAP)
        upstream.close()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    return handler


def test_https_goes_through_a_tunnel(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with RawServer(answer_ok, context=authority.context) as agent:
        with RawServer(tunnelling(agent)) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url())
            solution = http_solution_with("https://localhost/", timeout=CAP)
            assert all(solution(a_task()).success for _ in range(2))
            assert proxy.requests[0].target == "localhost:443"
            assert len(proxy.requests) == agent.connections == 1
        assert len(agent.requests) == 2
        assert agent.requests[0].target == "/"


def test_a_plain_request_goes_through_a_tls_proxy(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with RawServer(answer_ok, context=authority.context) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url(scheme="https"))
        assert http_solution_with("http://agent.example/", timeout=CAP)(a_task()).success
        assert proxy.requests[0].target == "http://agent.example/"


def test_a_context_is_built_once_for_all_threads(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    build = dial._build_context

    def counted(authorities: List[str]) -> ssl.SSLContext:
        built.append(authorities)
        return build(authorities)

    monkeypatch.setattr(dial, "_build_context", counted)
    contexts = TlsContexts()
    environ = {"SSL_CERT_FILE": str(authority.ca)}
    found: List[ssl.SSLContext] = []
    threads = [
        threading.Thread(target=lambda: found.append(contexts.get(environ))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP)
    assert len(built) == 1
    assert len(found) == 8 and len(set(map(id, found))) == 1
    assert contexts.get({}) is not found[0]


def test_a_failure_to_build_is_the_same_for_all() -> None:
    contexts = TlsContexts()
    for _ in range(2):
        with pytest.raises(ExchangeFault):
            contexts.get({"CURL_CA_BUNDLE": "/no/such/file.pem"})


def test_a_failure_to_build_is_forgotten_once_the_file_is_mended(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "ca.pem"
    contexts, environ = TlsContexts(), {"SSL_CERT_FILE": str(file)}
    with pytest.raises(ExchangeFault):
        contexts.get(environ)
    shutil.copy(str(authority.ca), str(file))
    assert contexts.get(environ).cert_store_stats()["x509_ca"] == 1


def test_an_interrupted_build_holds_up_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(authorities: List[str]) -> ssl.SSLContext:
        raise KeyboardInterrupt

    contexts = TlsContexts()
    with monkeypatch.context() as patch:
        patch.setattr(dial, "_build_context", interrupted)
        with pytest.raises(KeyboardInterrupt):
            contexts.get({})
    found: List[ssl.SSLContext] = []
    later = threading.Thread(target=lambda: found.append(contexts.get({})), daemon=True)
    later.start()
    later.join(CAP)
    assert found


@pytest.mark.parametrize("installed", [True, False])
def test_without_a_system_store_the_bundle_beside_python_is_used(
    authority: Authority, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    nothing = ssl.DefaultVerifyPaths(None, None, "", "", "", "")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda self: None)
    certifi: Optional[types.ModuleType] = types.ModuleType("certifi") if installed else None
    if certifi is not None:
        certifi.where = lambda: str(authority.ca)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "certifi", certifi)  # type: ignore[arg-type]
    context = TlsContexts().get({})
    assert context.cert_store_stats()["x509_ca"] == (1 if installed else 0)
