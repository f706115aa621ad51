from __future__ import annotations

import re
import sys
import types
from typing import Dict, Iterator, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk import tracing
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.scope import AttemptScope, entered

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
GOOD = "00-{}-{}-01".format(TRACE, SPAN)
# W3C Baggage 3.2.1.3: baggage-octet
OCTETS = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")


@pytest.fixture
def no_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


def w3c_members(header: str) -> Dict[str, str]:
    """A W3C parser's reading of a baggage header (3.2.2), written apart from the encoder."""
    members = {}
    for member in header.split(","):
        pair = member.split(";")[0]
        name, _, value = pair.partition("=")
        value = value.strip(" \t")
        assert OCTETS.fullmatch(value), value
        octets = re.sub(
            rb"%([0-9A-Fa-f]{2})", lambda m: bytes([int(m.group(1), 16)]), value.encode("ascii")
        )
        members[name.strip(" \t")] = octets.decode("utf-8")
    return members


def test_new_ids_are_lower_case_hex_and_differ() -> None:
    traces = {tracing.new_trace_id() for _ in range(50)}
    assert len(traces) == 50
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in traces)
    assert re.fullmatch("[0-9a-f]{16}", tracing.new_span_id())


def test_an_all_zero_draw_is_drawn_again() -> None:
    draws: Iterator[bytes] = iter([b"\0" * 16, b"\0" * 15 + b"\1"])
    assert tracing.new_trace_id(lambda size: next(draws)) == "0" * 31 + "1"


@pytest.mark.parametrize(
    "text, expected",
    [
        (TRACE, TRACE),
        (TRACE.upper(), TRACE),
        ("  %s " % TRACE, TRACE),
        ("0" * 32, None),
        ("g" * 32, None),
        (TRACE[:31], None),
        (TRACE + "0", None),
        ("abc123", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_trace_id_is_32_hex_digits_and_not_all_zero(text: object, expected: object) -> None:
    assert tracing.valid_trace_id(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        (GOOD, TRACE),
        (" %s " % GOOD, TRACE),
        (GOOD.upper(), None),
        (GOOD.replace("00-", "ff-", 1), None),
        (GOOD.replace("00-", "01-", 1) + "-extra", TRACE),
        (GOOD + "-extra", None),
        (GOOD + "extra", None),
        ("00-{}-{}-01".format("0" * 32, SPAN), None),
        ("00-{}-{}-01".format(TRACE, "0" * 16), None),
        ("00-{}-{}".format(TRACE, SPAN), None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_judged_by_the_standard(text: object, expected: object) -> None:
    assert tracing.parse_traceparent(text) == expected


def test_a_context_writes_version_00() -> None:
    assert tracing.TraceContext(TRACE, SPAN).traceparent == GOOD
    assert tracing.TraceContext(TRACE, SPAN, "00").traceparent.endswith("-00")


def test_baggage_values_are_percent_encoded() -> None:
    assert tracing.encode_baggage_value("a,b;c d%41") == "a%2Cb%3Bc%20d%2541"
    assert tracing.encode_baggage_value("问") == "%E9%97%AE"
    assert tracing.encode_baggage_value("\udcb2") == "%EF%BF%BD"


@given(st.text())
def test_any_value_survives_a_w3c_parser(value: str) -> None:
    header = tracing.merge_baggage("tenant=acme", {"id": value})
    assert w3c_members(header) == {"tenant": "acme", "id": value}


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"])))
def test_whatever_the_caller_sent_the_header_is_ascii(existing: str) -> None:
    assert tracing.merge_baggage(existing, {"id": "1"}).isascii()


def test_a_callers_baggage_is_kept_as_it_is() -> None:
    merged = tracing.merge_baggage("tenant=acme;prop=1, user=7%20a", {"id": "x"})
    assert merged == "tenant=acme;prop=1,user=7%20a,id=x"
    assert tracing.merge_baggage("user=张", {}) == "user=%E5%BC%A0"
    assert tracing.merge_baggage(None, {"id": "x"}) == "id=x"


def test_a_name_that_the_caller_used_is_not_repeated() -> None:
    assert tracing.merge_baggage(" id = theirs;p=1", {"id": "ours"}) == "id = theirs;p=1"


def test_members_beyond_the_limits_are_left_out() -> None:
    full = ",".join("k%d=v" % number for number in range(64))
    assert tracing.merge_baggage(full, {"id": "x"}) == full
    assert tracing.merge_baggage(full.rpartition(",")[0], {"id": "x"}).endswith(",id=x")
    long = "k=" + "v" * 8186
    assert tracing.merge_baggage(long, {"id": "x"}) == long
    assert tracing.merge_baggage(long, {"id": "x", "i": ""}) == long + ",i="
    assert len(tracing.merge_baggage(long[:-1], {"id": "x"})) == 8192


def task(**metadata: object) -> Task:
    return Task("t", {}, metadata=metadata)


def test_a_tasks_members_name_experiment_and_item() -> None:
    assert tracing.task_members(task(record_id="r", dataset_item_id=0)) == {
        tracing.EXPERIMENT_ID: "r",
        tracing.DATA_ITEM_ID: "0",
    }
    assert tracing.task_members(task(record_id=None, dataset_item_id="")) == {}
    assert tracing.task_members(task()) == {}


def test_inject_sends_one_traceparent_and_says_what_it_carries() -> None:
    context = tracing.TraceContext(TRACE, SPAN)
    headers, trace_id = tracing.inject({"X": "1"}, context, {"id": "x"})
    assert headers == {"X": "1", "traceparent": GOOD, "baggage": "id=x"}
    assert trace_id == TRACE


def test_inject_keeps_a_callers_valid_traceparent() -> None:
    own = "00-{}-{}-00".format("1" * 32, "2" * 16)
    headers, trace_id = tracing.inject({"TraceParent": own}, tracing.begin_trace(), {})
    assert headers == {"traceparent": own}
    assert trace_id == "1" * 32


@pytest.mark.parametrize("own", ["", "nonsense", GOOD.upper()])
def test_inject_replaces_an_invalid_traceparent(own: str) -> None:
    headers, trace_id = tracing.inject({"Traceparent": own}, tracing.TraceContext(TRACE, SPAN), {})
    assert headers == {"traceparent": GOOD}
    assert trace_id == TRACE


def test_inject_merges_every_baggage_header() -> None:
    given_headers = {"Baggage": "a=1", "baggage": "b=2"}
    headers, _ = tracing.inject(given_headers, tracing.begin_trace(), {"c": "3"})
    assert headers["baggage"] == "a=1,b=2,c=3"
    assert "Baggage" not in headers


def test_trace_headers_link_a_custom_call_to_its_attempt(no_opentelemetry: None) -> None:
    own = {"Authorization": "x"}
    with entered(AttemptScope("record", "item 1")) as scope:
        headers = tracing.trace_headers(own)
    assert own == {"Authorization": "x"}
    assert headers["Authorization"] == "x"
    assert tracing.parse_traceparent(headers["traceparent"]) == scope.trace_id
    assert w3c_members(headers["baggage"]) == {
        tracing.EXPERIMENT_ID: "record",
        tracing.DATA_ITEM_ID: "item 1",
    }


def test_calls_of_one_attempt_share_the_trace_but_not_the_span(no_opentelemetry: None) -> None:
    with entered(AttemptScope()):
        first, second = tracing.trace_headers(), tracing.trace_headers()
    parts = [headers["traceparent"].split("-") for headers in (first, second)]
    assert parts[0][1] == parts[1][1]
    assert parts[0][2] != parts[1][2]


def test_trace_headers_record_a_callers_own_trace() -> None:
    with entered(AttemptScope()) as scope:
        headers = tracing.trace_headers({"traceparent": GOOD})
    assert headers["traceparent"] == GOOD
    assert scope.trace_id == TRACE


def test_trace_headers_work_outside_a_run(no_opentelemetry: None) -> None:
    headers = tracing.trace_headers()
    assert list(headers) == ["traceparent"]
    assert tracing.parse_traceparent(headers["traceparent"])


def test_response_headers_are_asked_in_order() -> None:
    headers = {"x-trace-id": "req-7", "traceid": TRACE.upper(), "eagleeye-traceid": "0" * 32}
    names: List[str] = ["X-Trace-Id", "eagleeye-traceId", "traceId"]
    assert tracing.trace_id_from_headers(headers, names) == TRACE
    assert tracing.trace_id_from_headers(headers, names[:2]) is None


def test_without_opentelemetry_nothing_is_asked_of_it(no_opentelemetry: None) -> None:
    assert tracing.open_span_id() is None
    assert tracing.begin_trace(None).flags == "01"


def test_a_foreign_module_of_that_name_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.ModuleType("opentelemetry.trace"))
    assert tracing.open_span_id() is None
    assert tracing.valid_trace_id(tracing.begin_trace(AttemptScope()).trace_id)


class TestWithTheRealOpenTelemetry:
    @pytest.fixture
    def tracer(self) -> object:
        sdk = pytest.importorskip("opentelemetry.sdk.trace")
        return sdk.TracerProvider().get_tracer("tests")

    def test_a_span_inside_the_attempt_gives_the_context(self, tracer: object) -> None:
        start = tracer.start_as_current_span  # type: ignore[attr-defined]
        with entered(AttemptScope()) as scope, start("call") as span:
            context = span.get_span_context()
            headers = tracing.trace_headers()
        assert headers["traceparent"] == "00-{:032x}-{:016x}-{:02x}".format(
            context.trace_id, context.span_id, context.trace_flags
        )
        assert scope.trace_id == format(context.trace_id, "032x")

    def test_a_span_around_the_whole_run_does_not(self, tracer: object) -> None:
        with tracer.start_as_current_span("run") as span:  # type: ignore[attr-defined]
            outer = span.get_span_context()
            scope = AttemptScope()
            scope.outer_span_id = tracing.open_span_id()
            ours = tracing.begin_trace(scope)
        assert scope.outer_span_id == outer.span_id
        assert ours.trace_id != format(outer.trace_id, "032x")

    def test_an_unsampled_span_stays_unsampled(self) -> None:
        sdk = pytest.importorskip("opentelemetry.sdk.trace")
        sampling = pytest.importorskip("opentelemetry.sdk.trace.sampling")
        tracer = sdk.TracerProvider(sampler=sampling.ALWAYS_OFF).get_tracer("tests")
        with tracer.start_as_current_span("call"):
            assert int(tracing.begin_trace(AttemptScope()).flags, 16) & 1 == 0

    def test_no_open_span_means_a_random_trace(self, tracer: object) -> None:
        assert tracing.open_span_id() is None
        first, second = tracing.begin_trace(AttemptScope()), tracing.begin_trace(AttemptScope())
        assert first.trace_id != second.trace_id
