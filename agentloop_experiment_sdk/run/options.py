"""The types of what ``run_experiment`` and ``Experiment`` take; read by type checkers only."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import (
    Any,
    Callable,
    Literal,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    TypedDict,
    Union,
)

from ..evaluate.evaluator import Evaluators
from .events import Event

Path = Union[str, "os.PathLike[str]"]
Solution = Callable[..., Any]
Workers = Union[int, Literal["auto"], Sequence[int]]
Undelivered = Literal["complete", "hold"]


class DaskClient(Protocol):
    """What a ``distributed.Client`` is known by."""

    def get_executor(self, *args: Any, **kwargs: Any) -> Any:
        """An executor over the client's cluster."""


AnyExecutor = Union[Executor, DaskClient]


class RunOptions(TypedDict, total=False):
    """The keyword arguments of ``Experiment`` but ``serial``; a test holds the two together."""

    resume: Optional[bool]
    retry_failed: bool
    row_retries: int
    task_timeout: Optional[float]
    limit: Optional[int]
    item_ids: Optional[Sequence[Any]]
    max_failures: Union[None, int, float]
    stop_if_first: Optional[int]
    on_event: Optional[Callable[[Event], None]]
    progress: Union[None, bool, Callable[[Event], None]]
    evaluators: Evaluators
    client_token: Optional[str]
    record_id: Optional[str]
    version: str
    parameters: Optional[Mapping[str, Any]]
    on_undelivered: Undelivered
    drain_timeout: float
    stop_grace: float
    fsync: bool
    executor: Optional[AnyExecutor]
    max_rps: Optional[float]
