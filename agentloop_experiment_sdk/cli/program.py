"""The program: parse, run the command, turn its end into an exit code."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from typing import Any, List, NoReturn, Optional, Sequence

from .._version import __version__
from ..errors import ConfigurationError, ExperimentError
from . import deliver, exits, plans, reading, run, serve
from .console import Console, logs, open_closed_streams
from .signals import sigterm_as_interrupt

PROGRAM = "agentloop-experiment"

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Run an agent over a dataset, keep what it answered, compare versions, and let a CI job decide.

Try it without a cloud account:
  agentloop-experiment run agent.py:answer --local questions.jsonl"""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other: one line, exit code 2."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage over many lines."""
        raise ConfigurationError(
            "{}. See {} --help.".format(message.rstrip("."), self.prog), code="InvalidUsage"
        )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments without the program's name; None takes the process's own.

    Returns:
        The exit code, see ``exits``.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    open_closed_streams()
    console = Console(_wants_json(arguments))
    code = _outcome(arguments, console)
    console.flush()
    # what was asked for went nowhere; a verdict on the agent stays one
    return exits.INFRASTRUCTURE if code == exits.OK and console.failed else code


def _outcome(arguments: List[str], console: Console) -> int:
    try:
        with sigterm_as_interrupt():
            return _dispatch(arguments, console)
    except SystemExit as leaving:  # --help and --version
        return int(leaving.code or 0)
    except KeyboardInterrupt as interrupt:
        return _interrupted(console, interrupt)
    except (ExperimentError, OSError) as error:
        code = exits.exit_code_of(error)
        console.error(error, code)
        return code
    except Exception as error:
        code = exits.exit_code_of(error)
        console.note(traceback.format_exc().rstrip())
        console.note("This is a fault of {}; please report it.".format(PROGRAM))
        console.error(error, code)
        return code


def _dispatch(arguments: List[str], console: Console) -> int:
    options = parser().parse_args(arguments)
    with logs(options.log_level):
        try:
            return int(options.command(options, console))
        except (ExperimentError, OSError):
            logger.debug("Where it happened:", exc_info=True)
            raise


def parser() -> Parser:
    """The parser of all commands."""
    root = Parser(prog=PROGRAM, description=_DESCRIPTION, epilog=exits.HELP)
    root.add_argument("--version", action="version", version="%(prog)s " + __version__)
    commands = root.add_subparsers(metavar="COMMAND", dest="subcommand", required=True)
    for group in (run, deliver, plans, reading, serve):
        group.add_commands(commands)
    return root


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among our options; known before parsing, as parsing may fail."""
    own = arguments[: arguments.index("--command")] if "--command" in arguments else arguments
    return "--json" in own


def _interrupted(console: Console, interrupt: KeyboardInterrupt) -> int:
    code = exits.exit_code_of(interrupt)
    console.note("terminated" if code == exits.TERMINATED else "interrupted")
    console.event("interrupted", exit_code=code)
    return code
