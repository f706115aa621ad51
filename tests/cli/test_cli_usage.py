"""Bad input of every kind: one clear line, exit code 2, nothing sent, nothing written."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, List, Tuple

import cli_process
import pytest

from agentloop_experiment_sdk import LocalAgentLoop

RUN = ["run", "agent.py:answer", "--local", "sums.jsonl"]
HTTP = ["run", "--http", "http://127.0.0.1:9/", "--local", "sums.jsonl"]

BAD: List[Tuple[List[Any], str]] = [
    # the program
    ([], "arguments are required: COMMAND"),
    (["fly"], "invalid choice: 'fly'"),
    ([*RUN, "--fly"], "unrecognized arguments: --fly"),
    ([*RUN, "--n-work", 3], "unrecognized arguments: --n-work"),
    ([*RUN, "--log-level", "loud"], "argument --log-level: invalid choice"),
    # the agent
    (["run", "--local", "sums.jsonl"], "Name one agent: "),
    ([*RUN, "--http", "http://x/"], "got SOLUTION and --http"),
    (["run", "agent", "--local", "sums.jsonl"], "'agent' names no solution"),
    (["run", "agent.py:", "--local", "sums.jsonl"], "'agent.py:' names no solution"),
    (["run", "none.py:answer", "--local", "sums.jsonl"], "There is no file none.py"),
    (["run", "agent.py:anser", "--local", "sums.jsonl"], "agent.py has no 'anser'; it has answer,"),
    (["run", "agent.py:EVALUATORS.x", "--local", "sums.jsonl"], "has no 'EVALUATORS.x'"),
    (["run", "no_such_module:f", "--local", "sums.jsonl"], "No module named 'no_such_module'"),
    (["run", "not a module:f", "--local", "sums.jsonl"], "is neither a module nor a file"),
    (["run", "torn.py:f", "--local", "sums.jsonl"], "torn.py cannot be imported: SyntaxError"),
    (["run", "leaves.py:f", "--local", "sums.jsonl"], "cannot be imported: SystemExit: 5"),
    (["run", "raises.py:f", "--local", "sums.jsonl"], "ZeroDivisionError: division by zero (/"),
    (["run", "agent.py:EVALUATORS", "--local", "sums.jsonl"], "callable"),
    ([*RUN, "--timeout", 3], "--timeout does not go with SOLUTION. Use --task-timeout."),
    ([*RUN, "--header", "A: b"], "--header does not go with SOLUTION"),
    ([*HTTP, "--stdin", "x"], "--stdin does not go with --http"),
    ([*HTTP, "--header", "sesame"], "--header must be written as 'Name: value'"),
    ([*HTTP, "--method", "FLY"], "method"),
    (["run", "--http", "ftp://x/", "--local", "sums.jsonl"], "URL must start with http"),
    ([*HTTP, "--body", "{"], "--body is not JSON"),
    ([*HTTP, "--body", "[1]", "--body-field", "a=1"], "needs a --body that is a JSON object"),
    ([*HTTP, "--body-field", "a"], "--body-field must be written as NAME=VALUE"),
    ([*HTTP, "--body-field", "a=1", "--body-field", "a.b=1"], "--body-field a.b: a is no object"),
    ([*HTTP, "--extractor", "telepathy"], "There is no extractor 'telepathy'; there are openai-"),
    ([*HTTP, "--timeout", "-1"], "timeout"),
    (["run", "--local", "sums.jsonl", "--command"], "--command needs the command to run"),
    (["run", "--local", "sums.jsonl", "--cwd", "/x", "--http", "http://x/"], "--cwd does not go"),
    # the plan
    ([*RUN, "--plan", "p"], "--plan does not go with a local AgentLoop"),
    ([*RUN, "--space", "s"], "--space does not go with a local AgentLoop"),
    (["run", "agent.py:answer", "--local", "none.jsonl"], "none.jsonl cannot be read: No such"),
    (["run", "agent.py:answer", "--local", "agent.py"], "ends in .jsonl or .csv"),
    (["run", "agent.py:answer", "--local", "torn.jsonl"], "torn.jsonl cannot be read: line 1 is"),
    (["run", "agent.py:answer", "--local", "list.jsonl"], "1 is not a JSON object"),
    (["run", "agent.py:answer", "--local", "wide.csv"], "line 2 has more values than the header"),
    (["run", "agent.py:answer", "--local", "twice.csv"], "the header has the column 'q' 2 times"),
    (["run", "agent.py:answer", "--local", "deep.jsonl"], "deep.jsonl cannot be read: line 2 is"),
    (["run", "agent.py:answer", "--local", "empty.jsonl"], "EmptyDataset"),
    ([*RUN, "--ground-truth-field", "golt"], "golt"),
    ([*RUN, "--max-rows", 0], "--max-rows must be at least 1"),
    ([*RUN, "--item-id", 99], "EmptyDataset"),
    # the execution
    ([*RUN, "--n-workers", 0], "--n-workers must be a whole number, 1 or more, not 0"),
    (
        [*RUN, "--n-workers", "many"],
        "argument --n-workers: 'many' is no number, no range such as 4-32",
    ),
    ([*RUN, "--n-repeat", -1], "--n-repeat must be a whole number"),
    ([*RUN, "--n-repeat", 0], "--n-repeat must be a whole number"),
    ([*RUN, "--limit", 0], "limit must be a whole number"),
    ([*RUN, "--task-timeout", 0], "--task-timeout must be a number of seconds above 0"),
    ([*RUN, "--max-failures", "some"], "--max-failures must be a count or a share"),
    ([*RUN, "--max-failures", "300%"], "--max-failures must be"),
    ([*RUN, "--serial", "--n-workers", 2], "--serial runs one row at once"),
    ([*RUN, "--resume", "--no-resume"], "not allowed with argument"),
    ([*RUN, "--parameter", "x"], "--parameter must be written as NAME=VALUE"),
    # evaluators
    ([*RUN, "--evaluator", "exact"], "There is no evaluator 'exact'; there are exact_match"),
    ([*RUN, "--evaluator", "exact_match"], "nothing to compare with: give --ground-truth-field"),
    ([*RUN, "--evaluator", "exact_match"], "COLUMN, or exact_match:expected_field=COLUMN."),
    ([*RUN, "--evaluator", "agent.py:nice"], "agent.py has no 'nice'"),
    ([*RUN, "--evaluator", "latency_below"], "--evaluator latency_below: "),
    ([*RUN, "--evaluator", "latency_below:fast"], "latency_below"),
    ([*RUN, "--evaluator", "contains:colour=red,tone=x"], "there is no setting 'tone'"),
    ([*RUN, "--evaluator", "exact_match:gold"], "must be written as NAME=VALUE"),
    ([*RUN, "--evaluator", "agent.py:polite", "--evaluator", "agent.py:polite"], "'polite'"),
    # the gate and the reports
    ([*RUN, "--min-success-rate", "95"], "'95' is no share: write 0.95 or 95%"),
    ([*RUN, "--min-success-rate", "high"], "'high' is no share"),
    ([*RUN, "--max-regressions", 1], "--max-regressions needs --baseline"),
    ([*RUN, "--max-regressions", -1, "--baseline", "x"], "--max-regressions must be 0 or more"),
    ([*RUN, "--max-cost", 1], "--max-cost needs --price MODEL=IN,OUT"),
    ([*RUN, "--price", "m=1"], "--price must be written as MODEL=IN,OUT"),
    ([*RUN, "--price", "m=1,x"], "--price: 'x' is no number"),
    ([*RUN, "--min-score", "polite"], "--min-score must be written as NAME=VALUE"),
    ([*RUN, "--min-score", "polite=inf"], "--min-score: 'inf' is no number"),
    (
        [*RUN, "--min-score", "nope=0.5"],
        "--min-score nope: no evaluator of the run gives this score (there is none). Give its",
    ),
    (
        [*RUN, "--evaluator", "contains:x", "--evaluator", "agent.py:polite", "--min-score", "n=1"],
        "--min-score n: no evaluator of the run gives this score (there are contains, polite)",
    ),
    ([*RUN, "--max-p90-latency", "nan"], "--max-p90-latency must be 0 or more"),
    ([*RUN, "--baseline", "none.json"], "none.json"),
    ([*RUN, "--baseline", "sums.jsonl"], "is no baseline file"),
    ([*RUN, "--html", "no/folder/report.html"], "--html no/folder/report.html cannot be written"),
    ([*RUN, "--html", "-"], "--html - cannot be written: stdout (-) takes --junit, --markdown and"),
    (["report", "r", "--export-baseline", "-"], "--export-baseline - cannot be written: stdout"),
    ([*RUN, "--junit", "."], "--junit . cannot be written"),
    ([*RUN, "--junit", ""], "--junit cannot be written"),
    ([*RUN, "--markdown", "-", "--junit", "-"], "Only one report can go to stdout"),
    # other commands
    (["resume", "none", "agent.py:answer"], "There is no results directory at"),
    (["deliver", "none"], "There is no results directory at"),
    (["show", "none"], "There is no results directory at"),
    (["compare", "none"], "two"),
    (["compare", "none", "nowhere"], "There is no results directory at"),
    (["compare", "a", "b", "--baseline", 3], "--baseline counts the runs from 1 to 2"),
    (["gate", "none"], "There is no results directory at"),
    (["report", "none"], "Say what to write: --html"),
    (["report", "none", "--html", "x.html"], "There is no results directory at"),
    (["plans"], "Give --space (or AGENTLOOP_SPACE), --region (or AGENTLOOP_REGION)."),
    (["plans", "--space", "a/b", "--region", "r"], "--space 'a/b' is not a name"),
    (["plans", "--space", "a", "--region", "r r"], "--region 'r r' is not a region"),
    (["serve", "--port", 70000], "--port must be 0 to 65535"),
    (["serve", "--store", "no/such/folder/x"], "It cannot be served on port 0 from no/such"),
    (["serve", "--dataset", "none.csv"], "none.csv cannot be read"),
    (["serve", "--dataset", "a/q.csv", "--dataset", "b/q.csv"], "Two files of --dataset are call"),
]


@pytest.fixture
def broken_files(work: pathlib.Path) -> None:
    (work / "torn.py").write_text("def f(:\n")
    (work / "wide.csv").write_text("id,question\n1,hello, world\n")
    (work / "leaves.py").write_text("raise SystemExit(5)\n")
    (work / "raises.py").write_text("def f(task):\n    pass\n1 / 0\n")
    (work / "torn.jsonl").write_text('{"id": 1')
    (work / "list.jsonl").write_text("[1]\n")
    (work / "twice.csv").write_text("id,q,q\n1,a,b\n")
    (work / "deep.jsonl").write_text('{{"id": 1}}\n{{"d": {}{}}}'.format("[" * 5000, "]" * 5000))
    (work / "empty.jsonl").write_text("")


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: str(value)[:60])
def test_bad_input_is_one_clear_line(
    cli: Any, broken_files: None, arguments: List[Any], message: str
) -> None:
    done = cli(*arguments)
    assert done.code == 2, done.err
    assert done.out == ""
    errors = [line for line in done.err.splitlines() if not line[:2].isdigit()]
    assert len(errors) == 1 and errors[0].startswith("error: "), done.err
    assert message in errors[0]


def test_usage_errors_name_the_help_and_are_events_too(cli: Any) -> None:
    done = cli("run", "--json", "--fly")
    assert done.events == [
        {
            "event": "error",
            "code": "InvalidUsage",
            "message": "unrecognized arguments: --fly. See agentloop-experiment --help.",
            "request_id": None,
            "exit_code": 2,
        }
    ]


def test_a_report_on_stdout_does_not_mix_with_json_lines(cli: Any) -> None:
    done = cli(*RUN, "--markdown", "-", "--json")
    assert done.code == 2
    assert "none together with --json" in done.result["message"]


def test_what_is_wrong_in_the_gate_is_said_before_anything_is_run(
    cli: Any, cloud: LocalAgentLoop
) -> None:
    assert cli("run", "agent.py:answer", "--max-regressions", 1).code == 2
    assert sum(cloud.requests.values()) == 0
    assert not os.path.exists("results")


def test_a_directory_in_use_is_said(cli: Any, cloud: LocalAgentLoop) -> None:
    cli("run", "agent.py:answer")
    # the lock is the process's: another process must hold it
    code = (
        "import sys; from agentloop_experiment_sdk.results.directory import ResultsDirectory as D\n"
        "d = D.reopen('results'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=cli_process.environment(),
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    done = cli("run", "agent.py:answer", "--n-repeat", 2)
    holder.communicate()
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("error: ResultsDirectoryLocked: ")


def test_results_of_another_tool_cannot_be_resumed_or_delivered(
    cli: Any, work: pathlib.Path
) -> None:
    folder = work / "foreign"
    folder.mkdir()
    (folder / "evaluation_meta.json").write_text('{"evaluation_name": "x", "schema_version": 1}')
    assert "holds no run that can be continued" in cli("resume", "foreign", "agent.py:answer").err
    assert "were not written by this package" in cli("deliver", "foreign").err


def test_a_local_store_that_cannot_be_made_is_said(cli: Any, work: pathlib.Path) -> None:
    (work / "results").write_text("a file in the way")
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl")
    assert done.code == 2
    assert "The results directory ./results cannot be made" in done.err
    assert "Pass a --result-dir that can be written." in done.err
    (work / "results").unlink()
    (work / "results" / ".local" / "agentloop.sqlite").mkdir(parents=True)
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl")
    assert done.code == 2 and "The local AgentLoop cannot keep its data in" in done.err


def test_an_unexpected_error_is_no_verdict_on_the_agent(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.cli import solutions

    def fault(options: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(solutions, "solution_of", fault)
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl")
    assert done.code == 3
    assert "Traceback" in done.err and "please report it" in done.err


UNKNOWN = [
    ("--http", "http://127.0.0.1:9/", "--body-field", "message={qestion}"),
    ("--http", "http://127.0.0.1:9/{qestion}"),
    ("--http", "http://127.0.0.1:9/", "--body", '{"a": [{"b": "is it {qestion}?"}]}'),
    ("--stdin", "{qestion}", "--command", sys.executable, "-c", "open('called', 'w')"),
    ("--command", sys.executable, "-c", "open('called', 'w')", "{qestion}"),
]


@pytest.mark.parametrize("agent", UNKNOWN, ids=" ".join)
@pytest.mark.parametrize("command", [("run",), ("check", "--limit", "2")], ids=" ".join)
def test_a_column_that_the_dataset_lacks_is_refused_before_any_call(
    cli: Any, work: pathlib.Path, cloud: Any, command: List[str], agent: List[str]
) -> None:
    done = cli(*command, *agent)
    assert done.code == 2
    told = done.err + done.out
    assert "{qestion}" in told and "its columns are id, question, gold" in told
    assert not (work / "called").exists() and not (work / "results").exists()
    assert cloud.records() == []


def test_an_empty_dataset_file_is_named_and_nothing_else_is_blamed(
    cli: Any, work: pathlib.Path
) -> None:
    for name, content in (("empty.jsonl", "\n\n"), ("empty.csv", "id,question\n")):
        (work / name).write_text(content)
        done = cli("run", "agent.py:answer", "--local", name)
        assert done.code == 2
        assert "EmptyDataset: The dataset file {} has no rows".format(name) in done.err
        assert "selected_item_ids" not in done.err and "query_sql" not in done.err


REFUSED = [
    ("agent.py:answer", "--n-workers", "0"),
    ("agent.py:answer", "--ground-truth-field", "golt"),
    ("agent.py:answer", "--item-id", "99"),
    ("agent.py:answer", "--max-failures", "x"),
    ("agent.py:missing",),
    ("agent.py:answer", "--evaluator", "telepathy"),
    UNKNOWN[0],
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
@pytest.mark.parametrize("place", ["results", "a/b/results"])
def test_a_run_that_is_refused_leaves_no_folder(
    cli: Any, work: pathlib.Path, arguments: List[str], place: str
) -> None:
    before = sorted(work.rglob("*"))
    done = cli("run", *arguments, "--local", "sums.jsonl", "--result-dir", place)
    assert done.code == 2, done.err
    left = [path for path in sorted(work.rglob("*")) if "__pycache__" not in path.parts]
    assert left == before


def test_what_was_there_before_a_refused_run_stays(cli: Any, work: pathlib.Path) -> None:
    (work / "results").mkdir()
    (work / "results" / "notes.txt").write_text("mine")
    assert cli("run", "agent.py:answer", "--local", "sums.jsonl", "--n-workers", 0).code == 2
    assert [path.name for path in (work / "results").iterdir()] == ["notes.txt"]
    assert cli("run", "agent.py:answer", "--local", "sums.jsonl").code == 0
    kept = sorted(path.name for path in (work / "results").iterdir())
    assert cli("run", "agent.py:answer", "--local", "sums.jsonl", "--n-workers", 0).code == 2
    assert sorted(path.name for path in (work / "results").iterdir()) == kept
    assert cli("run", "agent.py:answer", "--local", "sums.jsonl", "--resume").code == 0


def test_the_local_agentloop_is_not_kept_behind_a_link(cli: Any, work: pathlib.Path) -> None:
    (work / "results" / ".local").mkdir(parents=True)
    (work / "precious").write_bytes(b"")
    (work / "results" / ".local" / "agentloop.sqlite").symlink_to(work / "precious")
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl")
    assert done.code == 2 and "is a symbolic link" in done.err
    assert (work / "precious").read_bytes() == b""


def test_check_names_options_and_not_arguments(cli: Any, cloud: LocalAgentLoop) -> None:
    done = cli("check", "agent.py:answer", "--plan", "nope")
    assert done.code == 2
    assert "--region" in done.out and "region_id" not in done.out
    told = cli("check", "agent.py:answer", "--plan", "nope", "--json").out
    assert "--region" in told and "region_id" not in told


def test_serve_refuses_a_dataset_without_rows(cli: Any, work: pathlib.Path) -> None:
    (work / "empty.csv").write_text("id,question\n", encoding="utf-8")
    done = cli("serve", "--dataset", "empty.csv")
    assert done.code == 2 and "empty.csv has no rows" in done.err
