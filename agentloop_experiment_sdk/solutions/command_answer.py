"""Running a command to its end, and what it came to: printed text, exit code, trace id, usage."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..scope import current_scope
from .command_call import CommandCall
from .redact import MASK, redact_error
from .session import json_values, trace_id_in
from .usage import UsageMeter

if TYPE_CHECKING:
    from .process import Ending

NOT_STARTED = "CommandNotStarted"
_TAIL_CHARACTERS = 2000
_CHILD_ENDED = getattr(signal, "SIGCHLD", None)  # Windows has none
_IGNORED = (
    "this process ignores SIGCHLD, so a command's exit code is lost and a failed one would count "
    "as a success; call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before the run"
)


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
    process = _process()
    scope = current_scope()
    on_cancel = _never if scope is None else scope.on_cancel
    ending: Ending
    if _children_are_ignored():
        ending = process.Ending(None, reason="unstarted", error=ChildProcessError(_IGNORED))
    elif process.PIPES_CAN_BE_POLLED:
        ending = process.run(call, on_cancel)
    else:
        from . import process_threads

        ending = process_threads.run_with_threads(call, on_cancel)
    return ending


@functools.lru_cache(maxsize=None)
def _process() -> ModuleType:
    """The module that loads subprocess: with the first command, not with this one."""
    from . import process

    return process


def _children_are_ignored() -> bool:
    """Whether the kernel forgets how children ended, and may give their ids away at once."""
    return _CHILD_ENDED is not None and signal.getsignal(_CHILD_ENDED) is signal.SIG_IGN


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
        text = "it did not end within {:g} s and was ended with its process group"
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
    try:
        return "{} ({})".format(number, signal.Signals(number).name)
    except ValueError:
        return str(number)


def _not_started(call: CommandCall, error: Exception) -> str:
    program = call.shown_argv[0]
    if call.cwd is not None and not os.path.isdir(call.cwd):
        return "the working directory {} does not exist".format(call.cwd)
    if isinstance(error, FileNotFoundError) and " " in program:
        return "{!r} was not found; no shell splits it: give its words one by one".format(program)
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


def command_facts(call: CommandCall, answer: CommandAnswer) -> Dict[str, Any]:
    """What is kept of a call beside its output, without secrets."""
    facts: Dict[str, Any] = {
        "argv": call.shown_argv,
        "timeout": call.timeout,
        "ms": answer.milliseconds,
    }
    return facts if call.cwd is None else dict(facts, cwd=call.cwd)
