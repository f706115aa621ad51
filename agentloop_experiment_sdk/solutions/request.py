"""From an ``HttpRequestSpec`` to what goes on the wire: URL, headers, body, redirects.

Sources: RFC 3986 and 3987 (URLs), RFC 9110 (methods, headers, redirects), WHATWG URL (forms).
"""

from __future__ import annotations

import base64
import functools
import re
from collections import abc
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote, quote_plus, unquote_to_bytes, urljoin, urlsplit

from .._version import __version__
from ..errors import ConfigurationError
from ..jsontext import clean_text, dumps, sls_text, to_jsonable
from ..models import HttpRequestSpec
from .redact import is_secret_name, redact_body, redact_params, redact_url

IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
USER_AGENT = "agentloop-experiment-sdk/" + __version__

_BODY_METHODS = frozenset(("POST", "PUT", "PATCH"))
_DEFAULT_PORTS = {"http": 80, "https": 443}
# what frames the message is decided here, whatever the caller wrote
_FRAMING = frozenset(("content-length", "transfer-encoding"))
_BODY_HEADERS = frozenset(("content-type", "content-encoding", "content-language"))
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE = re.compile(r"[\x00\r\n]")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_ASCII = re.compile(r"[^\x00-\x7f]+")
_PATH_SAFE = "!$&'()*+,;=:@/%~[]"
_QUERY_SAFE = _PATH_SAFE + "?"


class Origin(NamedTuple):
    """Scheme, host (IDNA, no brackets) and port: what a connection is made to."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """``host`` or ``host:port`` as a Host header has it (RFC 9110 7.2)."""
        host = self.host.partition("%")[0]
        host = "[{}]".format(host) if ":" in host else host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else "%s:%d" % (host, self.port)


@dataclass(frozen=True)
class WireRequest:
    """A request ready to be sent.

    Attributes:
        method: Upper case.
        origin: Where it goes.
        target: Path and query, percent-encoded.
        headers: Without Host and Content-Length, which ``head`` adds.
        body: None when there is none.
    """

    method: str
    origin: Origin
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: Optional[bytes] = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The whole URL; userinfo is never part of it."""
        return "{}://{}{}".format(self.origin.scheme, self.origin.authority, self.target)

    def head(self, absolute: bool = False, extra: Optional[Mapping[str, str]] = None) -> bytes:
        """The request line and headers as bytes; ``absolute`` is the form for proxies."""
        lines = ["{} {} HTTP/1.1".format(self.method, self.url if absolute else self.target)]
        if not any(name.lower() == "host" for name in self.headers):
            lines.append("Host: " + self.origin.authority)
        lines += ["{}: {}".format(name, value) for name, value in self.headers.items()]
        lines += ["{}: {}".format(name, value) for name, value in (extra or {}).items()]
        if self.body is not None or self.method in _BODY_METHODS:
            lines.append("Content-Length: %d" % len(self.body or b""))
        return _header_bytes("\r\n".join(lines) + "\r\n\r\n")


def _header_bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return clean_text(text).encode("utf-8")


def prepare(spec: HttpRequestSpec) -> WireRequest:
    """The wire form of ``spec``.

    Raises:
        ConfigurationError: A header, body, parameter or host cannot be sent.
    """
    headers = checked_headers(spec.headers)
    body, content_type = encode_body(spec)
    origin, target, authorization = _split_url(spec.url)
    target = _with_params(target, checked_params(spec.params))
    defaults = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": USER_AGENT}
    if content_type:
        defaults["Content-Type"] = content_type
    if authorization:
        defaults["Authorization"] = authorization
    given = {name.lower() for name in headers}
    added = {name: value for name, value in defaults.items() if name.lower() not in given}
    return WireRequest(spec.method, origin, target, {**added, **headers}, body)


def checked_headers(headers: Optional[Mapping[str, Any]]) -> Dict[str, str]:
    """Headers as text, without those that frame the message.

    Raises:
        ConfigurationError: A name or value is not allowed in HTTP (RFC 9110 5.1, 5.5).
    """
    if headers is not None and not isinstance(headers, abc.Mapping):
        raise ConfigurationError("headers must be a mapping of names to values.")
    checked = {}
    for name, value in (headers or {}).items():
        text = _header_text(name, value)
        if name.lower() not in _FRAMING:
            checked[str(name)] = text
    return checked


def _header_text(name: Any, value: Any) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise ConfigurationError("Header name {!r} is not allowed in HTTP.".format(name))
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigurationError(
            "Header {} needs a text value, not {}; leave it out if it has none.".format(
                name, type(value).__name__
            )
        )
    text = str(value).strip()
    if _BAD_VALUE.search(text):
        raise ConfigurationError("Header {} has a line break or NUL in its value.".format(name))
    return text


def encode_body(spec: HttpRequestSpec) -> Tuple[Optional[bytes], str]:
    """The body's bytes (None: no body) and the content type they have by default.

    NaN becomes null, so the JSON is always strict (RFC 8259 section 6).
    """
    if spec.json is not None:
        return dumps(spec.json).encode("utf-8"), "application/json"
    data = spec.data
    if data is None:
        return None, ""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data), "application/octet-stream"
    if isinstance(data, str):
        return clean_text(data).encode("utf-8"), "text/plain; charset=utf-8"
    if isinstance(data, abc.Mapping):
        pairs = ["=".join(map(quote_plus, pair)) for pair in _pairs(data)]
        return "&".join(pairs).encode("ascii"), "application/x-www-form-urlencoded"
    raise ConfigurationError(
        "data must be str, bytes or a mapping (sent as a form), not {}.".format(type(data).__name__)
    )


def checked_params(params: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
    """``params`` or an empty mapping.

    Raises:
        ConfigurationError: It is not a mapping.
    """
    if params is not None and not isinstance(params, abc.Mapping):
        raise ConfigurationError("params must be a mapping of names to values.")
    return params or {}


def _pairs(mapping: Mapping[Any, Any]) -> List[Tuple[str, str]]:
    """Name-value pairs of a query or form: a list repeats its name, None is left out."""
    pairs = []
    for name, value in mapping.items():
        values = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
        pairs += [(clean_text(str(name)), sls_text(item)) for item in values if item is not None]
    return pairs


def _with_params(target: str, params: Mapping[str, Any]) -> str:
    added = "&".join("=".join(quote(part, safe="") for part in pair) for pair in _pairs(params))
    if not added:
        return target
    mark = "?" if "?" not in target else "" if target.endswith(("?", "&")) else "&"
    return target + mark + added


@functools.lru_cache(maxsize=256)
def _split_url(url: str) -> Tuple[Origin, str, str]:
    """Origin, target and the Authorization header that the URL's userinfo asks for."""
    parts = urlsplit(clean_text(url))
    target = encode_component(parts.path or "/", _PATH_SAFE)
    if parts.query:
        target += "?" + encode_component(parts.query, _QUERY_SAFE)
    authorization = ""
    if "@" in parts.netloc:
        authorization = basic_authorization(parts.username, parts.password)
    return origin_of(url), target, authorization


def encode_component(text: str, safe: str) -> str:
    """``text`` percent-encoded as UTF-8; what is encoded already stays, a stray % is encoded."""
    return quote(_STRAY_PERCENT.sub("%25", text), safe=safe)


def basic_authorization(username: Optional[str], password: Optional[str]) -> str:
    """The value of an Authorization header for a URL's percent-encoded userinfo (RFC 7617)."""
    pair = unquote_to_bytes(username or "") + b":" + unquote_to_bytes(password or "")
    return "Basic " + base64.b64encode(pair).decode("ascii")


def origin_of(url: str) -> Origin:
    """The origin of an http or https URL.

    Raises:
        ConfigurationError: It has another scheme, no host, or a host or port that cannot be used.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").replace("%25", "%")
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except (ValueError, KeyError) as error:
        raise ConfigurationError(
            "The URL {} cannot be used.".format(redact_url(str(url)))
        ) from error
    if not host or re.search(r"[\s\x00-\x20/\\?#@]", host):
        raise ConfigurationError("The URL {} names no usable host.".format(redact_url(url)))
    return Origin(parts.scheme, host, port)


def location_text(header: str) -> str:
    """The URL of a Location header, of which each character is a byte.

    RFC 9110 wants ASCII, browsers bear with more: UTF-8 is read, bytes that are none stay bytes.
    """
    try:
        return header.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return _NO_ASCII.sub(lambda byte: quote(byte.group(), encoding="latin-1"), header)


def redirected(request: WireRequest, status: int, location: str) -> WireRequest:
    """The request that follows a redirect to ``location`` (RFC 9110 15.4, Fetch 4.4).

    303 turns everything but HEAD into GET, 301 and 302 turn POST into GET; then the body goes.
    To another origin no credential is carried: neither Authorization and Cookie nor any other
    header that looks like one.

    Raises:
        ValueError: The location is no http or https URL.
    """
    url = urljoin(request.url, clean_text(location))
    origin, target, _ = _split_url(url)
    headers = dict(request.headers)
    method, body = request.method, request.body
    becomes_get = status == 303 and method != "HEAD" or status in (301, 302) and method == "POST"
    if becomes_get:
        method, body = "GET", None
        headers = {k: v for k, v in headers.items() if k.lower() not in _BODY_HEADERS}
    if origin != request.origin:
        headers = {k: v for k, v in headers.items() if not _stays_home(k)}
    return replace(request, method=method, body=body, origin=origin, target=target, headers=headers)


def _stays_home(name: str) -> bool:
    return name.lower() in ("host", "origin", "referer") or is_secret_name(name)


def asked(spec: HttpRequestSpec, hidden: Optional[List[str]] = None) -> Any:
    """What was asked, redacted: the body, or the parameters without one; None without both.

    What was masked in a body is appended to ``hidden``.
    """
    if spec.json is not None:
        return redact_body(to_jsonable(spec.json), hidden)
    if isinstance(spec.data, abc.Mapping):
        return redact_body(to_jsonable(spec.data), hidden)
    if spec.data is not None:
        return bytes(spec.data) if isinstance(spec.data, bytearray) else spec.data
    params = to_jsonable(spec.params)
    return redact_params(params) if params and isinstance(params, abc.Mapping) else None
