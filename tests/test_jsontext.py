"""Strict JSON text of anything an agent or a dataset holds."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import io
import itertools
import json
import math
import pathlib
import subprocess
import sys
import threading
import time
import types
import uuid
from typing import Any, List, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_experiment_sdk import jsontext


def strict(text: str) -> Any:
    """Parse as a reader would that knows RFC 8259 only, and refuses equal names."""

    def refuse(constant: str) -> None:
        raise AssertionError("{} is not JSON".format(constant))

    def unique(pairs: Any) -> Any:
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names), names
        return dict(pairs)

    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


@dataclasses.dataclass
class Point:
    x: int
    y: float = math.nan


class Pair(NamedTuple):
    left: Any
    right: Any


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    HELLO = "hello"


class Text(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Count(int):
    def __int__(self) -> int:
        raise RuntimeError("no int")

    def __repr__(self) -> str:
        return "many"


class Ratio(float):
    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __repr__(self) -> str:
        return "half"


class PydanticModel:
    def model_dump(self) -> Any:
        return {"name": "m", "when": datetime.date(2024, 2, 29)}


class OldPydanticModel:
    __fields__ = {"name": None}

    def dict(self) -> Any:
        return {"name": "old"}


class Frame:
    def to_dict(self) -> Any:
        return {"column": {0: math.nan, 1: 2.0}}


class Array:
    def tolist(self) -> Any:
        return [[1, 2], [3, math.inf]]


class Polars:
    def to_list(self) -> Any:
        return [1, None]


class NeedsArguments:
    def to_dict(self, mode: str) -> Any:
        raise AssertionError("never called")

    def tolist(self) -> Any:
        return [7]


class Broken:
    def to_dict(self) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "<broken>"


class NaTType(datetime.datetime):
    """pandas' "not a time" is a datetime too."""


class NAType:
    def __bool__(self) -> bool:
        raise TypeError("ambiguous")


class datetime64:
    """numpy's, whose tolist() gives nanoseconds."""

    def __str__(self) -> str:
        return "2024-02-29T00:00:00.000000001"

    def tolist(self) -> int:
        return 1709164800000000001


class AttrsClass:
    __attrs_attrs__ = (types.SimpleNamespace(name="a"), types.SimpleNamespace(name="missing"))

    def __init__(self) -> None:
        self.a = Colour.RED


class RudeRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class SurrogateRepr:
    def __repr__(self) -> str:
        return "half \ud800"


class UnboundProxy:
    """Like a proxy of a web framework outside its request."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("working outside of a request")

    def __repr__(self) -> str:
        return "<unbound>"


class RudeMapping(collections.abc.Mapping):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("no item")

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "<rude mapping>"


class OwnSet(collections.abc.Set):  # type: ignore[type-arg]
    def __contains__(self, item: Any) -> bool:
        return item in (2, 1)

    def __iter__(self) -> Any:
        return iter((2, 1))

    def __len__(self) -> int:
        return 2


def generate() -> Any:
    yield 1
    yield math.nan


TWO_HALVES = {chr(0xD800): 3, chr(0xD801): 4}
UTC = datetime.timezone.utc
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
ROWS = [
    (math.nan, None),
    (math.inf, None),
    (-math.inf, None),
    (NaTType(2024, 1, 1), None),
    (NAType(), None),
    ("a\ud800b", "a\ufffdb"),
    ("\ud83d\ude00", "\U0001f600"),
    ("\ude00\ud83d", "\ufffd\ufffd"),
    ("\ufeffmark", "\ufeffmark"),
    ({1: "a"}, {"1": "a"}),
    ({None: 1, True: 2, 1.5: 3}, {"null": 1, "true": 2, "1.5": 3}),
    ({(1, 2): "t"}, {"[1, 2]": "t"}),
    ({datetime.date(2024, 2, 29): 1}, {"2024-02-29": 1}),
    ({math.nan: 1}, {"null": 1}),
    ({Colour.RED: 1, Text("k"): 2}, {"red": 1, "k": 2}),
    ({"\udc00": 1}, {"\ufffd": 1}),
    (datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03+00:00"),
    (datetime.date(2024, 2, 29), "2024-02-29"),
    (datetime.time(1, 2), "01:02:00"),
    (datetime64(), "2024-02-29T00:00:00.000000001"),
    (datetime.timedelta(seconds=5), "0:00:05"),
    (decimal.Decimal("1.10"), "1.10"),
    (ID, str(ID)),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (1 + 2j, "(1+2j)"),
    (collections.UserString("user"), "user"),
    (Colour.RED, "red"),
    (Level.LOW, 1),
    (Word.HELLO, "hello"),
    ([Word.HELLO, Level.LOW], ["hello", 1]),
    (Text("plain"), "plain"),
    (Count(3), 3),
    (Ratio(0.5), 0.5),
    (Ratio("nan"), None),
    (True, True),
    (b"caf\xc3\xa9", "café"),
    (bytearray(b"\xff\xfe"), "//4="),
    (memoryview(b"view"), "view"),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset(["b", "a"]), ["a", "b"]),
    (OwnSet(), [1, 2]),
    (collections.deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    (array.array("i", [1, 2]), [1, 2]),
    ((1, (2,)), [1, [2]]),
    (time.gmtime(0), [1970, 1, 1, 0, 0, 0, 3, 1, 0]),
    (generate, None),
    (map(str, [1, 2]), ["1", "2"]),
    ({"b": 1, "a": 2}.keys(), ["b", "a"]),
    ({"a": 2}.values(), [2]),
    ({"a": 2}.items(), [["a", 2]]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
    (Point(1), {"x": 1, "y": None}),
    (Pair(1, Pair(2, None)), {"left": 1, "right": {"left": 2, "right": None}}),
    (AttrsClass(), {"a": "red"}),
    (PydanticModel(), {"name": "m", "when": "2024-02-29"}),
    (OldPydanticModel(), {"name": "old"}),
    (Frame(), {"column": {"0": None, "1": 2.0}}),
    (Array(), [[1, 2], [3, None]]),
    (Polars(), [1, None]),
    (NeedsArguments(), [7]),
    (Broken(), "<broken>"),
    (UnboundProxy(), "<unbound>"),
    (RudeMapping(), "<rude mapping>"),
    (RudeRepr(), "<RudeRepr without a usable repr>"),
    (SurrogateRepr(), "half \ufffd"),
    (Point, repr(Point)),
    (PydanticModel, repr(PydanticModel)),
    (len, repr(len)),
]


@pytest.mark.parametrize("value, expected", ROWS, ids=range(len(ROWS)))
def test_every_kind_of_value_has_the_documented_form(value: Any, expected: Any) -> None:
    if value is generate:
        value, expected = generate(), [1, None]
    again = None if isinstance(expected, list) and hasattr(type(value), "__next__") else value
    assert strict(jsontext.dumps({"value": value})) == {"value": expected}
    if again is not None:
        assert jsontext.to_jsonable(again) == expected
        assert strict(jsontext.dumps(again, indent=2)) == expected


def test_dumps_is_compact_and_keeps_text_readable() -> None:
    assert jsontext.dumps({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'
    assert jsontext.dumps({"a": [1]}, indent=2) == '{\n  "a": [\n    1\n  ]\n}'


@pytest.mark.parametrize("nested", [False, True])
def test_keys_that_become_the_same_text_are_all_kept(nested: bool) -> None:
    value: Any = {1: "a", "1": "b", "1#2": "c", None: 1, "null": 2}
    value.update(TWO_HALVES)
    expected = {"1": "a", "1#2": "b", "1#2#2": "c", "null": 1, "null#2": 2}
    expected.update({"\ufffd": 3, "\ufffd#2": 4})  # type: ignore[dict-item]
    assert strict(jsontext.dumps([value] if nested else value)) == (
        [expected] if nested else expected
    )


def test_text_keys_that_only_cleaning_makes_equal_are_all_kept() -> None:
    assert strict(jsontext.dumps(TWO_HALVES)) == {"\ufffd": 3, "\ufffd#2": 4}


def test_named_tuples_have_one_form_however_they_are_written() -> None:
    assert jsontext.dumps([Pair(1, 2)]) == jsontext.dumps(jsontext.to_jsonable([Pair(1, 2)]))


def test_a_cycle_ends_in_a_note() -> None:
    loop: List[Any] = [1]
    loop.append(loop)
    assert strict(jsontext.dumps(loop)) == [1, "<list nested too deeply>"]
    table: Any = {}
    table["self"] = [table]
    assert strict(jsontext.dumps(table)) == {"self": ["<dict nested too deeply>"]}
    point = Point(1)
    point.y = point  # type: ignore[assignment]
    assert strict(jsontext.dumps(point)) == {"x": 1, "y": "<Point nested too deeply>"}


def test_an_enum_whose_value_holds_itself_ends() -> None:
    class Loop(enum.Enum):
        A = [0]

    Loop.A.value.append(Loop.A)
    assert strict(jsontext.dumps(Loop.A))[0] == 0


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert jsontext.to_jsonable([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("depth", [199, 205, 5_000, 100_000])
@pytest.mark.parametrize("leaf", ["end", math.nan])
def test_nesting_of_any_depth_gives_text_that_can_be_read_again(depth: int, leaf: Any) -> None:
    value: Any = leaf
    for _ in range(depth):
        value = [value]
    for indent in (None, 2):
        parsed = strict(jsontext.dumps(value, indent))
        levels = 0
        while isinstance(parsed, list):
            parsed, levels = parsed[0], levels + 1
        assert levels == min(depth, 201)
        assert depth < 201 or isinstance(parsed, str)


NEAR_THE_LIMIT = """
import math, sys
from agentloop_experiment_sdk import jsontext

value = {"leaf": math.nan}
for _ in range(150):
    value = [value]
expected = jsontext.dumps(value)

def at_depth(frames):
    if frames:
        return at_depth(frames - 1)
    return jsontext.dumps([value]), jsontext.dumps(value, 1), jsontext.to_jsonable(value)

for frames in range(300, sys.getrecursionlimit() - 60, 7):
    compact, indented, plain = at_depth(frames)
    assert compact == "[" + expected + "]", (frames, compact)
    assert "".join(indented.split()) == expected, (frames, indented)
    assert jsontext.dumps(plain) == expected, (frames, plain)
print("same text at every depth")
"""


def test_text_is_the_same_when_the_callers_stack_is_nearly_used_up() -> None:
    # in its own process: what goes wrong here ends the interpreter on Python 3.8
    done = subprocess.run([sys.executable, "-c", NEAR_THE_LIMIT], capture_output=True, text=True)
    assert done.stdout == "same text at every depth\n", done.stderr


def test_values_are_noted_when_even_a_fresh_stack_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overflow(*arguments: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(jsontext, "_convert", overflow)
    assert jsontext.dumps({1: 2}) == '"<dict nested too deeply>"'
    assert jsontext.to_jsonable({1: 2}) == "<dict nested too deeply>"


def test_values_are_noted_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread:
        def __init__(self, **options: Any) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(jsontext._FreshStack, "__init__", NoThread.__init__)
    assert jsontext._FreshStack.call("too deep", str) == "too deep"


def test_an_empty_value_from_a_fresh_stack_is_that_value(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = jsontext._convert

    def overflow_at_first(*arguments: Any) -> Any:
        if isinstance(threading.current_thread(), jsontext._FreshStack):
            return convert(*arguments)
        raise RecursionError

    monkeypatch.setattr(jsontext, "_convert", overflow_at_first)
    assert jsontext.to_jsonable(set()) == []


def test_one_value_whose_conversion_overflows_does_not_cost_the_others() -> None:
    class Bottomless(RudeMapping):
        def __iter__(self) -> Any:
            raise RecursionError

    text = jsontext.dumps({"good": 1, "bad": Bottomless()})
    assert strict(text) == {"good": 1, "bad": "<Bottomless nested too deeply>"}


def test_an_int_that_pythons_reader_would_refuse_becomes_text() -> None:
    digits = 10**4299 - 1
    assert strict(jsontext.dumps([digits // 10]))
    assert jsontext.to_jsonable(-(10**6000)) == hex(-(10**6000))
    assert strict(jsontext.dumps({10**6000: 10**6000})) == {hex(10**6000): hex(10**6000)}


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="no limit to lower")
def test_a_lower_limit_of_digits_raises_nothing() -> None:
    limit = sys.get_int_max_str_digits()  # type: ignore[attr-defined, unused-ignore]
    sys.set_int_max_str_digits(640)  # type: ignore[attr-defined, unused-ignore]
    try:
        text = jsontext.dumps([10**1000])
    finally:
        sys.set_int_max_str_digits(limit)  # type: ignore[attr-defined, unused-ignore]
    assert strict(text) == "<list without a usable repr>"


def test_an_endless_iterator_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "_MAX_ITEMS", 3)
    assert jsontext.to_jsonable(itertools.count()) == [0, 1, 2, "…[more items left out]"]
    assert jsontext.to_jsonable(iter([1, 2, 3])) == [1, 2, 3]
    assert jsontext.to_jsonable(range(10**12))[-1] == "…[more items left out]"
    assert jsontext.to_jsonable([1, 2, 3, 4]) == [1, 2, 3, 4]


def test_a_stream_is_not_read() -> None:
    stream = io.StringIO("content")
    assert jsontext.to_jsonable(stream).startswith("<_io.StringIO")
    assert stream.read() == "content"


def test_an_iterator_that_fails_half_way_is_its_repr() -> None:
    def fail() -> Any:
        yield 1
        raise RuntimeError("half way")

    assert jsontext.to_jsonable([fail()])[0].startswith("<generator object")


@pytest.mark.parametrize(
    "value, expected",
    [
        ("text", "text"),
        ("half \ud800", "half \ufffd"),
        (Word.HELLO, "hello"),
        (Text("t"), "t"),
        (b"bytes", "bytes"),
        (bytearray(b"\xff"), "/w=="),
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (1.5, "1.5"),
        (math.nan, "null"),
        (2**70, str(2**70)),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        ([], "[]"),
        ("", ""),
        (datetime.date(2024, 2, 29), "2024-02-29"),
    ],
)
def test_sls_text_is_text_as_it_is_and_json_else(value: Any, expected: str) -> None:
    assert jsontext.sls_text(value) == expected


atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(whitelist_categories=["Cs"]))
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([*Colour, *Level, *Word, Point(1), Frame(), Broken()])
    | st.builds(RudeRepr)
)
keys = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(keys, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(tuple, st.lists(inner))
        | st.builds(iter, st.lists(inner))
        | st.sets(keys)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(values, st.sampled_from([None, 2]))
def test_any_value_gives_text_that_a_strict_parser_reads(value: Any, indent: Any) -> None:
    strict(jsontext.dumps(value, indent))


@settings(deadline=None)
@given(values)
def test_any_value_has_one_plain_form(value: Any) -> None:
    plain = jsontext.to_jsonable(value)
    assert strict(jsontext.dumps(plain)) == plain
    jsontext.sls_text(plain).encode("utf-8")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # what JSON can carry: text without surrogates
    | st.text(st.characters(blacklist_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(json_values)
def test_json_values_are_kept_exactly(value: Any) -> None:
    assert strict(jsontext.dumps(value)) == value
    assert jsontext.to_jsonable(value) == value


@given(st.text(st.characters()))
def test_cleaning_touches_lone_surrogates_only(text: str) -> None:
    cleaned = jsontext.clean_text(text)
    cleaned.encode("utf-8")
    kept = [char for char in text if not 0xD800 <= ord(char) <= 0xDFFF]
    assert [char for char in cleaned if char != "\ufffd" and ord(char) < 0x10000] == [
        char for char in kept if char != "\ufffd" and ord(char) < 0x10000
    ]
    assert jsontext.clean_text(cleaned) == cleaned
