"""One HTTP request and its reply, and the error that a handler raises to answer like the cloud."""

from __future__ import annotations

import itertools
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import parse_qsl, unquote

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_numbers = itertools.count(1)
_PREFIX = os.urandom(8).hex().upper()


def new_request_id() -> str:
    """A request id unlike any other of this process; cheap, unlike a UUID."""
    return "{}{:016X}".format(_PREFIX, next(_numbers))


class Request:
    """One request as it arrived: header names in lower case, the path still percent-encoded.

    ``method``, ``target``, ``headers`` and ``body`` are what the client sent.
    ``action`` and ``project`` are filled in once the request is known to speak one of the two
    protocols; ``rows`` once the body of a PutLogs is decoded.
    """

    __slots__ = (
        "method",
        "target",
        "path",
        "query_string",
        "headers",
        "body",
        "request_id",
        "action",
        "project",
        "params",
        "rows",
        "_json",
        "_query",
    )

    def __init__(
        self, method: str, target: str, headers: Dict[str, str], body: bytes = b""
    ) -> None:
        self.method = method
        self.target = target
        self.path, _, self.query_string = origin_form(target).partition("?")
        self.headers = headers
        self.body = body
        self.request_id = new_request_id()
        self.action = ""
        self.project = ""
        self.params: Dict[str, str] = {}
        self.rows: Optional[List[Dict[str, str]]] = None
        self._json: Any = None
        self._query: Optional[Dict[str, str]] = None

    @property
    def host(self) -> str:
        """The Host header without a scheme, which the OpenAPI client may send along."""
        return _SCHEME.sub("", self.headers.get("host", "")).rstrip("/")

    @property
    def hosts(self) -> Tuple[str, ...]:
        """Every host the request is for: by its header and, if it has one, by its target.

        Source: RFC 9112 section 3.2.2: the authority of an absolute-form target counts too.
        """
        scheme = _SCHEME.match(self.target)
        if scheme is None:
            return (self.host,)
        return (self.host, re.split(r"[/?#]", self.target[scheme.end() :], maxsplit=1)[0])

    @property
    def pairs(self) -> List[Tuple[str, str]]:
        """The decoded query in the order it came."""
        return parse_qsl(self.query_string, keep_blank_values=True)

    @property
    def query(self) -> Dict[str, str]:
        """The decoded query by name."""
        if self._query is None:
            self._query = dict(self.pairs)
        return self._query

    @property
    def segments(self) -> List[str]:
        """The decoded parts of the path."""
        return [unquote(part) for part in self.path.split("/")[1:]]

    def json_body(self) -> Any:
        """The body as JSON, parsed once; an empty body is an empty object.

        Raises:
            ValueError: The body is not JSON in UTF-8, or nested too deeply.
        """
        if self._json is None:
            try:
                self._json = json.loads(self.body.decode("utf-8")) if self.body else {}
            except RecursionError as error:
                raise ValueError("the body is nested too deeply") from error
        return self._json

    def contains(self, text: str) -> bool:
        """Whether ``text`` occurs in the target, the body or a value of a decoded log row."""
        if text in self.target or text.encode("utf-8") in self.body:
            return True
        return any(text in value for row in self.rows or () for value in row.values())


class Reply:
    """What goes back: a status, headers and a body; ``cut`` closes the connection unanswered."""

    __slots__ = ("status", "headers", "body", "delay", "cut", "hang")

    def __init__(
        self, status: int = 200, headers: Optional[Mapping[str, str]] = None, body: bytes = b""
    ) -> None:
        self.status = status
        self.headers: Dict[str, str] = dict(headers or {})
        self.body = body
        self.delay = 0.0
        self.cut = False
        self.hang = False


class ServiceError(Exception):
    """A refusal that is answered in the error shape of the protocol the request spoke.

    Args:
        status: The HTTP status.
        code: The error code in the body.
        message: The error message in the body.
        headers: Further response headers.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Optional[Mapping[str, str]] = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers: Dict[str, str] = dict(headers or {})


def path_parameters(template: str, segments: Sequence[str]) -> Optional[Dict[str, str]]:
    """The parts of a path that a template such as ``/a/{name}`` names; None if it does not fit."""
    parts = template.split("/")[1:]
    if len(parts) != len(segments):
        return None
    found: Dict[str, str] = {}
    for expected, actual in zip(parts, segments):
        if expected.startswith("{") and actual:
            found[expected[1:-1]] = actual
        elif expected != actual:
            return None
    return found


def json_bytes(value: Any) -> bytes:
    """``value`` as compact JSON in UTF-8; a lone surrogate is escaped instead of refused."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    """``value`` as a JSON reply."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    named["content-type"] = "application/json"
    return Reply(status, named, json_bytes(value))


def origin_form(target: str) -> str:
    """The path and query of a target; a client that takes the server for its proxy sends a URL.

    Source: RFC 9112 section 3.2.2 (absolute-form).
    """
    if target.startswith("/"):
        return target
    rest = target.partition("://")[2]
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"
