"""An agent over HTTP, in a process of its own: JSON, an event stream, or behind a token bucket.

Prints its port, then serves until standard input is closed. ``POST /json?ms=50``,
``POST /stream?ms=50&events=50``, ``POST /limited?ms=100`` and ``GET /counts``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Dict, List, Optional
from urllib.parse import parse_qsl, urlsplit

_ANSWER = b'{"answer":"forty-two","usage":{"input_tokens":11,"output_tokens":3}}'


class TokenBucket:
    """``rate`` calls a second, and a burst after a pause."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Agent(asyncio.Protocol):
    """One connection; requests on it are answered one after the other."""

    bucket = TokenBucket(50.0, 25.0)
    allowed: List[float] = []
    refused: List[float] = []

    def __init__(self) -> None:
        self._received = b""
        self._transport: Optional[asyncio.Transport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.decode("latin-1").split("\r\n")
        length = 0
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        if len(rest) >= length:
            self._received = rest[length:]
            self._answer(lines[0].split(" ")[1])

    def _answer(self, target: str) -> None:
        parts = urlsplit(target)
        asked: Dict[str, str] = dict(parse_qsl(parts.query))
        delay = float(asked.get("ms", "50")) / 1000.0
        if parts.path == "/counts":
            self._send(json.dumps({"allowed": self.allowed, "refused": self.refused}).encode())
        elif parts.path == "/stream":
            asyncio.ensure_future(self._stream(delay, int(asked.get("events", "50"))))
        elif parts.path == "/limited" and not self.bucket.take():
            self.refused.append(time.monotonic())
            self._send(b'{"error":"slow down"}', "429 Too Many Requests", "Retry-After: 1\r\n")
        else:
            if parts.path == "/limited":
                self.allowed.append(time.monotonic())
            asyncio.get_event_loop().call_later(delay, self._send, _ANSWER)

    def _send(self, body: bytes, status: str = "200 OK", more: str = "") -> None:
        head = "HTTP/1.1 {}\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n"
        self._write(head.format(status, more, len(body)).encode() + body)

    async def _stream(self, seconds: float, events: int) -> None:
        """The events at even distances, so that the last one comes after ``seconds``."""
        self._write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        began = time.monotonic()
        for number in range(events):
            due = began + seconds * (number + 1) / events
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            event = b'data: {"delta":"word "}\n\n'
            self._write(b"%x\r\n%s\r\n" % (len(event), event))
        self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second at /limited")
    parser.add_argument("--burst", type=float, default=25.0)
    options = parser.parse_args()
    Agent.bucket = TokenBucket(options.rate, options.burst)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    server = loop.run_until_complete(loop.create_server(Agent, "127.0.0.1", 0, backlog=1024))
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(loop.stop)), daemon=True
    )
    stop.start()
    loop.run_forever()


if __name__ == "__main__":
    main()
