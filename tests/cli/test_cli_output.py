"""Help, logs, wording, a quick start, and what happens to the console's streams."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from typing import Any

import cli_process
import pytest

from agentloop_experiment_sdk import errors
from agentloop_experiment_sdk.cli import exits, main, program, serve, signals
from agentloop_experiment_sdk.cli.console import Console
from agentloop_experiment_sdk.cli.wording import in_options

COMMANDS = (
    *("run", "resume", "check", "deliver", "plans", "show", "compare", "gate", "report", "serve"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_shows_an_example(cli: Any, command: str) -> None:
    done = cli(command, "--help")
    assert done.code == 0
    assert "example:\n  agentloop-experiment {} ".format(command) in done.out
    assert "exit codes:" in done.out


def test_the_examples_of_the_help_can_be_parsed(cli: Any) -> None:
    for command in COMMANDS:
        text = cli(command, "--help").out.partition("example:\n")[2].partition("\n\n")[0]
        lines = text.replace("\\\n", " ").splitlines()
        assert lines
        for line in lines:
            program.parser().parse_args(line.split()[1:])


def test_the_version(cli: Any) -> None:
    assert re.match(r"agentloop-experiment \d+\.\d+", cli("--version").out)


def test_help_loads_no_cloud_client_and_no_report(work: pathlib.Path) -> None:
    code = (
        "import sys; from agentloop_experiment_sdk.cli import main; main(['run', '--help'])\n"
        "bad = ('aliyun', 'alibabacloud', 'asyncio', 'sqlite3', 'ssl', 'statistics', 'difflib')\n"
        "print([name for name in sys.modules if name.startswith(bad)], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=cli_process.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("x"), 2),
        (errors.CredentialsError("x"), 2),
        (errors.PlanError("x"), 2),
        (errors.EmptyDatasetError("x"), 2),
        (errors.ResumeError("x"), 2),
        (errors.ResultsDirectoryError("x", code="ResultsDirectoryNotWritable"), 3),
        (errors.CloudError("x"), 3),
        (errors.RunAbortedError("x"), 3),
        (errors.TooManyFailuresError("x"), 1),
        (OSError("x"), 3),
        (RuntimeError("x"), 3),
        (KeyboardInterrupt(), 130),
        (exits.Terminated(), 143),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exits.exit_code_of(error) == code


def test_an_error_is_one_line_with_code_and_request_id() -> None:
    error = errors.CloudError("It was\n  refused.", code="Forbidden", request_id="R-1")
    assert exits.one_line(error) == "Forbidden: It was refused. (request id R-1)"
    known = errors.CloudError("Refused (request id R-1).", code="Forbidden", request_id="R-1")
    assert exits.one_line(known).count("R-1") == 1
    assert exits.one_line(FileNotFoundError(2, "No such file", "a/b")) == (
        "FileNotFoundError: a/b: No such file"
    )
    assert exits.one_line(RuntimeError()) == "RuntimeError: RuntimeError"


def test_python_arguments_are_named_as_options() -> None:
    assert in_options("Pass resume=False or retry_failed=True.") == (
        "Pass --no-resume or --retry-failed."
    )
    assert in_options("n_workers must be 1; my_n_workers, /x/result_dir/y stay") == (
        "--n-workers must be 1; my_n_workers, /x/result_dir/y stay"
    )


def test_an_error_while_writing_a_report_is_one_line(cli: Any, work: pathlib.Path) -> None:
    if os.geteuid() == 0 and not pathlib.Path("/dev/full").exists():
        pytest.skip("no device that is full")
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--junit", "/dev/full")
    assert done.code == 3
    assert done.err.splitlines()[-1] == "error: OSError: [Errno 28] No space left on device"


def test_debug_logs_say_where_an_error_happened(cli: Any) -> None:
    done = cli("show", "none", "--log-level", "debug")
    assert done.code == 2
    assert "Where it happened:" in done.err and "Traceback" in done.err


def test_the_log_level_is_heeded(cli: Any) -> None:
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--log-level", "warning")
    assert done.err == ""


def test_the_credentials_library_is_silent(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
    done = cli("plans", "--space", "s", "--region", "cn-x")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1 and "No AccessKey was found" in done.err
    assert not logging.getLogger("credentials").filters


class Closed(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_closed_stdout_ends_the_output_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    console = Console(json_lines=True)
    console.event("one")
    console.event("two")
    monkeypatch.setattr(sys, "stderr", Closed())
    console.note("nobody reads this")


def test_ctrl_c_before_anything_was_written(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentloop_experiment_sdk import Experiment

    def interrupted(self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "run", interrupted)
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--json")
    assert done.code == 130
    assert "Nothing was written yet; run the same command again." in done.err
    assert done.events == [{"event": "interrupted", "exit_code": 130}]


def test_a_run_that_must_start_afresh_says_how_to_go_on(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk import Experiment

    cli("run", "agent.py:answer", "--local", "sums.jsonl")

    def interrupted(self: Any) -> None:
        raise exits.Terminated

    monkeypatch.setattr(Experiment, "run", interrupted)
    done = cli("run", "agent.py:answer", "--local", "sums.jsonl", "--no-resume")
    assert done.code == 143
    assert "run the same command without --no-resume to go on." in done.err


def test_the_signal_handler_is_put_back(cli: Any) -> None:
    before = signal.getsignal(signal.SIGTERM)
    cli("show", "none")
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_raises_in_the_main_thread() -> None:
    with pytest.raises(exits.Terminated), signals.sigterm_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(30)


def test_main_works_off_the_main_thread(cli: Any) -> None:
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main(["show", "none"])))
    thread.start()
    thread.join()
    assert codes == [2]


def test_main_takes_the_arguments_of_the_process(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["agentloop-experiment", "show", "none"])
    assert main() == 2


def test_serve_announces_and_ends_with_an_interrupt(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "_wait", interrupted)
    done = cli("serve", "--dataset", "sums.jsonl", "--store", "loop.sqlite", "--json")
    assert done.code == 0
    assert done.result["event"] == "serving"
    assert list(done.result["plans"]) == ["sums.jsonl"]
    assert done.err.splitlines()[-1] == "ended"
