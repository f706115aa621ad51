"""From a request to its reply: whose host, which protocol, faults, signature, operation."""

from __future__ import annotations

import collections
import re
import threading
from typing import Any, Callable, Counter, List, Mapping, Optional, Sequence

from . import control, openapi, sls
from .evaluations import log_text
from .exchange import Reply, Request, ServiceError
from .fault import OPENAPI_ACTIONS, SLS_ACTIONS, Fault, Verdict
from .loggroup import decode_put_logs
from .platform import Platform
from .signing import Verifier
from .sls_resources import require_logstore

_HOST = re.compile(
    r"(?:(?P<project>[a-z0-9_-]+)\.)?(?:127\.0\.0\.1|localhost)(?::[0-9]+)?|\[::1\](?::[0-9]+)?",
    re.IGNORECASE,
)
_Carry = Callable[[], Reply]


class Service:
    """Answers every request; its own failures are kept for :meth:`first_crash`.

    Args:
        platform: The state behind both protocols.
        verifier: The accepted keys.
    """

    def __init__(self, platform: Platform, verifier: Verifier) -> None:
        self.platform = platform
        self.verifier = verifier
        self._counts: Counter[str] = collections.Counter()
        self._changed = threading.Condition()
        self._crashes: List[BaseException] = []
        self.injected: List[Fault] = []

    @property
    def counts(self) -> Counter[str]:
        """How many requests arrived, by action; a copy."""
        with self._changed:
            return collections.Counter(self._counts)

    def wait_for(self, action: str, count: int, timeout: float) -> bool:
        """Wait until ``count`` requests of ``action`` have arrived; False after ``timeout`` s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._counts[action] >= count, timeout)

    def first_crash(self) -> Optional[BaseException]:
        """The first exception that no handler should have raised, or None; forgets all."""
        with self._changed:
            crashes, self._crashes = self._crashes, []
        return crashes[0] if crashes else None

    def handle(self, request: Request) -> Reply:
        """The reply to a request. Never raises."""
        speaks_sls = "x-log-apiversion" in request.headers
        refuse = sls.error_reply if speaks_sls else openapi.error_reply
        try:
            project = _project_of(request)
            if request.path.startswith(control.PREFIX):
                return control.answer(self, request)
            request.project = project
            return self._sls(request) if speaks_sls else self._openapi(request)
        except ServiceError as error:
            return refuse(request, error)
        except Exception as error:
            with self._changed:
                self._crashes.append(error)
            text = "the handler crashed: {!r}".format(error)
            return refuse(request, ServiceError(500, "InternalServerError", text))

    def put_logs(self, logstore: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """Store rows in the project of the settings as if they had arrived; returns their number.

        Raises:
            ServiceError: There is no such logstore.
        """
        project = self.platform.settings.project
        require_logstore(self.platform, project, logstore)
        now = str(int(self.platform.now()))
        common = {"__time__": now, "__source__": "", "__topic__": ""}
        texts = [
            dict(common, **{str(name): log_text(value) for name, value in row.items()})
            for row in rows
        ]
        self.platform.store.add_logs(project, logstore, texts)
        return len(texts)

    def _openapi(self, request: Request) -> Reply:
        request.action = request.headers.get("x-acs-action", "Unknown")

        def carry() -> Reply:
            self.verifier.check_openapi(request)
            return openapi.answer(self.platform, request)

        return self._judged(request, OPENAPI_ACTIONS, carry)

    def _sls(self, request: Request) -> Reply:
        action = sls.identify(request)

        def carry() -> Reply:
            self.verifier.check_sls(request)
            return sls.answer(self.platform, request, action)

        return self._judged(request, SLS_ACTIONS, carry)

    def _judged(self, request: Request, group: str, carry: _Carry) -> Reply:
        with self._changed:
            self._counts[request.action] += 1
            self._changed.notify_all()
        verdict = self._verdict(request, group)
        reply = self._outcome(request, verdict, carry, group)
        reply.delay = verdict.delay
        reply.hang = verdict.hang
        reply.cut = reply.cut or bool(verdict.cut)
        return reply

    def _verdict(self, request: Request, group: str) -> Verdict:
        faults = self.platform.faults
        if request.action == "PutLogs" and faults.looks_inside:
            try:
                request.rows = decode_put_logs(request)
            except ServiceError:
                pass  # the operation itself will refuse it
        return faults.judge(request, group)

    def _outcome(self, request: Request, verdict: Verdict, carry: _Carry, group: str) -> Reply:
        refuse = sls.error_reply if group == SLS_ACTIONS else openapi.error_reply
        if verdict.hang or verdict.cut == "before":
            return Reply()
        if verdict.status:
            return refuse(request, _injected(verdict))
        try:
            return carry()
        except ServiceError as error:
            return refuse(request, error)


def _project_of(request: Request) -> str:
    """The project that the host names, or "".

    A page whose name was pointed at 127.0.0.1 (DNS rebinding) sends its own name.

    Raises:
        ServiceError: A host is neither a loopback name nor a project on one.
    """
    found = [_HOST.fullmatch(host) for host in request.hosts]
    for match, host in zip(found, request.hosts):
        if match is None:
            raise ServiceError(
                400,
                "InvalidHost",
                "LocalAgentLoop answers only for 127.0.0.1, localhost and"
                " <project>.127.0.0.1, not for {!r}.".format(host),
            )
    return (found[0].group("project") if found[0] else "") or ""


def _injected(verdict: Verdict) -> ServiceError:
    headers = {}
    if verdict.retry_after is not None:
        # the OpenAPI client reads milliseconds from its own header
        headers["retry-after"] = "{:g}".format(verdict.retry_after)
        headers["x-acs-retry-after"] = str(int(verdict.retry_after * 1000))
    return ServiceError(verdict.status, verdict.code, verdict.message, headers)
