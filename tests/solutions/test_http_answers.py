"""How answers that are not streams are read."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any, Callable, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_http import Reply, Request, call

from agentloop_experiment_sdk.models import SolutionOutput
from agentloop_experiment_sdk.solutions.content import decode_body, decoded_parts, error_text
from agentloop_experiment_sdk.solutions.faults import ExchangeFault


def answered(body: Any, kind: str = "application/json", **options: Any) -> SolutionOutput:
    headers = options.pop("headers", {})
    return call(lambda request, reply: reply.whole(body, kind, **headers), **options)


def test_json_is_parsed() -> None:
    output = answered('{"answer": ["ok", 1.5, null]}')
    assert output.success
    assert output.output == {"answer": ["ok", 1.5, None]}
    assert output.meta["http"]["status"] == 200


@pytest.mark.parametrize(
    "body, kind, value",
    [
        (b"\xef\xbb\xbf" + b'{"a": 1}', "application/json", {"a": 1}),
        ('{"a": "é"}'.encode("latin-1"), "application/json; charset=ISO-8859-1", {"a": "é"}),
        ('{"a": "é"}'.encode("utf-16"), "application/json", {"a": "é"}),
        (b'{"a": 1}', "application/problem+json", {"a": 1}),
        (b'{"a": 1}', "Application/JSON; charset=utf-8", {"a": 1}),
        (b'{"a": "\xff"}', "application/json", {"a": "\ufffd"}),
        (b'{"a": 1', "application/json", '{"a": 1'),
        (b"[" * 100000, "application/json", "[" * 100000),
        (b'{"a": 1}', "", {"a": 1}),
        (b" [1]", "", [1]),
        (b"{not json", "", "{not json"),
        (b"12", "", "12"),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        ("天气".encode("gb18030"), 'text/plain; charset="GB18030"', "天气"),
        ("天气".encode("utf-8"), "text/plain", "天气"),
        ("天气".encode("utf-8"), "text/plain; charset=nonsense", "天气"),
        (b"x", "text/plain; charset=zlib", "x"),
        (b"\xef\xbb\xbfx", "text/plain", "x"),
        (b"a\xffb", "text/html", "a\ufffdb"),
        ("<a>天</a>".encode("utf-8"), "application/xml", "<a>天</a>"),
        (b"\x00\xff\xfe", "application/octet-stream", b"\x00\xff\xfe"),
        (b"", "application/json", ""),
    ],
)
def test_a_body_is_decoded_by_its_declared_type(body: bytes, kind: str, value: Any) -> None:
    headers = {"content-type": kind} if kind else {}
    assert decode_body(body, headers) == value


def test_text_that_begins_like_a_stream_stays_text() -> None:
    body = "data: see table 3\nThe second line is prose."
    assert answered(body, "text/plain; charset=utf-8").output == body
    assert answered(json.dumps(body)).output == body


@pytest.mark.parametrize(
    "coding, encode",
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("identity", bytes),
        ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
        ("gzip", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:])),
        ("gzip", lambda data: gzip.compress(data) + b"\0\0padding"),
    ],
)
def test_content_codings_are_undone(coding: str, encode: Callable[[bytes], bytes]) -> None:
    body = json.dumps({"answer": "ok" * 200}).encode("utf-8")
    output = answered(encode(body), headers={"Content_Encoding": coding})
    assert output.success, output
    assert output.output == {"answer": "ok" * 200}


def parts_of(pieces: List[bytes], coding: str, limit: int = 10**9) -> bytes:
    supply = iter(pieces + [b""])
    headers = {"content-encoding": coding}
    return b"".join(decoded_parts(lambda: next(supply), headers, limit))


@settings(max_examples=60)
@given(st.binary(max_size=2000), st.integers(1, 50), st.sampled_from(["gzip", "deflate", ""]))
def test_a_coded_body_may_be_cut_anywhere(body: bytes, size: int, coding: str) -> None:
    coded = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}[coding](body)
    pieces = [coded[i : i + size] for i in range(0, len(coded), size)]
    assert parts_of(pieces, coding) == body


def test_a_body_that_grows_a_lot_is_given_in_parts() -> None:
    body = b"a" * 1_000_000
    assert parts_of([gzip.compress(body)], "gzip") == body


def test_coded_data_that_is_cut_or_broken_fails() -> None:
    coded = gzip.compress(b"hello" * 100)
    with pytest.raises(ExchangeFault) as cut:
        parts_of([coded[:-9]], "gzip")
    assert cut.value.error_type == "IncompleteResponse"
    with pytest.raises(ExchangeFault) as broken:
        parts_of([b"plain text"], "gzip")
    assert broken.value.error_type == "DecodingError"


def test_a_coding_that_is_not_known_fails_clearly() -> None:
    output = answered(b"x", headers={"Content_Encoding": "br"})
    assert not output.success
    assert output.meta["error_type"] == "DecodingError"
    assert "br" in output.meta["error_message"]


def test_an_answer_beyond_the_bound_fails_before_it_is_read() -> None:
    output = answered(b"x" * 2000, "text/plain", max_response_bytes=1000)
    assert output.meta["error_type"] == "ResponseTooLarge"
    assert "1000" in output.meta["error_message"]
    assert output.output == ""


def test_a_small_body_that_inflates_beyond_the_bound_fails() -> None:
    bomb = gzip.compress(b"\0" * 5_000_000)
    output = answered(
        bomb, "text/plain", headers={"Content_Encoding": "gzip"}, max_response_bytes=100_000
    )
    assert output.meta["error_type"] == "ResponseTooLarge"


def test_of_an_answer_beyond_the_bound_only_the_beginning_is_kept() -> None:
    """The bound is for the row's memory and file too, not only for what is read."""
    bomb = gzip.compress(b"\0" * 5_000_000)
    headers = {"Content_Encoding": "gzip"}
    output = answered(bomb, "text/plain", headers=headers, max_response_bytes=4_000_000)
    assert output.meta["error_type"] == "ResponseTooLarge"
    assert output.output == "\0" * 1_048_576
    bomb = gzip.compress(b"data: " + b"x" * 3_000_000 + b"\n\ndata: " + b"y" * 3_000_000)
    output = answered(bomb, "text/event-stream", headers=headers, max_response_bytes=4_000_000)
    assert output.meta["error_type"] == "ResponseTooLarge"
    assert output.output == "x" * 1_048_576


def test_chunks_beyond_the_bound_fail() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.chunks([b"x" * 600, b"y" * 600], "text/plain")

    output = call(handler, max_response_bytes=1000)
    assert output.meta["error_type"] == "ResponseTooLarge"


def test_no_content_is_a_success() -> None:
    output = call(lambda request, reply: reply.head("204 No Content"), method="DELETE")
    assert output.success
    assert output.output == ""


def test_head_waits_for_no_body() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="application/json", Content_Length=57, Content_Encoding="gzip")

    output = call(handler, method="HEAD")
    assert output.success
    assert output.output == ""


def test_an_empty_json_answer_is_a_success() -> None:
    assert answered(b"").output == ""


def test_a_body_without_length_ends_with_the_connection() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/plain")
        reply.send(b"all there is")

    output = call(handler)
    assert output.success
    assert output.output == "all there is"


def test_a_body_shorter_than_its_length_fails_and_is_kept() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/plain", Content_Length=100)
        reply.send(b"only this")

    output = call(handler)
    assert not output.success
    assert output.meta["error_type"] == "IncompleteResponse"
    assert "91 bytes" in output.meta["error_message"]
    assert output.output == "only this"


def test_a_chunked_body_without_its_last_chunk_fails() -> None:
    output = call(lambda request, reply: reply.chunks([b"part"], "text/plain", end=False))
    assert output.meta["error_type"] == "IncompleteResponse"
    assert output.output == "part"


@pytest.mark.parametrize("lengths", ["-5", "5\r\nContent-Length: 9"])
def test_a_length_that_cannot_be_trusted_fails_the_row(lengths: str) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nanswer".format(lengths)
    output = call(lambda request, reply: reply.send(head.encode()))
    assert output.meta["error_type"] == "ProtocolError"
    assert "Content-Length" in output.meta["error_message"]


def test_a_server_of_another_protocol_is_not_waited_for() -> None:
    """It greets and then waits, as ours does, for more than a whole answer."""

    def handler(request: Request, reply: Reply) -> None:
        reply.send(b"220 mail.example ESMTP\r\n")
        reply.sock.recv(1)

    output = call(handler, timeout=60.0)
    assert output.meta["error_type"] == "ProtocolError"


def test_a_chunk_size_that_is_no_number_fails() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/plain", Transfer_Encoding="chunked")
        reply.send(b"zz\r\nabc")

    output = call(handler)
    assert not output.success
    assert output.meta["error_type"] == "ProtocolError"


def test_a_connection_reset_within_the_body_fails_the_row() -> None:
    def handler(request: Request, reply: Reply) -> None:
        import socket
        import struct

        reply.head(Content_Type="text/plain", Content_Length=100)
        reply.send(b"part")
        reply.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reply.sock.close()

    output = call(handler)
    assert output.meta["error_type"] == "IncompleteResponse"


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc OK\r\n\r\n"])
def test_what_is_not_http_fails_the_row(answer: bytes) -> None:
    output = call(lambda request, reply: reply.send(answer), method="GET")
    assert output.meta["error_type"] == "ProtocolError"
    assert len(output.meta["http"]["attempts"]) == 1


def test_an_endless_header_line_fails_the_row() -> None:
    output = call(lambda request, reply: reply.send(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300000))
    assert output.meta["error_type"] == "ProtocolError"


def test_informational_answers_come_before_the_real_one() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        reply.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        reply.whole('{"answer": 1}')

    assert call(handler).output == {"answer": 1}


def test_an_upgrade_nobody_asked_for_fails() -> None:
    output = call(lambda request, reply: reply.head("101 Switching Protocols"))
    assert output.meta["error_type"] == "ProtocolError"


@pytest.mark.parametrize(
    "status, body, kind, message",
    [
        ("404 Not Found", "no such agent", "text/plain", "HTTP 404 Not Found: no such agent"),
        ("500 ", "", "", "HTTP 500"),
        (
            "400 Bad Request",
            '{"error": {"message": "bad q", "code": 1}}',
            "application/json",
            "HTTP 400 Bad Request: bad q",
        ),
        (
            "422 No",
            '{"detail": [{"loc": 1}]}',
            "application/json",
            'HTTP 422 No: {"detail":[{"loc":1}]}',
        ),
        ("418 T", '{"msg": "", "reason": "pot"}', "application/json", "HTTP 418 T: pot"),
    ],
)
def test_a_bad_status_is_a_failure_that_keeps_its_body(
    status: str, body: str, kind: str, message: str
) -> None:
    output = call(
        lambda request, reply: reply.whole(body, kind, status, X_Request_Id="r-1", X_Other="no")
    )
    assert not output.success
    assert output.meta["error_type"] == "HTTPStatusError"
    assert output.meta["error_message"] == message
    assert output.meta["http"]["status"] == int(status.split()[0])
    assert output.meta["http"]["response_headers"]["x-request-id"] == "r-1"
    assert "x-other" not in output.meta["http"]["response_headers"]
    assert bool(output.output) == bool(body)


def test_an_error_whose_body_is_cut_still_reports_its_status() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head("502 Bad Gateway", Content_Type="text/plain", Content_Length=100)
        reply.send(b"upstream gone")

    output = call(handler)
    assert output.meta["error_message"].startswith("HTTP 502 Bad Gateway: upstream gone")
    assert output.meta["traceId"]
    assert output.output == "upstream gone"


def test_a_long_error_body_is_quoted_in_part() -> None:
    assert len(error_text("x" * 5000)) == 501
    assert error_text({"nothing": "known"}) == '{"nothing":"known"}'
    assert error_text("") == ""


def test_usage_of_a_whole_answer_is_kept() -> None:
    body = {"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    output = answered(json.dumps(body))
    assert output.meta["usage"] == {
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 7,
        "model": "m",
    }
    assert "ttft_ms" not in output.meta


def test_a_usage_extractor_that_fails_is_noted() -> None:
    output = answered("{}", usage_extractor=lambda value: value["x"])
    assert output.success
    assert output.meta["http"]["usage_error"] == "KeyError: 'x'"


def test_repeated_headers_are_joined() -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.send(b"HTTP/1.1 200 OK\r\nX-Trace: a\r\nx-trace: b\r\nContent-Length: 0\r\n\r\n")

    assert call(handler).meta["http"]["response_headers"]["x-trace"] == "a, b"


@pytest.mark.parametrize("coding", ["gzip, chunked", "deflate"])
def test_a_transfer_coding_that_is_not_chunked_fails_the_row(coding: str) -> None:
    def handler(request: Request, reply: Reply) -> None:
        reply.head(Content_Type="text/plain", Transfer_Encoding=coding)
        reply.send(b"2\r\nhi\r\n0\r\n\r\n")

    output = call(handler)
    assert not output.success
    assert output.meta["error_type"] == "ProtocolError"


@pytest.mark.parametrize("depth", [900, 3000, 30000])
def test_an_error_body_of_any_depth_is_a_failed_row(depth: int) -> None:
    body = "[" * depth + "]" * depth
    output = call(lambda request, reply: reply.whole(body, status="500 No"))
    assert output.meta["error_type"] == "HTTPStatusError"
    assert output.meta["http"]["status"] == 500


def test_a_layer_between_two_codings_is_bounded_as_the_body_is() -> None:
    """Empty members of gzip are an empty body, however many of them a bomb unfolds to."""
    bomb = gzip.compress(gzip.compress(b"") * 200_000)
    with pytest.raises(ExchangeFault, match="larger than max_response_bytes"):
        parts_of([bomb], "gzip, gzip", 100_000)


def test_an_answer_in_very_many_codings_is_refused() -> None:
    with pytest.raises(ExchangeFault, match="coded 1000 times"):
        parts_of([], "gzip," * 1000)
