"""One result to the fields of its ``experiment_detail`` row. Pure."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .. import jsontext
from ..models import Plan, Task

Field = Tuple[str, str]


@dataclass(frozen=True)
class RowContext:
    """What all rows of a run share."""

    plan: Plan
    record_id: str
    record_name: str
    start_time_ms: int
    config: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> List[Field]:
        """The leading fields, equal in every row; build them once."""
        plan = self.plan
        metadata = {
            "run_env": "local_run",
            "record_id": self.record_id,
            "record_name": self.record_name,
            "experiment_group_name": plan.experiment_name,
            "plan_id": plan.plan_id,
            "plan_name": plan.plan_name,
        }
        return [
            ("experiment_id", jsontext.sls_text(self.record_id)),
            ("experiment_name", jsontext.sls_text(plan.experiment_name)),
            ("experiment_start_time", str(self.start_time_ms)),
            ("experiment_type", "agent"),
            ("experiment_metadata", jsontext.dumps(metadata)),
            _config_field(self.config),
        ]


@dataclass(frozen=True)
class Answer:
    """An answered attempt as its row needs it.

    ``output`` and ``meta`` are those of ``solution.json``; ``metrics`` are the scores of local
    evaluators; ``pipeline`` is the first row of the plan's pipeline, None without one. ``config``
    is what answered if that may be another version than the run's.
    """

    task: Task
    repeat_id: str
    number: int
    success: bool
    output: Any
    meta: Mapping[str, Any]
    latency_ms: float
    trace_id: Optional[str] = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Optional[Mapping[str, Any]] = None
    config: Optional[Mapping[str, Any]] = None


def detail_row(context: RowContext, shared: List[Field], answer: Answer) -> List[Field]:
    """The fields of one row, in order; every key and value is text.

    Args:
        context: What all rows share.
        shared: ``context.fields()``.
        answer: The attempt.
    """
    meta = answer.meta
    row = list(shared)
    if answer.config is not None:
        row[-1] = _config_field(answer.config)
    row += [
        ("task_id", answer.task.id),
        ("repeat_id", answer.repeat_id),
        ("attempt", str(answer.number)),
        ("data_config", _data_config(context.plan, answer.task)),
        ("experiment_input", jsontext.sls_text(asked(answer.task, meta))),
        ("experiment_output", output_text(answer.success, answer.output, meta)),
        ("status", "success" if answer.success else "failed"),
    ]
    if answer.trace_id:
        row.append(("traceId", answer.trace_id))
    session_id = _text(meta.get("session_id"))
    if session_id:
        row.append(("session_id", session_id))
    row.append(("experiment_metrics", jsontext.dumps(measured(answer))))
    row += [
        ("dataset." + jsontext.clean_text(str(column)), jsontext.sls_text(value))
        for column, value in answer.task.input.items()
    ]
    if context.plan.pipeline_name:
        row.append(("pipeline_name", jsontext.sls_text(context.plan.pipeline_name)))
        row += [
            ("pipeline." + jsontext.clean_text(str(name)), jsontext.sls_text(value))
            for name, value in (answer.pipeline or {}).items()
            if value is not None
        ]
    return row


def _config_field(config: Mapping[str, Any]) -> Field:
    """The last of the leading fields."""
    return ("experiment_config", jsontext.dumps(config))


def asked(task: Task, meta: Mapping[str, Any]) -> Any:
    """What the agent was asked: as the solution says, else the dataset's row."""
    value = meta.get("experiment_input")
    return task.input if value is None else value


def output_text(success: bool, output: Any, meta: Mapping[str, Any]) -> str:
    """The answer, or ``ERROR: <type> - <message>`` of a failed row."""
    if success:
        return jsontext.sls_text(output)
    return "ERROR: {} - {}".format(
        _text(meta.get("error_type")) or "UnknownError", _text(meta.get("error_message"))
    )


def _text(value: Any) -> str:
    """The text of a fact that may be absent; a solution may have put anything there."""
    return "" if value is None else jsontext.sls_text(value)


def measured(answer: Answer) -> Dict[str, Any]:
    """``experiment_metrics``: scores of local evaluators, latency and ttft in ms, token counts.

    What was measured keeps its name; a score of the same name is in the results directory only.
    """
    metrics: Dict[str, Any] = dict(answer.metrics)
    metrics["latency"] = round(answer.latency_ms, 3)
    ttft = answer.meta.get("ttft_ms")
    if isinstance(ttft, (int, float)) and not isinstance(ttft, bool):
        metrics["ttft"] = ttft
    usage = jsontext.to_jsonable(answer.meta.get("usage"))
    if isinstance(usage, dict):
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            count = usage.get(name)
            if isinstance(count, (int, float)) and not isinstance(count, bool) and count >= 0:
                metrics[name] = count
    return metrics


def _data_config(plan: Plan, task: Task) -> str:
    item_id = jsontext.dumps(str(task.metadata.get("dataset_item_id", "")))
    return _dataset_config(plan.project, plan.dataset) + item_id + "}"


@functools.lru_cache(maxsize=8)
def _dataset_config(project: str, dataset: str) -> str:
    """``data_config`` of a dataset's rows up to the id, which is all that differs."""
    config = {"data_type": "dataset", "project": project, "dataset_id": dataset}
    return jsontext.dumps(config)[:-1] + ',"dataset_item_id":'
