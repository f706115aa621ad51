"""What a pipeline is asked about one trace. Pure.

Source: PreviewPipeline of the AgentLoop API 2026-05-20.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Dict, Mapping, Tuple

_MARGIN_S = 60
# text in quotes, in which a bar does not count, or a bar
_QUOTED_OR_BAR = re.compile(r'"(?:\\.|[^"\\])*"?|\|', re.DOTALL)


class UnboundSourceError(Exception):
    """The pipeline's source cannot be narrowed to one trace; the message says why."""


def preview_body(
    definition: Mapping[str, Any], trace_id: str, started_at_ms: int, now: float
) -> Dict[str, Any]:
    """The PreviewPipeline request that binds ``definition`` to one trace.

    Times are seconds: from 60 s before the attempt began to 60 s from now.

    Raises:
        UnboundSourceError: The source cannot be bound to a trace.
    """
    source, pipeline = definition.get("source"), definition.get("pipeline")
    if not isinstance(source, Mapping) or not _is_logstore(source):
        raise UnboundSourceError("its source is not a logstore, so it is not bound to one trace")
    if not isinstance(pipeline, Mapping) or not pipeline.get("nodes"):
        raise UnboundSourceError("its definition has no nodes")
    bound = copy.deepcopy(dict(source))
    bound["logstore"]["query"] = bound_query(str(bound["logstore"].get("query") or "*"), trace_id)
    return {
        "fromTime": started_at_ms // 1000 - _MARGIN_S,
        "toTime": int(now) + _MARGIN_S,
        "source": bound,
        "pipeline": copy.deepcopy(dict(pipeline)),
    }


def _is_logstore(source: Mapping[str, Any]) -> bool:
    return isinstance(source.get("logstore"), dict) and source.get("type") != "dataset"


def bound_query(query: str, trace_id: str) -> str:
    """``query`` narrowed to one trace; an analysis part behind ``|`` is kept.

    Source: SLS query syntax, ``<search> | <analysis>``.
    """
    search, analysis = _split_analysis(query)
    return '({}) and traceId: "{}"{}'.format(
        search.strip() or "*", trace_id, analysis and " " + analysis
    )


def _split_analysis(query: str) -> Tuple[str, str]:
    """The search, and the analysis with its bar (else "")."""
    for found in _QUOTED_OR_BAR.finditer(query):
        if found.group() == "|":
            return query[: found.start()], query[found.start() :]
    return query, ""
