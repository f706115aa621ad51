"""One conversation: turn after turn in one session, and the one output they come to.

The order of things is written once, as a generator that yields what to send; two drivers send it,
one plainly, one awaiting.
"""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, field
from typing import (
    Any,
    Awaitable,
    Callable,
    Dict,
    Generator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from ..errors import ConfigurationError
from ..models import SolutionOutput, Task
from ..tracing import valid_trace_id
from .call import failure_from
from .turns import TurnSource
from .usage import normalised

ON_MISSING = ("skip", "fail")
_TOKENS = ("input_tokens", "output_tokens", "total_tokens")


class TurnCall(NamedTuple):
    """What is sent in one turn: the arguments of a ``send_turn``."""

    message: Any
    session_id: str
    turn_index: int
    task: Task


@dataclass(frozen=True)
class Turn:
    """What one turn came to.

    Attributes:
        reply: The agent's reply.
        raw: Its whole answer.
        trace_id: The turn's trace, if it is known.
        usage: Token usage in any of the known shapes.
        session_id: The session that the agent says it is.
        ttft_ms: Milliseconds to the first content of a streamed answer.
        facts: Goes into ``meta["turns"]``.
        error: Meta of a failed turn, with ``error_type`` and ``error_message``; None if it did not.
    """

    reply: Any = ""
    raw: Any = ""
    trace_id: Optional[str] = None
    usage: Optional[Mapping[str, Any]] = None
    session_id: Optional[str] = None
    ttft_ms: Optional[float] = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: Optional[Mapping[str, Any]] = None


Send = Callable[[Any, str, int, Task], Any]
Steps = Generator[TurnCall, Turn, SolutionOutput]
SessionSource = Callable[[Task], str]


@dataclass(frozen=True)
class Dialogue:
    """How the conversations of a solution are held.

    Raises:
        ConfigurationError: ``on_missing`` is neither ``skip`` nor ``fail``.
    """

    turns: TurnSource
    new_session: SessionSource
    on_missing: str = "skip"

    def __post_init__(self) -> None:
        if self.on_missing not in ON_MISSING:
            raise ConfigurationError(
                "on_missing_turns must be 'skip' or 'fail', not {!r}.".format(self.on_missing)
            )

    def steps(self, task: Task, pre_hook: Optional[Callable[[], Any]]) -> Steps:
        """Yield what to send, take what came back, return the row's output."""
        try:
            messages = self.turns.messages(task)
            session_id = self.new_session(task) if messages else ""
        except Exception as error:
            return failure_from(error)
        if not messages:
            return self._without_turns(task)
        transcript = _Transcript(task, session_id, len(messages))
        if pre_hook is not None:
            pre_hook()
        for index, message in enumerate(messages):
            began = time.perf_counter()
            turn = yield TurnCall(message, transcript.session_id, index, task)
            transcript.add(turn, (time.perf_counter() - began) * 1000)
            if turn.error is not None:
                return transcript.failed(message, turn)
        return SolutionOutput(True, transcript.output(), meta=transcript.meta())

    def _without_turns(self, task: Task) -> SolutionOutput:
        reason = self.turns.missing
        meta = {"experiment_input": dict(task.input)}
        if self.on_missing == "fail":
            return SolutionOutput.failure("MissingTurns", reason, meta)
        output = {"skipped": True, "reason": reason}
        return SolutionOutput(True, output, meta=dict(meta, skipped=True))


class _Transcript:
    """What a conversation has come to so far."""

    def __init__(self, task: Task, session_id: str, total: int) -> None:
        self._task = task
        self._requested = session_id
        self._total = total
        self._done: List[Turn] = []
        self._facts: List[Dict[str, Any]] = []
        self._usage: Dict[str, Any] = {}
        self._trace_ids: List[Optional[str]] = []
        self._ttft_ms: Optional[float] = None
        self.session_id = session_id

    def add(self, turn: Turn, milliseconds: float) -> None:
        self.session_id = turn.session_id or self.session_id
        self._trace_ids.append(valid_trace_id(turn.trace_id))
        self._facts.append({"ms": round(milliseconds, 3), **turn.facts})
        self._add_usage(turn.usage)
        if turn.error is None:
            self._done.append(turn)
        if len(self._trace_ids) == 1:
            self._ttft_ms = turn.ttft_ms

    def _add_usage(self, usage: Optional[Mapping[str, Any]]) -> None:
        counts = normalised(usage) if isinstance(usage, Mapping) else {}
        if not counts:
            return
        parts = counts.get("input_tokens", 0) + counts.get("output_tokens", 0)
        counts["total_tokens"] = max(counts.get("total_tokens", 0), parts)
        for name in _TOKENS:
            self._usage[name] = self._usage.get(name, 0) + counts.get(name, 0)
        model = (usage or {}).get("model")
        if isinstance(model, str) and model:
            self._usage["model"] = model

    def output(self) -> Dict[str, Any]:
        output: Dict[str, Any] = {
            "session_id": self.session_id,
            "turns_total": self._total,
            "turns": [turn.raw for turn in self._done],
            "final_reply": self._done[-1].reply if self._done else "",
            "usage_total": {name: self._usage.get(name, 0) for name in _TOKENS},
        }
        if self.session_id != self._requested:
            output["requested_session_id"] = self._requested
        return output

    def meta(self) -> Dict[str, Any]:
        meta: Dict[str, Any] = {
            "experiment_input": dict(self._task.input),
            "session_id": self.session_id,
            "turns": self._facts,
        }
        known = [trace_id for trace_id in self._trace_ids if trace_id]
        if known:
            meta["traceId"] = known[0]
            meta["trace_ids"] = self._trace_ids
        if self._usage:
            meta["usage"] = dict(self._usage)
        if self._ttft_ms is not None:
            meta["ttft_ms"] = self._ttft_ms
        return meta

    def failed(self, message: Any, turn: Turn) -> SolutionOutput:
        error = turn.error or {}
        number = len(self._facts)
        said = "turn {} of {}: {}".format(number, self._total, error.get("error_message", ""))
        output = self.output()
        output["failed_turn"] = {"index": number - 1, "message": message, "raw": turn.raw}
        meta = {**error, **self.meta()}
        return SolutionOutput.failure(error.get("error_type", ""), said, meta, output)


def turn_from(value: Any) -> Turn:
    """The turn that a user's ``send_turn`` or parser answered.

    A mapping of ``reply``, ``trace_id``, ``usage``, ``raw`` and ``session_id``, all optional; a
    ``SolutionOutput``; or anything else, which is the reply itself.
    """
    if isinstance(value, Turn):
        return value
    if isinstance(value, SolutionOutput):
        return _turn_of_output(value)
    if not isinstance(value, Mapping):
        return Turn(value, value)
    reply = value.get("reply", "")
    session_id = value.get("session_id")
    return Turn(
        reply,
        value["raw"] if value.get("raw") is not None else reply,
        valid_trace_id(value.get("trace_id")),
        value.get("usage"),
        None if session_id in (None, "") else str(session_id),
    )


def _turn_of_output(output: SolutionOutput) -> Turn:
    meta = output.meta
    return Turn(
        output.output,
        output.output,
        valid_trace_id(meta.get("traceId")),
        meta.get("usage"),
        meta.get("session_id"),
        error=None if output.success else meta,
    )


def failed_turn(error: BaseException, raw: Any = "") -> Turn:
    """The turn whose sending raised."""
    return Turn(raw=raw, error=failure_from(error).meta)


def drive(steps: Steps, send: Send) -> Union[SolutionOutput, Awaitable[SolutionOutput]]:
    """Hold a conversation with a plain ``send``; one that returns an awaitable is awaited on.

    Returns:
        The output, or from the first awaitable on a coroutine of it for the executor to await.
    """
    turn: Any = None
    try:
        while True:
            call = steps.send(turn)
            value = _sent(send, call)
            if inspect.isawaitable(value):
                return drive_async(steps, send, value)
            turn = value
    except StopIteration as end:
        output: SolutionOutput = end.value
        return output


def _sent(send: Send, call: TurnCall) -> Any:
    """The turn, or the awaitable of it."""
    try:
        value = send(*call)
        return value if inspect.isawaitable(value) else turn_from(value)
    except (Exception, SystemExit) as error:
        return failed_turn(error)


async def drive_async(steps: Steps, send: Send, begun: Any = None) -> SolutionOutput:
    """Hold a conversation with an awaited ``send``; ``begun`` is what an earlier call returned."""
    turn: Any = None if begun is None else await _awaited(begun)
    try:
        while True:
            value = _sent(send, steps.send(turn))
            turn = await _awaited(value) if inspect.isawaitable(value) else value
    except StopIteration as end:
        output: SolutionOutput = end.value
        return output


async def _awaited(value: Awaitable[Any]) -> Turn:
    try:
        return turn_from(await value)
    except (Exception, SystemExit) as error:
        return failed_turn(error)


@dataclass(frozen=True)
class ConversationSolution:
    """A solution that holds one conversation per task.

    Args:
        send: Sends one message and returns its turn.
        dialogue: Where turns and sessions come from.
        fingerprint: What tells this solution from another, without secrets.
        built_by: The user's code that it was made with.
    """

    send: Send
    dialogue: Dialogue
    fingerprint: str
    built_by: Any = None

    @property
    def turn_columns(self) -> Tuple[str, ...]:
        """Columns of which the dataset must have one."""
        return self.dialogue.turns.columns

    def __call__(self, task: Task, pre_hook: Optional[Callable[[], Any]] = None) -> Any:
        """Hold the conversation of ``task``; ``pre_hook`` is called before its first turn."""
        return drive(self.dialogue.steps(task, pre_hook), self.send)


@dataclass(frozen=True)
class AsyncConversationSolution:
    """``ConversationSolution`` for an async ``send``: awaited, so that it needs no thread."""

    send: Send
    dialogue: Dialogue
    fingerprint: str
    built_by: Any = None

    @property
    def turn_columns(self) -> Tuple[str, ...]:
        """Columns of which the dataset must have one."""
        return self.dialogue.turns.columns

    async def __call__(
        self, task: Task, pre_hook: Optional[Callable[[], Any]] = None
    ) -> SolutionOutput:
        """Hold the conversation of ``task``; ``pre_hook`` is called before its first turn."""
        return await drive_async(self.dialogue.steps(task, pre_hook), self.send)
