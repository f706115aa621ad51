"""The attempt's scope: which attempt code runs in, and how its calls are ended."""

from __future__ import annotations

import logging
import threading
from contextvars import copy_context
from typing import List

import pytest

from agentloop_experiment_sdk.scope import AttemptScope, current_scope, entered

CAP = 30.0


def test_code_outside_an_attempt_has_no_scope() -> None:
    assert current_scope() is None


def test_the_scope_is_current_inside_the_block_also_when_it_fails() -> None:
    outer, inner = AttemptScope("r", "1"), AttemptScope()
    with entered(outer) as scope:
        assert scope is current_scope() is outer
        with pytest.raises(RuntimeError), entered(inner):
            assert current_scope() is inner
            raise RuntimeError
        assert current_scope() is outer
    assert current_scope() is None


def test_a_copied_context_carries_the_scope_to_another_thread() -> None:
    seen: List[object] = []
    scope = AttemptScope()
    with entered(scope):
        context = copy_context()
        for target in (
            lambda: context.run(lambda: seen.append(current_scope())),
            lambda: seen.append(current_scope()),
        ):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join(CAP)
    assert seen == [scope, None]


def test_the_first_trace_of_an_attempt_stays() -> None:
    scope = AttemptScope()
    scope.note_trace("a")
    scope.note_trace("b")
    assert scope.trace_id == "a"


def test_cancelling_calls_what_is_registered_once() -> None:
    calls: List[str] = []
    scope = AttemptScope()
    with scope.on_cancel(lambda: calls.append("first")):
        with scope.on_cancel(lambda: calls.append("ended")):
            pass
        with scope.on_cancel(lambda: calls.append("second")):
            assert not scope.cancelled
            scope.cancel()
            scope.cancel()
    scope.cancel()
    assert calls == ["first", "second"]
    assert scope.cancelled


def test_the_same_callback_registered_twice_is_two_registrations() -> None:
    calls: List[int] = []

    def callback() -> None:
        calls.append(1)

    scope = AttemptScope()
    with scope.on_cancel(callback):
        with scope.on_cancel(callback):
            pass
        scope.cancel()
    assert calls == [1]


def test_a_cancelled_attempt_ends_a_new_call_at_once() -> None:
    calls: List[int] = []
    scope = AttemptScope()
    scope.cancel()
    with scope.on_cancel(lambda: calls.append(1)):
        assert calls == [1]
        scope.cancel()
    assert calls == [1]


def test_a_callback_that_fails_keeps_no_other_from_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: List[int] = []

    def fail() -> None:
        raise OSError("already closed")

    scope = AttemptScope()
    with caplog.at_level(logging.WARNING), scope.on_cancel(fail):
        with scope.on_cancel(lambda: calls.append(1)):
            scope.cancel()
        with scope.on_cancel(fail):
            pass
    assert calls == [1]
    assert "already closed" in caplog.text


def test_an_interrupt_inside_a_callback_propagates_and_blocks_nobody() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    scope = AttemptScope()
    with scope.on_cancel(interrupt), pytest.raises(KeyboardInterrupt):
        scope.cancel()


def test_the_block_does_not_end_while_its_callback_runs() -> None:
    scope = AttemptScope()
    inside, started, release, left = (threading.Event() for _ in range(4))
    order: List[str] = []

    def callback() -> None:
        started.set()
        assert release.wait(CAP)
        order.append("callback done")

    def call() -> None:
        with scope.on_cancel(callback):
            inside.set()
            assert started.wait(CAP)
        order.append("block left")
        left.set()

    threads = [threading.Thread(target=call)]
    threads[0].start()
    assert inside.wait(CAP)
    threads.append(threading.Thread(target=scope.cancel))
    threads[1].start()
    assert started.wait(CAP)
    assert not left.wait(0.05)
    release.set()
    assert left.wait(CAP)
    for thread in threads:
        thread.join(CAP)
    assert order == ["callback done", "block left"]
