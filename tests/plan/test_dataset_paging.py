"""Pages over a real SQLite that returns rows with equal ids in another order each time."""

import sqlite3
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop_experiment_sdk.errors import CloudError
from agentloop_experiment_sdk.plan.asking import together
from agentloop_experiment_sdk.plan.paging import PAGE_ROWS, fetch
from agentloop_experiment_sdk.plan.sql import Selection, parse_selection


class Database:
    """A dataset ``d``; ties in an order by id alone fall out at random."""

    def __init__(self, columns, rows, refuse=lambda sql: False):
        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        names = ", ".join('"{}"'.format(name) for name in columns)
        self.connection.execute("CREATE TABLE d ({})".format(names))
        marks = ", ".join("?" * len(columns))
        self.connection.executemany("INSERT INTO d VALUES ({})".format(marks), rows)
        self.statements = []
        self.refuse = refuse
        self.lock = threading.Lock()

    def query(self, sql):
        with self.lock:
            self.statements.append(sql)
            if self.refuse(sql):
                raise CloudError("this cannot be sorted", code="InvalidQuery", status=400)
            shuffled = sql.replace("ORDER BY id LIMIT", "ORDER BY id, random() LIMIT")
            try:
                cursor = self.connection.execute(shuffled)
            except sqlite3.OperationalError as error:
                raise CloudError(str(error), code="InvalidQuery", status=400) from error
            return [item[0] for item in cursor.description], [list(row) for row in cursor]


def numbered(count, block):
    return [(n // block, "q{}".format(n)) for n in range(count)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 450), st.integers(1, 450), st.one_of(st.none(), st.integers(1, 460)))
def test_every_row_comes_exactly_once_whatever_ids_are_repeated(count, block, most):
    rows = numbered(count, block)
    table = fetch(Database(("id", "q"), rows).query, Selection("d"), most)
    wanted = count if most is None else min(count, most)
    assert len({tuple(row) for row in table.rows}) == len(table.rows) == wanted
    assert [row[0] for row in table.rows] == sorted(row[0] for row in table.rows)
    assert table.full is (wanted == most)


def test_rows_equal_in_every_column_are_all_kept():
    database = Database(("id", "q"), [("same", "row")] * 350)
    assert fetch(database.query, Selection("d")).rows == [["same", "row"]] * 350


def test_ids_that_are_null_are_a_block_like_any_other():
    database = Database(("id", "q"), [(None, n) for n in range(250)])
    assert {row[1] for row in fetch(database.query, Selection("d")).rows} == set(range(250))


def test_distinct_ids_cost_one_query_a_page_and_few_beyond_the_end():
    database = Database(("id", "q"), numbered(250, 1))
    fetch(database.query, Selection("d"))
    assert sorted(database.statements) == [
        "SELECT * FROM d ORDER BY id LIMIT {}, 100".format(at) for at in (0, 100, 200, 300)
    ]


@pytest.mark.parametrize("most", [1, 7, 99, 100, 101, 130, 200, 250])
def test_never_more_rows_are_asked_for_than_wanted(most):
    database = Database(("id", "q"), numbered(250, 1))
    table = fetch(database.query, Selection("d"), most)
    assert (len(table.rows), table.full) == (most, True)
    asked = [int(sql.rsplit(", ", 1)[1]) for sql in database.statements]
    assert sum(asked) == most


def test_a_dataset_without_an_id_is_ordered_by_all_its_columns():
    database = Database(("q", "order"), [("same", n) for n in range(230)])
    table = fetch(database.query, Selection("d"))
    assert [row[1] for row in table.rows] == list(range(230))
    assert table.id_at is None
    assert 'ORDER BY q, "order" LIMIT 100, 100' in "\n".join(database.statements)


def test_a_small_dataset_without_an_id_costs_one_query_more():
    database = Database(("q",), [("a",), ("b",)])
    assert fetch(database.query, Selection("d"), 10).rows == [["a"], ["b"]]
    assert len(database.statements) == 2


def test_columns_that_cannot_be_ordered_are_reported(caplog):
    database = Database(("q",), [(n,) for n in range(150)], lambda sql: "ORDER BY q" in sql)
    assert len(fetch(database.query, Selection("d")).rows) == 150
    assert "no column id" in caplog.text and "cannot be sorted" in caplog.text


def test_a_block_that_cannot_be_ordered_is_reported(caplog):
    rows = [(n // 150, n) for n in range(200)]
    database = Database(("id", "q"), rows, lambda sql: "ORDER BY id, q" in sql)
    assert len(fetch(database.query, Selection("d")).rows) == 200
    assert "with the id 0" in caplog.text


def test_a_bad_condition_is_told_as_the_service_told_it():
    with pytest.raises(CloudError, match="nowhere"):
        fetch(Database(("id",), []).query, parse_selection("d", "nowhere = 1"))


@pytest.mark.parametrize("status", [None, 401, 403, 404])
def test_other_refusals_are_not_asked_twice(status):
    asked = []

    def query(sql):
        asked.append(sql)
        raise CloudError("no", code="NoPermission", status=status)

    with pytest.raises(CloudError):
        fetch(query, Selection("d"))
    assert len(asked) == 1


def test_the_plans_own_order_and_limit_hold_over_pages():
    database = Database(("id", "level"), [(n, n % 3) for n in range(400)])
    selection = parse_selection("d", "ORDER BY level DESC LIMIT 10, 250")
    rows = fetch(database.query, selection).rows
    everything = sorted(range(400), key=lambda n: (-(n % 3), n))
    assert [row[0] for row in rows] == everything[10:260]


def test_a_limit_of_zero_asks_nothing():
    database = Database(("id",), [(1,)])
    assert fetch(database.query, parse_selection("d", "LIMIT 0")).rows == []
    assert database.statements == []


def test_the_id_column_is_found_in_any_letter_case():
    database = Database(("q", "ID"), [("a", n // 120) for n in range(240)])
    table = fetch(database.query, Selection("d"))
    assert table.id_at == 1 and len(table.rows) == 240


def test_the_first_error_of_calls_made_together_is_raised():
    def fail():
        raise CloudError("second")

    with pytest.raises(CloudError, match="second"):
        together([lambda: 1, fail, lambda: 3])
    assert together([lambda: 1, lambda: 2]) == [1, 2]


def test_pages_are_read_at_the_same_time():
    most_at_once = []
    inside = []
    gate = threading.Barrier(4, timeout=30)

    def query(sql):
        at = int(sql.split("LIMIT ")[1].split(",")[0])
        if 400 <= at < 800:
            # passes only if four queries are here at the same time
            gate.wait()
            inside.append(at)
        most_at_once.append(at)
        return ["id"], [[at + n] for n in range(PAGE_ROWS)] if at < 1000 else []

    assert len(fetch(query, Selection("d")).rows) == 1000
    assert sorted(inside) == [400, 500, 600, 700]
