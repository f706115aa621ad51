"""A task's id depends on its row and nothing else."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.plan.tasks import NAMESPACE, build_tasks, task_id


def ids(rows, columns=("id", "q"), dataset="faq"):
    return [task.id for task in build_tasks(dataset, columns, rows)]


def test_the_ids_of_known_rows_never_change():
    # results of earlier versions are found again by these literal ids
    assert ids([["1", "hello"], [1, "\u4f60\u597d"], [None, None], ["1", "hello"]]) == PINNED


PINNED = [
    "9df16d1b-e1f7-5846-952c-c1ec9ca3dc1e",
    "7d4aa507-f574-50f2-848d-a8632b401d84",
    "c32f632a-8b04-5b6e-a161-e4f617cfba4c",
    "9c882b3c-f033-5675-bd69-83c18c8d0d46",
]


def test_equal_rows_are_kept_apart_by_their_ordinal():
    rows = [["dup", "a"], ["dup", "a"], ["dup", "b"], ["", "c"], ["", "c"]]
    assert len(set(ids(rows))) == 5


def test_the_order_of_rows_and_columns_does_not_matter():
    rows = [["1", "a"], ["2", "b"], ["1", "a"]]
    assert sorted(ids(rows[::-1])) == sorted(ids(rows))
    turned = [[question, item] for item, question in rows]
    assert ids(turned, ("q", "id")) == ids(rows)


def test_each_part_of_the_identity_counts():
    base = ids([["1", "a"]])
    assert ids([["1", "a"]], dataset="faq2") != base
    assert ids([["2", "a"]]) != base
    assert ids([["1", "b"]]) != base
    assert ids([["1", "a", None]], ("id", "q", "new")) != base


def test_the_type_of_a_value_counts():
    assert len({ids([["1", value]])[0] for value in (1, 1.5, "1", True, None, [1], {"a": 1})}) == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_any_json_value_makes_a_stable_task(item, value):
    (first,) = build_tasks("faq", ("id", "q"), [[item, value]])
    (again,) = build_tasks("faq", ("id", "q"), [[item, value]])
    assert first.id == again.id
    assert isinstance(first.metadata["dataset_item_id"], str)


@given(
    st.text(), st.text(), st.integers(0, 9), st.text("0123456789abcdef", min_size=64, max_size=64)
)
def test_an_id_is_a_version_5_uuid_of_the_rows_identity(dataset, item, ordinal, digest):
    name = json.dumps([dataset, item, ordinal, digest], separators=(",", ":"))
    assert task_id(dataset, item, ordinal, digest) == str(uuid.uuid5(NAMESPACE, name))


def test_lone_surrogates_and_nan_make_tasks_too():
    assert len(set(ids([["x\udcb2y", float("nan")], ["z", float("inf")]]))) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (0, "0"),
        (1.5, "1.5"),
        (True, "true"),
        (None, ""),
        ("", ""),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_metadata_names_the_dataset_and_the_id_as_text(value, text):
    (task,) = build_tasks("faq", ("id", "q"), [[value, "x"]])
    assert task.metadata == {"dataset": "faq", "dataset_item_id": text}
    assert task.input == {"id": value, "q": "x"} and json.dumps(task.input)


def test_a_row_without_an_id_has_an_empty_one():
    (task,) = build_tasks("faq", ("q",), [["x"]])
    assert task.metadata["dataset_item_id"] == ""


def test_ground_truth_is_the_named_column():
    tasks = build_tasks("faq", ("id", "gold"), [["1", "yes"], ["2", None]], "gold")
    assert [task.ground_truth for task in tasks] == ["yes", None]
    assert build_tasks("faq", ("id", "gold"), [["1", "yes"]])[0].ground_truth == ""


def test_an_unknown_ground_truth_column_lists_the_columns():
    with pytest.raises(ConfigurationError, match="id, gold"):
        build_tasks("faq", ("id", "gold"), [], "golden")
