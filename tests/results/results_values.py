"""Plans, tasks and results for the tests of the results room."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Sequence

from agentloop_experiment_sdk.models import Attempt, Identity, Plan, Result, SolutionOutput, Task
from agentloop_experiment_sdk.results import attempts
from agentloop_experiment_sdk.results.attempts import AttemptWriter, Stamp
from agentloop_experiment_sdk.results.directory import Description, ResultsDirectory
from agentloop_experiment_sdk.results.journal import Saved

IDENTITY = Identity("space", "plan-1", "experimentA", "cn-test")
EXPERIMENT = attempts.experiment_key(IDENTITY)
NOW_MS = 1796025600000


def plan(**changes: Any) -> Plan:
    values: Dict[str, Any] = {
        "agent_space": "space",
        "plan_id": "plan-1",
        "plan_name": "nightly",
        "region_id": "cn-test",
        "project": "proj",
        "dataset": "faq",
    }
    return Plan(**dict(values, **changes))


def description(n_repeat: int = 1, **changes: Any) -> Description:
    return Description(plan(**changes), n_repeat, {"name": "agent", "hash": "h1"})


def task(number: Any, **columns: Any) -> Task:
    task_id = str(uuid.uuid5(uuid.NAMESPACE_OID, repr((number, sorted(columns.items())))))
    row = dict({"id": str(number), "question": "q%s" % number}, **columns)
    return Task(task_id, row, metadata={"dataset": "faq", "dataset_item_id": str(number)})


def tasks(count: int) -> List[Task]:
    return [task(number) for number in range(count)]


def result(
    of: Task,
    output: Any = "answer",
    repeat: str = "0",
    number: int = 1,
    success: bool = True,
    trace_id: Optional[str] = None,
    **meta: Any,
) -> Result:
    answered = SolutionOutput(success, output, meta=meta)
    return Result(
        Attempt(of, repeat, number), answered, NOW_MS, NOW_MS + 12, 12.345, trace_id=trace_id
    )


def writer(root: Any, experiment: str = EXPERIMENT, **options: Any) -> AttemptWriter:
    return AttemptWriter(str(root), Stamp(experiment, "record-1", "h1"), **options)


def saved(number: int = 0, size: int = 100, **changes: Any) -> Saved:
    values: Dict[str, Any] = {
        "task_id": task(number).id,
        "repeat_id": "0",
        "number": 1,
        "status": "success",
        "latency_ms": 1.0,
        "size": size,
    }
    return Saved(**dict(values, **changes))


def run(
    path: Any, present: Sequence[Task], answered: Sequence[Task] = (), **options: Any
) -> ResultsDirectory:
    """Begin an experiment in ``path``, answer some of its tasks, and close it."""
    directory = ResultsDirectory.inspect(str(path), IDENTITY, options.pop("resume", None))
    directory.begin(description(**options), present, NOW_MS)
    directory.update_meta(record_id="record-1", record_name="nightly 1")
    writing = writer(path)
    directory.note_saved([writing.save(result(of)) for of in answered])
    directory.close()
    return directory


def eventually(condition: Callable[[], Any], cap: float = 30.0) -> Any:
    """What ``condition`` returns once it is true; fails after ``cap`` seconds."""
    ends = time.monotonic() + cap
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < ends, "it did not happen within {} s".format(cap)
        time.sleep(0.002)


class VirtualTime:
    """A clock that stands still until a test moves it; threads that wait on it look at it often."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._looks: Dict[int, int] = {}

    def clock(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, timeout: Optional[float]) -> bool:
        self._looks[threading.get_ident()] = self._looks.get(threading.get_ident(), 0) + 1
        return condition.wait(0.005)

    def settle(self, threads: int) -> None:
        """Wait until so many threads have found nothing to do at the present time."""
        seen = dict(self._looks)
        eventually(
            lambda: (
                sum(n >= seen.get(who, 0) + 2 for who, n in list(self._looks.items())) >= threads
            )
        )

    def advance(self, seconds: float, threads: int) -> None:
        """Move the clock, and wait until what is due then has been done."""
        self.now += seconds
        self.settle(threads)
