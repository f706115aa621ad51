"""What the functions of this room are given by a user: paths, numbers and names, checked."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Mapping, Tuple

from ..errors import ConfigurationError


def path_of(name: str, value: Any) -> str:
    """The path ``value`` as text.

    Raises:
        ConfigurationError: It is no path; the message calls it ``name``.
    """
    path = os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else ""
    if not path or "\0" in path:
        raise ConfigurationError("{} must be a path, not {!r}.".format(name, value))
    return path


def texts_of(name: str, values: Any) -> Tuple[str, ...]:
    """The texts of a list.

    Raises:
        ConfigurationError: ``values`` is one text or no list, or holds something else.
    """
    is_list = isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))
    texts = tuple(values) if is_list else (None,)
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigurationError("{} must be a list of texts, not {!r}.".format(name, values))
    return texts


def check_count(name: str, value: Any, least: int) -> None:
    """Raise ConfigurationError unless ``value`` is a whole number of ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(
            "{} must be a whole number, {} or more, not {!r}.".format(name, least, value)
        )


def check_flags(**flags: Any) -> None:
    """Raise ConfigurationError unless each of ``flags``, by its name, is True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ConfigurationError("{} must be True or False, not {!r}.".format(name, flag))


def facts_of(name: str, value: Any) -> Dict[str, Any]:
    """A copy of a mapping, or an empty one for None.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError("{} must be a mapping or None, not {!r}.".format(name, value))
    return dict(value or {})


def check_subject(subject: Any) -> None:
    """Raise ConfigurationError unless there are sections of a report on ``subject``."""
    if isinstance(subject, type) or not callable(getattr(subject, "sections", None)):
        raise no_subject(subject)


def no_subject(subject: Any) -> ConfigurationError:
    """The error that ``subject`` is nothing to report on."""
    return ConfigurationError(
        "A report shows a result (of load_result), a comparison or a gate's verdict, "
        "not {}.".format(type(subject).__name__)
    )
