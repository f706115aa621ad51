"""What the functions of this room are given by a user: paths, numbers and names, checked."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from ..arguments import unusable
from ..errors import ConfigurationError


def facts_of(name: str, value: Any) -> Dict[str, Any]:
    """A copy of a mapping, or an empty one for None.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not isinstance(value, Mapping):
        raise unusable(name, value, "a mapping or None")
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
