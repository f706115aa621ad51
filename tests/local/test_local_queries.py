"""ExecuteQuery: SQLite answers, read-only, with the limits of the cloud."""

from __future__ import annotations

import pytest
from alibabacloud_agentloop20260520 import models as m
from hypothesis import given
from hypothesis import strategies as st
from official_clients import openapi_client

from agentloop_experiment_sdk.local import LocalAgentLoop, ServiceError
from agentloop_experiment_sdk.local.sql import (
    GuardedDatabase,
    plain_value,
    quoted,
    standard_names,
    stored_value,
)

SPACE = "local"


def query(client, sql, name="dataset", **options):
    request = m.ExecuteQueryRequest(type="SQL", query=sql, **options)
    return client.execute_query(SPACE, name, request).body


@pytest.fixture
def many(local):
    local.load_dataset([{"id": at, "text": "row {}".format(at)} for at in range(250)])
    return local


def ids(client, sql, **options):
    return [row[0] for row in query(client, sql, **options).rows]


def test_a_query_without_a_limit_answers_100_rows(many, client):
    assert ids(client, "SELECT id FROM dataset ORDER BY id") == list(range(100))
    assert ids(client, 'SELECT id FROM "dataset" ORDER BY id;  ') == list(range(100))
    assert ids(client, "SELECT id FROM dataset ORDER BY id -- a remark") == list(range(100))


def test_a_limit_of_its_own_counts_in_both_forms(many, client):
    assert ids(client, "SELECT id FROM dataset ORDER BY id LIMIT 240, 100") == list(range(240, 250))
    assert ids(client, "SELECT id FROM dataset ORDER BY id LIMIT 3 OFFSET 7") == [7, 8, 9]
    assert len(ids(client, "SELECT id FROM dataset LIMIT 240")) == 240
    inner = "SELECT id FROM (SELECT id FROM dataset ORDER BY id LIMIT 240) ORDER BY id DESC"
    assert ids(client, inner) == list(range(239, 139, -1))


def test_length_and_offset_page_a_query_without_a_limit(many, client):
    sql = "SELECT id FROM dataset ORDER BY id"
    assert ids(client, sql, length=3, offset=120) == [120, 121, 122]
    assert ids(client, sql + " LIMIT 2", length=3, offset=120) == [0, 1]


def test_the_sql_of_the_documentation_works(many, client):
    body = query(client, "select count(*) from dataset", from_=1, to=2, length=100)
    assert body.rows == [[250]]
    assert body.column_types == ["bigint"]


@pytest.mark.parametrize("name", ["faq-1", 'say "hi"', "问题 集", "it's", "back`tick", "select"])
def test_any_name_works_when_quoted(local, client, name):
    local.load_dataset([{"id": 1, 'co"l': "x"}], name)
    assert ids(client, "SELECT id FROM {}".format(quoted(name)), name=name) == [1]
    backticks = "`{}`".format(name.replace("`", "``"))
    assert ids(client, 'SELECT "co""l" FROM {}'.format(backticks), name=name) == ["x"]


@pytest.mark.parametrize("name", ["sqlite_x", "a\x00b"])
def test_a_name_that_sqlite_cannot_hold_is_refused(local, name):
    with pytest.raises(ServiceError, match="cannot be made"):
        local.load_dataset([{"id": 1}], name)


@pytest.mark.parametrize(
    "sql, says",
    [
        ("SELECT absent FROM dataset", "no such column: absent"),
        ('SELECT id FROM dataset WHERE "absent" = 1', "no such column: absent"),
        ("SELECT id FROM elsewhere", "no such table: elsewhere"),
        ("SELEC id", "syntax error"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        (";", "empty"),
        ("SELECT 1 FROM dataset WHERE id = ?", "bindings"),
        ("SELECT '\x00'", "SQL error"),
    ],
)
def test_bad_sql_is_a_cloud_error_that_says_why(many, client, sql, says):
    with pytest.raises(Exception) as caught:
        query(client, sql)
    assert (caught.value.status_code, caught.value.code) == (400, "ParameterInvalid")
    assert says in caught.value.message


def test_only_sql_is_a_type_of_query(many, client, code_of):
    request = m.ExecuteQueryRequest(type="SPL", query="*")
    assert code_of(client.execute_query, SPACE, "dataset", request) == (400, "ParameterInvalid")
    assert code_of(query, client, "SELECT 1", name="none") == (404, "DatasetNotExist")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM dataset",
        "UPDATE dataset SET id = 0",
        "INSERT INTO dataset (id) VALUES (1)",
        "REPLACE INTO dataset (id) VALUES (1)",
        "WITH x AS (SELECT 1) DELETE FROM dataset",
        "DROP TABLE dataset",
        "CREATE TABLE more (a)",
        "ALTER TABLE dataset ADD COLUMN b",
        "ATTACH ':memory:' AS other",
        "PRAGMA user_version = 3",
        "BEGIN",
        "VACUUM",
        "SELECT * FROM sqlite_master",
    ],
)
def test_nothing_but_reading_is_allowed(many, client, code_of, sql):
    assert code_of(query, client, sql) == (400, "ParameterInvalid")
    assert ids(client, "SELECT count(*) FROM dataset WHERE id > 0") == [249]


def test_writable_sql_edits_rows_and_nothing_else(code_of):
    with LocalAgentLoop(writable_sql=True) as local:
        client = openapi_client(local)
        local.load_dataset([{"id": at} for at in range(250)])
        assert query(client, "INSERT INTO dataset SELECT id + 1000 FROM dataset").meta.count == 0
        assert ids(client, "SELECT count(*) FROM dataset") == [500]
        gone = query(client, "DELETE FROM dataset WHERE id >= 1000")
        assert gone.meta.affected_rows == 250
        assert query(client, "UPDATE dataset SET id = -id").meta.affected_rows == 250
        assert len(ids(client, "SELECT id FROM dataset")) == 100
        for sql in ("DROP TABLE dataset", "CREATE TABLE a (b)", "ATTACH ':memory:' AS c"):
            assert code_of(query, client, sql) == (400, "ParameterInvalid")


def test_an_endless_query_is_stopped():
    database = GuardedDatabase(seconds=0.05)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with pytest.raises(ServiceError) as caught:
        database.query(endless)
    assert caught.value.code == "QueryTimeout"
    assert database.query("SELECT 1").rows == [[1]]
    database.close()


def test_values_that_json_has_no_form_for_still_come_back(many, client):
    body = query(client, "SELECT 9e999, -9e999, x'414243', x'ff', NULL, 1.5")
    assert body.rows == [[None, None, "ABC", "\ufffd", None, 1.5]]
    assert body.column_types[-1] == "double"


def test_a_lone_surrogate_survives(local, client):
    local.load_dataset([{"id": "x\udcb2y"}])
    assert ids(client, "SELECT id FROM dataset") == ["x\udcb2y"]


HUGE = [2**64 - 2, 2**64 - 1, -(2**63) - 1, 123456789012345678901234567890]


def test_whole_numbers_beyond_64_bit_come_back_exactly(local, client):
    local.load_dataset([{"id": n, "n": n, "l": [n]} for n in (1, 2**63 - 1, *HUGE)])
    rows = query(client, "SELECT id, n, l FROM dataset ORDER BY id").rows
    assert sorted(rows) == sorted([n, n, [n]] for n in (1, 2**63 - 1, *HUGE))
    assert {type(row[0]) for row in rows} == {int}
    assert ids(client, "SELECT id FROM dataset WHERE id IN ('1')") == [1]


def test_a_whole_number_beyond_64_bit_may_join_smaller_ones_and_texts(local, client):
    local.load_dataset([{"id": 1, "text": "7"}])
    more = m.AddDatasetDataRequest(data_array=[{"id": HUGE[0], "text": HUGE[1]}])
    client.add_dataset_data(SPACE, "dataset", more)
    rows = query(client, "SELECT id, text FROM dataset ORDER BY id").rows
    assert rows == [[1, "7"], [HUGE[0], HUGE[1]]]


def test_json_columns_are_open_to_sql(local, client):
    local.load_dataset([{"id": 1, "doc": {"a": {"b": 7}, "c": "x", "l": [1]}}])
    sql = (
        "SELECT json_extract(doc, '$.a.b'), json_extract_scalar(doc, '$.a.b'),"
        " json_extract_scalar(doc, '$.c'), json_extract_scalar(doc, '$.l'),"
        " json_extract_scalar(doc, '$.none'), json_extract_scalar(doc, '$.c.d') FROM dataset"
    )
    assert query(client, sql).rows == [[7, "7", "x", None, None, None]]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(json_values)
def test_every_json_value_survives_storage(value):
    database = GuardedDatabase()
    database.connection.execute("CREATE TABLE t (v)")
    database.connection.execute("INSERT INTO t VALUES (?)", (stored_value(value),))
    ((found,),) = database.query("SELECT v FROM t").rows
    database.close()
    assert found == value
    assert type(found) is type(value)


@given(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00")))
def test_a_quoted_name_means_itself(name):
    database = GuardedDatabase()
    if not name:
        return
    sql = 'SELECT 1 AS {0}, \'"in a ""string"\' AS b --"remark\n'.format(quoted(name))
    found = database.query(sql)
    database.close()
    assert found.columns[0] == name
    assert found.rows == [[1, '"in a ""string"']]


def test_only_names_are_rewritten():
    text = '\'a "b" c\' [d "e"] `f` /* "g" */ "h""`i"'
    assert standard_names(text) == '\'a "b" c\' [d "e"] `f` /* "g" */ `h"``i`'
    assert plain_value(3) == 3
