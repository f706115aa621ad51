"""Calling an agent's command line: argv in, stdout, stderr and return code out; never a shell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Optional, Tuple, Union

from ..errors import ConfigurationError
from ..models import SolutionOutput, Task
from ..tracing import valid_trace_id
from .arguments import check_callback
from .call import failure_from
from .command_answer import (
    CommandAnswer,
    command_facts,
    reported_trace_id,
    reported_usage,
    run_command,
)
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
from .redact import redact_argv

TraceIdResolver = Callable[[Dict[str, Any]], Optional[str]]


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
        if callable(stdin):
            check_callback("stdin", stdin)
        else:
            stdin_bytes(stdin)
        check_callback("build_command", build_command)
        check_callback("trace_id_resolver", trace_id_resolver)
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
    (its process group is ended, what was printed is kept), a non-zero exit, a signal, or a command
    that cannot be started fails the row. Processes that the command leaves in its group are ended
    with it; one that left the group, as ``setsid`` does, is not. The command finds ``TRACEPARENT``
    and ``BAGGAGE`` (W3C) in its environment. Token usage that JSON on stdout reports is recorded.

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
