"""A server that puts exactly the bytes of a test on the wire, for the HTTP tests."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from agentloop_experiment_sdk.models import SolutionOutput, Task
from agentloop_experiment_sdk.solutions.http import http_solution_with

CAP = 20.0  # seconds after which a test that hangs fails instead


class Request:
    """One request as it arrived."""

    def __init__(self, head: bytes, body: bytes, number: int, connection: int) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ", 2)
        self.headers = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])
        ]
        self.body = body
        self.number = number
        self.connection = connection

    def all(self, name: str) -> List[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def get(self, name: str) -> Optional[str]:
        values = self.all(name)
        return values[0] if values else None


class Reply:
    """Writes an answer; ``keep`` says whether the connection serves another request."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.keep = False

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def head(self, status: str = "200 OK", **headers: Any) -> None:
        lines = ["HTTP/1.1 " + status]
        lines += ["%s: %s" % (name.replace("_", "-"), value) for name, value in headers.items()]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("utf-8"))

    def whole(
        self,
        body: Any = b"",
        kind: str = "application/json",
        status: str = "200 OK",
        **headers: Any,
    ) -> None:
        data = body.encode("utf-8") if isinstance(body, str) else body
        if kind:
            headers["Content_Type"] = kind
        self.head(status, Content_Length=len(data), **headers)
        self.send(data)
        self.keep = True

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def chunks(self, parts: List[bytes], kind: str = "text/event-stream", end: bool = True) -> None:
        self.head(Content_Type=kind, Transfer_Encoding="chunked")
        for part in parts:
            self.chunk(part)
        if end:
            self.send(b"0\r\n\r\n")
            self.keep = True

    def stream(self, text: str) -> None:
        self.whole(text, "text/event-stream")


Handler = Callable[[Request, Reply], None]


class RawServer:
    """Serves ``handler`` on 127.0.0.1; a handler's own error fails the test that caused it."""

    def __init__(
        self,
        handler: Handler,
        *,
        context: Optional[ssl.SSLContext] = None,
        family: int = socket.AF_INET,
        on_connect: Optional[Callable[[socket.socket], None]] = None,
    ) -> None:
        self.handler = handler
        self.context = context
        self.on_connect = on_connect
        self.requests: List[Request] = []
        self.connections = 0
        self.errors: List[BaseException] = []
        self.released = threading.Event()  # set when the test is over: handlers may stop waiting
        self._lock = threading.Lock()
        self._open: List[socket.socket] = []
        self._listener = socket.socket(family)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        self.host = "[::1]" if family == socket.AF_INET6 else "127.0.0.1"

    def url(self, path: str = "/", scheme: str = "http") -> str:
        return "%s://%s:%d%s" % (scheme, self.host, self.port, path)

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.released.set()
        self._listener.close()
        self.drop_connections()
        if self.errors:
            raise self.errors[0]

    def drop_connections(self) -> None:
        """Close every connection that is open, as a server that restarts does."""
        with self._lock:
            sockets, self._open = self._open, []
        for sock in sockets:
            # its thread closes it: a TLS read under way would go on with whoever got the descriptor
            _shut_down(sock)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                number = self.connections
                self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            sock.settimeout(CAP)
            if self.on_connect is not None:
                self.on_connect(sock)
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._open.append(sock)
            self._serve_requests(sock, number)
        except OSError:
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            _hang_up(sock)

    def _serve_requests(self, sock: socket.socket, number: int) -> None:
        buffer = b""
        while True:
            head, buffer = _until(sock, buffer, b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n")[1:]:
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            while len(buffer) < length:
                buffer += _receive(sock)
            body, buffer = buffer[:length], buffer[length:]
            with self._lock:
                request = Request(head, body, len(self.requests), number)
                self.requests.append(request)
            reply = Reply(sock)
            self.handler(request, reply)
            if not reply.keep:
                return


def _until(sock: socket.socket, buffer: bytes, mark: bytes) -> Tuple[bytes, bytes]:
    while mark not in buffer:
        buffer += _receive(sock)
    head, _, rest = buffer.partition(mark)
    return head, rest


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise ConnectionError("client is gone")
    return data


def _hang_up(sock: socket.socket) -> None:
    _shut_down(sock)
    sock.close()


def _shut_down(sock: socket.socket) -> None:
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass


def answer_ok(request: Request, reply: Reply) -> None:
    reply.whole('{"answer": "ok"}')


def a_task(record_id: Any = "record-1", item_id: Any = "item-1", **row: Any) -> Task:
    metadata: Dict[str, Any] = {"record_id": record_id, "dataset_item_id": item_id}
    return Task("task-1", dict(row) or {"q": "hi"}, metadata=metadata)


def call(handler: Handler, path: str = "/", **options: Any) -> SolutionOutput:
    """One call of a fresh server that answers with ``handler``."""
    options.setdefault("timeout", CAP)
    with RawServer(handler) as server:
        solution = http_solution_with(server.url(path), **options)
        try:
            return solution(a_task())
        finally:
            solution.close()
