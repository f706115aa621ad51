"""Placeholders for a row's columns in commands, bodies and URLs: ``{question}``."""

from __future__ import annotations

import re
from typing import Any, Callable, Set

from .. import jsontext
from ..models import Task

WHOLE_ROW = "{task.input}"
# a name, so that JSON and format strings in an argument stay as they are
_OF_THE_TASK = ("task.input", "task.id")
_PLACEHOLDER = re.compile(r"\{([^\W\d][\w.-]*)\}")


def has_placeholder(text: str) -> bool:
    """Whether ``text`` takes something from the row."""
    return _PLACEHOLDER.search(text) is not None


def columns_in(template: Any) -> Set[str]:
    """The columns that a template takes from each row; ``task.id`` and ``task.input`` are none."""
    if isinstance(template, str):
        return set(_PLACEHOLDER.findall(template)) - set(_OF_THE_TASK)
    if isinstance(template, dict):
        template = list(template.values())
    if isinstance(template, (list, tuple)):
        return {name for part in template for name in columns_in(part)}
    return set()


def fill_text(template: str, task: Task, quote: Callable[[str], str] = str) -> str:
    """``template`` with each placeholder replaced by the text of its column.

    Args:
        template: ``{column}`` is a column, ``{task.id}`` the task's id, ``{task.input}`` the whole
            row as JSON; everything else stays.
        task: The row.
        quote: Applied to each text that is put in.

    Raises:
        LookupError: The row has no such column.
    """
    return _PLACEHOLDER.sub(lambda match: quote(_text(_value(match.group(1), task))), template)


def fill(template: Any, task: Task) -> Any:
    """A JSON template filled: a string that is one placeholder becomes the value as it is."""
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        return _value(whole.group(1), task) if whole else fill_text(template, task)
    if isinstance(template, dict):
        return {name: fill(value, task) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, task) for value in template]
    return template


def _value(name: str, task: Task) -> Any:
    if name in task.input:
        return task.input[name]
    if name in _OF_THE_TASK:
        return task.input if name == "task.input" else task.id
    raise LookupError(
        "the row has no column {!r}; it has {}".format(name, ", ".join(map(str, task.input)))
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else jsontext.dumps(value)
