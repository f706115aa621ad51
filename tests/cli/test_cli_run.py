"""``run``, ``resume`` and ``check`` in this process, against a LocalAgentLoop."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from typing import Any, Tuple

import pytest

from agentloop_experiment_sdk import LocalAgentLoop, load_result


def test_a_run_writes_results_and_says_where(cli: Any, work: pathlib.Path) -> None:
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl")
    assert done.code == 0
    assert "6 rows, 6 succeeded" in done.out
    assert "results in {}".format(os.path.join(str(work), "results")) in done.out
    assert "6/6 rows done" in done.err
    assert load_result("results").status == "completed"


def test_the_same_command_again_goes_on_with_the_same_record(cli: Any) -> None:
    first = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--limit", 2, "--json")
    again = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json")
    assert first.result["counts"]["total"] == 2
    assert again.result["counts"]["succeeded"] == 6
    assert again.result["record_id"] == first.result["record_id"]
    done = [event for event in again.events if event["event"] == "attempt_done"]
    assert len(done) == 4
    assert again.events[0]["resumed"] is True
    assert "--no-resume to start afresh" in again.err


def test_rows_added_to_the_file_are_added_to_the_run(cli: Any, work: pathlib.Path) -> None:
    cli("run", "agent.py:answer", "--local", "sums.jsonl")
    with open("sums.jsonl", "a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"id": 6, "question": "6+6", "gold": "12"}))
    again = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json")
    assert again.result["counts"]["succeeded"] == 7
    assert sum(event["event"] == "attempt_done" for event in again.events) == 1


def test_no_resume_moves_the_earlier_run_to_history(cli: Any) -> None:
    first = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json")
    second = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json", "--no-resume")
    assert second.result["record_id"] != first.result["record_id"]
    assert len(os.listdir("results/history")) == 1


def test_resume_demands_an_earlier_run(cli: Any, cloud: LocalAgentLoop) -> None:
    done = cli("run", "agent.py:answer", "--resume")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("error: CannotResume: ")


def test_resume_takes_plan_and_repeats_from_the_directory(
    cli: Any, cloud: LocalAgentLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = ["--version", "v7", "--parameter", "model=qwen", "--parameter", "top=3"]
    first = cli("run", "agent.py:answer", "--n-repeat", 2, "--limit", 2, "--json", *parameters)
    monkeypatch.delenv("AGENTLOOP_PLAN_ID")
    monkeypatch.setenv("AGENTLOOP_SPACE", "another")
    done = cli("resume", "results", "agent.py:answer", "--json")
    assert done.code == 0
    assert done.result["counts"]["succeeded"] == 12
    assert done.result["record_id"] == first.result["record_id"]
    meta = load_result("results").meta
    assert (meta["version"], meta["parameters"]) == ("v7", {"model": "qwen", "top": 3})


def test_resume_of_a_local_run_needs_no_dataset_file(cli: Any, work: pathlib.Path) -> None:
    cli(
        *("run", "agent.py:answer", "--local", "sums.jsonl", "--limit", 2),
        *("--ground-truth-field", "gold", "--evaluator", "exact_match"),
    )
    os.unlink("sums.jsonl")
    done = cli("resume", "results", "agent.py:answer", "--json")
    assert done.result["counts"]["succeeded"] == 6
    assert "was scored by exact_match; without --evaluator" in done.err


def test_resume_may_score_by_the_ground_truth_of_before(cli: Any) -> None:
    options = ["--ground-truth-field", "gold", "--evaluator", "exact_match"]
    cli("run", "agent.py:answer", "--local", "sums.jsonl", *options)
    done = cli("resume", "results", "agent.py:answer", "--evaluator", "exact_match", "--json")
    assert done.result["metrics"]["exact_match"]["mean"] == 1.0


def test_rows_are_chosen_by_id(cli: Any) -> None:
    done = cli(
        "run", "agent.py:answer", "--local", "sums.jsonl", "--item-id", 2, "--item-id", 4, "--json"
    )
    assert done.result["counts"]["total"] == 2
    assert {row.label for row in load_result("results")} == {"2", "4"}


def write_order_agent(work: pathlib.Path) -> None:
    (work / "order.py").write_text(
        "def answer(task):\n"
        "    with open('seen', 'a') as file:\n"
        "        print(task.input['n'], file=file)\n"
    )


def test_the_first_rows_are_those_of_the_file(cli: Any, work: pathlib.Path) -> None:
    write_order_agent(work)
    lines = ["id,n", *("{0},{0}".format(n) for n in range(1, 13))]
    (work / "rows.csv").write_text("\n".join(lines))
    run = ("run", "order.py:answer", "--local", "rows.csv", "--json", "--serial")
    first = cli(*run, "--limit", 3)
    assert [row.label for row in load_result("results")] == ["1", "2", "3"]
    again = cli(*run)
    assert again.result["record_id"] == first.result["record_id"]
    assert (work / "seen").read_text().split() == [str(n) for n in range(1, 13)]


@pytest.mark.parametrize(
    "columns",
    [["id", "n"], ["n"], ["id", "n", "ROWID"], ["rowid", "n", "_rowid_"]],
    ids=",".join,
)
def test_a_long_file_is_read_in_its_order(cli: Any, work: pathlib.Path, columns: Any) -> None:
    write_order_agent(work)
    texts = [str(n * 7919 % 131) for n in range(350)]  # in no order, and each more than once
    rows = [dict(dict.fromkeys(columns, text), n=n) for n, text in enumerate(texts)]
    (work / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = cli("run", "order.py:answer", "--local", "rows.jsonl", "--serial", "--json")
    assert done.result["counts"]["succeeded"] == 350
    assert (work / "seen").read_text().split() == [str(n) for n in range(350)]


def test_a_file_that_takes_every_name_of_a_row_number_is_read_by_id(
    cli: Any, work: pathlib.Path
) -> None:
    write_order_agent(work)
    rows = [{"id": n, "n": n, "rowid": 1, "_rowid_": 1, "oid": 1} for n in (2, 3, 1)]
    (work / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert cli("run", "order.py:answer", "--local", "rows.jsonl", "--serial").code == 0
    assert (work / "seen").read_text().split() == ["1", "2", "3"]


def test_results_of_a_run_that_read_its_file_by_id_are_gone_on_with(
    cli: Any, work: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_order_agent(work)
    (work / "rows.csv").write_text("id,n\n9,9\n10,10\n11,11\n")
    run = ("run", "order.py:answer", "--local", "rows.csv", "--json", "--serial")
    with monkeypatch.context() as before:
        before.setattr("agentloop_experiment_sdk.cli.embedded.file_order", lambda columns: "")
        first = cli(*run, "--limit", 2)
    again = cli(*run)
    assert again.result["record_id"] == first.result["record_id"]
    assert again.result["counts"]["succeeded"] == 3
    assert (work / "seen").read_text().split() == ["10", "11", "9"]


def test_failed_rows_are_run_again_on_request(cli: Any) -> None:
    failed = cli("run", "agent.py:half", "--local", "sums.jsonl", "--json")
    assert failed.result["counts"]["failed"] == 3
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--retry-failed", "--json")
    assert done.result["counts"]["succeeded"] == 6


def test_serial_runs_one_row_after_the_other_in_this_thread(cli: Any, work: pathlib.Path) -> None:
    (work / "where.py").write_text(
        "import threading\ndef where(task):\n    return threading.current_thread().name\n"
    )
    cli("run", "where.py:where", "--local", "sums.jsonl", "--serial")
    assert {row.output for row in load_result("results")} == {"MainThread"}


def test_a_result_that_misses_a_limit_fails_the_gate(cli: Any) -> None:
    done = cli(
        "run", "agent.py:half", "--local", "sums.jsonl", "--min-success-rate", "95%", "--json"
    )
    assert done.code == 1
    assert done.result["exit_code"] == 1
    assert done.result["gate"]["reasons"] == ["success rate 50.00% is below 95.00%"]


def test_a_gate_without_limits_may_be_asked_for(cli: Any) -> None:
    done = cli("run", "agent.py:half", "--local", "sums.jsonl", "--gate")
    assert done.code == 0
    assert "Gate passed" in done.out


def test_scores_and_prices_decide(cli: Any, work: pathlib.Path) -> None:
    (work / "costly.py").write_text(
        "from agentloop_experiment_sdk import SolutionOutput\n"
        "def costly(task):\n"
        "    usage = {'input_tokens': 10, 'output_tokens': 10, 'model': 'm'}\n"
        "    return SolutionOutput.success('2', meta={'usage': usage})\n"
    )
    options = ["--ground-truth-field", "gold", "--evaluator", "exact_match"]
    done = cli(
        *("run", "costly.py:costly", "--local", "sums.jsonl", "--json", *options),
        *("--min-score", "exact_match=0.5", "--max-cost", "0.001", "--price", "m=10,20"),
        *("--max-p90-latency", "60"),
    )
    assert done.code == 1
    checks = {check["name"]: check["passed"] for check in done.result["gate"]["checks"]}
    assert checks["min_scores[exact_match]"] is False
    assert checks["max_cost"] is False
    assert checks["max_p90_latency"] is True


def test_scores_that_are_there_or_have_several_parts_can_be_asked_for(
    cli: Any, work: pathlib.Path
) -> None:
    (work / "parts.py").write_text(
        "def parts(task, output):\n    return {'tone': 1, 'length': 2}\n"
    )
    run = ["run", "agent.py:answer", "--local", "sums.jsonl"]
    scored = [*run, "--evaluator", "parts.py:parts"]
    assert cli(*scored, "--min-score", "parts.tone=1").code == 0
    assert cli(*run, "--min-score", "parts.tone=1").code == 0  # the rows have it
    refused = cli(*run, "--no-resume", "--min-score", "parts.tone=1")
    assert refused.code == 2 and "no evaluator of the run gives" in refused.err
    assert not os.path.exists("results/history")


def test_a_forgotten_or_broken_evaluator_does_not_pass_against_a_baseline(
    cli: Any, work: pathlib.Path
) -> None:
    (work / "evals.py").write_text("def exact_match(task, output):\n    raise KeyError('x')\n")
    run = ["run", "agent.py:answer", "--local", "sums.jsonl", "--ground-truth-field", "gold"]
    cli(*run, "--evaluator", "exact_match", "--export-baseline", "baseline.json")
    wrong = ["run", "wrong.py:wrong", *run[2:], "--baseline", "baseline.json", "--no-resume"]
    (work / "wrong.py").write_text("def wrong(task):\n    return 'wrong'\n")
    for options in ([], ["--max-regressions", "0"], ["--evaluator", "evals.py:exact_match"]):
        done = cli(*wrong, *options)
        assert done.code == 1
        assert "the baseline has exact_match for 6 items that have no score here" in done.out


def test_a_baseline_is_exported_and_gated_against(cli: Any) -> None:
    cli("run", "agent.py:answer", "--local", "sums.jsonl", "--export-baseline", "baseline.json")
    done = cli(
        *("run", "agent.py:half", "--local", "sums.jsonl", "--result-dir", "second", "--json"),
        *("--baseline", "baseline.json", "--max-regressions", 2),
    )
    assert done.code == 1
    assert any("3 items no longer pass" in reason for reason in done.result["gate"]["reasons"])


def test_too_many_failures_end_the_run_and_are_still_reported(cli: Any) -> None:
    done = cli(
        *("run", "agent.py:broken", "--local", "sums.jsonl", "--stop-if-first", 3, "--json"),
        *("--n-workers", 1, "--markdown", "report.md"),
    )
    assert done.code == 1
    assert [event["event"] for event in done.events[-2:]] == ["result", "error"]
    assert done.events[-1]["code"] == "TooManyFailures"
    assert "--retry-failed" in done.events[-1]["message"]
    assert "boom" in pathlib.Path("report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("limit", "stopped"), [("2", True), ("0.4", True), ("60%", False)])
def test_max_failures_is_a_count_or_a_share(cli: Any, limit: str, stopped: bool) -> None:
    done = cli(
        "run", "agent.py:half", "--local", "sums.jsonl", "--max-failures", limit, "--n-workers", 1
    )
    assert done.code == (1 if stopped else 0)


def test_undelivered_rows_are_infrastructure(cli: Any, cloud: LocalAgentLoop) -> None:
    fault = cloud.faults.outage("403", "PutLogs")
    done = cli("run", "agent.py:answer", "--drain-timeout", "0.5", "--json", "--gate")
    assert done.code == 3
    assert done.result["counts"]["undelivered"] == 6
    assert "agentloop-experiment deliver" in done.err
    fault.stop()
    delivered = cli("deliver", "results", "--json")
    assert delivered.code == 0
    assert delivered.result["delivered"] == 6
    assert len(cloud.rows()) == 6


def test_undelivered_rows_may_be_allowed_and_a_failed_gate_comes_first(
    cli: Any, cloud: LocalAgentLoop
) -> None:
    cloud.faults.outage("403", "PutLogs")
    options = ["--drain-timeout", "0.5", "--min-success-rate", "0.9"]
    assert cli("run", "agent.py:answer", "--allow-undelivered", *options).code == 0
    assert cli("run", "agent.py:half", "--no-resume", *options).code == 1


def test_a_held_record_is_completed_by_deliver(cli: Any, cloud: LocalAgentLoop) -> None:
    fault = cloud.faults.outage("403", "PutLogs")
    held = cli(
        *("run", "agent.py:answer", "--drain-timeout", "0.5", "--on-undelivered", "hold"),
        "--json",
    )
    record = held.result["record_id"]
    assert cloud.record(record)["status"] == "running"
    still = cli("deliver", "results", "--drain-timeout", "0.5", "--json")
    assert (still.code, still.result["undelivered"]) == (3, 6)
    fault.stop()
    done = cli("deliver", "results")
    assert done.code == 0
    assert "6 rows delivered, 0 undelivered" in done.out
    assert cloud.record(record)["status"] == "completed"


def test_a_run_with_a_given_project_and_dataset_settings(cli: Any, cloud: LocalAgentLoop) -> None:
    done = cli(
        *("run", "agent.py:answer", "--project", "local-project", "--max-rows", 3, "--json"),
        *("--experiment-name", "nightly"),
    )
    assert done.result["counts"]["total"] == 3
    assert load_result("results").meta["identity"]["experiment_name"] == "nightly"


def test_options_win_over_the_environment(
    cli: Any, cloud: LocalAgentLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = os.environ["AGENTLOOP_PLAN_ID"]
    for name in ("AGENTLOOP_SPACE", "AGENTLOOP_PLAN_ID", "AGENTLOOP_REGION", "AGENTLOOP_AK"):
        monkeypatch.setenv(name, "wrong")
    ends = cloud.endpoints
    done = cli(
        *("run", "agent.py:answer", "--plan", plan, "--space", ends.agent_space),
        *("--region", ends.region_id, "--access-key-id", ends.access_key_id),
        *("--access-key-secret", ends.access_key_secret),
    )
    assert done.code == 0


def test_check_finds_everything_and_creates_no_record(cli: Any, cloud: LocalAgentLoop) -> None:
    done = cli("check", "agent.py:answer", "--limit", 1)
    assert done.code == 0
    assert [line.split(":")[0] for line in done.out.splitlines()] == [
        "ok   results directory",
        "ok   credentials",
        "ok   plan",
        "ok   dataset",
        "ok   SLS",
        "ok   agent",
    ]
    assert cloud.records() == []


def test_check_works_with_a_local_file(cli: Any) -> None:
    done = cli("check", "agent.py:answer", "--local", "sums.jsonl", "--json")
    assert done.code == 0
    assert done.result == {"event": "result", "exit_code": 0, "ok": True}


def test_check_takes_every_option_of_run(
    cli: Any, cloud: LocalAgentLoop, work: pathlib.Path
) -> None:
    command = (
        *("agent.py:answer", "--limit", 2, "--n-workers", "2-8", "--n-repeat", 2),
        *("--max-failures", "10%", "--row-retries", 1, "--evaluator", "exact_match"),
        *("--ground-truth-field", "gold", "--min-score", "exact_match=0.5"),
        *("--version", "v2", "--parameter", "k=1", "--html", "report.html", "--no-resume"),
    )
    done = cli("check", *command)
    assert done.code == 0, done.err
    assert done.out.count("ok   agent: ") == 2
    assert cloud.records() == [] and not (work / "report.html").exists()
    assert cli("run", *command).code == 0


@pytest.mark.parametrize(
    "options, said",
    [
        (("--html", "absent/report.html"), "absent/report.html cannot be written"),
        (("--min-score", "exact_match=0.5"), "exact_match"),
        (("--max-failures", "many"), "--max-failures"),
        (("--evaluator", "nonsense"), "nonsense"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_check_refuses_what_run_would_refuse(
    cli: Any, cloud: LocalAgentLoop, options: Tuple[str, ...], said: str
) -> None:
    done = cli("check", "agent.py:answer", *options)
    assert done.code == 2 and said in done.err
    assert cloud.records() == []


def test_check_says_that_there_is_nothing_to_resume(cli: Any, cloud: LocalAgentLoop) -> None:
    done = cli("check", "agent.py:answer", "--resume")
    assert done.code == 2
    assert "FAIL results directory: There is nothing in ./results to resume" in done.out
    assert cli("run", "agent.py:answer").code == 0
    assert cli("check", "agent.py:answer", "--resume").code == 0


def test_a_failed_check_exits_by_its_cause(
    cli: Any, cloud: LocalAgentLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("check", "agent.py:answer", "--plan", "exp-plan-none").code == 2
    agent = cli("check", "agent.py:broken", "--limit", 1, "--json")
    assert agent.code == 3
    (failed,) = [event for event in agent.events if event.get("ok") is False][:1]
    assert failed["name"] == "agent" and "boom" in failed["message"]
    with cloud.faults.outage("403", "openapi:*"):
        assert cli("check", "agent.py:answer").code == 3
    monkeypatch.setenv("AGENTLOOP_SK", "")
    half = cli("check", "agent.py:answer")
    assert half.code == 2
    assert "FAIL credentials: Half a pair of keys" in half.out


def test_logging_is_left_as_it_was(cli: Any) -> None:
    logger = logging.getLogger("agentloop_experiment_sdk")
    before = logger.level, logger.propagate, list(logger.handlers)
    cli("run", "agent.py:answer", "--local", "sums.jsonl", "--log-level", "debug")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


@pytest.mark.parametrize("progress", ["bar", "log", "none"])
def test_progress_is_shown_as_asked(cli: Any, progress: str) -> None:
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--progress", progress)
    assert done.code == 0
    if progress == "none":
        assert "rows done" not in done.err


def test_async_functions_and_methods_are_solutions(cli: Any) -> None:
    for number, name in enumerate(("answer_async", "Nested.call")):
        done = cli(
            *("run", "agent.py:" + name, "--local", "sums.jsonl"),
            *("--result-dir", "results-{}".format(number), "--min-success-rate", 1),
        )
        assert done.code == 0


def test_a_run_in_which_every_row_failed_fails_the_job(cli: Any) -> None:
    done = cli("run", "agent.py:broken", "--local", "sums.jsonl", "--json")
    assert done.code == 1 and done.result["exit_code"] == 1
    assert "error: AllRowsFailed: every row failed (6 of 6)" in done.err
    assert "--min-success-rate 0" in done.err
    # what is done stays done, and says so again
    assert cli("run", "agent.py:broken", "--local", "sums.jsonl").code == 1
    assert cli("resume", "results", "agent.py:broken").code == 1
    assert cli("resume", "results", "agent.py:answer", "--retry-failed").code == 0


def test_a_limit_of_the_users_own_decides_about_failed_rows(cli: Any) -> None:
    broken = ("run", "agent.py:broken", "--local", "sums.jsonl")
    assert cli(*broken, "--min-success-rate", 0).code == 0
    assert cli(*broken, "--min-success-rate", "1%").code == 1
    gate = cli(*broken, "--gate", "--html", "page.html")
    assert gate.code == 1 and "every row failed (6 of 6)" in gate.out
    assert "every row failed" in pathlib.Path("page.html").read_text("utf-8")
    assert cli("gate", "results").code == 1
    assert cli("gate", "results", "--min-success-rate", 0).code == 0


@pytest.fixture
def stops_after_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every run be stopped, by no signal, when two of its rows are done."""
    from agentloop_experiment_sdk import Experiment
    from agentloop_experiment_sdk.run.events import AttemptDone

    class Stopped(Experiment):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **dict(options, on_event=self.tell, n_workers=1))
            self.done = 0

        def tell(self, event: Any) -> None:
            self.done += isinstance(event, AttemptDone)
            if self.done == 2:
                self.stop()

    monkeypatch.setattr("agentloop_experiment_sdk.cli.run.Experiment", Stopped)


def test_an_incomplete_run_is_no_success(cli: Any, stops_after_two: None) -> None:
    run = ("run", "agent.py:slow", "--local", "sums.jsonl")
    done = cli(*run)
    assert load_result("results").status == "interrupted"
    assert done.code == 3
    left = load_result("results").counts.incomplete
    assert 0 < left <= 4
    assert done.err.splitlines()[-1] == (
        "error: IncompleteRun: {} rows have no result. {} of 6 rows are done; run the same command "
        "again to go on. --allow-incomplete lets such a run pass.".format(left, 6 - left)
    )
    gated = cli(*run, "--no-resume", "--gate")
    assert gated.code == 1 and "IncompleteRun" not in gated.err
    allowed = cli(*run, "--no-resume", "--allow-incomplete")
    assert allowed.code == 0 and "IncompleteRun" not in allowed.err


def test_a_part_is_complete_when_its_rows_are_done(cli: Any, stops_after_two: None) -> None:
    run = ("run", "agent.py:slow", "--local", "sums.jsonl")
    assert cli(*run).code == 3
    assert cli(*run, "--limit", 1).code == 0
    assert load_result("results").counts.incomplete > 0
    assert cli(*run, "--item-id", 5).code == 0


def test_some_failed_rows_are_told_and_leave_the_exit_code(cli: Any) -> None:
    done = cli("run", "agent.py:half", "--local", "sums.jsonl")
    assert done.code == 0
    assert "3 of 6 rows failed. No gate was asked for" in done.err
    gated = cli("run", "agent.py:half", "--local", "sums.jsonl", "--min-success-rate", "50%")
    assert gated.code == 0 and "No gate was asked for" not in gated.err
    fine = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--result-dir", "fine")
    assert "No gate was asked for" not in fine.err
