"""SLS through the official client: one send a call, and errors that say what to do."""

from __future__ import annotations

import json
import locale
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest
from canned_server import Answer, CannedServer, answer

from agentloop_experiment_sdk.cloud import sls
from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.sls import SlsLogstore
from agentloop_experiment_sdk.errors import CloudError, CredentialsError
from agentloop_experiment_sdk.local import LocalAgentLoop

ROW = [("task_id", "t-1"), ("experiment_output", "ok")]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with CannedServer(default=Answer(200, b"")) as started:
        yield started


def logstore(server: CannedServer, credentials: Any = None) -> SlsLogstore:
    return SlsLogstore(server.access(credentials), "proj")


def refusal(code: str, message: str = "it said no") -> bytes:
    return json.dumps({"errorCode": code, "errorMessage": message}).encode()


def failure(server: CannedServer) -> CloudError:
    with pytest.raises(CloudError) as raised:
        logstore(server).put([ROW])
    assert len(server.seen) == 1, "it was sent {} times".format(len(server.seen))
    return raised.value


@pytest.mark.parametrize(
    "status, body, code, retryable",
    [
        (500, refusal("InternalServerError"), "InternalServerError", True),
        (502, b"<html>bad gateway</html>", "BadResponse", True),
        (502, b"", "LogRequestError", True),
        (503, refusal("ServerBusy"), "ServerBusy", True),
        (503, b'{"other": 1}', "LogRequestError", True),
        (403, refusal("WriteQuotaExceed"), "WriteQuotaExceed", True),
        (403, refusal("ShardWriteQuotaExceed"), "ShardWriteQuotaExceed", True),
        (403, refusal("ProjectQuotaExceed"), "ProjectQuotaExceed", False),
        (403, refusal("ProjectForbidden"), "ProjectForbidden", False),
        (429, refusal("ExceedQuota"), "ExceedQuota", True),
        (429, b"<html>slow down</html>", "BadResponse", True),
        (408, refusal("RequestTimeout"), "RequestTimeout", True),
        (400, refusal("PostBodyInvalid"), "PostBodyInvalid", False),
        (400, refusal("RequestTimeExpired"), "RequestTimeExpired", False),
        (401, refusal("Unauthorized"), "Unauthorized", False),
        (404, refusal("LogStoreNotExist"), "LogStoreNotExist", False),
        (404, b"<html>not here</html>", "BadResponse", False),
    ],
)
def test_each_answer_is_one_send_and_one_error(
    server: CannedServer, status: int, body: bytes, code: str, retryable: bool
) -> None:
    server.answers.append(answer(status, body, ("x-log-requestid", "rid-7")))
    error = failure(server)
    assert (error.status, error.code, error.retryable) == (status, code, retryable)
    assert error.request_id == "rid-7" and not error.ambiguous
    assert "proj/experiment_detail with HTTP {} {}".format(status, code) in str(error)


@pytest.mark.parametrize(
    "code, remedy",
    [
        ("Unauthorized", "may write to this SLS project"),
        ("SignatureNotMatch", "access key secret"),
        ("SecurityTokenExpired", "get a new one"),
        ("ProjectNotExist", "SLS project of the AgentSpace"),
        ("ProjectForbidden", "permissions"),
        ("LogStoreNotExist", "Create the logstore experiment_detail"),
        ("RequestTimeExpired", "clock of this machine"),
        ("SomethingNew", "it said no."),
    ],
)
def test_errors_say_what_to_do(server: CannedServer, code: str, remedy: str) -> None:
    server.answers.append(answer(403, refusal(code)))
    assert remedy in str(failure(server))


def test_a_connection_that_is_closed_without_an_answer_may_have_stored_the_rows(
    server: CannedServer,
) -> None:
    server.answers.append(Answer(cut=True))
    error = failure(server)
    assert (error.code, error.status) == ("SlsUnreachable", None)
    assert error.retryable and error.ambiguous
    assert "sls_endpoint" in str(error)


def test_an_answer_that_does_not_come_in_time_may_have_stored_the_rows(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official client alone would send it ten times."""
    monkeypatch.setattr(sls, "_TIMEOUT", (5, 0.3))
    hold = threading.Event()
    server.answers.append(Answer(hold=hold))
    try:
        error = failure(server)
    finally:
        hold.set()
    assert error.code == "SlsUnreachable" and error.retryable and error.ambiguous


def test_a_refused_connection_stored_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:{}".format(taken.getsockname()[1])
        access = CloudAccess("cn-test", url, url, AccessKey("ak", "sk"))
        with pytest.raises(CloudError) as raised:
            SlsLogstore(access, "proj").put([ROW])
    assert raised.value.retryable and not raised.value.ambiguous
    assert raised.value.code == "SlsUnreachable"


def test_a_page_of_a_proxy_is_not_taken_for_success(server: CannedServer) -> None:
    server.answers.append(answer(200, b"<html>" + b"please log in " * 500 + b"</html>"))
    error = failure(server)
    assert (error.code, error.retryable, error.ambiguous) == ("BadResponse", True, True)
    assert "please log in" in str(error) and len(str(error)) < 1000


def test_an_answer_that_makes_the_client_stumble_is_an_error_like_others(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version 0.9.0 does over an empty one."""
    import aliyun.log

    def stumbles(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("argument of type 'NoneType' is not iterable")

    monkeypatch.setattr(aliyun.log.LogClient, "_sendRequest", stumbles)
    with pytest.raises(CloudError) as raised:
        logstore(server).put([ROW])
    assert raised.value.code == "BadResponse" and raised.value.retryable


@pytest.mark.parametrize(
    "header, seconds",
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("Sun, 06 Nov 2033 08:49:37 GMT", None)],
)
def test_the_wait_that_sls_asks_for_is_passed_on(
    server: CannedServer, header: str, seconds: Optional[float]
) -> None:
    server.answers.append(answer(503, refusal("ServerBusy"), ("Retry-After", header)))
    assert failure(server).retry_after == seconds


def test_errors_the_client_raises_before_it_sends_are_translated(server: CannedServer) -> None:
    from aliyun.log import LogException

    def oversize(client: Any) -> None:
        raise LogException("InvalidLogSize", "too large", resp_status=0)

    with pytest.raises(CloudError, match="InvalidLogSize"):
        logstore(server)._call(oversize)


def test_requests_are_signed_by_version_4_and_carry_a_source(server: CannedServer) -> None:
    logstore(server).put([ROW])
    (seen,) = server.seen
    assert seen.target == "/logstores/experiment_detail/shards/lb"
    assert seen.headers["authorization"].startswith("SLS4-HMAC-SHA256 Credential=ak-1/")
    assert "/cn-test/sls/aliyun_v4_request" in seen.headers["authorization"]
    assert seen.headers["host"] == "proj.127.0.0.1"
    assert "x-acs-security-token" not in seen.headers
    assert sls.SOURCE.encode() in stored(seen)


def stored(seen: Any) -> bytes:
    import lz4.block

    size = int(seen.headers["x-log-bodyrawsize"])
    return bytes(lz4.block.decompress(seen.body, uncompressed_size=size))


def test_the_locale_of_the_process_stays(server: CannedServer) -> None:
    before = locale.setlocale(locale.LC_TIME)
    names = [name for name in ("C.UTF-8", "en_US.UTF-8") if _can_have(name)]
    try:
        kept = locale.setlocale(locale.LC_TIME, names[0] if names else "C")
        logstore(server).put([ROW])
        assert locale.setlocale(locale.LC_TIME) == kept
    finally:
        locale.setlocale(locale.LC_TIME, before)


def _can_have(name: str) -> bool:
    before = locale.setlocale(locale.LC_TIME)
    try:
        locale.setlocale(locale.LC_TIME, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_TIME, before)
    return True


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    logstore(server).put([ROW])
    assert len(server.seen) == 1


def test_temporary_keys_send_their_token(server: CannedServer) -> None:
    logstore(server, AccessKey("ak", "sk", "token-1")).put([ROW])
    assert server.seen[0].headers["x-acs-security-token"] == "token-1"


class Rotating:
    """A provider whose keys change."""

    def __init__(self) -> None:
        self.keys = AccessKey("ak-1", "sk-1", "token-1")

    def get_credentials(self) -> AccessKey:
        return self.keys

    def get_provider_name(self) -> str:
        return "rotating"


def test_rotated_keys_are_used_at_the_next_write(server: CannedServer) -> None:
    provider = Rotating()
    writing = logstore(server, provider)
    writing.put([ROW])
    writing.put([ROW])
    provider.keys = AccessKey("ak-2", "sk-2", "token-2")
    writing.put([ROW])
    used = [
        (seen.headers["authorization"].split("/")[0][-4:], seen.headers["x-acs-security-token"])
        for seen in server.seen
    ]
    assert used == [("ak-1", "token-1"), ("ak-1", "token-1"), ("ak-2", "token-2")]


def test_keys_that_cannot_be_had_are_that_error(server: CannedServer) -> None:
    class Broken(Rotating):
        def get_credentials(self) -> AccessKey:
            raise CredentialsError("the profile is broken")

    with pytest.raises(CredentialsError, match="the profile is broken"):
        logstore(server, Broken()).put([ROW])
    assert not server.seen


def test_the_keys_are_handed_to_the_client_and_the_provider_too(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old clients know no provider."""
    import aliyun.log

    given: List[Dict[str, Any]] = []
    real = aliyun.log.LogClient.__init__

    def old(
        self: Any,
        endpoint: str,
        accessKeyId: str,
        accessKey: str,
        securityToken: Any = None,
        source: Any = None,
        auth_version: str = "v1",
        region: str = "",
    ) -> None:
        given.append({"keys": (accessKeyId, accessKey, securityToken), "version": auth_version})
        real(self, endpoint, accessKeyId, accessKey, securityToken, source, auth_version, region)

    monkeypatch.setattr(aliyun.log.LogClient, "__init__", old)
    logstore(server, AccessKey("ak", "sk", "token")).put([ROW])
    assert given == [{"keys": ("ak", "sk", "token"), "version": "v4"}]


def test_many_threads_write_at_once_through_one_logstore(server: CannedServer) -> None:
    writing = logstore(server)
    errors: List[BaseException] = []

    def write() -> None:
        try:
            for _ in range(5):
                writing.put([ROW])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(server.seen) == 40


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as started:
        yield started


def real(local: LocalAgentLoop, project: str = "", name: str = sls.DETAIL_LOGSTORE) -> SlsLogstore:
    ends = local.endpoints
    key = AccessKey(ends.access_key_id, ends.access_key_secret)
    access = CloudAccess(ends.region_id, ends.agentloop_endpoint, ends.sls_endpoint, key)
    return SlsLogstore(access, project or ends.project, name)


def test_what_is_written_can_be_read_back(local: LocalAgentLoop) -> None:
    writing = real(local)
    writing.exists()
    rows = [[("experiment_id", "r-1"), ("n", str(n)), ("text", "中文 😀 \n")] for n in range(7)]
    writing.put(rows, time_s=1796025600)
    found, complete = writing.read("experiment_id: r-1", 1796025000, 1796026000, size=5, offset=2)
    assert complete and len(found) == 5
    assert {row["text"] for row in found} == {"中文 😀 \n"}
    assert [row["__time__"] for row in local.rows("r-1")] == ["1796025600"] * 7
    assert {row["__source__"] for row in local.rows("r-1")} == {sls.SOURCE}


def test_what_does_not_exist_is_said(local: LocalAgentLoop) -> None:
    with pytest.raises(CloudError, match="Create the logstore absent") as raised:
        real(local, name="absent").exists()
    assert raised.value.status == 404 and raised.value.request_id
    with pytest.raises(CloudError, match="Check the SLS project") as raised:
        real(local, project="absent").put([ROW])
    assert not raised.value.retryable


@pytest.mark.parametrize("mode", ["500", "503", "403", "429", "refuse"])
def test_a_failing_sls_sees_each_write_once(local: LocalAgentLoop, mode: str) -> None:
    outage = local.faults.outage(mode)
    with pytest.raises(CloudError) as raised:
        real(local).put([ROW])
    assert raised.value.retryable and outage.hits == 1
    assert local.requests["PutLogs"] == 1


# --- the oldest supported client -----------------------------------------------------------------

OLDEST = "aliyun-log-python-sdk==0.9.0"
PROGRAM = Path(__file__).with_name("old_client.py")


def old_python(tmp_path: Path, environment: Dict[str, str]) -> str:
    """An interpreter with the oldest supported client, made here; skips where that is impossible.

    ``TEST_SLS_OLDEST_PYTHON`` names one that is there already.
    """
    given = os.environ.get("TEST_SLS_OLDEST_PYTHON")
    if given:
        return given
    steps = (
        [sys.executable, "-m", "venv", str(tmp_path / "venv")],
        [str(tmp_path / "venv/bin/python"), "-m", "pip", "install", "-q", OLDEST, "protobuf<4"],
    )
    for step in steps:
        try:
            done = subprocess.run(step, env=environment, timeout=600, stderr=subprocess.PIPE)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip("{} cannot be installed here: {}".format(OLDEST, error))
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()[-300:]
            pytest.skip("{} cannot be installed here: {}".format(OLDEST, reason))
    return steps[1][0]


@pytest.mark.slow
def test_the_oldest_supported_client_sends_each_write_once_too(
    tmp_path: Path, machine_environment: Dict[str, str]
) -> None:
    python = old_python(tmp_path, machine_environment)
    done = subprocess.run(
        [python, str(PROGRAM)],
        cwd=str(ROOT),
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    found = json.loads(done.stdout.decode().splitlines()[-1])
    assert found["version"] == "0.9.0"
    assert found["stored"] == 1 and found["token"] == "token-1" and found["signed_v4"]
    sends = {name: case["sends"] for name, case in found["cases"].items()}
    assert sends.pop("refused") == 0 and set(sends.values()) == {1}, sends
    assert found["pauses"] == []  # the client pauses only before it sends again
    assert {name for name, case in found["cases"].items() if case["retryable"]} == {
        "500",
        "503",
        "503 empty",
        "502 html",
        "403 quota",
        "429",
        "reset",
        "timeout",
        "refused",
    }
