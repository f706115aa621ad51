"""Operations on pipelines; a preview runs over the traces that have arrived by PutLogs."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Tuple

from .exchange import ServiceError
from .logs import LogAnswer, LogQuery, read_logs
from .platform import PIPELINE, Call, Operation, Platform, invalid, required_text, token_page
from .sls_resources import require_logstore

MAX_PREVIEW_ROWS = 5
_ALL = "/agentspace/{agentSpace}/pipeline"
_ONE = _ALL + "/{pipelineName}"
NAME = re.compile(r"[a-z0-9-]{3,63}")
_SYSTEM = ("__time__", "__source__", "__topic__")
# unix seconds stay below this for 3000 years; milliseconds are above it since 1973
_MAX_SECONDS = 100_000_000_000


def add_pipeline(platform: Platform, space: str, name: str, fields: Dict[str, Any]) -> None:
    """Store a new pipeline."""
    now = platform.now_iso()
    document = {
        "pipelineName": name,
        "description": "",
        "regionId": platform.settings.region_id,
        "workspace": space,
        "scheduleStatus": "None",
        "scheduleType": "RunOnce",
        "createTime": now,
        "updateTime": now,
    }
    platform.store.put(PIPELINE, space, name, dict(document, **fields))


def _create(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    name = call.required("pipelineName")
    if not NAME.fullmatch(name):
        raise invalid("pipelineName must be 3 to 63 lower-case letters, digits and hyphens")
    if platform.store.get(PIPELINE, call.space, name) is not None:
        raise ServiceError(
            409, "PipelineAlreadyExist", "The pipeline {} exists already.".format(name)
        )
    fields = call.optional(
        {"description": str, "source": dict, "pipeline": dict, "sink": dict, "executePolicy": dict}
    )
    add_pipeline(platform, call.space, name, fields)
    return {}


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    name = call.path["pipelineName"]
    return platform.require(PIPELINE, call.space, name, "PipelineNotExist", "pipeline")


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    wanted, status = call.text("pipelineName"), call.text("scheduleStatus")
    pipelines = [
        {key: value for key, value in pipeline.items() if key != "pipeline"}
        for pipeline in platform.store.list(PIPELINE, call.space)
        if wanted in ("", pipeline["pipelineName"]) and status in ("", pipeline["scheduleStatus"])
    ]
    page, token = token_page(call, pipelines)
    return {
        "totalCount": len(pipelines),
        "maxResults": len(page),
        "nextToken": token,
        "pipelines": page,
    }


def _delete(platform: Platform, call: Call) -> Dict[str, Any]:
    _get(platform, call)
    platform.store.delete(PIPELINE, call.space, call.path["pipelineName"])
    return {}


def _preview(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    begin, end = _time_range(call)
    logstore, project, query = _source(platform, call)
    projections = _projections(call)
    if platform.faults.preview_is_empty(query):
        found = LogAnswer([], [], query, None)
    else:
        # both ends belong to the range, to the second
        found = read_logs(platform, LogQuery(project, logstore, query, begin, end + 1))
    rows = [_visible(row) for row in found.rows[:MAX_PREVIEW_ROWS]]
    for projection in projections:
        rows = [{new: row.get(old) for new, old in projection.items()} for row in rows]
    meta = {
        "count": len(rows),
        "progress": "Complete",
        "processedRows": len(found.rows),
        "elapsedMillisecond": 0,
        "hasSQL": found.sql is not None,
        "keys": list(rows[0]) if rows else [],
    }
    return {"data": rows, "meta": meta}


def _time_range(call: Call) -> Tuple[int, int]:
    found = call.optional({"fromTime": int, "toTime": int})
    if len(found) < 2 or not 0 <= found["fromTime"] < found["toTime"] < _MAX_SECONDS:
        raise invalid("fromTime and toTime must be unix seconds, fromTime before toTime")
    return found["fromTime"], found["toTime"]


def _source(platform: Platform, call: Call) -> Tuple[str, str, str]:
    source = call.body.get("source")
    if not isinstance(source, dict) or source.get("type") != "logstore":
        raise invalid("source.type must be logstore")
    where = source.get("logstore")
    if not isinstance(where, dict):
        raise invalid("source.logstore is required")
    logstore = required_text(where, "logstore")
    project = platform.space(call.space)["slsProject"]
    if where.get("project"):
        project = required_text(where, "project")
    if not platform.has_project(project):
        raise ServiceError(
            404, "ProjectNotExist", "The Project does not exist : {}".format(project)
        )
    require_logstore(platform, project, logstore)
    return logstore, project, str(where.get("query") or "*")


def _projections(call: Call) -> List[Dict[str, str]]:
    pipeline = call.body.get("pipeline")
    nodes = pipeline.get("nodes") if isinstance(pipeline, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise invalid("pipeline.nodes must be a list of nodes")
    found: List[Dict[str, str]] = []
    for node in nodes:
        kind = node.get("type") if isinstance(node, dict) else None
        if kind != "project":
            raise ServiceError(
                400,
                "UnsupportedNodeType",
                "LocalAgentLoop previews project nodes only, not {!r}.".format(kind),
            )
        parameters = node.get("parameters")
        if not isinstance(parameters, dict) or not parameters:
            raise invalid("a project node needs parameters: an object of new and old names")
        found.append({str(new): str(old) for new, old in parameters.items()})
    return found


def _visible(row: Dict[str, Any]) -> Dict[str, Any]:
    return {
        key: value
        for key, value in row.items()
        if key not in _SYSTEM and not key.startswith("__tag__:")
    }


OPERATIONS: Tuple[Operation, ...] = (
    Operation("CreatePipeline", "POST", _ALL, _create),
    Operation("GetPipeline", "GET", _ONE, _get),
    Operation("ListPipelines", "GET", _ALL, _list),
    Operation("DeletePipeline", "DELETE", _ONE, _delete),
    Operation("PreviewPipeline", "POST", _ALL + "/preview", _preview),
)
