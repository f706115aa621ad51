"""Preflight: everything a run needs, asked one after the other, without creating a record."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, List, Mapping, Optional, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..cloud.sls import DETAIL_LOGSTORE, SlsLogstore
from ..errors import CloudError, ExperimentError, ResumeError
from ..lines import counted, one_line
from ..models import Plan, Task
from ..plan.config import AgentLoopConfig
from ..plan.tasks import check_columns, check_turn_columns, load_tasks
from ..results.archive import own_entries
from ..results.preview import UnboundSourceError, preview_body
from .cluster import Cluster
from .opening import columns_of, turn_columns_of
from .settings import RunSettings
from .single import call_solution

_NO_TRACE = "0" * 31 + "1"


@dataclass(frozen=True)
class CheckItem:
    """One thing that was checked.

    Attributes:
        name: What was checked.
        ok: Whether it will do.
        message: What was found, or the cause and the remedy.
        error: What a failed check raised, else None.
    """

    name: str
    ok: bool
    message: str
    error: Optional[Exception] = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        state = "ok" if self.ok else "FAIL"
        return one_line("{:<4} {}: {}".format(state, self.name, self.message))


@dataclass(frozen=True)
class CheckReport:
    """What ``Experiment.check()`` found; its truth value is ``ok``, its text one line a check.

    Attributes:
        items: The checks in the order they were made; iterating over the report gives them too.
    """

    items: Tuple[CheckItem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(item.ok for item in self.items)

    @property
    def failed(self) -> Tuple[CheckItem, ...]:
        """The checks that failed."""
        return tuple(item for item in self.items if not item.ok)

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[CheckItem]:
        return iter(self.items)

    def __str__(self) -> str:
        return "\n".join(str(item) for item in self.items)


class Check:
    """One preflight.

    Args:
        config: What the user states.
        solution: Called for the first ``limit`` rows, if a limit is given.
        settings: Of the run that is checked.
    """

    def __init__(self, config: AgentLoopConfig, solution: Any, settings: RunSettings) -> None:
        self._config = config
        self._solution = solution
        self._settings = settings
        self._items: List[CheckItem] = []

    def run(self, limit: Optional[int]) -> CheckReport:
        """Check everything; what depends on a failed check is left out.

        Args:
            limit: Call the agent for so many rows; None or 0 calls it not at all.
        """
        self._try("results directory", self._directory)
        if self._settings.executor is not None:
            self._try("executor", self._workers)
        access = self._try("credentials", self._credentials)
        if access is not None:
            api = AgentLoopApi(access)
            plan = self._try("plan", lambda: self._plan(api))
            if plan is not None:
                self._cloud(api, plan, limit)
        return CheckReport(tuple(self._items))

    def _cloud(self, api: AgentLoopApi, plan: Plan, limit: Optional[int]) -> None:
        tasks = self._try("dataset", lambda: self._dataset(api, plan, limit))
        self._try("SLS", lambda: self._logstore(api, plan))
        if plan.pipeline_name:
            self._try("pipeline", lambda: self._pipeline(api, plan))
        for task in (tasks or ())[: limit or 0]:
            self._try("agent", lambda task=task: self._agent(task))  # type: ignore[misc]

    def _try(self, name: str, check: Callable[[], Tuple[Any, str]]) -> Any:
        try:
            found, message = check()
        except (ExperimentError, UnboundSourceError, OSError) as error:
            self._items.append(CheckItem(name, False, str(error), error))
            return None
        self._items.append(CheckItem(name, True, message))
        return found

    def _directory(self) -> Tuple[Any, str]:
        path = self._settings.result_dir
        if os.path.lexists(path) and not os.path.isdir(path):
            raise ExperimentError("{} is not a directory. Pass another result_dir.".format(path))
        if self._settings.resume and not (os.path.isdir(path) and own_entries(path)):
            raise ResumeError("There is nothing in {} to resume; check result_dir.".format(path))
        if not os.path.isdir(path):
            parent = os.path.dirname(os.path.abspath(path))
            while not os.path.isdir(parent):
                parent = os.path.dirname(parent)
            if not os.access(parent, os.W_OK):
                raise ExperimentError(
                    "{} cannot be made: {} is not writable. Pass another result_dir.".format(
                        path, parent
                    )
                )
            return True, "{} will be made".format(path)
        if not os.access(path, os.W_OK):
            raise ExperimentError("{} is not writable. Pass another result_dir.".format(path))
        return True, "{} is writable{}".format(path, _occupied(path))

    def _workers(self) -> Tuple[Any, str]:
        settings = self._settings
        cluster = Cluster(settings.executor, self._solution, {}, settings.task_timeout)
        try:
            at_once = cluster.make_ready(settings.n_workers)
        finally:
            cluster.dismiss()
        return at_once, "a worker has loaded the solution; {} in its hands at once".format(
            counted(at_once, "row")
        )

    def _credentials(self) -> Tuple[Any, str]:
        access = self._config.connection.access()
        access.credentials.get_credentials()
        return access, "found ({})".format(access.credentials.get_provider_name())

    def _plan(self, api: AgentLoopApi) -> Tuple[Any, str]:
        plan = self._config.resolve_experiment_plan(api=api)
        return plan, "{!r}, offline, dataset {!r}".format(plan.plan_name, plan.dataset)

    def _dataset(self, api: AgentLoopApi, plan: Plan, limit: Optional[int]) -> Tuple[Any, str]:
        settings = self._settings
        wanted = settings.limit or limit
        tasks = load_tasks(api, plan, limit=wanted, item_ids=settings.item_ids)
        check_columns(tasks, columns_of(self._solution))
        check_turn_columns(tasks, turn_columns_of(self._solution))
        columns = ", ".join(tasks[0].input)
        return tasks, "{} read; columns: {}".format(counted(len(tasks), "row"), columns)

    def _logstore(self, api: AgentLoopApi, plan: Plan) -> Tuple[Any, str]:
        logstore = SlsLogstore(api.access, plan.project)
        try:
            logstore.exists()
        except CloudError as error:
            if error.status in (401, 403) and error.code in ("Unauthorized", "ProjectForbidden"):
                # a key that may write rows need not be allowed to read the logstore's settings
                return True, "{}/{} answered, but its settings may not be read ({})".format(
                    plan.project, DETAIL_LOGSTORE, error.code
                )
            raise
        return True, "{}/{} exists".format(plan.project, DETAIL_LOGSTORE)

    def _pipeline(self, api: AgentLoopApi, plan: Plan) -> Tuple[Any, str]:
        definition: Mapping[str, Any] = api.get_pipeline(plan.agent_space, plan.pipeline_name)
        body = preview_body(definition, _NO_TRACE, int(time.time() * 1000), time.time())
        api.preview_pipeline(plan.agent_space, body)
        return True, "{!r} can be read and previewed".format(plan.pipeline_name)

    def _agent(self, task: Task) -> Tuple[Any, str]:
        output = call_solution(self._solution, task, self._settings.task_timeout)
        if not output.success:
            raise ExperimentError(
                "row {}: {} - {}".format(
                    task.metadata.get("dataset_item_id") or task.id,
                    output.meta.get("error_type"),
                    output.meta.get("error_message"),
                )
            )
        trace = output.meta.get("traceId")
        return True, "answered in {:.0f} ms, {}".format(
            output.meta["latency_ms"], "trace " + str(trace) if trace else "without a trace id"
        )


def _occupied(path: str) -> str:
    return " and holds earlier results" if own_entries(path) else ""
