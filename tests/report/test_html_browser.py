"""The HTML report in a real browser."""

from __future__ import annotations

import browser as chromium
import pytest
from results_builder import build, row

from agentloop_experiment_sdk.report.baseline import Baseline
from agentloop_experiment_sdk.report.compare import compare
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.html import write_html
from agentloop_experiment_sdk.report.summary import load_result

HOSTILE = (
    "</script><script>window.hacked=1</script><!--<img src=x onerror='window.hacked=1'>"
    '"><svg onload=window.hacked=1> {{7*7}} javascript:window.hacked=1'
)


@pytest.fixture(scope="module")
def browser():
    reason = chromium.missing()
    if reason:
        pytest.skip("the page is not opened in a browser: " + reason)
    with chromium.Browser() as opened:
        yield opened


def hostile(n, seed=0):
    for i in range(n):
        facts = {"scores": {"em": i % 7 != seed, "f": (i % 10) / 10}, "output": "answer %d" % i}
        if i % 50 == 3:
            facts = {"status": "failed", "error": ("Boom", HOSTILE), "output": HOSTILE}
        facts["input"] = {"id": i, "question": HOSTILE if i % 50 == 3 else "what is %d" % i}
        yield row(
            HOSTILE if i == 3 else "q%d" % i, latency_ms=10.0 + i, trajectory=[HOSTILE], **facts
        )


def page(tmp_path, subject):
    write_html(subject, tmp_path / "page.html")
    return (tmp_path / "page.html").as_uri()


def severe(browser):
    return [entry for entry in browser.console() if entry["level"] in ("SEVERE", "WARNING")]


CLICK = "document.querySelectorAll(arguments[0])[arguments[1]].click()"
ROWS = "return [...document.querySelectorAll('.grid-row')].map(r => r.firstChild.textContent)"


def filter_button(browser, label):
    browser.run(
        "[...document.querySelectorAll('#filters button')]"
        ".find(b => b.firstChild.textContent === arguments[0]).click()",
        label,
    )


def search(browser, text):
    browser.run(
        "const s = document.getElementById('search'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))",
        text,
    )


def test_hostile_answers_stay_text(browser, tmp_path):
    result = load_result(build(tmp_path / "r", hostile(60), version=HOSTILE))
    browser.open(page(tmp_path, result))
    filter_button(browser, "failed")
    assert browser.run(ROWS) == [HOSTILE, "q53"]
    browser.run(CLICK, ".grid-row", 0)
    shown = browser.run(
        "return [...document.querySelectorAll('#detail pre')].map(p => p.textContent)"
    )
    assert HOSTILE in shown and "Boom: " + HOSTILE in shown
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.querySelectorAll('img, iframe, svg[onload]').length") == 0
    assert severe(browser) == []


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_rows_paint_at_once_and_only_those_in_view_are_drawn(browser, tmp_path, count):
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", hostile(count)))))
    # the browser notes a paint a moment after the script has run
    paint = browser.until(
        "const [paint] = performance.getEntriesByName('first-contentful-paint');"
        "return paint && paint.startTime"
    )
    print("first paint of {:,} rows after {:.0f} ms".format(count, paint))
    assert paint > 0
    assert len(browser.run(ROWS)) < 100
    browser.run("const g = document.getElementById('grid'); g.scrollTop = g.scrollHeight")
    browser.until(ROWS.replace("return ", "return (") + ").includes('q%d')" % (count - 1))
    assert len(browser.run(ROWS)) < 100
    search(browser, "answer %d" % (count - 7))
    browser.until(ROWS.replace("return ", "return (") + ").join() === 'q%d'" % (count - 7))
    shown = browser.run("return document.getElementById('shown').textContent")
    assert shown == "1 of {:,}".format(count)
    browser.run(CLICK, ".grid-row", 0)
    detail = browser.run("return document.getElementById('detail').textContent")
    assert "answer %d" % (count - 7) in detail
    search(browser, "no row says this")
    browser.until("return !!document.querySelector('.empty')")
    assert severe(browser) == []


def test_texts_that_no_preview_shows_are_searched_too(browser, tmp_path):
    rows = [row("q%d" % i, output="x" * 5000 + " needle-%d" % i) for i in range(200)]
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", rows))))
    search(browser, "Needle-150")
    browser.until(ROWS.replace("return ", "return (") + ").join() === 'q150'")


def test_columns_sort_down_up_and_back(browser, tmp_path):
    rows = [row("q%d" % i, latency_ms=float((i * 37) % 100)) for i in range(12)]
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", rows))))
    place = browser.run(
        "return [...document.querySelectorAll('.grid-head button')]"
        ".findIndex(b => b.textContent === 'latency')"
    )
    slow = "return document.querySelector('.grid-row').children[arguments[0]].textContent"
    browser.run(CLICK, ".grid-head button", place)
    assert browser.run(slow, place) == "96 ms"
    browser.run(CLICK, ".grid-head button", place)
    assert browser.run(slow, place) == "0 ms"
    browser.run(CLICK, ".grid-head button", place)
    assert browser.run(ROWS)[:2] == ["q0", "q1"]


def test_a_traceback_is_shown_line_by_line(browser, tmp_path):
    traceback = 'Traceback (most recent call last):\n  File "agent.py", line 1\n'
    rows = [row("q", status="failed", meta={"traceback": traceback, "retries": 2})]
    run = build(tmp_path / "r", rows)
    for subject in (load_result(run), compare([run, run])):
        browser.open(page(tmp_path, subject))
        browser.run(CLICK, ".grid-row", 0)
        blocks = browser.run(
            "return [...document.querySelectorAll('#detail pre')].map(p => p.textContent)"
        )
        assert traceback in blocks
        assert '"retries": 2' in blocks[-1] and "Traceback" not in blocks[-1]


def test_an_answer_that_a_run_does_not_hold_is_no_empty_answer(browser, tmp_path):
    run = build(tmp_path / "r", [row("q", output="one\ntwo")])
    browser.open(page(tmp_path, compare([Baseline.of(load_result(run)), run])))
    browser.run(CLICK, ".grid-row", 0)
    shown = browser.run(
        "return [...document.querySelectorAll('.diff div:not(.name)')]"
        ".map(node => [node.className, node.textContent])"
    )
    assert shown == [["gap", "no answer here"], ["", "one\ntwo"]]


def test_a_score_of_one_is_good_only_where_it_is_a_pass(browser, tmp_path):
    """On a scale from 1 to 5 it is the worst."""
    scores = [{"passed": 1, "stars": 1}, {"passed": 0, "stars": 5}]
    rows = [row("q%d" % i, scores=found) for i, found in enumerate(scores)]
    run = build(tmp_path / "r", rows)
    good = "return [...document.querySelectorAll('.score-pass')].map(node => node.textContent)"
    browser.open(page(tmp_path, load_result(run)))
    assert browser.run(good) == ["1"]
    browser.open(page(tmp_path, compare([run, run])))
    assert browser.run(good) == ["1", "1"]


def test_the_keyboard_walks_through_the_rows(browser, tmp_path):
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", hostile(10)))))
    press = (
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown',"
        "{key: arguments[0], bubbles: true}))"
    )
    title = "return document.querySelector('#detail h2').textContent"
    browser.run("document.getElementById('grid').focus()")
    browser.run(press, "Enter")
    assert browser.run(title) == "q0"
    browser.run(press, "j")
    browser.run(press, "ArrowDown")
    assert browser.run(title) == "q2" and browser.run("return location.hash") == "#q2"
    browser.run(press, "ArrowUp")
    assert browser.run(title) == "q1"
    browser.run(press, "Escape")
    assert browser.run("return document.getElementById('detail').hidden")
    browser.run(press, "/")
    assert browser.run("return document.activeElement.id") == "search"


def test_a_link_with_an_items_name_opens_it(browser, tmp_path):
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", hostile(10)))) + "#q7")
    assert browser.run("return document.querySelector('#detail h2').textContent") == "q7"


def test_light_and_dark_differ_and_can_be_switched(browser, tmp_path):
    browser.open(page(tmp_path, load_result(build(tmp_path / "r", hostile(5)))))
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(colour)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) != before
    assert browser.screenshot().startswith(b"\x89PNG")


def test_a_comparison_shows_both_answers_side_by_side(browser, tmp_path):
    def run(name, word):
        rows = [row("q%d" % i, output="first line\nthe %s answer\nlast" % word) for i in range(3)]
        rows.append(row("h", output=HOSTILE + word, status="success"))
        return build(tmp_path / name, rows, version=name)

    comparison = compare([run("one", "old"), run("two", "new"), run("three", "third")])
    browser.open(page(tmp_path, comparison))
    browser.run(CLICK, ".grid-row", 0)
    text = (
        "return [...document.querySelectorAll('.diff > div')]"
        ".map(d => [d.className, d.textContent])"
    )
    assert browser.run(text) == [
        ["name", "one"],
        ["name", "two"],
        ["", "first line"],
        ["", "first line"],
        ["gone", "the old answer"],
        ["came", "the new answer"],
        ["", "last"],
        ["", "last"],
    ]
    marked = "return [...document.querySelectorAll('.diff mark')].map(m => m.textContent)"
    assert browser.run(marked) == ["old", "new"]
    browser.run(
        "const s = document.querySelectorAll('.pickers select')[1]; s.value = 2;"
        "s.dispatchEvent(new Event('change'))"
    )
    assert browser.run(marked) == ["old", "third"]
    browser.run(CLICK, ".grid-row", 3)
    assert browser.run("return window.hacked === undefined")
    assert severe(browser) == []


def test_lines_that_only_one_answer_has_leave_a_gap_beside_them(browser, tmp_path):
    old = build(tmp_path / "a", [row("x", output="a\nb\nc")])
    new = build(tmp_path / "b", [row("x", output="a\nc\nd")])
    browser.open(page(tmp_path, compare([old, new])))
    browser.run(CLICK, ".grid-row", 0)
    kinds = "return [...document.querySelectorAll('.diff > div')].slice(2).map(d => d.className)"
    assert browser.run(kinds) == ["", "", "gone", "gap", "", "", "gap", "came"]


def test_the_gates_page_shows_the_verdict_and_filters_what_broke(browser, tmp_path):
    old = build(tmp_path / "old", [row("q%d" % i, scores={"em": 1}) for i in range(9)])
    rows = [row("q%d" % i, scores={"em": int(i % 4 != 1)}, output=HOSTILE) for i in range(9)]
    result = load_result(build(tmp_path / "new", rows, record_name=HOSTILE))
    browser.open(page(tmp_path, gate(result, old, max_regressions=0)))
    seen = browser.run(
        "const g = document.querySelector('.gate');"
        "return [g.innerText, getComputedStyle(g).backgroundColor, g.getBoundingClientRect().top]"
    )
    assert seen[0].startswith("Gate failed") and "2 items no longer pass" in seen[0]
    assert seen[1] != "rgba(0, 0, 0, 0)" and seen[2] < 400
    filter_button(browser, "broken")
    assert browser.run(ROWS) == ["q1", "q5"]
    pills = (
        "return [...document.querySelectorAll('.grid-row .pill.broken')].map(p => p.textContent)"
    )
    assert browser.run(pills) == ["broken", "broken"]
    assert browser.run("return window.hacked === undefined")
    assert severe(browser) == []


def test_the_table_is_as_high_as_its_rows_up_to_a_maximum(browser, tmp_path):
    height = "return document.getElementById('grid').getBoundingClientRect().height"
    heights = {}
    for count in (3, 300):
        browser.open(page(tmp_path, load_result(build(tmp_path / str(count), hostile(count)))))
        heights[count] = browser.run(height)
        search(browser, "no row says this")
        browser.until("return !!document.querySelector('.empty')")
        assert browser.run(
            "const e = document.querySelector('.empty').getBoundingClientRect();"
            "return e.bottom <= document.getElementById('grid').getBoundingClientRect().bottom + 1"
        )
        search(browser, "")
        browser.until("return !document.querySelector('.empty')")
        assert browser.run(height) == heights[count]
    assert 3 * 38 <= heights[3] <= 3 * 38 + 60 and 400 < heights[300] <= 760


def test_a_comparison_fits_into_1200_pixels_and_cuts_no_number(browser, tmp_path):
    def run(name, latency):
        rows = [
            row("q%d" % i, latency_ms=latency, scores={"exact_match": True, "f": 0.472 + i / 1000})
            for i in range(3)
        ]
        return build(
            tmp_path / name, rows, version="", record_name="local plan of questions " + name
        )

    browser.resize(1200, 900)
    try:
        browser.open(page(tmp_path, compare([run("old", 0.113), run("new", 12345.0)])))
        assert browser.run(
            "const g = document.getElementById('grid');return g.scrollWidth <= g.clientWidth"
        )
        heads = browser.run(
            "return [...document.querySelectorAll('.grid-head button')].map(b => b.textContent)"
        )
        assert heads[1:3] == ["old", "new"] and heads[-2:] == ["input", "output"]
        assert (
            browser.run(
                "return [...document.querySelectorAll('.grid-row .num')]"
                ".filter(n => n.scrollWidth > n.clientWidth).length"
            )
            == 0
        )
    finally:
        browser.resize(1440, 1000)
