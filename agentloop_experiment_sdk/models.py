"""The values the rooms exchange: tasks, outputs, HTTP requests, plans, attempts and results."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from .errors import ConfigurationError
from .output import SolutionOutput as SolutionOutput

HTTP_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")

_CONTROL = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Task:
    """One dataset row, as a solution receives it.

    Args:
        id: The task id: stable over runs while the row does not change.
        input: The row as a dict of column name to value. Each attempt gets its own copy.
        ground_truth: The value of the config's ``ground_truth_field``, else ``""``.
        tags: Free labels; None when there are none.
        metadata: Inside a run: ``record_id``, ``dataset``, ``dataset_item_id``, ``repeat_id``,
            ``version`` and ``parameters``.
    """

    id: str
    input: Dict[str, Any]
    ground_truth: Any = ""
    tags: Optional[Dict[str, Any]] = None
    metadata: Dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class HttpRequestSpec:
    """One HTTP request to an agent, checked when it is built.

    Args:
        url: An ``http`` or ``https`` URL; text outside ASCII is percent-encoded as UTF-8 when sent.
        method: GET, POST, PUT, DELETE, PATCH, HEAD or OPTIONS, in any letter case.
        headers: Request headers.
        json: A JSON body; any value ``jsontext`` can write. Not together with ``data``.
        data: A str or bytes body, or a mapping that is sent as a form.
        params: Query parameters, added to those of the URL; a list value repeats the name.
        timeout: Seconds for the whole exchange; None takes the solution's default.

    Raises:
        ConfigurationError: The URL, method, bodies or timeout cannot be used.
    """

    url: str
    method: str = "POST"
    headers: Optional[Mapping[str, str]] = None
    json: Any = None
    data: Union[None, str, bytes, Mapping[str, Any]] = None
    params: Optional[Mapping[str, Any]] = None
    timeout: Optional[float] = None

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not isinstance(self.method, str) or self.method.upper() not in HTTP_METHODS:
            raise ConfigurationError(
                "HTTP method {!r} is not supported; use one of {}.".format(
                    self.method, ", ".join(HTTP_METHODS)
                )
            )
        object.__setattr__(self, "method", self.method.upper())
        if self.json is not None and self.data is not None:
            raise ConfigurationError("Give an HTTP request either json or data, not both.")
        if self.timeout is not None and not _positive(self.timeout):
            raise ConfigurationError(
                "HTTP timeout must be a number of seconds above 0, not {!r}.".format(self.timeout)
            )

    def __repr__(self) -> str:
        """Method and place only: headers, query and body may hold credentials."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return "HttpRequestSpec({} {}://{}{})".format(self.method, parts.scheme, host, parts.path)


def _positive(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < float("inf")


def _check_url(url: Any) -> None:
    if not isinstance(url, str):
        raise ConfigurationError("The request URL must be text, not {!r}.".format(url))
    # urlsplit would drop some of these silently, and the request line must not hold them
    if _CONTROL.search(url):
        raise ConfigurationError("The request URL holds a line break or control character.")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        parts.port  # noqa: B018 - reading it validates it
    except ValueError as error:
        raise ConfigurationError("The request URL cannot be read: {}.".format(error)) from error
    if parts.scheme not in ("http", "https") or not host or any(map(str.isspace, host)):
        raise ConfigurationError(
            "The request URL must start with http:// or https:// and name a host."
        )


@dataclass(frozen=True)
class Identity:
    """What makes two runs the same experiment: a results directory holds one."""

    agent_space: str
    plan_id: str
    experiment_name: str
    region_id: str


@dataclass(frozen=True)
class Plan:
    """A resolved experiment plan: what to run and where its rows go.

    ``selected_item_ids`` and ``query_sql`` narrow the dataset; ``pipeline_name`` is "" when the
    plan has none. Endpoints are those the user gave, or None for the region's defaults.
    """

    agent_space: str
    plan_id: str
    plan_name: str
    region_id: str
    project: str
    dataset: str
    pipeline_name: str = ""
    evaluators: Tuple[Mapping[str, Any], ...] = ()
    selected_item_ids: Tuple[str, ...] = ()
    query_sql: str = ""
    max_rows: int = 1000
    ground_truth_field: Optional[str] = None
    experiment_name: str = "experimentA"
    agentloop_endpoint: Optional[str] = None
    sls_endpoint: Optional[str] = None

    @property
    def identity(self) -> Identity:
        """The fields that decide whether a results directory can be continued."""
        return Identity(self.agent_space, self.plan_id, self.experiment_name, self.region_id)


@dataclass(frozen=True)
class Attempt:
    """One call of the solution that is due: a task, a repeat, and which try of them it is.

    ``number`` counts all tries of the attempt, from 1; ``tries`` those of this run.
    """

    task: Task
    repeat_id: str
    number: int = 1
    tries: int = 1

    @property
    def key(self) -> Tuple[str, str]:
        """(task id, repeat id): names the attempt's folder."""
        return (self.task.id, self.repeat_id)

    def task_for(self, record_id: str, extra: Mapping[str, Any]) -> Task:
        """The task as the solution sees it: its own copy of everything, with this run's metadata.

        A solution that changes its task spoils neither other rows nor what is logged.
        """
        metadata = dict(self.task.metadata, record_id=record_id, repeat_id=self.repeat_id)
        metadata.update(extra)
        return Task(
            self.task.id,
            _own_copy(self.task.input),
            _own_copy(self.task.ground_truth),
            _own_copy(self.task.tags),
            {name: _own_copy(value) for name, value in metadata.items()},
        )


_IMMUTABLE = frozenset((str, int, float, bool, type(None)))


def _own_copy(value: Any) -> Any:
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    try:
        if kind is dict and _IMMUTABLE.issuperset(map(type, value.values())):
            return value.copy()  # as most rows are; a tenth of the time
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied (a user's client, a lock) is shared
        return value


@dataclass(frozen=True)
class Result:
    """What one attempt came to.

    Attributes:
        attempt: What was due.
        output: What the solution answered; never changed after it was taken.
        started_at: When the agent call began, milliseconds since the epoch.
        finished_at: When it ended, milliseconds since the epoch.
        latency_ms: How long the agent call took, by the monotonic clock.
        trace_id: The trace the agent saw, 32 lower-case hex digits, or None.
    """

    attempt: Attempt
    output: SolutionOutput
    started_at: int
    finished_at: int
    latency_ms: float
    trace_id: Optional[str] = None

    @property
    def status(self) -> str:
        """``success``, ``failed`` or ``skipped`` (a conversation without turns)."""
        if not self.output.success:
            return "failed"
        return "skipped" if self.output.meta.get("skipped") is True else "success"


Rows = List[Dict[str, Any]]
