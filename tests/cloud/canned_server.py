"""A real HTTP server on 127.0.0.1 whose answers a test writes byte for byte."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple
from urllib.parse import parse_qsl, urlsplit

from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi


class Seen(NamedTuple):
    method: str
    target: str
    headers: Dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> Dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b'{"requestId": "r-1"}'
    headers: Tuple[Tuple[str, str], ...] = ()
    cut: bool = False  # close the connection instead of answering
    hold: Optional[threading.Event] = None  # answer only after this event


def answer(status: int = 200, body: Any = None, *headers: Tuple[str, str], **more: Any) -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body or {"requestId": "r-1"}).encode()
    return Answer(status, text, headers, **more)


class CannedServer:
    """Answers from ``answers`` in order, then ``default``; ``respond`` may decide instead."""

    def __init__(self, *answers: Answer, default: Optional[Answer] = None) -> None:
        self.seen: List[Seen] = []
        self.answers = list(answers)
        self.default = default or answer()
        self.respond: Optional[Callable[[Seen], Answer]] = None
        self._lock = threading.Lock()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                owner._serve(self, Seen(self.command, self.path, headers, body))

            do_POST = do_PUT = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = "http://127.0.0.1:{}".format(self.port)

    def _serve(self, handler: Any, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)
            given = self.answers.pop(0) if self.answers else self.default
        if self.respond is not None:
            given = self.respond(seen)
        if given.hold is not None:
            given.hold.wait(30)
        if given.cut:
            handler.close_connection = True
            return
        handler.send_response(given.status)
        for name, value in given.headers:
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(given.body)))
        handler.end_headers()
        handler.wfile.write(given.body)

    def __enter__(self) -> CannedServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def access(self, credentials: Any = None) -> CloudAccess:
        keys = credentials or AccessKey("ak-1", "sk-secret-1")
        return CloudAccess("cn-test", self.url, self.url, keys)

    def api(self, credentials: Any = None, **options: Any) -> AgentLoopApi:
        self.pauses: List[float] = []
        options.setdefault("sleep", self.pauses.append)
        return AgentLoopApi(self.access(credentials), **options)
