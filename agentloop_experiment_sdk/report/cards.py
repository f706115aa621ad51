"""The head of the HTML page: facts, cards with the key numbers, and charts."""

from __future__ import annotations

from typing import List, Sequence, Tuple, Union

from ..lines import counted
from . import charts as draw
from .compare import CandidateComparison, Comparison
from .measures import CATEGORY, PASS_FAIL, MetricSummary, of_others
from .sections import (
    NOT_SCORED,
    interval_text,
    markup,
    measure_name,
    measure_text,
    milliseconds,
    number,
    share,
    signed,
)
from .summary import ExperimentResult

Page = Union[ExperimentResult, Comparison]

_VERDICT_KIND = {"worse": "bad", "better": "good", "no evidence": "none"}


def facts(subject: Page) -> str:
    """What the run is, as a line of small labels."""
    if isinstance(subject, Comparison):
        pairs = [("baseline", subject.baseline.name)]
        pairs += [("run", candidate.name) for candidate in subject]
    else:
        meta = subject.meta
        pairs = [
            ("status", subject.status),
            ("dataset", subject.dataset),
            ("version", str(meta.get("version") or "")),
            ("of other versions or parameters", _rows(of_others(meta, subject.measures))),
            ("started", str(meta.get("created_at") or "")),
            ("record", subject.record_id),
        ]
    labels = (
        '<span class="fact"><b>{}</b>{}</span>'.format(markup(name), markup(value))
        for name, value in pairs
        if value
    )
    return '<p class="facts">{}</p>'.format("".join(labels))


def _rows(count: int) -> str:
    return counted(count, "row") if count else ""


def cards(subject: Page) -> str:
    """The key numbers; those of each candidate begin on a line of their own."""
    if isinstance(subject, Comparison):
        groups = [_candidate_cards(candidate) for candidate in subject]
    else:
        groups = [_result_cards(subject)]
    return "".join('<section class="cards">{}</section>'.format("".join(group)) for group in groups)


def charts(subject: Page) -> str:
    """The charts that the subject has data for."""
    if isinstance(subject, Comparison):
        drawn, kind = _comparison_charts(subject), "panel wide"
    else:
        drawn, kind = _result_charts(subject), "panel"
    return "".join(
        '<figure class="{}"><figcaption>{}</figcaption>{}</figure>'.format(kind, caption, chart)
        for caption, chart in drawn
        if chart
    )


def _result_cards(result: ExperimentResult) -> List[str]:
    made = [_success_card(result)]
    if result.latency is not None:
        tail = "p90 {}, p99 {}".format(*map(milliseconds, (result.latency.p90, result.latency.p99)))
        made.append(_card("Latency, median", milliseconds(result.latency.p50), tail))
    if result.ttft is not None:
        tail = "p90 {}".format(milliseconds(result.ttft.p90))
        made.append(_card("First token, median", milliseconds(result.ttft.p50), tail))
    if result.tokens:
        used = result.tokens.values()
        tail = "{} in, {} out".format(
            number(sum(tokens.input for tokens in used)),
            number(sum(tokens.output for tokens in used)),
        )
        made.append(_card("Tokens", number(sum(tokens.total for tokens in used)), tail))
    return made + [_metric_card(summary) for summary in result.metrics.values()]


def _success_card(result: ExperimentResult) -> str:
    counts = result.counts
    parts = [
        (name, getattr(counts, name)) for name in ("succeeded", "failed", "skipped", "incomplete")
    ]
    told = ", ".join("{} {}".format(number(count), name) for name, count in parts if count)
    if counts.undelivered:
        told += ", {} undelivered".format(number(counts.undelivered))
    rate = "\u2013" if result.success_rate is None else share(result.success_rate)
    tail = "" if not result.success.n else "95%: " + interval_text(result.success, PASS_FAIL)
    return _card("Success rate", rate, tail, told or "no rows", _meter(parts, counts.total))


def _meter(parts: Sequence[Tuple[str, int]], total: int) -> str:
    """A stacked bar; as SVG, for a style attribute would need a laxer security policy."""
    rects, left = [], 0.0
    for name, count in parts:
        width = 100 * count / total if total else 0.0
        if count:
            rects.append(
                '<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="6"/>'.format(
                    name, left, max(width, 0.6)
                )
            )
        left += width
    return (
        '<svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        "{}</svg>"
    ).format("".join(rects))


def _metric_card(summary: MetricSummary) -> str:
    unscored = "{} unscored".format(number(summary.unscored)) if summary.unscored else ""
    if not summary.n:
        return _card(summary.name, NOT_SCORED, unscored, kind="score")
    if summary.kind == CATEGORY or summary.estimate is None:
        name, count = next(iter(summary.distribution.items()), ("\u2013", 0))
        tail = "{} of {}".format(number(count), counted(summary.n, "row"))
        return _card(summary.name, name, tail, kind="score")
    value = measure_text(summary.name, summary.kind, summary.estimate.value)
    tail = "95%: " + interval_text(summary.estimate, summary.kind)
    return _card(summary.name, value, tail, unscored, kind="score")


def _candidate_cards(candidate: CandidateComparison) -> List[str]:
    kind = _VERDICT_KIND[candidate.verdict]
    told = counted(len(candidate.pairs), "item") + " in common"
    made = [_card(candidate.name, candidate.verdict, told, kind="verdict " + kind)]
    flipped = "{} fixed".format(number(len(candidate.newly_fixed)))
    made.append(_card("Newly broken", number(len(candidate.newly_broken)), flipped))
    for delta in candidate.deltas.values():
        change = signed(delta.name, delta.kind, delta.delta.value)
        values = "{} \u2192 {}".format(
            measure_text(delta.name, delta.kind, delta.baseline),
            measure_text(delta.name, delta.kind, delta.candidate),
        )
        label = measure_name(delta.name)
        kind = "delta " + _VERDICT_KIND[delta.verdict]
        made.append(_card(label, change, values, delta.verdict, kind=kind))
    return made


def _result_charts(result: ExperimentResult) -> List[Tuple[str, str]]:
    drawn = [("Latency" + _LEGEND, _latency_chart(result))]
    for summary in result.metrics.values():
        drawn.append((markup(summary.name), _metric_chart(summary)))
    return drawn


_LEGEND = '<span class="legend"><i class="good"></i>succeeded<i class="bad"></i>failed</span>'


def _latency_chart(result: ExperimentResult) -> str:
    if result.latency is None:
        return ""
    known = [head for head in result.heads if head.latency_ms is not None]
    good = [head.latency_ms or 0.0 for head in known if head.status == "success"]
    bad = [head.latency_ms or 0.0 for head in known if head.status == "failed"]
    marks = {"p50": result.latency.p50, "p90": result.latency.p90}
    return draw.histogram(
        good, bad, marks, milliseconds, logarithmic=True, title="latency of the agent calls"
    )


def _metric_chart(summary: MetricSummary) -> str:
    if summary.kind == CATEGORY:
        return draw.horizontal_bars(summary.distribution, summary.n)
    if summary.kind == PASS_FAIL:
        passed = int(sum(summary.values))
        counts = {"pass": passed, "fail": len(summary.values) - passed}
        return draw.horizontal_bars(counts, len(summary.values), _PASS_FAIL_KINDS)
    marks = {"mean": summary.estimate.value} if summary.estimate else {}
    return draw.histogram(summary.values, (), marks, _digits, title=summary.name)


def _digits(value: float, more: int = 0) -> str:
    return "{:.{}g}".format(value, 3 + more)


_PASS_FAIL_KINDS = {"pass": "bar good", "fail": "bar bad"}


def _comparison_charts(comparison: Comparison) -> List[Tuple[str, str]]:
    drawn = []
    for candidate in comparison:
        caption = "{} against {}: change and interval, each on its own scale".format(
            candidate.name, comparison.baseline.name
        )
        drawn.append((markup(caption), draw.forest(list(candidate.deltas.values()))))
    series = [
        (side.name, [i.latency_ms for i in side.baseline.items if i.latency_ms is not None])
        for side in comparison.sides
    ]
    legend = "".join(
        '<i class="run{}"></i>{}'.format(place, markup(name))
        for place, (name, _) in enumerate(series)
    )
    caption = 'Latency, cumulative<span class="legend">{}</span>'.format(legend)
    drawn.append((caption, draw.cumulative(series, milliseconds)))
    return drawn


def _card(
    label: str, value: str, tail: str = "", told: str = "", extra: str = "", kind: str = ""
) -> str:
    return (
        '<div class="card {}"><p class="label">{}</p><p class="value">{}</p>'
        '<p class="tail">{}</p>{}<p class="told">{}</p></div>'
    ).format(kind, markup(label), markup(value), markup(tail), extra, markup(told))
