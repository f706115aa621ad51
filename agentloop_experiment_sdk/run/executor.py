"""Which engine runs a solution, and whether this process may start one."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from ..errors import ConfigurationError
from ..solutions.call import is_async
from .caller import CallerEngine
from .coroutines import LoopEngine
from .engine import Engine, Outlet
from .invoke import CallFacts
from .loop import check_not_on_loop
from .settings import RunSettings
from .threads import ThreadEngine

if TYPE_CHECKING:
    from .cluster import Cluster


@dataclass(frozen=True)
class Workers:
    """How attempts run.

    Args:
        count: How many at once.
        in_caller: Sync attempts may run in the calling thread (serial mode).
        task_timeout: Seconds an attempt may take, None without a limit.
        loop: The event loop of a caller who awaits the run.
        is_over: Whether the run was ended, as that caller's cancellation does.
        cluster: The workers of a given executor, which run the attempts; then ``count`` is how many
            it holds at a time, and ``task_timeout`` is the cluster's own.
    """

    count: int
    in_caller: bool = False
    task_timeout: Optional[float] = None
    loop: Optional[asyncio.AbstractEventLoop] = None
    is_over: Callable[[], bool] = lambda: False
    cluster: Optional[Cluster] = None


def given_cluster(
    settings: RunSettings, solution: Any, facts: Mapping[str, Any]
) -> Optional[Cluster]:
    """The workers of the executor that the user gave, if one was given.

    Raises:
        ConfigurationError: It is no executor, or the solution cannot be sent to it.
    """
    if settings.executor is None:
        return None
    # most runs stay on one machine; the engine comes along, for between the record and its first
    # row an import could swallow a Ctrl-C (Python drops what is raised within its import locks)
    from . import pool  # noqa: F401
    from .cluster import Cluster

    return Cluster(settings.executor, solution, facts, settings.task_timeout)


def make_engine(solution: Any, facts: CallFacts, outlet: Outlet, workers: Workers) -> Engine:
    """The engine for ``solution``: a given executor, the event loop, threads, or the caller."""
    if workers.cluster is not None:
        from .pool import PoolEngine

        return PoolEngine(workers.cluster, facts.record_id, outlet, workers.count)
    if is_async(solution):
        return LoopEngine(
            facts, outlet, workers.count, workers.task_timeout, workers.loop, workers.is_over
        )
    serial = workers.in_caller and workers.count == 1 and workers.task_timeout is None
    if serial and not _runs_a_loop():  # where one runs, no solution could use asyncio.run
        return CallerEngine(facts, outlet, workers.is_over)
    return ThreadEngine(facts, outlet, workers.count, workers.task_timeout)


def _runs_a_loop() -> bool:
    """Whether the calling thread runs an event loop, as a notebook's does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_loop(solution: Any) -> None:
    """Refuse to wait, on the event loop of async solutions, for another async solution on it.

    Raises:
        ConfigurationError: It would never end.
    """
    if is_async(solution):
        check_not_on_loop()


def check_main_guard() -> None:
    """Refuse a run that a spawned child started by importing its parent's script.

    Raises:
        ConfigurationError: The script lacks a main guard.
    """
    module = sys.modules.get("multiprocessing.process")
    if module is not None and getattr(module.current_process(), "_inheriting", False):
        raise ConfigurationError(
            "A worker process imported your script and started the experiment again. Put the run "
            'under: if __name__ == "__main__":'
        )
