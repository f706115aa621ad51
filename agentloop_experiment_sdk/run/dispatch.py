"""From a saved attempt to its row in SLS: the pipeline's fields, the row itself, the delivery."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Dict, Mapping, Optional

from ..cloud.limits import Contents
from ..lines import counted
from ..models import Plan, Result, Task
from ..results import attempts
from ..results.delivery import Callbacks, Delivery, Logstore, Outgoing
from ..results.directory import ResultsDirectory
from ..results.journal import Saved
from ..results.pipeline import Pipeline, PipelineApi, Waiting
from ..results.rows import Answer, RowContext, detail_row
from .scoring import evaluations_of

logger = logging.getLogger(__name__)


class Dispatch:
    """Takes saved attempts and sees their rows through the pipeline to SLS.

    Args:
        context: What the rows share.
        directory: Read for rows that are no longer in memory.
        tasks: The plan's tasks by id; others are read from the directory.
        api: AgentLoop, for the pipeline.
        logstore: SLS.
        callbacks: What delivery tells the run.
        definition: The pipeline's definition if it is known; else it is asked for.
    """

    def __init__(
        self,
        context: RowContext,
        directory: ResultsDirectory,
        tasks: Mapping[str, Task],
        api: PipelineApi,
        logstore: Logstore,
        callbacks: Callbacks,
        definition: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self._directory = directory
        self._tasks = tasks
        self._context = context
        self._shared = context.fields()
        self._delivery = Delivery(logstore, self._build, callbacks)
        self._pipeline = self._make_pipeline(context.plan, api, definition)

    def send(
        self,
        saved: Saved,
        result: Optional[Result] = None,
        metrics: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Send the row of a saved attempt; without ``result`` it is read from the directory."""
        row = Outgoing(saved, metrics=metrics or {})
        if self._pipeline is not None:
            waiting = self._waiting(row, result)
            if waiting is not None:
                # without its answer: a row that waits for minutes is read again rather than held
                self._pipeline.submit(waiting)
                return
        row.answer = None if result is None else _answer(result)
        self._delivery.enqueue(row)

    @property
    def waiting_for_pipeline(self) -> int:
        """Rows whose pipeline fields are not there yet."""
        return 0 if self._pipeline is None else self._pipeline.waiting

    @property
    def delivery(self) -> Delivery:
        """The last stage."""
        return self._delivery

    def close(self) -> None:
        """Stop both stages; rows still in them stay in the outbox."""
        if self._pipeline is not None:
            left = self._pipeline.close()
            if left:
                logger.warning(
                    "%s still waited for pipeline %s, not sent and kept in %s.",
                    counted(len(left), "row"),
                    self._context.plan.pipeline_name,
                    self._directory.path,
                )
            self._pipeline.report()
        self._delivery.close()

    def _make_pipeline(
        self, plan: Plan, api: PipelineApi, definition: Optional[Mapping[str, Any]]
    ) -> Optional[Pipeline]:
        if not plan.pipeline_name:
            return None

        def done(row: Outgoing, fields: Optional[Mapping[str, Any]], _reason: str) -> None:
            row.pipeline = fields
            self._delivery.enqueue(row)

        return Pipeline(
            api,
            plan.agent_space,
            plan.pipeline_name,
            done,
            definition=definition,
            keep=self._directory.write_pipeline,
        )

    def _waiting(self, row: Outgoing, result: Optional[Result]) -> Optional[Waiting]:
        """What the pipeline needs to know of an attempt; None when it cannot be read."""
        if result is not None:
            return Waiting(row, result.trace_id, result.started_at)
        document = attempts.read_solution(self._directory.path, row.saved.key)
        if document is None:
            return None
        started_at = attempts.started_at_of(document) or self._context.start_time_ms
        return Waiting(row, attempts.trace_id_of(document), started_at)

    def _build(self, row: Outgoing) -> Optional[Contents]:
        answer = row.answer or self._read(row.saved)
        if answer is None:
            return None
        if row.pipeline is not None or row.metrics:
            answer = replace(answer, pipeline=row.pipeline, metrics=row.metrics or answer.metrics)
        return detail_row(self._context, self._shared, answer)

    def _read(self, saved: Saved) -> Optional[Answer]:
        root = self._directory.path
        task = self._tasks.get(saved.task_id) or attempts.read_task(root, saved.task_id)
        document = attempts.read_solution(root, saved.key)
        if task is None or document is None or attempts.number_of(document) != saved.number:
            return None
        return Answer(
            task,
            saved.repeat_id,
            saved.number,
            document["success"],
            document.get("output"),
            document["meta"],
            saved.latency_ms,
            attempts.trace_id_of(document),
            metrics=_stored_scores(root, saved),
            config=attempts.config_of(attempts.attempt_facts(document)),
        )


def _stored_scores(root: str, saved: Saved) -> Dict[str, Any]:
    """What local evaluators said; ``deliver`` has no evaluators, only their files."""
    scores = {name: file.get("result") for name, file in evaluations_of(root, saved.key).items()}
    return {name: score for name, score in scores.items() if score is not None}


def _answer(result: Result) -> Answer:
    output = result.output
    return Answer(
        result.attempt.task,
        result.attempt.repeat_id,
        result.attempt.number,
        output.success,
        output.output,
        output.meta,
        result.latency_ms,
        result.trace_id,
    )
