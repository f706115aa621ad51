"""Where the two services are and who asks: endpoints, region and credentials as one value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Protocol, Tuple
from urllib.parse import urlsplit

from ..errors import ConfigurationError, CredentialsError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(%25[A-Za-z0-9._~-]+)?")
_LOOPBACK = re.compile(r"(.*\.)?localhost|127(\.[0-9]{1,3}){3}|::1|::ffff:127(\.[0-9]{1,3}){3}")


class Keys(NamedTuple):
    """The values of one set of keys; "" stands for what there is not."""

    key_id: str
    secret: str
    token: str


class Credentials(Protocol):
    """One set of keys, in the shape the official clients ask for."""

    def get_access_key_id(self) -> str:
        """The AccessKey id."""
        ...

    def get_access_key_secret(self) -> str:
        """The AccessKey secret."""
        ...

    def get_security_token(self) -> Optional[str]:
        """The STS token that belongs to the pair, or None."""
        ...

    def get_provider_name(self) -> str:
        """A short name of the source; AgentLoop is told it in a header."""
        ...


class CredentialsProvider(Protocol):
    """Answers the keys that are valid now; both clients ask before each signature."""

    def get_credentials(self) -> Credentials:
        """The present keys.

        Raises:
            CredentialsError: The source does not yield a usable pair.
        """
        ...

    def get_provider_name(self) -> str:
        """A short name of the source."""
        ...


@dataclass(frozen=True)
class AccessKey:
    """A pair of keys, with its token if it has one, that stays as it is: its own provider.

    Args:
        access_key_id: The AccessKey id.
        access_key_secret: The AccessKey secret; never shown by ``repr``.
        security_token: The STS token of temporary keys; never shown by ``repr``.
        source: Where the keys come from, in words for an error message.
    """

    access_key_id: str = field(repr=False)
    access_key_secret: str = field(repr=False)
    security_token: Optional[str] = field(default=None, repr=False)
    source: str = "given keys"

    def get_credentials(self) -> AccessKey:
        """These keys."""
        return self

    def get_access_key_id(self) -> str:
        """The AccessKey id."""
        return self.access_key_id

    def get_access_key_secret(self) -> str:
        """The AccessKey secret."""
        return self.access_key_secret

    def get_security_token(self) -> Optional[str]:
        """The STS token, or None."""
        return self.security_token

    def get_provider_name(self) -> str:
        """``static_sts`` or ``static_ak``, as the official library names them."""
        return "static_sts" if self.security_token else "static_ak"


def keys_of(credentials: Credentials) -> Keys:
    """The keys of one moment; rotation between three questions elsewhere would mix them."""
    return Keys(
        credentials.get_access_key_id() or "",
        credentials.get_access_key_secret() or "",
        credentials.get_security_token() or "",
    )


def access_key(
    values: Tuple[Optional[str], Optional[str], Optional[str]],
    names: Tuple[str, str, str],
    source: str,
) -> Optional[AccessKey]:
    """The pair (and token) in ``values``, None when the pair is absent.

    Raises:
        CredentialsError: Only half of the pair is there, or a value cannot be sent in a header.
    """
    key_id, secret, token = (str(value or "").strip() for value in values)
    if not key_id and not secret:
        return None
    if not key_id or not secret:
        present, absent = (names[0], names[1]) if key_id else (names[1], names[0])
        raise CredentialsError(
            "Half a pair of keys: {} is set but {} is not ({}). Set both or neither.".format(
                present, absent, source
            )
        )
    for name, value in zip(names, (key_id, secret, token)):
        if any(not "!" <= character <= "~" for character in value):
            raise CredentialsError(
                "{} contains a space or a character that no key has ({}). Copy it again.".format(
                    name, source
                )
            )
    return AccessKey(key_id, secret, token or None, source)


@dataclass(frozen=True)
class Endpoint:
    """A service address: scheme, host and, where one was given, a port."""

    scheme: str
    host: str
    port: Optional[int] = None

    @property
    def netloc(self) -> str:
        """``host`` or ``host:port``, an IPv6 address in brackets (RFC 3986 section 3.2.2)."""
        host = "[{}]".format(self.host) if ":" in self.host else self.host
        return host if self.port is None else "{}:{}".format(host, self.port)

    @property
    def url(self) -> str:
        """``scheme://host[:port]``."""
        return "{}://{}".format(self.scheme, self.netloc)

    @property
    def is_loopback(self) -> bool:
        """Whether the address is this machine, which no proxy can reach for us."""
        return _LOOPBACK.fullmatch(self.host.lower()) is not None


def parse_endpoint(text: str, name: str = "endpoint") -> Endpoint:
    """Reads ``host``, ``host:port``, ``http://…`` or ``https://…``; https unless it says otherwise.

    Args:
        text: The endpoint as the user wrote it. A path other than ``/`` is an error.
        name: The setting it came from, for the error message.

    Raises:
        ConfigurationError: The text names no usable address.
    """
    if not isinstance(text, str):
        raise _malformed(name, text, "it must be text")
    if any(character.isspace() or not character.isprintable() for character in text.strip()):
        # urlsplit would drop some of them, and ask another host than was written
        raise _malformed(name, text, "it holds a blank or a control character")
    scheme, separator, rest = text.strip().rpartition("://")
    scheme = scheme.lower() if separator else "https"
    if scheme not in ("http", "https"):
        raise _malformed(name, text, "only http:// and https:// are supported")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = "[{}]".format(rest.rstrip("/"))  # an IPv6 address on its own
    return _split(scheme, rest, name, text)


def _split(scheme: str, rest: str, name: str, text: str) -> Endpoint:
    try:
        parts = urlsplit("{}://{}".format(scheme, rest))
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _malformed(name, text, str(error)) from error
    if "@" in parts.netloc:
        # the text is not repeated: what stands before the @ may be a password
        raise ConfigurationError("{} must not contain a user name or password.".format(name))
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _malformed(name, text, "it must end after the host or port")
    endpoint = Endpoint(scheme, host, port)
    known = (_IPV6 if ":" in host else _HOST).fullmatch(host)
    # what urlsplit drops, such as text after the brackets, must not be dropped in silence
    if not known or port == 0 or endpoint.netloc != parts.netloc.lower():
        raise _malformed(name, text, "it names no host")
    return endpoint


def _malformed(name: str, text: object, reason: str) -> ConfigurationError:
    return ConfigurationError(
        "{} {!r} cannot be used: {}. Write a host, host:port, or a URL such as "
        "https://agentloop.example.com.".format(name, text, reason)
    )


@dataclass(frozen=True)
class CloudAccess:
    """All that a client of either service needs.

    Args:
        region_id: The region, such as ``cn-hangzhou``.
        agentloop_endpoint: As the user wrote it; None is ``agentloop.<region>.aliyuncs.com``.
        sls_endpoint: As the user wrote it; None is ``<region>.log.aliyuncs.com``.
        credentials: The one provider that both clients share.
    """

    region_id: str
    agentloop_endpoint: Optional[str]
    sls_endpoint: Optional[str]
    credentials: CredentialsProvider = field(repr=False)

    @property
    def agentloop(self) -> Endpoint:
        """Where AgentLoop answers."""
        default = "agentloop.{}.aliyuncs.com".format(self.region_id)
        return parse_endpoint(self.agentloop_endpoint or default, "agentloop_endpoint")

    @property
    def sls(self) -> Endpoint:
        """Where SLS answers."""
        default = "{}.log.aliyuncs.com".format(self.region_id)
        return parse_endpoint(self.sls_endpoint or default, "sls_endpoint")
