"""Checks of what a solution is made with and of what the user's functions return."""

from __future__ import annotations

import inspect
from typing import Any

from ..arguments import unusable
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
        raise unusable(name, function, "a function" if required else "a function, or None")
    if is_async(function):
        raise ConfigurationError(
            "{} must be a plain function: nothing awaits an async one. Write it without async, or "
            "make the whole solution an async function of your own.".format(name)
        )


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
