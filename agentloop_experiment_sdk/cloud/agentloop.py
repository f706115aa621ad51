"""The AgentLoop OpenAPI (version 2026-05-20), through the official client's ``call_api``.

``call_api`` answers the plain JSON, so no key is lost that the installed client's models do not
know. The client is imported with the first call: it is heavy.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import quote

from .._version import __version__
from ..errors import CloudError, ConfigurationError
from .access import CloudAccess, Endpoint, Keys, keys_of
from .openapi_errors import invalid_answer, mask, translate

logger = logging.getLogger(__name__)

Json = Dict[str, Any]
_API_VERSION = "2026-05-20"
_READ_PAUSES = (0.3, 1.0)
_LONGEST_PAUSE = 10.0
_QUERY_TIMEOUT = 60.0


class _Signer(NamedTuple):
    """A client and the keys it was built with."""

    keys: Keys
    client: Any


class AgentLoopApi:
    """The AgentLoop operations an experiment needs; every answer is a plain dict.

    May be used by several threads at once. Construction does no IO.

    Args:
        access: Region, endpoints and credentials.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for each piece of an answer; queries wait at least 60.
        sleep: Called with seconds between the tries of a read.

    Every method raises ``CloudError`` (code, status, request_id, retryable, ambiguous,
    retry_after) when AgentLoop refuses or does not answer. Reads are tried up to three times
    while the error is retryable; writes and previews are sent once.
    """

    def __init__(
        self,
        access: CloudAccess,
        *,
        connect_timeout: float = 5.0,
        read_timeout: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.access = access
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._sleep = sleep
        self._signer: Optional[_Signer] = None

    def get_plan(self, space: str, plan_id: str) -> Json:
        """GetExperimentPlan: the whole plan."""
        path = _path("/api/v1/experiments/{}/plans/{}", space, plan_id)
        return self._read("GetExperimentPlan", "GET", path)

    def list_plans(
        self,
        space: str,
        *,
        limit: int = 100,
        offset: int = 0,
        plan_name: Optional[str] = None,
        status: Optional[str] = None,
    ) -> Json:
        """ListExperimentPlans: one page of ``plans``, newest first, with ``total``."""
        query = {"limit": limit, "offset": offset, "planName": plan_name, "status": status}
        path = _path("/api/v1/experiments/{}/plans", space)
        return self._read("ListExperimentPlans", "GET", path, query)

    def get_agent_space(self, space: str) -> Json:
        """GetAgentSpace: among others its ``slsProject`` and ``regionId``."""
        return self._read("GetAgentSpace", "GET", _path("/agentspace/{}", space))

    def execute_query(
        self, space: str, dataset: str, sql: str
    ) -> Tuple[List[str], List[Sequence[Any]]]:
        """ExecuteQuery: the columns and rows that ``sql`` selects; values keep their JSON types.

        A value that AgentLoop cut short is reported at WARNING.
        """
        path = _path("/agentspace/{}/dataset/{}/query", space, dataset)
        body = {"type": "SQL", "query": sql}
        answer = self._read("ExecuteQuery", "POST", path, body=body, check=_check_table)
        _warn_if_cut(answer, dataset)
        return answer.get("columns") or [], answer.get("rows") or []

    def create_run(
        self, space: str, body: Mapping[str, Any], client_token: Optional[str] = None
    ) -> Json:
        """CreateExperimentRun: answers ``recordId``. The platform may ignore the token."""
        path = _path("/api/v1/experimentruns/{}/execute", space)
        return self._write("CreateExperimentRun", "POST", path, body, client_token)

    def update_run(
        self,
        space: str,
        record_id: str,
        body: Mapping[str, Any],
        *,
        client_token: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Json:
        """UpdateExperimentRun: absent keys stay as they are; answers the persisted ``status``.

        ``timeout`` bounds connecting and each wait for the answer, in seconds.
        """
        path = _path("/api/v1/experimentruns/{}/records/{}", space, record_id)
        return self._write("UpdateExperimentRun", "PUT", path, body, client_token, timeout)

    def get_run(self, space: str, record_id: str) -> Json:
        """GetExperimentRun: the record under ``record``."""
        path = _path("/api/v1/experimentruns/{}/records/{}", space, record_id)
        return self._read("GetExperimentRun", "GET", path)

    def list_runs(
        self, space: str, page: int = 0, page_size: int = 20, plan_name: Optional[str] = None
    ) -> Json:
        """ListExperimentRuns: one page (from 0) of ``records``, names matched loosely."""
        query = {"page": page, "pageSize": page_size, "planName": plan_name}
        path = _path("/api/v1/experimentruns/{}/records", space)
        return self._read("ListExperimentRuns", "GET", path, query)

    def get_pipeline(self, space: str, name: str) -> Json:
        """GetPipeline: the whole definition, also the parts an older client does not know."""
        return self._read("GetPipeline", "GET", _path("/agentspace/{}/pipeline/{}", space, name))

    def preview_pipeline(self, space: str, body: Mapping[str, Any]) -> Json:
        """PreviewPipeline: the rows that the definition in ``body`` makes, under ``data``."""
        path = _path("/agentspace/{}/pipeline/preview", space)
        return self._call("PreviewPipeline", "POST", path, {}, body, self._read_timeout)

    def get_evaluation_task(self, space: str, task_id: str) -> Json:
        """GetEvaluationTask: among others its ``status`` and ``evaluators``."""
        path = _path("/api/v1/evaluation-task/{}/{}", space, task_id)
        return self._read("GetEvaluationTask", "GET", path)

    def list_evaluation_runs(self, space: str, task_id: str, max_results: int = 100) -> Json:
        """ListEvaluationRuns: the first page of ``evaluationRuns`` with their counts."""
        path = _path("/api/v1/evaluation-task/{}/{}/runs", space, task_id)
        return self._read("ListEvaluationRuns", "GET", path, {"maxResults": max_results})

    def _read(
        self,
        action: str,
        method: str,
        path: str,
        query: Optional[Mapping[str, Any]] = None,
        body: Optional[Mapping[str, Any]] = None,
        check: Callable[[str, Json], None] = lambda action, answer: None,
    ) -> Json:
        timeout = self._read_timeout if body is None else max(self._read_timeout, _QUERY_TIMEOUT)

        def ask() -> Json:
            answer = self._call(action, method, path, query or {}, body, timeout)
            check(action, answer)
            return answer

        for pause in _READ_PAUSES:
            try:
                return ask()
            except CloudError as error:
                if not error.retryable:
                    raise
                wait = min(max(pause, error.retry_after or 0.0), _LONGEST_PAUSE)
                logger.info("%s Trying again in %.1f s.", error, wait)
            self._sleep(wait)
        return ask()

    def _write(
        self,
        action: str,
        method: str,
        path: str,
        body: Mapping[str, Any],
        client_token: Optional[str],
        timeout: Optional[float] = None,
    ) -> Json:
        query = {"clientToken": client_token}
        return self._call(action, method, path, query, body, timeout or self._read_timeout)

    def _call(
        self,
        action: str,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Optional[Mapping[str, Any]],
        timeout: float,
    ) -> Json:
        from alibabacloud_tea_openapi import utils_models
        from darabonba.runtime import RuntimeOptions

        signer = self._present_signer()
        params = _params(utils_models, action, method, path)
        request = utils_models.OpenApiRequest(
            headers={},
            query={name: str(value) for name, value in query.items() if value is not None},
            body=None if body is None else dict(body),
        )
        runtime = RuntimeOptions(
            connect_timeout=_milliseconds(min(self._connect_timeout, timeout)),
            read_timeout=_milliseconds(timeout),
        )
        try:
            answer = signer.client.call_api(params, request, runtime)
        except Exception as error:
            secrets = (signer.keys.secret, signer.keys.token)
            failure = translate(error, action, secrets)
            clean = mask(str(error), secrets) == str(error)
            raise failure from (error if clean else None)
        return _object(action, answer)

    def _present_signer(self) -> _Signer:
        """The client for the keys of this moment.

        The official client prefers keys to a provider and keeps the first ones it saw, so new
        keys need a new client; it is cheap and shares the process's connections. Two threads
        that build one at the same time do no harm.
        """
        keys = keys_of(self.access.credentials.get_credentials())
        signer = self._signer
        if signer is None or signer.keys != keys:
            signer = self._signer = _Signer(keys, _client(self.access, keys))
        return signer


def _client(access: CloudAccess, keys: Keys) -> Any:
    from alibabacloud_agentloop20260520.client import Client
    from alibabacloud_credentials.client import Client as CredentialClient
    from alibabacloud_tea_openapi.utils_models import Config

    config = Config(
        access_key_id=keys.key_id,
        access_key_secret=keys.secret,
        security_token=keys.token or None,
        credential=CredentialClient(provider=access.credentials),
        region_id=access.region_id,
        protocol=access.agentloop.scheme.upper(),
        endpoint=access.agentloop.netloc,
        http_proxy=_own_proxy(access.agentloop),
        user_agent="agentloop-experiment-sdk/{}".format(__version__),
    )
    return Client(config)


def _own_proxy(endpoint: Endpoint) -> Optional[str]:
    """The client applies HTTP_PROXY to 127.0.0.1 too and ignores NO_PROXY.

    Naming the local server as its own proxy is the one way around it that the client offers.
    """
    proxied = os.environ.get("HTTP_PROXY") or os.environ.get("http_proxy")
    local = endpoint.is_loopback and endpoint.scheme == "http"
    return endpoint.url if proxied and local else None


def _params(utils_models: Any, action: str, method: str, path: str) -> Any:
    return utils_models.Params(
        action=action,
        version=_API_VERSION,
        protocol="HTTPS",
        pathname=path,
        method=method,
        auth_type="AK",
        style="ROA",
        req_body_type="json",
        body_type="json",
    )


def _path(template: str, *segments: str) -> str:
    """Each segment percent-encoded (RFC 3986); one that would change the path is refused."""
    for segment in segments:
        if not isinstance(segment, str) or segment in ("", ".", ".."):
            raise ConfigurationError(
                "The name or id {!r} cannot be part of a request to AgentLoop.".format(segment)
            )
    return template.format(*(quote(segment, safe="~") for segment in segments))


def _milliseconds(seconds: float) -> int:
    # 0 would mean the client's own default
    return max(1, int(seconds * 1000))


def _object(action: str, answer: Mapping[str, Any]) -> Json:
    body = answer.get("body")
    if not isinstance(body, dict):
        raise invalid_answer(action, "a JSON object was expected, got {!r:.200}".format(body))
    return body


def _check_table(action: str, answer: Json) -> None:
    """An answer that is not a table, or was computed from a part of the data, is no answer."""
    request_id = answer.get("requestId")
    columns, rows = answer.get("columns") or [], answer.get("rows") or []
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise invalid_answer(action, "columns and rows are not lists", request_id)
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise invalid_answer(action, "a row does not have one value per column", request_id)
    progress = _meta(answer).get("progress")
    if isinstance(progress, str) and progress.lower() == "incomplete":
        raise CloudError(
            "AgentLoop ExecuteQuery answered before the query was complete (request id {}).".format(
                request_id
            ),
            code="QueryIncomplete",
            request_id=request_id,
            status=200,
            retryable=True,
        )


def _warn_if_cut(answer: Json, dataset: str) -> None:
    truncation = _meta(answer).get("truncation")
    if isinstance(truncation, dict) and truncation.get("truncated") is True:
        logger.warning(
            "AgentLoop cut long values of dataset %s short (request id %s); the agent gets the "
            "shortened values.",
            dataset,
            answer.get("requestId"),
        )


def _meta(answer: Json) -> Json:
    meta = answer.get("meta")
    return meta if isinstance(meta, dict) else {}
