"""The AgentLoop OpenAPI (2026-05-20): which handler answers which request, and its error shape."""

from __future__ import annotations

from typing import Any, Dict

from . import dataset_operations, evaluations, pipelines, plans, runs, spaces
from .exchange import Reply, Request, ServiceError, json_reply
from .platform import Call, Operation, Platform, invalid

VERSION = "2026-05-20"
OPERATIONS: Dict[str, Operation] = {
    operation.action: operation
    for group in (
        spaces.OPERATIONS,
        dataset_operations.OPERATIONS,
        plans.OPERATIONS,
        runs.OPERATIONS,
        pipelines.OPERATIONS,
        evaluations.OPERATIONS,
    )
    for operation in group
}


def answer(platform: Platform, request: Request) -> Reply:
    """Carry out one request.

    Raises:
        ServiceError: The request is refused.
    """
    operation = OPERATIONS.get(request.action)
    if operation is None:
        raise ServiceError(
            404,
            "InvalidAction.NotFound",
            "LocalAgentLoop does not offer {!r}.".format(request.action),
        )
    version = request.headers.get("x-acs-version", "")
    if version != VERSION:
        raise ServiceError(404, "InvalidVersion", "There is no version {!r}.".format(version))
    path = operation.match(request.method, request.segments)
    if path is None:
        raise ServiceError(
            404,
            "InvalidAction.NotFound",
            "{} is not at {} {}.".format(request.action, request.method, request.path),
        )
    result = operation.handler(platform, Call(request, path, _body(request)))
    return json_reply({"requestId": request.request_id, **result})


def error_reply(request: Request, error: ServiceError) -> Reply:
    """An error as this service words it."""
    reply = json_reply(
        {
            "RequestId": request.request_id,
            "HostId": request.host,
            "Code": error.code,
            "Message": error.message,
        },
        error.status,
    )
    reply.headers.update(error.headers)
    return reply


def _body(request: Request) -> Dict[str, Any]:
    try:
        body = request.json_body()
    except ValueError as error:
        raise invalid("The body is not JSON in UTF-8: {}".format(error)) from error
    if not isinstance(body, dict):
        raise invalid("The body must be a JSON object.")
    return body
