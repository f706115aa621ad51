from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from agentloop_experiment_sdk.report import charts
from agentloop_experiment_sdk.report.deltas import delta_of
from agentloop_experiment_sdk.report.sections import milliseconds


def drawn(svg, tag):
    return list(ElementTree.fromstring(svg).iter(tag))


def test_a_histogram_counts_every_value_once():
    svg = charts.histogram([1.0] * 5 + [50.0], [100.0] * 2, {"p50": 1.0}, "{:.0f}".format)
    rows = [int(t.text.split(": ")[1].split()[0]) for t in drawn(svg, "title")]
    assert sorted(rows) == [1, 2, 5]
    assert [t.text for t in drawn(svg, "text") if "mark-label" in t.get("class")] == ["p50"]
    assert any("2 of them failed" in t.text for t in drawn(svg, "title"))


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [0.0, 1e9], [-3.0, 4.0]])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_any_values_can_be_drawn(values, logarithmic):
    svg = charts.histogram(values, (), {"m": values[0]}, str, logarithmic=logarithmic)
    for node in drawn(svg, "rect"):
        assert 0 <= float(node.get("x")) <= charts.WIDTH
        assert 0 <= float(node.get("y")) <= charts.HEIGHT


def test_nothing_to_draw_is_no_chart():
    assert charts.histogram([], [], {}, str) == ""
    assert charts.horizontal_bars({}, 0) == ""
    assert charts.cumulative([("a", []), ("b", [0.0])], str) == ""


def test_many_names_become_one_bar_of_others():
    svg = charts.horizontal_bars({"e%d" % i: 20 - i for i in range(12)}, 0)
    labels = [t.text for t in drawn(svg, "text") if t.get("class") == "label"]
    assert len(labels) == 8 and labels[-1] == "other"


def test_a_forest_shows_each_change_by_its_verdict():
    worse = delta_of("f", [(i, 1.0, 0.0) for i in range(40)], pass_fail=True)
    same = delta_of("g", [(i, 1.0, 1.0) for i in range(40)])
    svg = charts.forest([worse, same])
    assert [c.get("class") for c in drawn(svg, "circle")] == ["delta worse", "delta no-evidence"]


def test_cumulative_lines_rise_to_the_top_with_few_points():
    series = [("a", [float(i) for i in range(1, 5000)]), ("b", [7.0])]
    svg = charts.cumulative(series, "{:.0f}".format)
    lines = drawn(svg, "polyline")
    assert len(lines) == 2
    points = [tuple(map(float, p.split(","))) for p in lines[0].get("points").split()]
    assert len(points) <= 200 and points == sorted(points, key=lambda p: (p[0], -p[1]))
    assert points[-1][1] == pytest.approx(18)


def test_a_run_keeps_its_colour_when_those_before_it_have_no_values():
    svg = charts.cumulative([("same", []), ("same", [1.0, 2.0]), ("same", [3.0])], str)
    assert [line.get("class") for line in drawn(svg, "polyline")] == ["line run1", "line run2"]


def test_what_never_occurs_has_no_bar():
    svg = charts.horizontal_bars({"pass": 3, "fail": 0}, 3, {"pass": "good", "fail": "bad"})
    assert [bar.get("class") for bar in drawn(svg, "rect")] == ["track", "good", "track"]


def test_names_are_escaped():
    svg = charts.horizontal_bars({'<img src=x onerror="a()">': 1}, 1)
    assert "<img" not in svg


def test_equal_values_of_any_size_have_a_bar():
    for value in (0.0, -1.0, 1e17, 1e300, -1e300):
        assert "<rect" in charts.histogram([value] * 3, (), {"mean": value}, str, title="t")


def times(good, label=milliseconds, marks=None):
    return charts.histogram(good, [], marks or {}, label, logarithmic=True)


def spans(svg, kind):
    """(left, right) of the texts of a kind, with wide characters."""
    found = []
    for text in drawn(svg, "text"):
        names = text.get("class").split()
        if names[0] == kind and not (kind == "tick" and text.get("y") != "162.0"):
            width, at = 6.4 * len(text.text), float(text.get("x"))
            left = at - (width if "end" in names else width / 2 if "middle" in names else 0)
            found.append((left, left + width))
    return sorted(found)


def ticks(svg):
    return [t.text for t in drawn(svg, "text") if t.get("y") == "162.0"]


def test_times_far_below_a_millisecond_stand_where_they_belong():
    svg = times([0.018, 0.043, 0.9], marks={"p50": 0.043})
    assert [t.text.split(" to ")[0] for t in drawn(svg, "title")] == [
        "0.018 ms",
        "0.042 ms",
        "0.78 ms",
    ]
    assert (ticks(svg)[0], ticks(svg)[-1]) == ("0.018 ms", "0.9 ms")


@pytest.mark.parametrize(
    "values",
    [
        [0.02] * 5,
        [0.1, 0.1, 0.11],
        [0.0, 0.0],
        [0.0, 3.0],
        [1000.0, 1000.4],
        [999.0, 1001.0],
        [12_000.0, 12_001.0],
        [0.0184, 400_000.0],
        [5.0] * 9 + [5.05],
    ],
)
def test_ticks_differ_and_no_labels_overlap(values):
    mark = {"p50": sorted(values)[len(values) // 2], "p90": max(values)}
    drawings = [
        times(values, marks=mark),
        charts.cumulative([("a", values), ("b", values)], milliseconds),
        charts.histogram(
            values, [], {"mean": values[0]}, lambda v, more=0: "{:.{}g}".format(v, 3 + more)
        ),
    ]
    for svg in drawings:
        if svg:
            texts = ticks(svg)
            assert len(set(texts)) == len(texts) >= 2
            for kind in ("tick", "mark-label"):
                placed = spans(svg, kind)
                assert all(one[1] <= two[0] for one, two in zip(placed, placed[1:])), placed
                assert all(left >= 40 for left, _ in placed)


def test_the_tick_in_the_middle_stands_at_its_count():
    svg = times([1.0] * 5)
    counts = {t.text: float(t.get("y")) for t in drawn(svg, "text") if t.get("y") != "162.0"}
    assert counts == {"5": 22.0, "2": pytest.approx(22 + 0.6 * 126, abs=0.1)}
