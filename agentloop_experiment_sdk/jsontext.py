"""Any Python value to strict JSON (RFC 8259) or to the text of one SLS field.

Nothing an agent or a dataset holds may stop a run, so every value has a form:

=====================================  ====================================================
value                                  becomes
=====================================  ====================================================
NaN, Infinity                          null
lone surrogate in text                 U+FFFD
dict key that is not text              its text
datetime, date, time                   ISO 8601 text
Decimal, UUID, Path, complex           its text
Enum                                   its value
bytes                                  UTF-8 text, else base64
set, frozenset, deque, range, array    list
dataclass, named tuple                 object of its fields
pydantic model, attrs, numpy, pandas   by ``model_dump`` / ``to_dict`` / ``tolist`` / ``item``
a cycle, too deep, anything else       its repr
=====================================  ====================================================
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import re
import uuid
from collections import abc
from pathlib import PurePath
from typing import Any, Dict, List, Optional, Tuple

_MAX_DEPTH = 200
_SURROGATES = re.compile("[\ud800-\udfff]")
_TEXT_TYPES = (decimal.Decimal, uuid.UUID, PurePath, complex)
_TIME_TYPES = (datetime.datetime, datetime.date, datetime.time)
_EXPORTS: Tuple[Tuple[str, Dict[str, Any]], ...] = (
    ("model_dump", {}),
    ("to_dict", {}),
    ("tolist", {}),
    ("_asdict", {}),
)


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
    encode = _COMPACT.encode if indent is None else _indented(indent).encode
    try:
        text = encode(value) if _keys_are_text(value) else encode(to_jsonable(value))
    except (TypeError, ValueError, RecursionError):
        text = encode(to_jsonable(value))
    return clean_text(text)


def sls_text(value: Any) -> str:
    """``value`` as the text of one SLS field: str as it is, everything else as compact JSON."""
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, bytes):
        return _bytes_text(value)
    plain = to_jsonable(value)
    return plain if isinstance(plain, str) else dumps(plain)


def to_jsonable(value: Any) -> Any:
    """``value`` built anew from dict, list, str, int, finite float, bool and None. Never raises."""
    return _convert(value, ())


def _indented(indent: int) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent)


_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _keys_are_text(value: Any) -> bool:
    """Whether the top level can go to the C encoder, which would let equal key texts collide."""
    return not isinstance(value, dict) or all(isinstance(key, str) for key in value)


def _convert(value: Any, parents: Tuple[int, ...]) -> Any:
    if value is None or value is True or value is False or type(value) is int:
        return value
    if isinstance(value, enum.Enum):
        return _convert(value.value, parents)
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if id(value) in parents or len(parents) >= _MAX_DEPTH:
        return _repr(value)
    try:
        return _convert_object(value, parents + (id(value),))
    except Exception:
        return _repr(value)


def _convert_object(value: Any, parents: Tuple[int, ...]) -> Any:
    if isinstance(value, abc.Mapping):
        return {_key(key): _convert(item, parents) for key, item in value.items()}
    if isinstance(value, _TIME_TYPES):
        return value.isoformat()
    if isinstance(value, _TEXT_TYPES):
        return clean_text(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_text(bytes(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {item.name: _convert(getattr(value, item.name), parents) for item in fields}
    exported = _exported(value)
    if exported is not value:
        return _convert(exported, parents)
    if isinstance(value, (set, frozenset)):
        return _sorted_list([_convert(item, parents) for item in value])
    if isinstance(value, (abc.Sequence, abc.Iterator, abc.ValuesView, abc.KeysView, abc.ItemsView)):
        return [_convert(item, parents) for item in value]
    if hasattr(type(value), "__attrs_attrs__"):
        names = [item.name for item in type(value).__attrs_attrs__]
        return {name: _convert(getattr(value, name), parents) for name in names}
    return _repr(value)


def _exported(value: Any) -> Any:
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return value
    for name, options in _EXPORTS:
        method = getattr(value, name, None)
        if callable(method):
            return method(**options)
    return value


def _sorted_list(items: List[Any]) -> List[Any]:
    """Sets have no order; sorted by their JSON text, equal sets give equal files."""
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=str))


def _key(key: Any) -> str:
    if isinstance(key, str):
        return clean_text(str.__str__(key))
    plain = to_jsonable(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _repr(value: Any) -> str:
    try:
        return clean_text(repr(value))
    except Exception:
        return "<{} without a usable repr>".format(type(value).__name__)
