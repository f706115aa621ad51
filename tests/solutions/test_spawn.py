"""A command started with the C library's posix_spawn finds what subprocess would give it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from agentloop_experiment_sdk.solutions import spawn
from agentloop_experiment_sdk.solutions.spawn import Spawned

CAP = 60.0
pytestmark = pytest.mark.skipif(
    spawn._library() is None, reason="the C library cannot do all that is needed"
)


def started(argv, added=None, cwd=None, stdin=None):
    """Start a command whose output comes through a pipe; the process, and all that it printed."""
    readable, writable = os.pipe()
    ends = {1: writable, 2: writable}
    if stdin is not None:
        ends[0] = stdin
    child = spawn.start([os.fsencode(item) for item in argv], added or {}, cwd, ends)
    os.close(writable)
    with open(readable, "rb") as pipe:
        return child, pipe.read().decode()


def printed(argv, *args, **kwargs):
    child, text = started(argv, *args, **kwargs)
    assert isinstance(child, Spawned) and child.wait() == 0, text
    return text


def variables(added=None):
    return dict(line.split("=", 1) for line in printed(["env"], added).splitlines())


def test_a_command_finds_the_variables_of_this_process_and_those_added(monkeypatch):
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("UNWANTED", "1")
    ours = {name: value for name, value in os.environ.items() if name != "UNWANTED"}
    found = variables({b"MINE": b"x=y", b"OURS": b"2", b"UNWANTED": None})
    assert found == dict(ours, MINE="x=y", OURS="2")


def test_a_variable_that_changes_between_two_commands_is_seen(monkeypatch):
    for number in range(3):
        monkeypatch.setenv("CHANGING", str(number))
        added = {b"ROW": str(number).encode(), b"GONE": None}
        assert variables(added) == dict(os.environ, ROW=str(number))
    monkeypatch.delenv("CHANGING")
    assert variables({b"ROW": b"3"}) == dict(os.environ, ROW="3")
    assert variables() == dict(os.environ)
    assert variables({b"ROW": b"4", b"MORE": b"5"}) == dict(os.environ, ROW="4", MORE="5")


def test_commands_of_many_threads_find_each_their_own_variables():
    wrong = []

    def work(name):
        for number in range(20):
            value = "{}-{}".format(name, number)
            if variables({b"ROW": value.encode()}).get("ROW") != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP)
    assert wrong == []


def test_a_command_leads_a_session_of_its_own():
    code = "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))"
    assert printed([sys.executable, "-S", "-c", code]) == "True\n"


def test_signals_that_python_ignores_are_at_their_default():
    child, _ = started(["sh", "-c", "kill -PIPE $$"])
    assert child.wait() == -13


def test_a_command_inherits_no_descriptor_but_its_three():
    held, other = os.pipe()
    os.set_inheritable(held, True)
    try:
        listing = printed(["sh", "-c", "ls /proc/$$/fd"]).split()
    finally:
        os.close(held)
        os.close(other)
    assert listing == ["0", "1", "2"]


def test_without_an_input_a_command_reads_the_end_at_once():
    assert printed(["sh", "-c", "cat; readlink /proc/self/fd/0"]) == "/dev/null\n"


def test_an_input_is_read(tmp_path):
    (tmp_path / "in").write_text("said")
    with open(str(tmp_path / "in")) as file:
        assert printed(["cat"], stdin=file.fileno()) == "said"


def test_a_relative_program_is_looked_for_in_the_working_directory(tmp_path):
    script = tmp_path / "say"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    assert printed(["./say"], cwd=os.fsencode(str(tmp_path))) == "{}\n".format(tmp_path.resolve())


def test_the_return_code_is_asked_for_without_waiting():
    readable, writable = os.pipe()
    ends = {1: os.open(os.devnull, os.O_WRONLY), 2: os.open(os.devnull, os.O_WRONLY), 0: readable}
    child = spawn.start([b"cat"], {}, None, ends)
    for descriptor in ends.values():
        os.close(descriptor)
    assert child.poll() is None
    os.close(writable)
    assert child.wait() == 0
    assert child.poll() == 0


def test_a_process_that_somebody_else_reaped_has_ended():
    child, _ = started(["true"])
    os.waitpid(child.pid, 0)
    assert child.wait() == 0


@pytest.mark.parametrize(
    ("argv", "added", "cwd"),
    [
        (["no-such-program-xyz"], {}, None),
        (["/no/such/program"], {}, None),
        (["true"], {}, b"/no/such/folder"),
        (["true"], {b"PATH": b"bin:/bin"}, None),
    ],
    ids=["not in PATH", "no such file", "no such directory", "a PATH with relative folders"],
)
def test_what_cannot_be_started_is_left_to_subprocess(argv, added, cwd):
    assert started(argv, added, cwd) == (None, "")


def test_descriptors_that_would_overwrite_each_other_are_left_to_subprocess():
    # a process that closed its own input and output gets pipes with these numbers
    code = """
import os, sys
sys.path.insert(0, {!r})
from agentloop_experiment_sdk.solutions import process
from agentloop_experiment_sdk.solutions.command_call import CommandCall
import contextlib
kept = os.dup(1)
os.close(0)
os.close(1)
ending = process.run(CommandCall(("sh", "-c", "echo out; echo err >&2")), contextlib.nullcontext)
os.write(kept, repr((ending.stdout, ending.stderr, ending.returncode)).encode())
""".format(os.path.dirname(os.path.dirname(os.path.dirname(spawn.__file__))))
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"(b'out\\n', b'err\\n', 0)"


def test_the_variables_of_a_start_stay_its_own_while_another_is_made():
    # a signal handler may run a command between the two steps of another start
    last = spawn._Last()
    environment = {b"A": b"1"}
    last.variables = last.taken(list, environment, {b"ROW": b"0"})
    first = last.taken(list, environment, {b"ROW": b"1"})
    second = last.taken(list, environment, {b"ROW": b"2"})
    assert first.array == [b"A=1", b"ROW=1"] and second.array == [b"A=1", b"ROW=2"]


def test_variables_that_were_only_half_made_are_not_used_again():
    def interrupted(texts):
        raise KeyboardInterrupt

    last = spawn._Last()
    last.variables = last.taken(list, {b"A": b"1"}, {})
    with pytest.raises(KeyboardInterrupt):
        last.taken(interrupted, {b"A": b"2"}, {})
    assert last.taken(list, {b"A": b"1"}, {}).array == [b"A=1"]


def test_an_interrupt_in_the_middle_of_a_start_leaves_no_process(monkeypatch):
    library, pids = spawn._library(), []
    real = library._spawn

    def start(found, *args):
        assert real(found, *args) == 0
        pids.append(found._obj.value)
        raise KeyboardInterrupt

    monkeypatch.setattr(library, "_spawn", start)
    with pytest.raises(KeyboardInterrupt):
        started(["sleep", "120"])
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], 0)


def test_a_process_that_nobody_waits_for_is_reaped_by_a_later_start():
    child, _ = started(["true"])
    child.abandon()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    printed(["true"])
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)
    assert child not in spawn._abandoned


def test_a_start_that_fails_leaves_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        started(["/no/such/program"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("missing", ["platform", "function", "ctypes", "permission"])
def test_where_the_c_library_cannot_do_it_subprocess_is_used(monkeypatch, missing):
    spawn._library.cache_clear()
    if missing == "platform":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif missing == "ctypes":
        monkeypatch.setitem(sys.modules, "ctypes", None)
    else:
        import ctypes

        class Old:
            def __init__(self, name):
                if missing == "permission":
                    raise RuntimeError("a hook forbids it")

        monkeypatch.setattr(ctypes, "PyDLL", Old)
    try:
        assert spawn._library() is None
        assert started(["true"]) == (None, "")
    finally:
        spawn._library.cache_clear()
