"""Checks of what a solution is made with and of what the user's functions return."""

from __future__ import annotations

import inspect
from collections import abc
from typing import Any, Tuple

from ..errors import ConfigurationError
from .call import is_async


def check_callback(name: str, function: Any, required: bool = False) -> None:
    """Refuse what cannot be called in the middle of an attempt; None passes unless ``required``.

    Raises:
        ConfigurationError: ``function`` is no function, or an async one.
    """
    if function is None and not required:
        return
    if not callable(function):
        wanted = "a function" if required else "a function, or None"
        raise ConfigurationError("{} must be {}, not {!r}.".format(name, wanted, function))
    if is_async(function):
        raise ConfigurationError(
            "{} must be a plain function: nothing awaits an async one. Write it without async, or "
            "make the whole solution an async function of your own.".format(name)
        )


def checked_names(name: str, value: Any) -> Tuple[str, ...]:
    """A list of names as a tuple; one text would be taken letter by letter.

    Raises:
        ConfigurationError: It is no list of texts that are not empty.
    """
    is_list = isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes, abc.Mapping))
    names = tuple(value) if is_list else (None,)
    if not all(isinstance(item, str) and item for item in names):
        raise ConfigurationError(
            "{} must be a list of names such as ['name'], empty for none, not {!r}.".format(
                name, value
            )
        )
    return names


def returned(name: str, value: Any) -> Any:
    """What the user's function ``name`` returned, unless it is only on the way to a value.

    Raises:
        ConfigurationError: It would have to be awaited, or called.
    """
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that it was never awaited
        raise ConfigurationError(
            "{} returned something to be awaited, which nothing does here; let it return the "
            "value itself.".format(name)
        )
    if inspect.isroutine(value):
        raise ConfigurationError("{} returned a function; let it return a value.".format(name))
    return value
