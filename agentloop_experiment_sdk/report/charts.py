"""Charts as inline SVG: plain markup, coloured by the page's style sheet through classes."""

from __future__ import annotations

import math
from typing import Callable, List, Mapping, Protocol, Sequence, Tuple

from ..lines import counted
from .deltas import MetricDelta
from .sections import markup, measure_name, number, shorten, signed, signed_interval

WIDTH, WIDE, HEIGHT = 360, 560, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 18, 26
_BINS = 28
_NO_KINDS: Mapping[str, str] = {}

# as wide as a character of a tick or a mark may be, and the room between two of them
_CHAR, _SPACE = 6.6, 6.0
_FINEST_MS = 0.001
_WIDENED = 1.1

Bar = Tuple[float, float, int, int]  # from, to, count of the first kind, count of the second


class Label(Protocol):
    """A value as text; with ``more`` digits than usual where texts would be equal."""

    def __call__(self, value: float, more: int = 0, /) -> str:
        """The text."""
        ...


def histogram(
    good: Sequence[float],
    bad: Sequence[float],
    marks: Mapping[str, float],
    label: Label,
    *,
    logarithmic: bool = False,
    title: str = "",
) -> str:
    """Bars of how often values occur, the second kind stacked on the first.

    Args:
        good, bad: The values of the two kinds, such as latencies of succeeded and failed rows.
        marks: Name to a value at which a line is drawn.
        label: A value as text, for ticks and tooltips.
        logarithmic: Whether bins grow by a factor; for times, whose tail is long.
        title: What a screen reader says.
    """
    bars = _bars(good, bad, logarithmic)
    if not bars:
        return ""
    most = max(bar[2] + bar[3] for bar in bars)
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    step = plot_width / len(bars)
    parts = [_y_axis(most, plot_height)]
    for place, bar in enumerate(bars):
        parts += _stack(_LEFT + place * step, step, bar, most, plot_height, label)
    at = _position(bars, logarithmic)
    parts += _marks({name: _LEFT + at(value) * plot_width for name, value in marks.items()})
    edges = [bar[0] for bar in bars] + [bars[-1][1]]
    parts += _x_ticks([edges[place] for place in _quarters(len(bars))], plot_width, label)
    return _svg(parts, title)


def horizontal_bars(
    counts: Mapping[str, int], total: int, kinds: Mapping[str, str] = _NO_KINDS
) -> str:
    """A bar per name with its count; at most eight, the rest as one; ``kinds`` colours names."""
    rows = list(counts.items())
    if not rows:
        return ""
    if len(rows) > 8:
        rows = rows[:7] + [("other", sum(count for _, count in rows[7:]))]
    parts = []
    most = total or max(count for _, count in rows)
    for place, (name, count) in enumerate(rows):
        parts += _row_bar(place, name, count, most, total, kinds.get(name, "bar"))
    return _svg(parts, "", height=len(rows) * 34 + 4)


def forest(deltas: Sequence[MetricDelta]) -> str:
    """The change of each measure with its interval, every measure on its own scale around 0."""
    parts: List[str] = []
    middle, half = WIDE * 0.6, WIDE * 0.24
    parts.append(_line(middle, 4, middle, len(deltas) * 34, "zero"))
    for place, delta in enumerate(deltas):
        parts += _forest_row(delta, 22 + place * 34, middle, half)
    return _svg(parts, "change per measure", height=len(deltas) * 34 + 8, width=WIDE)


def cumulative(series: Sequence[Tuple[str, Sequence[float]]], label: Label) -> str:
    """The share of rows up to each value, a line per (run's name, values), on a logarithmic axis.

    The n-th run has the n-th colour, whether or not those before it have values.
    """
    lines = [(name, sorted(value for value in values if value > 0)) for name, values in series]
    ends = [end for _, values in lines for end in values[:1] + values[-1:]]
    if not ends:
        return ""
    low, high = _log_range(ends)
    plot_width, plot_height = WIDE - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    parts = [_share_axis(plot_height)]
    parts += _x_ticks(_log_ticks(low, high), plot_width, label)
    for index, (name, values) in enumerate(lines):
        if not values:
            continue
        points = _steps(values, low, high, plot_width, plot_height)
        parts.append(
            '<polyline class="line run{}" points="{}"><title>{}</title></polyline>'.format(
                index, points, markup(name)
            )
        )
    return _svg(parts, "cumulative share of rows", width=WIDE)


def _steps(
    values: Sequence[float], low: float, high: float, plot_width: float, plot_height: float
) -> str:
    """At most 200 points of the cumulative share: a finer line cannot be seen."""
    count = len(values)
    places = sorted({round(index * (count - 1) / 199) for index in range(200)})
    points = []
    for place in places:
        across = _LEFT + _log_share(values[place], low, high) * plot_width
        up = _TOP + (1 - (place + 1) / count) * plot_height
        points.append("{:.1f},{:.1f}".format(across, up))
    return " ".join(points)


def _bars(good: Sequence[float], bad: Sequence[float], logarithmic: bool) -> List[Bar]:
    values = list(good) + list(bad)
    if not values:
        return []
    ends = _log_range(values) if logarithmic else (min(values), max(values))
    edges = _edges(*ends, logarithmic)
    bars = []
    counts = [_binned(kind, edges) for kind in (good, bad)]
    for place in range(len(edges) - 1):
        bars.append((edges[place], edges[place + 1], counts[0][place], counts[1][place]))
    return bars


def _edges(low: float, high: float, logarithmic: bool) -> List[float]:
    if logarithmic:
        return [low * (high / low) ** (place / _BINS) for place in range(_BINS + 1)]
    if high <= low:
        margin = max(0.5, abs(low) * 0.01)  # half a unit is lost beside a very large number
        low, high = low - margin, high + margin
    return [low + (high - low) * place / _BINS for place in range(_BINS + 1)]


def _log_range(values: Sequence[float]) -> Tuple[float, float]:
    """From the least to the largest value above 0, widened where they are nearly equal."""
    shown = [value for value in values if value >= _FINEST_MS] or [_FINEST_MS]
    low, high = min(shown), max(shown)
    middle = math.sqrt(low) * math.sqrt(high)
    return min(low, middle / _WIDENED), max(high, middle * _WIDENED)


def _binned(values: Sequence[float], edges: Sequence[float]) -> List[int]:
    counts = [0] * (len(edges) - 1)
    place = 0
    for value in sorted(values):
        while place < len(counts) - 1 and value >= edges[place + 1]:
            place += 1
        counts[place] += 1
    return counts


def _position(bars: Sequence[Bar], logarithmic: bool) -> Callable[[float], float]:
    low, high = bars[0][0], bars[-1][1]
    if logarithmic:
        return lambda value: _log_share(min(max(value, low), high), low, high)
    return lambda value: (value - low) / (high - low)


def _log_share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _log_ticks(low: float, high: float) -> List[float]:
    return [low * (high / low) ** (place / 4) for place in range(5)]


def _stack(
    left: float, step: float, bar: Bar, most: int, plot_height: float, label: Label
) -> List[str]:
    start, end, good, bad = bar
    tip = "{} to {}: {}".format(label(start), label(end), counted(good + bad, "row"))
    if bad:
        tip += ", {} of them failed".format(bad)
    base = _TOP + plot_height
    rects = []
    for kind, count in (("bar", good), ("bar bad", bad)):
        height = count / most * plot_height
        if count:
            rects.append(_rect(left + 0.75, base - height, step - 1.5, height, kind, tip))
            base -= height
    return rects


def _y_axis(most: int, plot_height: float) -> str:
    parts = []
    for count in sorted({most // 2, most} - {0}):
        up = _TOP + (1 - count / most) * plot_height
        parts.append(_line(_LEFT, up, WIDTH - _RIGHT, up, "grid"))
        parts.append(_text(_LEFT - 6, up + 4, number(count), "tick end"))
    base = _TOP + plot_height
    parts.append(_line(_LEFT, base, WIDTH - _RIGHT, base, "axis"))
    return "".join(parts)


def _share_axis(plot_height: float) -> str:
    parts = []
    for share in (0.0, 0.5, 0.9, 1.0):
        up = _TOP + (1 - share) * plot_height
        parts.append(_line(_LEFT, up, WIDE - _RIGHT, up, "axis" if share == 0 else "grid"))
        if share != 1.0:
            parts.append(_text(_LEFT - 6, up + 4, "{:.0%}".format(share), "tick end"))
    return "".join(parts)


def _quarters(last: int) -> List[int]:
    return [round(share * last) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]


def _x_ticks(values: Sequence[float], plot_width: float, label: Label) -> List[str]:
    """Ticks at the five ``values``, which stand at equal distances; fewer where texts are long."""
    for step in (1, 2, 4):
        texts = _distinct(values[::step], label)
        gap = plot_width * step / 4
        # the outer two are within the plot, so they reach further towards their neighbours
        if len(texts) < 3 or _CHAR * max(map(len, texts)) * 1.5 + _SPACE <= gap:
            break
    ticks = []
    for place, text in enumerate(texts):
        align = {0: "", len(texts) - 1: " end"}.get(place, " middle")
        ticks.append(_text(_LEFT + place * gap, HEIGHT - 8, text, "tick" + align))
    return ticks


def _distinct(values: Sequence[float], label: Label) -> List[str]:
    """The texts of different values, with as many digits as it takes for them to differ."""
    texts = [label(value) for value in values]
    for more in range(1, 13):
        if len(set(texts)) == len(texts):
            break
        texts = [label(value, more) for value in values]
    return texts


def _marks(marks: Mapping[str, float]) -> List[str]:
    """Lines at places across, with their names beside each other."""
    parts, right = [], _LEFT - _SPACE
    placed = []
    for name, across in sorted(marks.items(), key=lambda mark: mark[1]):
        parts.append(_line(across, _TOP - 4, across, HEIGHT - _BOTTOM, "mark"))
        width = _CHAR * len(name)
        left = max(across - width / 2, right + _SPACE)
        right = left + width
        placed.append((name, left, width))
    limit: float = WIDTH
    for name, left, width in reversed(placed):
        left = min(left, limit - width)
        limit = left - _SPACE
        parts.append(_text(left + width / 2, _TOP - 7, name, "mark-label middle"))
    return parts


def _row_bar(place: int, name: str, count: int, most: int, total: int, kind: str) -> List[str]:
    top = place * 34
    share = " ({:.1%})".format(count / total) if total else ""
    parts = [
        _text(2, top + 13, shorten(name, 36), "label"),
        _text(WIDTH - 2, top + 13, number(count) + share, "tick end"),
        _rect(2, top + 19, WIDTH - 4, 8, "track", ""),
    ]
    if count:
        width = max(2.0, count / most * (WIDTH - 4))
        parts.append(_rect(2, top + 19, width, 8, kind, "{}: {}".format(name, count)))
    return parts


def _forest_row(delta: MetricDelta, middle_y: float, middle: float, half: float) -> List[str]:
    estimate = delta.delta
    scale = max(abs(estimate.low), abs(estimate.high), abs(estimate.value)) or 1.0
    low, high, value = (
        middle + bound / scale * half for bound in (estimate.low, estimate.high, estimate.value)
    )
    kind = "delta " + delta.verdict.replace(" ", "-")
    tip = signed_interval(delta.name, delta.kind, estimate.low, estimate.high)
    return [
        _text(2, middle_y + 4, shorten(measure_name(delta.name), 26), "label"),
        _line(low, middle_y, high, middle_y, kind),
        '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="5"><title>{}</title></circle>'.format(
            kind, value, middle_y, markup(tip)
        ),
        _text(WIDE - 2, middle_y + 4, signed(delta.name, delta.kind, estimate.value), "tick end"),
    ]


def _rect(left: float, top: float, width: float, height: float, kind: str, tip: str) -> str:
    title = "<title>{}</title>".format(markup(tip)) if tip else ""
    return (
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1.5">{}</rect>'
    ).format(kind, left, top, max(0.5, width), max(0.5, height), title)


def _line(left: float, top: float, right: float, bottom: float, kind: str) -> str:
    return '<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(
        kind, left, top, right, bottom
    )


def _text(left: float, top: float, text: str, kind: str) -> str:
    return '<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>'.format(kind, left, top, markup(text))


def _svg(parts: Sequence[str], title: str, height: float = HEIGHT, width: float = WIDTH) -> str:
    return '<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>'.format(
        width, height, markup(title), "".join(parts)
    )
