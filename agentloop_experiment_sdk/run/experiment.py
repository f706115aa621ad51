"""One run of an experiment as a visible list of stages, and what each failure does.

======================  ==========================================================================
stage                   when it fails
======================  ==========================================================================
check the arguments     ConfigurationError; nothing was sent or written
resolve the plan        PlanError or CloudError; nothing was written
load the tasks          DatasetError; nothing was written
open the directory      ResultsDirectoryError; an earlier experiment in it is untouched
open the record         CloudError; the directory remembers that a record was asked for
run the attempts        rows fail alone; a fault of the run itself marks the record failed
deliver the rows        rows stay in the outbox and are counted
complete the record     CloudError; the same call again completes it
======================  ==========================================================================
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..cloud.sls import SlsLogstore
from ..errors import ExperimentError
from ..models import Attempt, Plan, Task
from ..plan.config import AgentLoopConfig
from ..plan.tasks import load_tasks
from ..results import directory as directories
from ..results.attempts import AttemptWriter, Stamp, experiment_key
from ..results.delivery import Callbacks
from ..results.directory import Description, ResultsDirectory
from ..results.evaluation_result import evaluation_result
from ..results.journal import Saved
from ..solutions.call import is_async, prepare
from ..solutions.fingerprint import fingerprint_of
from .dispatch import Destination, Dispatch
from .engine import Engine, wait_for
from .events import RecordCreated, RunFinished
from .executor import Workers, make_engine
from .flow import Flow, undelivered_message
from .invoke import CallFacts
from .record import OpenRecord, RecordOpener, RecordReporter
from .settings import HOLD, RunSettings
from .tally import Tally
from .writers import WriterPool

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutcome:
    """What a run came to. ``status``: completed, failed or interrupted."""

    record_id: str
    status: str
    undelivered: int


@dataclass(frozen=True)
class _Opened:
    """Everything that is known once plan, tasks, directory and record are there."""

    plan: Plan
    tasks: Tuple[Task, ...]
    directory: ResultsDirectory
    record: OpenRecord
    due: List[Attempt]
    tally: Tally


class ExperimentRun:
    """One run. Use it once: ``execute`` or ``execute_async``.

    Args:
        config: What the user states; resolved afresh.
        solution: The user's callable.
        settings: How to run it.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        config: AgentLoopConfig,
        solution: Any,
        settings: RunSettings,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._solution = solution
        self._settings = settings
        self._now = now
        self._prepared = prepare(solution)
        self._api: Optional[AgentLoopApi] = None
        self._flow: Optional[Flow] = None
        self._stop_asked = False
        self._outcome: Optional[RunOutcome] = None
        self._error: Optional[BaseException] = None

    def execute(self) -> RunOutcome:
        """Run it from start to end in this thread and the run's own.

        Raises:
            ExperimentError: As the table of this module says.
            KeyboardInterrupt: Ctrl-C, after what was running has been put in order.
        """
        engine, thread = self._start(loop=None)
        assert self._flow is not None
        try:
            engine.assist(self._flow.finished)
        except BaseException:
            self._flow.stop()
            wait_for(self._flow.finished)
            raise
        thread.join()
        return self._result()

    async def execute_async(self) -> RunOutcome:
        """The same, awaited: async solutions run on the caller's loop, all else off it.

        Cancelling it equals ``stop()``.
        """
        loop = asyncio.get_running_loop()
        own = loop if is_async(self._solution) else None
        ended: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                _, thread = self._start(own)
                thread.join()
            except BaseException as error:
                self._error = error
            _call_on(loop, lambda: _resolve(ended))

        threading.Thread(target=work, name="agentloop-run", daemon=True).start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.shield(ended)
            raise
        return self._result()

    def stop(self) -> None:
        """End the run early, from any thread: running rows are ended or given a grace, finished
        ones are kept, and the record becomes ``failed``. Run again to go on."""
        self._stop_asked = True
        if self._flow is not None:
            self._flow.stop()

    def _start(self, loop: Optional[asyncio.AbstractEventLoop]) -> Tuple[Engine, threading.Thread]:
        opened = self._open()
        try:
            flow, engine, undelivered = self._assemble(opened, loop)
        except BaseException:
            self._abandon(opened)
            raise
        thread = threading.Thread(
            target=self._run_flow, args=(opened, flow, undelivered), name="agentloop-flow"
        )
        thread.daemon = True
        thread.start()
        return engine, thread

    def _open(self) -> _Opened:
        api = self._api = AgentLoopApi(self._config.connection.access())
        settings = self._settings
        plan = self._config.resolve_experiment_plan(api=api)
        tasks = load_tasks(api, plan, limit=settings.limit, item_ids=settings.item_ids)
        directory = ResultsDirectory.inspect(settings.result_dir, plan.identity, settings.resume)
        try:
            return self._open_record(api, plan, tasks, directory)
        except BaseException:
            directory.close()
            raise

    def _open_record(
        self,
        api: AgentLoopApi,
        plan: Plan,
        tasks: Tuple[Task, ...],
        directory: ResultsDirectory,
    ) -> _Opened:
        earlier = dict(directory.meta)
        directory.begin(self._description(plan), tasks, int(self._now() * 1000))
        every = all_attempts(tasks, self._settings.n_repeat)
        due = directory.settle(every)
        if self._settings.retry_failed:
            due = _with_failed(every, due, directory.state.saved)
        _say_what_is_skipped(directory, tasks, earlier, self._now())
        tally = Tally(len(every), directory.state.saved.values())
        asked = {"status": "running", **tally.counts.body()}
        opener = RecordOpener(api, plan, directory, now=self._now)
        record = opener.open(asked, self._settings.record_id, self._settings.client_token)
        self._tell(RecordCreated(record.record_id, record.record_name, record.continued))
        return _Opened(plan, tasks, directory, record, due, tally)

    def _description(self, plan: Plan) -> Description:
        settings = self._settings
        return Description(
            plan,
            settings.n_repeat,
            fingerprint_of(self._solution),
            settings.version,
            settings.parameters,
        )

    def _assemble(
        self, opened: _Opened, loop: Optional[asyncio.AbstractEventLoop]
    ) -> Tuple[Flow, Engine, Sequence[Saved]]:
        settings, directory, api = self._settings, opened.directory, self._api
        assert api is not None
        record_id = opened.record.record_id
        reporter = RecordReporter(api, opened.plan.agent_space, record_id, now=self._now)
        flow = Flow(directory, reporter, settings, opened.due, opened.tally)
        dispatch = self._dispatch(opened, flow)
        stamp = Stamp(
            experiment_key(opened.plan.identity),
            record_id,
            str(directory.meta["solution"].get("hash", "")),
        )
        writers = WriterPool(
            AttemptWriter(directory.path, stamp, fsync=settings.fsync),
            flow.written,
            min(2, settings.n_workers),
        )
        facts = CallFacts(self._prepared, record_id, self._task_facts())
        workers = Workers(settings.n_workers, settings.serial, settings.task_timeout, loop)
        engine = make_engine(self._solution, facts, flow.outlet(writers), workers)
        flow.connect(engine, writers, dispatch)
        reporter.begin(opened.tally.counts, announce=True)
        self._reporter = reporter
        writers.start()
        self._flow = flow
        if self._stop_asked:
            flow.stop()
        return flow, engine, directory.undelivered(record_id)

    def _dispatch(self, opened: _Opened, flow: Flow) -> Dispatch:
        api = self._api
        assert api is not None
        plan, directory = opened.plan, opened.directory
        destination = Destination(
            plan,
            opened.record.record_id,
            opened.record.record_name,
            int(directory.meta["experiment_start_time"]),
            self._settings.config_fields(),
        )
        return Dispatch(
            destination,
            directory,
            {task.id: task for task in opened.tasks},
            api,
            SlsLogstore(api.access, plan.project),
            Callbacks(flow.delivered, flow.undeliverable),
        )

    def _task_facts(self) -> Mapping[str, Any]:
        return {"version": self._settings.version, "parameters": dict(self._settings.parameters)}

    def _run_flow(self, opened: _Opened, flow: Flow, undelivered: Sequence[Saved]) -> None:
        try:
            flow.run(undelivered)
            self._finish(opened, flow)
        except BaseException as error:
            self._error = error
            logger.error("The run failed: %s", error)
            self._abandon(opened)
        finally:
            opened.directory.close()
            flow.finished.set()

    def _finish(self, opened: _Opened, flow: Flow) -> None:
        directory, record_id = opened.directory, opened.record.record_id
        left = len(directory.undelivered(record_id))
        status = directories.COMPLETED
        if flow.was_stopped:
            status = directories.FAILED if flow.error else directories.INTERRUPTED
        if left:
            logger.error("%s", undelivered_message(directory, left))
        directory.write_result(
            evaluation_result(opened.tasks, self._settings.n_repeat, directory.state, {})
        )
        if flow.was_stopped:
            self._reporter.fail_now(opened.tally.counts, self._settings.stop_grace)
            self._reporter.join(self._settings.stop_grace)
            logger.warning(
                "The run was ended early with %d of %d rows done; run it again to go on.",
                opened.tally.counts.done,
                opened.tally.counts.total,
            )
        elif left and self._settings.on_undelivered == HOLD:
            self._reporter.join(None)
            status = directories.RUNNING
        else:
            self._reporter.complete(opened.tally.counts)
        directory.fold_journal()
        directory.update_meta(status=status, finished_at=int(self._now() * 1000))
        self._error = flow.error
        self._outcome = RunOutcome(record_id, status, left)
        self._tell(RunFinished(record_id, status, left))

    def _abandon(self, opened: _Opened) -> None:
        """A fault of the run itself: the record must not stay ``running``."""
        assert self._api is not None
        reporter = RecordReporter(
            self._api, opened.plan.agent_space, opened.record.record_id, now=self._now
        )
        reporter.fail_now(opened.tally.counts, self._settings.stop_grace)
        reporter.join(self._settings.stop_grace)
        try:
            opened.directory.update_meta(status=directories.FAILED)
        except OSError as error:
            logger.warning("The results directory could not be marked failed: %s", error)
        opened.directory.close()

    def _result(self) -> RunOutcome:
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise ExperimentError("The run ended without a result.")
        return self._outcome

    def _tell(self, event: Any) -> None:
        for listener in (self._settings.on_event, self._settings.progress):
            if callable(listener):
                try:
                    listener(event)
                except Exception:
                    logger.exception("on_event raised; the run goes on.")


def all_attempts(tasks: Sequence[Task], n_repeat: int) -> List[Attempt]:
    """Repeat 0 over all tasks, then repeat 1, and so on."""
    return [Attempt(task, str(repeat)) for repeat in range(n_repeat) for task in tasks]


def _with_failed(
    every: Sequence[Attempt], due: Sequence[Attempt], saved: Mapping[Any, Saved]
) -> List[Attempt]:
    """``due`` and the attempts that failed before, as their next try, in order."""
    wanted = {attempt.key for attempt in due}
    again: List[Attempt] = []
    for attempt in every:
        known = saved.get(attempt.key)
        if attempt.key in wanted:
            again.append(attempt)
        elif known is not None and known.status == "failed":
            again.append(Attempt(attempt.task, attempt.repeat_id, known.number + 1))
    return again


def _say_what_is_skipped(
    directory: ResultsDirectory, tasks: Sequence[Task], earlier: Mapping[str, Any], now: float
) -> None:
    done = len(directory.state.saved)
    if not done:
        return
    solution: Dict[str, Any] = dict(earlier.get("solution") or {})
    changed = solution.get("hash") not in (None, directory.meta["solution"].get("hash"))
    age_s = now - float(earlier.get("experiment_start_time") or now * 1000) / 1000
    logger.warning(
        "%d attempts in %s are done already (begun %s ago) and are not run again%s. Pass "
        "resume=False to start afresh.",
        done,
        directory.path,
        _duration(age_s),
        "; the solution has CHANGED since they were answered" if changed else "",
    )
    stale = directory.stale_folders(tasks)
    if stale:
        logger.warning(
            "%d task folders belong to rows that changed or left the plan; they stay in %s and "
            "are not counted (a new dataset column changes every row).",
            len(stale),
            directory.path,
        )


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return "{:.0f} {}".format(seconds / size, unit)
    return "{:.0f} seconds".format(max(0.0, seconds))


def _call_on(loop: asyncio.AbstractEventLoop, action: Callable[[], Any]) -> None:
    try:
        loop.call_soon_threadsafe(action)
    except RuntimeError:
        pass  # the caller's loop is gone, and nobody waits


def _resolve(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
