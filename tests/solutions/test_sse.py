from __future__ import annotations

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.solutions.sse import ServerSentEvent, SseParser


def events(stream: bytes) -> List[ServerSentEvent]:
    return SseParser().feed(stream)


def data(stream: bytes) -> List[str]:
    return [event.data for event in events(stream)]


def test_data_lines_of_one_event_are_joined_with_lf() -> None:
    assert data(b'data: {"t":\ndata: "Hello"}\n\n') == ['{"t":\n"Hello"}']


@pytest.mark.parametrize("eol", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_of_the_standard_ends_a_line(eol: bytes) -> None:
    stream = eol.join([b": hello", b"data: a", b"", b"event: x", b"data: b", b"id: 3", b"", b""])
    assert events(stream) == [ServerSentEvent("a"), ServerSentEvent("b", "x", "3")]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_no_other_character_ends_a_line(mark: str) -> None:
    assert data("data: a{}b\n\n".format(mark).encode("utf-8")) == ["a{}b".format(mark)]


def test_only_one_leading_space_is_removed() -> None:
    assert data(b"data:  two\n\ndata:none\n\ndata:\ttab\n\n") == [" two", "none", "\ttab"]


def test_comments_and_events_without_data_are_not_dispatched() -> None:
    stream = b": ping\n\n:\n\nevent: ping\n\nretry: 10\n\nid: 7\n\ndata: x\n\n"
    assert events(stream) == [ServerSentEvent("x", "message", "7")]


def test_an_empty_data_line_is_an_event_with_empty_data() -> None:
    assert data(b"data\n\ndata:\ndata:\n\n") == ["", "\n"]


def test_look_alike_fields_are_ignored() -> None:
    stream = b"database: a\ndata-x: b\nDATA: c\n data: d\nfoo\ndata: e\n\n"
    assert data(stream) == ["e"]


def test_event_type_and_retry_belong_to_one_event_the_id_stays() -> None:
    stream = b"event: x\nid: 1\nretry: 2000\ndata: a\n\ndata: b\n\nid\ndata: c\n\n"
    assert events(stream) == [
        ServerSentEvent("a", "x", "1", 2000),
        ServerSentEvent("b", "message", "1"),
        ServerSentEvent("c", "message", ""),
    ]


def test_a_retry_that_is_no_number_and_an_id_with_nul_are_ignored() -> None:
    stream = "retry: 1s\nretry: ٣\nid: a\0b\ndata: x\n\n".encode("utf-8")
    assert events(stream) == [ServerSentEvent("x")]


def test_one_byte_order_mark_at_the_start_is_removed() -> None:
    bom = b"\xef\xbb\xbf"
    assert data(bom + b"data: x\n\n") == ["x"]
    assert data(bom + bom + b"data: x\n\n") == []
    assert data(b"data: " + bom + b"x\n\n") == ["\ufeffx"]


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    assert data(b"data: a\xffb\n\n") == ["a\ufffdb"]


def test_the_event_under_way_at_the_end_is_given_only_when_asked_for() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\nevent: x\ndata: b\ndata: c") == [ServerSentEvent("a")]
    assert parser.within_line
    assert parser.end() == ServerSentEvent("b\nc", "x")
    assert parser.end() is None


def test_an_ended_line_is_no_line_under_way() -> None:
    parser = SseParser()
    parser.feed(b"data: a\r")
    assert not parser.within_line
    assert parser.end() == ServerSentEvent("a")


def test_a_stream_that_ends_within_a_character_still_ends() -> None:
    parser = SseParser()
    parser.feed("data: 你".encode("utf-8")[:-1])
    assert parser.end() == ServerSentEvent("\ufffd")


def test_a_cr_that_ends_a_piece_dispatches_at_once() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [ServerSentEvent("a")]
    assert parser.feed(b"\ndata: b\n\n") == [ServerSentEvent("b")]


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"data", b"data:", b": c", b"event: e", b"id: 5", b"retry: 9", b"\xef\xbb\xbf"]
        ),
        st.text(max_size=8).map(lambda text: b"data: " + text.encode("utf-8", "replace")),
        st.binary(max_size=8),
    ),
    max_size=12,
)
STREAMS = st.tuples(LINES, st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=12)).map(
    lambda pair: b"".join(line + eol for line, eol in zip(*pair))
)


@given(STREAMS, st.lists(st.integers(min_value=0, max_value=400), max_size=6))
def test_a_stream_cut_anywhere_parses_to_the_same_events(stream: bytes, cuts: List[int]) -> None:
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    parser = SseParser()
    pieces = [stream[a:b] for a, b in zip(places, places[1:])]
    found = [event for piece in pieces for event in parser.feed(piece)]
    whole = SseParser()
    assert found == whole.feed(stream)
    assert parser.end() == whole.end()


@given(STREAMS)
def test_a_stream_byte_by_byte_parses_to_the_same_events(stream: bytes) -> None:
    parser = SseParser()
    found = [event for byte in stream for event in parser.feed(bytes([byte]))]
    assert found == events(stream)
