from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from agentloop_experiment_sdk.report import charts
from agentloop_experiment_sdk.report.deltas import delta_of


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
