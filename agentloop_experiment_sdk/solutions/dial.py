"""Opening connections within a deadline: TCP, TLS, and CONNECT through a proxy."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from concurrent.futures import Future
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .deadline import Deadline, Interruption
from .faults import CONNECTION_ERROR, PROXY_ERROR, TLS_ERROR, ExchangeFault
from .proxies import Proxy
from .request import Origin

_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CONTEXT_VARIABLES = _CA_VARIABLES + ("SSL_CERT_DIR",)
# an address that does not answer must not use up the time of the ones behind it
_LONGEST_TRY = 10.0
_LONGEST_PROXY_HEAD = 16384


class TlsContexts:
    """TLS settings by the environment; building one takes milliseconds, so it is built once.

    ``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE`` and ``CURL_CA_BUNDLE`` (a file or a directory)
    replace the system's certificate authorities; if several are set, all are trusted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: Dict[Tuple[Optional[str], ...], Future[ssl.SSLContext]] = {}

    def get(self, environ: Mapping[str, str] = os.environ) -> ssl.SSLContext:
        """The context for the variables as they are now.

        Raises:
            ExchangeFault: A certificate file cannot be read.
        """
        key = tuple(map(environ.get, _CONTEXT_VARIABLES))
        with self._lock:
            future = self._contexts.get(key)
            first = future is None
            if future is None:
                future = self._contexts[key] = Future()
        if first:
            self._build_into(future, key)
        return future.result()

    def _build_into(self, future: Future[ssl.SSLContext], key: Tuple[Optional[str], ...]) -> None:
        try:
            future.set_result(_built([path for path in key[: len(_CA_VARIABLES)] if path]))
        except BaseException as error:
            # forgotten: the next call may find the file mended
            with self._lock:
                del self._contexts[key]
            future.set_exception(error)


def _built(authorities: List[str]) -> ssl.SSLContext:
    try:
        return _build_context(authorities)
    except OSError as error:
        message = "The certificate authorities in {} cannot be read: {}.".format(
            ", ".join(authorities) or "the system's store", error
        )
        raise ExchangeFault(TLS_ERROR, message) from error


def _build_context(authorities: List[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    for path in authorities:
        is_directory = os.path.isdir(path)
        context.load_verify_locations(
            cafile=None if is_directory else path, capath=path if is_directory else None
        )
    if not authorities:
        context.load_default_certs()
        _add_bundled(context)
    return context


def _add_bundled(context: ssl.SSLContext) -> None:
    """Some Python builds find no system store; certifi is often installed beside them."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath or context.cert_store_stats()["x509_ca"]:
        return
    try:
        import certifi
    except ImportError:
        return
    context.load_verify_locations(cafile=certifi.where())


def dial(
    origin: Origin,
    proxy: Optional[Proxy],
    contexts: TlsContexts,
    deadline: Deadline,
    interruption: Interruption,
) -> socket.socket:
    """A connected socket on which HTTP can be spoken to ``origin``.

    Raises:
        ExchangeFault: It could not be opened in time.
    """
    near = origin if proxy is None else proxy.origin
    if proxy and proxy.origin.scheme == origin.scheme == "https":
        message = "An https:// proxy cannot carry an https:// URL here; use an http:// proxy."
        raise ExchangeFault(PROXY_ERROR, message)
    sock = _connect(near, deadline, interruption)
    try:
        if near.scheme == "https":
            sock = _wrap(sock, near.host, contexts.get(), deadline, interruption)
        elif proxy and origin.scheme == "https":
            _tunnel(sock, origin, proxy, deadline)
            sock = _wrap(sock, origin.host, contexts.get(), deadline, interruption)
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(origin: Origin, deadline: Deadline, interruption: Interruption) -> socket.socket:
    # name resolution has no timeout; it is outside the deadline
    try:
        found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        message = "The host {} cannot be resolved: {}.".format(origin.host, error)
        raise ExchangeFault(CONNECTION_ERROR, message, retryable=True) from error
    last: Optional[OSError] = None
    for number, entry in enumerate(found):
        try:
            return _connect_to(entry, len(found) - number, deadline, interruption)
        except OSError as error:
            last = error
    interruption.check()
    deadline.left()
    message = "Cannot connect to {}: {}.".format(origin.authority, last)
    raise ExchangeFault(CONNECTION_ERROR, message, retryable=True) from last


def _connect_to(
    entry: Tuple[Any, ...], addresses_left: int, deadline: Deadline, interruption: Interruption
) -> socket.socket:
    family, kind, protocol, _, address = entry
    left = deadline.left()
    sock = socket.socket(family, kind, protocol)
    try:
        interruption.watch(sock)
        alone = addresses_left == 1
        sock.settimeout(left if alone else min(left / addresses_left, _LONGEST_TRY))
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def _wrap(
    sock: socket.socket,
    host: str,
    context: ssl.SSLContext,
    deadline: Deadline,
    interruption: Interruption,
) -> socket.socket:
    name = host.partition("%")[0]
    secure = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    try:
        interruption.watch(secure)
        secure.settimeout(deadline.left())
        secure.do_handshake()
    except OSError as error:
        secure.close()
        interruption.check()
        deadline.left()
        raise _tls_fault(host, error) from error
    except BaseException:
        secure.close()
        raise
    return secure


def _tls_fault(host: str, error: OSError) -> ExchangeFault:
    if isinstance(error, ssl.SSLCertVerificationError):
        message = (
            "The certificate of {} is not trusted: {}. Name your certificate authority's file in "
            "SSL_CERT_FILE.".format(host, error.verify_message)
        )
        return ExchangeFault(TLS_ERROR, message)
    # an alert is the server's decision; anything else is a connection that broke
    broken = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
    alert = isinstance(error, ssl.SSLError) and not isinstance(error, broken)
    message = "The TLS handshake with {} failed: {}.".format(host, error)
    return ExchangeFault(TLS_ERROR, message, retryable=not alert)


def _tunnel(sock: socket.socket, origin: Origin, proxy: Proxy, deadline: Deadline) -> None:
    """Ask the proxy for a tunnel to ``origin`` (RFC 9110 9.3.6)."""
    host = "[{}]".format(origin.host) if ":" in origin.host else origin.host
    target = "{}:{}".format(host, origin.port)
    lines = ["CONNECT {} HTTP/1.1".format(target), "Host: " + target]
    if proxy.authorization:
        lines.append("Proxy-Authorization: " + proxy.authorization)
    try:
        sock.settimeout(deadline.left())
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
        status = _proxy_status(_read_head(sock, deadline))
    except OSError as error:
        deadline.left()
        message = "The proxy {} broke off: {}.".format(proxy.origin.authority, error)
        raise ExchangeFault(PROXY_ERROR, message, retryable=True) from error
    if not status.startswith("2"):
        message = "The proxy {} refused the tunnel: {}.".format(
            proxy.origin.authority, status or "no HTTP answer"
        )
        raise ExchangeFault(PROXY_ERROR, message)


def _read_head(sock: socket.socket, deadline: Deadline) -> bytes:
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        sock.settimeout(deadline.left())
        # one byte at a time: what follows the head belongs to the tunnel
        octet = sock.recv(1)
        if not octet or len(head) > _LONGEST_PROXY_HEAD:
            raise ConnectionError("the connection ended within the answer to CONNECT")
        head += octet
    return bytes(head)


def _proxy_status(head: bytes) -> str:
    """``200 Connection established`` out of the answer's first line, "" if it is not HTTP."""
    protocol, _, status = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    return status.strip() if protocol.startswith("HTTP/") else ""
