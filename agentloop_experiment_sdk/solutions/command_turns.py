"""The turns of a conversation as runs of a command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Optional

from ..models import Task
from ..tracing import valid_trace_id
from .arguments import check_callback, returned
from .command_answer import CommandAnswer, command_facts, reported_trace_id, run_command
from .command_call import Built, CommandCall, command_call, with_trace
from .dialogue import Turn, failed_turn, turn_from
from .session import json_values, reply_in, session_id_in, trace_id_in
from .usage import UsageMeter

CommandBuilder = Callable[[Any, str, int, Task], Built]
TurnTraceResolver = Callable[[str, int, Any], Optional[str]]


@dataclass(frozen=True)
class CommandTurns:
    """Runs a command for every turn of conversations."""

    build_command: CommandBuilder
    defaults: CommandCall
    parse: Callable[[str], Any]
    resolve: Optional[TurnTraceResolver]
    trace: bool

    def __call__(self, message: Any, session_id: str, index: int, task: Task) -> Turn:
        """Run the command for one message and read what it printed."""
        built = self.build_command(message, session_id, index, task)
        parse = self.parse
        if isinstance(built, Mapping):
            settings = dict(built)
            check_callback("parser", settings.get("parser"))
            parse = settings.pop("parser", None) or parse
            built = settings
        call, sent = with_trace(command_call(built, self.defaults), task)
        answer = run_command(call)
        turn = _parsed(parse, answer)
        trace_id = valid_trace_id(turn.trace_id) or reported_trace_id(answer, sent, self.trace)
        if self.resolve is not None:
            trace_id = valid_trace_id(self.resolve(session_id, index, turn.raw)) or trace_id
        return replace(turn, trace_id=trace_id, facts={"command": command_facts(call, answer)})


def _parsed(parse: Callable[[str], Any], answer: CommandAnswer) -> Turn:
    if answer.error_type:
        error = {"error_type": answer.error_type, "error_message": answer.error_message}
        return Turn(raw=answer.output, error=error)
    try:
        return turn_from(returned("output_parser", parse(answer.stdout)))
    except Exception as error:
        return failed_turn(error, answer.output)


def parse_stdout(stdout: str) -> Turn:
    """The turn that a command's output tells of, if it is in one of the usual forms.

    JSON, whole or one value per line (the later value counts): the reply, session id, trace id and
    usage are looked for at their usual places; ``"is_error": true`` fails the turn. Other text is
    the reply.
    """
    values = json_values(stdout)
    if not values:
        return Turn(stdout.strip(), stdout)
    raw = values[0] if len(values) == 1 else values
    newest = list(reversed(raw)) if isinstance(raw, list) else [raw]
    meter = UsageMeter()
    for value in reversed(newest):
        meter.add(value)
    reply = next(filter(None, map(reply_in, newest)), None) or stdout.strip()
    failed = any(isinstance(value, Mapping) and value.get("is_error") is True for value in newest)
    return Turn(
        reply,
        raw,
        next(filter(None, map(trace_id_in, newest)), None),
        meter.usage,
        next(filter(None, map(session_id_in, newest)), None),
        error={"error_type": "AgentError", "error_message": reply} if failed else None,
    )
