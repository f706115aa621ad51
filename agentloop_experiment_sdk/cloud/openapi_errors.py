"""What the AgentLoop client raises, told once as ``CloudError``.

The client loses facts on the way: the status of an answer that is not JSON, and whether a
time-out struck before or after the request was sent, which only the text of the error tells.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional, Tuple

from ..errors import CloudError
from ..lines import excerpt

_LONGEST_REASON = 600
# (text of the network error, code, retryable, ambiguous); the first match counts
_NETWORK: Tuple[Tuple[str, str, bool, bool], ...] = (
    ("CERTIFICATE_VERIFY_FAILED", "CertificateError", False, False),
    ("WRONG_VERSION_NUMBER", "TlsError", False, False),
    ("ConnectTimeoutError", "ConnectTimeout", True, False),
    ("Cannot connect to proxy", "ProxyError", True, False),
    ("NewConnectionError", "ConnectionError", True, False),
    ("NameResolutionError", "ConnectionError", True, False),
    ("SSLError", "TlsError", True, True),
    ("Read timed out", "ReadTimeout", True, True),
)
_REFUSED_KEYS = ("InvalidAccessKey", "InvalidSecurityToken", "SignatureDoesNotMatch", "Incomplete")
_THROTTLED = ("throttling", "toomanyrequests", "quotaexceed", "serverbusy", "serviceunavailable")


def translate(error: Exception, action: str, secrets: Iterable[Optional[str]]) -> CloudError:
    """The ``CloudError`` for what one call raised; no value of ``secrets`` is in its message."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        translated = _refused(error, status, action)
    else:
        translated = _unanswered(error, action)
    translated.message = mask(translated.message, secrets)
    translated.args = (translated.message,)
    return translated


def mask(text: str, secrets: Iterable[Optional[str]]) -> str:
    """``text`` without the secrets: a refused signature is answered with what was signed."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def invalid_answer(action: str, reason: str, request_id: Optional[str] = None) -> CloudError:
    """A 2xx answer that is not what the API promises; perhaps a gateway's page."""
    return CloudError(
        "AgentLoop {} answered something that is not its API: {}.".format(action, reason),
        code="InvalidAnswer",
        request_id=request_id,
        retryable=True,
        ambiguous=True,
    )


def remedy(error: CloudError, permission: str) -> str:
    """What a person should check after ``error``.

    Args:
        error: A translated error.
        permission: The RAM action that the call needs, such as ``agentloop:GetExperimentPlan``.
    """
    code = error.code or ""
    if code.startswith(_REFUSED_KEYS) or error.status == 401:
        return "Check the AccessKey id, its secret and, for temporary keys, the security token."
    if error.status == 403 or "Forbidden" in code or "NoPermission" in code:
        return "Check that the AccessKey belongs to the right account and may call {}.".format(
            permission
        )
    if error.status == 404:
        return "Check the names and ids, the region_id, and which account owns them."
    if error.status is None:
        return "Check region_id, agentloop_endpoint, the network and any HTTP(S)_PROXY setting."
    return "Try again later." if error.retryable else "Check the values that were sent."


def _refused(error: Any, status: int, action: str) -> CloudError:
    code = _text(error.code) or "HTTP{}".format(status)
    request_id = _text(getattr(error, "request_id", None))
    throttled = status == 429 or _is_throttling(error, code)
    message = "AgentLoop {} failed with HTTP {}, code {}: {} (request id {}).".format(
        action, status, code, _reason(error).rstrip("."), request_id or "unknown"
    )
    return CloudError(
        message,
        code=code,
        request_id=request_id,
        status=status,
        retryable=throttled or status >= 500 or status == 408,
        # a 5xx may come from a gateway that lost the server's answer
        ambiguous=status >= 500 and not throttled and status != 503,
        retry_after=_seconds(getattr(error, "retry_after", None)),
    )


def _unanswered(error: Any, action: str) -> CloudError:
    inner = getattr(error, "inner_exception", None) or error
    if type(inner).__name__ == "RetryError":
        return _network(str(getattr(inner, "message", inner)), action)
    if isinstance(inner, (RuntimeError, AttributeError)):
        return invalid_answer(action, _short(str(inner)))
    code = _text(getattr(inner, "code", None))
    return CloudError(
        "AgentLoop {} could not be sent: {}: {}.".format(
            action, type(inner).__name__, _short(_text(getattr(inner, "message", inner)) or "")
        ),
        code=code or "ClientError",
    )


def _network(text: str, action: str) -> CloudError:
    code, retryable, ambiguous = "ConnectionError", True, True
    for mark, name, may_retry, unsure in _NETWORK:
        if mark in text:
            code, retryable, ambiguous = name, may_retry, unsure
            break
    return CloudError(
        "AgentLoop {} got no answer ({}): {}.".format(action, code, _short(text)),
        code=code,
        retryable=retryable,
        ambiguous=ambiguous,
    )


def _is_throttling(error: Any, code: str) -> bool:
    if type(error).__name__ == "ThrottlingException":
        return True
    return code.lower().replace(".", "").startswith(_THROTTLED)


def _reason(error: Any) -> str:
    """What the server said; the client's own message repeats status and ids around it."""
    data = getattr(error, "data", None)
    data = data if isinstance(data, dict) else {}
    text = _text(data.get("Message")) or _text(data.get("message"))
    return _short(text or "the answer has no message")


def _text(value: Any) -> Optional[str]:
    """The client writes the text ``None`` where the answer had no such key."""
    text = "" if value is None else str(value).strip()
    return None if text in ("", "None") else text


def _short(text: str) -> str:
    return excerpt(text, _LONGEST_REASON)


def _seconds(milliseconds: Any) -> Optional[float]:
    return milliseconds / 1000.0 if isinstance(milliseconds, (int, float)) else None
