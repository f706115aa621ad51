"""``show``, ``compare``, ``gate``, ``report`` and ``plans`` on what real runs left."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import cli_process
import pytest

from agentloop_experiment_sdk import LocalAgentLoop


@pytest.fixture
def two_runs(cli: Any) -> None:
    """``good`` answers all six rows, ``bad`` three of them."""
    options = ["--local", "sums.jsonl", "--ground-truth-field", "gold", "--evaluator"]
    cli("run", "agent.py:answer", "--result-dir", "good", *options, "exact_match")
    cli("run", "agent.py:half", "--result-dir", "bad", *options, "exact_match")


def test_show_summarises(cli: Any, two_runs: None) -> None:
    done = cli("show", "bad")
    assert done.code == 0
    assert "6 rows, 3 succeeded, 3 failed" in done.out
    assert cli("show", "bad", "--json").result["counts"]["failed"] == 3


def test_show_lists_failures(cli: Any, two_runs: None) -> None:
    done = cli("show", "bad", "--failures")
    assert done.out.count("cannot do odd rows") == 4  # once in the summary
    events = cli("show", "bad", "--failures", "--json").events
    assert [event["event"] for event in events] == ["result", "row", "row", "row"]
    assert {event["status"] for event in events[1:]} == {"failed"}


def test_show_shows_a_row_in_full(cli: Any, two_runs: None) -> None:
    done = cli("show", "good", "--item", 3)
    assert [line.split(None, 1) for line in done.out.splitlines() if line][-2:] == [
        ["scores", '{"exact_match":true}'],
        ["answer", "6"],
    ]
    (event,) = cli("show", "good", "--item", 3, "--json").events
    assert (event["output"], event["ground_truth"]) == ("6", "6")
    missing = cli("show", "good", "--item", 33)
    assert (missing.code, "has no row '33'" in missing.err) == (2, True)


def test_what_an_agent_wrote_does_not_steer_the_terminal(cli: Any, work: pathlib.Path) -> None:
    (work / "hostile.py").write_text(
        "def go(task):\n    raise ValueError('\\x1b[31m' + 'x' * 900 + '\\nsecond')\n"
    )
    cli("run", "hostile.py:go", "--local", "sums.jsonl", "--limit", 1)
    short, full = cli("show", "results", "--failures"), cli("show", "results", "--item", 0)
    assert "\x1b" not in short.out + full.out
    assert "x" * 600 not in short.out and "x" * 600 in full.out
    assert "\n              second" in full.out


def test_compare_finds_what_broke(cli: Any, two_runs: None) -> None:
    done = cli("compare", "good", "bad", "--name", "v1", "--name", "v2", "--diff", "1")
    assert done.code == 0
    assert "v2" in done.out
    assert "-2" in done.out and "+ERROR: ValueError - cannot do odd rows" in done.out
    same = cli("compare", "good", "bad", "--name", "v1", "--name", "v2", "--diff", "0")
    assert same.out.endswith("\n\nv2: the answer to '0' is the same.\n")
    events = cli("compare", "good", "bad", "--diff", "1", "--json").events
    assert events[0]["event"] == "diff" and "+ERROR: ValueError" in events[0]["diff"]
    events = cli("compare", "bad", "good", "--baseline", 2, "--json").events
    assert events[-1]["baseline"]["name"]
    broken = events[-1]["candidates"][0]["newly_broken"]
    assert len(broken) == 3


def test_a_stdout_that_takes_ascii_alone_gets_no_escapes(
    two_runs: None, work: pathlib.Path
) -> None:
    env = dict(cli_process.environment(COLUMNS="80"), PYTHONIOENCODING="ascii")
    done = cli_process.run("compare", "good", "good", cwd=work, env=env)
    assert done.code == 0 and "+-0.0 pp" in done.stdout
    assert done.stdout.isascii() and "\\x" not in done.stdout and "\\u" not in done.stdout


def test_compare_writes_reports(cli: Any, two_runs: None) -> None:
    done = cli(
        *("compare", "good", "bad", "--html", "c.html", "--junit", "c.xml"),
        *("--report-json", "c.json", "--lower-is-better", "exact_match"),
    )
    assert done.code == 0
    assert 'failures="3"' in pathlib.Path("c.xml").read_text(encoding="utf-8")
    assert pathlib.Path("c.html").stat().st_size > 1000
    assert json.loads(pathlib.Path("c.json").read_text(encoding="utf-8"))["candidates"]
    assert "wrote c.html" in done.err
    refused = cli("report", "good", "bad", "--export-baseline", "b.json", "--html", "d.html")
    assert refused.code == 2 and "needs one run" in refused.err
    assert not pathlib.Path("d.html").exists()


def test_gate_decides(cli: Any, two_runs: None) -> None:
    passed = cli("gate", "good", "--min-success-rate", "0.9", "--json")
    assert (passed.code, passed.result["passed"]) == (0, True)
    failed = cli("gate", "bad", "--baseline", "good", "--max-regressions", 0)
    assert failed.code == 1
    assert "3 items no longer pass" in failed.out


def test_rows_of_another_version_do_not_pass(cli: Any, two_runs: None) -> None:
    cli("run", "agent.py:half", "--local", "sums.jsonl", "--result-dir", "good")
    stale = cli("gate", "good")
    assert stale.code == 1
    assert "run again with --no-resume, or pass --allow-stale" in " ".join(stale.out.split())
    assert cli("gate", "good", "--allow-stale").code == 0


def test_an_incomplete_run_passes_only_if_allowed(cli: Any, two_runs: None) -> None:
    tasks = pathlib.Path("good/tasks.json")
    document = json.loads(tasks.read_text(encoding="utf-8"))
    document["tasks"].append(["00000000-0000-5000-8000-000000000000", "9"])
    tasks.write_text(json.dumps(document), encoding="utf-8")
    assert cli("gate", "good").code == 1
    assert cli("gate", "good", "--allow-incomplete").code == 0


def test_undelivered_rows_alone_are_infrastructure(cli: Any, cloud: LocalAgentLoop) -> None:
    cloud.faults.outage("403", "PutLogs")
    cli("run", "agent.py:answer", "--drain-timeout", "0.5")
    assert cli("gate", "results").code == 3
    assert cli("gate", "results", "--allow-undelivered").code == 0


def test_report_writes_every_form(cli: Any, two_runs: None) -> None:
    done = cli(
        *("report", "bad", "--html", "r.html", "--junit", "r.xml", "--markdown", "r.md"),
        *("--report-json", "r.json", "--export-baseline", "r.baseline.json", "--json"),
    )
    assert done.result["written"] == ["r.html", "r.xml", "r.md", "r.json", "r.baseline.json"]
    # the three failed rows; failed rows also fail exact_match
    assert 'failures="3"' in pathlib.Path("r.xml").read_text(encoding="utf-8")
    assert json.loads(pathlib.Path("r.json").read_text(encoding="utf-8"))["counts"]["failed"] == 3
    assert cli("compare", "r.baseline.json", "good").code == 0


def test_a_row_that_misses_a_pass_fail_metric_is_a_failed_test_case(cli: Any) -> None:
    cli(
        *("run", "agent.py:answer", "--local", "sums.jsonl", "--junit", "r.xml"),
        *("--evaluator", "agent.py:polite"),
    )
    assert 'failures="6"' in pathlib.Path("r.xml").read_text(encoding="utf-8")


def test_a_report_on_stdout_has_it_for_itself(cli: Any, two_runs: None) -> None:
    done = cli("report", "good", "bad", "--markdown", "-")
    assert done.out.startswith("## ")
    ran = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--report-json", "-", "--gate")
    assert json.loads(ran.out)["gate"]["passed"] is True
    assert "6 rows, 6 succeeded" in ran.err


def test_the_step_summary_of_github_is_appended_to(
    cli: Any, two_runs: None, work: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = work / "summary.md"
    summary.write_text("# before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    cli("gate", "good", "--markdown", summary)
    cli("gate", "bad", "--min-success-rate", 1, "--markdown", summary)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# before\n")
    assert text.index("## Gate passed") < text.index("## Gate failed")
    cli("report", "good", "--markdown", "other.md")
    cli("report", "good", "--markdown", "other.md")
    assert pathlib.Path("other.md").read_text(encoding="utf-8").count("## ") < text.count("## ")


def test_plans_are_listed(cli: Any, cloud: LocalAgentLoop) -> None:
    cloud.create_plan("sums", "另一个计划")
    done = cli("plans")
    assert [line.split()[0] for line in done.out.splitlines()][0] == "PLAN"
    assert "sums plan" in done.out and "另一个计划" in done.out
    named = cli("plans", "--name", "sums plan", "--json")
    assert [plan["plan_name"] for plan in named.events] == ["sums plan"]
    assert "There are no plans." in cli("plans", "--name", "none").out


def test_plans_tells_a_cloud_that_cannot_be_reached(cli: Any) -> None:
    done = cli(
        *("plans", "--space", "s", "--region", "cn-x", "--access-key-id", "a" * 16),
        *("--access-key-secret", "b" * 16, "--agentloop-endpoint", "http://127.0.0.1:1"),
    )
    assert done.code == 3
    assert done.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.err


def test_deliver_of_a_local_run_finds_its_own_agentloop(cli: Any) -> None:
    cli("run", "agent.py:answer", "--local", "sums.jsonl")
    done = cli("deliver", "results")
    assert (done.code, done.out) == (0, done.out)
    assert "0 rows delivered, 0 undelivered" in done.out
    assert cli("deliver", "results", "--region", "cn-x").code == 2


def test_a_row_is_shown_with_what_its_evaluators_say(cli: Any, work: pathlib.Path) -> None:
    """An agent that answers an object, against a text: the score 0 alone is a riddle."""
    (work / "objects.py").write_text("def go(task):\n    return {'answer': task.input['gold']}\n")
    options = ["--local", "sums.jsonl", "--ground-truth-field", "gold", "--evaluator"]
    ran = cli("run", "objects.py:go", *options, "exact_match")
    assert ran.err.count("took a whole object for the answer") == 1
    told = 'Expected "4", got {"answer":"4"}. The answer is an object: name the part to compare'
    done = cli("show", "results", "--item", 2)
    assert "reason        exact_match: " + told in done.out
    assert 'field="answer"' in done.out
    (event,) = cli("show", "results", "--item", 2, "--json").events
    assert event["reasons"]["exact_match"].startswith(told)
    named = cli("run", "objects.py:go", "--no-resume", *options, "exact_match:field=answer")
    assert "100.0%" in named.out and "whole object" not in named.err
    assert "reason " not in cli("show", "results", "--item", 2).out


def test_a_row_that_is_not_there_is_answered_with_those_that_are(cli: Any, two_runs: None) -> None:
    missing = cli("show", "good", "--item", "zz")
    assert missing.code == 2
    assert "has no row 'zz'; its items are '0', '1', '2', '3', '4', '5'." in missing.err


def test_two_reports_in_one_file_are_refused(cli: Any, two_runs: None) -> None:
    done = cli("report", "good", "--html", "x", "--junit", "./x")
    assert done.code == 2 and "same file" in done.err
