"""Conversations as whole experiments: real program, real server, one detail row per dataset row."""

import json
import os
import sys

import pytest
from raw_http import RawServer

import agentloop_experiment_sdk as sdk

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "session_agent.py")
ROWS = [
    {"id": "a", "turns": ["remember blue", "remember green", "recall"]},
    {"id": "b", "turns": json.dumps([{"role": "user", "content": "remember red"}, "recall"])},
    {"id": "c", "turns": ["remember pink", "fail", "recall"]},
    {"id": "d", "turns": []},
]


@pytest.fixture
def platform():
    with sdk.LocalAgentLoop() as local:
        plan_id = local.create_plan(dataset=local.load_dataset(ROWS))
        yield local, sdk.local_config(local, plan_id)


def by_item(local, record_id):
    rows = local.rows(record_id)
    assert len(rows) == len(ROWS)
    return {json.loads(row["data_config"])["dataset_item_id"]: row for row in rows}


def test_a_command_line_agent_keeps_its_sessions_over_a_whole_experiment(platform, tmp_path):
    local, config = platform
    sessions = tmp_path / "sessions"
    sessions.mkdir()

    def command(message, session_id, turn_index, task):
        named = ["--resume" if turn_index else "--session-id", session_id]
        program = [sys.executable, "-S", PROGRAM, "--sessions", str(sessions)]
        return program + named + [message]

    record_id = sdk.run_multi_turn_agent_experiment(
        config, command, result_dir=str(tmp_path / "results"), on_missing_turns="skip"
    )
    rows = by_item(local, record_id)
    output = json.loads(rows["a"]["experiment_output"])
    assert output["final_reply"] == "blue, green" and output["turns_total"] == 3
    assert rows["a"]["session_id"] == output["session_id"]
    assert (sessions / (output["session_id"] + ".json")).exists()
    assert json.loads(rows["b"]["experiment_output"])["final_reply"] == "red"
    assert [rows[item]["status"] for item in "abcd"] == ["success", "success", "failed", "success"]
    assert rows["c"]["experiment_output"].startswith("ERROR: CommandFailed - turn 2 of 3: exit")
    assert json.loads(rows["d"]["experiment_output"])["skipped"] is True
    assert local.record(record_id)["status"] == "completed"


def test_an_http_agent_keeps_its_sessions_over_a_parallel_experiment(platform, tmp_path):
    local, config = platform
    said = {}

    def agent(request, reply):
        body = json.loads(request.body)
        said.setdefault(body["session_id"], []).append(body["message"])
        if body["message"] == "fail":
            reply.whole("out of reach", "text/plain", status="503 Service Unavailable")
        else:
            count = len(said[body["session_id"]])
            reply.whole(json.dumps({"reply": str(count), "usage": {"input_tokens": count}}))

    with RawServer(agent) as server:
        record_id = sdk.run_multi_turn_experiment(
            config, server.url(), result_dir=str(tmp_path / "results"), transport_retries=0
        )
    rows = by_item(local, record_id)
    output = json.loads(rows["a"]["experiment_output"])
    assert said[output["session_id"]] == ROWS[0]["turns"]
    assert output["usage_total"]["input_tokens"] == 6
    first = server.requests[0].get("traceparent").split("-")[1]
    assert first in {row.get("traceId") for row in rows.values()}
    assert rows["c"]["status"] == "failed" and "503" in rows["c"]["experiment_output"]
    assert len(said) == 3 and json.loads(rows["d"]["experiment_output"])["skipped"] is True
