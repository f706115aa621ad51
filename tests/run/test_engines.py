"""Engines by themselves: attempts in, results out."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

import pytest
from run_support import CAP_S, config_for, run, wait_until

from agentloop_experiment_sdk import Experiment, load_result
from agentloop_experiment_sdk.errors import RunAbortedError
from agentloop_experiment_sdk.models import Attempt, Result, SolutionOutput, Task
from agentloop_experiment_sdk.run.engine import Outlet
from agentloop_experiment_sdk.run.executor import Workers, make_engine
from agentloop_experiment_sdk.run.invoke import Call, CallFacts
from agentloop_experiment_sdk.run.loop import PROCESS_LOOP, Heartbeat
from agentloop_experiment_sdk.run.single import call_solution
from agentloop_experiment_sdk.run.threads import ThreadEngine
from agentloop_experiment_sdk.scope import current_scope
from agentloop_experiment_sdk.solutions.call import prepare


def attempts(count: int) -> List[Attempt]:
    return [Attempt(Task(str(n), {"n": n}), "0") for n in range(count)]


class Bench:
    """An engine whose results and dropped attempts are kept."""

    def __init__(
        self,
        solution: Any,
        count: int = 2,
        *,
        in_caller: bool = False,
        task_timeout: Optional[float] = None,
        loop: Any = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.results: List[Result] = []
        self.dropped: List[Tuple[Attempt, Optional[BaseException]]] = []
        self._expected = 0
        self.finished = threading.Event()
        self._lock = threading.Lock()
        outlet = Outlet(self._took, self._dropped)
        workers = Workers(count, in_caller, task_timeout, loop, is_over)
        self.engine = make_engine(solution, CallFacts(prepare(solution)), outlet, workers)

    def _took(self, result: Result) -> None:
        with self._lock:
            self.results.append(result)
            self._check()

    def _dropped(self, attempt: Attempt, error: Optional[BaseException]) -> None:
        with self._lock:
            self.dropped.append((attempt, error))
            self._check()

    def _check(self) -> None:
        if self._expected and len(self.results) + len(self.dropped) >= self._expected:
            self.finished.set()

    def run(self, count: int) -> Bench:
        """Run so many attempts to their end, in this thread if the engine likes."""
        self.submit(count)
        return self.finished_by_its_engine()

    def finished_by_its_engine(self) -> Bench:
        closer = threading.Thread(target=self._close_when_finished)
        closer.start()
        self.engine.assist(self.finished)
        closer.join(CAP_S)
        return self

    def submit(self, count: int) -> None:
        with self._lock:
            self._expected = count
        for attempt in attempts(count):
            self.engine.submit(attempt)

    def wait(self) -> None:
        assert self.finished.wait(CAP_S)

    def _close_when_finished(self) -> None:
        assert self.finished.wait(CAP_S)
        self.engine.close()

    @property
    def outputs(self) -> List[Any]:
        return [result.output.output for result in self.results]

    @property
    def errors(self) -> List[Any]:
        return [result.output.meta.get("error_type") for result in self.results]


KINDS = ("caller", "threads", "coroutines")


def bench_of(kind: str, sync: Callable[..., Any], **options: Any) -> Bench:
    """The engine of that kind for a solution that is written as a sync one."""
    if kind != "coroutines":
        return Bench(sync, 1 if kind == "caller" else 2, in_caller=kind == "caller", **options)

    async def solution(task: Task) -> Any:
        return sync(task)

    return Bench(solution, 2, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_attempt_comes_out_once(kind: str) -> None:
    bench = bench_of(kind, lambda task: task.input["n"]).run(50)
    assert sorted(bench.outputs) == list(range(50))
    assert not bench.dropped


@pytest.mark.parametrize("solution_is_async", [False, True])
def test_one_worker_keeps_the_order(solution_is_async: bool) -> None:
    async def later(task: Task) -> Any:
        await asyncio.sleep(0)
        return task.input["n"]

    solution = later if solution_is_async else (lambda task: task.input["n"])
    assert Bench(solution, 1).run(30).outputs == list(range(30))


def test_serial_runs_in_the_calling_thread() -> None:
    bench = Bench(lambda task: threading.get_ident(), 1, in_caller=True).run(3)
    assert bench.outputs == [threading.get_ident()] * 3


def test_serial_with_a_deadline_leaves_the_calling_thread() -> None:
    bench = Bench(lambda task: threading.get_ident(), 1, in_caller=True, task_timeout=60).run(2)
    assert threading.get_ident() not in bench.outputs


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_no_more_than_n_workers_run_at_once_and_as_many_do(kind: str) -> None:
    lock = threading.Lock()
    running, most = [0], [0]
    full = threading.Event()

    def enter() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 4:
                full.set()

    def leave() -> None:
        with lock:
            running[0] -= 1

    def sync(task: Task) -> None:
        enter()
        full.wait(CAP_S)
        leave()

    async def awaited(task: Task) -> None:
        enter()
        while not full.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        leave()

    Bench(sync if kind == "threads" else awaited, 4).run(40)
    assert most[0] == 4


def test_threads_are_made_only_as_they_are_needed() -> None:
    seen = set()

    def solution(task: Task) -> None:
        seen.add(threading.get_ident())

    bench = Bench(solution, 50)
    for attempt in attempts(20):
        before = len(bench.results)
        bench.engine.submit(attempt)
        wait_until(lambda before=before: len(bench.results) > before)
        # the thread is idle again once it waits for the next attempt
        wait_until(lambda: bench.engine._idle >= 1)  # type: ignore[attr-defined]
    bench.engine.close()
    assert len(seen) == 1


def test_500_async_rows_at_once_need_no_thread_each() -> None:
    release = threading.Event()
    inside = [0]

    async def solution(task: Task) -> None:
        inside[0] += 1
        while not release.is_set():
            await asyncio.sleep(0.01)

    before = threading.active_count()
    bench = Bench(solution, 500)
    bench.submit(500)
    wait_until(lambda: inside[0] == 500)
    assert threading.active_count() - before <= 4
    release.set()
    bench.wait()
    bench.engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_context_variables_of_the_caller_reach_the_solution_and_do_not_leak(kind: str) -> None:
    tenant = contextvars.ContextVar("tenant", default="nobody")
    tenant.set("acme")

    def solution(task: Task) -> str:
        seen = tenant.get()
        tenant.set("changed by row {}".format(task.id))
        return seen

    assert bench_of(kind, solution).run(6).outputs == ["acme"] * 6
    assert tenant.get() == "acme"


def test_one_event_loop_serves_all_runs() -> None:
    async def solution(task: Task) -> Any:
        return id(asyncio.get_running_loop())

    first, second = Bench(solution, 2).run(3), Bench(solution, 5).run(3)
    assert len(set(first.outputs + second.outputs)) == 1


def test_a_sync_callable_may_return_a_coroutine_and_keeps_its_slot() -> None:
    running, most = [0], [0]

    async def later(task: Task) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.002)
        running[0] -= 1
        return id(asyncio.get_running_loop())

    async def plain(task: Task) -> Any:
        return id(asyncio.get_running_loop())

    bench = Bench(lambda task: later(task), 3).run(20)
    assert set(bench.outputs) == set(Bench(plain, 1).run(1).outputs)
    assert most[0] <= 3


@pytest.mark.parametrize("in_caller", [False, True])
def test_whatever_is_awaitable_is_awaited(in_caller: bool) -> None:
    class Agent:
        async def __call__(self, task: Task, pre_hook: Any) -> str:
            pre_hook()
            return "object"

    class Awaitable:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "awaitable"

    async def stream(task: Task) -> Any:
        yield "a"
        yield "b"

    async def two(prefix: str, task: Task, pre_hook: Any) -> str:
        return prefix + task.id

    for solution, wanted in (
        (Agent(), "object"),
        (lambda task: Awaitable(), "awaitable"),
        (stream, "ab"),
        (functools.partial(two, "row "), "row 0"),
        (lambda task: stream(task), "ab"),
    ):
        assert Bench(solution, 1, in_caller=in_caller).run(1).outputs == [wanted]


def raises(error: BaseException) -> Callable[[Task], Any]:
    def solution(task: Task) -> str:
        if task.input["n"] == 1:
            raise error
        return "fine"

    return solution


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error",
    [SystemExit("agent gave up"), asyncio.CancelledError(), ValueError("x"), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_what_a_solution_raises_fails_its_row_only(kind: str, error: BaseException) -> None:
    bench = bench_of(kind, raises(error)).run(4)
    assert sorted(map(str, bench.errors)) == sorted(["None"] * 3 + [type(error).__name__])
    assert not bench.dropped


@pytest.mark.parametrize("in_caller", [False, True])
def test_what_a_returned_coroutine_raises_fails_its_row_only(in_caller: bool) -> None:
    async def later(task: Task) -> str:
        if task.input["n"] == 1:
            sys.exit(3)
        return "fine"

    bench = Bench(lambda task: later(task), 1, in_caller=in_caller).run(3)
    assert bench.errors == [None, "SystemExit", None]


def test_the_loop_survives_a_child_task_that_exits(caplog: pytest.LogCaptureFixture) -> None:
    async def child() -> None:
        sys.exit(2)

    async def solution(task: Task) -> str:
        if task.input["n"] == 0:
            await asyncio.gather(asyncio.ensure_future(child()), return_exceptions=True)
        return "loop {}".format(id(asyncio.get_running_loop()))

    bench = Bench(solution, 2).run(5)
    assert len(bench.results) == 5
    assert len({output for output in bench.outputs if output}) == 1
    assert "out of the event loop" in caplog.text


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_a_keyboard_interrupt_inside_a_solution_is_not_a_failed_row(kind: str) -> None:
    bench = bench_of(kind, raises(KeyboardInterrupt())).run(4)
    assert [type(error) for _, error in bench.dropped if error] == [KeyboardInterrupt]
    assert all(result.output.success for result in bench.results)
    assert len(bench.results) + len(bench.dropped) == 4


def test_a_keyboard_interrupt_in_serial_mode_leaves_the_caller() -> None:
    bench = Bench(raises(KeyboardInterrupt()), 1, in_caller=True)
    bench.submit(4)
    with pytest.raises(KeyboardInterrupt):
        bench.engine.assist(bench.finished)
    bench.engine.stop()
    assert bench.outputs == ["fine"]
    # nothing stays behind: the interrupted row and those that were queued are accounted for
    assert [attempt.task.id for attempt, _ in bench.dropped] == ["1", "2", "3"]


def stack(thread: int) -> List[str]:
    frame, names = sys._current_frames().get(thread), []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread() or os.name != "posix",
    reason="signals reach the main thread only",
)
def test_an_interrupt_of_the_caller_cancels_what_its_row_awaits() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def later(task: Task) -> None:
        begun.set()
        try:
            await asyncio.sleep(CAP_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        assert begun.wait(CAP_S)
        wait_until(lambda: stack(main).count("wait") == 3)  # of the event, deep inside
        os.kill(os.getpid(), signal.SIGINT)

    main = threading.get_ident()

    bench = Bench(lambda task: later(task), 1, in_caller=True)
    bench.submit(1)
    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        bench.engine.assist(bench.finished)
    helper.join(CAP_S)
    assert cancelled.wait(CAP_S)


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_stop_begins_nothing_new_and_drops_what_is_queued(kind: str) -> None:
    begun, release = threading.Semaphore(0), threading.Event()
    calls: List[str] = []

    def sync(task: Task) -> str:
        calls.append(task.id)
        begun.release()
        release.wait(CAP_S)
        return "done"

    async def awaited(task: Task) -> str:
        calls.append(task.id)
        begun.release()
        await asyncio.sleep(CAP_S)
        return "never"

    bench = Bench(sync if kind == "threads" else awaited, 2)
    bench.submit(10)
    for _ in range(2):
        assert begun.acquire(timeout=CAP_S)
    bench.engine.stop()
    wait_until(lambda: len(bench.dropped) >= 8)
    release.set()
    bench.wait()
    assert sorted(calls) == ["0", "1"]
    # a sync row that answers in its grace is kept; an async one is cancelled
    assert bench.outputs == (["done", "done"] if kind == "threads" else [])
    assert all(error is None for _, error in bench.dropped)
    bench.engine.submit(attempts(1)[0])
    wait_until(lambda: len(bench.results) + len(bench.dropped) == 11)
    assert len(calls) == 2
    bench.engine.close()


def test_stop_drops_what_comes_to_the_caller_later() -> None:
    bench = Bench(lambda task: 1, 1, in_caller=True)
    bench.engine.stop()
    bench.run(2)
    assert len(bench.dropped) == 2


@pytest.mark.parametrize("kind", ["caller", "threads"])
def test_a_row_does_not_begin_when_the_stop_comes_while_its_task_is_copied(kind: str) -> None:
    calls: List[str] = []

    class StopsWhenCopied:
        def __deepcopy__(self, _memo: Any) -> str:
            bench.engine.stop()
            return "a copy"

    def solution(task: Task) -> None:
        calls.append(task.id)

    bench = bench_of(kind, solution)
    bench._expected = 1
    bench.engine.submit(Attempt(Task("0", {"client": StopsWhenCopied()}), "0"))
    bench.finished_by_its_engine()
    assert not calls and not bench.results
    assert bench.dropped == [(bench.dropped[0][0], None)]


def test_stop_cancels_async_rows_that_have_not_taken_a_step() -> None:
    bench: List[Bench] = []

    async def solution(task: Task) -> None:
        # the other row was created in the same turn of the loop and has not begun
        bench[0].engine._stop()  # type: ignore[attr-defined]
        await asyncio.sleep(CAP_S)

    bench.append(Bench(solution, 2))
    loop = bench[0].engine._loop  # type: ignore[attr-defined]
    both = [functools.partial(bench[0].engine._arrived, one) for one in attempts(2)]  # type: ignore[attr-defined]
    bench[0]._expected = 2
    loop.call_soon_threadsafe(lambda: [arrive() for arrive in both])
    bench[0].wait()
    assert len(bench[0].dropped) == 2
    bench[0].engine.close()


def test_stop_tells_running_rows_through_their_scope() -> None:
    ended = threading.Event()
    begun = threading.Event()

    def solution(task: Task) -> SolutionOutput:
        scope = current_scope()
        assert scope is not None
        with scope.on_cancel(ended.set):
            begun.set()
            ended.wait(CAP_S)
        return SolutionOutput.failure("Cancelled", "the connection was closed")

    bench = Bench(solution, 1)
    bench.submit(1)
    assert begun.wait(CAP_S)
    bench.engine.stop()
    bench.wait()
    # ended by our own stop: no result, it runs again with the next run
    assert not bench.results and bench.dropped[0][1] is None
    bench.engine.close()


def test_stop_reaches_a_row_in_the_thread_of_the_caller() -> None:
    ended = threading.Event()
    bench: List[Bench] = []

    def solution(task: Task) -> SolutionOutput:
        scope = current_scope()
        assert scope is not None
        with scope.on_cancel(ended.set):
            threading.Thread(target=bench[0].engine.stop).start()
            assert ended.wait(CAP_S)
        return SolutionOutput.failure("Cancelled", "the process was killed")

    bench.append(Bench(solution, 1, in_caller=True))
    bench[0].run(3)
    assert len(bench[0].dropped) == 3 and not bench[0].results


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_a_deadline_that_comes_with_the_answer_changes_nothing(kind: str) -> None:
    bench = bench_of(kind, lambda task: "answer", task_timeout=CAP_S)
    engine: Any = bench.engine
    call = Call(CallFacts(prepare(lambda task: 1)), attempts(1)[0])
    assert call.claim()  # it has just been handed over
    engine._expire(call, CAP_S)
    assert not bench.results and not bench.dropped and not engine._left_behind
    engine.close()


def test_a_row_that_ends_just_as_its_deadline_passes_is_not_left_behind() -> None:
    async def solution(task: Task) -> str:
        return "answer"

    bench = Bench(solution, task_timeout=CAP_S)
    engine: Any = bench.engine
    task: asyncio.Future[None] = asyncio.Future(loop=engine._loop)
    task.set_result(None)

    class EndsWhenClaimed(Call):
        __slots__ = ()

        def claim(self) -> bool:
            taken = super().claim()
            if taken:
                ending = threading.Thread(target=engine._ended, args=(self, task))
                ending.start()
                ending.join(0.2)  # where it has to wait, for as long as this lasts
            return taken

    engine._expire(EndsWhenClaimed(CallFacts(prepare(solution)), attempts(1)[0]), CAP_S)
    wait_until(lambda: not engine._left_behind)
    assert bench.errors == ["TaskTimeout"] and not bench.dropped
    engine.close()


def test_the_caller_waits_for_work_and_for_the_end() -> None:
    bench = Bench(lambda task: "answer", 1, in_caller=True)
    seen = threading.Event()

    def later() -> None:
        # the caller has looked for work in vain at least once
        wait_until(lambda: "assist" in stack(main))
        seen.wait(0.5)
        bench.submit(1)

    main = threading.get_ident()
    helper = threading.Thread(target=later)
    helper.start()
    closer = threading.Thread(target=bench._close_when_finished)
    closer.start()
    bench.engine.assist(bench.finished)
    helper.join(CAP_S)
    closer.join(CAP_S)
    assert bench.outputs == ["answer"]


def test_stop_cancels_what_a_sync_row_awaits() -> None:
    begun = threading.Event()

    async def later(task: Task) -> None:
        begun.set()
        await asyncio.sleep(CAP_S)

    bench = Bench(lambda task: later(task), 1)
    bench.submit(1)
    assert begun.wait(CAP_S)
    bench.engine.stop()
    bench.wait()
    assert bench.dropped and not bench.results
    bench.engine.close()


# ---------------------------------------------------------------- deadlines


def test_a_sync_row_past_its_deadline_fails_and_its_late_answer_is_dropped() -> None:
    release, late = threading.Event(), threading.Event()

    def solution(task: Task) -> str:
        if task.input["n"] == 0:
            release.wait(CAP_S)
            late.set()
        return "answer"

    bench = Bench(solution, 1, task_timeout=0.05)
    bench.submit(3)
    bench.wait()
    assert bench.errors == ["TaskTimeout", None, None]
    assert "task_timeout=0.05 s" in bench.results[0].output.meta["error_message"]
    release.set()
    assert late.wait(CAP_S)
    wait_until(lambda: bench.engine._left_behind == 0)  # type: ignore[attr-defined]
    assert len(bench.results) == 3 and not bench.dropped
    bench.engine.close()


def test_an_async_row_past_its_deadline_is_cancelled() -> None:
    cancelled = threading.Event()

    async def solution(task: Task) -> str:
        if task.input["n"] == 0:
            try:
                await asyncio.sleep(CAP_S)
            finally:
                cancelled.set()
        return "answer"

    bench = Bench(solution, 1, task_timeout=0.05).run(3)
    assert bench.errors == ["TaskTimeout", None, None]
    assert cancelled.wait(CAP_S)


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_more_stuck_rows_than_workers_end_the_run(kind: str) -> None:
    release = threading.Event()

    def sync(task: Task) -> None:
        release.wait(CAP_S)

    async def awaited(task: Task) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass  # what a careless retry loop does

    bench = Bench(sync if kind == "threads" else awaited, 2, task_timeout=0.05)
    bench.submit(3)
    bench.wait()
    assert bench.errors == ["TaskTimeout", "TaskTimeout"]
    ((attempt, error),) = bench.dropped
    assert isinstance(error, RunAbortedError) and error.code == "TooManyStuckRows"
    release.set()
    bench.engine.stop()
    bench.engine.close()


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_rows_that_end_when_they_are_cancelled_are_not_stuck(kind: str) -> None:
    def sync(task: Task) -> str:
        ended = threading.Event()
        scope = current_scope()
        assert scope is not None
        with scope.on_cancel(ended.set):
            ended.wait(CAP_S)
        return "late"

    async def awaited(task: Task) -> None:
        await asyncio.sleep(CAP_S)

    bench = Bench(sync if kind == "threads" else awaited, 2, task_timeout=0.02)
    for attempt in attempts(12):
        # one after the other, so that each has ended before the next begins
        before = len(bench.results)
        bench.engine.submit(attempt)
        wait_until(lambda before=before: len(bench.results) > before)
        wait_until(lambda: not bench.engine._left_behind)  # type: ignore[attr-defined]
    assert bench.errors == ["TaskTimeout"] * 12 and not bench.dropped
    bench.engine.close()


def test_a_deadline_passes_while_a_blocking_call_stops_the_loop() -> None:
    release = threading.Event()

    async def solution(task: Task) -> None:
        release.wait(CAP_S)

    bench = Bench(solution, 1, task_timeout=0.05)
    bench.submit(1)
    bench.wait()  # the loop is still blocked
    assert bench.errors == ["TaskTimeout"]
    release.set()
    bench.engine.close()


def test_rows_within_their_deadline_are_forgotten_by_it() -> None:
    for solution in (lambda task: 1, _async_one):
        bench = Bench(solution, 2, task_timeout=CAP_S).run(20)
        wait_until(lambda bench=bench: not bench.engine._deadlines._ends)  # type: ignore[attr-defined]


async def _async_one(task: Task) -> int:
    return 1


def test_an_interrupt_past_the_deadline_is_dropped_with_the_late_answer() -> None:
    release = threading.Event()

    def solution(task: Task) -> None:
        release.wait(CAP_S)
        raise KeyboardInterrupt

    bench = Bench(solution, 1, task_timeout=0.05)
    bench.submit(1)
    bench.wait()
    release.set()
    wait_until(lambda: bench.engine._left_behind == 0)  # type: ignore[attr-defined]
    assert not bench.dropped
    bench.engine.close()


# ------------------------------------------------------------ the caller's loop


def test_rows_run_on_a_given_loop() -> None:
    async def solution(task: Task) -> Any:
        return id(asyncio.get_running_loop())

    async def main() -> Tuple[int, List[Any]]:
        loop = asyncio.get_running_loop()
        bench = Bench(solution, 2, loop=loop)
        bench.submit(3)
        await loop.run_in_executor(None, bench.wait)
        bench.engine.close()
        return id(loop), bench.outputs

    loop_id, outputs = asyncio.run(main())
    assert outputs == [loop_id] * 3


def _cancel_all_others() -> None:
    """As asyncio.run does it at Ctrl-C before Python 3.11."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
        task.cancel()


async def _cancelled_on_the_callers_loop(over: List[int]) -> Bench:
    async def solution(task: Task) -> str:
        if task.input["n"] == 0:
            return "quick"
        if task.input["n"] == 1:
            raise asyncio.CancelledError  # of its own accord: a failure of the row
        await asyncio.sleep(CAP_S if task.input["n"] < 4 else 0)
        return "slow"

    loop = asyncio.get_running_loop()
    bench = Bench(solution, 2, loop=loop, is_over=lambda: bool(over))
    bench.submit(6)
    while len(bench.results) < 2:
        await asyncio.sleep(0.001)
    _cancel_all_others()
    return bench


def test_rows_that_end_with_the_caller_on_his_loop_have_not_failed() -> None:
    over: List[int] = []

    async def main() -> Bench:
        bench = await _cancelled_on_the_callers_loop(over)
        over.append(1)  # in the same turn of the loop
        while len(bench.dropped) < 4:
            await asyncio.sleep(0.001)
        bench.engine.close()
        return bench

    bench = asyncio.run(main())
    assert [error for _, error in bench.dropped] == [None] * 4
    assert len(bench.results) == 2


def test_rows_that_somebody_else_cancels_on_the_callers_loop_have_failed() -> None:
    async def main() -> Bench:
        bench = await _cancelled_on_the_callers_loop([])
        while len(bench.results) < 6:
            await asyncio.sleep(0.001)
        bench.engine.close()
        return bench

    bench = asyncio.run(main())
    assert bench.dropped == []
    outputs = [result.output for result in bench.results]
    failed = [output.meta["error_type"] for output in outputs if not output.success]
    assert failed == ["CancelledError"] * 3
    assert sum(output.success for output in outputs) == 3


@pytest.mark.parametrize("given", [True, False], ids=["the callers loop", "the process loop"])
def test_a_row_that_cancels_all_tasks_of_its_loop_does_not_end_the_run(given: bool) -> None:
    async def solution(task: Task) -> str:
        if task.input["n"] == 0:
            me = asyncio.current_task()
            for other in asyncio.all_tasks():
                if other is not me and other.get_name().startswith("row "):
                    other.cancel()
        await asyncio.sleep(0)
        return "done"

    async def main() -> Bench:
        bench = Bench(solution, 3, loop=asyncio.get_running_loop() if given else None)
        all_there = threading.Event()
        if not given:  # else nothing begins before the next await
            PROCESS_LOOP.get(1).call_soon_threadsafe(all_there.wait, CAP_S)
        bench.submit(6)
        all_there.set()
        while len(bench.results) < 6 and not bench.dropped:
            await asyncio.sleep(0.001)
        bench.engine.close()
        return bench

    bench = asyncio.run(main())
    assert bench.dropped == []
    messages = [result.output.meta.get("error_type") for result in bench.results]
    assert messages.count("CancelledError") == 2 and messages.count(None) == 4


def test_a_loop_closed_under_the_run_drops_its_rows() -> None:
    loop = asyncio.new_event_loop()
    bench = Bench(_async_one, 2, loop=loop)
    loop.close()
    bench.submit(2)
    bench.wait()
    assert all(isinstance(error, RuntimeError) for _, error in bench.dropped)
    bench.engine.stop()
    bench.engine.close()


def test_latency_counts_from_the_pre_hook() -> None:
    called: List[Tuple[float, float]] = []

    def solution(task: Task, pre_hook: Any) -> int:
        time.sleep(0.2)
        called.append((time.time() * 1000, time.perf_counter() * 1000))
        pre_hook()
        return 1

    result = Bench(solution, 1).run(1).results[0]
    ended_ms = time.perf_counter() * 1000
    assert result.started_at >= int(called[0][0])
    assert result.latency_ms <= ended_ms - called[0][1]


def test_each_attempt_gets_its_own_copy_of_the_task() -> None:
    def solution(task: Task) -> int:
        task.input["n"] += 100
        return int(task.input["n"])

    bench = Bench(solution, 1)
    one = attempts(1)[0]
    bench._expected = 2
    bench.engine.submit(one)
    bench.engine.submit(one)
    bench.wait()
    assert bench.outputs == [100, 100] and one.task.input == {"n": 0}
    bench.engine.close()


def test_the_heartbeat_names_the_row_that_blocks_the_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.run import coroutines, loop

    monkeypatch.setattr(coroutines, "Heartbeat", functools.partial(loop.Heartbeat, every_s=0.05))
    warned = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked" in record.getMessage():
                warned.set()

    async def solution(task: Task) -> None:
        if task.id == "1":
            warned.wait(CAP_S)

    watch = Watch()
    logging.getLogger().addHandler(watch)  # behind that of caplog, which has the line by then
    try:
        Bench(solution, 1).run(3)
    finally:
        logging.getLogger().removeHandler(watch)
    assert "row 1 repeat 0" in caplog.text
    assert caplog.text.count("has been blocked") == 1


def test_an_output_too_large_to_copy_is_a_failed_row(monkeypatch):
    def too_large(value):
        raise MemoryError("no room")

    monkeypatch.setattr("agentloop_experiment_sdk.jsontext.to_jsonable", too_large)
    output = call_solution(lambda task: "x", Task("t", {}))
    assert not output.success and output.meta["error_type"] == "MemoryError"


def test_where_the_system_starts_no_more_threads_those_that_are_there_do_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    bench = Bench(lambda task: gate.wait(CAP_S), 8)
    plain = ThreadEngine._start_thread

    def refuse_the_third(engine: ThreadEngine) -> None:
        if engine._alive > 2:
            raise RuntimeError("can't start new thread")
        plain(engine)

    monkeypatch.setattr(ThreadEngine, "_start_thread", refuse_the_third)
    bench.submit(8)
    gate.set()
    bench.wait()
    bench.engine.close()
    assert len(bench.results) == 8 and bench.dropped == []
    assert "2 rows run at once" in caplog.text


def test_a_run_that_the_system_refuses_every_thread_says_so(
    local: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(engine: ThreadEngine) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadEngine, "_start_thread", refuse)
    with pytest.raises(RunAbortedError, match="smaller n_workers"):
        run(config_for(local), lambda task: 1, tmp_path)


def test_a_run_that_can_start_no_thread_for_a_stuck_one_ends(
    local: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, started = ThreadEngine._start_thread, []  # type: ignore[var-annotated]

    def only_one(engine: ThreadEngine) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(engine)
        plain(engine)

    monkeypatch.setattr(ThreadEngine, "_start_thread", only_one)
    release = threading.Event()
    with pytest.raises(RunAbortedError, match="smaller n_workers"):
        run(
            config_for(local, 8),
            lambda task: release.wait(CAP_S),
            tmp_path,
            n_workers=5,
            task_timeout=0.1,
        )
    release.set()


def test_a_callers_loop_that_is_closed_early_ends_its_run(
    local: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat.__init__, "__defaults__", (0.05, lambda: None))
    begun = threading.Event()

    async def solution(task: Task) -> None:
        begun.set()
        await asyncio.sleep(CAP_S)

    experiment = Experiment(config_for(local), solution, tmp_path)
    loop = asyncio.new_event_loop()
    task = loop.create_task(experiment.arun())

    async def until_begun() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.005)

    loop.run_until_complete(until_begun())
    loop.close()
    wait_until(lambda: load_result(tmp_path).status == "failed")
    del task


def test_after_an_interrupt_inside_an_async_row_no_other_begins() -> None:
    calls: List[int] = []

    async def solution(task: Task) -> None:
        calls.append(task.input["n"])
        if task.input["n"] == 0:
            raise KeyboardInterrupt
        await asyncio.sleep(CAP_S)

    bench = Bench(solution, 2)
    bench.submit(6)
    bench.wait()
    bench.engine.close()
    assert len(bench.dropped) == 6 and set(calls) <= {0, 1}
    assert [type(error) for _, error in bench.dropped if error] == [KeyboardInterrupt]
