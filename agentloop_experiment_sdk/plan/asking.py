"""Asking several questions at once, on threads that neither hang nor outlive a process."""

from __future__ import annotations

import threading
from typing import Callable, Generic, List, Optional, Sequence, TypeVar

IN_FLIGHT = 4
_T = TypeVar("_T")


class Asked(Generic[_T]):
    """A question asked on a thread of its own; a daemon, so that it never holds up the exit."""

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._ask = ask
        self._answers: List[_T] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answers.append(self._ask())
        except BaseException as error:
            self._error = error

    def result(self) -> _T:
        """The answer, or its error raised here; waits in slices, so that Ctrl-C is seen."""
        while self._thread.is_alive():
            self._thread.join(0.1)
        if self._error is not None:
            raise self._error
        return self._answers[0]


def together(calls: Sequence[Callable[[], _T]]) -> List[_T]:
    """The answers of calls made at the same time; the first error is raised."""
    if len(calls) == 1:
        return [calls[0]()]
    return [asked.result() for asked in [Asked(call) for call in calls]]


def in_waves(calls: Sequence[Callable[[], _T]], enough: Callable[[List[_T]], bool]) -> List[_T]:
    """The answers in order, a few calls at a time, until ``enough`` of them are there."""
    answers: List[_T] = []
    for start in range(0, len(calls), IN_FLIGHT):
        answers += together(calls[start : start + IN_FLIGHT])
        if enough(answers):
            break
    return answers
