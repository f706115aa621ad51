"""Writing rows to an SLS logstore and reading them back, through the official client.

The official client retries inside a call, up to ten times and invisibly, which doubles rows whose
answer was lost. Here one call is one send; whoever calls decides about trying again from the
``retryable``, ``ambiguous`` and ``retry_after`` of the error.
"""

from __future__ import annotations

import inspect
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..errors import CloudError
from ..lines import excerpt
from .access import CloudAccess, Keys, keys_of
from .limits import Contents

DETAIL_LOGSTORE = "experiment_detail"
SOURCE = "agentloop-experiment-sdk"

# connect, read: seconds. The client's own 120 s would hold a batch for two minutes.
_TIMEOUT = (5, 30)

# Alibaba's Java producer names the retriable codes (errors/RetriableErrors.java); authentication
# is left out here: a wrong key does not become right by asking again.
_RETRYABLE_CODES = frozenset(
    {
        "WriteQuotaExceed",
        "ShardWriteQuotaExceed",
        "ShardReadQuotaExceed",
        "ReadQuotaExceed",
        "ExceedQuota",
        "InternalServerError",
        "RequestTimeout",
        "ServerBusy",
        "ServiceUnavailable",
        "Throttling",
    }
)
_LONGEST_DETAIL = 500
_NETWORK_CODE = "LogRequestError"
_NOTHING_SENT = ("Failed to establish", "NewConnectionError", "ConnectTimeout", "NameResolution")

_REMEDIES = (
    ("Unauthorized", "Check the access key and that it may write to this SLS project."),
    ("SignatureNotMatch", "Check the access key secret."),
    ("SecurityToken", "The STS token is invalid or has expired; get a new one."),
    ("ProjectNotExist", "Check the SLS project of the AgentSpace and the region."),
    ("ProjectForbidden", "Check the permissions of the access key on this SLS project."),
    ("LogStoreNotExist", "Create the logstore {logstore}, or check the AgentSpace."),
    ("RequestTimeExpired", "The clock of this machine is off by more than 15 minutes; set it."),
)


class SlsLogstore:
    """One logstore of one project. Thread-safe; the client is made at the first call.

    Args:
        access: Region, endpoint and credentials.
        project: The SLS project.
        logstore: The logstore, by default ``experiment_detail``.
    """

    def __init__(self, access: CloudAccess, project: str, logstore: str = DETAIL_LOGSTORE) -> None:
        self._access = access
        self._project = project
        self._logstore = logstore
        self._lock = threading.Lock()
        self._client: Any = None
        self._keys: Optional[Keys] = None

    def put(self, rows: Sequence[Contents], time_s: Optional[int] = None) -> None:
        """Write ``rows`` with exactly one PutLogs request.

        Args:
            rows: Keys and values of each row; both text.
            time_s: The log time, seconds since the epoch; now by default.

        Raises:
            CloudError: SLS refused the rows or its answer did not arrive.
        """
        from aliyun.log import LogItem, PutLogsRequest

        stamp = int(time.time()) if time_s is None else time_s
        items: List[Any] = []
        for contents in rows:
            item: Any = LogItem(timestamp=stamp)
            # assigned past the constructor and the setter, which copy every value
            item.contents = contents
            items.append(item)
        request = PutLogsRequest(self._project, self._logstore, "", SOURCE, items)
        self._call(lambda client: client.put_logs(request))

    def exists(self) -> None:
        """Read the logstore's settings.

        Raises:
            CloudError: The project or logstore does not exist, or may not be read.
        """
        self._call(lambda client: client.get_logstore(self._project, self._logstore))

    def read(
        self, query: str, from_s: int, to_s: int, *, offset: int = 0, size: int = 100
    ) -> Tuple[List[Dict[str, str]], bool]:
        """The logs that match, and whether the answer is complete.

        Args:
            query: An SLS query.
            from_s: First second of the time range.
            to_s: The second after the range.
            offset: How many matches to pass over.
            size: At most this many logs.

        Raises:
            CloudError: SLS refused the query or its answer did not arrive.
        """
        answer = self._call(
            lambda client: client.get_log(
                self._project,
                self._logstore,
                from_s,
                to_s,
                query=query,
                offset=offset,
                size=size,
            )
        )
        return [dict(log.contents) for log in answer.get_logs()], bool(answer.is_completed())

    def _call(self, action: Callable[[Any], Any]) -> Any:
        from aliyun.log import LogException

        client = self._current_client()
        try:
            return action(client)
        except _Failed as failure:
            error = failure.error
        except LogException as raised:
            error = raised
        if isinstance(error, LogException):
            raise self._translated(error) from error
        raise self._unreadable(repr(error)) from error

    def _current_client(self) -> Any:
        """The client of the present keys; rotated keys make a new one."""
        keys = keys_of(self._access.credentials.get_credentials())
        with self._lock:
            if self._keys == keys:
                return self._client
        client = _new_client(self._access, keys)
        with self._lock:
            self._client, self._keys = client, keys
        return client

    def _translated(self, error: Any) -> CloudError:
        code = str(error.get_error_code() or "")
        detail = excerpt(str(error.get_error_message() or ""), _LONGEST_DETAIL)
        if code == _NETWORK_CODE and "Request is failed" not in detail:
            return self._unreachable(detail)
        status = int(error.get_resp_status() or 0)
        if status == 200:  # a page of a proxy, say
            return self._unreadable(detail)
        message = "SLS refused a request to {}/{} with HTTP {} {}: {}.{}".format(
            self._project,
            self._logstore,
            status,
            code,
            detail.rstrip("."),
            self._remedy(code),
        )
        return CloudError(
            message,
            code=code,
            request_id=str(error.get_request_id() or "") or None,
            status=status,
            retryable=status >= 500 or status in (408, 429) or code in _RETRYABLE_CODES,
            retry_after=_retry_after(getattr(error, "resp_header", None)),
        )

    def _unreachable(self, detail: str) -> CloudError:
        return CloudError(
            "SLS could not be reached for {}/{}: {}. Check the network and sls_endpoint.".format(
                self._project, self._logstore, detail.rstrip(".")
            ),
            code="SlsUnreachable",
            retryable=True,
            ambiguous=not any(mark in detail for mark in _NOTHING_SENT),
        )

    def _unreadable(self, detail: str) -> CloudError:
        return CloudError(
            "A request to {}/{} got an answer that is not one of SLS: {}. Check sls_endpoint and "
            "proxies.".format(self._project, self._logstore, detail.rstrip(".")),
            code="BadResponse",
            retryable=True,
            ambiguous=True,
        )

    def _remedy(self, code: str) -> str:
        for mark, remedy in _REMEDIES:
            if mark.lower() in code.lower():
                return " " + remedy.format(logstore=self._logstore)
        return ""


class _Failed(Exception):
    """Carries a failure past the official client's retry loop."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _single_send_client() -> Any:
    """``LogClient`` whose retry loop sees no error that it would send again for."""
    from aliyun.log import LogClient

    official: Any = LogClient

    class SingleSendClient(official):  # type: ignore[misc]
        def _sendRequest(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super()._sendRequest(*args, **kwargs)
            except Exception as error:  # old clients stumble over an empty answer
                raise _Failed(error) from error

    return SingleSendClient


def _new_client(access: CloudAccess, keys: Keys) -> Any:
    client_type = _single_send_client()
    endpoint = access.sls
    options: Dict[str, Any] = {
        "securityToken": keys.token or None,
        # without a source the client looks the host up in DNS, at worst on every write
        "source": SOURCE,
        # signature version 1 changes the locale of the whole process
        "auth_version": "v4",
        "region": access.region_id,
    }
    if "credentials_provider" in inspect.signature(client_type.__init__).parameters:
        options["credentials_provider"] = access.credentials
    client = client_type(endpoint.url, keys.key_id, keys.secret, **options)
    client.timeout = _TIMEOUT
    if endpoint.is_loopback:
        _reach_directly(client)
    return client


def _reach_directly(client: Any) -> None:
    """A loopback server has one name and no proxy; the client has no public switch for either."""
    client._isRowIp = True
    session = getattr(client, "_session", None)
    if session is not None:
        session.trust_env = False


def _retry_after(headers: Any) -> Optional[float]:
    for name, value in dict(headers or {}).items():
        if str(name).lower() == "retry-after":
            try:
                return max(0.0, float(value))
            except (TypeError, ValueError):
                return None
    return None
