"""Keep secrets out of everything that is stored or logged.

A value is masked because of its *name*: a header, query parameter, command-line flag or body key
that looks like a credential. Values that were masked once can also be scrubbed from free text.
"""

from __future__ import annotations

import functools
import re
from collections import abc
from typing import Any, Dict, Iterable, List, Mapping, Optional
from urllib.parse import unquote, unquote_plus, urlsplit

MASK = "***"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MARKERS = re.compile(
    r"authorization|cookie|api_?key|secret|passw(?:or)?d|passphrase|credential|signature"
    r"|(?:access|private|subscription|auth|app|sign|encryption|license|account)key"
)
_WHOLE = frozenset(("auth", "xauth", "pwd", "jwt", "sig", "bearer"))
# words that make "token" a number of tokens rather than a credential
_COUNTERS = frozenset(
    ("max", "min", "num", "count", "total", "limit", "per")
    + ("prompt", "completion", "input", "output", "remaining")
)
_URL = re.compile(r"\bhttps?://[^\s'\"<>]+", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([A-Za-z0-9_.\-]+)=(.+)", re.DOTALL)
_HEADER = re.compile(r"([A-Za-z0-9_\-]+)\s*:(.+)", re.DOTALL)
_HEADER_FLAGS = frozenset(("-H", "--header", "--headers"))
_USER_FLAGS = frozenset(("-u", "--user", "--proxy-user"))
# a digit is demanded, or prose such as "basic understanding" would be masked
_SCHEME = re.compile(
    r"\b(Bearer|Basic|Digest|Token)(\s+)(?=[^\s]*[0-9])[A-Za-z0-9._~+/=\-]{8,}", re.IGNORECASE
)
# "x-api-key: abc", 'api_key': 'abc', password=abc; the quote tells a value from prose
_NAMED = re.compile(
    r"""(?<![\w-])(['"]?)([A-Za-z][\w-]*)\1(\s*[:=]\s*)(['"]?)([^\s'",;&)}\]]{6,})"""
)
_SEPARATORS = re.compile(r"[;=\s]+")
_SCHEMES = frozenset(("Bearer", "bearer", "Digest", "digest", "Negotiate"))
_SHORTEST_SCRUBBED = 6


@functools.lru_cache(maxsize=2048)
def is_secret_name(name: str) -> bool:
    """Whether a header, parameter, flag or key of this name holds a credential."""
    words = [word.lower() for word in _WORDS.findall(str(name))]
    joined = "".join(words)
    if _MARKERS.search(joined) or joined in _WHOLE:
        return True
    names_token = "token" in words or joined.endswith("token")
    return names_token and not _COUNTERS.intersection(words)


def redact_headers(headers: Mapping[str, Any]) -> Dict[str, str]:
    """A copy of ``headers`` with the values of secret-looking names masked."""
    return {
        str(name): MASK if is_secret_name(name) else redact_text(str(value))
        for name, value in headers.items()
    }


def redact_params(params: Mapping[str, Any]) -> Dict[str, Any]:
    """A copy of query parameters with the values of secret-looking names masked."""
    return {name: MASK if _secret_parameter(name) else value for name, value in params.items()}


def redact_body(value: Any, hidden: Optional[List[str]] = None) -> Any:
    """A JSON-like body with text under secret-looking keys masked, at any depth.

    Only text is masked: a number under such a name is a count or a flag. What holds no secret is
    returned as it is, uncopied. What was masked is appended to ``hidden``.
    """
    if isinstance(value, abc.Mapping):
        masked = {key: _redact_item(key, item, hidden) for key, item in value.items()}
        return masked if any(masked[key] is not value[key] for key in masked) else value
    if isinstance(value, (list, tuple)):
        items = [redact_body(item, hidden) for item in value]
        return items if any(new is not old for new, old in zip(items, value)) else value
    return value


def _redact_item(key: Any, value: Any, hidden: Optional[List[str]]) -> Any:
    if isinstance(value, (str, bytes)) and isinstance(key, str) and is_secret_name(key):
        if hidden is not None and isinstance(value, str):
            hidden.append(value)
        return MASK
    return redact_body(value, hidden)


def redact_url(url: str) -> str:
    """``url`` with userinfo and the values of secret-looking query parameters masked."""
    head, mark, tail = url.partition("?")
    query, hash_mark, fragment = tail.partition("#")
    scheme, slashes, rest = head.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        rest = MASK + "@" + authority.rpartition("@")[2] + slash + path
    pairs = [_redact_pair(pair) for pair in query.split("&")]
    return scheme + slashes + rest + mark + "&".join(pairs) + hash_mark + fragment


def _redact_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return name + equals + MASK if value and _secret_parameter(unquote_plus(name)) else pair


def _secret_parameter(name: Any) -> bool:
    # a parameter named just "key" is how several model services take their API key
    return str(name).lower() == "key" or is_secret_name(name)


def redact_argv(argv: Iterable[Any]) -> List[str]:
    """A command line with the values of secret-looking flags and assignments masked.

    Covers ``--api-key VALUE``, ``--api-key=VALUE``, ``API_KEY=VALUE``, ``-H 'Authorization: …'``,
    ``-u name:password`` and URLs.
    """
    shown: List[str] = []
    previous = ""
    for argument in argv:
        text = str(argument)
        shown.append(_redact_argument(text, previous))
        previous = text
    return shown


def _redact_argument(text: str, previous: str) -> str:
    if _is_secret_flag(previous) and not text.startswith("--"):
        return MASK
    if previous in _USER_FLAGS and ":" in text:
        return text.partition(":")[0] + ":" + MASK
    # a prompt may well begin with "Token: …", so only a flag makes such a text a header
    header = _HEADER.fullmatch(text) if previous in _HEADER_FLAGS else None
    if header and is_secret_name(header.group(1)):
        return header.group(1) + ": " + MASK
    assignment = _ASSIGNMENT.fullmatch(text) if "=" in text else None
    if assignment and is_secret_name(assignment.group(1)):
        return assignment.group(1) + "=" + MASK
    return redact_text(text)


def _is_secret_flag(text: str) -> bool:
    named = text.startswith("-") and "=" not in text and not text.startswith("--no-")
    return named and is_secret_name(text)


def secret_values(
    headers: Optional[Mapping[str, Any]] = None,
    params: Optional[Mapping[str, Any]] = None,
    url: str = "",
    hidden: Iterable[str] = (),
) -> List[str]:
    """The secrets that a request carries, longest first, for ``redact_text``.

    ``hidden`` are texts that were masked in its body.
    """
    found = [str(value) for name, value in (headers or {}).items() if is_secret_name(name)]
    found += [str(value) for name, value in (params or {}).items() if _secret_parameter(name)]
    found += _url_secrets(url)
    found += hidden
    parts = [part for value in found for part in [value, *_SEPARATORS.split(value)]]
    long_enough = {part for part in parts if len(part) >= _SHORTEST_SCRUBBED}
    long_enough.difference_update(_SCHEMES)
    return sorted(long_enough, key=len, reverse=True)


def _url_secrets(url: str) -> List[str]:
    if "@" not in url and "?" not in url:
        return []
    try:
        parts = urlsplit(url)
        pairs = [pair.partition("=") for pair in parts.query.split("&")]
        found = [v for name, _, v in pairs if _secret_parameter(unquote_plus(name))]
        found += [parts.password] if parts.password else []
    except ValueError:
        return []
    return found + [unquote(value) for value in found]


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Free text (an error message, an error body) without ``secrets`` and what looks like one.

    Masks the given values, credentials behind ``Bearer`` and the like, and those inside URLs.
    """
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    if "://" in text:
        text = _URL.sub(lambda match: redact_url(match.group(0)), text)
    return _SCHEME.sub(r"\1\2" + MASK, text) if " " in text else text


def redact_error(text: str, secrets: Iterable[str] = ()) -> str:
    """The text of an error, without what ``redact_text`` masks and values behind secret names.

    A value without quotes is masked only if it has a digit: ``token: expected`` is prose.
    """
    return _NAMED.sub(_redact_named, redact_text(text, secrets))


def _redact_named(match: re.Match[str]) -> str:
    before, name, sign, quote, value = match.groups()
    told = bool(quote) or any(map(str.isdigit, value))
    if not told or value in _SCHEMES or not is_secret_name(name):
        return match.group(0)
    return before + name + before + sign + quote + MASK
