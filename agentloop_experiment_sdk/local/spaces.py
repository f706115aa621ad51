"""Operations on agent spaces and regions."""

from __future__ import annotations

import re
from typing import Any, Dict, Tuple

from .exchange import ServiceError
from .platform import PROJECT, SPACE, Call, Operation, Platform, invalid, token_page
from .sls_resources import create_default_logstores

_NAME = re.compile(r"[^/\s]{1,128}")


def add_space(platform: Platform, name: str, project: str, **fields: Any) -> None:
    """Store a new agent space with its SLS project and the logstores of AgentLoop."""
    now = platform.now_iso()
    document = {
        "agentSpace": name,
        "description": "",
        "regionId": platform.settings.region_id,
        "slsProject": project,
        "cmsWorkspace": name,
        "cmsWorkspaceBindType": "auto",
        "createTime": now,
        "updateTime": now,
    }
    platform.store.put(SPACE, "", name, dict(document, **fields))
    platform.store.put(PROJECT, "", project, {"agentSpace": name})
    create_default_logstores(platform, project)


def _create(platform: Platform, call: Call) -> Dict[str, Any]:
    name = call.required("agentSpace")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise invalid("agentSpace must be 1 to 128 characters without slashes and spaces")
    if platform.store.get(SPACE, "", name) is not None:
        raise ServiceError(409, "AgentSpaceAlreadyExist", "{} exists already.".format(name))
    fields = call.optional({"cmsWorkspace": str, "description": str})
    add_space(platform, name, "{}-{}".format(platform.settings.project, name), **fields)
    return {}


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    return platform.space(call.space)


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    named, region = call.text("agentSpace"), call.text("regionId")
    spaces = [
        space
        for space in platform.store.list(SPACE)
        if named in space["agentSpace"] and region in ("", space["regionId"])
    ]
    page, token = token_page(call, spaces)
    return {
        "total": len(spaces),
        "maxResults": len(page),
        "nextToken": token,
        "agentSpaces": page,
    }


def _regions(platform: Platform, call: Call) -> Dict[str, Any]:
    if call.text("language") not in ("zh", "en"):
        raise invalid("language must be zh or en")
    region = {
        "regionId": platform.settings.region_id,
        "localName": "Local",
        "internetEndpoint": call.request.host,
        "vpcEndpoint": call.request.host,
    }
    return {"regions": [region], "maxResults": 1, "nextToken": ""}


OPERATIONS: Tuple[Operation, ...] = (
    Operation("GetAgentSpace", "GET", "/agentspace/{agentSpace}", _get),
    Operation("ListAgentSpaces", "GET", "/agentspace", _list),
    Operation("CreateAgentSpace", "POST", "/agentspace", _create),
    Operation("DescribeRegions", "GET", "/regions", _regions),
)
