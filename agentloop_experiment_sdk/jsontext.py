"""Any Python value to strict JSON (RFC 8259) or to the text of one SLS field.

Nothing an agent or a dataset holds may stop a run, so every value has a form:

======================================  ===================================================
value                                   becomes
======================================  ===================================================
NaN, Infinity, NaT, pandas.NA           null
lone surrogate in text                  U+FFFD
dict key that is not text               its text; ``#2`` is added to one that is taken
datetime, date, time                    ISO 8601 text
Decimal, UUID, Path, complex, timedelta its text
Enum                                    its value
bytes                                   UTF-8 text, else base64
set, frozenset, deque, range, array     list; that of a set is sorted
generator, iterator                     list of its items; at most a million
dataclass, named tuple, attrs           object of its fields
pydantic model                          by ``model_dump``, or ``dict`` in version 1
numpy, pandas and the like              by ``to_dict``, ``tolist`` or ``to_list``
int of more than 4,300 digits           hexadecimal text: Python's own reader refuses it
a cycle, deeper than 200                a note in its place
anything else                           its repr
======================================  ===================================================
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import io
import itertools
import json
import math
import re
import threading
import uuid
from collections import abc
from pathlib import PurePath
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

_MAX_DEPTH = 200
_MAX_ITEMS = 1_000_000
_MAX_INT_BITS = 14_280  # 4,299 digits; sys.int_info.default_max_str_digits is 4,300
_ATOMS = frozenset((str, int, float, bool, type(None)))
_SURROGATES = re.compile("[\ud800-\udfff]")
_TEXT_TYPES = (
    decimal.Decimal,
    uuid.UUID,
    PurePath,
    complex,
    datetime.timedelta,
    collections.UserString,
)
_TIME_TYPES = (datetime.datetime, datetime.date, datetime.time)
_VIEWS = (abc.KeysView, abc.ValuesView, abc.ItemsView)
_EXPORTS = ("model_dump", "to_dict", "tolist", "to_list", "_asdict")


def clean_text(text: str) -> str:
    """``text`` with every lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii() or not _SURROGATES.search(text):
        return text
    # a pair of surrogates is one character that was split; join it before replacing the rest
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _SURROGATES.sub("\ufffd", joined)


def dumps(value: Any, indent: Optional[int] = None) -> str:
    """``value`` as strict JSON text; compact unless ``indent`` is given. Never raises.

    Source: RFC 8259 sections 6 (no NaN), 8.1 (UTF-8) and 8.2 (surrogates).
    """
    try:
        return _dumps(value, indent)
    except RecursionError:
        return str(_FreshStack.call(json.dumps(_note(value)), _dumps, value, indent))


def sls_text(value: Any) -> str:
    """``value`` as the text of one SLS field: str as it is, everything else as compact JSON."""
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is dict or kind is list:
        return dumps(value)
    plain = to_jsonable(value)
    return plain if isinstance(plain, str) else dumps(plain)


def to_jsonable(value: Any) -> Any:
    """``value`` built anew from dict, list, str, int, finite float, bool and None. Never raises."""
    try:
        return _plain_copy(value, _MAX_DEPTH)
    except Exception:  # it is not plain yet, or another thread is changing it
        pass
    try:
        return _convert(value, ())
    except RecursionError:
        return _FreshStack.call(_note(value), _convert, value, ())


class _FreshStack(threading.Thread):
    """A thread: it has the whole recursion limit to itself, however deep its caller is."""

    @classmethod
    def call(cls, otherwise: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function`` returns, or ``otherwise`` when even that is not enough."""
        results: List[Any] = []
        try:
            thread = cls(target=lambda: results.append(function(*arguments)), daemon=True)
            thread.start()
            thread.join()
        except RuntimeError:  # no thread to be had; RecursionError is one of these
            pass
        return results[0] if results else otherwise

    def run(self) -> None:
        try:
            super().run()
        except RecursionError:
            pass


def _dumps(value: Any, indent: Optional[int]) -> str:
    encode = _compact if indent is None else _indented(indent).encode
    try:
        text: str = encode(value) if _is_plain(value, _MAX_DEPTH) else ""
        if text and (text.isascii() or not _SURROGATES.search(text)):
            return text
    except ValueError:  # NaN, or an int of too many digits
        pass
    try:
        return encode(_convert(value, ()))
    except ValueError:  # the process lowered the limit of digits
        return encode(_repr(value))


def _indented(indent: int) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent)


def compact_encoder(*, ensure_ascii: bool, allow_nan: bool) -> Callable[[Any], str]:
    """A function that writes plain JSON values without blanks.

    ``JSONEncoder`` makes its C part anew for every value, which takes as long as a short value.
    """
    plain = json.JSONEncoder(
        ensure_ascii=ensure_ascii, allow_nan=allow_nan, check_circular=False, separators=(",", ":")
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    name = "encode_basestring_ascii" if ensure_ascii else "encode_basestring"
    quoted = getattr(json.encoder, name)
    write = make(None, plain.default, quoted, None, ":", ",", False, False, allow_nan)
    return lambda value: "".join(write(value, 0))


_compact = compact_encoder(ensure_ascii=False, allow_nan=False)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether the C encoder writes what ``to_jsonable`` would.

    It writes equal keys for ``1`` and ``"1"``, and lists for named tuples.
    """
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return kind in _ATOMS
    for item in items:
        if type(item) not in _ATOMS and not (depth and _is_plain(item, depth - 1)):
            return False
    return True


class _NotPlain(Exception):
    """The value needs more than a copy."""


def _plain_copy(value: Any, depth: int) -> Any:
    """A copy of what is plain already, which nearly everything is: ten times faster.

    Raises:
        _NotPlain: It is not.
    """
    kind = type(value)
    if kind is str and (value.isascii() or not _SURROGATES.search(value)):
        return value
    if value is None or kind is bool or (kind is float and math.isfinite(value)):
        return value
    if kind is int and value.bit_length() <= _MAX_INT_BITS:
        return value
    if depth and kind is dict:
        return {_plain_key(key): _plain_copy(item, depth - 1) for key, item in value.items()}
    if depth and (kind is list or kind is tuple):
        return [_plain_copy(item, depth - 1) for item in value]
    raise _NotPlain


def _plain_key(key: Any) -> str:
    if type(key) is str and (key.isascii() or not _SURROGATES.search(key)):
        return key
    raise _NotPlain


def _convert(value: Any, parents: Tuple[int, ...]) -> Any:
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is bool:
        return value
    if id(value) in parents or len(parents) > _MAX_DEPTH:
        return _note(value)
    try:
        # isinstance may run the value's own code (a proxy's __class__), so it is inside the try
        return _convert_object(value, parents + (id(value),))
    except RecursionError:
        # caught up here, not where it happens: Python 3.8 ends the process when code that caught
        # it goes down again without going up first
        if isinstance(threading.current_thread(), _FreshStack):
            return _note(value)
        raise
    except Exception:
        return _repr(value)


def _convert_object(value: Any, parents: Tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        return _convert(value.value, parents)
    if isinstance(value, (str, float, int)):
        return _atom(value)
    if isinstance(value, abc.Mapping):
        return _object(value.items(), parents)
    if isinstance(value, (list, tuple)) and not hasattr(type(value), "_asdict"):
        return [_convert(item, parents) for item in value]
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, _TIME_TYPES):
        return value.isoformat()
    if isinstance(value, _TEXT_TYPES) or type(value).__name__ == "datetime64":
        return clean_text(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_text(bytes(value))
    return _convert_rich(value, parents)


def _convert_rich(value: Any, parents: Tuple[int, ...]) -> Any:
    names = _field_names(value)
    if names is not None:
        return _object(((n, getattr(value, n)) for n in names if hasattr(value, n)), parents)
    exported = _exported(value)
    if exported is not value:
        return _convert(exported, parents)
    if isinstance(value, abc.Set) and not isinstance(value, _VIEWS):
        return _sorted_list([_convert(item, parents) for item in value])
    iterable = isinstance(value, (abc.Sequence, abc.Iterator) + _VIEWS)
    if iterable and not isinstance(value, io.IOBase):  # reading a stream could wait for ever
        return _bounded_list(value, parents)
    return _repr(value)


def _atom(value: Any) -> Any:
    """A subclass's plain value, by the built-in's own method: the subclass may override it."""
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else None
    plain = int.__int__(value)
    return plain if plain.bit_length() <= _MAX_INT_BITS else hex(plain)


def _object(items: Iterable[Tuple[Any, Any]], parents: Tuple[int, ...]) -> Dict[str, Any]:
    result: Dict[str, Any] = {}
    for key, item in items:
        name = text = _key(key)
        serial = 1
        while name in result:
            serial += 1
            name = "{}#{}".format(text, serial)
        result[name] = _convert(item, parents)
    return result


def _field_names(value: Any) -> Optional[List[str]]:
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [item.name for item in dataclasses.fields(value)]
    attributes = getattr(type(value), "__attrs_attrs__", None)
    return None if attributes is None else [item.name for item in attributes]


def _exported(value: Any) -> Any:
    """What the value's own conversion gives, else the value itself.

    Looked up on the type: a mock or a proxy answers to every name.
    """
    kind = type(value)
    if isinstance(value, type) or kind.__module__ == "builtins":
        return value
    names = _EXPORTS + (("dict",) if hasattr(kind, "__fields__") else ())
    for name in names:
        if callable(getattr(kind, name, None)):
            try:
                return getattr(value, name)()
            except Exception:  # one that needs arguments, or fails: another may do
                continue
    return value


def _sorted_list(items: List[Any]) -> List[Any]:
    """Sets have no order; sorted by their JSON text, equal sets give equal files."""
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _bounded_list(value: Iterable[Any], parents: Tuple[int, ...]) -> List[Any]:
    iterator = iter(value)
    items = [_convert(item, parents) for item in itertools.islice(iterator, _MAX_ITEMS)]
    if len(items) == _MAX_ITEMS:
        items.extend("…[more items left out]" for _ in itertools.islice(iterator, 1))
    return items


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    plain = to_jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _note(value: Any) -> str:
    return "<{} nested too deeply>".format(type(value).__name__)


def _repr(value: Any) -> str:
    try:
        return clean_text(str.__str__(repr(value)))
    except Exception:
        return "<{} without a usable repr>".format(type(value).__name__)
