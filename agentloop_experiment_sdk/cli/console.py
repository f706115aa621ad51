"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import textwrap
from typing import Any, Iterator, TextIO

from .. import jsontext
from ..lines import each_line, encodable, no_command, one_line, terminal_json
from . import exits
from .wording import in_options

# set by GitHub Actions and most others, Azure Pipelines, TeamCity
_CI = ("CI", "TF_BUILD", "TEAMCITY_VERSION")

LOG_LEVELS = ("debug", "info", "warning", "error")


class Console:
    """Text for people, or one JSON object a line for programs.

    A reader that goes away (``| head``) ends the output, not the command: a run has been paid for.
    So does a disk that is full, but that is said.

    Args:
        json_lines: Write JSON lines instead of text.

    Attributes:
        failed: Whether stdout could not be written for another reason than a reader that went away.
    """

    def __init__(self, json_lines: bool = False) -> None:
        self.json_lines = json_lines
        self.failed = False
        self._open = True
        self._diverted = False
        # JSON is UTF-8 (RFC 8259); a terminal that cannot show a character gets its escape
        _set_stream(sys.stdout, "utf-8" if json_lines else None)
        _set_stream(sys.stderr, None)

    @property
    def encoding(self) -> str:
        """What the text for people is encoded as."""
        return _encoding(sys.stderr if self._diverted else sys.stdout)

    def text(self, text: str) -> None:
        """Text for people; nothing in JSON mode."""
        if self._diverted:
            self.note(text.rstrip("\n"))
        elif not self.json_lines:
            whole = text if text.endswith("\n") else text + "\n"
            self._write(encodable(_harmless(whole), self.encoding))

    def divert(self) -> None:
        """Text goes to stderr from now on: stdout is kept for a report."""
        self._diverted = True

    def event(self, kind: str, /, **fields: Any) -> None:
        """A JSON line ``{"event": kind, …}``; nothing in text mode."""
        if self.json_lines:
            line = {"event": kind, **fields}
            text = json.dumps(jsontext.to_jsonable(line), ensure_ascii=False)
            self._write(printable_json(text) + "\n")

    def raw(self, text: str) -> None:
        """Text that was asked for by ``-`` as a file name, in either mode."""
        self._write(text)

    def flush(self) -> None:
        """Write what others have printed to stdout, such as the help."""
        self._write("")

    def note(self, text: str) -> None:
        """A line on stderr."""
        with contextlib.suppress(OSError):  # there is nowhere left to say so
            plain = encodable(_harmless(text), _encoding(sys.stderr))
            print(plain, file=sys.stderr, flush=True)

    def error(self, error: BaseException, exit_code: int) -> None:
        """An expected error: one line on stderr, and in JSON mode one on stdout."""
        self.note("error: " + in_options(exits.one_line(error)))
        self.event(
            "error",
            code=exits.code_of(error),
            message=in_options(str(error)),
            request_id=getattr(error, "request_id", None),
            exit_code=exit_code,
        )

    def _write(self, text: str) -> None:
        if not self._open:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._open = False
            _silence_stdout()
            if not isinstance(error, BrokenPipeError):
                self.failed = True
                reason = "stdout cannot be written: {}".format(error.strerror or error)
                self.note("error: OutputNotWritten: {}; going on without it.".format(reason))


def open_closed_streams() -> None:
    """Let a standard stream that was closed before we began, as by ``>&-``, lead nowhere.

    They are opened in their order, so that each gets its own number: it would else be that of the
    next file, and what is written to the stream by number would end up in there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))


class _Silence(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return False


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _harmless(one_line(in_options(record.message)))
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        # indented: an error's text may have lines that look like other log lines
        return _harmless(textwrap.indent(super().formatException(ei), "  "))


@contextlib.contextmanager
def logs(level: str) -> Iterator[None]:
    """The package's log lines on stderr while a command runs; other packages stay as they are."""
    logger = logging.getLogger(__name__.split(".")[0])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    # the credentials library, under this name, logs tracebacks for each source without keys
    chatty = logging.getLogger("credentials")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    silence = _Silence()
    if level != "debug":
        chatty.addFilter(silence)  # it sets its own level when it is imported
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        chatty.removeFilter(silence)


def printable_json(text: str) -> str:
    """JSON ``text`` of the same value that may be printed, as ``_harmless`` makes other text."""
    text = terminal_json(text)
    return text.replace("##", "#\\u0023") if _in_ci() else text


def _harmless(text: str) -> str:
    """``text`` as it may be printed: it steers neither a terminal nor the CI job that prints it."""
    return no_command(each_line(text)) if _in_ci() else each_line(text)


def _in_ci() -> bool:
    return any(os.environ.get(name) for name in _CI)


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _set_stream(stream: TextIO, encoding: Any) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace", **({"encoding": encoding} if encoding else {}))


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere; it would complain and change the exit code."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
