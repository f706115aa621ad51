"""What a user passes to a public function, checked: each error names the argument."""

from __future__ import annotations

import math
import os
from typing import Any, Iterable, Mapping, Tuple

from .errors import ConfigurationError


def unusable(name: str, value: Any, wanted: str) -> ConfigurationError:
    """The error that ``name`` must be ``wanted``."""
    return ConfigurationError("{} must be {}, not {!r}.".format(name, wanted, value))


def check_flags(**flags: Any) -> None:
    """Raise ConfigurationError unless each of ``flags``, by its name, is True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise unusable(name, flag, "True or False")


def check_count(name: str, value: Any, least: int, most: float = math.inf) -> None:
    """Raise ConfigurationError unless ``value`` is a whole number from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        limits = "{} or more".format(least) if most == math.inf else "{} to {}".format(least, most)
        raise unusable(name, value, "a whole number, " + limits)


def path_of(name: str, value: Any) -> str:
    """A path, given as text, bytes or a path object, as text.

    Raises:
        ConfigurationError: It is none.
    """
    path = os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else ""
    if not path or "\0" in path:
        raise unusable(name, value, "a path")
    return path


def is_list(value: Any) -> bool:
    """Whether ``value`` has items; a text has none, though Python would take its letters."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def texts_of(name: str, values: Any) -> Tuple[str, ...]:
    """The texts of a list, or the keys of a mapping, none of them empty.

    Raises:
        ConfigurationError: It is one text or no list, or holds something else.
    """
    texts = tuple(values) if is_list(values) or isinstance(values, Mapping) else (None,)
    if not all(isinstance(text, str) and text for text in texts):
        raise unusable(name, values, "a list of texts such as ['name'], empty for none")
    return texts
