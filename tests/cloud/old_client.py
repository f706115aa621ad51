"""Runs under an interpreter with an old SLS client and nothing else: prints what it sent."""

from __future__ import annotations

import http.server
import importlib
import json
import socket
import threading
import time

from agentloop_experiment_sdk.cloud import sls
from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.errors import CloudError

CASES = {
    "500": (500, b'{"errorCode": "InternalServerError", "errorMessage": "m"}'),
    "503": (503, b'{"errorCode": "ServerBusy", "errorMessage": "m"}'),
    "503 empty": (503, b""),
    "502 html": (502, b"<html></html>"),
    "403 quota": (403, b'{"errorCode": "WriteQuotaExceed", "errorMessage": "m"}'),
    "429": (429, b'{"errorCode": "ExceedQuota", "errorMessage": "m"}'),
    "401": (401, b'{"errorCode": "Unauthorized", "errorMessage": "m"}'),
    "404": (404, b'{"errorCode": "LogStoreNotExist", "errorMessage": "m"}'),
    "reset": (0, b""),
    "timeout": (-1, b""),
}
state = {"answer": (200, b""), "seen": []}
over = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        state["seen"].append(dict(self.headers))
        status, body = state["answer"]
        if status == -1:
            over.wait(60)
        if status <= 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


def attempt(logstore):
    state["seen"].clear()
    try:
        logstore.put([[("task_id", "t"), ("text", "\u4e2d")]])
    except CloudError as error:
        return {"sends": len(state["seen"]), "retryable": error.retryable, "code": error.code}
    return {"sends": len(state["seen"]), "retryable": None, "code": None}


def main():
    sls._TIMEOUT = (5, 0.5)
    pauses = []
    time.sleep = pauses.append  # the client's own pauses between hidden sends
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:{}".format(server.server_address[1])
    access = CloudAccess("cn-test", url, url, AccessKey("ak", "sk", "token-1"))
    logstore = sls.SlsLogstore(access, "proj")
    stored = attempt(logstore)["sends"]
    headers = {name.lower(): value for name, value in state["seen"][0].items()}
    cases = {}
    for name, answer in CASES.items():
        state["answer"] = answer
        cases[name] = attempt(logstore)
    over.set()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:{}".format(taken.getsockname()[1])
        closed = CloudAccess("cn-test", url, url, AccessKey("ak", "sk"))
        cases["refused"] = attempt(sls.SlsLogstore(closed, "proj"))
    print(
        json.dumps(
            {
                "version": importlib.import_module("aliyun.log.version").__version__,
                "stored": stored,
                "token": headers.get("x-acs-security-token"),
                "signed_v4": headers["authorization"].startswith("SLS4-HMAC-SHA256"),
                "cases": cases,
                "pauses": pauses,
            }
        )
    )


main()
