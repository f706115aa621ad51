"""Whatever agents and datasets hold, the command line prints lines of text and nothing else."""

from __future__ import annotations

import json
import pathlib
import unicodedata
import xml.dom.minidom
from typing import Any, List

import pytest

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x08\r\x00\u202e"
FORGED = "\n12:00:00 INFO    all rows succeeded\r\n"
AGENT = """
NASTY = {nasty!r}


class Odd(Exception):
    pass


Odd.__name__ = NASTY.replace("\\0", "")


def answer(task):
    if task.input["n"] % 2:
        raise Odd(NASTY)
    return NASTY


def scored(task, output):
    return NASTY


def unscored(task, output):
    raise Odd(NASTY)
"""


@pytest.fixture
def nasty(work: pathlib.Path) -> str:
    text = "<b>" + ESCAPES + FORGED + "|`[x](javascript:1)"
    (work / "nasty.py").write_text(AGENT.format(nasty=text), "utf-8")
    rows = [{"id": "{}-{}".format(n, text), "n": n, text.replace("\0", ""): text} for n in range(4)]
    lines = [json.dumps(row) for row in rows]
    (work / "nasty.jsonl").write_text("\n".join(lines), "utf-8")
    return text


def controls(text: str) -> List[str]:
    return sorted({char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl")})


RUN = ("run", "nasty.py:answer", "--local", "nasty.jsonl", "--progress", "log")


def test_nothing_that_is_printed_steers_the_terminal(
    cli: Any, work: pathlib.Path, nasty: str
) -> None:
    run = cli(
        *RUN,
        *("--evaluator", "nasty.py:scored", "--evaluator", "nasty.py:unscored"),
        *("--version", nasty, "--min-success-rate", "1", "--log-level", "debug"),
    )
    assert run.code == 1, run
    commands = [
        ("show", "results", "--failures"),
        ("show", "results", "--item", "0-" + nasty),
        ("compare", "results", "results", "--name", nasty, "--name", "b", "--diff", "1-" + nasty),
        ("gate", "results", "--min-score", nasty + "=1"),
        ("report", "results", "--markdown", "-"),
        ("report", "results", "results", "--markdown", "-"),
        ("show", nasty.replace("\0", "")),
        ("run", "nasty.py:" + nasty, "--local", "nasty.jsonl"),
        ("run", "nasty.py:answer", "--local", "nasty.jsonl", "--ground-truth-field", nasty),
        ("run", "nasty.py:answer", "--local", "nasty.jsonl", "--stop-if-first", "1"),
        ("check", "nasty.py:answer", "--limit", "4", "--space", nasty),
        ("plans", "--region", nasty),
    ]
    for done in [run, *(cli(*command) for command in commands)]:
        assert controls(done.out + done.err) == ["\n"], done
    # and no line of its own begins with what the agent wants to be read
    for line in (run.out + run.err).split("\n"):
        assert not line.startswith("12:00:00 INFO")


def test_json_lines_hold_what_the_agent_said_and_no_control(
    cli: Any, work: pathlib.Path, nasty: str
) -> None:
    run = cli(*RUN, "--json")
    shown = cli("show", "results", "--failures", "--json")
    for done in (run, shown):
        assert [char for char in controls(done.out) if char < "\xa0"] == ["\n"]
        assert controls(done.err) in ([], ["\n"])
    errors = [event["error"] for event in shown.events if event["event"] == "row"]
    assert errors == [nasty] * 2


def test_reports_for_machines_are_well_formed(cli: Any, work: pathlib.Path, nasty: str) -> None:
    cli(*RUN, "--evaluator", "nasty.py:scored")
    junit = cli("report", "results", "--junit", "-").out
    xml.dom.minidom.parseString(junit)
    assert [char for char in controls(junit) if char < "\xa0"] == ["\n"]
    report = cli("report", "results", "--report-json", "-").out
    assert json.loads(report)
    assert [char for char in controls(report) if char < "\xa0"] == ["\n"]


COMMANDS = "::set-output name=verdict::passed\n ::add-mask::a\n##[error]x ##vso[task.complete]y"


@pytest.mark.parametrize("variable", ["CI", "TF_BUILD", "TEAMCITY_VERSION"])
def test_no_answer_is_a_command_to_the_ci_system(
    cli: Any, work: pathlib.Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    program = "def answer(task):\n    raise ValueError({0!r})\n".format(COMMANDS)
    program += "def answered(task):\n    return 'fine\\n' + {0!r}\n".format(COMMANDS)
    program += "def tone(task, output):\n    return {0!r}\n".format(COMMANDS)
    program += "def never(task, output):\n    return False\n"
    (work / "agent2.py").write_text(program)
    shown = ("show", "results", "--item", "0")
    assert cli("run", "agent2.py:answer", "--local", "sums.jsonl", "--row-retries", 0).code == 1
    monkeypatch.setenv(variable, "1")
    again = cli("run", "agent2.py:answer", "--local", "sums.jsonl", "--retry-failed")
    graded = ("--evaluator", "agent2.py:tone", "--evaluator", "agent2.py:never")
    cli(*("run", "agent2.py:answered", "--local", "sums.jsonl", "--result-dir", "b"), *graded)
    reports = [
        cli("report", results, "--" + kind, "-")
        for results in ("results", "b")
        for kind in ("markdown", "junit", "report-json")
    ]
    for done in (again, cli(*shown), *reports):
        printed = done.out + done.err
        assert not [line for line in printed.split("\n") if line.lstrip().startswith("::")]
        assert "##[" not in printed and "##vso[" not in printed
    events = cli(*shown, "--json")
    assert "##" not in events.out and events.events[-1]["error"] == COMMANDS
    cases = xml.dom.minidom.parseString(reports[4].out).getElementsByTagName("failure")
    assert cases[0].firstChild.data == "fine\n" + COMMANDS
    assert COMMANDS in json.loads(reports[5].out)["metrics"]["tone"]["distribution"]
