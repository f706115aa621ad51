"""The official clients, unmodified, pointed at a LocalAgentLoop."""

from __future__ import annotations

from typing import Any, Dict

from alibabacloud_agentloop20260520 import models
from alibabacloud_agentloop20260520.client import Client
from alibabacloud_tea_openapi.utils_models import Config
from aliyun.log import LogClient, LogItem, PutLogsRequest

from agentloop_experiment_sdk.local import LocalAgentLoop


def openapi_client(local: LocalAgentLoop, **changes: Any) -> Client:
    ends = local.endpoints
    arguments = {
        "protocol": "http",
        "endpoint": ends.agentloop_endpoint.split("://")[1],
        "access_key_id": ends.access_key_id,
        "access_key_secret": ends.access_key_secret,
        "connect_timeout": 5000,
        "read_timeout": 20000,
    }
    arguments.update(changes)
    return Client(Config(**arguments))


def log_client(local: LocalAgentLoop, version: str = "v4", **changes: Any) -> LogClient:
    ends = local.endpoints
    arguments = {
        "endpoint": ends.sls_endpoint,
        "accessKeyId": ends.access_key_id,
        "accessKey": ends.access_key_secret,
        "source": "test",
        "auth_version": version,
        "region": ends.region_id,
    }
    arguments.update(changes)
    client = LogClient(**arguments)
    client._isRowIp = True  # else the project becomes part of the host name that is looked up
    client.timeout = 20
    return client


def put(client: LogClient, *rows: Any, logstore: str = "experiment_detail", **options: Any) -> Any:
    items = [LogItem(contents=list(row.items())) for row in rows]
    options.setdefault("project", "local-project")
    project = options.pop("project")
    return client.put_logs(PutLogsRequest(project, logstore, "topic", "source", items, **options))


def new_run(local: LocalAgentLoop, **fields: Any) -> str:
    """A record of a new plan; returns its id."""
    plan = local.create_plan(name="plan {}".format(len(local.records())))
    request = models.CreateExperimentRunRequest(
        experiment_plan_id=plan,
        offline_experiments=[models.OfflineExperimentConfig(name="A", label="A")],
        **fields,
    )
    return str(openapi_client(local).create_experiment_run("local", request).body.record_id)


NODES = [{"id": "n", "type": "project", "parameters": {"question": "user_query", "none": "x"}}]


def preview(client: Client, trace: Any = None, **changes: Any) -> Any:
    """The answer to a preview of one trace, or of all."""
    body: Dict[str, Any] = {
        "fromTime": 0,
        "toTime": 4_000_000_000,
        "source": {
            "type": "logstore",
            "logstore": {
                "project": "local-project",
                "logstore": "logstore-tracing",
                "query": '(*) and traceId: "{}"'.format(trace) if trace else "*",
            },
        },
        "pipeline": {"nodes": NODES},
    }
    body.update(changes)
    return client.preview_pipeline("local", models.PreviewPipelineRequest().from_map(body)).body
