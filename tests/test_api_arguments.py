"""Arguments that ``api`` refuses itself, and what it reads once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest

from agentloop_experiment_sdk import (
    AgentLoopConfig,
    ConfigurationError,
    Experiment,
    LocalAgentLoop,
    Task,
    evaluate,
    exact_match,
    local_config,
    run_experiment,
)

CONFIG = AgentLoopConfig("space", "plan", "cn-hangzhou")


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as running:
        yield running


def answer(task: Task) -> str:
    return str(task.input["q"])


@pytest.mark.parametrize("evaluators", [0, False, "", 5, 1.5, True, {}])
def test_evaluators_that_are_no_list_are_refused_everywhere(
    tmp_path: Path, evaluators: Any
) -> None:
    for refuse in (
        lambda: Experiment(CONFIG, answer, tmp_path, evaluators=evaluators),
        lambda: run_experiment(CONFIG, answer, str(tmp_path), evaluators=evaluators),
        lambda: evaluate(tmp_path, evaluators),
    ):
        with pytest.raises(ConfigurationError, match="evaluators must be a list"):
            refuse()
    assert not list(tmp_path.iterdir())


def test_evaluators_of_a_generator_also_score_the_second_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    plan = local.create_plan(local.load_dataset([{"id": "1", "q": "x"}]))
    given: Any = (make(expected_field="q") for make in (exact_match,))
    experiment = Experiment(
        local_config(local, plan), answer, tmp_path, resume=False, evaluators=given
    )
    for _ in range(2):
        assert list(experiment.run().metrics) == ["exact_match"]


@pytest.mark.parametrize("path", [None, 5, "", "a\0b", ["results"]])
def test_evaluate_names_a_directory_that_is_no_path(path: Any) -> None:
    with pytest.raises(ConfigurationError, match="result_dir must be a path"):
        evaluate(path, [exact_match()])


@pytest.mark.parametrize("limit", ["x", -1, 1.5, True])
def test_a_wrong_limit_of_a_check_is_refused_at_once(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(ConfigurationError, match="limit must be a whole number"):
        Experiment(CONFIG, answer, tmp_path / "r").check(limit)


@pytest.mark.parametrize("local", [None, 5, "http://127.0.0.1"])
def test_local_config_names_what_it_needs(local: Any) -> None:
    with pytest.raises(ConfigurationError, match="local must be a LocalAgentLoop"):
        local_config(local, "plan")
