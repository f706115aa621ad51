"""Inspection and faults over HTTP, for tests whose LocalAgentLoop runs in another process.

Loopback only, unsigned, JSON in and out:

``GET  /_local/endpoints``                         names and keys of this server
``GET  /_local/requests``                          number of requests by action
``GET  /_local/rows?record=ID&logstore=NAME``      log rows (both parameters optional)
``GET  /_local/records``                           ids of all records, oldest first
``GET  /_local/record?record=ID``                  a record as GetExperimentRun answers
``GET  /_local/updates?record=ID``                 bodies of UpdateExperimentRun in order
``POST /_local/logs``       ``{"logstore", "rows": […]}``    store rows as if they had arrived
``POST /_local/score``      ``{"record", "rows": […]}``      write scores of a record
``POST /_local/faults``     ``{"call": "outage", "mode": "503", "after": 3}``

A fault is the call of a method of :class:`Faults` with its keyword arguments. The answer has an
``id`` for ``{"call": "stop", "id": …}`` (which answers ``hits``) where the method returns a fault;
``{"call": "clear"}`` takes all back. A POST needs ``Content-Type: application/json``, which no web
page can send to another origin unasked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List

from .evaluations import add_scores
from .exchange import Reply, Request, ServiceError, json_reply
from .fault import Fault
from .platform import RUN
from .runs import get_run
from .sls_resources import RESULTS

if TYPE_CHECKING:
    from .service import Service

PREFIX = "/_local/"
_FAULTS = (
    "latency",
    "slow_previews",
    "fail",
    "drop",
    "outage",
    "empty_previews",
    "refuse_reopen",
    "ignore_client_tokens",
    "clear",
)


def answer(service: Service, request: Request) -> Reply:
    """Carry out one control request.

    Raises:
        ServiceError: It is malformed or names something unknown.
    """
    action = _ACTIONS.get((request.method, request.path[len(PREFIX) :]))
    if action is None:
        raise ServiceError(
            404, "NotFound", "There is no {} {}.".format(request.method, request.path)
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise ServiceError(415, "InvalidContentType", "Send Content-Type: application/json.")
    try:
        return json_reply(action(service, request))
    except LookupError as error:
        raise ServiceError(404, "NotFound", "Not found: {}".format(error)) from error
    except (TypeError, ValueError) as error:
        raise ServiceError(400, "ParameterInvalid", str(error)) from error


def record_of(service: Service, record_id: str) -> Dict[str, Any]:
    """A record as GetExperimentRun answers.

    Raises:
        KeyError: There is no such record.
    """
    found = service.platform.store.find(RUN, record_id)
    if found is None:
        raise KeyError("record {}".format(record_id))
    return get_run(service.platform, found[0], record_id)


def _endpoints(service: Service, request: Request) -> Any:
    url = "http://" + request.host
    return dict(vars(service.platform.settings), agentloop_endpoint=url, sls_endpoint=url)


def _requests(service: Service, request: Request) -> Any:
    return dict(service.counts)


def _rows(service: Service, request: Request) -> Any:
    record = request.query.get("record")
    equal = [("experiment_id", record)] if record else []
    project = request.query.get("project", service.platform.settings.project)
    logstore = request.query.get("logstore", RESULTS)
    return list(service.platform.store.logs(project, logstore, equal=equal))


def _records(service: Service, request: Request) -> Any:
    return [run["recordId"] for run in service.platform.store.list(RUN)]


def _record(service: Service, request: Request) -> Any:
    return record_of(service, request.query.get("record", ""))


def _updates(service: Service, request: Request) -> Any:
    return service.platform.store.updates(request.query.get("record", ""))


def _logs(service: Service, request: Request) -> Any:
    body = _body(request)
    return {"stored": service.put_logs(str(body.get("logstore")), _objects(body))}


def _score(service: Service, request: Request) -> Any:
    body = _body(request)
    record, status = str(body.get("record")), str(body.get("status", "completed"))
    return {"evaluationTaskId": add_scores(service.platform, record, _objects(body), status)}


def _faults(service: Service, request: Request) -> Any:
    arguments = dict(_body(request))
    name = arguments.pop("call", None)
    if name == "stop":
        fault = service.injected[int(arguments["id"])]
        fault.stop()
        return {"hits": fault.hits}
    if name not in _FAULTS or "when" in arguments:
        raise ValueError("call must be one of {}, without when".format(", ".join(_FAULTS)))
    result = getattr(service.platform.faults, name)(**arguments)
    if not isinstance(result, Fault):
        return {}
    service.injected.append(result)
    return {"id": len(service.injected) - 1}


def _body(request: Request) -> Dict[str, Any]:
    body = request.json_body()
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    return body


def _objects(body: Dict[str, Any]) -> List[Dict[str, Any]]:
    rows = body.get("rows") or []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("rows must be a list of objects")
    return rows


_ACTIONS: Dict[Any, Callable[["Service", Request], Any]] = {
    ("GET", "endpoints"): _endpoints,
    ("GET", "requests"): _requests,
    ("GET", "rows"): _rows,
    ("GET", "records"): _records,
    ("GET", "record"): _record,
    ("GET", "updates"): _updates,
    ("POST", "logs"): _logs,
    ("POST", "score"): _score,
    ("POST", "faults"): _faults,
}
