from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from results_builder import build, row

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.report.baseline import Baseline, export_baseline
from agentloop_experiment_sdk.report.compare import compare
from agentloop_experiment_sdk.report.files import write_report
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.html import render_html, write_html
from agentloop_experiment_sdk.report.pagedata import cut, script_json
from agentloop_experiment_sdk.report.summary import load_result

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\u2028 ]]>&lt;'\""


class Page(HTMLParser):
    """The elements of a page: (tag, attributes), and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self._open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._open = dict(attrs).get("id", "")
            self.scripts.setdefault(self._open, "")

    def handle_endtag(self, tag):
        if tag == "script":
            self._open = None

    def handle_data(self, data):
        if self._open is not None:
            self.scripts[self._open] += data

    def json(self, name):
        return json.loads(self.scripts[name])


def hostile_rows(n=60):
    rows = [row("q%d" % i, output="fine %d" % i, scores={"f": i / 60}) for i in range(n)]
    rows[0] = row(
        HOSTILE,
        status="failed",
        error=(HOSTILE, HOSTILE),
        output=HOSTILE,
        input={HOSTILE: HOSTILE},
        ground_truth=HOSTILE,
        trajectory=[{HOSTILE: HOSTILE}],
        meta={HOSTILE: HOSTILE},
        scores={"<b>": HOSTILE, "f": 0.5},
        usage={"input_tokens": 1, "model": HOSTILE},
    )
    return rows


@pytest.fixture
def result(tmp_path):
    names = {"name": HOSTILE, "total_tasks": 60}
    return load_result(build(tmp_path / "a", hostile_rows(), version=HOSTILE, benchmark=names))


def pages(result, tmp_path):
    other = build(tmp_path / "b", hostile_rows(59), version="v2", parameters={HOSTILE: HOSTILE})
    yield Page(render_html(result))
    yield Page(render_html(compare([result, other])))
    yield Page(render_html(gate(result, other, min_success_rate=1)))


def test_nothing_of_an_agent_becomes_markup(result, tmp_path):
    for page in pages(result, tmp_path):
        tags = {tag for tag, _ in page.elements}
        assert not tags & {"img", "b-", "iframe", "object", "link", "base", "form"}
        kinds = [attrs.get("type", "") for tag, attrs in page.elements if tag == "script"]
        assert kinds.count("") == 1 and set(kinds) == {"", "application/json"}
        assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_the_page_asks_for_nothing_from_anywhere(result, tmp_path):
    for page in pages(result, tmp_path):
        for tag, attrs in page.elements:
            assert not {"src", "href", "action", "style", "srcset"} & set(attrs), tag
    style = re.search("<style>(.*?)</style>", render_html(result), re.S).group(1)
    assert "url(" not in style and "@import" not in style


def test_the_policy_allows_this_style_and_this_script_alone(result):
    text = render_html(result)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text).group(1)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    script = re.search("<script>(.*?)</script>", text, re.S).group(1)
    style = re.search("<style>(.*?)</style>", text, re.S).group(1)
    for name, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode()
        assert rules[name] == "'sha256-{}'".format(digest)


def test_the_rows_are_whole_in_the_page(result):
    page = Page(render_html(result))
    index = page.json("index")
    assert index["kind"] == "result" and len(index["rows"]) == 60 and index["chunk"] == 50
    assert index["rows"][0][0] == HOSTILE
    first = page.json("chunk-0")[0]
    assert first["input"] == {HOSTILE: HOSTILE} and first["truth"] == HOSTILE
    answer = first["runs"][0]
    assert answer["output"] == HOSTILE and answer["trajectory"] == [{HOSTILE: HOSTILE}]
    assert answer["error"] == HOSTILE + ": " + HOSTILE
    assert answer["scores"]["<b>"]["result"] == HOSTILE and answer["meta"][HOSTILE] == HOSTILE
    assert len(page.json("chunk-1")) == 10 and "chunk-2" not in page.scripts


def test_a_comparison_has_a_cell_and_an_answer_per_run(tmp_path):
    old = build(tmp_path / "a", [row("x", output="1"), row("y"), row("z", status="failed")])
    new = build(tmp_path / "b", [row("x", output="2", status="failed"), row("z"), row("n")])
    third = build(tmp_path / "c", [row("x"), row("z", status="failed")])
    page = Page(render_html(compare([old, new, third], names=["A", "B", "C"])))
    index = page.json("index")
    rows = {line[0]: line for line in index["rows"]}
    assert index["runs"] == ["A", "B", "C"]
    assert [rows[name][6] for name in "xyzn"] == ["broken", "", "fixed", ""]
    assert [cell and cell[0] for cell in rows["x"][5]] == ["success", "failed", "success"]
    assert rows["y"][5][1:] == [None, None] and rows["n"][5][0] is None
    first = page.json("chunk-0")[0]
    assert [run["output"] for run in first["runs"]] == ["1", "2", "answer"]


def test_runs_of_one_name_are_told_apart_in_the_legend(tmp_path):
    runs = [build(tmp_path / name, [row("x")]) for name in "ab"]
    markup = render_html(compare(runs, names=["v", "v"]))
    assert '<i class="run0"></i>v<i class="run1"></i>v' in markup


def test_each_candidate_has_a_line_of_cards(tmp_path):
    runs = [build(tmp_path / name, [row("x")]) for name in "abc"]
    assert render_html(compare(runs)).count('<section class="cards">') == 2
    assert render_html(load_result(runs[0])).count('<section class="cards">') == 1


def test_an_item_that_one_run_breaks_and_another_fixes(tmp_path):
    def run(name, **passes):
        rows = [row("x", scores=passes)]
        return build(tmp_path / name, rows)

    runs = [run("a", em=True, f=False), run("b", em=False, f=True), run("c", em=False, f=False)]
    index = Page(render_html(compare(runs))).json("index")
    assert index["rows"][0][6] == "both"


def test_repeats_show_how_many_passed(tmp_path):
    rows = [row("x"), row("x", repeat="1", status="failed")]
    path = build(tmp_path, rows, repeats=2)
    index = Page(render_html(load_result(path))).json("index")
    assert index["repeats"] is True and [line[1] for line in index["rows"]] == ["0", "1"]
    cell = Page(render_html(compare([path, path]))).json("index")["rows"][0][5][0]
    assert cell[:3] == ["mixed", 1, 2]


def test_a_baseline_file_has_no_answers_to_show(tmp_path):
    result = load_result(build(tmp_path, [row("x")]))
    page = Page(render_html(compare([Baseline.of(result), result])))
    assert [run is None for run in page.json("chunk-0")[0]["runs"]] == [True, False]
    bare = Page(render_html(compare([Baseline.of(result), Baseline.of(result)])))
    assert bare.json("chunk-0") == [{"runs": [None, None]}]


def test_a_run_without_answers_has_a_page(tmp_path):
    result = load_result(build(tmp_path, [row("x", status="incomplete", input="text")]))
    page = Page(render_html(result))
    assert page.json("index")["rows"][0][5][0][0] == "incomplete"


def test_undelivered_and_unscored_rows_are_told_at_the_top(tmp_path):
    rows = [row("x", delivered=False, scores={"em": None}), row("y", scores={"em": 1})]
    text = render_html(load_result(build(tmp_path, rows)))
    assert "1 undelivered" in text and "1 unscored" in text


def test_a_very_long_value_is_cut_with_a_note(tmp_path):
    result = load_result(build(tmp_path, [row("x", output="a" * 500, input={"k": "b" * 500})]))
    payload = Page(render_html(result, max_chars=100)).json("chunk-0")[0]
    assert payload["runs"][0]["output"].startswith("a" * 100 + "\u2026 [400 more characters")
    assert payload["input"].startswith('{"k":"bbb')
    assert cut({"a": 1}, 100) == {"a": 1}


def test_json_in_a_script_element_keeps_its_value():
    value = {"k": HOSTILE, "&": [1, None, True]}
    text = script_json(value)
    assert not set(text) & set("<>&\u2028\u2029") and json.loads(text) == value


def test_the_page_is_written_whole_or_not_at_all(result, tmp_path):
    target = tmp_path / "report.html"
    write_html(result, target)
    assert target.read_text(encoding="utf-8") == render_html(result)
    with pytest.raises(ConfigurationError, match="a result, a comparison or a gate's verdict"):
        write_html(Baseline.of(result), target)
    assert target.read_text(encoding="utf-8") == render_html(result)
    with pytest.raises(OSError):
        write_html(result, tmp_path / "no" / "folder.html")
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(OSError):
        write_html(result, tmp_path / "taken.html")
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".tmp"] == []


def gated(tmp_path):
    scores = [{"em": 1}, {"em": 1}, {"em": 0}]
    old = [
        row("q%d" % n, output="old", scores=s, repeat=r) for n, s in enumerate(scores) for r in "0"
    ]
    new = [row("q0", output="new", scores={"em": 1}), row("q2", output="new", scores={"em": 1})]
    new.insert(1, row("q1", status="failed", error=("Boom", "<b>no</b>"), output=""))
    return build(tmp_path / "old", old), build(tmp_path / "new", new)


def test_the_gates_page_has_the_verdict_and_what_changed(tmp_path):
    old, new = gated(tmp_path)
    text = render_html(gate(load_result(new), old, max_regressions=0, min_success_rate=0.9))
    page = Page(text)
    assert '<section class="gate bad"><h2>Gate failed</h2>' in text
    assert "<li>1 item no longer passes (at most 0 allowed): q1</li>" in text
    assert "<li>success rate 66.67% is below 90.00%</li>" in text
    assert "<h3>Newly broken (1)</h3>" in text and "<h3>Newly fixed (1)</h3>" in text
    assert text.index("Gate failed") < text.index('class="cards"') < text.index('id="index"')
    assert [(line[0], line[6]) for line in page.json("index")["rows"]] == [
        ("q0", ""),
        ("q1", "broken"),
        ("q2", "fixed"),
    ]


def test_a_gate_that_passed_says_so_and_one_without_baseline_marks_nothing(tmp_path):
    old, _ = gated(tmp_path)
    text = render_html(gate(load_result(old)))
    assert '<section class="gate good"><h2>Gate passed</h2></section>' in text
    assert {line[6] for line in Page(text).json("index")["rows"]} == {""}
    assert "gate" not in render_html(load_result(old)).partition("</style>")[2]


def test_control_characters_stay_out_of_the_markup(tmp_path):
    name = "\x1b[31m\x00\x9b\u202ered"
    rows = [row("q", usage={"input_tokens": 1, "output_tokens": 1, "model": name})]
    result = load_result(build(tmp_path, rows, record_name=name, version=name))
    for text in (render_html(result), render_html(compare([result, result], names=[name, "b"]))):
        assert not set(text) & set("\x1b\x00")
        assert not set(text.partition('<script type="application/json"')[0]) & set("\x9b\u202e")


def test_a_page_that_cannot_be_written_is_refused_by_the_name_that_was_given(tmp_path):
    result = load_result(build(tmp_path / "run", [row("a")]))
    gone = tmp_path / "gone" / "report"
    for write in (write_html, write_report, export_baseline):
        ending = ".json" if write is export_baseline else ".html"
        for path, kind in ((str(gone) + ending, FileNotFoundError), (str(tmp_path), OSError)):
            if write is write_report and path == str(tmp_path):
                continue  # a name without an ending is refused before
            with pytest.raises(kind) as caught:
                write(result, path)
            assert caught.value.filename == path and ".tmp" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="folder of this file does not exist"):
        write_report(result, str(gone) + ".md")
