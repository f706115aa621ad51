"""The functions users call: check the arguments, hand over to ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from .plan.config import AgentLoopConfig

if TYPE_CHECKING:
    import os

    from .run.settings import RunSettings

Path = Union[str, "os.PathLike[str]"]


def run_experiment(
    config: AgentLoopConfig,
    solution: Any,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: int = 1,
    **options: Any,
) -> str:
    """Run the plan's dataset through ``solution``, one row after the other.

    A sync solution runs in the calling thread. With ``n_workers`` above 1 it runs like
    ``run_experiment_parallel``.

    Args:
        config: Which plan to run, and how to reach AgentLoop.
        solution: Takes a ``Task`` and, if it likes, a ``pre_hook``; sync or async; returns a
            ``SolutionOutput`` or any value.
        result_dir: The results directory. A run in the directory of an earlier one goes on with it.
        n_repeat: How often each row is run.
        n_workers: How many rows run at once.
        **options: The keyword options of ``Experiment``.

    Returns:
        The id of the experiment record.

    Raises:
        ExperimentError: See ``Experiment.run``.
    """
    return _run(config, solution, _settings(result_dir, n_repeat, n_workers, True, options))


def run_experiment_parallel(
    config: AgentLoopConfig,
    solution: Any,
    result_dir: Path = "./results",
    n_repeat: int = 1,
    n_workers: int = 4,
    **options: Any,
) -> str:
    """Run the plan's dataset through ``solution``, ``n_workers`` rows at once.

    Arguments, return value and errors are those of ``run_experiment``.
    """
    return _run(config, solution, _settings(result_dir, n_repeat, n_workers, False, options))


def _settings(
    result_dir: Path, n_repeat: int, n_workers: int, serial: bool, options: Any
) -> RunSettings:
    from .run.settings import RunSettings

    return RunSettings(
        result_dir=result_dir,  # type: ignore[arg-type]
        n_repeat=n_repeat,
        n_workers=n_workers,
        serial=serial,
        **options,
    )


def _run(config: AgentLoopConfig, solution: Any, settings: RunSettings) -> str:
    from .run.experiment import ExperimentRun

    return ExperimentRun(config, solution, settings).execute().record_id
