"""A signal ends a run, whatever the agent makes of the exception that it raises."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
from typing import Any, List

import cli_process
import pytest

from agentloop_experiment_sdk import load_result
from agentloop_experiment_sdk.cli import exits, signals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SWALLOWS = """
import os, signal, time

def answer(task):
    row = task.input["id"]
    with open("seen", "a") as file:
        print(row, file=file)
    if row == 2:
        try:
            os.kill(os.getpid(), signal.{name})
            time.sleep(60)
        except:
            pass
    return "done"
"""
BOTH = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]


@pytest.mark.parametrize(("name", "code", "said"), BOTH)
def test_an_agent_in_the_main_thread_that_swallows_a_signal_does_not_keep_the_run_going(
    work: pathlib.Path, name: str, code: int, said: str
) -> None:
    (work / "swallows.py").write_text(SWALLOWS.format(name=name))
    run = ("run", "swallows.py:answer", "--serial", "--local", "sums.jsonl", "--json")
    done = cli_process.run(*run, cwd=work)
    assert done.code == code, done.stderr
    assert (work / "seen").read_text().split() == ["0", "1", "2"]
    assert done.events[-1] == {"event": "interrupted", "exit_code": code}
    told, last = done.stderr.splitlines()[-2:]
    assert told.endswith(" of 6 rows are done; run the same command again to go on.")
    assert last == said
    assert load_result("results").status == "interrupted"


@pytest.mark.parametrize(("name", "code", "said"), BOTH)
def test_what_a_signal_raised_comes_out_although_it_was_swallowed(
    name: str, code: int, said: str
) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    stops: List[str] = []
    with pytest.raises(
        KeyboardInterrupt
    ) as caught, signals.sigterm_as_interrupt(), signals.stopped_by_signals(
        lambda: stops.append(name)
    ):
        try:
            os.kill(os.getpid(), number)
            threading.Event().wait(30)
        except BaseException:
            pass
        stops.append("went on")
    assert exits.exit_code_of(caught.value) == code
    assert stops == [name, "went on"]
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    stops: List[None] = []
    try:
        with signals.stopped_by_signals(lambda: stops.append(None)):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert not stops


def test_a_run_off_the_main_thread_leaves_the_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    found: List[Any] = []

    def look() -> None:
        with signals.stopped_by_signals(lambda: None):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]
