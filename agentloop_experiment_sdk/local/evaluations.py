"""Evaluation tasks as far as they are read: a record's scores lie in logstore evaluation_detail."""

from __future__ import annotations

import json
import uuid
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from .exchange import ServiceError
from .platform import EVALUATION, RUN, SPACE, Call, Operation, Platform, token_page
from .sls_resources import SCORES

_TASKS = "/api/v1/evaluation-task/{agentSpace}/{taskId}"


def add_scores(
    platform: Platform, record_id: str, rows: Sequence[Mapping[str, Any]], status: str
) -> str:
    """Write score rows for a record and link it to its evaluation task; returns the task's id.

    Raises:
        KeyError: There is no such record.
    """
    found = platform.store.find(RUN, record_id)
    if found is None:
        raise KeyError("no record {}".format(record_id))
    space, record = found
    task_id = record["evaluationTaskId"] or "eval-task-" + uuid.uuid4().hex
    task = platform.store.get(EVALUATION, space, task_id) or _new_task(platform, task_id, record)
    counts = [str(row.get("status", "success")) for row in rows]
    task["successCount"] += counts.count("success")
    task["failedCount"] += counts.count("failed")
    task["totalCount"] += len(rows)
    task["status"] = status
    platform.store.put(EVALUATION, space, task_id, task)
    platform.store.put(RUN, space, record_id, dict(record, evaluationTaskId=task_id))
    project = platform.space(space)["slsProject"]
    platform.store.add_logs(project, SCORES, [_row(platform, space, task, row) for row in rows])
    return task_id


def _new_task(platform: Platform, task_id: str, record: Mapping[str, Any]) -> Dict[str, Any]:
    now = int(platform.now())
    return {
        "taskId": task_id,
        "taskName": record["recordName"],
        "runId": "eval-run-" + uuid.uuid4().hex,
        "evaluators": record.get("evaluators", []),
        "status": "running",
        "totalCount": 0,
        "successCount": 0,
        "failedCount": 0,
        "createdAt": now,
        "updatedAt": now,
    }


def _row(
    platform: Platform, space: str, task: Mapping[str, Any], row: Mapping[str, Any]
) -> Dict[str, str]:
    fields = {
        "timestamp": platform.now_ms(),
        "task_id": task["taskId"],
        "run_id": task["runId"],
        "eval_id": uuid.uuid4().hex,
        "agentSpace": space,
        "region_id": platform.settings.region_id,
        "status": "success",
        "task_name": task["taskName"],
        "task_mode": "batch",
        "channel": "experiment",
        "__time__": int(platform.now()),
        "__topic__": "",
        "__source__": "local",
    }
    fields.update(row)
    return {name: log_text(value) for name, value in fields.items()}


def log_text(value: Any) -> str:
    """A value as the text of a log field."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _task(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    return platform.require(
        EVALUATION, call.space, call.path["taskId"], "EvaluationTaskNotExist", "evaluation task"
    )


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    return _public(platform, call.space, _task(platform, call))


def _public(platform: Platform, space: str, task: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "taskId": task["taskId"],
        "taskName": task["taskName"],
        "status": task["status"],
        "taskMode": "batch",
        "dataType": "experiment",
        "channel": "experiment",
        "config": {},
        "dataFilter": "{}",
        "evaluators": task["evaluators"],
        "agentSpace": space,
        "regionId": platform.settings.region_id,
        "createdAt": task["createdAt"],
        "updatedAt": task["updatedAt"],
    }


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    space = call.text("agentSpace")
    platform.require(SPACE, "", space, "AgentSpaceNotExist", "agent space")
    tasks: List[Dict[str, Any]] = []
    # tasks born from experiments are listed only when their channel is asked for
    if call.text("channel") == "experiment":
        tasks = [_public(platform, space, task) for task in platform.store.list(EVALUATION, space)]
    for task in tasks:
        task["evaluators"] = json.dumps(task["evaluators"])
    named, status = call.text("taskName"), call.text("status")
    tasks = [task for task in tasks if named in task["taskName"] and status in ("", task["status"])]
    page, token = token_page(call, tasks)
    return {
        "totalCount": len(tasks),
        "maxResults": len(page),
        "nextToken": token,
        "evaluationTasks": page,
    }


def _runs(platform: Platform, call: Call) -> Dict[str, Any]:
    run = _run(_task(platform, call))
    shown = [run] if call.text("status") in ("", run["status"]) else []
    return {
        "totalCount": len(shown),
        "maxResults": 20,
        "nextToken": "",
        "evaluationRuns": shown,
    }


def _get_run(platform: Platform, call: Call) -> Dict[str, Any]:
    task = _task(platform, call)
    run = _run(task)
    if run["runId"] != call.path["runId"]:
        raise ServiceError(404, "EvaluationRunNotExist", "There is no such evaluation run.")
    progress: List[Dict[str, Any]] = []
    return dict(run, evaluators=json.dumps(task["evaluators"]), evaluatorProgress=progress)


def _run(task: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "runId": task["runId"],
        "runName": task["taskName"],
        "runType": "batch",
        "taskId": task["taskId"],
        "status": task["status"],
        "totalCount": task["totalCount"],
        "successCount": task["successCount"],
        "failedCount": task["failedCount"],
        "createdAt": task["createdAt"],
        "updatedAt": task["updatedAt"],
    }


OPERATIONS: Tuple[Operation, ...] = (
    Operation("GetEvaluationTask", "GET", _TASKS, _get),
    Operation("ListEvaluationTasks", "GET", "/api/v1/evaluation-tasks", _list),
    Operation("ListEvaluationRuns", "GET", _TASKS + "/runs", _runs),
    Operation("GetEvaluationRun", "GET", _TASKS + "/run/{runId}", _get_run),
)
