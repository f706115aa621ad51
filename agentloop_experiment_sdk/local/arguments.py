"""What a test gives LocalAgentLoop and its faults, checked: each error names the argument."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Mapping, Optional

from ..arguments import is_list, unusable
from .sql import is_utf8


def check_texts(*, may_be_empty: bool = False, **texts: Any) -> None:
    """Raise ConfigurationError unless each of ``texts``, by its name, is a text."""
    wanted = "a text" if may_be_empty else "a text that is not empty"
    for name, text in texts.items():
        if not isinstance(text, str) or not is_utf8(text) or not (text or may_be_empty):
            raise unusable(name, text, wanted)


def check_seconds(name: str, value: Any) -> None:
    """Raise ConfigurationError unless ``value`` is a number of seconds."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:
        raise unusable(name, value, "a number of seconds, 0 or more")


def listed(name: str, values: Any, is_usable: Callable[[Any], bool], wanted: str) -> List[Any]:
    """``values`` as a list.

    Raises:
        ConfigurationError: It is one text or no list, or an item is not usable.
    """
    items = list(values) if is_list(values) else []
    if not is_list(values) or not all(map(is_usable, items)):
        raise unusable(name, values, wanted)
    return items


def mappings_of(name: str, values: Any) -> List[Mapping[str, Any]]:
    """A list of mappings.

    Raises:
        ConfigurationError: It is something else.
    """
    return listed(name, values, lambda item: isinstance(item, Mapping), "a list of dicts")


def ids_of(name: str, values: Any) -> Optional[List[Any]]:
    """A list of ids, or None for none.

    Raises:
        ConfigurationError: It is something else.
    """
    return None if values is None else listed(name, values, _is_id, "a list of ids")


def _is_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""
