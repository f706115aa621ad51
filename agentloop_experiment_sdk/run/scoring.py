"""Local evaluators on saved attempts: off the workers, from disk to disk."""

from __future__ import annotations

import contextvars
import functools
import logging
import os
import queue
import shutil
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..evaluate.evaluator import NamedEvaluator, evaluate_output, missing_evaluators
from ..evaluate.matching import PART_HINT
from ..evaluate.metric import MetricResult
from ..lines import excerpt
from ..models import SolutionOutput, Task
from ..results import attempts, layout, places
from ..results.aggregate import aggregate_metrics
from ..results.journal import JournalState, Key, Saved
from ..results.stored import ResultRow
from .loop import PROCESS_LOOP, awaiter

# what experiment_metrics of the row says of each metric
Scores = Mapping[str, Any]

logger = logging.getLogger(__name__)

SCORERS = 4
_LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class Scorer:
    """Scores attempts of one results directory.

    Args:
        root: The results directory.
        evaluators: What scores them.
        tasks: The plan's tasks by id; others are read from the directory.
        told: Evaluators whose failure was logged, and for which attempt.
    """

    root: str
    evaluators: Tuple[NamedEvaluator, ...]
    tasks: Mapping[str, Task]
    told: Dict[str, Key] = field(default_factory=dict, compare=False)

    def score(self, key: Key, *, afresh: bool) -> Scores:
        """Run the evaluators on an attempt and store what they say.

        Args:
            key: The attempt.
            afresh: Drop earlier results; else only evaluators that left none are run.

        Returns:
            All scores of the attempt, by metric.
        """
        task = self.tasks.get(key[0]) or attempts.read_task(self.root, key[0])
        document = attempts.read_solution(self.root, key)
        if task is None or document is None:
            return {}
        folder = os.path.join(layout.attempt_folder(self.root, *key), layout.EVALUATION_DIR)
        places.check_folders(self.root, (folder,))
        if afresh:
            shutil.rmtree(folder, ignore_errors=True)
        stored = {} if afresh else evaluations_of(self.root, key)
        wanted = missing_evaluators(self.evaluators, stored)
        scores = {name: content.get("result") for name, content in stored.items()}
        results = evaluate_output(
            wanted, task, SolutionOutput.from_dict(document), await_in_loop=_await_in_loop
        )
        _store(folder, results)
        self._tell_failures(key, results)
        scores.update((result.name, result.result) for result in results)
        return {name: score for name, score in scores.items() if score is not None}

    def _tell_failures(self, key: Key, results: Sequence[MetricResult]) -> None:
        """Log the first failure of each evaluator, and the first object that it took whole: a row
        without a score, or a score without a reason, is easily missed."""
        for result in results:
            error = (result.metadata or {}).get("error")
            if (
                PART_HINT in (result.message or "")
                and self.told.setdefault(result.name, key) is key
            ):
                logger.warning(
                    "The evaluator %s took a whole object for the answer: %s Others like it are "
                    "not logged.",
                    result.name,
                    excerpt(str(result.message), _LONGEST_MESSAGE),
                )
            if error and self.told.setdefault(result.name, key) is key:
                logger.warning(
                    "The evaluator %s gave a row no score: %s. Others like it are not logged.",
                    result.name,
                    excerpt(str(result.message), _LONGEST_MESSAGE).rstrip("."),
                )

    def lacks(self, key: Key) -> bool:
        """Whether evaluators are still to be run on an attempt."""
        return bool(missing_evaluators(self.evaluators, evaluations_of(self.root, key)))


class ScoringPool:
    """A few threads that score attempts.

    Args:
        scorer: Scores one attempt.
        scored: Gets each attempt and its scores, or the error that kept it from being scored.
        stop: Ends the run; an evaluator may raise KeyboardInterrupt.
    """

    def __init__(
        self,
        scorer: Scorer,
        scored: Callable[[Saved, Scores, Optional[Exception]], None],
        stop: Callable[[BaseException], None],
    ) -> None:
        self._scorer = scorer
        self._scored = scored
        self._stop = stop
        self._due: queue.SimpleQueue[Optional[Tuple[Saved, bool]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._started = False
        self._context = contextvars.copy_context()

    def put(self, saved: Saved, *, afresh: bool) -> None:
        """Take an attempt; returns at once."""
        with self._lock:
            self._waiting += 1
            start, self._started = not self._started, True
        self._due.put((saved, afresh))
        if start:
            for _ in range(SCORERS):
                work = functools.partial(self._context.copy().run, self._work)
                threading.Thread(target=work, name="agentloop-scorer", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Attempts that are not scored yet."""
        with self._lock:
            return self._waiting

    def close(self) -> None:
        """End the threads after the attempt at hand."""
        while True:
            try:
                self._due.get_nowait()
            except queue.Empty:
                break
        for _ in range(SCORERS):
            self._due.put(None)

    def _work(self) -> None:
        while True:
            taken = self._due.get()
            if taken is None:
                return
            saved, afresh = taken
            try:
                self._scored(saved, self._scorer.score(saved.key, afresh=afresh), None)
            except Exception as error:
                self._scored(saved, {}, error)
            except BaseException as error:
                self._stop(error)
            finally:
                with self._lock:
                    self._waiting -= 1


def evaluations_of(root: str, key: Key) -> Dict[str, Dict[str, Any]]:
    """Metric name to the content of its file, of one attempt."""
    return ResultRow(layout.attempt_folder(root, *key), *key).evaluations


def metrics_by_repeat(
    root: str, tasks: Sequence[Task], n_repeat: int, state: JournalState
) -> Dict[str, Dict[str, Any]]:
    """Repeat id to the aggregated metrics of what is stored; {} where nothing was evaluated."""
    metrics: Dict[str, Dict[str, Any]] = {}
    for repeat in map(str, range(n_repeat)):
        keys = [(task.id, repeat) for task in tasks]
        involved = [key for key in keys if _is_scored(state, key)]
        evaluations = {
            key[0]: evaluations_of(root, key) for key in involved if _has_evaluations(root, key)
        }
        if any(evaluations.values()):
            metrics[repeat] = aggregate_metrics(evaluations, [key[0] for key in involved])
    return metrics


def _has_evaluations(root: str, key: Key) -> bool:
    """Whether there is anything to read: asked of each row of a run that is taken up again."""
    try:
        os.stat("/".join((root, *key, layout.EVALUATION_DIR)))
    except OSError:
        return False
    return True


def _is_scored(state: JournalState, key: Key) -> bool:
    saved = state.saved.get(key)
    return saved is not None and saved.status != "skipped"


def _store(folder: str, results: Sequence[MetricResult]) -> None:
    if results:
        os.makedirs(folder, exist_ok=True)
    for result in results:
        path = os.path.join(folder, layout.metric_file_name(result.name))
        layout.write_json(path, result.to_dict())


_await_in_loop = awaiter(lambda: PROCESS_LOOP.get(SCORERS))


def names_of(evaluators: Sequence[NamedEvaluator]) -> List[str]:
    """The evaluators' names, as ``evaluation_meta.json`` lists them."""
    return [evaluator.name for evaluator in evaluators]
