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
import contextvars
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..cloud.loading import load_clients
from ..cloud.sls import SlsLogstore
from ..errors import ExperimentError
from ..evaluate.evaluator import named_evaluators
from ..models import Attempt, Task
from ..plan.config import AgentLoopConfig
from ..results.attempts import AttemptWriter, Stamp, experiment_key
from ..results.delivery import Callbacks
from ..results.directory import ResultsDirectory
from ..results.rows import RowContext
from ..solutions.call import is_async, prepare
from ..solutions.fingerprint import fingerprint_of
from .advice import threadless, unwritable
from .closing import Closing, RunOutcome
from .dispatch import Dispatch
from .engine import Engine
from .events import Event, RecordCreated, tell
from .executor import Workers, check_loop, check_main_guard, given_cluster, make_engine
from .flow import Flow
from .invoke import CallFacts
from .leftovers import Leftovers, leftovers, unscored
from .loop import call_on, resolve, waiting
from .opening import Opened, Opening, columns_of, turn_columns_of
from .reporter import RecordReporter
from .scoring import Scorer, ScoringPool, names_of
from .settings import RunSettings
from .writers import WriterPool

_PATIENCE_S = 5.0
_SLICE_S = 0.2


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
        self._evaluators = named_evaluators(settings.evaluators)
        self._cluster = given_cluster(settings, solution, self._task_facts())
        self._api: Optional[AgentLoopApi] = None
        self._flow: Optional[Flow] = None
        self._stop_asked = False
        self.used = False
        self._outcome: Optional[RunOutcome] = None
        self._error: Optional[BaseException] = None

    def execute(self) -> RunOutcome:
        """Run it from start to end in this thread and the run's own.

        Raises:
            ConfigurationError: The calling code is an async solution, and this one is async, too.
            ExperimentError: As the table of this module says.
            KeyboardInterrupt: Ctrl-C, after what was running has been put in order.
        """
        if self._cluster is None:
            check_loop(self._solution)
        with waiting():
            self._start_and_assist(loop=None)
        return self._result()

    def _start_and_assist(self, loop: Optional[asyncio.AbstractEventLoop]) -> None:
        try:
            engine = self._start(loop)
            if engine is not None and self._flow is not None:
                engine.assist(self._flow.finished)
        except BaseException:
            if self._flow is not None:
                self.stop()
                # bounded: the interruption may have come before the flow began to run; in slices,
                # so that a second Ctrl-C is seen whenever it comes
                ends = time.monotonic() + self._settings.stop_grace + _PATIENCE_S
                while not self._flow.finished.wait(_SLICE_S) and time.monotonic() < ends:
                    pass
            raise
        finally:
            if self._cluster is not None:
                self._cluster.dismiss()

    async def execute_async(self) -> RunOutcome:
        """The same, awaited: async solutions run on the caller's loop, all else off it.

        Cancelling it equals ``stop()``.
        """
        loop = asyncio.get_running_loop()
        own = loop if is_async(self._solution) else None
        ended: asyncio.Future[None] = loop.create_future()

        def work() -> None:
            try:
                self._start_and_assist(own)
            except BaseException as error:
                self._error = error
            call_on(loop, resolve, ended)  # False: the loop is gone, and nobody waits

        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(work,), name="agentloop-run", daemon=True
        ).start()
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.stop()
            await self._in_spite_of_cancellation(ended)
            raise
        return self._result()

    async def _in_spite_of_cancellation(self, ended: asyncio.Future[None]) -> None:
        """Wait for the end of a stopped run; some cancel again and again what they cancelled."""
        ends = time.monotonic() + self._settings.stop_grace + _PATIENCE_S
        while not ended.done() and time.monotonic() < ends:
            try:
                await asyncio.wait([ended], timeout=_PATIENCE_S)
            except asyncio.CancelledError:
                pass

    def stop(self) -> None:
        """End the run early, from any thread: running rows are ended or given a grace, finished
        ones are kept, and the record becomes ``failed``. Run again to go on."""
        self._stop_asked = True
        if self._flow is not None:
            self._flow.stop()
            self._reporter.hurry(self._settings.stop_grace)

    def _start(self, loop: Optional[asyncio.AbstractEventLoop]) -> Optional[Engine]:
        """Open the run and start its flow; None when nothing was left to do."""
        self.used = True
        self._make_workers_ready()
        opened = self._open()
        closing = self._closing(opened)
        try:
            record = opened.record
            self._tell(RecordCreated(record.record_id, record.record_name, record.continued))
            if not opened.complete:
                return self._start_flow(closing, loop)
        except BaseException as error:
            if closing.claim():
                self._flow = None
                closing.abandon(error)
            raise
        self._outcome = closing.nothing_was_due()
        return None

    def _start_flow(self, closing: Closing, loop: Optional[asyncio.AbstractEventLoop]) -> Engine:
        flow, engine, left = self._assemble(closing.opened, loop)
        threading.Thread(
            target=self._run_flow, args=(closing, flow, left), name="agentloop-flow", daemon=True
        ).start()
        return engine

    def _make_workers_ready(self) -> None:
        check_main_guard()
        if self._cluster is not None:
            at_once = self._cluster.make_ready(self._settings.n_workers, lambda: self._stop_asked)
            self._settings = replace(self._settings, n_workers=at_once, serial=False)

    def _open(self) -> Opened:
        api = self._api = AgentLoopApi(self._config.connection.access())
        self._loading = load_clients()
        opening = Opening(
            self._config,
            api,
            self._settings,
            fingerprint_of(self._solution),
            tuple(names_of(self._evaluators)),
            self._now,
            columns_of(self._solution),
            turn_columns_of(self._solution),
        )
        opened = opening.open(self._lacks_scores)
        # one for the whole run: an update under way must not come after "failed"
        self._reporter = RecordReporter(
            api, opened.plan.agent_space, opened.record.record_id, now=self._now
        )
        return opened

    def _closing(self, opened: Opened) -> Closing:
        suspects = None if self._cluster is None else self._cluster.suspects
        return Closing(opened, self._reporter, self._settings, self._now, suspects)

    def _lacks_scores(self, directory: ResultsDirectory, tasks: Sequence[Task]) -> bool:
        scorer = self._scorer(directory, tasks)
        return scorer is not None and bool(unscored(directory.state.saved.values(), scorer))

    def _assemble(
        self, opened: Opened, loop: Optional[asyncio.AbstractEventLoop]
    ) -> Tuple[Flow, Engine, Leftovers]:
        settings, directory, api = self._settings, opened.directory, self._api
        assert api is not None
        record_id, due = opened.record.record_id, self._in_order(opened)
        flow = Flow(directory, self._reporter, settings, due, opened.tally)
        writers = WriterPool(self._writer(opened), flow.written, settings.n_workers, flow.pace)
        facts = CallFacts(self._prepared, record_id, self._task_facts(), flow.starts.on_refusal)
        workers = Workers(
            settings.n_workers,
            settings.serial,
            settings.task_timeout,
            loop,
            lambda: self._stop_asked,
            self._cluster,
        )
        engine = make_engine(self._solution, facts, flow.outlet(writers), workers)
        scorer = self._scorer(directory, opened.tasks)
        scoring = ScoringPool(scorer, flow.scored, flow.stop) if scorer else None
        flow.connect(engine, self._dispatch(opened, flow), writers, scoring)
        self._reporter.begin(opened.tally.counts, announce=not opened.record.taken_up)
        self._loading.join()
        self._flow = flow
        if self._stop_asked:
            flow.stop()
        return flow, engine, leftovers(directory, record_id, opened.due, scorer)

    def _in_order(self, opened: Opened) -> Sequence[Attempt]:
        """What is due; rows that may have broken an earlier run's pool come last."""
        if self._cluster is None:
            return opened.due
        suspects = self._cluster.suspects
        suspects.update(map(tuple, opened.directory.meta.get("suspects") or ()))
        return sorted(opened.due, key=lambda attempt: attempt.key in suspects)

    def _writer(self, opened: Opened) -> AttemptWriter:
        directory = opened.directory
        stamp = Stamp(
            experiment_key(opened.plan.identity),
            opened.record.record_id,
            str(directory.meta["solution"].get("hash", "")),
            self._settings.version,
            dict(self._settings.parameters),
        )
        return AttemptWriter(directory.path, stamp, fsync=self._settings.fsync)

    def _scorer(self, directory: ResultsDirectory, tasks: Sequence[Task]) -> Optional[Scorer]:
        if not self._evaluators:
            return None
        return Scorer(directory.path, self._evaluators, {task.id: task for task in tasks})

    def _dispatch(self, opened: Opened, flow: Flow) -> Dispatch:
        api = self._api
        assert api is not None
        plan, directory = opened.plan, opened.directory
        context = RowContext(
            plan,
            opened.record.record_id,
            opened.record.record_name,
            int(directory.meta["experiment_start_time"]),
            self._settings.config_fields(),
        )
        return Dispatch(
            context,
            directory,
            {task.id: task for task in opened.tasks},
            api,
            SlsLogstore(api.access, plan.project),
            Callbacks(flow.delivered, flow.undeliverable),
        )

    def _task_facts(self) -> Mapping[str, Any]:
        return {"version": self._settings.version, "parameters": dict(self._settings.parameters)}

    def _run_flow(self, closing: Closing, flow: Flow, left: Leftovers) -> None:
        if not closing.claim():
            return
        directory = closing.opened.directory
        try:
            flow.run(left.undelivered, left.unscored)
            self._outcome, error = closing.finish(flow)
            self._error = self._error or (error and threadless(error)) or error
        except OSError as error:
            # what ended the run counts, not what it then also kept from being written
            self._error = flow.error or unwritable(directory.path, error)
            closing.abandon(self._error)
        except BaseException as error:
            self._error = threadless(error) or error
            closing.abandon(error)
        finally:
            directory.close()
            flow.finished.set()

    def _result(self) -> RunOutcome:
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise ExperimentError("The run ended without a result.")
        return self._outcome

    def _tell(self, event: Event) -> None:
        tell(self._settings.listeners(), event)
