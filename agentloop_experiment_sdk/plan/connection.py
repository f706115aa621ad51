"""A connection to one agent space: all that is needed to look at it, without a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ..cloud.access import CloudAccess, parse_endpoint
from ..cloud.agentloop import AgentLoopApi
from ..errors import ConfigurationError
from .credentials import find_credentials

_REGION = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_PAGE_SIZE = 100


@dataclass(frozen=True)
class Connection:
    """Region, agent space, credentials and endpoints: what ``list_plans`` and a launcher need.

    Args:
        region_id: The region, such as ``cn-hangzhou``.
        agent_space: The agent space's name.
        agentloop_endpoint: None is the region's own.
        sls_endpoint: None is the region's own.
        access_key_id: None takes the next source of ``plan.credentials``.
        access_key_secret: Its secret.
        security_token: Its STS token, if it has one.

    Raises:
        ConfigurationError: A value cannot be used.
    """

    region_id: str
    agent_space: str
    agentloop_endpoint: Optional[str] = None
    sls_endpoint: Optional[str] = None
    access_key_id: Optional[str] = field(default=None, repr=False)
    access_key_secret: Optional[str] = field(default=None, repr=False)
    security_token: Optional[str] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name("agent_space", self.agent_space)
        check_region(self.region_id)
        for name in ("agentloop_endpoint", "sls_endpoint"):
            value = getattr(self, name)
            if value is not None and value != "":
                parse_endpoint(value, name)

    def access(self) -> CloudAccess:
        """Endpoints and credentials; this is where the environment and the profile are read.

        Raises:
            CredentialsError: No usable pair of keys was found.
        """
        return CloudAccess(
            self.region_id,
            self.agentloop_endpoint or None,
            self.sls_endpoint or None,
            find_credentials(self.access_key_id, self.access_key_secret, self.security_token),
        )


@dataclass(frozen=True)
class PlanSummary:
    """One plan of an agent space, as the list shows it; "" or None where the list says nothing.

    Attributes:
        plan_id: The plan's id, ``experiment_plan_id`` of an ``AgentLoopConfig``.
        plan_name: Its name.
        experiment_type: ``offline`` or ``online``; only offline plans can be run.
        dataset: The name of its dataset.
        description: What its author says of it.
        status: ``pending``, ``running`` or ``stopped``.
        pipeline_name: The pipeline that processes its traces.
        query_sql: The condition that narrows the dataset.
        experiment_count: How many experiments were run with it.
        created_at, updated_at: Milliseconds since the epoch.
    """

    plan_id: str
    plan_name: str
    experiment_type: str
    dataset: str = ""
    description: str = ""
    status: str = ""
    pipeline_name: str = ""
    query_sql: str = ""
    experiment_count: Optional[int] = None
    created_at: Optional[int] = None
    updated_at: Optional[int] = None


def list_plans(
    connection: Connection,
    *,
    plan_name: Optional[str] = None,
    status: Optional[str] = None,
    api: Optional[AgentLoopApi] = None,
) -> Tuple[PlanSummary, ...]:
    """All plans of the agent space that the account may see, newest first.

    Args:
        connection: Which agent space, and with which keys.
        plan_name: Only plans whose name is like this.
        status: Only plans of this status: ``pending``, ``running`` or ``stopped``.
        api: The client to ask; None makes one.

    Returns:
        The plans; empty when there are none.

    Raises:
        CloudError: AgentLoop refused or did not answer.
        CredentialsError: No usable pair of keys was found.
    """
    api = api or AgentLoopApi(connection.access())
    found: Dict[str, PlanSummary] = {}
    offset = 0
    while True:
        page = api.list_plans(
            connection.agent_space,
            limit=_PAGE_SIZE,
            offset=offset,
            plan_name=plan_name,
            status=status,
        )
        plans = _summaries(page.get("plans"))
        fresh = [plan for plan in plans if plan.plan_id not in found]
        found.update((plan.plan_id, plan) for plan in fresh)
        offset += len(plans)
        # a server that ignores offset would answer its first page for ever
        if not fresh or offset >= _total(page, offset):
            return tuple(found.values())


def _summaries(plans: Any) -> List[PlanSummary]:
    items = plans if isinstance(plans, list) else []
    return [_summary(item) for item in items if isinstance(item, dict) and item.get("planId")]


def _summary(item: Dict[str, Any]) -> PlanSummary:
    return PlanSummary(
        plan_id=str(item["planId"]),
        plan_name=_text(item, "planName"),
        experiment_type=_text(item, "experimentType").lower(),
        dataset=_text(item, "datasetId"),
        description=_text(item, "description"),
        status=_text(item, "status"),
        pipeline_name=_text(item, "pipelineName"),
        query_sql=_text(item, "querySql"),
        experiment_count=item.get("experimentCount"),
        created_at=item.get("createdAt"),
        updated_at=item.get("updatedAt"),
    )


def _text(item: Dict[str, Any], key: str) -> str:
    value = item.get(key)
    return "" if value is None else str(value)


def _total(page: Dict[str, Any], offset: int) -> int:
    """A list that names no total goes on while its pages are full."""
    total = page.get("total")
    return total if isinstance(total, int) else offset + 1


def check_name(setting: str, value: Any) -> None:
    """Checks a name that becomes one segment of a request path.

    Raises:
        ConfigurationError: It is empty, not text, or would change the path.
    """
    if value is not None and not isinstance(value, str):
        raise ConfigurationError("{} must be text, not {!r}.".format(setting, value))
    if value is None or not value.strip():
        raise ConfigurationError("{} must be given; {!r} is empty.".format(setting, value))
    if value in (".", "..") or "/" in value or "\\" in value:
        raise ConfigurationError(
            "{} {!r} is not a name: it must not be '.' or '..' or contain a slash.".format(
                setting, value
            )
        )
    if value != value.strip() or not value.isprintable():
        raise ConfigurationError(
            "{} {!r} has white space around it or a control character in it.".format(setting, value)
        )


def check_region(value: Any) -> None:
    """Checks a region id, which becomes a part of a host name.

    Raises:
        ConfigurationError: It is empty or has other characters than letters, digits, hyphens.
    """
    if not isinstance(value, str) or not _REGION.fullmatch(value):
        raise ConfigurationError(
            "region_id {!r} is not a region; write it like 'cn-hangzhou'.".format(value)
        )
