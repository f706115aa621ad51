"""Command solutions: what they store of a command's end (kinds of C41, C42, C48, C49)."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions.command import command_solution, command_solution_with
from agentloop_experiment_sdk.solutions.fingerprint import fingerprint_of

PY = sys.executable
TASK = Task("t-1", {"q": "hi"}, metadata={"record_id": "rec-1", "dataset_item_id": 0})
ID = "0af7651916cd43dd8448eb211c80319c"


def run(argv, **options):
    return command_solution_with(lambda task: argv, **options)(TASK)


def python(code, *args, **options):
    return run([PY, "-S", "-c", code] + list(args), **options)


def test_stdout_stderr_and_return_code_are_the_output():
    output = python("import sys; print('out'); print('err', file=sys.stderr)")
    assert output.success is True
    assert output.output == {"stdout": "out\n", "stderr": "err\n", "returncode": 0}
    assert output.meta["command"]["ms"] > 0 and output.meta["command"]["timeout"] == 60.0


def test_pre_hook_is_called_once_before_the_command_starts(tmp_path):
    seen = []
    mark = tmp_path / "mark"
    solution = command_solution(lambda task: ["touch", str(mark)])
    assert solution(TASK, lambda: seen.append(mark.exists())).success
    assert seen == [False] and mark.exists()


def test_undecodable_bytes_are_replaced_and_the_command_still_succeeds():
    output = python(r"import sys; sys.stdout.buffer.write(b'start \xff\xfe\xf0 end')")
    assert output.success and output.output["stdout"].startswith("start \ufffd")
    assert output.output["stdout"].endswith(" end")


_C_LOCALE = """
import json, sys
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions.command import command_solution
text = "\\u4f60\\u597d"
echo = [sys.executable, "-c", "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))"]
output = command_solution(lambda task: echo + [text], env={"WORD": text})(Task("t", {}))
print(json.dumps(output.to_dict()))
"""


def test_text_goes_in_and_out_as_utf8_whatever_the_locale():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    locale = dict(kept, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    locale["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run([PY, "-c", _C_LOCALE], env=locale, stdout=subprocess.PIPE, check=True)
    stored = json.loads(done.stdout)
    assert stored["success"] is True and stored["output"]["stdout"] == "\u4f60\u597d"


def test_a_lone_surrogate_in_an_argument_does_not_fail_the_row():
    assert python("import sys; print(ascii(sys.argv[1]))", "x\ud835y").success


def test_megabytes_on_both_pipes_at_once_are_kept_whole():
    code = (
        "import sys\nfor _ in range(300):\n"
        "    sys.stdout.write('o'*10000)\n    sys.stderr.write('e'*10000)\n"
    )
    output = python(code)
    assert output.success
    assert output.output["stdout"] == "o" * 3000000 and output.output["stderr"] == "e" * 3000000


def test_a_non_zero_exit_fails_with_everything_it_printed():
    code = "import sys; print('so far'); print('boom', file=sys.stderr); sys.exit(3)"
    output = python(code)
    assert output.success is False
    assert output.output == {"stdout": "so far\n", "stderr": "boom\n", "returncode": 3}
    assert output.meta["error_type"] == "CommandFailed"
    assert output.meta["error_message"] == "exit code 3: boom"


def test_the_error_message_ends_with_the_end_of_stderr_or_else_of_stdout():
    long = python("import sys; sys.stderr.write('x' * 5000 + 'the end'); sys.exit(1)")
    assert long.meta["error_message"].endswith("the end")
    assert len(long.meta["error_message"]) < 2100
    silent = python("import sys; print('said on stdout'); sys.exit(1)")
    assert silent.meta["error_message"] == "exit code 1: said on stdout"
    mute = python("raise SystemExit(2)")
    assert mute.meta["error_message"] == "exit code 2"


def test_a_signal_is_named():
    output = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert output.meta["error_type"] == "CommandKilled"
    assert output.meta["error_message"] == "signal 9 (SIGKILL)"
    assert output.output["returncode"] == -signal.SIGKILL
    unnamed = python("import os; os.kill(os.getpid(), 40)")
    assert unnamed.meta["error_message"] == "signal 40"


def test_a_command_that_cannot_be_started_is_a_failed_row_that_says_why(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("text")
    table = {
        "no-such-program-xyz was not found": run(["no-such-program-xyz"]),
        "'echo hi' was not found; no shell splits it": run(["echo hi"]),
        "could not be started: Permission denied": run([str(plain)]),
        "the working directory": run([PY, "-V"], cwd=tmp_path / "nowhere"),
    }
    for says, output in table.items():
        assert output.success is False and output.meta["error_type"] == "CommandNotStarted"
        assert says in output.meta["error_message"]
        assert output.output == {"stdout": "", "stderr": "", "returncode": None}


@pytest.mark.parametrize(
    ("argv", "options", "says"),
    [
        ([PY, "a\0b"], {}, "Argument 1 of the command holds a zero byte"),
        ([PY], {"env": {"MINE": "a\0b"}}, "The variable MINE holds a zero byte"),
        ([PY], {"env": {"A=B": "x"}}, "'A=B' cannot be the name of a variable"),
        ([PY], {"env": {"": "x"}}, "'' cannot be the name of a variable"),
        ([PY], {"cwd": "a\0b"}, "cwd holds a zero byte"),
    ],
)
def test_what_no_program_can_be_given_is_refused_before_the_run(argv, options, says):
    with pytest.raises(ConfigurationError, match=says):
        command_solution_with(argv, **options)


def test_a_zero_byte_in_a_row_fails_the_row_and_names_the_argument():
    output = command_solution_with(lambda task: ["echo", "\0"])(TASK)
    assert output.success is False
    assert "Argument 1 of the command holds a zero byte" in output.meta["error_message"]


def test_a_program_without_an_interpreter_line_is_a_failed_row(tmp_path):
    script = tmp_path / "script"
    script.write_text("echo no interpreter line")
    script.chmod(0o755)
    assert "Exec format error" in run([script]).meta["error_message"]


def test_a_timeout_fails_the_row_and_keeps_what_was_printed():
    output = run(["sh", "-c", "echo PARTIAL; echo WHY >&2; exec sleep 60"], default_timeout=2)
    assert output.success is False and output.meta["error_type"] == "CommandTimeout"
    assert output.output["stdout"] == "PARTIAL\n"
    assert "within 2 s and was ended with its process group" in output.meta["error_message"]
    assert output.meta["error_message"].endswith(": WHY")


def test_a_command_that_prints_without_end_is_ended_with_what_fits_kept():
    output = run(["sh", "-c", "exec yes"], max_output_bytes=1000)
    assert output.meta["error_type"] == "CommandOutputTooLarge"
    assert "more than 1000 bytes" in output.meta["error_message"]
    assert output.output["stdout"] == "y\n" * 500


def test_input_is_closed_unless_it_is_given():
    echo = "import sys; print(repr(sys.stdin.buffer.read()))"
    assert python(echo).output["stdout"] == "b''\n"
    assert python(echo, stdin="h\u00e9").output["stdout"] == r"b'h\xc3\xa9'" + "\n"
    assert python(echo, stdin=b"\xff").output["stdout"] == r"b'\xff'" + "\n"
    assert python(echo, stdin="").output["stdout"] == "b''\n"
    given = python(echo, stdin=lambda task: task.input["q"])
    assert given.output["stdout"] == "b'hi'\n"
    assert given.meta["experiment_input"]["stdin"] == "hi"


def test_large_input_is_streamed_and_a_command_may_ignore_it():
    text = "line\n" * 400000
    assert run(["cat"], stdin=text).output["stdout"] == text
    assert run(["true"], stdin=text).success
    assert run(["sh", "-c", "exec 0<&-; echo closed; sleep 0.1"], stdin=text).success


def test_env_is_added_to_the_inherited_environment(monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("UNWANTED", "yes")
    show = "import os, json; print(json.dumps([os.environ.get(n) for n in ('INHERITED', 'UNWANTED',"
    show += " 'MINE', 'PATH')]))"
    output = python(show, env={"MINE": 7, "UNWANTED": None, "NEVER": None})
    assert json.loads(output.output["stdout"]) == ["yes", None, "7", os.environ["PATH"]]


def test_a_builder_can_ask_for_settings_of_one_call(tmp_path):
    built = {
        "argv": ["sh", "-c", "cat; pwd; echo $A $B"],
        "env": {"B": "row"},
        "stdin": "in\n",
        "cwd": tmp_path,
        "timeout": 30,
    }
    output = command_solution(lambda task: built, env={"A": "all", "B": "all"})(TASK)
    assert output.output["stdout"] == "in\n{}\nall row\n".format(Path(tmp_path).resolve())
    assert output.meta["command"]["timeout"] == 30
    assert output.meta["command"]["cwd"] == str(tmp_path)


@pytest.mark.parametrize(
    ("built", "says"),
    [
        ("agent --prompt hi", "list of arguments"),
        ([], "at least one argument"),
        (None, "at least one argument"),
        (["agent", 3], "Argument 1 of the command is int"),
        ({"argv": ["agent"], "shell": True}, "shell; known are argv"),
        ({"argv": ["agent"], "timeout": -1}, "timeout must be"),
        ({"env": {}}, "at least one argument"),
        ({"argv": ["agent"], "stdin": {"q": 1}}, "stdin must be text or bytes, not dict"),
    ],
)
def test_a_builder_that_returns_something_else_fails_its_row_only(built, says):
    output = command_solution(lambda task: built)(TASK)
    assert output.success is False and output.meta["error_type"] == "ConfigurationError"
    assert says in output.meta["error_message"]


def test_a_builder_or_input_that_raises_fails_its_row_only():
    for solution in (
        command_solution(lambda task: [task.input["missing"]]),
        command_solution_with(["true"], stdin=lambda task: task.input["missing"]),
    ):
        output = solution(TASK)
        assert output.meta["error_type"] == "KeyError" and "missing" in output.meta["traceback"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: command_solution_with("agent --prompt hi"),
        lambda: command_solution_with([]),
        lambda: command_solution_with(["agent", lambda task: "x"]),
        lambda: command_solution(["agent"]),
        lambda: command_solution_with(["agent"], default_timeout=0),
        lambda: command_solution_with(["agent"], default_timeout=None),
        lambda: command_solution_with(["agent"], default_timeout=True),
        lambda: command_solution_with(["agent"], max_output_bytes=0),
        lambda: command_solution_with(["agent"], cwd=3),
        lambda: command_solution_with(["agent"], cwd=""),
        lambda: command_solution_with(["agent"], env=["A=1"]),
        lambda: command_solution_with(["agent"], env={1: "x"}),
        lambda: command_solution_with(["agent"], stdin=3),
    ],
)
def test_unusable_arguments_are_refused_when_the_solution_is_made(make):
    with pytest.raises(ConfigurationError):
        make()


def test_secrets_of_the_command_line_and_environment_are_not_stored():
    code = "import os, sys; print(sys.argv[2], os.environ['MY_TOKEN']); sys.exit(sys.argv[2])"
    argv = [PY, "-c", code, "--api-key", "sk-secret-123"]
    solution = command_solution_with(argv, env={"MY_TOKEN": "tok-secret-456"})
    output = solution(TASK)
    assert output.success is False and output.output["stdout"] == "*** ***\n"
    stored = json.dumps(output.to_dict()) + solution.fingerprint
    assert "sk-secret-123" not in stored and "tok-secret-456" not in stored
    assert output.meta["experiment_input"] == argv[:4] + ["***"]
    assert "--api-key ***" in solution.fingerprint


def test_a_command_that_never_started_has_no_trace():
    output = command_solution_with(["/no/such/program"], trace=True)(TASK)
    assert output.meta["error_type"] == "CommandNotStarted"
    assert "traceId" not in output.meta


def test_a_credential_in_a_header_argument_is_not_stored():
    code = "import sys; print(sys.argv[2], sys.argv[4]); print(sys.argv[2].split()[-1])"
    headers = ["-H", "Authorization:Bearer sk-secret-123", "--header", "Cookie: sid=zz-2222; a=b"]
    output = command_solution_with([PY, "-c", code, *headers])(TASK)
    assert output.success
    stored = json.dumps(output.to_dict())
    assert "sk-secret-123" not in stored and "zz-2222" not in stored


def _environment_of(output):
    return dict(json.loads(output.output["stdout"]))


_ENVIRONMENT = (
    "import os, json; print(json.dumps("
    "{n: v for n, v in os.environ.items() if n in ('TRACEPARENT', 'BAGGAGE')}))"
)


def test_the_command_finds_its_trace_and_experiment_in_the_environment(monkeypatch):
    inherited = "00-{}-{}-01".format("a" * 32, "b" * 16)
    monkeypatch.setenv("TRACEPARENT", inherited)
    monkeypatch.setenv("BAGGAGE", "tenant=acme")
    found = _environment_of(python(_ENVIRONMENT))
    assert found["TRACEPARENT"].startswith("00-") and found["TRACEPARENT"] != inherited
    assert found["BAGGAGE"] == (
        "tenant=acme,traffic.agentloop.experiment.id=rec-1,traffic.agentloop.dataset.data_item_id=0"
    )


def test_the_callers_own_traceparent_wins():
    mine = "00-{}-{}-01".format(ID, "b" * 16)
    output = python(_ENVIRONMENT, env={"TRACEPARENT": mine}, trace=True)
    assert _environment_of(output)["TRACEPARENT"] == mine
    assert output.meta["traceId"] == ID


def test_outside_a_run_there_are_no_experiment_members(monkeypatch):
    monkeypatch.delenv("BAGGAGE", raising=False)
    output = command_solution_with([PY, "-c", _ENVIRONMENT])(Task("t", {}))
    assert list(_environment_of(output)) == ["TRACEPARENT"]


def test_a_trace_id_is_recorded_only_if_something_confirms_it():
    print_json = "import json; print(json.dumps({}))"
    assert "traceId" not in python("print('hi')").meta
    assert len(python("print('hi')", trace=True).meta["traceId"]) == 32
    quoted = python("import os, sys; print(os.environ['TRACEPARENT'].upper(), file=sys.stderr)")
    assert quoted.meta["traceId"] == quoted.output["stderr"].split("-")[1].lower()
    named = python(print_json.format({"trace_ids": {"agent": ID.upper()}}), trace=True)
    assert named.meta["traceId"] == ID
    last = python('print(\'{"type": "start"}\'); print(\'{"trace_id": "%s"}\')' % ID)
    assert last.meta["traceId"] == ID
    assert "traceId" not in python(print_json.format({"trace_id": "0" * 32})).meta


def test_a_resolver_tells_the_trace_id_from_the_output():
    seen = []
    output = python("print('id: %s')" % ID, trace_id_resolver=lambda out: out["stdout"][4:36])
    assert output.meta["traceId"] == ID
    ignored = python("print('x')", trace_id_resolver=lambda out: seen.append(out))
    assert "traceId" not in ignored.meta and seen[0]["stdout"] == "x\n"
    failed = python("print('x')", trace_id_resolver=lambda out: out["no"])
    assert failed.success is False and failed.meta["error_type"] == "KeyError"
    assert failed.output["stdout"] == "x\n"


def test_token_usage_in_json_on_stdout_is_recorded():
    lines = 'starting\n{"type": "start"}\n{"type": "end", "usage": {"input_tokens": 3}}'
    echo = "import sys; print(sys.argv[1])"
    assert python(echo, lines).meta["usage"]["total_tokens"] == 3
    for said in ("usage: agent PROMPT", '{"usage": 1}'):
        assert "usage" not in python(echo, said).meta


def build_argv(task):
    return ["true"]


def test_the_fingerprint_tells_which_command_it_is():
    assert command_solution(build_argv).fingerprint == "command of {}.build_argv".format(__name__)
    fixed = command_solution_with(["agent", "--fast"])
    assert fixed.fingerprint == "command agent --fast"
    other = command_solution_with(["agent", "--fast"], stdin=build_argv)
    assert fingerprint_of(fixed)["hash"] != fingerprint_of(other)["hash"]


_LIGHT = """
import sys
import agentloop_experiment_sdk.solutions.command
heavy = ("asyncio", "http.client", "ssl", "hashlib", "agentloop_experiment_sdk.solutions.process")
print([name for name in heavy if name in sys.modules])
"""


def test_importing_command_solutions_loads_no_process_machinery():
    path = os.pathsep.join(item for item in sys.path if item)
    done = subprocess.run(
        [PY, "-S", "-c", _LIGHT],
        env={"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_a_fixed_command_can_be_sent_to_another_process():
    solution = pickle.loads(pickle.dumps(command_solution_with(["echo", "hi"])))
    assert solution(TASK).output["stdout"] == "hi\n"
    assert repr(solution) == "<CommandSolution command echo hi>"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGCHLD")
def test_no_command_is_started_whose_exit_code_would_be_lost(tmp_path):
    """A failed command counted as a success, and its process group's id could be another's."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        output = run(["sh", "-c", "touch {}; exit 3".format(tmp_path / "ran")])
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert not output.success and output.meta["error_type"] == "CommandNotStarted"
    assert "signal.signal(signal.SIGCHLD, signal.SIG_DFL)" in output.meta["error_message"]
    assert not (tmp_path / "ran").exists()
    assert run(["true"]).success
