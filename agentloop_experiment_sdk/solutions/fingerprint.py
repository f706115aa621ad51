"""Which code answered: a name and a hash of a solution, stable over processes."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, Dict, Optional


def fingerprint_of(solution: Any) -> Dict[str, str]:
    """The qualified name of ``solution`` and a SHA-256 of its code.

    The hash covers code, not data: the source, or the bytecode where there is no source. Bound
    arguments, closures, instance attributes and called functions are not part of it. A ready-made
    solution is described by its ``fingerprint`` text and the code of its builder (``built_by``).
    Reads source files.
    """
    described = getattr(solution, "fingerprint", None)
    if isinstance(described, str):
        code = _code_text(getattr(solution, "built_by", None))
        return {"name": described, "hash": _sha256(described + "\n" + code)}
    name = qualified_name(solution)
    return {"name": name, "hash": _sha256(_code_text(solution) or name)}


def qualified_name(solution: Any) -> str:
    """``module.qualname`` of a callable; of its function for a partial, its class for an object."""
    while isinstance(solution, functools.partial):
        solution = solution.func
    named = solution if hasattr(solution, "__qualname__") else type(solution)
    module = getattr(named, "__module__", None)
    return "{}.{}".format(module, named.__qualname__) if module else str(named.__qualname__)


def _sha256(text: str) -> str:
    import hashlib  # not needed to build a solution, only when one is run

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _code_text(solution: Any) -> str:
    while isinstance(solution, functools.partial):
        solution = solution.func
    if solution is None:
        return ""
    named = solution if hasattr(solution, "__qualname__") else type(solution)
    try:
        return inspect.getsource(named)
    except (OSError, TypeError, SyntaxError, IndexError):
        # no file (REPL, -c, frozen), or a file that changed since it was imported
        code = _code_object(solution)
        return "" if code is None else _code_repr(code)


def _code_object(solution: Any) -> Optional[types.CodeType]:
    function = inspect.unwrap(solution) if inspect.isroutine(solution) else type(solution).__call__
    return getattr(function, "__code__", None)


def _code_repr(code: types.CodeType) -> str:
    """Bytecode, names and constants; a code object's own repr holds an address."""
    constants = [_constant_repr(item) for item in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _constant_repr(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
        return _code_repr(constant)
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))  # its order depends on the process's hash seed
    return repr(constant)
