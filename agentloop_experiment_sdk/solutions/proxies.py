"""Which proxy the environment names for an origin.

The variables and their meaning are those of curl and of ``urllib``: ``http_proxy``,
``https_proxy``, ``all_proxy`` (lower case first, then upper case) and ``no_proxy``.
"""

from __future__ import annotations

import os
from typing import Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urlsplit

from .faults import PROXY_ERROR, ExchangeFault
from .redact import redact_url
from .request import Origin, basic_authorization, origin_of

_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_NAMES = _VARIABLES + tuple(name.upper() for name in _VARIABLES) + ("REQUEST_METHOD",)

Snapshot = Tuple[Optional[str], ...]


class Proxy(NamedTuple):
    """A proxy server, and the Proxy-Authorization value it needs ("" for none)."""

    origin: Origin
    authorization: str = ""


def snapshot(environ: Mapping[str, str] = os.environ) -> Snapshot:
    """The proxy variables as they are now; compare it to see whether an answer is still valid."""
    return tuple(map(environ.get, _NAMES))


def proxy_for(origin: Origin, variables: Snapshot) -> Optional[Proxy]:
    """The proxy for ``origin`` by the ``variables`` of a snapshot, or None to connect directly.

    Raises:
        ExchangeFault: The proxy's URL cannot be used.
    """
    settings = _settings(variables)
    url = settings.get(origin.scheme + "_proxy") or settings.get("all_proxy")
    if not url or bypassed(origin, settings.get("no_proxy", "")):
        return None
    return _parse(url if "://" in url else "http://" + url)


def _settings(variables: Snapshot) -> Dict[str, str]:
    found = {name: value for name, value in zip(_NAMES, variables) if value}
    if "REQUEST_METHOD" in found:
        # in a CGI process HTTP_PROXY is the client's "Proxy:" header (httpoxy, CVE-2016-5385)
        found.pop("HTTP_PROXY", None)
    return {name: found.get(name) or found.get(name.upper(), "") for name in _VARIABLES}


def _parse(url: str) -> Proxy:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ExchangeFault(
            PROXY_ERROR,
            "The proxy {} is of a kind that is not supported; use an http:// proxy or list the "
            "host in NO_PROXY.".format(redact_url(url)),
        )
    try:
        origin = origin_of(url)
    except ValueError as error:
        message = "The proxy URL {} cannot be read.".format(redact_url(url))
        raise ExchangeFault(PROXY_ERROR, message) from error
    credentials = parts.username is not None
    return Proxy(origin, basic_authorization(parts.username, parts.password) if credentials else "")


def bypassed(origin: Origin, no_proxy: str) -> bool:
    """Whether ``no_proxy`` lists the host: by name, domain, ``host:port``, address or CIDR."""
    entries = no_proxy.replace(",", " ").lower().split()
    return any(_matches(origin, entry) for entry in entries)


def _matches(origin: Origin, entry: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(origin.host, entry)
    host, port = _split_port(entry)
    if port and port != str(origin.port):
        return False
    domain = host.lstrip("*").lstrip(".")
    return bool(domain) and (origin.host == domain or origin.host.endswith("." + domain))


def _split_port(entry: str) -> Tuple[str, str]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.lstrip(":")
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host and port.isdigit() else (entry, "")


def _in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
