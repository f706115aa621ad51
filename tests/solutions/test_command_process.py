"""Processes and their groups: nothing outlives a row, nothing hangs (kinds of C44, C45, C47)."""

import contextlib
import errno
import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from agentloop_experiment_sdk import scope as scopes
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions import process, process_threads, spawn
from agentloop_experiment_sdk.solutions.command import command_solution_with
from agentloop_experiment_sdk.solutions.command_call import CommandCall

CAP = 30  # seconds that a condition may take before the test fails
TASK = Task("t-1", {"q": "hi"})

# Starts a child, prints its process id when the child is ready, leaves a mark, then waits.
FAMILY = """
import subprocess, sys, time, signal
mark, ignore, detach, stay = sys.argv[1:5]
if ignore == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(120)"
child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=detach == "detach",
                         stderr=subprocess.PIPE)
child.stderr.readline()
print("child %d." % child.pid, flush=True)
open(mark, "w").close()
print("waiting", flush=True)
if stay == "stay":
    time.sleep(120)
"""


@contextlib.contextmanager
def never(callback):
    yield


def alive(pid):
    try:
        state = Path("/proc/{}/stat".format(pid)).read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(condition):
    limit = time.monotonic() + CAP
    while not condition():
        assert time.monotonic() < limit, "it did not come true in {} s".format(CAP)
        time.sleep(0.01)


def family(tmp_path, ignore="-", detach="-", stay="stay"):
    mark = str(tmp_path / "mark")
    return (sys.executable, "-S", "-c", FAMILY, mark, ignore, detach, stay)


def expiring(tmp_path):
    """A clock that leaps over the timeout once the family has left its mark; never before its first
    answer, from which the timeout counts."""
    mark = tmp_path / "mark"
    asked = itertools.count()
    return lambda: time.monotonic() + (1000 if next(asked) and mark.exists() else 0)


@pytest.fixture(params=["poll", "no pidfd", "no waitid", "no posix_spawn", "threads"])
def run(request, monkeypatch):
    """``process.run`` in each of the ways that platforms demand."""
    if request.param == "no posix_spawn":
        monkeypatch.setattr(spawn, "_library", lambda: None)
    if request.param in ("no pidfd", "no waitid"):
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    if request.param == "no waitid":
        monkeypatch.delattr(os, "waitid")
    return process_threads.run_with_threads if request.param == "threads" else process.run


def child_of(ending):
    return int(ending.stdout.decode().split("child ")[1].split(".")[0])


def finished(ending, returncode=0):
    assert (ending.reason, ending.returncode) == ("", returncode)


def test_a_command_runs_to_its_end(run):
    code = "import sys; print(sys.stdin.read()); sys.exit(4)"
    launch = CommandCall((sys.executable, "-S", "-c", code), 60.0, stdin=b"in")
    ending = run(launch, never)
    finished(ending, 4)
    assert ending.stdout == b"in\n" and ending.stderr == b""


def test_environment_and_directory_are_the_commands_own(run, tmp_path, monkeypatch):
    monkeypatch.setenv("UNWANTED", "1")
    argv = ("sh", "-c", "pwd; echo $MINE:$UNWANTED:")
    launch = CommandCall(argv, 60.0, str(tmp_path), {"MINE": "x", "UNWANTED": None})
    assert run(launch, never).stdout.decode() == "{}\nx::\n".format(tmp_path.resolve())


def test_a_timeout_ends_the_grandchildren_too_and_keeps_the_output(run, tmp_path):
    ending = run(CommandCall(family(tmp_path), 500.0), never, expiring(tmp_path))
    assert ending.reason == "timeout" and ending.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    pid = child_of(ending)
    wait_for(lambda: not alive(pid))


def test_a_command_that_ignores_the_polite_signal_is_killed(run, tmp_path):
    ending = run(CommandCall(family(tmp_path, ignore="ignore"), 500.0), never, expiring(tmp_path))
    assert ending.reason == "timeout" and ending.returncode == -signal.SIGKILL
    pid = child_of(ending)
    wait_for(lambda: not alive(pid))


def test_a_process_outside_the_group_that_holds_the_pipes_does_not_hold_the_row(run, tmp_path):
    ending = run(CommandCall(family(tmp_path, detach="detach", stay="leave"), 60.0), never)
    pid = child_of(ending)
    try:
        finished(ending)
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_what_a_finished_command_left_in_its_group_is_ended(tmp_path):
    ending = process.run(CommandCall(family(tmp_path, stay="leave"), 60.0), never)
    finished(ending)
    pid = child_of(ending)
    wait_for(lambda: not alive(pid))


def test_output_that_comes_after_the_command_ended_is_still_read(run):
    argv = ("sh", "-c", "(sleep 0.1; echo late) & echo early")
    ending = run(CommandCall(argv, 60.0), never)
    finished(ending)
    assert ending.stdout == b"early\nlate\n"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_each_pipe_has_its_bound(run, stream):
    argv = ("sh", "-c", "exec yes >&" + stream)
    ending = run(CommandCall(argv, 60.0, max_output_bytes=100001), never)
    assert ending.reason == "overflow"
    sizes = [len(ending.stdout), len(ending.stderr)]
    assert sizes[int(stream) - 1] == 100001 and sum(sizes) == 100001


def test_output_of_exactly_the_bound_is_no_overflow(run):
    argv = ("sh", "-c", "printf 12345")
    finished(run(CommandCall(argv, 60.0, max_output_bytes=5), never))


def test_a_command_that_cannot_be_started_is_an_ending_with_the_error(run):
    ending = run(CommandCall(("no-such-program-xyz",), 60.0), never)
    assert (ending.reason, ending.returncode) == ("unstarted", None)
    assert isinstance(ending.error, FileNotFoundError)


def test_no_descriptor_and_no_zombie_is_left_behind(run):
    argv = ("sh", "-c", "cat >/dev/null; echo x")
    launches = [CommandCall(argv, 60.0, stdin=b"in"), CommandCall(("no-such-xyz",), 60.0)]
    run(launches[0], never)
    wait_for(lambda: threading.active_count() == 1 or not _reader_threads())
    before, children = len(os.listdir("/proc/self/fd")), _children()
    for launch in launches * 3:
        run(launch, never)
    wait_for(lambda: not _reader_threads())
    assert len(os.listdir("/proc/self/fd")) <= before
    # other tests of this process may have children of their own
    assert _children() <= children


def _children():
    """The pids of this process's children, zombies included."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/{}/stat".format(name)) as file:
                parent = file.read().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.add(name)
    return found


def _reader_threads():
    return [item for item in threading.enumerate() if isinstance(item, process_threads._Reader)]


def test_cancelling_the_attempt_kills_the_group_at_once(tmp_path):
    mark = tmp_path / "mark"
    argv = ["sh", "-c", "trap '' TERM; sleep 120 & echo child $!.; touch {}; wait".format(mark)]
    scope = scopes.AttemptScope("rec", "1")
    outputs = []

    def attempt():
        with scopes.entered(scope):
            outputs.append(command_solution_with(argv, default_timeout=100)(TASK))

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_for(mark.exists)
    scope.cancel()
    thread.join(CAP)
    assert not thread.is_alive()
    assert outputs[0].success is False and outputs[0].meta["error_type"] == "CommandCancelled"
    pid = int(outputs[0].output["stdout"].split("child ")[1].split(".")[0])
    wait_for(lambda: not alive(pid))


def test_commands_run_where_pipes_cannot_be_polled(monkeypatch):
    monkeypatch.setattr(process, "PIPES_CAN_BE_POLLED", False)
    assert command_solution_with(["echo", "hi"])(TASK).output["stdout"] == "hi\n"


def test_an_attempt_cancelled_before_the_start_ends_its_command(run):
    scope = scopes.AttemptScope()
    scope.cancel()
    ending = run(CommandCall(("sleep", "120"), 100.0), scope.on_cancel)
    assert ending.reason == "cancelled" and ending.returncode == -signal.SIGKILL


def test_an_interrupt_of_the_callers_thread_leaves_no_process(run, tmp_path):
    mark = tmp_path / "pid"

    @contextlib.contextmanager
    def interrupted(callback):
        wait_for(mark.exists)
        yield
        raise AssertionError("not reached")

    def clock():
        raise KeyboardInterrupt

    argv = ("sh", "-c", "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 120".format(mark))
    with pytest.raises(KeyboardInterrupt):
        run(CommandCall(argv, 100.0), interrupted, clock)
    pid = int(mark.read_text())
    wait_for(lambda: not alive(pid))


def test_a_command_that_an_interrupt_ended_is_reaped_by_the_next(tmp_path):
    before = _children()

    def clock():
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            process.run(CommandCall(("sleep", "120"), 100.0), never, clock)

    def reaped():
        finished(process.run(CommandCall(("true",), 60.0), never))
        return _children() <= before

    wait_for(reaped)


def test_a_process_that_cannot_be_killed_does_not_hold_the_row(monkeypatch):
    monkeypatch.setattr(process._Child, "exited", lambda self: False)
    argv = ("sh", "-c", "exec true")
    now = [0.0]

    def clock():
        now[0] += 0.5
        return now[0]

    ending = process.run(CommandCall(argv, 2.0), never, clock)
    assert (ending.returncode, ending.reason) == (None, "timeout")


def test_a_process_that_the_kernel_reaped_counts_as_ended():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        finished(process.run(CommandCall(("true",), 60.0), never))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_process_without_descriptors_left_fails_the_row_and_leaks_none(monkeypatch):
    made, real = [], os.pipe

    def pipe():
        if len(made) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(real())
        return made[-1]

    monkeypatch.setattr(os, "pipe", pipe)
    ending = process.run(CommandCall(("true",), 60.0, stdin=b"x"), never)
    assert ending.reason == "unstarted" and "Too many" in str(ending.error)
    for descriptor in sum(made, ()):
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_concurrent_commands_do_not_hold_each_others_pipes():
    outputs = []

    def work():
        for _ in range(10):
            outputs.append(process.run(CommandCall(("cat",), 60.0, stdin=b"x"), never))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP)
    assert [item.stdout for item in outputs] == [b"x"] * 40


def test_a_process_that_threads_cannot_kill_does_not_hold_the_row(monkeypatch):
    asked = []
    monkeypatch.setattr(process_threads, "kill_tree", asked.append)
    monkeypatch.setattr(process_threads, "DRAIN_GRACE", 0.01)
    ending = process_threads.run_with_threads(
        CommandCall(("sleep", "120"), 0.05, stdin=b"x" * 1000000), never
    )
    os.kill(asked[0], signal.SIGKILL)
    assert (ending.returncode, ending.reason) == (None, "timeout")
    wait_for(lambda: not alive(asked[0]))
    wait_for(lambda: not _reader_threads())


def test_on_windows_a_command_is_killed_by_taskkill(monkeypatch, tmp_path):
    record = tmp_path / "record"
    taskkill = tmp_path / "taskkill"
    taskkill.write_text('#!/bin/sh\necho "$@" > {}\nkill -9 $4\n'.format(record))
    taskkill.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    # the flag is refused elsewhere than on Windows, and 0 is none
    monkeypatch.setattr("subprocess.CREATE_NEW_PROCESS_GROUP", 0, raising=False)
    monkeypatch.setattr(process_threads, "resolve_program", lambda argv, path: list(argv))
    monkeypatch.setattr(sys, "platform", "win32")
    ending = process_threads.run_with_threads(CommandCall(("sleep", "120"), 0.05), never)
    assert ending.reason == "timeout" and ending.returncode == -signal.SIGKILL
    assert record.read_text().split()[:3] == ["/F", "/T", "/PID"]


def test_a_program_on_windows_is_found_as_its_shell_would():
    assert process_threads.resolve_program(["agent", "a b"], None, lambda name, path: None) == [
        "agent",
        "a b",
    ]

    def which(name, path):
        return path + name + ".CMD"

    assert process_threads.resolve_program(["agent", "plain"], "bin-", which) == [
        "bin-agent.CMD",
        "plain",
    ]
    with pytest.raises(ValueError, match="batch file"):
        process_threads.resolve_program(["agent", "50% & more"], "bin-", which)


def program(folder, says):
    folder.mkdir(exist_ok=True)
    path = folder / "say"
    path.write_text("#!/bin/sh\necho {} $0\n".format(says))
    path.chmod(0o755)
    return path


def said(path, cwd=None):
    launch = CommandCall(("say",), 30, env={"PATH": path}, cwd=cwd and str(cwd))
    ending = process.run(launch, never)
    return ending.stdout.split()[:1] or type(ending.error)


@pytest.mark.skipif(os.name == "nt", reason="the search of POSIX")
def test_a_program_is_found_where_path_says_now(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    there = program(first, "first")
    program(second, "second")
    both = "{}:{}:/usr/bin:/bin".format(first, second)
    assert said(both) == [b"first"]
    assert said(str(second) + ":/bin") == [b"second"]
    there.unlink()  # between two rows: an agent that is being installed anew
    assert said(both) == [b"second"]
    assert said("/usr/bin:/bin") is FileNotFoundError


@pytest.mark.skipif(os.name == "nt", reason="the search of POSIX")
def test_a_relative_path_is_that_of_the_commands_directory(tmp_path):
    program(tmp_path / "bin", "relative")
    assert said("bin:/usr/bin:/bin", cwd=tmp_path) == [b"relative"]
    assert said("bin:/usr/bin:/bin", cwd="/") is FileNotFoundError


@pytest.mark.skipif(os.name == "nt", reason="the search of POSIX")
def test_a_directory_that_is_missing_is_said(tmp_path):
    program(tmp_path / "bin", "never")
    assert said("{}/bin:/bin".format(tmp_path), cwd=tmp_path / "gone") is FileNotFoundError
