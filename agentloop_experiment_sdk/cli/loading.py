"""Finding what the user names: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import sys
import traceback
from types import ModuleType
from typing import Any, List

from ..errors import ConfigurationError

logger = logging.getLogger(__name__)


def load(name: str, what: str) -> Any:
    """The object behind ``name``.

    A file's folder, or for a module the working directory, is put on ``sys.path`` first, as
    ``python file.py`` and ``python -m module`` do.

    Args:
        name: ``module:function`` or ``file.py:function``; dots reach into objects.
        what: What it is for, for error messages.

    Raises:
        ConfigurationError: There is no such thing, or importing it failed.
    """
    place, _, path = name.rpartition(":")
    if not place or not path.replace(".", "").isidentifier():
        raise ConfigurationError(
            "{!r} names no {}: write module:function or file.py:function.".format(name, what)
        )
    module = _from_file(place) if place.endswith(".py") else _from_path(place)
    found: Any = module
    for step in path.split("."):
        if not hasattr(found, step):
            raise ConfigurationError("{} has no {!r}{}.".format(place, path, _offer(module, place)))
        found = getattr(found, step)
    return found


def _from_path(name: str) -> ModuleType:
    if not name.replace(".", "").isidentifier():
        raise ConfigurationError(
            "{!r} is neither a module nor a file that ends in .py.".format(name)
        )
    _put_on_path(os.getcwd())
    return _imported(name, lambda: importlib.import_module(name))


def _from_file(place: str) -> ModuleType:
    path = os.path.abspath(place)
    if not os.path.isfile(path):
        raise ConfigurationError("There is no file {}.".format(place))
    folder, stem = os.path.dirname(path), os.path.basename(path)[: -len(".py")]
    _put_on_path(folder)
    known = sys.modules.get(stem)
    if known is None:
        return _imported(place, lambda: _executed(path, stem))
    if _is_file_of(known, path):
        return known
    # a module of that name is there already, perhaps one of the standard library
    unique = "{}_{}".format(stem, hashlib.sha256(path.encode("utf-8")).hexdigest()[:8])
    return sys.modules.get(unique) or _imported(place, lambda: _executed(path, unique))


def _executed(path: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _imported(place: str, work: Any) -> ModuleType:
    try:
        module: ModuleType = work()
    except (Exception, SystemExit) as error:
        logger.debug("Where it happened:", exc_info=True)
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = (
            ""
            if where.filename.startswith("<frozen")
            else " ({}, line {})".format(where.filename, where.lineno)
        )
        raise ConfigurationError(
            "{} cannot be imported: {}: {}{}.".format(place, type(error).__name__, error, at)
        ) from error
    return module


def _is_file_of(module: ModuleType, path: str) -> bool:
    file = getattr(module, "__file__", None)
    return bool(file) and os.path.realpath(str(file)) == os.path.realpath(path)


def _put_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _offer(module: ModuleType, place: str) -> str:
    own: List[str] = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    return "; it has {}".format(", ".join(own[:10])) if own else ""
