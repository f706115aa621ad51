"""Operations on experiment runs, which the platform also calls records."""

from __future__ import annotations

import time
import uuid
from typing import Any, Dict, List, Optional, Tuple

from .exchange import ServiceError
from .plans import get_plan
from .platform import RUN, Call, Operation, Platform, invalid, page_of

_EXECUTE = "/api/v1/experimentruns/{agentSpace}/execute"
_ALL = "/api/v1/experimentruns/{agentSpace}/records"
_ONE = _ALL + "/{recordId}"
_TOKEN = "client-token"
_STATUSES = (
    "pending",
    "running",
    "completed",
    "failed",
    "cancelled",
    "evaluating",
    "timeout",
)
_FIELDS: Dict[str, Any] = {
    "status": str,
    "recordName": str,
    "totalTasks": int,
    "completedTasks": int,
    "failedTasks": int,
    "executedAt": int,
    "completedAt": int,
}
_FROM_PLAN = ("datasetId", "datasetProject", "querySql", "selectedItemIds", "input", "evaluators")


def get_run(platform: Platform, space: str, record_id: str) -> Dict[str, Any]:
    """A record that must exist, with its progress."""
    platform.space(space)
    run = platform.require(RUN, space, record_id, "ExperimentRecordNotExist", "experiment record")
    done = run["completedTasks"] + run["failedTasks"]
    run["progress"] = round(100.0 * done / run["totalTasks"], 2) if run["totalTasks"] else 0.0
    return run


def _create(platform: Platform, call: Call) -> Dict[str, Any]:
    plan = get_plan(platform, call.space, call.required("experimentPlanId"))
    experiments = _experiments(call, plan)
    fields = _fields(call)
    token = call.text("clientToken")
    known = _known(platform, call.space, token)
    if known is not None:
        return {"recordId": known["recordId"], "status": known["status"], "message": ""}
    record = _new_record(platform, plan, experiments)
    record.update(fields)
    platform.store.put(RUN, call.space, record["recordId"], record)
    if token:
        platform.store.put(_TOKEN, call.space, token, {"recordId": record["recordId"]})
    return {"recordId": record["recordId"], "status": record["status"], "message": ""}


def _known(platform: Platform, space: str, token: str) -> Optional[Dict[str, Any]]:
    """The record that this client token has created before."""
    if not token or platform.faults.ignores_client_tokens:
        return None
    made = platform.store.get(_TOKEN, space, token)
    return None if made is None else platform.store.get(RUN, space, made["recordId"])


def _experiments(call: Call, plan: Dict[str, Any]) -> List[Dict[str, Any]]:
    experiments = call.body.get("offlineExperiments") or []
    if not isinstance(experiments, list) or not all(isinstance(one, dict) for one in experiments):
        raise invalid("offlineExperiments must be a list of objects")
    if plan["experimentType"] == "offline" and not 1 <= len(experiments) <= 5:
        raise invalid("offlineExperiments must have 1 to 5 entries for an offline plan")
    return experiments


def _fields(call: Call) -> Dict[str, Any]:
    fields = call.optional(_FIELDS)
    if fields.get("status", "pending") not in _STATUSES:
        raise invalid("status must be one of {}".format(", ".join(_STATUSES)))
    for name, value in fields.items():
        if isinstance(value, int) and value < 0:
            raise invalid("{} must be 0 or more".format(name))
    return fields


def _new_record(
    platform: Platform, plan: Dict[str, Any], experiments: List[Dict[str, Any]]
) -> Dict[str, Any]:
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(platform.now()))
    partial = plan.get("selectedItemIds") or plan["querySql"]
    record = {
        "recordId": str(uuid.uuid4()),
        "recordName": "{} {}".format(plan["planName"], stamp),
        "experimentPlanId": plan["planId"],
        "planName": plan["planName"],
        "status": "pending",
        "totalTasks": 0,
        "completedTasks": 0,
        "failedTasks": 0,
        "errorMessage": "",
        "dataSourceType": "dataset-partial" if partial else "dataset-full",
        "modelNames": [],
        "evaluationTaskId": "",
        "experimentConfig": experiments,
    }
    record.update({name: plan[name] for name in _FROM_PLAN if name in plan})
    return record


def _update(platform: Platform, call: Call) -> Dict[str, Any]:
    record_id = call.path["recordId"]
    record = get_run(platform, call.space, record_id)
    fields = _fields(call)
    platform.store.add_update(record_id, call.body)
    refused = platform.faults.reopening(record["status"], fields.get("status", ""))
    if refused is not None:
        if not refused.answer:
            raise ServiceError(
                refused.status, refused.code, "The record {} has ended.".format(record_id)
            )
        kept = record["status"] if refused.answer == "persisted" else refused.answer
        return {"recordId": record_id, "status": kept, "message": ""}
    record.update(fields)
    platform.store.put(RUN, call.space, record_id, record)
    return {"recordId": record_id, "status": record["status"], "message": ""}


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    run = get_run(platform, call.space, call.path["recordId"])
    return {"regionId": platform.settings.region_id, "record": run}


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    page, size = call.number("page", 0), call.number("pageSize", 20) or 20
    runs = [
        run for run in reversed(platform.store.list(RUN, call.space)) if _is_asked_for(run, call)
    ]
    records = [
        get_run(platform, call.space, run["recordId"]) for run in page_of(runs, page * size, size)
    ]
    return {"total": len(runs), "page": page, "pageSize": size, "records": records}


def _is_asked_for(run: Dict[str, Any], call: Call) -> bool:
    names = [str(one.get("name", "")) for one in run["experimentConfig"]]
    named = call.text("experimentName")
    return (
        call.text("status") in ("", run["status"])
        and call.text("datasetId") in ("", run.get("datasetId"))
        and call.text("planName") in run["planName"]
        and (not named or any(named in name for name in names))
    )


def _delete(platform: Platform, call: Call) -> Dict[str, Any]:
    record_id = call.path["recordId"]
    get_run(platform, call.space, record_id)
    platform.store.delete(RUN, call.space, record_id)
    return {}


OPERATIONS: Tuple[Operation, ...] = (
    Operation("CreateExperimentRun", "POST", _EXECUTE, _create),
    Operation("UpdateExperimentRun", "PUT", _ONE, _update),
    Operation("GetExperimentRun", "GET", _ONE, _get),
    Operation("ListExperimentRuns", "GET", _ALL, _list),
    Operation("DeleteExperimentRun", "DELETE", _ONE, _delete),
)
