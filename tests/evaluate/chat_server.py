"""A chat completions endpoint on a real socket that answers what a test tells it."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Union


class ChatServer(ThreadingHTTPServer):
    """Gives the replies in order; the last one stays."""

    daemon_threads = True

    def __init__(self, replies: List[Any]) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.replies = list(replies)
        self.requests: List[Dict[str, Any]] = []
        self.released = threading.Event()

    @property
    def base_url(self) -> str:
        return "http://127.0.0.1:{}/v1".format(self.server_address[1])

    def next_reply(self) -> Any:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class ChatHandler(BaseHTTPRequestHandler):
    server: ChatServer  # type: ignore[assignment]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(
            {"path": self.path, "headers": dict(self.headers), "body": json.loads(content)}
        )
        reply = self.server.next_reply()
        if callable(reply):
            reply(self)
        else:
            self.answer(*reply)

    def answer(self, status: int, body: Union[str, bytes], **headers: str) -> None:
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in dict(headers, Content_Length=str(len(body))).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def says(content: Any, **more: Any) -> Any:
    """A reply in which the model says ``content``."""
    return 200, json.dumps(dict({"choices": [{"message": {"content": content}}]}, **more))


@contextlib.contextmanager
def chat_server(*replies: Any) -> Iterator[ChatServer]:
    server = ChatServer(list(replies))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
