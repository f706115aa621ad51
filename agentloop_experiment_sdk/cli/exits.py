"""Exit codes, and which error leads to which."""

from __future__ import annotations

from ..errors import (
    CloudError,
    ExperimentError,
    RunAbortedError,
    TooManyFailuresError,
)

OK = 0
GATE_FAILED = 1
USAGE = 2
INFRASTRUCTURE = 3
INTERRUPTED = 130
TERMINATED = 143

HELP = """\
exit codes:
  0    ok
  1    the gate failed, every row failed, or --max-failures or --stop-if-first ended the run
  2    usage or configuration
  3    infrastructure: cloud, disk, undelivered rows, rows without a result, stdout
  130  interrupted (Ctrl-C)
  143  terminated (SIGTERM)"""

_BROKEN_PLACES = ("ResultsDirectoryNotWritable",)


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; whatever handles Ctrl-C handles it too."""


def exit_code_of(error: BaseException) -> int:
    """The exit code for an error that ended a command."""
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, TooManyFailuresError):
        return GATE_FAILED
    if isinstance(error, (CloudError, RunAbortedError)):
        return INFRASTRUCTURE
    if isinstance(error, ExperimentError) and error.code not in _BROKEN_PLACES:
        return USAGE
    # also a fault of our own: 1 would read as a verdict on the agent
    return INFRASTRUCTURE


def one_line(error: BaseException) -> str:
    """An error as one line: its code, its message, and the request id unless it is in there."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = "{}: {}".format(error.filename, error.strerror)
    request_id = getattr(error, "request_id", None)
    if request_id and request_id not in text:
        text = "{} (request id {})".format(text, request_id)
    return "{}: {}".format(code_of(error), text)


def code_of(error: BaseException) -> str:
    """A stable name of the error for programs."""
    return str(getattr(error, "code", "")) or type(error).__name__
