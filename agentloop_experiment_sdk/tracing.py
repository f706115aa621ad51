"""W3C trace ids, ``traceparent`` and ``baggage``: what links an agent call to its trace.

Sources: W3C Trace Context (https://www.w3.org/TR/trace-context/) section 3.2 and W3C Baggage
(https://www.w3.org/TR/baggage/) sections 3.2 and 3.3.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote

from .jsontext import clean_text
from .models import Task
from .scope import AttemptScope, current_scope

EXPERIMENT_ID = "traffic.agentloop.experiment.id"
DATA_ITEM_ID = "traffic.agentloop.dataset.data_item_id"
MAX_BAGGAGE_MEMBERS = 64
MAX_BAGGAGE_BYTES = 8192

RandomBytes = Callable[[int], bytes]

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


@dataclass(frozen=True)
class TraceContext:
    """The trace that one agent call belongs to, and the span that made the call.

    Args:
        trace_id: 32 lower-case hex digits, not all zero.
        span_id: 16 lower-case hex digits, not all zero.
        flags: Two hex digits; ``01`` asks the agent to sample the trace.
    """

    trace_id: str
    span_id: str
    flags: str = "01"

    @property
    def traceparent(self) -> str:
        """The header value, version 00."""
        return "00-{}-{}-{}".format(self.trace_id, self.span_id, self.flags)


def new_trace_id(random_bytes: RandomBytes = os.urandom) -> str:
    """A random trace id: 32 lower-case hex digits, never all zero."""
    return _nonzero_hex(16, random_bytes)


def new_span_id(random_bytes: RandomBytes = os.urandom) -> str:
    """A random span id: 16 lower-case hex digits, never all zero."""
    return _nonzero_hex(8, random_bytes)


def _nonzero_hex(size: int, random_bytes: RandomBytes) -> str:
    while True:
        octets = random_bytes(size)
        if any(octets):
            return octets.hex()


def valid_trace_id(text: Any) -> Optional[str]:
    """``text`` in lower case if it is 32 hex digits and not all zeros, else None."""
    if not isinstance(text, str):
        return None
    digits = text.strip().lower()
    return digits if _TRACE_ID.fullmatch(digits) and digits != _NO_TRACE else None


def parse_traceparent(text: Any) -> Optional[str]:
    """The trace id of a valid ``traceparent`` value, else None.

    Upper-case digits, version ``ff``, all-zero ids, and anything behind a version-00 value make it
    invalid (Trace Context 3.2.2).
    """
    match = _TRACEPARENT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    version, trace_id, span_id, rest = match.groups()
    unusable = trace_id == _NO_TRACE or span_id == _NO_SPAN
    if unusable or version == "ff" or (version == "00" and rest):
        return None
    return str(trace_id)


def encode_baggage_value(value: str) -> str:
    """``value`` as a baggage value: UTF-8, percent-encoded.

    More is encoded than the standard demands (3.3.1 allows it): some parsers turn ``+`` into a
    space, others split a member at every ``=``.
    """
    return quote(clean_text(value), safe="")


def merge_baggage(existing: Optional[str], members: Mapping[str, str]) -> str:
    """``existing`` with ``members`` appended, each value percent-encoded.

    What the caller sent is kept as it is (text outside ASCII is percent-encoded). A member whose
    name the caller used already, or that would exceed 64 members or 8,192 bytes, is left out.
    """
    kept: List[str] = []
    if existing:
        kept = [part.strip() for part in _ascii_only(existing).split(",") if part.strip()]
    names = {part.split(";", 1)[0].split("=", 1)[0].strip() for part in kept}
    length = sum(map(len, kept)) + len(kept) - 1
    for name, value in members.items():
        member = "{}={}".format(name, encode_baggage_value(value))
        grown = length + len(member) + 1
        fits = len(kept) < MAX_BAGGAGE_MEMBERS and grown <= MAX_BAGGAGE_BYTES
        if name not in names and fits:
            kept.append(member)
            length = grown
    return ",".join(kept)


def _ascii_only(text: str) -> str:
    return text if text.isascii() else quote(clean_text(text), safe="".join(map(chr, range(128))))


def task_members(task: Task) -> Dict[str, str]:
    """The baggage members that name a task's experiment and data item.

    None and "" add no member; 0 is an id like any other.
    """
    metadata = task.metadata or {}
    return _members(metadata.get("record_id"), metadata.get("dataset_item_id"))


def _members(record_id: Any, item_id: Any) -> Dict[str, str]:
    named = ((EXPERIMENT_ID, record_id), (DATA_ITEM_ID, item_id))
    return {name: str(value) for name, value in named if value is not None and value != ""}


def begin_trace(scope: Optional[AttemptScope] = None) -> TraceContext:
    """The context for one agent call: OpenTelemetry's if a span is open, else a new random one.

    A span that was already open when the attempt began (``scope.outer_span_id``) belongs to the
    whole run and is not used: it would give every row the same trace.
    """
    span = _span_inside(scope)
    if span is None:
        return TraceContext(new_trace_id(), new_span_id())
    return TraceContext(
        format(span.trace_id, "032x"), format(span.span_id, "016x"), format(span.trace_flags, "02x")
    )


def open_span_id() -> Optional[int]:
    """The id of the OpenTelemetry span that is open now, for ``AttemptScope.outer_span_id``."""
    span = _open_span()
    return None if span is None else int(span.span_id)


def _span_inside(scope: Optional[AttemptScope]) -> Any:
    span = _open_span()
    inside = span is not None and (scope is None or span.span_id != scope.outer_span_id)
    return span if inside else None


def _open_span() -> Any:
    """OpenTelemetry's valid span context; the package is asked only if something loaded it."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    try:
        context = opentelemetry.get_current_span().get_span_context()
        return context if context.is_valid else None
    except Exception:  # a half-imported or foreign module of that name
        return None


def inject(
    headers: Mapping[str, str], context: TraceContext, members: Mapping[str, str]
) -> Tuple[Dict[str, str], str]:
    """``headers`` with a valid ``traceparent`` and merged ``baggage``, and the trace id they carry.

    A valid ``traceparent`` among ``headers`` wins over ``context``; an invalid one is replaced.
    """
    sent: Dict[str, str] = {}
    carried: List[str] = []
    traceparent = ""
    trace_id: Optional[str] = None
    for name, value in headers.items():
        lowered = name.lower()
        if lowered == "baggage":
            carried.append(str(value))
        elif lowered != "traceparent":
            sent[name] = value
        elif trace_id is None:
            traceparent, trace_id = value, parse_traceparent(value)
    sent["traceparent"] = traceparent.strip() if trace_id else context.traceparent
    baggage = merge_baggage(",".join(carried), members)
    if baggage:
        sent["baggage"] = baggage
    return sent, trace_id or context.trace_id


def trace_headers(headers: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """Headers that link a custom solution's own agent call to this attempt.

    Call it where the request is made and send what it returns; the trace id is then recorded for
    the row. Several calls in one attempt share a trace. Outside a run it gives a valid
    ``traceparent`` without experiment members.

    Args:
        headers: Your own headers; they are copied. A valid ``traceparent`` among them is kept,
            ``baggage`` is extended.

    Returns:
        A new dict: your headers with ``traceparent`` and ``baggage``.
    """
    scope = current_scope()
    context = begin_trace(scope)
    if scope is None:
        return inject(headers or {}, context, {})[0]
    if scope.trace_id and _span_inside(scope) is None:
        context = TraceContext(scope.trace_id, context.span_id)
    sent, trace_id = inject(headers or {}, context, _members(scope.record_id, scope.item_id))
    scope.note_trace(trace_id)
    return sent


def trace_id_from_headers(headers: Mapping[str, str], names: List[str]) -> Optional[str]:
    """The first valid trace id among the response headers ``names``; keys are in lower case."""
    found = (valid_trace_id(headers.get(name.lower())) for name in names)
    return next((trace_id for trace_id in found if trace_id), None)
