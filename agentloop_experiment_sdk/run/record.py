"""The cloud record of a run: taken up, found again, or created once."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Protocol

from ..errors import CloudError, ExperimentError
from ..models import Plan
from ..results.directory import ResultsDirectory

logger = logging.getLogger(__name__)

_GONE = "it is not there any more"
_CREATE_TRIES = 3
_PAGE_SIZE = 50
_PAGES = 4


class RecordApi(Protocol):
    """The calls to AgentLoop that it takes to open a record."""

    def create_run(
        self, space: str, body: Dict[str, Any], client_token: Optional[str] = None
    ) -> Dict[str, Any]:
        """CreateExperimentRun."""
        ...

    def get_run(self, space: str, record_id: str) -> Dict[str, Any]:
        """GetExperimentRun."""
        ...

    def update_run(self, space: str, record_id: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """UpdateExperimentRun."""
        ...

    def list_runs(
        self, space: str, page: int = 0, page_size: int = 20, plan_name: Optional[str] = None
    ) -> Dict[str, Any]:
        """ListExperimentRuns."""
        ...


@dataclass(frozen=True)
class OpenRecord:
    """A record that takes rows.

    ``continued``: rows of an earlier run are under it. ``taken_up``: it was there before, and has
    answered the status that was asked.
    """

    record_id: str
    record_name: str
    continued: bool = False
    taken_up: bool = False


class RecordOpener:
    """Finds or creates the record of a run; what it does is written down before it is done.

    Args:
        api: AgentLoop.
        plan: The plan.
        directory: Keeps record id, name and client token.
        now: Seconds since the epoch.
    """

    def __init__(
        self,
        api: RecordApi,
        plan: Plan,
        directory: ResultsDirectory,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._plan = plan
        self._directory = directory
        self._now = now
        self._sleep = sleep
        self._pending = ""
        self._wanted_name = ""

    def open(
        self, asked: Dict[str, Any], record_id: Optional[str], client_token: Optional[str]
    ) -> OpenRecord:
        """The record to write under.

        Args:
            asked: The body of the update that takes up an earlier record; its ``status`` must be
                what the platform answers.
            record_id: A record that the caller made; no other one is then created.
            client_token: The caller's idempotency token for a new record.

        Raises:
            CloudError: No record could be had.
        """
        meta = self._directory.meta
        known = record_id or meta.get("record_id")
        continued = bool(known) and known == meta.get("record_id")
        if known:
            self._pending = str(known) if asked["status"] == "running" else ""
            refusal = self._take_up(str(known), asked)
            if not refusal:
                name = str(meta.get("record_name") or self._new_name())
                self._directory.update_meta(record_id=known, record_name=name)
                return OpenRecord(str(known), name, continued, taken_up=True)
            self._pending = ""
            if record_id:
                raise _unusable(record_id, refusal)
            _tell_refusal(str(known), refusal)
            meta.update(record_name=None, client_token=None)
        return self._create(client_token)

    def check(self, record_id: str) -> None:
        """Ask for a record that the caller made, before anything of the directory is touched.

        Raises:
            ExperimentError: There is none of that id.
            CloudError: AgentLoop does not answer.
        """
        try:
            self._api.get_run(self._plan.agent_space, record_id)
        except CloudError as error:
            if error.retryable:
                raise
            if error.status == 404:
                raise _unusable(record_id, "there is no such record") from error
            # a key that may write records need not be allowed to read them

    def left_open(self) -> str:
        """The id of the record that an interruption of ``open`` has left pending or running.

        One that was asked for, but not answered yet, is looked for by its name.
        """
        if not self._pending and self._wanted_name:
            try:
                found = self._find(self._wanted_name)
                self._pending = found[0] if len(found) == 1 else ""
            except CloudError as error:
                logger.warning("The record that was just created was not found: %s", error)
            if self._pending:
                self._keep(self._pending, self._wanted_name)
        return self._pending

    def _take_up(self, record_id: str, asked: Dict[str, Any]) -> str:
        """Why the platform refuses, or ""."""
        try:
            answer = self._api.update_run(self._plan.agent_space, record_id, asked)
        except CloudError as error:
            if error.retryable:
                raise
            return _GONE if error.status == 404 else str(error)
        status = str(answer.get("status") or "").lower()
        if status and status != asked["status"]:
            return "its status is {} and stays so".format(status)
        return ""

    def _create(self, client_token: Optional[str]) -> OpenRecord:
        meta = self._directory.meta
        name = meta.get("record_name")
        if name and not meta.get("record_id"):
            # written down, but no id: the process died around the call
            found = self._find(str(name))
            if len(found) == 1:
                return self._keep(found[0], str(name))
        name = str(name or self._new_name())
        token = client_token or meta.get("client_token") or uuid.uuid4().hex
        self._directory.update_meta(
            record_id=None, record_name=name, client_token=token, evaluation_name=name
        )
        self._wanted_name = name
        self._pending = self._ask_for(name, token)
        return self._keep(self._pending, name)

    def _ask_for(self, name: str, token: str) -> str:
        plan = self._plan
        body = {
            "experimentPlanId": plan.plan_id,
            "offlineExperiments": [{"label": "experimentA", "name": plan.experiment_name}],
            "recordName": name,
            "status": "pending",
        }
        for tries in range(1, _CREATE_TRIES + 1):
            try:
                answer = self._api.create_run(plan.agent_space, body, token)
            except CloudError as error:
                if not error.retryable or tries == _CREATE_TRIES:
                    raise
                self._sleep(error.retry_after or tries)
                found = self._find(name) if error.ambiguous else []
                if len(found) == 1:
                    return found[0]
                # of several, all but one belong to other runs: the client token tells which is ours
            else:
                return _record_id(answer)
        raise AssertionError("the last try returns or raises")

    def _find(self, name: str) -> List[str]:
        """The records of that name, without rows as yet, among the newest runs of the plan.

        Names have a resolution of a second: one that is in use belongs to another run.
        """
        found: List[str] = []
        for page in range(_PAGES):
            answer = self._api.list_runs(
                self._plan.agent_space, page, _PAGE_SIZE, self._plan.plan_name
            )
            records = answer.get("records") or []
            found += [
                str(record["recordId"])
                for record in records
                if record.get("recordName") == name and self._is_unused(record)
            ]
            if len(records) < _PAGE_SIZE:
                break
        return found

    def _is_unused(self, record: Dict[str, Any]) -> bool:
        same_plan = record.get("experimentPlanId") in (None, "", self._plan.plan_id)
        pending = str(record.get("status") or "pending").lower() == "pending"
        return bool(
            same_plan and pending and record.get("recordId") and not record.get("totalTasks")
        )

    def _keep(self, record_id: str, name: str) -> OpenRecord:
        self._directory.update_meta(record_id=record_id, record_name=name)
        return OpenRecord(record_id, name)

    def _new_name(self) -> str:
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(self._now()))
        return "{} {}".format(self._plan.plan_name, stamp)


def _unusable(record_id: str, reason: str) -> ExperimentError:
    return ExperimentError(
        "The record {} cannot be written: {}. Pass another record_id, or none to create "
        "one.".format(record_id, reason)
    )


def _tell_refusal(record_id: str, refusal: str) -> None:
    if refusal == _GONE:
        logger.warning("Record %s: %s; all rows go under a new one.", record_id, _GONE)
        return
    logger.warning(
        "Record %s cannot be continued (%s); a new record is created, and all rows are written "
        "under it.",
        record_id,
        refusal,
    )


def _record_id(answer: Dict[str, Any]) -> str:
    record_id = answer.get("recordId")
    if not record_id:
        raise CloudError(
            "CreateExperimentRun answered without a recordId; ask Alibaba Cloud support with the "
            "request id.",
            request_id=str(answer.get("requestId") or "") or None,
        )
    return str(record_id)
