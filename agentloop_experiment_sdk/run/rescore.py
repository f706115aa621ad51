"""Scoring a results directory again, without calling the agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Sequence

from ..errors import ConfigurationError
from ..evaluate.evaluator import Evaluators, named_evaluators
from ..models import Task
from ..results import attempts
from ..results.directory import ResultsDirectory
from ..results.evaluation_result import evaluation_result
from ..results.metadata import repeats_of
from ..results.reader import read_results
from .options import Path
from .scoring import Scorer, metrics_by_repeat, names_of

if TYPE_CHECKING:
    from ..report.summary import ExperimentResult


def rescore(result_dir: Path, evaluators: Evaluators) -> ExperimentResult:
    """Run evaluators over a results directory, as ``api.evaluate`` says."""
    from ..report.summary import load_result

    named = named_evaluators(evaluators)
    if not named:
        raise ConfigurationError("Give evaluate() at least one evaluator.")
    path = os.fspath(result_dir)
    stored = read_results(path)
    directory = ResultsDirectory.reopen(path)
    try:
        scorer = Scorer(path, named, {})
        for head in stored.heads:
            if head.done and head.status != "skipped":
                scorer.score(head.key, afresh=True)
        _write_result(directory, [task_id for task_id, _ in stored.tasks])
        directory.update_meta(evaluators=names_of(named))
        directory.fold_journal()
    finally:
        directory.close()
    return load_result(path)


def _write_result(directory: ResultsDirectory, task_ids: Sequence[str]) -> None:
    found = (attempts.read_task(directory.path, task_id) for task_id in task_ids)
    tasks = [task or Task(task_id, {}) for task, task_id in zip(found, task_ids)]
    repeats = max(1, repeats_of(directory.meta))
    metrics = metrics_by_repeat(directory.path, tasks, repeats, directory.state)
    directory.write_result(evaluation_result(tasks, repeats, directory.state, metrics))
