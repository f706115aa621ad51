"""The limits of one SLS write, and how a row over them is cut."""

from __future__ import annotations

import json
import re
from typing import Any, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_experiment_sdk.cloud import limits
from agentloop_experiment_sdk.cloud.limits import MAX_GROUP_BYTES, batch_end, fitted, row_size

MARK = re.compile(r"…\[truncated (\d+) bytes\]\Z")


def protobuf_size(rows: List[Any]) -> int:
    from aliyun.log.log_logs_pb2 import LogGroup

    group = LogGroup()
    for contents in rows:
        log = group.Logs.add()
        log.Time = 1796025600
        for key, value in contents:
            content = log.Contents.add()
            content.Key, content.Value = key, value
    return len(group.SerializeToString())


def cut(value: str, limit: int, *others: Tuple[str, str]) -> str:
    contents = [("key", value), *others]
    found = fitted(contents, limit)
    assert row_size(found) <= limit
    assert [key for key, _ in found] == [key for key, _ in contents]
    assert contents[0][1] is value  # the row itself is left alone
    return found[0][1]


def check_mark(text: str, whole: str) -> None:
    """The text is the beginning of the whole, and says how much is missing."""
    mark = MARK.search(text)
    assert mark is not None, text[-60:]
    kept = text[: mark.start()]
    assert whole.startswith(kept)
    assert len(kept.encode("utf-8")) + int(mark.group(1)) == len(whole.encode("utf-8"))


def test_a_row_that_fits_is_the_same_row() -> None:
    contents = [("a", "b" * 1000)]
    assert fitted(contents) is contents


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=300)), max_size=5))
def test_the_size_is_never_below_that_of_the_protobuf(contents: Any) -> None:
    assert protobuf_size([contents]) <= row_size(contents)


def test_a_row_of_twenty_megabytes_is_cut_to_what_sls_takes() -> None:
    whole = "x" * 20_000_000
    contents = fitted([("experiment_id", "r"), ("experiment_output", whole)])
    assert MAX_GROUP_BYTES - 200 < row_size(contents) <= MAX_GROUP_BYTES
    assert protobuf_size([contents]) <= 10_000_000
    assert contents[0] == ("experiment_id", "r")
    check_mark(contents[1][1], whole)


@pytest.mark.parametrize("letter", ["a", "é", "中", "😀"])
def test_text_is_cut_between_characters(letter: str) -> None:
    whole = letter * 5000
    for limit in range(700, 712):
        check_mark(cut(whole, limit), whole)


def test_several_long_values_are_cut_longest_first() -> None:
    one, two, three = "1" * 9000, "2" * 8000, "3" * 500
    found = fitted([("a", three), ("b", one), ("c", two)], 3000)
    assert row_size(found) <= 3000
    assert found[0] == ("a", three)
    check_mark(found[1][1], one)
    check_mark(found[2][1], two)


def test_json_stays_json_and_is_cut_inside_its_longest_strings() -> None:
    document = {"a": "x" * 5000, "list": ["y" * 4000, 1, None, {"deep": "z" * 3000}], "short": "s"}
    found = json.loads(cut(json.dumps(document), 2000))
    assert found["short"] == "s" and found["list"][1:3] == [1, None]
    check_mark(found["a"], "x" * 5000)
    check_mark(found["list"][0], "y" * 4000)
    check_mark(found["list"][3]["deep"], "z" * 3000)


def test_only_the_longest_string_is_cut_where_that_is_enough() -> None:
    document = ["x" * 5000, "y" * 400]
    found = json.loads(cut(json.dumps(document), 4000))
    check_mark(found[0], document[0])
    assert found[1] == document[1]
    assert len(found[0]) > 3200


def test_a_document_of_many_strings_is_cut_in_one_pass() -> None:
    """One string after the other would take hours."""
    document = ["word " * 40 for _ in range(60_000)]
    found = json.loads(cut(json.dumps(document), MAX_GROUP_BYTES))
    assert len(found) == 60_000
    for text in found:
        check_mark(text, document[0])


def test_escaped_and_non_ascii_strings_stay_json() -> None:
    document = {"quotes": '"\\\n' * 3000, "text": "中文😀" * 1000}
    for escaped in (True, False):
        found = json.loads(cut(json.dumps(document, ensure_ascii=escaped), 5000))
        for name, whole in document.items():
            assert found[name] == whole or check_mark(found[name], whole) is None


def test_a_document_with_half_a_character_can_be_written_after_the_cut() -> None:
    text = cut('["' + "\\ud835" * 2000 + '"]', 3000)
    text.encode("utf-8")
    json.loads(text)


@pytest.mark.parametrize(
    "value",
    [
        "[" + "1," * 5000 + "1]",  # no strings to cut
        "[" + '"ab",' * 5000 + '"ab"]',  # only short ones
        "{" * 9000,  # not JSON at all
        "[" * 200_000,  # deeper than the parser goes
        "[" + "7" * 9000 + "]",  # a number of too many digits
    ],
)
def test_what_cannot_stay_json_is_cut_as_text(value: str) -> None:
    check_mark(cut(value, 2000), value)


def test_documents_give_way_one_after_the_other() -> None:
    one, two = json.dumps(["1" * 5000]), json.dumps(["2" * 4900])
    found = fitted([("a", one), ("b", two)], 2000)
    assert row_size(found) <= 2000
    for _, text in found:
        json.loads(text)


def test_a_row_that_cannot_be_cut_is_left_to_sls() -> None:
    contents = [("k" * 50, "v")] * 20
    assert row_size(fitted(contents, 100)) == row_size(contents)


strings = st.text(st.characters(blacklist_categories=("Cs",)), max_size=300)
documents = st.recursive(
    st.one_of(strings, st.integers(), st.floats(allow_nan=False), st.none()),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100)
@given(
    st.lists(st.one_of(strings, documents.map(json.dumps), strings.map("[".__add__)), max_size=4),
    st.integers(600, 3000),
)
def test_any_row_ends_within_the_limit(values: List[str], limit: int) -> None:
    contents = [("k%d" % number, value) for number, value in enumerate(values)]
    found = fitted(contents, limit)
    assert row_size(found) <= limit
    for (_, before), (_, after) in zip(contents, found):
        assert after == before or "…[truncated " in after or same_document(before, after)


def same_document(before: str, after: str) -> bool:
    """Without its escapes and spaces it may be short enough."""
    return bool(json.loads(before) == json.loads(after))


def test_batches_end_at_the_rows_or_bytes_of_one_write() -> None:
    assert batch_end([]) == 0
    assert batch_end([1] * 10) == 10
    assert batch_end([1] * 5000) == limits.MAX_BATCH_ROWS == 4096
    assert batch_end([1] * 5000, 4096) == 5000
    million = [1_000_000] * 10
    assert [batch_end(million, start) for start in (0, 4, 8)] == [4, 8, 10]


def test_one_big_row_travels_alone() -> None:
    sizes = [100, 9_000_000, 100, 100]
    assert [batch_end(sizes, start) for start in (0, 1, 2)] == [1, 2, 4]
