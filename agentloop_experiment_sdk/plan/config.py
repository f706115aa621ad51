"""What the user states about an experiment, and what its plan resolves to.

Every script imports this module, so it stays light: the rest of the room is imported when used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..errors import CloudError, ConfigurationError, ExperimentError, PlanError

if TYPE_CHECKING:
    from ..cloud.agentloop import AgentLoopApi
    from ..models import Plan
    from .connection import Connection

DEFAULT_EXPERIMENT_NAME = "experimentA"
# SLS: lower-case letters, digits and hyphens; read leniently, as it becomes a part of a host name
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class AgentLoopConfig:
    """The user's settings; after ``resolve_experiment_plan()`` also what the plan says.

    Every attribute may be assigned until the run starts; all are checked at construction and
    again by each run, before any request is sent.

    Args:
        agent_space: The agent space's name.
        experiment_plan_id: The id of an offline experiment plan.
        region_id: The region, such as ``cn-hangzhou``.
        project: The SLS project for the rows; None takes the one bound to the agent space.
        max_rows: The most rows to load, at least 1.
        ground_truth_field: The dataset column that holds the expected answer.
        experiment_name: The group name of the experiment; None is ``experimentA``.
        access_key_id: Wins over the environment; see ``plan.credentials`` for the order.
        access_key_secret: Its secret.
        agentloop_endpoint: ``host``, ``host:port`` or a URL; https unless it says http.
        sls_endpoint: The same for SLS.
        security_token: The STS token of temporary keys.

    Attributes:
        dataset: The plan's dataset; like the following None until the plan is resolved.
        plan_name: The plan's name.
        pipeline_name: The plan's pipeline, "" if it has none.
        plan_evaluators: The plan's evaluators, as AgentLoop answers them.
        selected_item_ids: The ids the plan selects; empty means all rows.
        query_sql: The condition that narrows the dataset, "" if there is none.

    Raises:
        ConfigurationError: A value cannot be used; the message names it.
    """

    def __init__(
        self,
        agent_space: str,
        experiment_plan_id: str,
        region_id: str,
        *,
        project: Optional[str] = None,
        max_rows: int = 1000,
        ground_truth_field: Optional[str] = None,
        experiment_name: Optional[str] = None,
        access_key_id: Optional[str] = None,
        access_key_secret: Optional[str] = None,
        agentloop_endpoint: Optional[str] = None,
        sls_endpoint: Optional[str] = None,
        security_token: Optional[str] = None,
    ) -> None:
        self.agent_space = agent_space
        self.experiment_plan_id = experiment_plan_id
        self.region_id = region_id
        self.project = project
        self.max_rows = max_rows
        self.ground_truth_field = ground_truth_field
        self.experiment_name = experiment_name
        self.access_key_id = access_key_id
        self.access_key_secret = access_key_secret
        self.agentloop_endpoint = agentloop_endpoint
        self.sls_endpoint = sls_endpoint
        self.security_token = security_token
        self.dataset: Optional[str] = None
        self.plan_name: Optional[str] = None
        self.pipeline_name: Optional[str] = None
        self.plan_evaluators: Optional[List[Dict[str, Any]]] = None
        self.selected_item_ids: Optional[List[str]] = None
        self.query_sql: Optional[str] = None
        self._project_of_space: Optional[str] = None
        self.check()

    @property
    def connection(self) -> Connection:
        """Region, agent space, credentials and endpoints as a value of their own."""
        from .connection import Connection

        return Connection(
            region_id=self.region_id,
            agent_space=self.agent_space,
            agentloop_endpoint=self.agentloop_endpoint,
            sls_endpoint=self.sls_endpoint,
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
            security_token=self.security_token,
        )

    def check(self) -> None:
        """Checks every value; sends nothing.

        Raises:
            ConfigurationError: A value cannot be used; the message names it.
        """
        from .connection import check_name

        self.connection  # noqa: B018 - building it checks its values
        check_name("experiment_plan_id", self.experiment_plan_id)
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int):
            raise ConfigurationError(
                "max_rows must be a whole number, not {!r}.".format(self.max_rows)
            )
        if self.max_rows < 1:
            raise ConfigurationError("max_rows must be at least 1, not {}.".format(self.max_rows))
        for name in ("project", "ground_truth_field", "experiment_name"):
            _check_optional_text(name, getattr(self, name))
        if self.project and not _PROJECT.fullmatch(self.project):
            raise ConfigurationError("project {!r} is no SLS project name.".format(self.project))

    def resolve_experiment_plan(self, *, api: Optional[AgentLoopApi] = None) -> Plan:
        """Asks AgentLoop for the plan, copies it to this config's fields and returns it.

        Args:
            api: The client to ask; None makes one from ``connection``.

        Raises:
            ConfigurationError: A setting cannot be used, or no keys were found.
            PlanError: There is no such plan, it is not offline, or it lacks a dataset or project.
            CloudError: AgentLoop refused or did not answer.
        """
        from ..cloud.agentloop import AgentLoopApi

        self.check()
        # a project that an earlier run found is no wish of the user: the space may have another
        given = None if self.project == self._project_of_space else self.project
        plan = _resolve(self, given or None, api or AgentLoopApi(self.connection.access()))
        self.project = plan.project
        self._project_of_space = None if given else plan.project
        self.dataset = plan.dataset
        self.plan_name = plan.plan_name
        self.pipeline_name = plan.pipeline_name
        self.plan_evaluators = [dict(evaluator) for evaluator in plan.evaluators]
        self.selected_item_ids = list(plan.selected_item_ids)
        self.query_sql = plan.query_sql
        return plan

    def __repr__(self) -> str:
        shown = ("agent_space", "experiment_plan_id", "region_id", "project", "max_rows")
        fields = ", ".join("{}={!r}".format(name, getattr(self, name)) for name in shown)
        keys = "given" if self.access_key_id else "from the environment"
        return "AgentLoopConfig({}, keys {})".format(fields, keys)


def _check_optional_text(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError("{} must be text or None, not {!r}.".format(name, value))


def _resolve(config: AgentLoopConfig, project: Optional[str], api: AgentLoopApi) -> Plan:
    from ..models import Plan
    from .asking import Asked

    place = "experiment plan {!r} of agent space {!r} in region {}".format(
        config.experiment_plan_id, config.agent_space, config.region_id
    )
    # asked at the same time: one round trip less before the first row
    space = None if project else Asked(lambda: _project_of_space(config, api))
    answer = _ask_plan(config, api, place)
    _check_type(answer, place)
    dataset = _text(answer, "datasetId")
    if not dataset:
        raise PlanError(
            "The {} has no dataset. Link one to the plan in the AgentLoop console.".format(place),
            request_id=answer.get("requestId"),
        )
    return Plan(
        agent_space=config.agent_space,
        plan_id=config.experiment_plan_id,
        plan_name=_text(answer, "planName") or config.experiment_plan_id,
        region_id=config.region_id,
        project=project or (space.result() if space else ""),
        dataset=dataset,
        pipeline_name=_text(answer, "pipelineName"),
        evaluators=tuple(_dicts(answer.get("evaluators"))),
        selected_item_ids=_ids(answer.get("selectedItemIds")),
        query_sql=_text(answer, "querySql"),
        max_rows=config.max_rows,
        ground_truth_field=config.ground_truth_field or None,
        experiment_name=config.experiment_name or DEFAULT_EXPERIMENT_NAME,
        agentloop_endpoint=config.agentloop_endpoint or None,
        sls_endpoint=config.sls_endpoint or None,
    )


def _ask_plan(config: AgentLoopConfig, api: AgentLoopApi, place: str) -> Mapping[str, Any]:
    try:
        return api.get_plan(config.agent_space, config.experiment_plan_id)
    except CloudError as error:
        raise _unresolved(error, place, "agentloop:GetExperimentPlan") from error


def _project_of_space(config: AgentLoopConfig, api: AgentLoopApi) -> str:
    place = "agent space {!r} in region {}".format(config.agent_space, config.region_id)
    try:
        answer = api.get_agent_space(config.agent_space)
    except CloudError as error:
        raise _unresolved(error, place, "agentloop:GetAgentSpace") from error
    project = _text(answer, "slsProject")
    if not _PROJECT.fullmatch(project):
        raise PlanError(
            "The {} is not bound to an SLS project (request id {}). Bind one in the AgentLoop "
            "console, or give AgentLoopConfig a project.".format(place, answer.get("requestId")),
            request_id=answer.get("requestId"),
        )
    return project


def _unresolved(error: CloudError, place: str, permission: str) -> ExperimentError:
    """The same failure with what was asked for and what to check."""
    from ..cloud.openapi_errors import remedy

    message = "Could not read the {}. {} {}".format(place, error, remedy(error, permission))
    if error.status == 404:
        return PlanError(message, code=error.code, request_id=error.request_id)
    return CloudError(
        message,
        code=error.code,
        request_id=error.request_id,
        status=error.status,
        retryable=error.retryable,
        ambiguous=error.ambiguous,
        retry_after=error.retry_after,
    )


def _check_type(answer: Mapping[str, Any], place: str) -> None:
    kind = _text(answer, "experimentType")
    if kind.lower() != "offline":
        raise PlanError(
            "The {} is of type {!r}; only offline plans can be run from here. Check "
            "experiment_plan_id (request id {}).".format(place, kind, answer.get("requestId")),
            request_id=answer.get("requestId"),
        )


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return "" if value is None else str(value).strip()


def _dicts(value: Any) -> List[Dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _ids(value: Any) -> Tuple[str, ...]:
    """The selected ids in the plan's order, each once."""
    items = value if isinstance(value, list) else []
    return tuple(dict.fromkeys(str(item) for item in items if item is not None))
