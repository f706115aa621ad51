"""What a worker of a foreign executor runs: one call of the solution, nothing else.

The driver keeps directory, delivery and record; a worker gets the solution (pickled once, unpickled
once per worker), a task and the ids for its trace, and gives back the output and its times.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

from ..errors import ConfigurationError
from ..models import Attempt, Result, SolutionOutput
from ..solutions.call import Prepared, prepare
from .invoke import Call, CallFacts, invoke
from .loop import PROCESS_LOOP, awaiter

_POLL_S = 0.5


class StopSignal(Protocol):
    """Tells workers that the run is over; travels to them by pickle."""

    def is_set(self) -> bool:
        """Whether the run was stopped."""
        ...


@dataclass(frozen=True)
class StopFile:
    """A stop signal for workers on this machine: a file that exists while the run goes on."""

    path: str

    def is_set(self) -> bool:
        """Whether the file is gone."""
        return not os.path.exists(self.path)


@dataclass(frozen=True)
class Parcel:
    """One attempt on its way to a worker.

    ``solution`` is pickled; its digest lets a worker unpickle it once. ``timeout`` is the run's
    ``task_timeout`` in seconds.
    """

    digest: str
    solution: bytes
    attempt: Attempt
    record_id: str
    extra: Mapping[str, Any]
    stop: Optional[StopSignal] = None
    timeout: Optional[float] = None


@dataclass(frozen=True)
class Answered:
    """What comes back; the task stays where it is, with the driver."""

    output: SolutionOutput
    started_at: int
    finished_at: int
    latency_ms: float
    trace_id: Optional[str]
    stopped: bool

    def result(self, attempt: Attempt) -> Result:
        """The result of the attempt that was sent."""
        return Result(
            attempt,
            self.output,
            self.started_at,
            self.finished_at,
            self.latency_ms,
            self.trace_id,
        )


def pickled(solution: Any) -> Tuple[str, bytes]:
    """A solution as bytes, and their digest.

    Functions and classes that only exist in the running script need cloudpickle, which Dask and
    loky bring along.

    Raises:
        ConfigurationError: It cannot be sent to another process.
    """
    data = _cloud_pickled(solution)
    if data is None:
        try:
            data = pickle.dumps(solution)
        except Exception as error:
            raise ConfigurationError(
                "The solution cannot be sent to the executor's workers: {}. Define it as a "
                "function of an importable module, without open clients or locks in it, or "
                "install cloudpickle.".format(error)
            ) from error
    return hashlib.sha256(data).hexdigest(), data


def run_parcel(parcel: Parcel) -> Answered:
    """Call the solution for one attempt; runs in a worker."""
    solution = _unpickled(parcel.digest, parcel.solution)
    call = Call(CallFacts(solution, parcel.record_id, parcel.extra), parcel.attempt)
    _WATCH.add(call, parcel.stop)
    try:
        if parcel.timeout is None:
            result = _invoked(call, solution)
        else:
            result = _invoked_within(parcel.timeout, call, solution)
    finally:
        _WATCH.remove(call)
    return Answered(
        result.output,
        result.started_at,
        result.finished_at,
        result.latency_ms,
        result.trace_id,
        call.was_stopped and result.output.meta.get("error_type") != "TaskTimeout",
    )


def _invoked(call: Call, solution: Prepared) -> Result:
    return invoke(call, solution, awaiter(lambda: PROCESS_LOOP.get(1), call.scope.on_cancel))


def _invoked_within(timeout: float, call: Call, solution: Prepared) -> Result:
    """The result, or a failure at the deadline; the thread of a late call is left behind."""
    results: List[Result] = []
    thread = threading.Thread(
        target=lambda: results.append(_invoked(call, solution)), name="agentloop-call", daemon=True
    )
    thread.start()
    thread.join(timeout)
    if results:
        return results[0]
    late = call.timed_out(timeout)
    call.scope.cancel()
    return late


def ready(seconds: float) -> int:
    """Hold a worker for a moment, so that a pool starts all of its processes; returns its pid."""
    time.sleep(seconds)
    return os.getpid()


def _cloud_pickled(solution: Any) -> Optional[bytes]:
    try:
        import cloudpickle
    except ImportError:
        return None
    try:
        return bytes(cloudpickle.dumps(solution))
    except Exception:
        return None


_solutions: Dict[str, Prepared] = {}


def _unpickled(digest: str, data: bytes) -> Prepared:
    if digest not in _solutions:
        _solutions[digest] = prepare(pickle.loads(data))
    return _solutions[digest]


class _StopWatch:
    """One thread per worker that cancels calls when their run is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Dict[int, Tuple[Call, StopSignal]] = {}
        self._pid = -1

    def add(self, call: Call, stop: Optional[StopSignal]) -> None:
        """Watch a call."""
        if stop is None:
            return
        with self._lock:
            self._calls[id(call)] = (call, stop)
            start, self._pid = self._pid != os.getpid(), os.getpid()
        if start:
            threading.Thread(target=self._watch, name="agentloop-stop", daemon=True).start()

    def remove(self, call: Call) -> None:
        """The call is over."""
        with self._lock:
            self._calls.pop(id(call), None)

    def _watch(self) -> None:
        while True:
            time.sleep(_POLL_S)
            with self._lock:
                watched: List[Tuple[Call, StopSignal]] = list(self._calls.values())
            for call, stop in watched:
                if not call.was_stopped and stop.is_set():
                    call.scope.cancel()


_WATCH = _StopWatch()
