"""The hand-written LogGroup parser agrees with the official protobuf classes."""

from __future__ import annotations

import pytest
from aliyun.log.log_logs_pb2 import LogGroup
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_experiment_sdk.local.loggroup import parse_log_group

texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=300)
keys = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=50)
logs = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.dictionaries(keys, texts, min_size=1)), max_size=4
)


@settings(max_examples=40)
@given(logs, texts, texts, texts)
def test_any_group_is_read_as_it_was_written(entries, topic, source, tag):
    group = LogGroup()
    group.Topic, group.Source, group.MachineUUID = topic, source, "m"
    label = group.LogTags.add()
    label.Key, label.Value = "t", tag
    for when, contents in entries:
        log = group.Logs.add()
        log.Time, log.Time_ns = when, 3
        for key, value in contents.items():
            content = log.Contents.add()
            content.Key, content.Value = key, value.encode("utf-8")
    rows = parse_log_group(group.SerializeToString())
    common = {"__topic__": topic, "__source__": source, "__tag__:t": tag}
    assert rows == [dict(contents, **common, __time__=str(when)) for when, contents in entries]


def field(number, data):
    assert len(data) < 128
    return bytes((number << 3 | 2, len(data))) + data


KEY, VALUE, TIME = field(1, b"k"), field(2, b"v"), b"\x08\x05"


def group(*contents, time=TIME):
    return field(1, time + b"".join(field(2, content) for content in contents))


def test_fields_may_come_in_any_order_and_unknown_ones_are_skipped():
    unknown = b"\x79" + b"\x00" * 8 + field(14, b"?") + b"\x68\x07" + b"\x75" + b"\x00" * 4
    raw = field(9, b"x") + b"\x50\x01" + group(VALUE + KEY + unknown) + b"\xfa\x01\x01z"
    assert parse_log_group(raw)[0]["k"] == "v"


@pytest.mark.parametrize(
    "raw, says",
    [
        (group(VALUE), "no key"),
        (group(field(1, b"") + VALUE), "no key"),
        (group(KEY), "no value"),
        (group(KEY + b"\x10\x05"), "no value"),
        (group(KEY + VALUE, time=b""), "no time"),
        (group(), "no contents"),
        (group(KEY + VALUE)[:-1], "cut"),
        (b"\x0a", "cut inside a number"),
        (b"\x80" * 12, "cut inside a number"),
        (b"\x00\x00", "field number 0"),
        (b"\x0b", "wire type 3"),
        (field(3, b"\xff"), "utf-8"),
        (group(field(1, b"\xff") + VALUE), "utf-8"),
    ],
)
def test_what_is_no_group_says_why(raw, says):
    with pytest.raises(ValueError, match=says):
        parse_log_group(raw)


def test_keys_and_values_of_any_length_are_read():
    for size in (1, 127, 128, 16384):
        sized = LogGroup()
        log = sized.Logs.add()
        log.Time = 1
        content = log.Contents.add()
        content.Key, content.Value = "k" * size, b"v" * size
        assert parse_log_group(sized.SerializeToString())[0]["k" * size] == "v" * size
    with pytest.raises(ValueError, match="no value"):
        parse_log_group(group(KEY + field(3, b"unknown")))
    assert parse_log_group(group(KEY + VALUE + TIME))[0]["k"] == "v"
