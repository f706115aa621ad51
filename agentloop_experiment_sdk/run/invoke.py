"""One call of the solution: its own copy of the task, its scope, its clock, its result."""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Mapping, Optional

from .. import jsontext, tracing
from ..models import Attempt, Result, SolutionOutput
from ..scope import AttemptScope, entered
from ..solutions.call import Prepared, failure_from, finish_async, needs_loop, to_output


@dataclass(frozen=True)
class CallFacts:
    """What all calls of a run share.

    ``solution`` is the prepared callable; ``extra`` goes into ``task.metadata``; ``refused`` is
    told of a refusal inside a call: reason, and the seconds the agent asked to be left alone.
    """

    solution: Prepared
    record_id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    refused: Optional[Callable[[Attempt, str, Optional[float]], None]] = None


class Call:
    """One attempt while it runs.

    Exactly one party may ``claim`` it: who finished it, who timed it out, or who stopped it.
    """

    __slots__ = ("attempt", "task", "scope", "_began", "_began_epoch", "_taken")

    def __init__(self, facts: CallFacts, attempt: Attempt) -> None:
        self.attempt = attempt
        self.task = attempt.task_for(facts.record_id, facts.extra)
        self.scope = AttemptScope(
            facts.record_id, str(attempt.task.metadata.get("dataset_item_id", ""))
        )
        self.scope.outer_span_id = tracing.open_span_id()
        if facts.refused is not None:
            self.scope.on_refusal = functools.partial(facts.refused, attempt)
        self._taken = threading.Lock()
        self.mark_start()

    def mark_start(self, *_args: Any, **_kwargs: Any) -> None:
        """The ``pre_hook`` of a solution: latency counts from here."""
        self._began_epoch = time.time()
        self._began = time.perf_counter()

    def claim(self) -> bool:
        """True for the first caller only."""
        return self._taken.acquire(blocking=False)

    def result(self, output: SolutionOutput) -> Result:
        """What the attempt came to, as of now.

        The output is taken as plain JSON values: what the agent changes later, or an iterator that
        can be read once, is the same on disk and in SLS.
        """
        took = time.perf_counter() - self._began
        try:
            output = _taken(output)
        except Exception as error:
            # an output that cannot be read, or is too large to copy, is a failed row
            output = failure_from(error)
        trace_id = tracing.valid_trace_id(output.meta.get("traceId")) or self.scope.trace_id
        return Result(
            self.attempt,
            output,
            int(self._began_epoch * 1000),
            int((self._began_epoch + took) * 1000),
            round(took * 1000, 3),
            trace_id,
        )

    def timed_out(self, seconds: float) -> Result:
        """The failed result of an attempt that ran past ``task_timeout``."""
        message = "the solution did not return within task_timeout={:g} s".format(seconds)
        return self.result(SolutionOutput.failure("TaskTimeout", message))

    @property
    def was_stopped(self) -> bool:
        """Whether the run's own stop ended the attempt."""
        return self.scope.cancelled


def _taken(output: SolutionOutput) -> SolutionOutput:
    meta = jsontext.to_jsonable(output.meta)
    if not isinstance(meta, dict):
        meta = {} if meta is None else {"meta": meta}
    return SolutionOutput(
        output.success,
        jsontext.to_jsonable(output.output),
        jsontext.to_jsonable(output.trajectory),
        meta,
    )


def invoke(
    call: Call, solution: Prepared, await_in_loop: Callable[[Awaitable[Any]], Any]
) -> Result:
    """Call a solution in this thread; whatever it raises is a failed row.

    ``KeyboardInterrupt`` passes through: it is the person at the keyboard, not the row.
    """
    with entered(call.scope):
        try:
            value = solution(call.task, call.mark_start)
            if isinstance(value, SolutionOutput):
                output = value
            elif needs_loop(value):
                output = await_in_loop(finish_async(value))
            else:
                output = to_output(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            output = failure_from(error)
        return call.result(output)


async def invoke_async(call: Call, solution: Prepared) -> Result:
    """Call an async solution in the running loop, as ``invoke`` calls a sync one."""
    with entered(call.scope):
        try:
            output = await finish_async(solution(call.task, call.mark_start))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            output = failure_from(error)
        return call.result(output)
