"""Each exit code by a real process, started from a directory outside the checkout."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any, Dict, List

import cli_process
import pytest

from agentloop_experiment_sdk import LocalAgentLoop, load_result


def test_0_for_a_run_from_a_directory_of_its_own(work: pathlib.Path) -> None:
    done = cli_process.run(
        *("run", "--local", "sums.jsonl", "agent.py:answer", "--min-success-rate", "95%"),
        *("--ground-truth-field", "gold", "--evaluator", "exact_match"),
        *("--min-score", "exact_match=1", "--html", "report.html", "--junit", "junit.xml"),
        cwd=work,
    )
    assert done.code == 0, done.stderr
    assert "Gate passed" in done.stdout
    assert (work / "report.html").stat().st_size > 1000
    assert 'failures="0"' in (work / "junit.xml").read_text(encoding="utf-8")


def test_1_for_a_failed_gate(work: pathlib.Path) -> None:
    done = cli_process.run(
        *("run", "--local", "sums.jsonl", "agent.py:half", "--min-success-rate", "95%", "--json"),
        cwd=work,
    )
    assert done.code == 1
    assert done.events[-1]["gate"]["passed"] is False


def test_2_for_a_missing_setting_in_one_line(work: pathlib.Path) -> None:
    done = cli_process.run("run", "agent.py:answer", cwd=work)
    assert done.code == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: InvalidConfiguration: Give --space (or AGENTLOOP_SPACE), --plan (or "
        "AGENTLOOP_PLAN_ID), --region (or AGENTLOOP_REGION). Without an account, use --local FILE."
    ]
    assert not (work / "results").exists()


def test_3_for_a_cloud_that_refuses_with_its_request_id(
    work: pathlib.Path, cloud: LocalAgentLoop
) -> None:
    cloud.faults.outage("403", "openapi:*")
    done = cli_process.run("run", "agent.py:answer", "--json", cwd=work)
    assert done.code == 3
    (event,) = done.events
    assert event["event"] == "error" and event["exit_code"] == 3
    assert event["request_id"] and event["request_id"] in done.stderr
    assert "Traceback" not in done.stderr


def test_3_for_rows_that_could_not_be_delivered(work: pathlib.Path, cloud: LocalAgentLoop) -> None:
    cloud.faults.outage("403", "PutLogs")
    done = cli_process.run("run", "agent.py:answer", "--drain-timeout", "0.5", cwd=work)
    assert done.code == 3
    assert "6 rows were not delivered" in done.stderr
    assert "Traceback" not in done.stderr


def interrupted_run(work: pathlib.Path, number: int, *options: Any) -> cli_process.Done:
    """A run of ``gated`` that gets a signal once rows 0 and 1 are done and others are running."""
    process = cli_process.start(
        "run", "agent.py:gated", "--n-workers", 2, "--json", *options, cwd=work
    )
    for row in (0, 1):
        (work / "go-{}".format(row)).write_text("")
    lines: List[str] = []
    while sum('"attempt_done"' in line for line in lines) < 2:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        lines.append(line)
    process.send_signal(number)
    rest, stderr = process.communicate(timeout=60)
    return cli_process.Done(process.returncode, "".join(lines) + rest, stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_130_and_143_leave_a_failed_record_and_a_directory_to_go_on_with(
    work: pathlib.Path, cloud: LocalAgentLoop, number: int, code: int
) -> None:
    done = interrupted_run(work, number)
    assert done.code == code
    assert done.events[-1] == {"event": "interrupted", "exit_code": code}
    assert "2 of 6 rows are done; run the same command again to go on." in done.stderr
    assert "Traceback" not in done.stderr
    record = done.events[0]["record_id"]
    assert cloud.record(record)["status"] == "failed"
    assert load_result("results").status == "interrupted"
    for row in range(6):
        (work / "go-{}".format(row)).write_text("")
    again = cli_process.run("resume", "results", "agent.py:gated", "--json", cwd=work)
    assert again.code == 0
    assert again.events[-1]["counts"]["succeeded"] == 6
    assert again.events[-1]["record_id"] == record
    assert sum(event["event"] == "attempt_done" for event in again.events) == 4
    assert cloud.record(record)["status"] == "completed"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupted_local_run_goes_on_with_the_same_record(work: pathlib.Path) -> None:
    done = interrupted_run(work, signal.SIGTERM, "--local", "sums.jsonl")
    assert done.code == 143
    for row in range(6):
        (work / "go-{}".format(row)).write_text("")
    again = cli_process.run("run", "agent.py:gated", "--local", "sums.jsonl", "--json", cwd=work)
    assert again.code == 0
    assert again.events[-1]["record_id"] == done.events[0]["record_id"]
    assert again.events[-1]["counts"]["succeeded"] == 6


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_serve_ends_with_0_and_what_it_prints_points_a_run_at_it(work: pathlib.Path) -> None:
    server = cli_process.start("serve", "--dataset", "sums.jsonl", cwd=work)
    exports: Dict[str, str] = {}
    while "AGENTLOOP_PLAN_ID" not in exports:
        line = server.stdout.readline()
        assert line.startswith("export "), server.stderr.read()
        name, _, value = line[len("export ") :].partition("=")
        exports[name] = value.split("#")[0].strip()
    env = cli_process.environment(**exports)
    listed = cli_process.run("plans", "--json", cwd=work, env=env)
    ran = cli_process.run("run", "agent.py:answer", "--min-success-rate", "1", cwd=work, env=env)
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=30) == 0
    server.stdout.close(), server.stderr.close()
    assert [plan["plan_id"] for plan in listed.events] == [exports["AGENTLOOP_PLAN_ID"]]
    assert ran.code == 0, ran.stderr


def test_a_reader_that_goes_away_does_not_end_the_run(work: pathlib.Path) -> None:
    process = cli_process.start(
        "run", "agent.py:gated", "--local", "sums.jsonl", "--json", cwd=work
    )
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    for row in range(6):
        (work / "go-{}".format(row)).write_text("")
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0, stderr
    assert "Broken" not in stderr and "Traceback" not in stderr
    result = load_result("results")
    assert (result.record_id, result.counts.succeeded) == (first["record_id"], 6)


def test_help_into_a_closed_pipe_is_quiet(work: pathlib.Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*cli_process.COMMAND, "run", "--help"],
        cwd=str(work),
        env=cli_process.environment(),
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr
