"""The SLS half: which action a request asks for, PutLogs, GetLogs, GetHistograms, error shape."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .exchange import Reply, Request, ServiceError, json_reply, path_parameters
from .loggroup import decode_put_logs
from .logs import LogAnswer, LogQuery, find_logs, read_logs
from .platform import Platform, invalid
from .search import split_query
from .sls_resources import ROUTES as RESOURCE_ROUTES
from .sls_resources import Action, require_logstore

API_VERSION = "0.6.0"
_MAX_LINES = 100
_BARS = 60


def identify(request: Request) -> Optional[Action]:
    """Name the action of a request in ``request.action`` and return what carries it out."""
    segments = request.segments
    for action, method, path, handler in _ROUTES:
        if method == request.method:
            params = path_parameters(path, segments)
            if params is not None:
                request.params = params
                request.action = action
                return _read_logs_or_store(request, handler)
    request.action = "Unknown"
    return None


def answer(platform: Platform, request: Request, action: Optional[Action]) -> Reply:
    """Carry out one request.

    Raises:
        ServiceError: The request is refused.
    """
    version = request.headers.get("x-log-apiversion")
    if version != API_VERSION:
        raise ServiceError(400, "InvalidAPIVersion", "API version {} is not known".format(version))
    if action is None:
        raise ServiceError(
            404,
            "NotSupported",
            "LocalAgentLoop does not offer {} {}.".format(request.method, request.path),
        )
    if not platform.has_project(request.project):
        raise ServiceError(
            404, "ProjectNotExist", "The Project does not exist : {}".format(request.project)
        )
    reply = action(platform, request)
    reply.headers["x-log-requestid"] = request.request_id
    return reply


def error_reply(request: Request, error: ServiceError) -> Reply:
    """An error as this service words it."""
    reply = json_reply({"errorCode": error.code, "errorMessage": error.message}, error.status)
    reply.headers["x-log-requestid"] = request.request_id
    reply.headers.update(error.headers)
    return reply


def _read_logs_or_store(request: Request, handler: Action) -> Action:
    """GET on a logstore is three actions, told apart by ``type``."""
    if request.action == "GetLogStore":
        kind = request.query.get("type")
        if kind == "histogram":
            request.action = "GetHistograms"
            return _get_histograms
        if kind == "log":
            request.action = "GetLogs"
            return _get_logs_old
    return handler


def _put_logs(platform: Platform, request: Request) -> Reply:
    require_logstore(platform, request.project, request.params["logstore"])
    if request.rows is None:
        request.rows = decode_put_logs(request)
    platform.store.add_logs(request.project, request.params["logstore"], request.rows)
    return Reply()


def _get_logs(platform: Platform, request: Request) -> Reply:
    try:
        asked = request.json_body()
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise ServiceError(400, "PostBodyInvalid", "The body is not a JSON object.")
    rows, found = _page(platform, request, asked)
    meta = {
        "progress": "Complete",
        "count": len(rows),
        "processedRows": len(found.rows),
        "processedBytes": 0,
        "elapsedMillisecond": 0,
        "hasSQL": found.sql is not None,
        "whereQuery": found.search,
        "aggQuery": found.sql or "",
        "keys": found.keys,
        "isAccurate": True,
        "mode": 0,
        "cpuSec": 0.0,
        "cpuCores": 0,
    }
    return json_reply({"meta": meta, "data": rows})


def _get_logs_old(platform: Platform, request: Request) -> Reply:
    """The form of older clients: everything in the query, a bare list as answer."""
    asked = dict(request.query)
    rows, found = _page(platform, request, dict(asked, reverse=asked.get("reverse") == "true"))
    reply = json_reply(rows)
    reply.headers.update(
        {
            "x-log-progress": "Complete",
            "x-log-count": str(len(rows)),
            "x-log-has-sql": "false" if found.sql is None else "true",
            "x-log-query-info": '{"mode":0}',
        }
    )
    return reply


def _page(
    platform: Platform, request: Request, asked: Dict[str, Any]
) -> Tuple[List[Dict[str, Any]], LogAnswer]:
    line = min(_whole(asked, "line", _MAX_LINES), _MAX_LINES)
    found = read_logs(platform, _log_query(platform, request, asked), _MAX_LINES)
    if found.sql is not None:
        own = {"__time__": str(asked["from"]), "__source__": ""}  # which clients expect of any row
        return [dict(own, **row) for row in found.rows], found
    # equal times stay in arrival order, in both directions
    rows = sorted(found.rows, key=lambda row: int(row["__time__"]))
    if asked.get("reverse"):
        rows.reverse()
    offset = _whole(asked, "offset", 0)
    return rows[offset : offset + line], found


def _get_histograms(platform: Platform, request: Request) -> Reply:
    query = _log_query(platform, request, dict(request.query))
    begin, end = query.begin or 0, query.end or 0
    step = max(1, -(-(end - begin) // _BARS))
    counts: Dict[int, int] = dict.fromkeys(range(begin, end, step), 0)
    for row in find_logs(platform, query, split_query(query.query)[0]):
        counts[begin + (int(row["__time__"]) - begin) // step * step] += 1
    bars = [
        {"from": start, "to": min(start + step, end), "count": count, "progress": "Complete"}
        for start, count in counts.items()
    ]
    reply = json_reply(bars)
    reply.headers["x-log-progress"] = "Complete"
    reply.headers["x-log-count"] = str(sum(counts.values()))
    return reply


def _log_query(platform: Platform, request: Request, asked: Dict[str, Any]) -> LogQuery:
    logstore = request.params["logstore"]
    require_logstore(platform, request.project, logstore)
    begin, end = _whole(asked, "from", None), _whole(asked, "to", None)
    if begin >= end:
        raise invalid("from must be less than to")
    text = str(asked.get("query") or "*")
    topic = asked.get("topic")
    if topic:
        search, bar, sql = text.partition("|")
        text = '(__topic__: "{}") and ({}) {} {}'.format(topic, search, bar, sql)
    return LogQuery(request.project, logstore, text, begin, end)


def _whole(asked: Dict[str, Any], name: str, default: Optional[int]) -> int:
    value = asked.get(name, default)
    try:
        number = int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise invalid("{} must be a whole number, 0 or more".format(name))
    return number


_ROUTES: Tuple[Tuple[str, str, str, Action], ...] = (
    ("PutLogs", "POST", "/logstores/{logstore}/shards/lb", _put_logs),
    ("PutLogs", "POST", "/logstores/{logstore}/shards/route", _put_logs),
    ("GetLogs", "POST", "/logstores/{logstore}/logs", _get_logs),
    *RESOURCE_ROUTES,
)
