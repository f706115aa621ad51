"""One call of a command, checked before anything is started: argv, environment, input, bounds."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ..errors import ConfigurationError
from ..jsontext import clean_text
from ..models import Task
from ..scope import current_scope
from ..tracing import begin_trace, inject, task_members
from .redact import MASK, is_secret_name, redact_argv, secret_values

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_SHORTEST_SECRET = 6
_BUILT_KEYS = ("argv", "env", "stdin", "timeout", "cwd")

Environment = Mapping[str, Optional[str]]
Directory = Union[None, str, "os.PathLike[str]"]
Argv = Sequence[Union[str, "os.PathLike[str]"]]
Built = Union[Argv, Mapping[str, Any]]
Input = Union[None, str, bytes]


@dataclass(frozen=True)
class CommandCall:
    """One call of a command, checked.

    ``env`` is added to the inherited environment; a value of None removes the variable.
    ``stdin`` None closes the command's input. ``max_output_bytes`` bounds stdout and stderr, each.
    """

    argv: Tuple[str, ...]
    timeout: float = 60.0
    cwd: Optional[str] = None
    env: Environment = field(default_factory=dict)
    stdin: Optional[bytes] = None
    max_output_bytes: int = MAX_OUTPUT_BYTES

    @functools.cached_property
    def shown_argv(self) -> List[str]:
        """The arguments without secrets, as they are stored."""
        return redact_argv(self.argv)

    @property
    def secrets(self) -> List[str]:
        """The credentials among argv and env, to be taken out of what the command printed."""
        pairs = [pair for pair in zip(self.argv, self.shown_argv) if pair[1].endswith(MASK)]
        found = [said[len(shown) - len(MASK) :] for said, shown in pairs]
        found += [value for name, value in self.env.items() if value and is_secret_name(name)]
        if not found:
            return []
        # a longer text with spaces is a prompt that only looks like an assignment
        words = [item for item in found if len(item.split()) == 1]
        single = {item for item in words if len(item) >= _SHORTEST_SECRET}
        headers = [said.partition(":")[2].strip() for said, shown in pairs if _is_header(shown)]
        return sorted(single.union(secret_values(hidden=headers)), key=len, reverse=True)


def _is_header(shown: str) -> bool:
    return shown.endswith(": " + MASK)


def checked_argv(argv: Any) -> Tuple[str, ...]:
    """``argv`` as strings; paths are turned into text.

    Raises:
        ConfigurationError: It is one string, no list, empty, or holds something else.
    """
    if isinstance(argv, (str, bytes)):
        raise ConfigurationError(
            "A command must be a list of arguments such as ['agent', '--prompt', text], not one "
            "string: it is run without a shell."
        )
    if not isinstance(argv, (list, tuple)) or not argv:
        raise ConfigurationError("A command must be a list of at least one argument.")
    return tuple(_argument(number, item) for number, item in enumerate(argv))


def _argument(number: int, item: Any) -> str:
    text = os.fspath(item) if isinstance(item, os.PathLike) else item
    if not isinstance(text, str):
        raise ConfigurationError(
            "Argument {} of the command is {}; make it text, for instance with str().".format(
                number, type(item).__name__
            )
        )
    return _without_zero("Argument {} of the command".format(number), text)


def _without_zero(what: str, text: str) -> str:
    """``text``, if a program can be given it: there, a zero byte ends every text."""
    if "\0" in text:
        raise ConfigurationError(
            "{} holds a zero byte, which no program can be given; remove it, or give the text on "
            "stdin.".format(what)
        )
    return text


def command_call(built: Any, defaults: CommandCall) -> CommandCall:
    """The call that a builder asked for: argv, or a dict of argv and settings of this call.

    Raises:
        ConfigurationError: What it returned cannot be run.
    """
    if not isinstance(built, Mapping):
        return _changed(defaults, checked_argv(built), defaults.env)
    unknown = [str(key) for key in built if key not in _BUILT_KEYS]
    if unknown:
        raise ConfigurationError(
            "The command builder returned {}; known are {}.".format(
                ", ".join(unknown), ", ".join(_BUILT_KEYS)
            )
        )
    given = {key: value for key, value in built.items() if value is not None}
    return CommandCall(
        checked_argv(given.get("argv")),
        _positive("timeout", given["timeout"]) if "timeout" in given else defaults.timeout,
        checked_path(given["cwd"]) if "cwd" in given else defaults.cwd,
        {**defaults.env, **checked_variables(given.get("env"))},
        stdin_bytes(given["stdin"]) if "stdin" in given else defaults.stdin,
        defaults.max_output_bytes,
    )


def shared_settings(timeout: float, cwd: Any, env: Any, max_output_bytes: int) -> CommandCall:
    """What the calls of a solution have in common: a call that lacks its argv.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    return CommandCall(
        (),
        _positive("timeout", timeout),
        checked_path(cwd),
        checked_variables(env),
        None,
        _whole("max_output_bytes", max_output_bytes),
    )


def _positive(name: str, value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value > 0:
        raise ConfigurationError(
            "The command's {} must be a number above 0, not {!r}.".format(name, value)
        )
    return value


def _whole(name: str, value: Any) -> int:
    if not isinstance(_positive(name, value), int):
        raise ConfigurationError(
            "The command's {} must be a whole number, not {!r}.".format(name, value)
        )
    return int(value)


def checked_path(cwd: Any) -> Optional[str]:
    """A working directory as text, or None.

    Raises:
        ConfigurationError: It is no path.
    """
    if cwd is None:
        return None
    path = os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd
    if not isinstance(path, str) or not path:
        raise ConfigurationError("cwd must be a path, not {!r}.".format(cwd))
    return _without_zero("cwd", path)


def checked_variables(env: Any) -> Dict[str, Optional[str]]:
    """Environment variables with text values; None, which removes a variable, stays None.

    Raises:
        ConfigurationError: It is no mapping of names.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping) or not all(isinstance(name, str) for name in env):
        raise ConfigurationError("env must be a mapping of variable names to text.")
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise ConfigurationError("{!r} cannot be the name of a variable.".format(name))
    return {
        name: value if value is None else _without_zero("The variable " + name, str(value))
        for name, value in env.items()
    }


def stdin_bytes(given: Any) -> Optional[bytes]:
    """Input for a command as bytes; text becomes UTF-8.

    Raises:
        ConfigurationError: It is neither text, bytes nor None.
    """
    if isinstance(given, str):
        return clean_text(given).encode("utf-8")
    if given is None or isinstance(given, bytes):
        return given
    raise ConfigurationError(
        "stdin must be text or bytes, not {}; write objects with json.dumps.".format(
            type(given).__name__
        )
    )


def with_trace(call: CommandCall, task: Task) -> Tuple[CommandCall, str]:
    """``call`` with TRACEPARENT and BAGGAGE in its environment, and the trace id they carry.

    A valid TRACEPARENT in the call's own ``env`` wins. One that this process inherited does not:
    it would give every row the same trace. Inherited baggage is kept and extended.
    """
    headers = {}
    own = call.env.get("TRACEPARENT")
    if own:
        headers["traceparent"] = own
    baggage = call.env.get("BAGGAGE") or os.environ.get("BAGGAGE")
    if baggage:
        headers["baggage"] = baggage
    sent, trace_id = inject(headers, begin_trace(current_scope()), task_members(task))
    carried = {"TRACEPARENT": sent["traceparent"], "BAGGAGE": sent.get("baggage")}
    return _changed(call, call.argv, {**call.env, **carried}), trace_id


def _changed(call: CommandCall, argv: Tuple[str, ...], env: Environment) -> CommandCall:
    """A copy with other arguments and variables; ``dataclasses.replace`` takes five times longer,
    and every row comes here twice."""
    return CommandCall(argv, call.timeout, call.cwd, env, call.stdin, call.max_output_bytes)
