"""The turns of a conversation as HTTP calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..errors import ConfigurationError
from ..models import HttpRequestSpec, Task
from ..tracing import task_members, trace_id_from_headers
from .answer import HttpAnswer
from .arguments import returned
from .client import HttpClient
from .dialogue import Turn
from .session import reply_in, session_id_in, trace_id_in

BodyBuilder = Callable[[Any, str, int, Task], Any]


@dataclass(frozen=True)
class PlainBody:
    """The body of a turn without a builder: session id and message under two keys.

    Raises:
        ConfigurationError: The keys are no two different names.
    """

    session_field: str
    message_field: str

    def __post_init__(self) -> None:
        for name in ("session_field", "message_field"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigurationError("{} must be a name, not {!r}.".format(name, value))
        if self.session_field == self.message_field:
            raise ConfigurationError(
                "session_field and message_field are both {!r}: one would overwrite the "
                "other.".format(self.session_field)
            )

    def __call__(self, message: Any, session_id: str, index: int, task: Task) -> Dict[str, Any]:
        """The JSON body of one turn."""
        return {self.session_field: session_id, self.message_field: message}


@dataclass(frozen=True)
class AnswerPlaces:
    """Where an HTTP answer may hold its trace id and session id, in order of preference."""

    trace_headers: Sequence[str]
    trace_paths: Sequence[str]
    session_headers: Sequence[str]
    session_paths: Sequence[str]

    def trace_id(self, answer: HttpAnswer, bodies: Sequence[Any]) -> Optional[str]:
        """The agent's trace id, or the one that was sent."""
        named = trace_id_from_headers(answer.headers, list(self.trace_headers))
        found = (trace_id_in(body, self.trace_paths) for body in bodies)
        return named or next(filter(None, found), None) or answer.trace_id

    def session_id(self, answer: HttpAnswer, bodies: Sequence[Any]) -> Optional[str]:
        """The agent's session id, if it names one."""
        headers = (answer.headers.get(name.lower(), "").strip() for name in self.session_headers)
        found = (session_id_in(body, self.session_paths) for body in bodies)
        return next(filter(None, headers), None) or next(filter(None, found), None)


@dataclass(frozen=True)
class HttpTurns:
    """Sends the turns of conversations to one URL."""

    client: HttpClient
    url: str
    headers: Mapping[str, str]
    build_body: BodyBuilder
    session_headers: Sequence[str]
    places: AnswerPlaces

    def __call__(self, message: Any, session_id: str, index: int, task: Task) -> Turn:
        """Send one message and read its answer."""
        body = returned("body_builder", self.build_body(message, session_id, index, task))
        given = {name.lower() for name in self.headers}
        added = {name: session_id for name in self.session_headers if name.lower() not in given}
        spec = HttpRequestSpec(self.url, headers={**self.headers, **added}, json=body)
        events: List[Any] = []
        answer = self.client.exchange(spec, members=task_members(task), on_event=events.append)
        return self._turn(answer, events if answer.streamed else [answer.output])

    def _turn(self, answer: HttpAnswer, bodies: Sequence[Any]) -> Turn:
        trace_id = self.places.trace_id(answer, bodies)
        session_id = self.places.session_id(answer, bodies)
        reply = reply_in(answer.output)
        error = {"error_type": answer.error_type, "error_message": answer.error_message}
        return Turn(
            answer.output if reply is None else reply,
            answer.output,
            trace_id,
            answer.usage,
            session_id,
            answer.ttft_ms,
            {"http": answer.facts},
            None if answer.success else error,
        )
