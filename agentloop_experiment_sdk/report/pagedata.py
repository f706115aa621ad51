"""The rows of an HTML report as JSON: a small index that is read at once, payloads on demand."""

from __future__ import annotations

import itertools
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from .. import jsontext
from ..results.stored import ResultRow
from .baseline import ItemOutcome
from .compare import CandidateComparison, Comparison
from .measures import PASS_FAIL, RowMeasures, tokens_of
from .pairing import ItemPair
from .sections import shorten
from .summary import ExperimentResult

PREVIEW = 160
CHUNK = 50
MAX_CHARS = 100_000

_Key = TypeVar("_Key")


def script_json(value: Any) -> str:
    """``value`` as JSON that can stand inside a ``<script>`` element.

    No ``<``, ``>`` or ``&`` is left, so that no text can close the element or open a comment in
    it; the JSON stays the same. Source: WHATWG HTML 4.12.1.3 (restrictions for contents of script
    elements); RFC 8259 section 7 allows every character as ``\\uXXXX``.
    """
    text = jsontext.dumps(value)
    for char in "<>&\u2028\u2029":
        if char in text:
            text = text.replace(char, "\\u{:04x}".format(ord(char)))
    return text


def result_index(
    result: ExperimentResult, against: Optional[CandidateComparison] = None
) -> Dict[str, Any]:
    """The index of a run's rows.

    A row is [label, repeat, task id, previews of input and output, cells, change]; there is one
    cell per run: [status, passed, tries, latency, ttft, tokens, error type, scores]. ``change`` is
    what ``against``, a comparison of the run with its baseline, says of the row's item.
    """
    metrics = list(result.metrics)
    changes = {} if against is None else _changes(against, lambda pair: pair.candidate.task_id)
    rows: List[List[Any]] = []
    for row, measure in zip(result, result.measures):
        cells = [_row_cell(row, measure, metrics)]
        change = changes.get(row.task_id, "")
        rows.append([row.label, row.repeat_id, row.task_id, *_previews(row), cells, change])
    checks = {name: summary.kind == PASS_FAIL for name, summary in result.metrics.items()}
    return _index("result", [result.name], checks, rows, repeats=result.repeats > 1)


def result_payloads(result: ExperimentResult, max_chars: int = MAX_CHARS) -> Iterator[List[Any]]:
    """Chunks of the rows' payloads, in the order of the index."""
    return _chunks(_payload([row], max_chars) for row in result)


def comparison_index(comparison: Comparison) -> Dict[str, Any]:
    """The index of a comparison's items: as ``result_index``, one cell per run, and the change.

    ``change`` is "broken", "fixed", "both" or "", over all candidates.
    """
    kinds = [side.baseline.kinds for side in comparison.sides]
    checks = {
        name: all(known.get(name, PASS_FAIL) == PASS_FAIL for known in kinds)
        for name in sorted(set().union(*kinds))
    }
    rows = []
    changes = [_changes(candidate, lambda pair: id(pair.baseline)) for candidate in comparison]
    for line in _lines(comparison):
        item = next(item for item in line if item)
        change = _change(changes, line)
        previews = _item_previews(comparison, line)
        cells = [_item_cell(item, list(checks)) for item in line]
        rows.append([item.label, "", item.task_id, *previews, cells, change])
    names = [side.name for side in comparison.sides]
    return _index("comparison", names, checks, rows, repeats=False)


def comparison_payloads(comparison: Comparison, max_chars: int = MAX_CHARS) -> Iterator[List[Any]]:
    """Chunks of the items' payloads: per run the answer of the first repeat."""
    lines = _lines(comparison)
    return _chunks(_payload(_first_rows(comparison, line), max_chars) for line in lines)


def _payload(rows: Sequence[Optional[ResultRow]], max_chars: int) -> Dict[str, Any]:
    """The answers of one line, and what was asked unless only imported baselines know."""
    payload: Dict[str, Any] = {"runs": [row and answer(row, max_chars) for row in rows]}
    asked = next((row for row in rows if row), None)
    if asked is not None:
        payload["input"] = cut(asked.input, max_chars)
        payload["truth"] = cut(asked.ground_truth, max_chars)
    return payload


def _chunks(payloads: Iterable[Dict[str, Any]]) -> Iterator[List[Any]]:
    remaining = iter(payloads)
    while True:
        chunk = list(itertools.islice(remaining, CHUNK))
        if not chunk:
            return
        yield chunk


def answer(row: ResultRow, max_chars: int) -> Dict[str, Any]:
    """All that a row's files say about its answer, empty entries left out."""
    error = "{}: {}".format(row.error_type, row.error_message) if row.status == "failed" else ""
    meta = {name: value for name, value in row.meta.items() if name not in _SHOWN}
    facts = {
        "output": cut(row.output, max_chars),
        "error": cut(error, max_chars),
        "traceback": cut(row.meta.get("traceback"), max_chars),
        "trace": row.trace_id,
        "trajectory": cut(row.trajectory, max_chars),
        "scores": _evaluations(row),
        "meta": cut(meta, max_chars),
        "folder": "{}/{}".format(row.task_id, row.repeat_id),
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


_SHOWN = ("error_type", "error_message", "traceback")


def cut(value: Any, max_chars: int) -> Any:
    """``value`` whole, or the start of its text and a note when it has over ``max_chars``."""
    text = value if isinstance(value, str) else jsontext.dumps(value)
    if len(text) <= max_chars:
        return value
    return "{}\u2026 [{} more characters; the whole value is in solution.json]".format(
        text[:max_chars], len(text) - max_chars
    )


def _index(
    kind: str, runs: List[str], checks: Mapping[str, bool], rows: List[Any], *, repeats: bool
) -> Dict[str, Any]:
    """``checks`` has metric name to whether it is pass/fail: only then is a 1 good and a 0 bad."""
    return {
        "kind": kind,
        "runs": runs,
        "metrics": list(checks),
        "checks": list(checks.values()),
        "repeats": repeats,
        "chunk": CHUNK,
        "rows": rows,
    }


def _previews(row: ResultRow) -> Tuple[str, str]:
    asked = _input_preview(row)
    if row.status == "failed":
        return (asked, shorten(row.error_message, PREVIEW))
    return (asked, _preview(row.output))


def _input_preview(row: ResultRow) -> str:
    """The values of the dataset's row, without the id that the row is called by anyway."""
    if not isinstance(row.input, dict):
        return _preview(row.input)
    values = [value for value in row.input.values() if str(value) != row.item_id]
    return shorten(" \u00b7 ".join(map(_preview, values)), PREVIEW)


def _preview(value: Any) -> str:
    return shorten(value if isinstance(value, str) else jsontext.dumps(value), PREVIEW)


def _row_cell(row: ResultRow, measure: RowMeasures, metrics: Sequence[str]) -> List[Any]:
    scores = [_short(measure.scores.get(name)) for name in metrics]
    passed = int(row.status == "success")
    return [
        row.status,
        passed,
        1,
        _short(row.latency_ms),
        _short(measure.ttft_ms),
        tokens_of(row),
        row.error_type,
        scores,
    ]


def _item_cell(item: Optional[ItemOutcome], metrics: Sequence[str]) -> Optional[List[Any]]:
    if item is None:
        return None
    passed, tries = item.passed, item.tries
    status = "success" if passed == tries else "failed" if not passed else "mixed"
    scores = [_short(item.scores.get(name, item.labels.get(name))) for name in metrics]
    times = [_short(item.latency_ms), _short(item.ttft_ms), _short(item.tokens)]
    return [status, passed, tries, *times, "", scores]


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


# one item over all runs of a comparison; None where a run did not answer it
_Line = List[Optional[ItemOutcome]]


def _lines(comparison: Comparison) -> List[_Line]:
    """Every item of the baseline, then those that only candidates have."""
    absent: _Line = [None] * len(comparison)
    lines: Dict[int, _Line] = {
        id(item): [item, *absent] for item in comparison.baseline.baseline.items
    }
    extra: List[_Line] = []
    for place, candidate in enumerate(comparison, 1):
        for pair in candidate.pairs:
            lines[id(pair.baseline)][place] = pair.candidate
        for item in candidate.only_candidate:
            line: _Line = [None, *absent]
            line[place] = item
            extra.append(line)
    return list(lines.values()) + extra


def _changes(candidate: CandidateComparison, key_of: Callable[[ItemPair], _Key]) -> Dict[_Key, str]:
    changes = {key_of(change.pair): "broken" for change in candidate.newly_broken}
    for change in candidate.newly_fixed:
        key = key_of(change.pair)
        changes[key] = "both" if key in changes else "fixed"
    return changes


def _change(changes: Sequence[Dict[int, str]], line: _Line) -> str:
    found = {known[id(line[0])] for known in changes if id(line[0]) in known}
    return "" if not found else found.pop() if len(found) == 1 else "both"


def _first_rows(comparison: Comparison, line: _Line) -> List[Optional[ResultRow]]:
    return [side.first_row(item) for side, item in zip(comparison.sides, line)]


def _item_previews(comparison: Comparison, line: _Line) -> Tuple[str, str]:
    rows = [row for row in _first_rows(comparison, line) if row]
    return _previews(rows[-1]) if rows else ("", "")


def _evaluations(row: ResultRow) -> Dict[str, Any]:
    return {
        name: {key: entry[key] for key in ("result", "message") if entry.get(key) is not None}
        for name, entry in row.evaluations.items()
    }
