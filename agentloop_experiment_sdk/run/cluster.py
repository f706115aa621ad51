"""A given executor: how big it is, how its workers get ready, and how they hear of a stop."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import Executor, Future
from typing import Any, Callable, List, Mapping, Optional, Set, Union

from ..errors import ConfigurationError, ExperimentError, RunAbortedError
from ..models import Attempt
from ..results.journal import Key
from ..solutions.call import prepare
from .kit import Kit, packed
from .remote import Parcel, get_ready, stop_run

logger = logging.getLogger(__name__)

_INLINE_BYTES = 16_384
_PATIENCE_S = 10.0
_HOLD_S = 0.05
_ROUNDS = 20


class Cluster:
    """The workers of an executor that belongs to the caller, for one run.

    Args:
        given: A ``concurrent.futures.Executor``, or a ``distributed.Client``.
        solution: The user's solution.
        extra: Goes into ``task.metadata``.
        task_timeout: Seconds after which an attempt fails.

    Attributes:
        suspects: Attempts that were in flight when a worker died, and may be why it did.

    Raises:
        ConfigurationError: It is no executor, or the solution cannot be sent to its workers.
    """

    def __init__(
        self,
        given: Any,
        solution: Any,
        extra: Mapping[str, Any],
        task_timeout: Optional[float] = None,
    ) -> None:
        self._executor = as_executor(given)
        self.suspects: Set[Key] = set()
        self._run_id = uuid.uuid4().hex
        self._stop_file = ""
        self._client = dask_client(self._executor)
        # a subclass may start interpreters, which do need the pickled kit
        self._in_process = type(self._executor) is concurrent.futures.ThreadPoolExecutor
        self._kit: Union[bytes, Kit]
        if self._in_process:
            self._digest, self._kit = "", Kit(prepare(solution), extra, task_timeout)
        else:
            self._digest, self._kit = packed(
                solution,
                extra,
                task_timeout,
                by_name=_has_the_script(self._executor),
            )

    def make_ready(self, n_workers: int, is_stopped: Callable[[], bool] = lambda: False) -> int:
        """Have the workers started and the solution loaded, before our threads and any request.

        Waits for the first worker of a cluster that has none yet.

        Args:
            n_workers: How many rows run at once if the executor does not tell. A Dask cluster may
                grow, so there it is the least.
            is_stopped: Ends the waiting.

        Returns:
            How many attempts to give it at once: twice as many as run, so that no worker waits.

        Raises:
            ConfigurationError: The executor's workers do not start, or cannot load the solution.
        """
        if self._in_process:
            return 2 * size_of(self._executor, n_workers)
        if self._client is None:
            self._make_stop_file()
        self._start_workers(is_stopped)
        size = size_of(self._executor, n_workers)
        return 2 * size if self._client is None else max(2 * size, n_workers)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a worker call something."""
        # Dask would take the same arguments for the same work, and not try again what failed
        options = {} if self._client is None else {"pure": False}
        return self._executor.submit(function, *arguments, **options)

    def parcel(self, attempt: Attempt, record_id: str, with_kit: bool = False) -> Parcel:
        """What is sent for an attempt; a big kit only if it is asked for."""
        small = isinstance(self._kit, Kit) or len(self._kit) <= _INLINE_BYTES
        kit = self._kit if small or with_kit else None
        return Parcel(self._run_id, self._digest, kit, attempt, record_id, self._stop_file)

    def tell_stop(self) -> None:
        """Tell the workers that the run is over; does not wait.

        Workers on other machines hear of it through Dask only; elsewhere their rows run to the end.
        """
        if self._in_process:
            stop_run(self._run_id)
        elif self._client is not None:
            in_background(self._broadcast_stop)
        else:
            _remove(self._stop_file)

    def dismiss(self) -> None:
        """The run is over, and its stop file not needed any more."""
        _remove(self._stop_file)

    def cancel_begun(self, futures: List[Future[Any]]) -> None:
        """Give up futures at the end of a stopped run; does not wait."""
        # Dask asks its scheduler for each
        in_background(lambda: [future.cancel() for future in futures])

    @property
    def cancels_running(self) -> bool:
        """Whether ``future.cancel()`` also gives up an attempt that runs, losing its answer."""
        return self._client is not None

    def _broadcast_stop(self) -> None:
        try:
            self._client.run(stop_run, self._run_id, on_error="ignore")
        except Exception as error:
            logger.warning("The workers could not be told to stop: %s", error)

    def _make_stop_file(self) -> None:
        handle, self._stop_file = tempfile.mkstemp(prefix="agentloop-run-")
        os.close(handle)

    def _start_workers(self, is_stopped: Callable[[], bool]) -> None:
        if isinstance(self._executor, concurrent.futures.ProcessPoolExecutor):
            start_processes(self._executor, is_stopped)
        arguments = (self._digest, self._kit, self._stop_file)
        _await_ready([_first(self.submit, get_ready, *arguments)], is_stopped)


def start_processes(
    pool: concurrent.futures.ProcessPoolExecutor,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Start all processes of a pool now: a later fork would copy threads, and sockets with them.

    Raises:
        ConfigurationError: They do not start.
    """
    size = size_of(pool, 1)
    for _ in range(_ROUNDS):
        _await_ready([_first(pool.submit, time.sleep, _HOLD_S) for _ in range(size)], is_stopped)
        # some versions start a process only when none is idle
        if len(getattr(pool, "_processes", None) or ()) >= size:
            return


def _first(submit: Callable[..., Future[Any]], *arguments: Any) -> Future[Any]:
    try:
        return submit(*arguments)
    except Exception as error:
        raise ConfigurationError(
            "The executor takes no rows: {}. Give the run a new one.".format(error),
            code="ExecutorBroken",
        ) from error


def _await_ready(probes: List[Future[Any]], is_stopped: Callable[[], bool]) -> None:
    pending = set(probes)
    warn_at = time.monotonic() + _PATIENCE_S
    while pending and not is_stopped():
        concurrent.futures.wait(pending, timeout=0.2)
        # wait() does not count those that were cancelled by a shutdown
        pending = {probe for probe in pending if not probe.done()}
        if pending and time.monotonic() > warn_at:
            logger.warning("Waiting for the workers of the executor: none is ready yet.")
            warn_at = float("inf")
    for probe in probes:
        if probe in pending:
            probe.cancel()
        else:
            _check_ready(probe)


def as_executor(given: Any) -> Executor:
    """The executor that the ``executor`` option names: itself, or that of a Dask client.

    Raises:
        ConfigurationError: It is neither, or a client that awaits.
    """
    if hasattr(given, "get_executor"):
        given = given.get_executor()
    if not isinstance(given, Executor):
        raise ConfigurationError(
            "executor must be a concurrent.futures.Executor or a distributed.Client, not "
            "{!r}.".format(given)
        )
    if getattr(dask_client(given), "asynchronous", False):
        raise ConfigurationError(
            "executor needs a Dask client that was not made with asynchronous=True: the run waits "
            "for it on threads of its own."
        )
    return given


def size_of(executor: Executor, default: int) -> int:
    """How many calls an executor runs at once, as far as it tells; else ``default``."""
    client = dask_client(executor)
    if client is not None:
        return sum(client.nthreads().values()) or default
    for name in ("_max_workers", "num_workers"):
        size = getattr(executor, name, None)
        if isinstance(size, int) and size > 0:
            return size
    return default


def _has_the_script(executor: Executor) -> bool:
    """Whether the workers have what the running script defines, as it is now; those of a notebook
    may have been started before a cell was changed."""
    is_pool = isinstance(executor, concurrent.futures.ProcessPoolExecutor)
    return is_pool and hasattr(sys.modules.get("__main__"), "__file__")


def dask_client(executor: Any) -> Any:
    """The client behind a Dask executor, or None for another one."""
    module = type(executor).__module__ or ""
    return getattr(executor, "_client", None) if module.startswith("distributed") else None


def broken(error: BaseException) -> RunAbortedError:
    """The error that ends a run whose executor takes no more rows."""
    failure = RunAbortedError(
        "The executor lost a worker and cannot go on: {}. A solution that crashes its process, too "
        "little memory, or an executor that was shut down are common causes. Run again with a new "
        "executor, more than once if it breaks again: rows that are done are kept.".format(
            str(error).rstrip(". ") or type(error).__name__
        ),
        code="ExecutorBroken",
    )
    failure.__cause__ = error
    return failure


def _check_ready(probe: Future[Any]) -> None:
    if probe.cancelled():
        raise ConfigurationError(
            "The executor was shut down. Give the run a new one.", code="ExecutorBroken"
        )
    error = probe.exception()
    if error is None:
        return
    if isinstance(error, (ExperimentError, KeyboardInterrupt)):
        raise error
    if isinstance(error, concurrent.futures.BrokenExecutor):
        raise ConfigurationError(
            "The executor's workers died while they started; nothing was sent. A script that "
            'starts processes must run its experiment under: if __name__ == "__main__":',
            code="ExecutorBroken",
        ) from error
    raise ConfigurationError(
        "The executor's workers cannot run rows: {}: {}. Install the same versions of Python and "
        "this package there.".format(type(error).__name__, error)
    ) from error


def in_background(action: Callable[[], Any]) -> None:
    """Call something that may wait for the network."""
    threading.Thread(target=action, name="agentloop-executor", daemon=True).start()


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
