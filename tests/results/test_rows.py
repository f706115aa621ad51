"""The fields of a row in experiment_detail; the reference's table is the list of tests."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results_values import plan, task

from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.results.rows import Answer, RowContext, asked, detail_row

TASK = Task("t-1", {"id": 7, "q": "why?"}, metadata={"dataset_item_id": 0})


def context(config: Any = None, **changes: Any) -> RowContext:
    return RowContext(
        plan(**changes), "record-1", "nightly 2026/11/29 08:00:00", 1796025600000, config or {}
    )


def answer(output: Any = "ok", of: Task = TASK, success: bool = True, **changes: Any) -> Answer:
    meta = changes.pop("meta", {})
    return Answer(of, "0", 1, success, output, meta, 12.3456, **changes)


def row(of: Answer, **changes: Any) -> Dict[str, str]:
    shared = context(**changes)
    fields = detail_row(shared, shared.fields(), of)
    assert len(dict(fields)) == len(fields)
    return dict(fields)


def test_a_row_has_the_fields_of_the_reference_in_its_order() -> None:
    assert row(answer(trace_id="ab" * 16)) == {
        "experiment_id": "record-1",
        "experiment_name": "experimentA",
        "experiment_start_time": "1796025600000",
        "experiment_type": "agent",
        "experiment_metadata": '{"run_env":"local_run","record_id":"record-1",'
        '"record_name":"nightly 2026/11/29 08:00:00","experiment_group_name":"experimentA",'
        '"plan_id":"plan-1","plan_name":"nightly"}',
        "experiment_config": "{}",
        "task_id": "t-1",
        "repeat_id": "0",
        "attempt": "1",
        "data_config": '{"data_type":"dataset","project":"proj","dataset_id":"faq",'
        '"dataset_item_id":"0"}',
        "experiment_input": '{"id":7,"q":"why?"}',
        "experiment_output": "ok",
        "status": "success",
        "traceId": "ab" * 16,
        "experiment_metrics": '{"latency":12.346}',
        "dataset.id": "7",
        "dataset.q": "why?",
    }
    names = [name for name, _ in detail_row(context(), context().fields(), answer())]
    assert names[:6] == [name for name, _ in context().fields()]


@pytest.mark.parametrize(
    "value, text",
    [
        ("as it is \n", "as it is \n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (1.5, "1.5"),
        (math.nan, "null"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (["é"], '["é"]'),
        ("\ud835", "\ufffd"),
        (b"x", "x"),
    ],
)
def test_values_become_the_texts_of_the_interface(value: Any, text: str) -> None:
    of = Task("t", {"column": value})
    assert row(answer(value, of))["experiment_output"] == text
    assert row(answer(value, of))["dataset.column"] == text


def test_a_failed_row_says_what_went_wrong() -> None:
    meta = {"error_type": "HTTPError", "error_message": "HTTP 502 Bad Gateway: gone\ud800"}
    found = row(answer("", success=False, meta=meta))
    assert found["status"] == "failed"
    assert found["experiment_output"] == "ERROR: HTTPError - HTTP 502 Bad Gateway: gone\ufffd"
    assert row(answer("", success=False))["experiment_output"] == "ERROR: UnknownError - "
    odd = row(answer("", success=False, meta={"error_type": ValueError, "error_message": [1]}))
    assert odd["experiment_output"] == "ERROR: <class 'ValueError'> - [1]"


def test_a_skipped_conversation_counts_as_success() -> None:
    found = row(answer({"skipped": True, "reason": "no turns"}, meta={"skipped": True}))
    assert found["status"] == "success"
    assert json.loads(found["experiment_output"]) == {"skipped": True, "reason": "no turns"}


@pytest.mark.parametrize(
    "given, text", [("asked", "asked"), ({"a": 1}, '{"a":1}'), ("", ""), (0, "0")]
)
def test_what_was_asked_is_what_the_solution_says(given: Any, text: str) -> None:
    assert row(answer(meta={"experiment_input": given}))["experiment_input"] == text


def test_what_was_asked_is_the_row_unless_the_solution_says_otherwise() -> None:
    assert asked(TASK, {}) is TASK.input
    assert asked(TASK, {"experiment_input": None}) is TASK.input


def test_no_trace_id_is_invented() -> None:
    assert "traceId" not in row(answer())


def test_a_conversation_names_its_session() -> None:
    assert row(answer(meta={"session_id": "sess-1"}))["session_id"] == "sess-1"
    assert "session_id" not in row(answer(meta={"session_id": ""}))
    assert "session_id" not in row(answer(meta={"session_id": None}))


def test_metrics_hold_what_was_measured_and_scored() -> None:
    usage = {"input_tokens": 3, "output_tokens": None, "total_tokens": 9, "model": "m"}
    found = row(answer(meta={"usage": usage, "ttft_ms": 4.5}, metrics={"exact": True}))
    assert json.loads(found["experiment_metrics"]) == {
        "latency": 12.346,
        "ttft": 4.5,
        "input_tokens": 3,
        "total_tokens": 9,
        "exact": True,
    }
    for meta in ({"usage": "x", "ttft_ms": True}, {"usage": None, "ttft_ms": "1"}):
        assert json.loads(row(answer(meta=meta))["experiment_metrics"]) == {"latency": 12.346}


def test_a_score_does_not_take_the_name_of_a_measurement() -> None:
    found = row(answer(metrics={"latency": "good", "other": 1}))
    assert json.loads(found["experiment_metrics"]) == {"latency": 12.346, "other": 1}


def test_the_configuration_says_what_is_true() -> None:
    found = row(answer(), config={"version": "v2", "parameters": {"t": 0.5}})
    assert found["experiment_config"] == '{"version":"v2","parameters":{"t":0.5}}'


def test_pipeline_fields_are_those_with_a_value() -> None:
    fields = {"answer": "x", "score": 0.95, "gone": None, "empty": "", "no": False}
    found = row(answer(pipeline=fields), pipeline_name="clean")
    pipeline = {name: text for name, text in found.items() if name.startswith("pipeline")}
    assert pipeline == {
        "pipeline_name": "clean",
        "pipeline.answer": "x",
        "pipeline.score": "0.95",
        "pipeline.empty": "",
        "pipeline.no": "false",
    }
    assert found["experiment_output"] == "ok"


def test_a_row_without_pipeline_fields_still_names_the_pipeline() -> None:
    found = row(answer(), pipeline_name="clean")
    assert found["pipeline_name"] == "clean"
    assert not [name for name in found if name.startswith("pipeline.")]
    assert "pipeline_name" not in row(answer(pipeline={"a": 1}))


def test_an_answer_that_was_tried_again_says_which_try_it_is() -> None:
    of = Answer(task(1), "3", 2, True, "ok", {}, 1.0)
    assert (row(of)["attempt"], row(of)["repeat_id"]) == ("2", "3")


class Odd:
    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __repr__(self) -> str:
        return "odd\udc00"


texts = st.text(st.characters(), max_size=6)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=4))
    | st.builds(Odd),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FACTS = (
    "experiment_input",
    "error_type",
    "error_message",
    "session_id",
    "usage",
    "ttft_ms",
)
metas = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("experiment_input", "error_type", "error_message", "session_id", "usage", "ttft_ms"),
        values,
    ),
)


@settings(max_examples=80)
@given(
    columns=st.dictionaries(texts, values, max_size=3),
    output=values,
    success=st.booleans(),
    meta=metas,
    pipeline=st.none() | st.dictionaries(texts, values, max_size=3),
    metrics=st.dictionaries(texts, values, max_size=2),
    name=texts,
)
def test_every_key_and_value_of_any_row_can_be_written_as_utf8(
    columns: Any, output: Any, success: bool, meta: Any, pipeline: Any, metrics: Any, name: str
) -> None:
    shared = context({"parameters": metrics}, plan_name=name, pipeline_name=name, dataset=name)
    of = answer(
        output,
        Task("t", columns, metadata={"dataset_item_id": output}),
        success,
        meta=meta,
        pipeline=pipeline,
        metrics=metrics,
    )
    fields: List[Tuple[Any, Any]] = detail_row(shared, shared.fields(), of)
    for key, value in fields:
        assert type(key) is str and type(value) is str
        key.encode("utf-8") + value.encode("utf-8")
    json.loads(dict(fields)["experiment_metrics"])
