"""Session ids, and where agents put session id, trace id and reply in an answer."""

from __future__ import annotations

import inspect
import json
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..errors import ConfigurationError
from ..models import Task
from ..tracing import valid_trace_id
from .arguments import check_callback, returned

SESSION_REQUEST_HEADERS = ("X-Session-Id", "X-Conversation-Id", "X-Thread-Id")
SESSION_RESPONSE_HEADERS = (
    "x-session-id",
    "x-sessionid",
    "session-id",
    "x-conversation-id",
    "conversation-id",
    "openai-conversation-id",
    "x-thread-id",
    "thread-id",
)
TRACE_RESPONSE_HEADERS = ("traceid", "eagleeye-traceid", "x-trace-id")
TRACE_BODY_PATHS = (
    "trace_ids.gateway",
    "trace_ids.agent",
    "trace_ids.model",
    "traceId",
    "trace_id",
)
REPLY_PATHS = (
    "reply",
    "final_reply",
    "answer",
    "response",
    "result",
    "output",
    "content",
    "text",
    "choices.0.message.content",
    "choices.0.text",
    "message.content",
    "output.text",
    "output.choices.0.message.content",
    "item.text",
    "data.reply",
    "data.answer",
    "data.content",
    "data.text",
    "result.reply",
    "result.answer",
    "result.content",
    "result.text",
    "message",  # last: beside a reply it tends to say "success"
)


class _Places(Tuple[str, ...]):
    """Many paths; ``help()`` and tracebacks show how many, not each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<{} paths, {}, …>".format(len(self), ", ".join(self[:3]))


def _session_body_paths() -> Tuple[str, ...]:
    """The four names in three cases, their ``.id`` objects, then all of that one level down.

    The top-level ``id`` is not among them: it names the answer and changes every turn.
    """
    names = ("session", "conversation", "thread", "chat")
    plain = [form for name in names for form in (name + "_id", name + "Id", name.title() + "Id")]
    objects = [form for name in names for form in (name + ".id", name.title() + ".Id")]
    nested = [form + ".id" for form in plain]
    prefixes = ("", "data.", "result.", "Data.", "Result.")
    return _Places(prefix + path for prefix in prefixes for path in plain + objects + nested)


SESSION_BODY_PATHS = _session_body_paths()


def default_session_id() -> str:
    """A session id that tells when the conversation began: ``sess-YYYYMMDD-HHMMSS-<8 hex>``."""
    return "sess-{}-{}".format(time.strftime("%Y%m%d-%H%M%S"), os.urandom(4).hex())


def uuid_session_id() -> str:
    """A random UUID, the form that coding agents' command lines demand of a session id."""
    import uuid  # loads much on older Pythons

    return str(uuid.uuid4())


@dataclass(frozen=True)
class SessionIds:
    """The session id that a conversation asks for: a fixed one, or a new one each time.

    Args:
        fixed: The same for every conversation; None makes new ones.
        factory: Takes nothing, or the task, and returns a new id.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    fixed: Optional[str]
    factory: Callable[..., Any]

    def __post_init__(self) -> None:
        if self.fixed is not None and (not isinstance(self.fixed, str) or not self.fixed.strip()):
            raise ConfigurationError(
                "session_id must be text that is not empty, not {!r}; None makes a new id for "
                "every conversation.".format(self.fixed)
            )
        check_callback("session_id_factory", self.factory, required=True)
        if not (_takes(self.factory) or _takes(self.factory, None)):
            raise ConfigurationError("session_id_factory must take nothing, or the task.")

    def __call__(self, task: Task) -> str:
        """The id for one conversation."""
        if self.fixed is not None:
            return self.fixed
        made = self.factory() if _takes(self.factory) else self.factory(task)
        returned("session_id_factory", made)
        session_id = "" if made is None else str(made).strip()
        if not session_id:
            raise ConfigurationError("session_id_factory returned no session id.")
        return session_id


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        return not arguments
    return True


def at_path(value: Any, path: str) -> Any:
    """What lies at a dotted path (``choices.0.message``) of a JSON value, or None."""
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def session_id_in(body: Any, paths: Iterable[str] = SESSION_BODY_PATHS) -> Optional[str]:
    """The session id that an answer's body names, or None; numbers count as ids."""
    return next((text for text in _id_texts(body, paths)), None)


def _id_texts(body: Any, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        value = at_path(body, path)
        if isinstance(value, str) and value.strip():
            yield value.strip()
        elif isinstance(value, int) and not isinstance(value, bool):
            yield str(value)


def trace_id_in(body: Any, paths: Iterable[str] = TRACE_BODY_PATHS) -> Optional[str]:
    """The first valid trace id (32 hex digits, not all zeros) at ``paths`` of a body, or None."""
    found = (valid_trace_id(at_path(body, path)) for path in paths)
    return next((trace_id for trace_id in found if trace_id), None)


def reply_in(body: Any, paths: Sequence[str] = REPLY_PATHS) -> Optional[str]:
    """The text of an answer's body: the body itself, or the first text at the usual places."""
    if isinstance(body, str):
        return body
    found = (at_path(body, path) for path in paths)
    return next((text for text in found if isinstance(text, str) and text), None)


def json_values(text: str) -> List[Any]:
    """The JSON that a command printed: the whole text, or one value per line.

    Lines that are no JSON (progress, warnings) are left out; but if the last line is none, the
    text is prose and holds no values.
    """
    whole = _json_or_none(text)
    if whole is not None:
        return [whole]
    values = [_json_or_none(line) for line in text.strip().split("\n")]
    return [value for value in values if value is not None] if values[-1] is not None else []


def _json_or_none(text: str) -> Any:
    text = text.strip()
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
