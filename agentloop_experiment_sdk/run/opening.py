"""Opening a run: plan, tasks, directory and record, each before the next is touched."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..errors import ExperimentError
from ..lines import counted
from ..models import Attempt, Plan, Task
from ..plan.config import AgentLoopConfig
from ..plan.tasks import check_columns, check_turn_columns, load_tasks
from ..results.directory import COMPLETED, FAILED, INTERRUPTED, Description, ResultsDirectory
from ..results.journal import Saved
from ..results.stored import mapping_of, number_or_none
from .advice import unwritable
from .record import OpenRecord, RecordOpener
from .reporter import RecordReporter
from .settings import RunSettings
from .tally import Tally
from .versions import tell_other_versions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """Everything that is known before the first attempt.

    ``due`` are the attempts to run. ``complete``: nothing was left to do, and the record has been
    told so.
    """

    plan: Plan
    tasks: Tuple[Task, ...]
    directory: ResultsDirectory
    record: OpenRecord
    due: List[Attempt]
    tally: Tally
    complete: bool


@dataclass(frozen=True)
class Opening:
    """What it takes to open a run.

    Args:
        config: What the user states.
        api: AgentLoop.
        settings: How to run.
        solution: The solution's name and hash.
        evaluators: The names of local evaluators.
        now: Seconds since the epoch.
        columns: The columns that the solution cannot do without.
        turn_columns: Those of which it needs one.
    """

    config: AgentLoopConfig
    api: AgentLoopApi
    settings: RunSettings
    solution: Mapping[str, str]
    evaluators: Tuple[str, ...] = ()
    now: Callable[[], float] = time.time
    columns: Tuple[str, ...] = ()
    turn_columns: Tuple[str, ...] = ()

    def open(self, lacks_scores: Callable[[ResultsDirectory, Sequence[Task]], bool]) -> Opened:
        """Open everything.

        Args:
            lacks_scores: Whether done attempts still lack local scores.

        Raises:
            ExperimentError: As the table of ``run.experiment`` says.
        """
        settings = self.settings
        path = settings.result_dir
        plan = self.config.resolve_experiment_plan(api=self.api)
        tasks = load_tasks(self.api, plan, limit=settings.limit, item_ids=settings.item_ids)
        check_columns(tasks, self.columns)
        check_turn_columns(tasks, self.turn_columns)
        directory = ResultsDirectory.inspect(path, plan.identity, settings.resume)
        try:
            opener = RecordOpener(self.api, plan, directory, now=self.now)
            if settings.record_id is not None:
                opener.check(settings.record_id)
            return self._begin(plan, tasks, directory, opener, lacks_scores)
        except OSError as error:
            directory.close()
            raise unwritable(path, error) from error
        except BaseException:
            directory.close()
            raise

    def _begin(
        self,
        plan: Plan,
        tasks: Tuple[Task, ...],
        directory: ResultsDirectory,
        opener: RecordOpener,
        lacks_scores: Callable[[ResultsDirectory, Sequence[Task]], bool],
    ) -> Opened:
        """Begin in the directory and open the record; what cannot be opened does not run."""
        earlier = dict(directory.meta)
        part = self.settings.limit is not None or self.settings.item_ids is not None
        directory.begin(self._description(plan), tasks, int(self.now() * 1000), part=part)
        try:
            return self._open_record(plan, tasks, directory, earlier, opener, lacks_scores)
        except ExperimentError:  # the platform's answer, or ours
            done = len(directory.state.saved) >= len(tasks) * self.settings.n_repeat
            status = COMPLETED if done and earlier.get("status") == COMPLETED else FAILED
            directory.update_meta(status=status)
            raise

    def _open_record(
        self,
        plan: Plan,
        tasks: Tuple[Task, ...],
        directory: ResultsDirectory,
        earlier: Mapping[str, Any],
        opener: RecordOpener,
        lacks_scores: Callable[[ResultsDirectory, Sequence[Task]], bool],
    ) -> Opened:
        every = all_attempts(tasks, self.settings.n_repeat)
        due = directory.settle(every)
        if self.settings.retry_failed:
            due = with_failed(every, due, directory.state.saved)
        directory.check_due(due)
        _say_what_is_skipped(directory, tasks, earlier, due, self.now())
        total = len(every) + len(directory.other_keys())
        tally = Tally(total, directory.state.saved.values())
        known = self.settings.record_id or str(directory.meta.get("record_id") or "")
        nothing_left = (
            not due and not directory.undelivered(known) and not lacks_scores(directory, tasks)
        )
        asked = self._asked(tally, nothing_left, known != directory.meta.get("record_id"))
        try:
            record = opener.open(asked, self.settings.record_id, self.settings.client_token)
        except ExperimentError:
            raise
        except BaseException:
            self._fail(opener, plan, directory, tally)
            raise
        complete = nothing_left and record.record_id == known
        return Opened(plan, tasks, directory, record, due, tally, complete)

    def _fail(
        self, opener: RecordOpener, plan: Plan, directory: ResultsDirectory, tally: Tally
    ) -> None:
        """Ctrl-C while the record was opened: it must not stay pending or running."""
        record_id = opener.left_open()
        if record_id:
            reporter = RecordReporter(self.api, plan.agent_space, record_id, now=self.now)
            reporter.fail_now(tally.counts, self.settings.stop_grace)
            reporter.join(self.settings.stop_grace)
        directory.update_meta(status=INTERRUPTED)
        logger.warning("The run was ended before its first row; run it again to go on.")

    def _asked(self, tally: Tally, complete: bool, new: bool) -> Dict[str, Any]:
        """The update that takes up a record; ``new``: the caller's, without rows as yet."""
        body: Dict[str, Any] = {"status": "completed" if complete else "running"}
        if complete:
            body["completedAt"] = int(self.now() * 1000)
        elif new:
            body["executedAt"] = int(self.now() * 1000)
        body.update(tally.counts.body())
        return body

    def _description(self, plan: Plan) -> Description:
        return Description(
            plan,
            self.settings.n_repeat,
            self.solution,
            self.settings.version,
            self.settings.parameters,
            self.evaluators,
        )


def columns_of(solution: Any) -> Tuple[str, ...]:
    """The columns that what builds a solution's calls takes from every row.

    It says so by ``required_columns``; a function does not.
    """
    found = getattr(getattr(solution, "built_by", None), "required_columns", ())
    return tuple(map(str, found)) if isinstance(found, (list, tuple)) else ()


def turn_columns_of(solution: Any) -> Tuple[str, ...]:
    """The columns of which a conversation needs one; other solutions need none."""
    found = getattr(solution, "turn_columns", ())
    return found if isinstance(found, tuple) else ()


def all_attempts(tasks: Sequence[Task], n_repeat: int) -> List[Attempt]:
    """Repeat 0 over all tasks, then repeat 1, and so on."""
    return [Attempt(task, str(repeat)) for repeat in range(n_repeat) for task in tasks]


def with_failed(
    every: Sequence[Attempt], due: Sequence[Attempt], saved: Mapping[Any, Saved]
) -> List[Attempt]:
    """``due`` and the attempts that failed before, as their next try, in order."""
    wanted = {attempt.key: attempt for attempt in due}
    again: List[Attempt] = []
    for attempt in every:
        known = saved.get(attempt.key)
        if attempt.key in wanted:
            again.append(wanted[attempt.key])
        elif known is not None and known.status == "failed":
            again.append(Attempt(attempt.task, attempt.repeat_id, known.number + 1))
    return again


def _say_what_is_skipped(
    directory: ResultsDirectory,
    tasks: Sequence[Task],
    earlier: Mapping[str, Any],
    due: Sequence[Attempt],
    now: float,
) -> None:
    open_others = set(directory.other_keys()) - directory.state.saved.keys()
    if open_others:
        logger.warning(
            "%s outside this part of the dataset %s no result yet; run without limit and item_ids "
            "to get all.",
            counted(len(open_others), "attempt"),
            "has" if len(open_others) == 1 else "have",
        )
    done = len(directory.state.saved.keys() - {attempt.key for attempt in due})
    if not done:
        return
    solution = mapping_of(earlier.get("solution"))
    changed = solution.get("hash") not in (None, directory.meta["solution"].get("hash"))
    age_s = now - (number_or_none(earlier.get("experiment_start_time")) or now * 1000) / 1000
    logger.warning(
        "%s in %s %s done already (begun %s ago) and not run again%s. Pass resume=False to start "
        "afresh.",
        counted(done, "attempt"),
        directory.path,
        "is" if done == 1 else "are",
        _duration(age_s),
        "; the solution has CHANGED since they were answered" if changed else "",
    )
    due_keys = {attempt.key for attempt in due}
    tell_other_versions(directory, earlier, directory.state.saved.keys() - due_keys)
    stale = directory.stale_folders(tasks)
    if stale:
        logger.warning(
            "%s to rows that changed or left the plan: kept in %s and not counted (a new dataset "
            "column changes every row).",
            counted(len(stale), "task folder", "belongs", "belong"),
            directory.path,
        )


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return "{:.0f} {}".format(seconds / size, unit)
    return "{:.0f} seconds".format(max(0.0, seconds))
