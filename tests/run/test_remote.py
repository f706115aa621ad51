"""What runs in a worker, called here: a parcel in, an answer out."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
import uuid
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
from pool_agents import Heavy, Locked, Unloadable, facts, names, sleeping, unpicklable
from run_support import wait_until

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import Attempt, SolutionOutput, Task
from agentloop_experiment_sdk.run.kit import KITS, Kit, KitStore, packed
from agentloop_experiment_sdk.run.remote import Parcel, Reply, get_ready, run_parcel, stop_run
from agentloop_experiment_sdk.run.stopwatch import WATCH, StopWatch
from agentloop_experiment_sdk.scope import current_scope
from agentloop_experiment_sdk.solutions.call import prepare


def sent(
    solution: Any,
    timeout: Optional[float] = None,
    extra: Optional[Dict[str, Any]] = None,
    **changes: Any,
) -> Parcel:
    """A parcel as a worker gets it: pickled on its way."""
    digest, kit = packed(solution, extra or {}, timeout)
    task = Task("t", {"id": "1", "seconds": 30}, metadata={"dataset_item_id": "7"})
    fields = {"run_id": uuid.uuid4().hex, "digest": digest, "kit": kit, "record_id": "exp-1"}
    parcel: Parcel = pickle.loads(
        pickle.dumps(Parcel(attempt=Attempt(task, "2"), **{**fields, **changes}))
    )
    return parcel


def answered(parcel: Parcel) -> Reply:
    answer = run_parcel(parcel)
    assert answer is not None
    return answer


def test_an_answer_has_the_output_the_times_and_the_trace() -> None:
    answer = answered(sent(facts, extra={"version": "v1"}))
    output = answer.output.output
    assert output["version"] == "v1"
    assert output["traceparent"].split("-")[1] == answer.trace_id
    assert "exp-1" in output["baggage"] and "7" in output["baggage"]
    assert answer.started_at <= answer.finished_at and not answer.stopped
    result = answer.result(sent(facts).attempt)
    assert result.attempt.repeat_id == "2" and result.status == "success"


def test_an_answer_is_plain_and_can_travel() -> None:
    answer = answered(sent(unpicklable))
    again: Reply = pickle.loads(pickle.dumps(answer))
    assert again.output.output["items"] == [0, 1, 2]


def raising(task: Any) -> str:
    raise SystemExit(3)


def interrupted(task: Any) -> str:
    raise KeyboardInterrupt


def test_what_a_solution_raises_is_a_failed_row() -> None:
    assert answered(sent(raising)).output.meta["error_type"] == "SystemExit"
    for timeout in (None, 60.0):
        with pytest.raises(KeyboardInterrupt):
            run_parcel(sent(interrupted, timeout))


async def on_to_thread(task: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: [id(loop), threading.current_thread().name])


def test_async_solutions_run_on_the_loop_of_the_process() -> None:
    first = answered(sent(on_to_thread)).output.output
    second = answered(sent(on_to_thread, timeout=60)).output.output
    assert first[0] == second[0]


def test_a_late_call_fails_and_is_left_behind() -> None:
    answer = answered(sent(sleeping, timeout=0.05))
    assert answer.output.meta["error_type"] == "TaskTimeout"
    assert answer.left_behind == 1 and not answer.stopped


KEPT: ContextVar[str] = ContextVar("kept", default="fresh")


def leaking(task: Any) -> str:
    seen = KEPT.get()
    KEPT.set("spoiled")
    return seen


def test_context_variables_do_not_leak_into_the_next_row() -> None:
    parcel = sent(leaking)
    assert [answered(parcel).output.output for _ in range(2)] == ["fresh", "fresh"]


def test_a_worker_without_the_kit_asks_for_it(tmp_path: Path) -> None:
    parcel = sent(Heavy(tmp_path, 10))
    assert run_parcel(sent(Heavy(tmp_path, 10), kit=None, digest="unknown")) is None
    assert answered(parcel).output.output == 10
    bare = Parcel(parcel.run_id, parcel.digest, None, parcel.attempt)
    assert answered(bare).output.output == 10
    assert len(names(tmp_path, "loaded")) == 1


def test_a_solution_that_cannot_be_loaded_is_no_failed_row() -> None:
    with pytest.raises(ConfigurationError, match="agent_of_the_driver"):
        run_parcel(sent(Unloadable()))
    digest, kit = packed(Unloadable(), {})
    with pytest.raises(ConfigurationError):
        get_ready(digest, kit, "")


def test_a_solution_that_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="open clients or locks in it[.,]"):
        packed(Locked(), {})
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ConfigurationError, match="or install cloudpickle"):
        packed(lambda task: 1, {})


def test_what_the_workers_have_is_sent_by_name() -> None:
    _, by_name = packed(facts, {}, by_name=True)
    assert b"pool_agents" in by_name


def test_only_the_latest_kits_are_kept(tmp_path: Path) -> None:
    store = KitStore()
    kits = [packed(facts, {"n": n}) for n in range(6)]
    for digest, kit in kits:
        store.get(digest, kit)
    assert store.get(kits[0][0], None) is None
    assert store.get(kits[5][0], None) is not None
    own = Kit(prepare(facts), {})
    assert store.get("", own) is own


def test_a_worker_gets_ready(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    file.touch()
    digest, kit = packed(facts, {"n": "ready"})
    assert get_ready(digest, kit, str(file)) == os.getpid()
    assert KITS.get(digest, None) is not None


class Waiting:
    """Awaits until it is cancelled."""

    begun = threading.Event()

    async def __call__(self, task: Any) -> str:
        Waiting.begun.set()
        await asyncio.sleep(600)
        return "never"


def stopped_while_it_runs(parcel: Parcel, stop: Any) -> Reply:
    Waiting.begun.clear()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(answered(parcel)))
    thread.start()
    assert Waiting.begun.wait(60)
    stop()
    thread.join(60)
    return answers[0]


@pytest.mark.parametrize("timeout", [None, 500.0])
def test_a_call_ends_when_its_file_is_gone(tmp_path: Path, timeout: Optional[float]) -> None:
    file = tmp_path / "stop"
    file.touch()
    parcel = sent(Waiting(), timeout, stop_file=str(file))
    answer = stopped_while_it_runs(parcel, file.unlink)
    assert answer.stopped and not answer.output.success
    # and one that comes late does not begin
    late = answered(parcel)
    assert late.stopped and late.output.meta["error_type"] == "Stopped"


def test_a_call_ends_when_its_worker_is_told() -> None:
    parcel = sent(Waiting())
    answer = stopped_while_it_runs(parcel, lambda: stop_run(parcel.run_id))
    assert answer.stopped
    assert answered(parcel).stopped
    assert not answered(sent(facts)).stopped  # another run goes on


def test_a_file_that_was_never_seen_says_nothing(tmp_path: Path) -> None:
    """The driver may be on another machine: its rows must not be dropped here."""
    parcel = sent(facts, stop_file=str(tmp_path / "elsewhere"))
    assert answered(parcel).output.success


def test_an_answer_that_came_in_spite_of_the_stop_counts(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    file = tmp_path / "stop"
    file.touch()

    def unlinking(task: Any) -> SolutionOutput:
        scope = current_scope()
        assert scope is not None
        file.unlink()
        wait_until(lambda: scope.cancelled)
        return SolutionOutput.success("in time")

    answer = answered(sent(unlinking, stop_file=str(file)))
    assert answer.output.success


def test_the_watch_wakes_up_for_the_next_call() -> None:
    watch = StopWatch()
    for _ in range(2):
        parcel = sent(Waiting())
        stopped_while_it_runs(parcel, lambda parcel=parcel: stop_run(parcel.run_id))
        wait_until(lambda: WATCH._idle)
    watch.begin_anew()
    assert not watch._calls


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_begins_anew() -> None:
    digest, kit = packed(facts, {"n": "forked"})
    KITS.get(digest, kit)
    with KITS._loading:  # as another thread may hold it at that moment
        pid = os.fork()
        if pid == 0:
            os._exit(0 if KITS.get(digest, None) is None and not WATCH._calls else 1)
        assert os.waitpid(pid, 0)[1] == 0
