"""The messages of a conversation, out of a dataset row."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections import abc
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from ..arguments import texts_of
from ..errors import ConfigurationError
from ..models import Task
from .arguments import check_callback, returned

_CONTENT_KEYS = (
    "content",
    "message",
    "text",
    "query",
    "input",
    "question",
    "prompt",
    "user",
    "value",
)
_LIST_KEYS = ("turns", "messages", "conversation", "conversations")
_USER_ROLES = frozenset(("user", "human"))

TurnExtractor = Callable[[Task], Any]


@dataclass(frozen=True)
class TurnSource:
    """Where the turns of a row are.

    Args:
        field: The column that holds them.
        fallbacks: Columns asked in order when that one is missing or empty.
        extractor: Takes the task and returns the turns; replaces the columns.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    field: str = "turns"
    fallbacks: Sequence[str] = ()
    extractor: Optional[TurnExtractor] = None

    def __post_init__(self) -> None:
        names = texts_of("turns_fallback_fields", self.fallbacks)
        object.__setattr__(self, "fallbacks", names)
        if not isinstance(self.field, str) or not self.field:
            raise ConfigurationError(
                "turns_field must be the name of a column, not {!r}.".format(self.field)
            )
        check_callback("turn_extractor", self.extractor)

    def messages(self, task: Task) -> List[Any]:
        """The messages to send for ``task``; empty if the row holds none."""
        if self.extractor is not None:
            return messages_in(returned("turn_extractor", self.extractor(task)))
        found = (messages_in(task.input.get(name)) for name in (self.field, *self.fallbacks))
        return next((messages for messages in found if messages), [])

    @property
    def columns(self) -> Tuple[str, ...]:
        """The columns that are asked for turns; none with an extractor."""
        return () if self.extractor is not None else (self.field, *self.fallbacks)

    @property
    def missing(self) -> str:
        """What to say about a row without turns."""
        if self.extractor is not None:
            return "turn_extractor returned no turns for this row"
        return "the row has no turns in the columns it was asked for ({})".format(
            ", ".join(self.columns)
        )


def messages_in(value: Any) -> List[Any]:
    """The messages that a column or extractor holds.

    A list, JSON text of a list, or an object with such a list; other text is one message. Items
    are text, or objects with their text under ``content``, ``message``, ``text``, ``query``,
    ``input``, ``question``, ``prompt``, ``user`` or ``value``. Of items with a role only those of
    the user are sent: recorded answers and system prompts are not turns. Blank items are left out;
    an object without any of the keys is sent as it is.
    """
    value = _parsed(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        inner = next((value[key] for key in _LIST_KEYS if _is_list(value.get(key))), None)
        value = [value] if inner is None else inner
    items = list(value) if _is_list(value) else [value]
    messages = [_message(item) for item in items if _is_users(item)]
    return [message for message in messages if message not in ("", None)]


def _parsed(text: str) -> Any:
    """What JSON text holds; a list that was written by Python's ``str`` is read too."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        found = ast.literal_eval(text.strip()) if _is_literal(text.strip()) else text
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return text
    return found if isinstance(found, (list, dict)) else text


_MARKS = frozenset("()[]{},:-")
_AFTER_VALUES = frozenset((")", "]", "}", ",", ":"))


def _is_literal(text: str) -> bool:
    """Whether only brackets nest in ``text``.

    A long chain of operators, calls or attributes crashes Python 3.8 while it is parsed.
    """
    before = "["
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            word = token.string
            if token.type == tokenize.NAME and word not in ("None", "True", "False"):
                return False
            if token.type == tokenize.OP:
                begins_value = word not in _AFTER_VALUES
                if word not in _MARKS or (begins_value and before not in ("(", "[", "{", ",", ":")):
                    return False
            before = word if word.strip() else before
    except (tokenize.TokenError, SyntaxError):
        return False
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, abc.Iterator))


def _is_users(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return True
    role = item.get("role", item.get("from") if "value" in item else None)
    return not isinstance(role, str) or role.lower() in _USER_ROLES


def _message(item: Any) -> Any:
    if isinstance(item, Mapping):
        named = [item[key] for key in _CONTENT_KEYS if key in item]
        if not named:
            return dict(item)
        item = next((content for content in map(_content, named) if content), "")
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return str(item)
    return _content(item)


def _content(value: Any) -> Any:
    """Text without surrounding blanks; a list of text parts joined; anything else as it is."""
    if isinstance(value, str):
        return value if value.strip() else ""
    if isinstance(value, list) and value:
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in value]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(value):
            return "".join(texts)
    return value
