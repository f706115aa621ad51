from __future__ import annotations

import json

import pytest
from results_builder import build, row

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.report import sections
from agentloop_experiment_sdk.report.baseline import Baseline
from agentloop_experiment_sdk.report.compare import compare
from agentloop_experiment_sdk.report.files import write_report
from agentloop_experiment_sdk.report.gate import gate
from agentloop_experiment_sdk.report.html import render_html, write_html
from agentloop_experiment_sdk.report.jsonreport import render_json
from agentloop_experiment_sdk.report.junit import render_junit
from agentloop_experiment_sdk.report.markdown import render_markdown
from agentloop_experiment_sdk.report.statistics import Estimate
from agentloop_experiment_sdk.report.summary import ExperimentResult, load_result
from agentloop_experiment_sdk.report.text import display_width, render_text

HOSTILE = "\x1b[31mred\x07 \u202egpj.exe | `code` <script>alert(1)</script> @team ![x](http://e/x)"
USAGE = {"input_tokens": 1200, "output_tokens": 300, "model": "qwen"}


def run(root, broken=(), **meta):
    rows = []
    for i in range(25):
        facts = {"scores": {"em": i not in broken, "f": i / 25, "tone": "kind"}, "usage": USAGE}
        if i == 7:
            facts = {"status": "failed", "error": ("Hostile", HOSTILE)}
        rows.append(row("q%d" % i, latency_ms=900.0 + i * 10, ttft_ms=50, **facts))
    rows += [row("s", status="skipped"), row("i", status="incomplete")]
    return build(root, rows, **meta)


@pytest.fixture
def result(tmp_path):
    return load_result(run(tmp_path / "a", version="v1"))


@pytest.fixture
def comparison(tmp_path, result):
    new = run(tmp_path / "b", range(10, 18), version="v2", parameters={"prompt": "x" * 500})
    return compare([result, new])


@pytest.fixture
def verdict(tmp_path, comparison):
    return gate(comparison[0].candidate.result, comparison.baseline.result, max_regressions=3)


def test_the_text_tells_what_a_run_came_to(result):
    text = render_text(result, width=100)
    assert "27 rows, 24 succeeded, 1 failed, 1 skipped, 1 incomplete" in text
    assert "record record-1, dataset faq, version v1, status completed" in text
    assert "p50 1.02 s" in text and "p90 1.12 s" in text and "p50 50 ms" in text
    assert "success rate" in text and "96.0%" in text
    assert "qwen" in text and "28,800" in text
    assert "Hostile" in text and "kind 24" in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(result, comparison, verdict, width):
    for subject in (result, comparison, verdict):
        lines = render_text(subject, width=width).splitlines()
        assert max(map(display_width, lines)) <= width


def test_wide_characters_take_two_columns(tmp_path):
    rows = [row("订单取消" * 20, status="failed", error=("超时" * 20, "错误" * 100 + "e\u0301"))]
    result = load_result(build(tmp_path, rows, record_name="夜间实验" * 30))
    for line in render_text(result, width=60).splitlines():
        assert display_width(line) <= 60


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_what_an_encoding_cannot_hold_is_ascii_and_columns_stay_aligned(
    comparison, tmp_path, encoding
):
    wide = [row("\u8ba2\u5355", status="failed", error=("E", "\u0e01 " * 60))]
    odd = load_result(build(tmp_path / "odd", wide, record_name="\u591c\u95f4"))
    for subject in (comparison, odd):
        text = render_text(subject, width=80, encoding=encoding)
        text.encode(encoding)
        assert max(map(display_width, text.splitlines())) <= 80
    changes = render_text(comparison, width=90, encoding=encoding).split("Changes\n")[1]
    rules, *rows = changes.split("\n\n")[0].splitlines()[1:]
    assert len({line.index(line.split("  ")[-1]) for line in rows if "no evidence" in line}) == 1
    assert all(len(line) <= len(rules) for line in rows)


def test_signs_have_ascii_forms(tmp_path):
    run = build(tmp_path, [row("x" * 200 + str(i), scores={"em": i % 2}) for i in range(4)])
    text = render_text(compare([run, run]), encoding="ascii")
    assert "+-0.0 pp" in text and "-" in text and "\\x" not in text and "\\u" not in text
    assert "+-0.0 pp" not in render_text(compare([run, run]))


def test_an_answer_cannot_steer_the_terminal(result):
    text = render_text(result, width=300)
    assert "red" in text and not set(text) & set("\x1b\x07\u202e")
    assert "\ufffd[31mred" in text


def test_joined_emoji_stay_whole(tmp_path):
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    result = load_result(build(tmp_path, [row(family, status="failed")]))
    assert family in render_text(result, width=100)


def test_the_terminal_decides_the_width_when_none_is_given(result, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(display_width, render_text(result).splitlines())) <= 70


def test_the_text_of_a_comparison_names_verdicts_and_items(comparison):
    text = render_text(comparison, width=140)
    assert text.startswith("v2 against v1\n")
    assert "v2: worse" in text and "Newly broken (8)" in text and "q10" in text
    assert "parameters.prompt" in text and "not corrected" in text


def test_more_broken_items_than_fit_are_counted(tmp_path):
    old = build(tmp_path / "a", [row(str(i)) for i in range(30)])
    new = build(tmp_path / "b", [row(str(i), status="failed") for i in range(30)])
    text = render_text(compare([old, new]), width=100)
    assert "Newly broken (30)\nThe first 20 are listed.\nitem " in text


def test_a_comparison_tells_what_is_not_paired_and_which_categories_moved(tmp_path):
    old = build(tmp_path / "a", [row("x", input={"q": 1}, scores={"t": "a"}), row("y")])
    new = build(tmp_path / "b", [row("x", input={"q": 2}, scores={"t": "b"}), row("z")])
    text = render_text(compare([old, new], names=["A", "B"]), width=100)
    for told in ("1 of them has another input", "1 item only in A", "1 item only in B"):
        assert told in text
    assert "Category changes" in text


def test_repeats_and_stale_folders_are_told(tmp_path):
    rows = [row("a", repeat=str(n), scores={"em": n == 0}) for n in range(2)]
    path = build(tmp_path, rows, repeats=2)
    (tmp_path / "00000000-0000-5000-8000-000000000000").mkdir()
    text = render_text(load_result(path), width=120)
    assert "pass@2" in text and "pass^2" in text and "1 task folder belongs to rows" in text


def test_an_empty_run_still_has_a_report(tmp_path):
    result = load_result(build(tmp_path, [row("a", status="incomplete")]))
    assert "1 row, 0 succeeded, 1 incomplete" in render_text(result)
    assert render_markdown(result).startswith("## ")


def test_markdown_has_tables_and_marks(result, comparison, verdict):
    assert "| error | rows |" in render_markdown(result)
    assert "\u274c worse" in render_markdown(comparison)
    text = render_markdown(verdict)
    assert text.startswith("## Gate failed") and "| \u274c | max\\_regressions |" in text
    assert "8 items no longer pass \\(at most 3 allowed\\)" in text


def test_markdown_cannot_be_broken_by_an_answer(result):
    text = render_markdown(result)
    assert "<script" not in text and "![x]" not in text and "@team" not in text
    line = next(line for line in text.splitlines() if "Hostile" in line)
    assert line.replace("\\|", "").count("|") == 5


def test_markdown_fits_a_step_summary(tmp_path):
    errors = [row(str(i), status="failed", error=("E%d" % i, "m" * 300)) for i in range(40)]
    result = load_result(build(tmp_path, errors))
    whole = render_markdown(result)
    assert len(whole.encode("utf-8")) < 1024 * 1024
    short = render_markdown(result, max_bytes=600)
    assert len(short.encode("utf-8")) <= 600 and short.endswith("longer than fits._\n")


def test_json_is_strict_and_complete(result, comparison, verdict):
    summary = json.loads(render_json(result))
    assert summary["counts"]["succeeded"] == 24 and summary["latency_ms"]["n"] == 25
    assert summary["metrics"]["em"]["kind"] == "pass/fail" and summary["errors"] == {"Hostile": 1}
    assert "\n" not in render_json(result, indent=None)
    compared = json.loads(render_json(comparison))["candidates"][0]
    assert compared["verdict"] == "worse" and len(compared["newly_broken"]) == 8
    assert compared["deltas"]["em"]["delta"]["n"] == 24
    assert compared["configuration"]["version"] == {"baseline": "v1", "candidate": "v2"}
    decided = json.loads(render_json(verdict))
    assert decided["passed"] is False and len(decided["reasons"]) == 2


def test_what_a_prompt_shows_is_short(result, comparison, verdict):
    assert repr(comparison) == "<Comparison against 'v1': 'v2' worse>"
    assert repr(comparison[0]).endswith("'v2' against 'v1': worse, 8 items newly broken>")
    assert repr(comparison.baseline) == "<Side 'v1'>"
    assert (
        repr(comparison.baseline.baseline) == "<Baseline 'nightly 2026/11/29 08:00:00': 25 items>"
    )
    assert repr(verdict).startswith("<GateResult failed: 1 of 27 rows have no result")
    assert repr(gate(result, allow_incomplete=True)) == "<GateResult passed>"


def test_json_of_an_empty_run_has_nulls(tmp_path):
    summary = load_result(build(tmp_path, [row("a", status="incomplete")])).to_dict()
    assert summary["success_rate"] is summary["success"] is summary["latency_ms"] is None


def test_a_notebook_shows_a_fragment_without_script_or_markup_of_answers(
    result, comparison, verdict
):
    for subject in (result, comparison, verdict):
        html = subject._repr_html_()
        assert html.startswith("<div>") and "<table>" in html
        assert "<script" not in html and "<style" not in html
    assert "&lt;script&gt;" in result._repr_html_()


@pytest.mark.parametrize(
    "value,text",
    [(1.0, "100.0%"), (0.9999, "99.9%"), (0.0, "0.0%"), (0.0001, "0.1%"), (0.123, "12.3%")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(value, text):
    assert sections.share(value) == text


@pytest.mark.parametrize(
    "name,kind,value,text",
    [
        ("success", "pass/fail", -0.015, "\u22121.5 pp"),
        ("success", "pass/fail", 0.0004, "+0.04 pp"),
        ("success", "pass/fail", 0.0, "\u00b10.0 pp"),
        ("latency_ms", "numerical", -1500.0, "\u22121.50 s"),
        ("f", "numerical", 0.04288, "+0.0429"),
        ("tokens", "numerical", 1234.0, "+1,234"),
        ("tokens", "numerical", 1234.5, "+1,234.5"),
    ],
)
def test_changes_have_a_sign_and_a_unit(name, kind, value, text):
    assert sections.signed(name, kind, value) == text


def test_intervals_have_the_unit_of_their_measure():
    assert sections.interval_text(Estimate(1, 2, 3000, 4), "numerical", "ttft_ms") == (
        "2 ms to 3.00 s"
    )


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0 ms"),
        (0.3149, "0.31 ms"),
        (1.868, "1.9 ms"),
        (9.96, "10 ms"),
        (12.5, "13 ms"),
        (999.4, "999 ms"),
        (999.5, "1.00 s"),
    ],
)
def test_times_have_as_many_digits_as_they_need(value, text):
    assert sections.milliseconds(value) == text


@pytest.mark.parametrize(
    "name, kind, low, high, text",
    [
        ("success", "pass/fail", -0.201, -0.008, "\u221220.1 to \u22120.8 pp"),
        ("latency_ms", "numerical", -15.0, 2.0, "\u221215 to +2 ms"),
        ("latency_ms", "numerical", 1.641, 2.149, "+1.6 to +2.1 ms"),
        ("latency_ms", "numerical", -15.0, 2000.0, "\u221215 ms to +2.00 s"),
        ("tokens", "numerical", -20.0, 3.0, "\u221220 to +3"),
    ],
)
def test_both_ends_of_a_change_share_their_unit(name, kind, low, high, text):
    assert sections.signed_interval(name, kind, low, high) == text


def test_numbers_are_not_cut_while_texts_can_be(comparison):
    changes = render_text(comparison, width=80).split("Changes\n")[1].split("\n\n")[0]
    rows = changes.splitlines()[2:]
    assert len(rows) == len(comparison[0].deltas) and all(" to " in row for row in rows)
    assert not [row for row in rows if "\u2026" in row[11:-11]]


def test_names_and_verdicts_are_whole_where_lesser_columns_can_go(tmp_path):
    def run_of(name, failing):
        rows = [row(str(i), scores={"exact_match": i not in failing}) for i in range(60)]
        return build(tmp_path / name, rows, version=name)

    comparison = compare([run_of("v1", (1, 2, 3)), run_of("v2", (10, 12, 13, 14))])
    for width, left_out in ((60, "baseline, this run, p"), (72, "p"), (100, "")):
        changes = render_text(comparison, width=width).split("Changes\n")[1].split("\n\n")[0]
        assert "exact_match" in changes and "no evidence" in changes and "\u2026" not in changes
        note = "(left out at this width: {})".format(left_out)
        assert changes.endswith(note) if left_out else "left out" not in changes


def test_a_metric_without_any_score_is_not_scored(tmp_path):
    rows = [row(str(i), scores={"judge": None, "em": True}) for i in range(3)]
    result = load_result(build(tmp_path, rows))
    (line,) = [line for line in render_text(result).splitlines() if line.startswith("judge")]
    assert line.split("  ")[1].strip() == "not scored" and line.split()[-2:] == ["0", "3"]
    assert "| judge | not scored |" in render_markdown(result)
    page = render_html(result)
    assert '<p class="value">not scored</p><p class="tail">3 unscored</p>' in page
    found = json.loads(render_json(result))["metrics"]["judge"]
    assert found["mean"] is found["interval"] is None and found["rows"] == 0


def test_the_message_of_a_failure_is_wrapped_not_cut(tmp_path):
    message = "Cannot connect to 127.0.0.1:9: " + "the peer refused, " * 8 + "and that is the end."
    rows = [row("a", status="failed", error=("ConnectionError", message))]
    text = render_text(load_result(build(tmp_path, rows)), width=60)
    said = " ".join(text.split("message\n")[1].split())
    assert "and that is the end." in said and "\u2026" not in said


def test_a_line_takes_its_whole_room_unless_it_has_wide_characters(tmp_path):
    def lines_of(message):
        rows = [row("a", status="failed", error=("Odd", message))]
        text = render_text(load_result(build(tmp_path / message[:1], rows)), width=60)
        return [line.strip() for line in text.split("message\n")[1].splitlines()[2:]]

    plain, dotted = lines_of("x gave up " * 12), lines_of("y gave \u2026 " * 12)
    assert len(plain) == len(dotted)
    assert max(map(display_width, lines_of("\u6587\u5b57 " * 30))) <= 60


def test_a_baseline_file_lacks_answers_but_the_run_has_its_own(comparison):
    old = Baseline.of(comparison.baseline.result)
    text = render_markdown(compare([old, comparison[0].candidate.result]))
    (line,) = [line for line in text.splitlines() if line.startswith("| q10 |")]
    before, after = [cell.strip() for cell in line.split("|")[3:5]]
    assert before == "\u2013" and after


def test_a_file_name_decides_the_format(result, comparison, verdict, tmp_path):
    starts = {
        "r.html": "<!doctype html>",
        "r.HTM": "<!doctype html>",
        "r.md": "## ",
        "r.json": "{",
        "r.xml": "<?xml",
        "r.txt": "nightly",
    }
    for name, start in starts.items():
        write_report(result, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    write_report(comparison, tmp_path / "c.html")
    write_report(verdict, tmp_path / "g.xml")
    for name in ("r.pdf", "report"):
        with pytest.raises(ConfigurationError, match=r"\.html, \.md"):
            write_report(result, tmp_path / name)
    for name in starts:
        with pytest.raises(ConfigurationError, match="load_result.*not str"):
            write_report(result.path, tmp_path / name)
    write_report(verdict, tmp_path / "g.html")
    assert "Gate " in (tmp_path / "g.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "render", [render_text, render_markdown, render_json, render_html, render_junit]
)
def test_what_cannot_be_reported_on_is_refused(render, result, comparison):
    for subject in (None, 5, result.path, ExperimentResult, comparison[0]):
        with pytest.raises(ConfigurationError, match="result.*comparison.*verdict"):
            render(subject)


@pytest.mark.parametrize(
    "render, options",
    [
        (render_text, {"width": "80"}),
        (render_text, {"width": 0}),
        (render_text, {"encoding": None}),
        (render_markdown, {"max_bytes": None}),
        (render_markdown, {"max_bytes": -1}),
        (render_json, {"indent": "x"}),
        (render_json, {"indent": -1}),
        (render_html, {"max_chars": 0}),
        (render_html, {"max_chars": None}),
    ],
)
def test_unusable_options_of_a_report_are_refused(render, options, result):
    (name,) = options
    with pytest.raises(ConfigurationError, match=name + " must be"):
        render(result, **options)


@pytest.mark.parametrize("write", [write_html, write_report])
@pytest.mark.parametrize("path", [None, 5, "", b""])
def test_a_report_is_written_to_a_path_only(write, path, result):
    with pytest.raises(ConfigurationError, match="path must be a path"):
        write(result, path)


def test_a_refused_report_leaves_no_file(result, tmp_path):
    with pytest.raises(ConfigurationError):
        write_html(result, tmp_path / "r.html", max_chars=0)
    assert not list(tmp_path.glob("*r.html*"))
