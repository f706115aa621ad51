"""The audit of ``.ci/run``: it fails on a finding, and says so when it could not ask."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import pathlib
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, Iterator, List, Tuple

import pytest

pytestmark = pytest.mark.slow

AUDIT = pathlib.Path(__file__).resolve().parents[1] / ".ci" / "audit"
SKIPPED = "pip-audit: skipped, the advisory service cannot be reached\n"


class Advisories:
    """A service that speaks OSV's protocol (https://google.github.io/osv.dev/post-v1-query/)."""

    def __init__(self) -> None:
        self.asked: Dict[str, str] = {}
        self.findings: Dict[str, List[Dict[str, Any]]] = {}
        self.status = 200
        self.url = ""

    def answer(self, query: Dict[str, Any]) -> Dict[str, Any]:
        name = query["package"]["name"]
        self.asked[name] = query["version"]
        return {"vulns": self.findings[name]} if name in self.findings else {}

    def __enter__(self) -> Advisories:
        advisories = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(advisories.answer(query)).encode()
                self.send_response(advisories.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:{}/v1/query".format(self._server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed: extra peers")
    if not AUDIT.exists():
        pytest.skip("this is no checkout: it has no .ci/audit")
    with Advisories() as running:
        yield running


def audit(url: str) -> Tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(AUDIT), "-s", "osv", "--osv-url", url],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
    )
    return done.returncode, done.stdout


def test_the_whole_tree_of_the_two_clients_is_asked_for(advisories: Advisories) -> None:
    status, said = audit(advisories.url)
    assert status == 0
    assert said == "pip-audit: {} packages without known vulnerabilities\n".format(
        len(advisories.asked)
    )
    clients = {"alibabacloud-agentloop20260520", "aliyun-log-python-sdk"}
    beneath = {"requests", "urllib3", "alibabacloud-credentials"}
    assert clients | beneath <= set(advisories.asked)
    assert not {"pytest", "ruff", "pyright", "agentloop-experiment-sdk"} & set(advisories.asked)
    assert advisories.asked["requests"] == importlib.metadata.version("requests")


def test_a_finding_fails_and_is_named(advisories: Advisories) -> None:
    package = {"name": "requests", "ecosystem": "PyPI"}
    finding = {"id": "OSV-TEST-1", "summary": "A test.", "affected": [{"package": package}]}
    advisories.findings["requests"] = [finding]
    status, said = audit(advisories.url)
    assert status == 1
    version = importlib.metadata.version("requests")
    assert said == "pip-audit: known vulnerabilities: requests {} OSV-TEST-1\n".format(version)


def test_a_service_that_refuses_or_is_not_there_is_said_and_passes(advisories: Advisories) -> None:
    advisories.status = 503
    assert audit(advisories.url) == (0, SKIPPED)
    assert audit("http://127.0.0.1:1/v1/query") == (0, SKIPPED)


def test_another_failure_of_the_tool_is_a_failure(advisories: Advisories) -> None:
    done = subprocess.run(
        [sys.executable, str(AUDIT), "--no-such-option"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 1 and "no-such-option" in done.stderr
