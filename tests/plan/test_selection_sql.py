"""The statements that read a dataset, judged by a real SQLite."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.errors import DatasetError
from agentloop_experiment_sdk.plan.sql import Selection, identifier, literal, parse_selection

# SQLite ends a statement at NUL, and refuses lone surrogates before it parses anything
TEXT = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)))


@given(TEXT)
def test_a_quoted_value_is_that_value(text):
    assert sqlite3.connect(":memory:").execute("SELECT " + literal(text)).fetchone() == (text,)


@given(TEXT.filter(bool))
def test_a_quoted_name_is_that_name(name):
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE {} (id)".format(identifier(name)))
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [(name,)]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("faq_v2", "faq_v2"),
        ("order", '"order"'),
        ("Group", '"Group"'),
        ("my-set", '"my-set"'),
        ("2024", '"2024"'),
        ('a"b', '"a""b"'),
        ("\u6570\u636e", '"\u6570\u636e"'),
    ],
)
def test_only_names_that_need_it_are_quoted(name, written):
    assert identifier(name) == written


def run(query_sql, count=100, offset=0):
    database = sqlite3.connect(":memory:")
    database.execute('CREATE TABLE "my-set" (id, level, note)')
    rows = [(n, n % 5, "it's; (n) WHERE" if n == 7 else "n") for n in range(20)]
    database.executemany('INSERT INTO "my-set" VALUES (?, ?, ?)', rows)
    selection = parse_selection("my-set", query_sql)
    page = database.execute(selection.page(["id"], offset, count)).fetchall()
    total = database.execute(selection.count()).fetchone()[0]
    return [row[0] for row in page], total


@pytest.mark.parametrize(
    ("query_sql", "ids"),
    [
        ("level > 3", [4, 9, 14, 19]),
        ("WHERE level > 3", [4, 9, 14, 19]),
        ("  where level > 3 ;; ", [4, 9, 14, 19]),
        ("where(level > 3)", [4, 9, 14, 19]),
        ("level = 4 OR id = 1", [1, 4, 9, 14, 19]),
        ("note = 'it''s; (n) WHERE'", [7]),
        ("note LIKE '%;%' -- why; not (", [7]),
        ("/* ; ( */ level > 3 AND id < 5", [4]),
        ("level > 3 ORDER BY id DESC", [19, 14, 9, 4]),
        ("WHERE level > 3 order  by id desc LIMIT 2;", [19, 14, 9, 4]),
        ("ORDER BY level DESC LIMIT 5, 3", [8, 13, 18]),
        ("level > 3 ORDER BY id DESC -- newest first", [19, 14, 9, 4]),
        ('id IN (SELECT id FROM "my-set" ORDER BY id LIMIT 2)', [0, 1]),
    ],
)
def test_a_condition_is_read_as_users_write_it(query_sql, ids):
    assert run(query_sql)[0][: len(ids)] == ids


def test_the_limit_of_the_plan_is_kept_apart_from_the_pages():
    selection = parse_selection("d", "level > 1 LIMIT 10 OFFSET 5")
    assert (selection.offset, selection.most, selection.where) == (5, 10, "level > 1")
    assert selection.page(["id"], 3, 4).endswith("ORDER BY id LIMIT 8, 4")
    assert (parse_selection("d", "LIMIT 3").offset, parse_selection("d", "LIMIT 3").most) == (0, 3)


def test_a_comment_behind_the_order_does_not_swallow_the_rest_of_the_statement():
    assert run("ORDER BY level -- hardest last", count=3, offset=18)[0] == [14, 19]


def test_no_condition_selects_everything():
    assert run("") == (list(range(20)), 20)
    assert run(" ; ", count=3, offset=18) == ([18, 19], 20)


def test_an_or_in_the_condition_does_not_escape_the_chosen_ids():
    selection = parse_selection("d", "level = 4 OR id = 1 -- note").only(["3", "'x'"])
    assert selection.where == "(level = 4 OR id = 1 -- note\n) AND id IN (3, 'x')"
    assert Selection("d").only(["3"]).where == "id IN (3)"


@pytest.mark.parametrize(
    ("query_sql", "reason"),
    [
        ("SELECT id FROM d", "not a statement"),
        ("with x as (select 1) select * from x", "not a statement"),
        ("id = 1; DELETE FROM d", "semicolon"),
        ("(id = 1; DELETE FROM d)", "semicolon"),
        ("1 = 1) OR (1 = 1", "parentheses"),
        ("(id = 1", "parentheses"),
        ("id = 1)", "parentheses"),
        ("id = 1 LIMIT ten", "LIMIT"),
        ("id = 1 LIMIT -1", "LIMIT"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_text(query_sql, reason):
    with pytest.raises(DatasetError, match=reason) as caught:
        parse_selection("d", query_sql)
    assert query_sql in str(caught.value)
