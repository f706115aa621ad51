"""The search half of an SLS query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.local import ServiceError
from agentloop_experiment_sdk.local.logs import with_source
from agentloop_experiment_sdk.local.search import parse_search, split_query

ROW = {
    "status": "failed",
    "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
    "experiment_output": "ERROR: HTTP 502 - Bad Gateway, try/again",
    "dataset.问题": "你好世界",
    "ms": "12.5",
    "empty": "",
    "__time__": "777",
}


@pytest.mark.parametrize(
    "query",
    [
        "*",
        "",
        "  ",
        "status: failed",
        "status:FAILED",
        'status: "failed"',
        "status: 'failed'",
        "status: fail*",
        "status: f?iled",
        "status: *",
        'empty: ""',
        "failed",
        '"bad gateway"',
        "502 and gateway",
        "502 gateway",
        "bad or absent",
        "not absent",
        "failed not absent",
        "NOT (absent OR nothing)",
        "(status: failed or status: success) and ms > 12",
        "ms >= 12.5 and ms <= 12.5 and ms = 12.5 and ms < 13",
        "dataset.问题: 你好",
        '(*) and traceId: "4bf92f3577b34da6a3ce929d0e0e4736"',
        "traceId: 4BF92F3577B34DA6A3CE929D0E0E4736",
        "experiment_output: again",
        'experiment_output: "http 502"',
        "absent: 1 or status: failed and ms > 1",
    ],
)
def test_found(query):
    assert parse_search(query).matches(ROW)


@pytest.mark.parametrize(
    "query",
    [
        "status: success",
        "status: fail",
        "absent: *",
        "absent: failed",
        "absent > 1",
        "status > 1",
        "ms > 12.5",
        '"gateway bad"',
        "not failed",
        "777",
        "failed and not failed",
        'status: ""',
        "absent or nothing",
        "(absent or failed) and absent",
    ],
)
def test_not_found(query):
    assert not parse_search(query).matches(ROW)


@pytest.mark.parametrize(
    "query",
    [
        'a: "open',
        "(a",
        "a)",
        "a:",
        "a: )",
        "and",
        "a or",
        "not",
        ": a",
        "a > b",
        "a: (b or c)",
        "a ==",
    ],
)
def test_malformed(query):
    with pytest.raises(ServiceError) as caught:
        parse_search(query)
    assert (caught.value.status, caught.value.code) == (400, "ParameterInvalid")


def test_fields_that_every_found_row_shares_are_known():
    assert parse_search('(*) and traceId: "a"').equal == (("traceId", "a"),)
    assert parse_search("(traceId: a and b: c) d").equal == (("traceId", "a"), ("b", "c"))
    for query in ("traceId: a or b: c", "not traceId: a", "traceId: a*", "traceId > 5"):
        assert parse_search(query).equal == ()


@pytest.mark.parametrize(
    "query, search, sql",
    [
        ("a: b", "a: b", None),
        ("a: b | select 1", "a: b", "select 1"),
        ("a: b|select 1", "a: b", "select 1"),
        ("|select 1", "", "select 1"),
        ('a: "b | c" | select "d | e"', 'a: "b | c"', 'select "d | e"'),
        ('a: "b', 'a: "b', None),
    ],
)
def test_the_first_bar_outside_quotes_begins_the_sql(query, search, sql):
    assert split_query(query) == (search, sql)


@pytest.mark.parametrize(
    "sql, completed",
    [
        ("select 1 from log", "select 1 from log"),
        ("SELECT 1 FROM (select 2)", "SELECT 1 FROM (select 2)"),
        ("select count(*);", "select count(*) FROM log ;"),
        ("select 'from' where a = 1", "select 'from'  FROM log where a = 1"),
        ("select (select 1 from log) limit 5", "select (select 1 from log)  FROM log limit 5"),
    ],
)
def test_a_missing_source_is_put_in(sql, completed):
    assert with_source(sql) == completed


@given(st.text())
def test_any_text_is_a_search_or_a_clear_error(text):
    search, _ = split_query(text)
    try:
        parse_search(search).matches(ROW)
    except ServiceError as error:
        assert error.code == "ParameterInvalid"


@pytest.mark.parametrize("query", ["(" * 5000, "not " * 5000 + "a"])
def test_a_search_that_is_nested_too_deeply_is_refused(query):
    with pytest.raises(ServiceError) as caught:
        parse_search(query)
    assert "too deeply" in caught.value.message
