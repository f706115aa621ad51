"""Whatever a body holds, an operation answers it or refuses it; nothing else gets out."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from agentloop_experiment_sdk.local import openapi
from agentloop_experiment_sdk.local.datasets import Datasets
from agentloop_experiment_sdk.local.exchange import Request, ServiceError
from agentloop_experiment_sdk.local.faults import Faults
from agentloop_experiment_sdk.local.platform import Platform, Settings
from agentloop_experiment_sdk.local.spaces import add_space
from agentloop_experiment_sdk.local.store import Store

SOURCE = {"type": "logstore", "logstore": {"logstore": "logstore-tracing"}}
USUAL = {
    "agentSpace": "s",
    "datasetName": "d",
    "schema": {"a": {"type": "text"}},
    "dataArray": [{"a": 1}],
    "type": "SQL",
    "query": "SELECT * FROM d",
    "offset": 0,
    "length": 5,
    "planName": "p",
    "experimentType": "OFFLINE",
    "experimentPlanId": "p",
    "offlineExperiments": [{"name": "e"}],
    "status": "running",
    "totalTasks": 3,
    "pipelineName": "pipe",
    "source": SOURCE,
    "pipeline": {"nodes": [{"type": "project", "parameters": {"a": "b"}}]},
    "fromTime": 1,
    "toTime": 2,
}
ODD = [None, 0, -1, 2**70, 1.5, True, "", "\ud800", "a/b", [], [1], [{}], [{"": 1}], {}, {"a": []}]
ODD += [{"type": "logstore", "logstore": {"logstore": value}} for value in ODD]
ODD += [dict(SOURCE, logstore=dict(SOURCE["logstore"], project=value)) for value in ODD[:15]]


@pytest.fixture(scope="module")
def platform():
    store = Store()
    datasets = Datasets(store)
    made = Platform(Settings("s", "project", "region", "ak", "sk"), store, datasets, Faults())
    add_space(made, "s", "project")
    yield made
    datasets.close()
    store.close()


WITH_BODY = [one for one in openapi.OPERATIONS.values() if one.method in ("POST", "PUT")]


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.action)
def test_an_operation_answers_or_refuses_any_body(platform, operation):
    path = re.sub(r"\{(\w)\w*\}", r"\1", operation.path.replace("{agentSpace}", "s"))
    headers = {"x-acs-version": openapi.VERSION, "host": "localhost"}
    for name in USUAL:
        for value in ODD:
            body = json.dumps(dict(USUAL, **{name: value})).encode("ascii")
            request = Request(operation.method, path, headers, body)
            request.action = operation.action
            with contextlib.suppress(ServiceError):
                openapi.answer(platform, request)
