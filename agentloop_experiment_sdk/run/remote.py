"""What a worker of a given executor runs: one call of the solution, nothing else.

The driver keeps directory, delivery and record. A worker gets the solution (once), a task and the
ids for its trace, and gives back the output and its times.
"""

from __future__ import annotations

import contextvars
import os
import threading
from dataclasses import dataclass
from typing import List, Optional, Tuple, Union

from ..models import Attempt, Result, SolutionOutput
from ..solutions.call import Prepared
from .invoke import Call, CallFacts, invoke
from .kit import KITS, Kit
from .loop import PROCESS_LOOP, awaiter
from .stopwatch import WATCH

_TO_THREADS = 32


@dataclass(frozen=True)
class Parcel:
    """One attempt on its way to a worker.

    ``kit`` is pickled and may be left out for workers that have it: they know it by ``digest``. A
    worker in the driver's own process gets it as it is. ``stop_file`` exists while the run goes on.
    """

    run_id: str
    digest: str
    kit: Union[None, bytes, Kit]
    attempt: Attempt
    record_id: str = ""
    stop_file: str = ""


@dataclass(frozen=True)
class Reply:
    """What comes back; the task stays where it is, with the driver.

    ``stopped``: the run's own stop ended the call. ``left_behind``: how many calls of this worker
    ran past their deadline and still go on.
    """

    output: SolutionOutput
    started_at: int
    finished_at: int
    latency_ms: float
    trace_id: Optional[str]
    stopped: bool = False
    left_behind: int = 0

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


def run_parcel(parcel: Parcel) -> Optional[Reply]:
    """Call the solution for one attempt; runs in a worker. None: the worker lacks the kit.

    Raises:
        ConfigurationError: The worker cannot load the solution.
    """
    kit = KITS.get(parcel.digest, parcel.kit)
    if kit is None:
        return None
    call = Call(CallFacts(kit.solution, parcel.record_id, kit.extra), parcel.attempt)
    late = False
    try:
        if not WATCH.add(call, parcel.run_id, parcel.stop_file):
            result = call.result(SolutionOutput.failure("Stopped", "the run was stopped"))
        elif kit.timeout is None:
            result = _invoked(call, kit.solution)
        else:
            result, late = _invoked_within(kit.timeout, call, kit.solution)
    finally:
        WATCH.remove(call)
    return Reply(
        result.output,
        result.started_at,
        result.finished_at,
        result.latency_ms,
        result.trace_id,
        call.was_stopped and not late,
        _count_left_behind(),
    )


def get_ready(digest: str, kit: Union[bytes, Kit], stop_file: str) -> int:
    """Load the kit of a run before its first call; runs in a worker.

    Args:
        digest: Of the kit.
        kit: Pickled.
        stop_file: As in ``Parcel``.

    Returns:
        The worker's process id.

    Raises:
        ConfigurationError: The worker cannot load the solution.
    """
    KITS.get(digest, kit)
    WATCH.see(stop_file)
    return os.getpid()


def stop_run(run_id: str) -> None:
    """End the calls of a run in this process, and those of its calls that are still to begin."""
    WATCH.stop(run_id)


def _invoked(call: Call, solution: Prepared) -> Result:
    await_in_loop = awaiter(lambda: PROCESS_LOOP.get(_TO_THREADS), call.scope.on_cancel)
    # a copy, so that one row's context variables do not leak into the next
    return contextvars.copy_context().run(invoke, call, solution, await_in_loop)


def _invoked_within(timeout: float, call: Call, solution: Prepared) -> Tuple[Result, bool]:
    """The result, or a failure at the deadline; the thread of a late call is left behind."""
    results: List[Result] = []
    interrupts: List[BaseException] = []

    def work() -> None:
        try:
            results.append(_invoked(call, solution))
        except BaseException as error:  # KeyboardInterrupt: all else is a result
            interrupts.append(error)

    thread = threading.Thread(target=work, name="agentloop-call", daemon=True)
    thread.start()
    thread.join(timeout)
    if interrupts:
        raise interrupts[0]
    if results:
        return results[0], False
    failed = call.timed_out(timeout)
    call.scope.cancel()
    _late_threads.append(thread)
    return failed, True


_late_threads: List[threading.Thread] = []


def _count_left_behind() -> int:
    if _late_threads:
        _late_threads[:] = [thread for thread in _late_threads if thread.is_alive()]
    return len(_late_threads)
