"""Checks the signature of a request the way the two services do.

Sources: Alibaba Cloud OpenAPI signature V3 (ACS3-HMAC-SHA256); SLS request signature (``LOG``,
HMAC-SHA1) and SLS signature v4 (``SLS4-HMAC-SHA256``).
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import hmac
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Callable, Dict, Optional
from urllib.parse import quote, unquote

from .exchange import Request, ServiceError

MAX_CLOCK_SKEW = 15 * 60.0
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class AccessKey:
    """One pair of keys that the server accepts, and the token it demands with them, if any."""

    key_id: str
    secret: str
    security_token: Optional[str] = None


class Verifier:
    """Knows the accepted keys and refuses every request that none of them has signed.

    Args:
        now: The wall clock in seconds, to refuse requests more than 15 minutes off.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.keys: Dict[str, AccessKey] = {}
        self._now = now

    def check_openapi(self, request: Request) -> None:
        """Refuse an AgentLoop request whose ACS3-HMAC-SHA256 signature is not right."""
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        fields = dict(part.partition("=")[::2] for part in rest.split(","))
        if scheme != "ACS3-HMAC-SHA256" or not {"Credential", "SignedHeaders", "Signature"} <= set(
            fields
        ):
            raise ServiceError(
                400, "IncompleteSignature", "The request has no ACS3-HMAC-SHA256 signature."
            )
        key = self.keys.get(fields["Credential"])
        if key is None:
            raise ServiceError(
                404, "InvalidAccessKeyId.NotFound", "Specified access key is not found."
            )
        self._check_token(request, key, 403, "InvalidSecurityToken.Mismatch")
        self._check_time(
            _iso_seconds(request.headers.get("x-acs-date", "")), 400, "InvalidTimeStamp.Expired"
        )
        if not _equal(_acs3(request, fields["SignedHeaders"], key.secret), fields["Signature"]):
            raise ServiceError(
                400,
                "SignatureDoesNotMatch",
                "Specified signature is not matched with our calculation.",
            )

    def check_sls(self, request: Request) -> None:
        """Refuse an SLS request whose signature, version 1 or 4, is not right."""
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        if scheme == "SLS4-HMAC-SHA256":
            self._check_sls4(request, rest)
        elif scheme == "LOG" and ":" in rest:
            self._check_sls1(request, rest)
        else:
            raise ServiceError(401, "Unauthorized", "The request has no SLS signature.")

    def _check_sls1(self, request: Request, credential: str) -> None:
        key_id, _, signature = credential.partition(":")
        key = self._sls_key(request, key_id)
        self._check_time(_http_seconds(request.headers.get("date", "")), 400, "RequestTimeExpired")
        md5 = request.headers.get("content-md5", "")
        if request.body and hashlib.md5(request.body).hexdigest().upper() != md5.upper():
            raise ServiceError(400, "PostBodyInvalid", "Content-MD5 is not that of the body.")
        if not _equal(_sls1(request, key.secret), signature):
            raise ServiceError(401, "SignatureNotMatch", "signature {} not match".format(signature))

    def _check_sls4(self, request: Request, credential: str) -> None:
        fields = dict(part.strip().partition("=")[::2] for part in credential.split(","))
        scope = fields.get("Credential", "").split("/")
        if len(scope) != 5 or scope[3:] != ["sls", "aliyun_v4_request"]:
            raise ServiceError(401, "SignatureNotMatch", "The credential scope is malformed.")
        key = self._sls_key(request, scope[0])
        stamp = request.headers.get("x-log-date", "")
        self._check_time(_iso_seconds(stamp), 400, "RequestTimeExpired")
        digest = hashlib.sha256(request.body).hexdigest() if request.body else _EMPTY_SHA256
        if digest != request.headers.get("x-log-content-sha256", ""):
            raise ServiceError(400, "PostBodyInvalid", "x-log-content-sha256 is not the body's.")
        signature = fields.get("Signature", "")
        # a client may sign the path as it was given or as it is sent
        paths = (unquote(request.path), request.path)
        if not any(
            _equal(_sls4(request, path, key.secret, scope[1], scope[2]), signature)
            for path in paths
        ):
            raise ServiceError(401, "SignatureNotMatch", "signature {} not match".format(signature))

    def _sls_key(self, request: Request, key_id: str) -> AccessKey:
        key = self.keys.get(key_id)
        if key is None:
            raise ServiceError(401, "Unauthorized", "AccessKeyId not found: {}".format(key_id))
        self._check_token(request, key, 401, "Unauthorized")
        return key

    def _check_token(self, request: Request, key: AccessKey, status: int, code: str) -> None:
        sent = request.headers.get("x-acs-security-token")
        if key.security_token is not None and sent != key.security_token:
            raise ServiceError(status, code, "The security token is missing or not the key's.")

    def _check_time(self, stamp: Optional[float], status: int, code: str) -> None:
        if stamp is None or abs(self._now() - stamp) > MAX_CLOCK_SKEW:
            raise ServiceError(
                status, code, "The request's time is missing or more than 15 minutes off."
            )


def _acs3(request: Request, signed_headers: str, secret: str) -> str:
    digest = hashlib.sha256(request.body).hexdigest()
    if digest != request.headers.get("x-acs-content-sha256", ""):
        raise ServiceError(400, "InvalidContentSha256", "x-acs-content-sha256 is not the body's.")
    query = "&".join(
        "{}={}".format(name, quote(value, safe="~")) for name, value in sorted(request.pairs)
    )
    headers = "".join(
        "{}:{}\n".format(name, request.headers.get(name, "").strip())
        for name in signed_headers.split(";")
    )
    canonical = "\n".join((request.method, request.path, query, headers, signed_headers, digest))
    text = "ACS3-HMAC-SHA256\n" + hashlib.sha256(_bytes(canonical)).hexdigest()
    return hmac.new(_bytes(secret), _bytes(text), "sha256").hexdigest()


def _sls1(request: Request, secret: str) -> str:
    headers = request.headers
    signed = "".join(
        "{}:{}\n".format(name, headers[name])
        for name in sorted(headers)
        if _is_sls_header(name) and name != "x-log-date"
    )
    resource = unquote(request.path)
    if request.query_string:
        resource += "?" + "&".join("{}={}".format(*pair) for pair in sorted(request.pairs))
    text = "\n".join(
        (
            request.method,
            headers.get("content-md5", ""),
            headers.get("content-type", ""),
            headers.get("date", ""),
            signed + resource,
        )
    )
    return base64.b64encode(hmac.new(_bytes(secret), _bytes(text), "sha1").digest()).decode("ascii")


def _sls4(request: Request, path: str, secret: str, date: str, region: str) -> str:
    headers = request.headers
    names = sorted(
        name for name in headers if name in ("content-type", "host") or _is_sls_header(name)
    )
    query = "&".join(
        name + ("=" + quote(value, safe="~") if value else "")
        for name, value in sorted(request.pairs)
    )
    canonical = "\n".join(
        (
            request.method,
            path,
            query,
            "".join("{}:{}\n".format(name, headers[name].strip()) for name in names),
            ";".join(names),
            headers.get("x-log-content-sha256", ""),
        )
    )
    text = "\n".join(
        (
            "SLS4-HMAC-SHA256",
            headers.get("x-log-date", ""),
            "{}/{}/sls/aliyun_v4_request".format(date, region),
            hashlib.sha256(_bytes(canonical)).hexdigest(),
        )
    )
    return hmac.new(_sls4_key(secret, date, region), _bytes(text), "sha256").hexdigest()


@lru_cache(maxsize=8)
def _sls4_key(secret: str, date: str, region: str) -> bytes:
    key = _bytes("aliyun_v4" + secret)
    for part in (date, region, "sls", "aliyun_v4_request"):
        key = hmac.new(key, _bytes(part), "sha256").digest()
    return key


def _is_sls_header(name: str) -> bool:
    return name.startswith("x-acs-") or (
        name.startswith("x-log-") and not name.startswith("x-log-meta-")
    )


def _equal(signature: str, sent: str) -> bool:
    return hmac.compare_digest(_bytes(signature), _bytes(sent))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _iso_seconds(text: str) -> Optional[float]:
    plain = text.replace("-", "").replace(":", "")
    try:
        return float(calendar.timegm(time.strptime(plain, "%Y%m%dT%H%M%SZ")))
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _http_seconds(text: str) -> Optional[float]:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError):
        return None
