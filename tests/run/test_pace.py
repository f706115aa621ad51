"""When rows are gathered, how many threads write, and how many attempts may be unsettled."""

from typing import Any

import pytest

from agentloop_experiment_sdk.results.journal import Saved
from agentloop_experiment_sdk.run.pace import AHEAD, BLOCK, Pace

QUICK, BUSY, NETWORK = 0.0001, 0.001, 0.05  # seconds of a write


def settle(pace: Pace, rows: int, write_s: float = QUICK, ms: float = 1.0, size: int = 500) -> None:
    for _ in range(rows):
        pace.settled(Saved("t", "0", 1, "success", ms, size), write_s)


def gathering(n_workers: int = 4) -> Pace:
    pace = Pace(n_workers)
    settle(pace, 3 * BLOCK)
    assert pace.gathers
    return pace


def test_the_first_rows_are_settled_one_by_one() -> None:
    pace = Pace(4)
    settle(pace, 3 * BLOCK - 1)
    assert (pace.gathers, pace.window, pace.writers) == (False, 8, 1)
    settle(pace, 1)
    assert (pace.gathers, pace.window, pace.writers) == (True, 4 + AHEAD, 1)


def test_nothing_is_gathered_where_each_row_is_awaited() -> None:
    pace = Pace(4, awaited=True)
    settle(pace, 10 * BLOCK)
    assert (pace.gathers, pace.window, pace.writers) == (False, 8, 1)


@pytest.mark.parametrize(
    ("n_workers", "ms", "window"), [(4, 10.0, 36), (4, 10.1, 8), (64, 1.0, 128), (64, 500.0, 128)]
)
def test_more_attempts_are_ahead_of_a_quick_agent_only(
    n_workers: int, ms: float, window: int
) -> None:
    pace = gathering(n_workers)
    settle(pace, BLOCK - 1)
    settle(pace, 1, ms=ms)
    assert pace.gathers and pace.window == window


def test_nothing_is_gathered_while_answers_are_large() -> None:
    pace = gathering()
    settle(pace, BLOCK - 1)
    settle(pace, 1, size=65537)
    assert (pace.gathers, pace.window) == (False, 8)
    settle(pace, BLOCK, size=65536)
    assert pace.gathers


@pytest.mark.parametrize(("write_s", "writers"), [(QUICK, 1), (BUSY, 2), (NETWORK, 8)])
@pytest.mark.parametrize("options", [{}, {"awaited": True}])
def test_a_slow_disk_gets_more_writers_and_nothing_is_gathered_on_it(
    write_s: float, writers: int, options: Any
) -> None:
    pace = Pace(4, **options)
    settle(pace, 4 * BLOCK, write_s)
    assert pace.writers == writers
    assert pace.gathers == (writers == 1 and not options)
    settle(pace, BLOCK)
    assert pace.writers == 1


def test_one_quick_write_among_slow_ones_says_that_the_disk_is_quick() -> None:
    pace = gathering()
    settle(pace, BLOCK - 1, NETWORK)
    settle(pace, 1, QUICK)
    assert pace.gathers and pace.writers == 1
