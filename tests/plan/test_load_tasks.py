"""From a plan to its tasks, with the official client against a LocalAgentLoop."""

import logging

import pytest

from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi
from agentloop_experiment_sdk.errors import ConfigurationError, DatasetError, EmptyDatasetError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.plan.config import AgentLoopConfig
from agentloop_experiment_sdk.plan.tasks import load_tasks


@pytest.fixture
def local():
    with LocalAgentLoop() as local:
        yield local


@pytest.fixture
def load(local):
    """Loads the tasks of a plan over ``rows`` that is made with ``plan`` and ``settings``."""

    def load(rows, plan=None, limit=None, item_ids=None, name="faq", **settings):
        at = local.endpoints
        local.load_dataset(rows, name=name)
        config = AgentLoopConfig(
            agent_space=at.agent_space,
            experiment_plan_id=local.create_plan(dataset=name, **(plan or {})),
            region_id=at.region_id,
            agentloop_endpoint=at.agentloop_endpoint,
            access_key_id=at.access_key_id,
            access_key_secret=at.access_key_secret,
            **settings,
        )
        api = AgentLoopApi(config.connection.access(), sleep=lambda seconds: None)
        resolved = config.resolve_experiment_plan(api=api)
        return load_tasks(api, resolved, limit=limit, item_ids=item_ids)

    return load


def items(tasks):
    return [task.metadata["dataset_item_id"] for task in tasks]


def numbered(count):
    return [{"id": "{:04d}".format(n), "q": n, "level": n % 4} for n in range(count)]


def test_rows_arrive_whole_and_in_the_order_of_their_ids(load):
    rows = [
        {
            "id": "b",
            "q": "\u4f60\u597d 'x'",
            "n": 1.5,
            "flag": True,
            "j": {"a": [None, 1]},
            "e": "",
        },
        {"id": "a", "q": None, "n": 2, "flag": False, "j": [], "e": "x"},
    ]
    tasks = load(rows, ground_truth_field="q")
    assert [task.input for task in tasks] == rows[::-1]
    assert [task.ground_truth for task in tasks] == [None, "\u4f60\u597d 'x'"]
    assert tasks[0].metadata == {"dataset": "faq", "dataset_item_id": "a"}


def test_250_rows_come_once_each_in_pages(load, local):
    assert items(load(numbered(250))) == [row["id"] for row in numbered(250)]
    assert local.requests["ExecuteQuery"] <= 4


def test_the_same_rows_have_the_same_ids_in_every_run(load):
    first = load(numbered(150))
    with LocalAgentLoop() as other:
        other.load_dataset(numbered(150)[::-1], name="faq")
        at = other.endpoints
        config = AgentLoopConfig(
            at.agent_space,
            other.create_plan(dataset="faq"),
            at.region_id,
            agentloop_endpoint=at.agentloop_endpoint,
            access_key_id=at.access_key_id,
            access_key_secret=at.access_key_secret,
        )
        api = AgentLoopApi(config.connection.access())
        again = load_tasks(api, config.resolve_experiment_plan(api=api))
    assert [task.id for task in again] == [task.id for task in first]


def test_rows_with_equal_ids_are_all_kept(load):
    rows = [{"id": "dup", "q": str(n)} for n in range(230)] + [{"id": "", "q": "x"}] * 2
    tasks = load(rows)
    assert len(tasks) == 232 and len({task.id for task in tasks}) == 232


def test_a_dataset_without_an_id_column_is_loaded(load):
    tasks = load([{"q": n, "order": "x"} for n in range(130)])
    assert sorted(task.input["q"] for task in tasks) == list(range(130))
    assert items(tasks) == [""] * 130


@pytest.mark.parametrize("name", ["my-set", "order", "a b", "it's", '"quoted"', "\u6570\u636e/1"])
def test_any_dataset_name_is_quoted(load, name):
    assert items(load(numbered(3), name=name)) == ["0000", "0001", "0002"]


@pytest.mark.parametrize(
    ("query_sql", "count"),
    [
        ("level > 2", 50),
        ("WHERE level > 2;", 50),
        ("where level = 1 OR level = 2", 100),
        ("level > 2 -- hard ones", 50),
        ("level > 2 LIMIT 10", 10),
    ],
)
def test_the_plans_condition_narrows_the_rows(load, caplog, query_sql, count):
    with caplog.at_level(logging.WARNING):
        tasks = load(numbered(200), {"query_sql": query_sql})
    assert len(tasks) == count and caplog.text == ""


def test_the_plans_order_decides_which_rows_max_rows_keeps(load):
    tasks = load(numbered(40), {"query_sql": "level > 2 ORDER BY q DESC"}, max_rows=3)
    assert [task.input["q"] for task in tasks] == [39, 35, 31]


@pytest.mark.parametrize("max_rows", [1, 7, 100, 130])
def test_max_rows_is_a_hard_limit_that_is_said(load, caplog, max_rows):
    with caplog.at_level(logging.WARNING):
        tasks = load(numbered(250), max_rows=max_rows)
    assert items(tasks) == [row["id"] for row in numbered(max_rows)]
    (record,) = caplog.records
    assert "leaves out {} of 250 rows".format(250 - max_rows) in record.getMessage()


def test_max_rows_counts_the_rows_of_the_condition(load, caplog):
    load(numbered(200), {"query_sql": "level > 2"}, max_rows=20)
    assert "leaves out 30 of 50 rows" in caplog.text


def test_max_rows_that_just_fits_is_silent(load, caplog):
    with caplog.at_level(logging.WARNING):
        assert len(load(numbered(120), max_rows=120)) == 120
    assert caplog.text == ""


def test_a_limit_for_a_part_of_the_dataset_is_no_reason_to_warn(load, caplog):
    with caplog.at_level(logging.WARNING):
        assert len(load(numbered(20), limit=3)) == 3
    assert caplog.text == ""


def test_rows_that_cannot_be_counted_are_left_out_with_a_warning(load, local, caplog):
    local.faults.fail("ExecuteQuery", 400, "InvalidQuery", containing="count(")
    assert len(load(numbered(20), max_rows=5)) == 5
    assert "max_rows=5 was reached" in caplog.text


def test_more_than_100_selected_ids_are_all_loaded_in_the_plans_order(load, local):
    ids = ["it's {:03d}".format(n) for n in range(450)]
    rows = [{"id": item, "q": item} for item in sorted(ids)] + [{"id": "other", "q": 1}]
    assert items(load(rows, {"selected_item_ids": ids[::-1]})) == ids[::-1]
    assert local.requests["ExecuteQuery"] == 5


def test_selected_ids_win_over_the_condition(load):
    plan = {"selected_item_ids": ["0001", "0002"], "query_sql": "level = 1"}
    assert items(load(numbered(10), plan)) == ["0001", "0002"]


def test_selected_ids_that_are_repeated_in_the_dataset_yield_all_their_rows(load):
    rows = [{"id": "id-{}".format(n % 120), "q": n} for n in range(480)]
    plan = {"selected_item_ids": ["id-{}".format(n) for n in range(120)]}
    tasks = load(rows, plan)
    assert sorted(task.input["q"] for task in tasks) == list(range(480))


def test_selected_ids_of_a_dataset_with_numbers_are_found(load, caplog):
    rows = [{"id": n, "q": n} for n in range(150)]
    plan = {"selected_item_ids": [str(n) for n in range(120)] + ["nope"]}
    tasks = load(rows, plan)
    assert [task.input["id"] for task in tasks] == list(range(120))
    assert "1 selected id is not in dataset faq: 'nope'" in caplog.text


def test_missing_selected_ids_are_counted_and_named(load, caplog):
    wanted = ["0001"] + ["gone-{}".format(n) for n in range(7)]
    assert items(load(numbered(5), {"selected_item_ids": wanted})) == ["0001"]
    assert "7 selected ids are not in dataset faq: 'gone-0'" in caplog.text
    assert "'gone-4', \u2026" in caplog.text and "gone-5" not in caplog.text


def test_a_dataset_that_does_not_compare_ids_with_numbers_still_loads(load, local, caplog):
    local.faults.fail("ExecuteQuery", 400, "TypeMismatch", containing="id IN (7)")
    assert items(load(numbered(5), {"selected_item_ids": ["0001", "7"]})) == ["0001"]
    assert "'7'" in caplog.text


def test_max_rows_holds_for_selected_ids_too(load, caplog):
    ids = [row["id"] for row in numbered(600)]
    tasks = load(numbered(600), {"selected_item_ids": ids}, max_rows=130)
    assert items(tasks) == ids[:130]
    assert "leaves out 470 of 600 rows" in caplog.text


def test_item_ids_run_a_part_in_the_order_given(load):
    assert items(load(numbered(9), item_ids=["0007", "0002"])) == ["0007", "0002"]
    assert items(load([{"id": 0}, {"id": 1}], item_ids=(0,), name="other")) == ["0"]


def test_item_ids_keep_to_the_plans_condition(load, caplog):
    tasks = load(numbered(9), {"query_sql": "level = 1 OR level = 2"}, item_ids=["0003", "0005"])
    assert items(tasks) == ["0005"]
    assert "'0003'" in caplog.text


def test_item_ids_are_not_cut_by_the_plans_limit(load):
    plan = {"query_sql": "level < 3 ORDER BY q DESC LIMIT 2, 1"}
    assert items(load(numbered(9), plan, item_ids=["0001", "0002"])) == ["0001", "0002"]


def test_item_ids_keep_to_the_plans_selection(load, caplog):
    plan = {"selected_item_ids": ["0001", "0002"]}
    assert items(load(numbered(9), plan, item_ids=["0002", "0003"])) == ["0002"]
    assert "1 selected id is not selected by plan" in caplog.text


def test_item_ids_outside_the_selection_leave_nothing(load, local):
    with pytest.raises(EmptyDatasetError, match="item_ids given to this run"):
        load(numbered(9), {"selected_item_ids": ["0001"]}, item_ids=["0003"])


@pytest.mark.parametrize("item_ids", [[], "0001", b"0001"])
def test_item_ids_must_be_a_list_with_something_in_it(load, item_ids):
    with pytest.raises(ConfigurationError, match="item_ids"):
        load(numbered(3), item_ids=item_ids)


@pytest.mark.parametrize("limit", [0, -1, True, "3", 1.5])
def test_limit_must_be_a_whole_number_above_zero(load, limit):
    with pytest.raises(ConfigurationError, match="limit"):
        load(numbered(3), limit=limit)


def test_an_empty_result_names_what_narrows_it(load):
    with pytest.raises(EmptyDatasetError) as caught:
        load(numbered(5), {"query_sql": "level > 99"}, max_rows=12)
    text = str(caught.value)
    assert "faq" in text and "'level > 99'" in text and "max_rows=12" in text
    assert "selected_item_ids=[]" in text


def test_an_empty_selection_shows_the_first_ids_only(load):
    ids = ["x{}".format(n) for n in range(8)]
    with pytest.raises(EmptyDatasetError, match=r"'x4'\] and 3 more"):
        load(numbered(5), {"selected_item_ids": ids})


def test_bad_sql_is_told_with_code_and_request_id(load):
    with pytest.raises(DatasetError) as caught:
        load(numbered(5), {"query_sql": "levle > 2"})
    error, text = caught.value, str(caught.value)
    assert error.code in text and error.request_id in text
    assert "levle > 2" in text and "faq" in text


def test_a_missing_dataset_is_told_with_its_name(load, local):
    local.faults.fail("ExecuteQuery", 404, "DatasetNotExist")
    with pytest.raises(DatasetError, match="faq") as caught:
        load(numbered(5))
    assert caught.value.code == "DatasetNotExist"


def test_a_dropped_answer_in_the_middle_of_the_pages_costs_nothing(load, local):
    local.faults.drop("ExecuteQuery", stored=True, after=2, times=2)
    assert len(load(numbered(450))) == 450


def test_an_unknown_ground_truth_column_is_an_error(load):
    with pytest.raises(ConfigurationError, match="id, q, level"):
        load(numbered(2), ground_truth_field="gold")
