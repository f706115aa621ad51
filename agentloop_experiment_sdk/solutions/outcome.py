"""From what a call went through to the ``HttpAnswer`` it came to, without secrets."""

from __future__ import annotations

import re
from collections import abc
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from ..jsontext import sls_text
from ..models import HttpRequestSpec
from .answer import HttpAnswer
from .call import user_traceback
from .content import error_text
from .faults import EXTRACTOR_ERROR, PROTOCOL_ERROR, REDIRECT_ERROR, STATUS_ERROR, ExchangeFault
from .reading import Content
from .redact import redact_error, redact_headers, redact_text, redact_url
from .request import WireRequest
from .usage import UsageMeter

_HEADERS_OF_INTEREST = re.compile(
    r"content-type|content-encoding|date|server|retry-after|location|www-authenticate|via"
    r"|.*(request-?id|trace|session|conversation|thread|rate-?limit|model|version|processing).*"
)


@dataclass
class CallRecord:
    """What one call went through so far.

    Attributes:
        spec: What was to be sent.
        asked: What was asked, redacted, as it was before the call.
        request: What was sent last; None before anything could be.
        trace_id: The trace id it carried.
        sent: Whether it may have reached the agent.
        attempts: One entry per answer or error: ``status`` or ``error``, and ``ms``.
        redirects: One entry per redirect followed: ``status`` and ``location``.
        secrets: Credentials of the request, to be kept out of texts.
    """

    spec: HttpRequestSpec
    asked: Any = None
    request: Optional[WireRequest] = None
    trace_id: Optional[str] = None
    sent: bool = False
    attempts: List[Dict[str, Any]] = field(default_factory=list)
    redirects: List[Dict[str, Any]] = field(default_factory=list)
    secrets: List[str] = field(default_factory=list)

    def hide(self, secrets: List[str]) -> None:
        """Keep these out of texts too; a redirect's location may hold a key of its own."""
        self.secrets = sorted({*self.secrets, *secrets}, key=len, reverse=True)

    def scrubbed(self, text: str) -> str:
        """``text`` without the request's credentials."""
        return redact_text(text, self.secrets)

    def told(self, message: str) -> str:
        """An error message without the request's credentials and others that it quotes."""
        return redact_error(message, self.secrets)


def answered(
    record: CallRecord,
    status: int,
    reason: str,
    headers: Mapping[str, str],
    content: Content,
    meter: UsageMeter,
) -> HttpAnswer:
    """The answer of a call that got one, good or bad."""
    fault = _verdict(status, reason, content)
    facts = {**_request_facts(record), "status": status}
    facts["response_headers"] = _interesting(record, headers)
    if meter.error:
        facts["usage_error"] = record.told(meter.error)
    return HttpAnswer(
        success=fault is None,
        output=content.output if fault is None else _scrubbed_output(record, content.output),
        status=status,
        headers=headers,
        error_type="" if fault is None else fault.error_type,
        error_message="" if fault is None else record.told(fault.message),
        trace_id=record.trace_id,
        asked=record.asked,
        usage=meter.usage,
        ttft_ms=content.ttft_ms,
        streamed=content.streamed,
        traceback=_traceback(record, fault),
        facts=facts,
    )


def _traceback(record: CallRecord, fault: Optional[ExchangeFault]) -> Optional[str]:
    if fault is None or fault.error_type != EXTRACTOR_ERROR or fault.__cause__ is None:
        return None
    return record.told(user_traceback(fault.__cause__))


def unanswered(record: CallRecord, fault: ExchangeFault) -> HttpAnswer:
    """The answer of a call that never got one."""
    return HttpAnswer(
        success=False,
        error_type=fault.error_type,
        error_message=record.told(fault.message),
        trace_id=record.trace_id if record.sent else None,
        asked=record.asked,
        facts=_request_facts(record),
    )


def _verdict(status: int, reason: str, content: Content) -> Optional[ExchangeFault]:
    """Why the answer is a failure, or None. A bad status says more than a body that was cut."""
    line = "HTTP {} {}".format(status, reason).strip()
    if status >= 400:
        detail = error_text(content.output)
        if content.fault is not None:
            detail = "{} ({})".format(detail, content.fault.message).strip()
        return ExchangeFault(STATUS_ERROR, "{}: {}".format(line, detail) if detail else line)
    if status < 200:
        return ExchangeFault(PROTOCOL_ERROR, line + " is no answer to this request.")
    if status >= 300:
        message = line + " is no answer, and names no Location that can be followed."
        return ExchangeFault(REDIRECT_ERROR, message)
    return content.fault


def _interesting(record: CallRecord, headers: Mapping[str, str]) -> Dict[str, str]:
    found = {
        name: record.scrubbed(value)
        for name, value in headers.items()
        if _HEADERS_OF_INTEREST.fullmatch(name)
    }
    return redact_headers(found)


def _request_facts(record: CallRecord) -> Dict[str, Any]:
    request = record.request
    facts: Dict[str, Any] = {
        "method": record.spec.method if request is None else request.method,
        "url": redact_url(record.spec.url if request is None else request.url),
        "attempts": record.attempts,
    }
    if request is not None:
        facts["request_headers"] = redact_headers(request.headers)
    if record.redirects:
        facts["redirects"] = record.redirects
    return facts


def _scrubbed_output(record: CallRecord, value: Any) -> Any:
    """What a failed call left, without credentials that an error page may quote."""
    try:
        return _scrubbed_value(record, value)
    except RecursionError:  # nested deeper than Python code can follow: as text
        return record.scrubbed(sls_text(value))


def _scrubbed_value(record: CallRecord, value: Any) -> Any:
    if isinstance(value, str):
        return record.scrubbed(value)
    if isinstance(value, abc.Mapping):
        return {key: _scrubbed_value(record, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed_value(record, item) for item in value]
    return value
