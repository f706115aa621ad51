"""Every way a call can fail becomes one CloudError that says what is known."""

import socket
import threading
import traceback

import pytest
from canned_server import CannedServer, answer

from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi
from agentloop_experiment_sdk.cloud.openapi_errors import remedy, translate
from agentloop_experiment_sdk.errors import CloudError


def failure(*answers, call=lambda api: api.create_run("s", {}), **options):
    with CannedServer(*answers, default=answers[-1] if answers else None) as server:
        api = server.api(AccessKey("ak-1", "sk-secret-1", "tok-secret-1"), **options)
        with pytest.raises(CloudError) as caught:
            call(api)
    return caught.value


def refusal(status, code, *headers):
    body = {"Code": code, "Message": "why not", "RequestId": "req-9"}
    return answer(status, body, *headers)


@pytest.mark.parametrize(
    ("status", "code", "retryable", "ambiguous"),
    [
        (400, "InvalidParameter", False, False),
        (403, "NoPermission", False, False),
        (404, "PlanNotExist", False, False),
        (408, "RequestTimeout", True, False),
        (429, "Throttling.User", True, False),
        (400, "Throttling.Api", True, False),
        (500, "InternalError", True, True),
        (502, "BadGateway", True, True),
        (503, "ServiceUnavailable", True, False),
        (504, "GatewayTimeout", True, True),
    ],
)
def test_a_refusal_carries_code_status_and_request_id(status, code, retryable, ambiguous):
    error = failure(refusal(status, code))
    assert (error.status, error.code, error.request_id) == (status, code, "req-9")
    assert (error.retryable, error.ambiguous) == (retryable, ambiguous)
    assert "CreateExperimentRun" in str(error) and "why not" in str(error)
    assert code in str(error) and "req-9" in str(error)


def test_the_servers_wish_to_wait_is_in_seconds():
    error = failure(refusal(400, "FlowControl", ("x-acs-retry-after", "2500")))
    assert (error.retryable, error.ambiguous, error.retry_after) == (True, False, 2.5)


def test_a_read_waits_as_long_as_the_server_asks_within_a_cap():
    with CannedServer(
        refusal(429, "Throttling", ("x-acs-retry-after", "2500")),
        refusal(429, "Throttling", ("x-acs-retry-after", "9999999")),
    ) as server:
        server.api().get_plan("s", "p")
        assert server.pauses == [2.5, 10.0]


def test_an_error_body_without_a_code_gets_one_from_the_status():
    error = failure(answer(404, {"oops": True}))
    assert (error.code, error.status, error.request_id) == ("HTTP404", 404, None)
    assert "None" not in str(error)


@pytest.mark.parametrize(
    "given",
    [
        answer(502, b"<html>bad gateway</html>"),
        answer(200, b"<html>a log-in page</html>"),
        answer(200, b""),
        answer(500, b""),
        answer(500, b"[1]"),
        answer(200, b"[1, 2]"),
        answer(200, b'"text"'),
        answer(200, b"null"),
    ],
)
def test_an_answer_that_is_no_json_object_may_come_from_a_gateway(given):
    error = failure(given)
    assert (error.code, error.retryable, error.ambiguous) == ("InvalidAnswer", True, True)


def test_a_refused_connection_was_surely_not_carried_out():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:{}".format(unused.getsockname()[1])
        api = AgentLoopApi(CloudAccess("r", url, None, AccessKey("a", "b")))
        with pytest.raises(CloudError) as caught:
            api.create_run("s", {})
    error = caught.value
    assert (error.code, error.retryable, error.ambiguous) == ("ConnectionError", True, False)
    assert error.status is None


def test_an_unknown_host_was_surely_not_carried_out():
    access = CloudAccess("r", "http://no-such-host.invalid", None, AccessKey("a", "b"))
    with pytest.raises(CloudError) as caught:
        AgentLoopApi(access, connect_timeout=2.0).create_run("s", {})
    assert (caught.value.retryable, caught.value.ambiguous) == (True, False)


def test_a_silent_server_may_have_carried_it_out():
    release = threading.Event()
    error = failure(answer(hold=release), read_timeout=0.2)
    release.set()
    assert (error.code, error.retryable, error.ambiguous) == ("ReadTimeout", True, True)


def test_a_dropped_connection_may_have_carried_it_out():
    error = failure(answer(cut=True))
    assert (error.code, error.retryable, error.ambiguous) == ("ConnectionError", True, True)


def test_a_read_is_tried_again_after_a_dropped_connection():
    with CannedServer(answer(cut=True), answer(200, {"planId": "p"})) as server:
        assert server.api().get_plan("s", "p") == {"planId": "p"}


def test_a_read_is_not_tried_again_after_a_plain_refusal():
    with CannedServer(default=refusal(404, "PlanNotExist")) as server:
        with pytest.raises(CloudError):
            server.api().get_plan("s", "p")
        assert len(server.seen) == 1


def test_https_to_a_server_without_tls_is_not_worth_a_retry():
    with CannedServer() as server:
        access = CloudAccess("r", "127.0.0.1:{}".format(server.port), None, AccessKey("a", "b"))
        with pytest.raises(CloudError) as caught:
            AgentLoopApi(access).create_run("s", {})
    assert (caught.value.code, caught.value.retryable) == ("TlsError", False)


def test_no_secret_is_in_the_message_or_its_traceback():
    quoted = "server signed tok-secret-1 with sk-secret-1"
    error = failure(answer(400, {"Code": "SignatureDoesNotMatch", "Message": quoted}))
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    assert "server signed *** with ***" in str(error)
    assert "tok-secret-1" not in text and "sk-secret-1" not in text


def test_a_harmless_error_keeps_its_cause():
    error = failure(refusal(400, "InvalidParameter"))
    assert error.__cause__ is not None and error.__cause__.code == "InvalidParameter"


def test_a_very_long_reason_is_shortened():
    error = failure(answer(400, {"Code": "C", "Message": "x" * 5000}))
    assert len(str(error)) < 800


@pytest.mark.parametrize(
    ("text", "code", "retryable", "ambiguous"),
    [
        ("ConnectTimeoutError(<c>, 'Connection to h timed out.')", "ConnectTimeout", True, False),
        ("ProxyError('Cannot connect to proxy.', OSError())", "ProxyError", True, False),
        (
            "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))",
            "CertificateError",
            False,
            False,
        ),
        ("SSLError(SSLEOFError(8, 'EOF occurred'))", "TlsError", True, True),
        ("('Connection aborted.', ConnectionResetError(104))", "ConnectionError", True, True),
    ],
)
def test_network_errors_are_told_apart_by_their_text(text, code, retryable, ambiguous):
    from darabonba.exceptions import RetryError

    error = translate(RetryError(text), "GetRegion", [])
    assert (error.code, error.retryable, error.ambiguous) == (code, retryable, ambiguous)


def test_an_unforeseen_error_of_the_client_is_not_retried():
    error = translate(TypeError("odd"), "GetRegion", [None, ""])
    assert (error.code, error.retryable, error.ambiguous) == ("ClientError", False, False)
    assert "TypeError" in str(error) and "odd" in str(error)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (CloudError("x", code="InvalidAccessKeyId.NotFound", status=404), "AccessKey id"),
        (CloudError("x", code="Anything", status=401), "AccessKey id"),
        (CloudError("x", code="Forbidden.RAM", status=403), "agentloop:Get"),
        (CloudError("x", code="PlanNotExist", status=404), "region_id"),
        (CloudError("x", code="ConnectTimeout"), "agentloop_endpoint"),
        (CloudError("x", code="InternalError", status=500, retryable=True), "later"),
        (CloudError("x", code="InvalidParameter", status=400), "values"),
    ],
)
def test_each_kind_of_error_has_its_own_remedy(error, hint):
    assert hint in remedy(error, "agentloop:Get")
