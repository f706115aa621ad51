"""The reports as JUnit XML, which CI systems show as tests.

The form is what the schemas in circulation have in common (the one for Ant's JUnit task, which is
the strictest, and Jenkins'): ``testsuites`` without attributes; per ``testsuite`` its counters,
``properties``, ``testcase`` s, ``system-out`` and ``system-err``, in this order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, Sequence, Union
from xml.sax.saxutils import escape, quoteattr

from ..arguments import texts_of
from ..errors import ConfigurationError
from ..results.stored import ResultRow
from .arguments import no_subject
from .compare import CandidateComparison, Comparison, answer_text, unified
from .gate import GateResult
from .measures import RowMeasures
from .summary import ExperimentResult

_LONGEST = 4000
# Source: XML 1.0 (fifth edition), section 2.2, production Char, without the controls that its note
# discourages: terminals read some of them as the start of an escape sequence.
_NO_CHAR = re.compile("[^\t\n\r -~\u0085\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMAND = re.compile(r"^\s*:(?=:)|#(?=#)", re.MULTILINE)

Subject = Union[ExperimentResult, Comparison, GateResult]

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"


@dataclass(frozen=True)
class _Case:
    """One test case: its name, seconds, and what went wrong (element, type, message, text)."""

    classname: str
    name: str
    seconds: float = 0.0
    outcome: str = ""
    type: str = ""
    message: str = ""
    text: str = ""


@dataclass(frozen=True)
class _Suite:
    name: str
    timestamp: str
    properties: Mapping[str, Any]
    cases: Sequence[_Case]


def render_junit(subject: Subject, *, metrics: Sequence[str] = ()) -> str:
    """A result, comparison or gate verdict as JUnit XML.

    Of a result every row is a test case: failed rows are failures, rows without a result errors. Of
    a comparison every common item is one, and the newly broken ones are failures. Of a gate every
    condition is one.

    Args:
        subject: What to render.
        metrics: Pass/fail metrics of a result; a row that fails one of them is a failure too.

    Raises:
        ConfigurationError: An argument is something else, or no row has such a metric.
    """
    suites = "".join(
        _suite_xml(number, suite)
        for number, suite in enumerate(_suites(subject, texts_of("metrics", metrics)))
    )
    return '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n{}</testsuites>\n'.format(suites)


def _suites(subject: Subject, metrics: Sequence[str]) -> List[_Suite]:
    if isinstance(subject, ExperimentResult):
        _check_metrics(subject, metrics)
        cases = [
            _row_case(subject, row, measure, metrics)
            for row, measure in zip(subject, subject.measures)
        ]
        return [_suite(subject, subject.dataset or subject.name, cases)]
    if isinstance(subject, Comparison):
        return [_comparison_suite(candidate) for candidate in subject]
    if not isinstance(subject, GateResult):
        raise no_subject(subject)
    return [_suite(subject.result, "gate", list(_gate_cases(subject)))]


def _check_metrics(result: ExperimentResult, metrics: Sequence[str]) -> None:
    """Refuse a metric that an answered run lacks: none of its rows would ever fail it."""
    unknown = [name for name in metrics if name not in result.metrics]
    if unknown and result.counts.succeeded:
        raise ConfigurationError(
            "metrics: no row has a score {!r}; the result has {}.".format(
                unknown[0], ", ".join(result.metrics) or "no metrics"
            )
        )


def _suite(result: ExperimentResult, name: str, cases: Sequence[_Case]) -> _Suite:
    rate = result.success_rate
    properties = {
        "record_id": result.record_id,
        "record_name": result.name,
        "status": result.status,
        "version": result.meta.get("version"),
        "success_rate": None if rate is None else round(rate, 6),
        "undelivered": result.counts.undelivered,
    }
    return _Suite(name, _timestamp(result), properties, cases)


def _comparison_suite(candidate: CandidateComparison) -> _Suite:
    result = candidate.candidate.result
    properties = {
        "baseline": candidate.baseline.name,
        "verdict": candidate.verdict,
        "newly_broken": len(candidate.newly_broken),
        "newly_fixed": len(candidate.newly_fixed),
    }
    timestamp = _EPOCH if result is None else _timestamp(result)
    return _Suite(candidate.name, timestamp, properties, list(_pair_cases(candidate)))


def _row_case(
    result: ExperimentResult, row: ResultRow, measure: RowMeasures, metrics: Sequence[str]
) -> _Case:
    name = row.label if result.repeats < 2 else "{} [{}]".format(row.label, row.repeat_id)
    place = (result.dataset or result.name, name, (row.latency_ms or 0.0) / 1000)
    if row.status == "skipped":
        return _Case(*place, outcome=SKIPPED, message=row.skip_reason)
    if not row.done:
        return _Case(*place, outcome=ERROR, type="Incomplete", message="no result yet")
    if row.status == "failed":
        trace = "trace id: {}".format(row.trace_id) if row.trace_id else ""
        return _Case(*place, FAILURE, row.error_type, row.error_message, trace)
    low = [name for name in metrics if measure.scores.get(name) == 0.0]
    if low:
        message = "failed " + ", ".join(low)
        reason = row.evaluations.get(low[0], {}).get("message")
        if reason:
            message = "{}: {}".format(message, reason)
        return _Case(*place, FAILURE, low[0], message, answer_text(row))
    return _Case(*place)


def _pair_cases(candidate: CandidateComparison) -> Iterable[_Case]:
    broken = {id(change.pair): change for change in candidate.newly_broken}
    for pair in candidate.pairs:
        seconds = (pair.candidate.latency_ms or 0.0) / 1000
        place = (candidate.baseline.name, pair.label, seconds)
        change = broken.get(id(pair))
        if change is None:
            yield _Case(*place)
        else:
            texts = candidate.outputs(pair)
            names = (candidate.baseline.name, candidate.name)
            message = "no longer passes: " + ", ".join(change.measures)
            diff = "" if texts is None else unified(texts, *names)
            yield _Case(*place, FAILURE, "NewlyBroken", message, diff)


def _gate_cases(verdict: GateResult) -> Iterable[_Case]:
    for check in verdict.checks:
        if check.passed:
            yield _Case("gate", check.name)
        else:
            yield _Case("gate", check.name, 0.0, FAILURE, "GateFailed", check.message)


_EPOCH = "1970-01-01T00:00:00"
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")


def _timestamp(result: ExperimentResult) -> str:
    text = str(result.meta.get("created_at") or "").replace(" ", "T")
    return text if _TIMESTAMP.match(text) else _EPOCH


def _suite_xml(number: int, suite: _Suite) -> str:
    counts = {kind: _count(suite.cases, kind) for kind in (FAILURE, ERROR, SKIPPED)}
    head = _attributes(
        name=suite.name.strip() or "experiment",
        package="agentloop.experiment",
        id=number,
        timestamp=suite.timestamp,
        hostname="localhost",
        tests=len(suite.cases),
        failures=counts[FAILURE],
        errors=counts[ERROR],
        skipped=counts[SKIPPED],
        time="{:.3f}".format(sum(case.seconds for case in suite.cases)),
    )
    properties = "".join(
        "      <property{}/>\n".format(_attributes(name=name, value=value))
        for name, value in suite.properties.items()
        if value not in (None, "")
    )
    return (
        "  <testsuite{}>\n    <properties>\n{}    </properties>\n{}"
        "    <system-out/>\n    <system-err/>\n  </testsuite>\n"
    ).format(head, properties, "".join(map(_case_xml, suite.cases)))


def _count(cases: Iterable[_Case], outcome: str) -> int:
    return sum(1 for case in cases if case.outcome == outcome)


def _case_xml(case: _Case) -> str:
    head = _attributes(
        classname=case.classname or "experiment",
        name=case.name or "item",
        time="{:.3f}".format(case.seconds),
    )
    if not case.outcome:
        return "    <testcase{}/>\n".format(head)
    if case.outcome == SKIPPED:
        told = _attributes(message=case.message[:_LONGEST]) if case.message else ""
        return "    <testcase{}>\n      <skipped{}/>\n    </testcase>\n".format(head, told)
    details = _attributes(type=case.type or "UnknownError", message=case.message[:_LONGEST])
    text = _no_command(escape(_clean(case.text[:_LONGEST])))
    return "    <testcase{0}>\n      <{1}{2}>{3}</{1}>\n    </testcase>\n".format(
        head, case.outcome, details, text
    )


def _attributes(**values: Any) -> str:
    written = ((name, _no_command(quoteattr(_clean(str(v))))) for name, v in values.items())
    return "".join(" {}={}".format(*pair) for pair in written)


def _no_command(markup: str) -> str:
    """``markup`` of the same text without the marks of ``lines.no_command``: CI jobs print it."""
    return _COMMAND.sub(lambda found: "{}&#{};".format(found[0][:-1], ord(found[0][-1])), markup)


def _clean(text: str) -> str:
    """``text`` without characters that no XML 1.0 document may hold, not even escaped."""
    return _NO_CHAR.sub("\ufffd", text)
