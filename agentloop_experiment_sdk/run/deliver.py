"""Sending what a results directory still owes SLS, on another day or another machine."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, cast

from ..cloud.access import CloudAccess
from ..cloud.agentloop import AgentLoopApi
from ..cloud.sls import SlsLogstore
from ..errors import ConfigurationError, ResultsDirectoryError
from ..lines import one_line
from ..models import Attempt, Plan
from ..plan.config import AgentLoopConfig
from ..plan.connection import Connection
from ..results import directory as directories
from ..results.delivery import Callbacks
from ..results.directory import ResultsDirectory
from ..results.journal import Saved
from ..results.reader import read_results
from ..results.rows import RowContext
from ..results.stored import StoredResults
from .advice import undelivered_message
from .dispatch import Dispatch
from .flow import Flow
from .options import Path
from .reporter import RecordReporter
from .settings import RunSettings
from .tally import Counts, Tally

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryReport:
    """What ``deliver`` did.

    Attributes:
        record_id: The record the rows belong to.
        delivered: Rows sent by this call.
        undelivered: Rows that are still not in SLS.
    """

    record_id: str
    delivered: int
    undelivered: int


def deliver(
    result_dir: Path,
    config: Optional[AgentLoopConfig] = None,
    *,
    drain_timeout: float = 300.0,
) -> DeliveryReport:
    """Send the rows of a results directory that SLS has not acknowledged.

    It calls no agent, and may be repeated: what is in SLS is not sent again. A record that was held
    (``on_undelivered="hold"``) is completed once all its rows are there.

    Args:
        result_dir: A results directory, also an entry of ``history/``.
        config: Where to take credentials and endpoints from; by default the directory's own
            endpoints and the credentials of the environment.
        drain_timeout: Seconds to go on while SLS accepts nothing.

    Returns:
        How many rows were sent, and how many are still not in SLS.

    Raises:
        ResultsDirectoryError: The directory holds no results, has no record, or is in use.
        ConfigurationError: ``config`` is for another agent space or region, or no keys were found.
        CloudError: All rows are there, but a record that was held could not be completed.
    """
    # the settings refuse what is no path
    settings = RunSettings(result_dir=cast(str, result_dir), drain_timeout=drain_timeout)
    stored = read_results(settings.result_dir)
    directory = ResultsDirectory.reopen(settings.result_dir)
    try:
        return _Sending(stored, directory, config, settings).run()
    finally:
        directory.close()


class _Sending:
    """One call of ``deliver``."""

    def __init__(
        self,
        stored: StoredResults,
        directory: ResultsDirectory,
        config: Optional[AgentLoopConfig],
        settings: RunSettings,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._present = {head.key for head in stored.heads}
        self._total = stored.expected
        self._record_id = str(directory.meta.get("record_id") or "")
        if not self._record_id:
            raise ResultsDirectoryError(
                "The results in {} have no record yet; run the experiment again.".format(
                    directory.path
                )
            )
        self._plan = plan_of(directory.meta)
        self._api = AgentLoopApi(_access(directory.meta, self._plan, config))

    def run(self) -> DeliveryReport:
        """Send, and say what came of it."""
        directory = self._directory
        saved = directory.state.saved
        directory.state.saved = {key: saved[key] for key in saved if key in self._present}
        due = directory.undelivered(self._record_id)
        if due:
            self._send(due)
        directory.fold_journal()
        left = directory.undelivered(self._record_id)
        if left:
            logger.error("%s", undelivered_message(directory, len(left)))
        elif directory.meta.get("status") == directories.RUNNING:
            self._complete()
        return DeliveryReport(self._record_id, len(due) - len(left), len(left))

    def _send(self, due: List[Saved]) -> None:
        directory = self._directory
        tally = Tally(self._total, directory.state.saved.values())
        reporter = _NoReport(self._api, self._plan.agent_space, self._record_id)
        flow = Flow(directory, reporter, self._settings, (), tally)
        context = RowContext(
            self._plan,
            self._record_id,
            str(directory.meta.get("record_name") or ""),
            int(directory.meta.get("experiment_start_time") or 0),
            _row_config(directory.meta),
        )
        dispatch = Dispatch(
            context,
            directory,
            {},
            self._api,
            SlsLogstore(self._api.access, self._plan.project),
            Callbacks(flow.delivered, flow.undeliverable),
            directory.read_pipeline(),
        )
        flow.connect(_NoEngine(), dispatch)
        flow.run(due)
        if flow.error is not None:
            raise flow.error

    def _complete(self) -> None:
        """A held record whose run is over: complete only if every attempt is done."""
        tally = Tally(self._total, self._directory.state.saved.values())
        if tally.counts.done == tally.counts.total:
            reporter = RecordReporter(self._api, self._plan.agent_space, self._record_id)
            reporter.complete(tally.counts)
            self._directory.update_meta(
                status=directories.COMPLETED, finished_at=int(time.time() * 1000)
            )


class _NoReport(RecordReporter):
    """A delivery that fails says nothing about the run, whose record may be completed."""

    def fail_now(self, counts: Counts, timeout: float) -> None:
        """Leave the record as it is."""


class _NoEngine:
    """Stands for an engine: nothing is run by ``deliver``."""

    def submit(self, attempt: Attempt) -> None:
        """Never called."""
        raise AssertionError("deliver runs no attempts")

    def assist(self, finished: threading.Event) -> None:
        """Nothing to assist."""

    def stop(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""


def plan_of(meta: Mapping[str, Any]) -> Plan:
    """The plan as ``evaluation_meta.json`` keeps it, as far as rows need it."""
    try:
        identity, plan = meta["identity"], meta["plan"]
        return Plan(
            agent_space=identity["agent_space"],
            plan_id=identity["plan_id"],
            plan_name=plan["plan_name"],
            region_id=identity["region_id"],
            project=plan["project"],
            dataset=plan["dataset"],
            pipeline_name=plan.get("pipeline_name") or "",
            experiment_name=identity["experiment_name"],
            agentloop_endpoint=plan.get("agentloop_endpoint"),
            sls_endpoint=plan.get("sls_endpoint"),
        )
    except (KeyError, TypeError) as error:
        raise ResultsDirectoryError(
            "The results were not written by this package, or {} is damaged: {} is missing.".format(
                "evaluation_meta.json", error
            )
        ) from error


def _access(meta: Mapping[str, Any], plan: Plan, config: Optional[AgentLoopConfig]) -> CloudAccess:
    if config is not None:
        for name, wanted in (("agent_space", plan.agent_space), ("region_id", plan.region_id)):
            if getattr(config, name) != wanted:
                raise ConfigurationError(
                    "The results belong to {} {!r}, the config names {!r}; pass the config they "
                    "were made with.".format(name, wanted, getattr(config, name))
                )
        return _said(config.connection).access()
    connection = Connection(
        plan.region_id,
        plan.agent_space,
        agentloop_endpoint=plan.agentloop_endpoint,
        sls_endpoint=plan.sls_endpoint,
    )
    return _said(connection).access()


def _said(connection: Connection) -> Connection:
    """Tells where the rows go, if not to the region: a directory from others may name any place."""
    endpoints = (connection.agentloop_endpoint, connection.sls_endpoint)
    if any(endpoints):
        names = [one_line(endpoint or "the region's own") for endpoint in endpoints]
        logger.info("Delivering with AgentLoop at %s and SLS at %s.", *names)
    return connection


def _row_config(meta: Mapping[str, Any]) -> Dict[str, Any]:
    fields = {"version": meta.get("version"), "parameters": meta.get("parameters")}
    return {name: value for name, value in fields.items() if value}
