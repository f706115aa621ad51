"""Heads and bodies as HTTP/1.1 frames them, cut into pieces anywhere (RFC 9112)."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.solutions.message import (
    LONGEST_HEAD,
    Body,
    ChunkedBody,
    Head,
    IncompleteMessage,
    MalformedMessage,
    OpenBody,
    SizedBody,
    body_of,
    head_end,
    parse_head,
)


def head(headers: str = "", status: str = "HTTP/1.1 200 OK") -> Head:
    return parse_head("{}\r\n{}\r\n".format(status, headers).encode("latin-1"))


def fed(body: Body, pieces: List[bytes]) -> Tuple[bytes, bytes]:
    """What a body makes of the pieces, and what it leaves of them."""
    content, rest = b"", b""
    for piece in pieces:
        assert not body.complete
        data, rest = body.take(piece)
        content += data
    return content, rest


# --- heads


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\n\r\n"])
def test_a_blank_line_ends_the_head_wherever_the_pieces_are_cut(end: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\nA: 1" + end
    for searched in range(len(whole)):
        assert head_end(whole[:searched]) == -1
        assert head_end(whole + b"body", searched) == len(whole)
    assert parse_head(whole).headers == {"a": "1"}


@pytest.mark.parametrize("data", [b"S", b"SSH-2.0-OpenSSH\r\n", b"\r\nHTTP/1.1 200 OK\r\n\r\n"])
def test_another_protocol_is_seen_at_its_first_letters(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="begins with"):
        head_end(data)


def test_a_head_has_a_longest_length() -> None:
    start = b"HTTP/1.1 200 OK\r\nA: "
    assert head_end(start.ljust(LONGEST_HEAD, b"a")) == -1
    with pytest.raises(MalformedMessage, match="longer"):
        head_end(start.ljust(LONGEST_HEAD + 1, b"a"))


@pytest.mark.parametrize(
    "line, status, reason",
    [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 404 Not  Found ", 404, "Not  Found"),
        ("HTTP/1.1 500", 500, ""),
        ("HTTP/1.1 500 ", 500, ""),
        ("HTTP/1.0 299 caf\xe9", 299, "caf\xe9"),
    ],
)
def test_status_and_reason(line: str, status: int, reason: str) -> None:
    found = head(status=line)
    assert (found.status, found.reason) == (status, reason)


def test_bytes_that_only_latin_1_calls_blank_stay_in_a_value() -> None:
    found = head("A: \t\x85a\xa0 \r\nB: b\r\n \xa0")
    assert found.headers == {"a": "\x85a\xa0", "b": "b \xa0"}


@pytest.mark.parametrize("line", ["HTTP/1.1", "HTTP/1.1 abc", "HTTP/1.1 20", "HTTP/one 200 OK"])
def test_a_bad_status_line_is_refused(line: str) -> None:
    with pytest.raises(MalformedMessage, match="status line"):
        head(status=line)


def test_headers_are_joined_folded_and_stripped() -> None:
    found = head(
        "Set-Cookie: a=1\r\nX-Long: one\r\n\ttwo\r\n  three\r\nno header\r\n and its fold\r\n"
        "set-cookie:b=2\r\nEmpty:\r\n: nameless\r\nURL: http://a/:b\r\n"
    )
    assert found.headers == {
        "set-cookie": "a=1, b=2",
        "x-long": "one two three",
        "empty": "",
        "url": "http://a/:b",
    }


@pytest.mark.parametrize(
    "version, headers, persistent",
    [
        ("HTTP/1.1", "", True),
        ("HTTP/1.1", "Connection: Close\r\n", False),
        ("HTTP/1.0", "", False),
        ("HTTP/1.0", "Connection: keep-alive\r\n", True),
        ("HTTP/1.0", "Keep-Alive: timeout=5\r\n", True),
    ],
)
def test_who_keeps_the_connection(version: str, headers: str, persistent: bool) -> None:
    assert head(headers, version + " 200 OK").persistent is persistent


# --- framing


@pytest.mark.parametrize(
    "headers, method, status, kind, left",
    [
        ("Content-Length: 5\r\n", "GET", 200, SizedBody, 5),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "GET", 200, SizedBody, 5),
        ("Content-Length: 5\r\n", "HEAD", 200, SizedBody, 0),
        ("Content-Length: 5\r\n", "GET", 304, SizedBody, 0),
        ("Transfer-Encoding: chunked\r\n", "GET", 204, SizedBody, 0),
        ("Transfer-Encoding: Chunked\r\nContent-Length: 5\r\n", "GET", 200, ChunkedBody, None),
        ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", "GET", 200, SizedBody, 5),
        ("", "GET", 200, OpenBody, None),
    ],
)
def test_the_head_says_where_the_body_ends(
    headers: str, method: str, status: int, kind: type, left: Optional[int]
) -> None:
    body = body_of(head(headers, "HTTP/1.1 {} X".format(status)), method)
    assert type(body) is kind and body.left == left
    assert body.complete is (left == 0)


@pytest.mark.parametrize("length", ["-5", "5, 6", "+5", "five", "", "0x5", "9" * 30])
def test_a_length_that_is_not_one_number_is_refused(length: str) -> None:
    with pytest.raises(MalformedMessage, match="Content-Length"):
        body_of(head("Content-Length: {}\r\n".format(length)), "GET")


def test_a_coding_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="gzip"):
        body_of(head("Transfer-Encoding: gzip, chunked\r\n"), "GET")


def pieces_of(data: bytes, cuts: List[int]) -> List[bytes]:
    places = sorted({cut % len(data) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in zip(places, places[1:])]


CUTS = st.lists(st.integers(0, 5000), max_size=30)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), CUTS)
def test_chunks_may_be_cut_anywhere(chunks: List[bytes], cuts: List[int]) -> None:
    wire = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    wire += b"0\r\nTrailer: x\r\n\r\n"
    body = ChunkedBody()
    assert fed(body, pieces_of(wire, cuts)) == (b"".join(chunks), b"")
    assert body.complete


@given(st.binary(min_size=1, max_size=500), CUTS)
def test_a_sized_body_may_be_cut_anywhere(content: bytes, cuts: List[int]) -> None:
    body = SizedBody(len(content))
    assert fed(body, pieces_of(content, cuts)) == (content, b"")
    assert body.complete and body.left == 0


BEHIND: Dict[str, Tuple[Body, bytes]] = {
    "sized": (SizedBody(4), b"body"),
    "chunked": (ChunkedBody(), b"4\r\nbody\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_is_behind_the_body_is_given_back(name: str) -> None:
    body, wire = BEHIND[name]
    assert body.take(wire + b"more") == (b"body", b"more")
    assert body.complete


@pytest.mark.parametrize(
    "wire, problem",
    [
        (b"zz\r\n", "chunk size"),
        (b"-1\r\n", "chunk size"),
        (b"\r\n", "chunk size"),
        (b"1" * 17 + b"\r\n", "chunk size"),
        (b"2\r\nabc\r\n", "longer than its size"),
        (b"1" * 70000, "no end"),
    ],
)
def test_broken_chunks_are_refused(wire: bytes, problem: str) -> None:
    with pytest.raises(MalformedMessage, match=problem):
        ChunkedBody().take(wire)


@pytest.mark.parametrize("wire", [b"4\r\nbo", b"4\r\nbody\r\n", b"4\r\nbody\r\n0", b""])
def test_chunks_without_the_last_one_are_incomplete(wire: bytes) -> None:
    body = ChunkedBody()
    body.take(wire)
    with pytest.raises(IncompleteMessage, match="last chunk"):
        body.end()


def test_the_blank_line_behind_the_last_chunk_may_be_missing() -> None:
    body = ChunkedBody()
    assert body.take(b"4\r\nbody\r\n0\r\n") == (b"body", b"")
    body.end()
    assert body.complete


def test_a_sized_body_that_ends_early_says_what_is_missing() -> None:
    body = SizedBody(5)
    body.take(b"ab")
    with pytest.raises(IncompleteMessage, match="3 bytes"):
        body.end()


def test_an_open_body_takes_all_and_ends_with_the_connection() -> None:
    body = OpenBody()
    assert fed(body, [b"a", b"b"]) == (b"ab", b"")
    body.end()
    assert body.complete
