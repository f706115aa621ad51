"""What an agent that is asked too much says: an HTTP status, and how long to leave it alone."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Optional


def retry_after(value: Optional[str], now: Callable[[], float] = time.time) -> Optional[float]:
    """The seconds that a Retry-After header asks for, or None (RFC 9110 10.2.3)."""
    text = (value or "").strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return float(text)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def refusal_of(error: BaseException) -> Dict[str, Any]:
    """``status_code`` and ``retry_after`` of an exception that carries them, for ``meta``.

    The clients of OpenAI and Anthropic, httpx, requests, aiohttp and urllib each have their own
    names for them.
    """
    facts = {"status_code": _asked(_status_of, error), "retry_after": _asked(_pause_of, error)}
    return {name: value for name, value in facts.items() if value is not None}


def _asked(read: Callable[[Any], Any], error: BaseException) -> Any:
    try:
        return read(error)
    except Exception:  # properties of a user's exception may do anything
        return None


def _status_of(error: Any) -> Optional[int]:
    response = getattr(error, "response", None)
    found = [getattr(error, name, None) for name in ("status_code", "status", "code")]
    found += [getattr(response, name, None) for name in ("status_code", "status")]
    return next((code for code in found if type(code) is int and 400 <= code < 600), None)


def _pause_of(error: Any) -> Optional[float]:
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None) or {}
    value = headers.get("retry-after") or headers.get("Retry-After")
    return None if value is None else retry_after(str(value))
