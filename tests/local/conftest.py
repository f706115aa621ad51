"""A LocalAgentLoop and the two official clients for every test of this room."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest
from alibabacloud_agentloop20260520.client import Client
from aliyun.log import LogClient
from official_clients import log_client, openapi_client

from agentloop_experiment_sdk.local import LocalAgentLoop


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as running:
        yield running


@pytest.fixture
def client(local: LocalAgentLoop) -> Client:
    return openapi_client(local)


@pytest.fixture
def logs(local: LocalAgentLoop) -> LogClient:
    return log_client(local)


@pytest.fixture
def code_of() -> Callable[..., Any]:
    """(status, code) of the cloud error that a call ends in."""

    def run(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with pytest.raises(Exception) as caught:
            call(*args, **kwargs)
        error = caught.value
        if hasattr(error, "get_error_code"):
            return error.get_resp_status(), error.get_error_code()
        assert getattr(error, "request_id", None), repr(error)
        return error.status_code, error.code

    return run
