"""SLS resources: the project, logstores with their index, dashboards."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Tuple

from .exchange import Reply, Request, ServiceError, json_reply
from .platform import DASHBOARD, LOGSTORE, Platform, invalid, page_of, required_text
from .store import Document

TRACES = "logstore-tracing"
RESULTS = "experiment_detail"
SCORES = "evaluation_detail"
_TOKENS = [",", "'", '"', ";", "=", "(", ")", "[", "]", "{", "}", "?", "@", "&", "<", ">", "/"]
_NUMBERS: Dict[str, Dict[str, str]] = {
    RESULTS: {"experiment_start_time": "long", "repeat_id": "long"},
    SCORES: {
        "timestamp": "long",
        "score_value": "double",
        "normalized_score_value": "double",
        "eval_latency": "double",
    },
    TRACES: {"duration": "long", "startTime": "long"},
}

Action = Callable[[Platform, Request], Reply]


def create_default_logstores(platform: Platform, project: str) -> None:
    """The logstores that AgentLoop makes in a project, each with an index."""
    for name in (RESULTS, SCORES, TRACES):
        if platform.store.get(LOGSTORE, project, name) is None:
            keys = {key: {"type": kind, "doc_value": True} for key, kind in _NUMBERS[name].items()}
            index = {"line": {"token": _TOKENS, "caseSensitive": False}, "keys": keys}
            platform.store.put(LOGSTORE, project, name, _new_logstore(name, {}, index))


def require_logstore(platform: Platform, project: str, name: str) -> None:
    """Refuse what concerns a logstore that does not exist.

    Raises:
        ServiceError: 404 LogStoreNotExist.
    """
    if not platform.store.exists(LOGSTORE, project, name):
        raise ServiceError(404, "LogStoreNotExist", "logstore {} does not exist".format(name))


def _logstore(platform: Platform, request: Request) -> Document:
    name = request.params["logstore"]
    require_logstore(platform, request.project, name)
    return platform.store.get(LOGSTORE, request.project, name) or {}


def _new_logstore(name: str, given: Mapping[str, Any], index: Any = None) -> Document:
    return {
        "logstoreName": name,
        "ttl": given.get("ttl", 30),
        "shardCount": given.get("shardCount", 2),
        "enable_tracking": given.get("enable_tracking", False),
        "autoSplit": given.get("autoSplit", True),
        "maxSplitShard": given.get("maxSplitShard", 64),
        "appendMeta": given.get("appendMeta", False),
        "telemetryType": given.get("telemetryType", ""),
        "index": index,
    }


def _get_project(platform: Platform, request: Request) -> Reply:
    return json_reply(
        {
            "projectName": request.project,
            "status": "Normal",
            "description": "",
            "region": platform.settings.region_id,
            "owner": "",
            "createTime": platform.now_iso(),
            "lastModifyTime": platform.now_iso(),
        }
    )


def _create_logstore(platform: Platform, request: Request) -> Reply:
    body = _body(request)
    name = required_text(body, "logstoreName")
    if "/" in name:
        raise invalid("logstoreName must be a name without slashes")
    if platform.store.get(LOGSTORE, request.project, name) is not None:
        raise ServiceError(400, "LogStoreAlreadyExist", "logstore {} already exists".format(name))
    platform.store.put(LOGSTORE, request.project, name, _new_logstore(name, body))
    return Reply()


def _get_logstore(platform: Platform, request: Request) -> Reply:
    found = _logstore(platform, request)
    return json_reply({key: value for key, value in found.items() if key != "index"})


def _list_logstores(platform: Platform, request: Request) -> Reply:
    names = [item["logstoreName"] for item in platform.store.list(LOGSTORE, request.project)]
    wanted = request.query.get("logstoreName", "")
    return _listed(request, "logstores", [name for name in names if wanted in name])


def _delete_logstore(platform: Platform, request: Request) -> Reply:
    name = request.params["logstore"]
    require_logstore(platform, request.project, name)
    platform.store.delete(LOGSTORE, request.project, name)
    platform.store.delete_logs(request.project, name)
    return Reply()


def _get_index(platform: Platform, request: Request) -> Reply:
    index = _logstore(platform, request)["index"]
    if index is None:
        raise ServiceError(404, "IndexConfigNotExist", "index config doesn't exist")
    return json_reply(index)


def _create_index(platform: Platform, request: Request) -> Reply:
    return _put_index(platform, request, exists=False)


def _update_index(platform: Platform, request: Request) -> Reply:
    return _put_index(platform, request, exists=True)


def _put_index(platform: Platform, request: Request, *, exists: bool) -> Reply:
    store = _logstore(platform, request)
    if exists and store["index"] is None:
        raise ServiceError(404, "IndexConfigNotExist", "index config doesn't exist")
    if not exists and store["index"] is not None:
        raise ServiceError(400, "IndexAlreadyExist", "log store index is already created")
    store["index"] = _body(request)
    platform.store.put(LOGSTORE, request.project, store["logstoreName"], store)
    return Reply()


def _list_dashboards(platform: Platform, request: Request) -> Reply:
    found = platform.store.list(DASHBOARD, request.project)
    return _listed(request, "dashboards", [item["dashboardName"] for item in found])


def _create_dashboard(platform: Platform, request: Request) -> Reply:
    body = _body(request)
    name = required_text(body, "dashboardName")
    if platform.store.get(DASHBOARD, request.project, name) is not None:
        raise ServiceError(400, "DashboardAlreadyExist", "dashboard {} already exists".format(name))
    platform.store.put(DASHBOARD, request.project, name, body)
    return Reply()


def _get_dashboard(platform: Platform, request: Request) -> Reply:
    return json_reply(_dashboard(platform, request))


def _update_dashboard(platform: Platform, request: Request) -> Reply:
    name = _dashboard(platform, request)["dashboardName"]
    platform.store.put(DASHBOARD, request.project, name, dict(_body(request), dashboardName=name))
    return Reply()


def _delete_dashboard(platform: Platform, request: Request) -> Reply:
    platform.store.delete(
        DASHBOARD, request.project, _dashboard(platform, request)["dashboardName"]
    )
    return Reply()


def _dashboard(platform: Platform, request: Request) -> Document:
    name = request.params["dashboard"]
    found = platform.store.get(DASHBOARD, request.project, name)
    if found is None:
        raise ServiceError(404, "DashboardNotExist", "dashboard {} does not exist".format(name))
    return found


def _listed(request: Request, field: str, names: List[str]) -> Reply:
    try:
        offset = int(request.query.get("offset", "0"))
        size = int(request.query.get("size", "100"))
    except ValueError as error:
        raise invalid("offset and size must be whole numbers") from error
    page = page_of(names, offset, size)
    return json_reply({"count": len(page), "total": len(names), field: page})


def _body(request: Request) -> Dict[str, Any]:
    try:
        body = request.json_body()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ServiceError(400, "PostBodyInvalid", "The body is not a JSON object.")
    return body


ROUTES: Tuple[Tuple[str, str, str, Action], ...] = (
    ("GetProject", "GET", "/", _get_project),
    ("CreateLogStore", "POST", "/logstores", _create_logstore),
    ("ListLogStores", "GET", "/logstores", _list_logstores),
    ("GetLogStore", "GET", "/logstores/{logstore}", _get_logstore),
    ("DeleteLogStore", "DELETE", "/logstores/{logstore}", _delete_logstore),
    ("GetIndex", "GET", "/logstores/{logstore}/index", _get_index),
    ("CreateIndex", "POST", "/logstores/{logstore}/index", _create_index),
    ("UpdateIndex", "PUT", "/logstores/{logstore}/index", _update_index),
    ("ListDashboard", "GET", "/dashboards", _list_dashboards),
    ("CreateDashboard", "POST", "/dashboards", _create_dashboard),
    ("GetDashboard", "GET", "/dashboards/{dashboard}", _get_dashboard),
    ("UpdateDashboard", "PUT", "/dashboards/{dashboard}", _update_dashboard),
    ("DeleteDashboard", "DELETE", "/dashboards/{dashboard}", _delete_dashboard),
)
