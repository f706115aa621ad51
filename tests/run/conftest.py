"""A LocalAgentLoop for each test, and the options for the full size of the slow ones."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from agentloop_experiment_sdk.local import LocalAgentLoop


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("run", "tests of whole runs (name tests/run on the command line)")
    group.addoption("--kills", type=int, default=5, help="moments at which a run is killed")
    group.addoption("--kill-seed", type=int, default=20, help="seed of those moments")


def pytest_generate_tests(metafunc: Any) -> None:
    if "kill_number" in metafunc.fixturenames:
        kills = metafunc.config.getoption("--kills", 5)
        metafunc.parametrize("kill_number", range(kills))


@pytest.fixture
def kill_seed(request: pytest.FixtureRequest) -> int:
    seed: int = request.config.getoption("--kill-seed", 20)
    return seed


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as running:
        yield running
