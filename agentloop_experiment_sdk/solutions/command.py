"""Calling an agent's command line: argv in, stdout, stderr and return code out; never a shell."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from ..errors import ConfigurationError
from ..models import SolutionOutput, Task
from ..scope import current_scope
from ..tracing import valid_trace_id
from .call import failure_from
from .command_call import (
    MAX_OUTPUT_BYTES,
    Argv,
    Built,
    CommandCall,
    Directory,
    Environment,
    Input,
    checked_argv,
    command_call,
    shared_settings,
    stdin_bytes,
    with_trace,
)
from .fingerprint import qualified_name
from .redact import MASK, redact_argv, redact_error
from .session import json_values, trace_id_in
from .usage import UsageMeter

if TYPE_CHECKING:
    from .process import Ending

NOT_STARTED = "CommandNotStarted"
_TAIL_CHARACTERS = 2000
_IGNORED = (
    "this process ignores SIGCHLD, so a command's exit code is lost and a failed one would count "
    "as a success; call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before the run"
)

TraceIdResolver = Callable[[Dict[str, Any]], Optional[str]]


@dataclass(frozen=True)
class CommandAnswer:
    """What a command came to; ``error_type`` is "" for one that ended with code 0."""

    stdout: str
    stderr: str
    returncode: Optional[int]
    milliseconds: float
    error_type: str = ""
    error_message: str = ""

    @property
    def output(self) -> Dict[str, Any]:
        """The output of the row: stdout, stderr, returncode."""
        return {"stdout": self.stdout, "stderr": self.stderr, "returncode": self.returncode}


class CommandSolution:
    """A solution that runs one command per task.

    Args:
        build_command: From a task to argv, or a dict of argv and settings of that call.
        defaults: What the calls share.
        stdin: The input, or from a task to the input.
        trace: Whether the command is known to report spans under ``TRACEPARENT``.
        trace_id_resolver: From the output to the trace id that the command reported.
        fingerprint: What tells this solution from another: the redacted command, or its builder.
        built_by: The user's builder, whose code is part of the solution's.
    """

    def __init__(
        self,
        build_command: Callable[[Task], Built],
        defaults: CommandCall,
        stdin: Union[Input, Callable[[Task], Input]] = None,
        trace: bool = False,
        trace_id_resolver: Optional[TraceIdResolver] = None,
        *,
        fingerprint: str,
        built_by: Any,
    ) -> None:
        if stdin is not None and not callable(stdin):
            stdin_bytes(stdin)
        self._build_command = build_command
        self._defaults = defaults
        self._stdin = stdin
        self._trace = trace
        self._trace_id_resolver = trace_id_resolver
        self.fingerprint = fingerprint
        self.built_by = built_by

    def __call__(self, task: Task, pre_hook: Optional[Callable[[], Any]] = None) -> SolutionOutput:
        """Run the command for ``task``; ``pre_hook`` is called right before it is started."""
        try:
            call, sent = with_trace(self._call_for(task), task)
        except Exception as error:
            return failure_from(error)
        if pre_hook is not None:
            pre_hook()
        answer = run_command(call)
        try:
            trace_id = self._trace_id_of(answer, sent)
        except Exception as error:
            return failure_from(error, output=answer.output)
        return _output(call, answer, trace_id)

    def _call_for(self, task: Task) -> CommandCall:
        defaults = self._defaults
        if self._stdin is not None:
            given = self._stdin(task) if callable(self._stdin) else self._stdin
            defaults = replace(defaults, stdin=stdin_bytes(given))
        return command_call(self._build_command(task), defaults)

    def _trace_id_of(self, answer: CommandAnswer, sent: str) -> Optional[str]:
        resolve = self._trace_id_resolver
        resolved = None if resolve is None else valid_trace_id(resolve(answer.output))
        return resolved or reported_trace_id(answer, sent, self._trace)

    def __repr__(self) -> str:
        return "<CommandSolution {}>".format(self.fingerprint)


def command_solution(
    build_command: Callable[[Task], Built],
    default_timeout: float = 60.0,
    cwd: Directory = None,
    env: Optional[Environment] = None,
    *,
    stdin: Union[Input, Callable[[Task], Input]] = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    trace: bool = False,
    trace_id_resolver: Optional[TraceIdResolver] = None,
) -> CommandSolution:
    """A solution that runs one command per task, without a shell, in its own process group.

    The output is ``{"stdout", "stderr", "returncode"}``, read as UTF-8 with replacement. A timeout
    (the whole process group is ended, what was printed is kept), a non-zero exit, a signal, or a
    command that cannot be started fails the row. Processes that the command leaves in its group
    are ended with it. The command finds ``TRACEPARENT`` and ``BAGGAGE`` (W3C) in its environment.
    Token usage that JSON on stdout reports is recorded.

    Args:
        build_command: Takes the task, returns argv; or a dict of ``argv`` and, for this row only,
            ``env``, ``stdin``, ``timeout`` (seconds) and ``cwd``.
        default_timeout: Seconds until the command is ended.
        cwd: Working directory.
        env: Variables added to the inherited environment; None as a value removes one.
        stdin: Text or bytes for the command's input, or a callable that takes the task and returns
            them. None closes the input.
        max_output_bytes: Bound of stdout and of stderr; a command that prints more is ended.
        trace: True says that the command reports spans under ``TRACEPARENT``: its trace id is then
            recorded. Else it is recorded only if the output names it.
        trace_id_resolver: Takes the output dict, returns the trace id that the command reported.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    if not callable(build_command):
        raise ConfigurationError(
            "build_command must be a function that takes the task and returns argv; for a fixed "
            "command use command_solution_with."
        )
    return CommandSolution(
        build_command,
        shared_settings(default_timeout, cwd, env, max_output_bytes),
        stdin,
        trace,
        trace_id_resolver,
        fingerprint="command of " + qualified_name(build_command),
        built_by=build_command,
    )


def command_solution_with(
    command_or_builder: Union[Argv, Callable[[Task], Built]],
    *,
    default_timeout: float = 60.0,
    cwd: Directory = None,
    env: Optional[Environment] = None,
    stdin: Union[Input, Callable[[Task], Input]] = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    trace: bool = False,
    trace_id_resolver: Optional[TraceIdResolver] = None,
) -> CommandSolution:
    """``command_solution`` for a builder, or for a fixed command given as a list of arguments.

    Args:
        command_or_builder: A list of strings, the same for every task (give the task on
            ``stdin``), or a function that takes the task and returns one. One string for a shell
            is refused: nothing is ever quoted or expanded.
        default_timeout, cwd, env, stdin, max_output_bytes, trace, trace_id_resolver: As for
            ``command_solution``.

    Raises:
        ConfigurationError: An argument cannot be used.
    """
    if callable(command_or_builder):
        return command_solution(
            command_or_builder,
            default_timeout,
            cwd,
            env,
            stdin=stdin,
            max_output_bytes=max_output_bytes,
            trace=trace,
            trace_id_resolver=trace_id_resolver,
        )
    argv = checked_argv(command_or_builder)
    return CommandSolution(
        _FixedCommand(argv),
        shared_settings(default_timeout, cwd, env, max_output_bytes),
        stdin,
        trace,
        trace_id_resolver,
        fingerprint="command " + " ".join(redact_argv(argv)),
        built_by=stdin if callable(stdin) else None,
    )


@dataclass(frozen=True)
class _FixedCommand:
    """The command of ``command_solution_with`` for a list: the same for every task."""

    argv: Tuple[str, ...]

    def __call__(self, task: Task) -> Tuple[str, ...]:
        return self.argv


def run_command(call: CommandCall) -> CommandAnswer:
    """Run a command to its end; never raises for what the command does.

    The running attempt's cancellation kills its process group.
    """
    began = time.monotonic()
    ending = _ending(call)
    milliseconds = (time.monotonic() - began) * 1000
    secrets = call.secrets
    stdout, stderr = (_shown(data, secrets) for data in (ending.stdout, ending.stderr))
    error_type, message = _fault(call, ending)
    if error_type and error_type != NOT_STARTED:
        message += _tail(stderr or stdout)
    return CommandAnswer(stdout, stderr, ending.returncode, milliseconds, error_type, message)


def _ending(call: CommandCall) -> Ending:
    from . import process  # subprocess is loaded by the first command, not by the import

    if _children_are_ignored():
        return process.Ending(None, reason="unstarted", error=ChildProcessError(_IGNORED))
    scope = current_scope()
    on_cancel = _never if scope is None else scope.on_cancel
    if process.PIPES_CAN_BE_POLLED:
        return process.run(call, on_cancel)
    from . import process_threads

    return process_threads.run_with_threads(call, on_cancel)


def _children_are_ignored() -> bool:
    """Whether the kernel forgets how children ended, and may give their ids away at once."""
    import signal

    child_ended = getattr(signal, "SIGCHLD", None)  # Windows has none
    return child_ended is not None and signal.getsignal(child_ended) is signal.SIG_IGN


@contextlib.contextmanager
def _never(callback: Callable[[], None]) -> Iterator[None]:
    yield


def _shown(data: bytes, secrets: List[str]) -> str:
    text = data.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _tail(printed: str) -> str:
    tail = redact_error(printed.strip()[-_TAIL_CHARACTERS:])
    return ": " + tail if tail else ""


def _fault(call: CommandCall, ending: Ending) -> Tuple[str, str]:
    """The type and message of what went wrong, or two empty texts."""
    if ending.error is not None:
        return NOT_STARTED, _not_started(call, ending.error)
    if ending.reason == "timeout":
        text = "it did not end within {:g} s and was ended with all it had started"
        return "CommandTimeout", text.format(call.timeout)
    if ending.reason == "overflow":
        text = "it printed more than {} bytes and was ended; print less or raise max_output_bytes"
        return "CommandOutputTooLarge", text.format(call.max_output_bytes)
    if ending.reason == "cancelled":
        return "CommandCancelled", "the run was ended before the command was"
    if ending.returncode is None:
        return "CommandKilled", "it could not be ended"
    if ending.returncode < 0:
        return "CommandKilled", "signal {}".format(_signal_name(-ending.returncode))
    if ending.returncode > 0:
        return "CommandFailed", "exit code {}".format(ending.returncode)
    return "", ""


def _signal_name(number: int) -> str:
    import signal

    try:
        return "{} ({})".format(number, signal.Signals(number).name)
    except ValueError:
        return str(number)


def _not_started(call: CommandCall, error: Exception) -> str:
    program = call.shown_argv[0]
    if call.cwd is not None and not os.path.isdir(call.cwd):
        return "the working directory {} does not exist".format(call.cwd)
    if isinstance(error, FileNotFoundError):
        return "{} was not found; install it, or give its full path".format(program)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return "{} could not be started: {}".format(program, reason)


def reported_trace_id(answer: CommandAnswer, sent: str, trace: bool) -> Optional[str]:
    """The trace id that a command is known to have used, or None.

    That is one named in JSON on stdout; the one it was sent, if its output quotes it or ``trace``
    says that it reports spans.
    """
    printed = json_values(answer.stdout) if "trace" in answer.stdout else []
    named = next((found for found in map(trace_id_in, reversed(printed)) if found), None)
    if named:
        return named
    quoted = any(sent in text.lower() for text in (answer.stdout, answer.stderr))
    started = answer.error_type != NOT_STARTED
    return sent if (trace and started) or quoted else None


def reported_usage(answer: CommandAnswer) -> Optional[Dict[str, Any]]:
    """The token usage that JSON on stdout reports, in any of the known shapes, or None."""
    if "usage" not in answer.stdout:
        return None
    meter = UsageMeter()
    for value in json_values(answer.stdout):
        meter.add(value)
    return meter.usage


def _output(call: CommandCall, answer: CommandAnswer, trace_id: Optional[str]) -> SolutionOutput:
    meta: Dict[str, Any] = {
        "experiment_input": _asked(call),
        "command": command_facts(call, answer),
    }
    if trace_id:
        meta["traceId"] = trace_id
    usage = reported_usage(answer)
    if usage:
        meta["usage"] = usage
    if not answer.error_type:
        return SolutionOutput(True, answer.output, meta=meta)
    return SolutionOutput.failure(answer.error_type, answer.error_message, meta, answer.output)


def _asked(call: CommandCall) -> Any:
    if call.stdin is None:
        return call.shown_argv
    return {"argv": call.shown_argv, "stdin": call.stdin.decode("utf-8", "replace")}


def command_facts(call: CommandCall, answer: CommandAnswer) -> Dict[str, Any]:
    """What is kept of a call beside its output, without secrets."""
    facts: Dict[str, Any] = {
        "argv": call.shown_argv,
        "timeout": call.timeout,
        "ms": answer.milliseconds,
    }
    return facts if call.cwd is None else dict(facts, cwd=call.cwd)
