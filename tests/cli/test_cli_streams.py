"""Standard streams that are closed, or that nothing can be written to."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
from typing import Any

import cli_process
import pytest

from agentloop_experiment_sdk import load_result
from agentloop_experiment_sdk.cli.console import Console, open_closed_streams

RUN = ("run", "agent.py:answer", "--local", "sums.jsonl")
needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="redirections of sh")
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")


def redirected(redirection: str, *arguments: Any, cwd: pathlib.Path) -> cli_process.Done:
    """``agentloop-experiment`` with a redirection of the shell."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" ' + redirection, "sh", *cli_process.COMMAND, *arguments],
        cwd=str(cwd),
        env=cli_process.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
    )
    return cli_process.Done(done.returncode, done.stdout, done.stderr)


@needs_sh
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_run_with_closed_streams_is_a_run(
    work: pathlib.Path, redirection: str, form: Any
) -> None:
    done = redirected(redirection, *RUN, *form, cwd=work)
    assert (done.code, load_result("results").counts.succeeded) == (0, 6)
    assert "Traceback" not in done.stderr
    if redirection == ">&-":
        assert "6/6 rows done" in done.stderr
    if redirection == "2>&-":
        assert "6 rows, 6 succeeded" in done.stdout or done.events[-1]["exit_code"] == 0


@needs_sh
def test_no_file_takes_the_number_of_a_closed_stream(work: pathlib.Path) -> None:
    (work / "loud.py").write_text(
        "import os\n"
        "def answer(task):\n"
        "    os.write(1, b'to stdout')\n"
        "    os.write(2, b'to stderr')\n"
        "    return os.path.realpath('/proc/self/fd/1') if os.path.exists('/proc') else ''\n"
    )
    run = ("run", "loud.py:answer", "--local", "sums.jsonl")
    assert redirected(">&- 2>&-", *run, cwd=work).code == 0
    assert {row.output for row in load_result("results")} <= {"", os.devnull}
    for folder, _, names in os.walk(str(work)):
        for name in names:
            if name != "loud.py" and not name.endswith(".pyc"):
                assert b"to std" not in pathlib.Path(folder, name).read_bytes(), name


@needs_full
def test_a_full_disk_under_stdout_is_said_and_the_run_goes_on(work: pathlib.Path) -> None:
    done = redirected("> /dev/full", *RUN, "--json", cwd=work)
    assert (done.code, load_result("results").counts.succeeded) == (3, 6)
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("error: OutputNotWritten: stdout cannot be written: ")
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@needs_full
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "results"], 3),
        (["report", "results", "--junit", "-"], 3),
        (["gate", "results", "--max-p90-latency", "0"], 1),
        (["show", "none", "--json"], 2),
        (["--version"], 3),
        (["run", "--help"], 3),
    ],
    ids=lambda value: str(value),
)
def test_output_that_went_nowhere_is_no_success(
    cli: Any, work: pathlib.Path, arguments: Any, code: int
) -> None:
    cli(*RUN)
    done = redirected("> /dev/full", *arguments, cwd=work)
    assert done.code == code
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@needs_full
def test_a_full_disk_under_stderr_changes_nothing(work: pathlib.Path) -> None:
    done = redirected("2> /dev/full", *RUN, "--json", cwd=work)
    assert (done.code, done.events[-1]["exit_code"]) == (0, 0)


class Full(io.StringIO):
    """A stream on a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stdout_that_fails_is_written_to_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    console = Console(json_lines=True)
    assert not console.failed
    console.event("one")
    console.raw("two")
    assert console.failed
    assert capsys.readouterr().err.count("OutputNotWritten") == 1


def test_only_streams_that_are_not_there_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = sys.stdin, sys.stdout
    monkeypatch.setattr(sys, "stderr", None)
    open_closed_streams()
    assert (sys.stdin, sys.stdout) == kept
    print("nobody reads this", file=sys.stderr, flush=True)
    sys.stderr.close()
