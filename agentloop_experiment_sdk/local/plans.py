"""Operations on experiment plans."""

from __future__ import annotations

import json
import uuid
from typing import Any, Dict, Tuple

from ..arguments import unusable
from .exchange import ServiceError
from .platform import PLAN, RUN, Call, Operation, Platform, invalid, page_of

_ALL = "/api/v1/experiments/{agentSpace}/plans"
_ONE = _ALL + "/{planId}"
_FIELDS: Dict[str, Any] = {
    "description": str,
    "datasetId": str,
    "datasetProject": str,
    "querySql": str,
    "selectedItemIds": list,
    "pipelineName": str,
    "input": dict,
    "evaluators": list,
    "experiments": list,
}
# the query_sql of a plan that reads its rows as they were added: by a name of SQLite's for the
# number of a row that is no column
AS_ADDED = ("ORDER BY rowid", "ORDER BY _rowid_", "ORDER BY oid")
_SAME_PLAN = uuid.UUID("8f5a3c1e-52d4-4c53-9a6b-2f7c1f0f4b7d")
_ONLY_IN_DETAIL = ("selectedItemIds", "evaluators", "experiments", "input")


def check_experiment_type(given: Any) -> None:
    """Raise ConfigurationError unless the platform knows the type, in any letter case."""
    if not isinstance(given, str) or given.lower() not in ("offline", "online"):
        raise unusable("experiment_type", given, '"offline" or "online"')


def add_plan(
    platform: Platform, space: str, name: str, experiment_type: str, fields: Dict[str, Any]
) -> str:
    """Store a new plan and return its id."""
    return _store(platform, space, "exp-plan-" + uuid.uuid4().hex, name, experiment_type, fields)


def known_plan(
    platform: Platform, space: str, name: str, experiment_type: str, fields: Dict[str, Any]
) -> str:
    """Store a plan unless the same one is there, and return its id.

    The id is made from what the plan says, so that a script that is run again goes on with its
    experiment, also when the data of the earlier run is gone. ``AS_ADDED`` says nothing about
    which rows it has, so it is the same plan with it and without.
    """
    as_added = fields["querySql"] in AS_ADDED
    which = dict(fields, querySql="") if as_added else fields
    said = json.dumps([space, name, experiment_type, which], sort_keys=True, default=str)
    plan_id = "exp-plan-" + uuid.uuid5(_SAME_PLAN, said).hex
    known = platform.store.get(PLAN, space, plan_id)
    if known is None:
        _store(platform, space, plan_id, name, experiment_type, fields)
    elif as_added:
        platform.store.put(PLAN, space, plan_id, dict(known, querySql=fields["querySql"]))
    return plan_id


def _store(
    platform: Platform,
    space: str,
    plan_id: str,
    name: str,
    experiment_type: str,
    fields: Dict[str, Any],
) -> str:
    now = platform.now_ms()
    document = {
        "planId": plan_id,
        "planName": name,
        "experimentType": experiment_type.lower(),
        "description": "",
        "datasetId": "",
        "querySql": "",
        "pipelineName": "",
        "status": "pending",
        "createdAt": now,
        "updatedAt": now,
        "evaluators": [],
        "experiments": [],
    }
    platform.store.put(PLAN, space, plan_id, dict(document, **fields))
    return plan_id


def get_plan(platform: Platform, space: str, plan_id: str) -> Dict[str, Any]:
    """A plan that must exist."""
    platform.space(space)
    return platform.require(PLAN, space, plan_id, "ExperimentPlanNotExist", "experiment plan")


def _create(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    name, kind = call.required("planName"), call.required("experimentType")
    if kind not in ("OFFLINE", "ONLINE"):
        raise invalid("experimentType must be OFFLINE or ONLINE")
    if any(plan["planName"] == name for plan in platform.store.list(PLAN, call.space)):
        raise ServiceError(
            409, "ExperimentPlanAlreadyExist", "A plan named {} exists already.".format(name)
        )
    plan_id = add_plan(platform, call.space, name, kind, call.optional(_FIELDS))
    return {"planId": plan_id, "status": "created", "message": ""}


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    return get_plan(platform, call.space, call.path["planId"])


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    named, status = call.text("planName"), call.text("status")
    plans = [
        plan
        for plan in reversed(platform.store.list(PLAN, call.space))
        if named in plan["planName"] and status in ("", plan["status"])
    ]
    limit = call.number("limit", 20) or 20
    offset = call.number("offset", 0)
    runs = [run["experimentPlanId"] for run in platform.store.list(RUN, call.space)]
    return {
        "total": len(plans),
        "page": offset // limit,
        "pageSize": limit,
        "plans": [
            _item(plan, runs.count(plan["planId"])) for plan in page_of(plans, offset, limit)
        ],
    }


def _item(plan: Dict[str, Any], runs: int) -> Dict[str, Any]:
    item = {key: value for key, value in plan.items() if key not in _ONLY_IN_DETAIL}
    item["experimentCount"] = runs
    return item


def _update(platform: Platform, call: Call) -> Dict[str, Any]:
    plan_id = call.path["planId"]
    plan = get_plan(platform, call.space, plan_id)
    plan.update(call.optional(dict(_FIELDS, planName=str)))
    plan["updatedAt"] = platform.now_ms()
    platform.store.put(PLAN, call.space, plan_id, plan)
    return {"planId": plan_id, "status": "updated", "message": ""}


def _delete(platform: Platform, call: Call) -> Dict[str, Any]:
    plan_id = call.path["planId"]
    get_plan(platform, call.space, plan_id)
    platform.store.delete(PLAN, call.space, plan_id)
    return {"planId": plan_id, "status": "deleted"}


OPERATIONS: Tuple[Operation, ...] = (
    Operation("CreateExperimentPlan", "POST", _ALL, _create),
    Operation("GetExperimentPlan", "GET", _ONE, _get),
    Operation("ListExperimentPlans", "GET", _ALL, _list),
    Operation("UpdateExperimentPlan", "PUT", _ONE, _update),
    Operation("DeleteExperimentPlan", "DELETE", _ONE, _delete),
)
