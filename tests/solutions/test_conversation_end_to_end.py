"""Conversations as whole experiments: real program, real server, one detail row per dataset row."""

import json
import os
import sys

import pytest
from raw_http import RawServer

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk.cli import main
from agentloop_experiment_sdk.report.text import render_text

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


def test_a_column_for_turns_that_no_row_has_is_refused_before_anything_is_made(platform, tmp_path):
    local, config = platform
    url, results = "http://127.0.0.1:1/chat", tmp_path / "results"
    with pytest.raises(sdk.ConfigurationError) as caught:
        sdk.run_multi_turn_experiment(config, url, result_dir=results, turns_field="tunrs")
    assert "'tunrs' (turns_field)" in str(caught.value) and "id, turns" in str(caught.value)
    assert not results.exists() and not local.records()
    solution = sdk.multi_turn_http_solution_with(url, turns_field="tunrs")
    assert not sdk.Experiment(config, solution, results).check()


def test_one_of_the_columns_for_turns_is_enough(platform, tmp_path):
    local, config = platform
    solution = sdk.multi_turn_http_solution(
        lambda message, session_id, turn_index, task: "yes",
        turns_field="other",
        turns_fallback_fields=["turns"],
    )
    counts = sdk.Experiment(config, solution, tmp_path / "results").run().counts
    assert (counts.succeeded, counts.skipped) == (3, 1)


def test_a_run_that_only_skips_says_so_and_why(platform, tmp_path, caplog):
    _, config = platform
    solution = sdk.multi_turn_http_solution(
        lambda message, session_id, turn_index, task: "yes", turn_extractor=lambda task: []
    )
    result = sdk.Experiment(config, solution, tmp_path / "results").run()
    (line,) = [r.getMessage() for r in caplog.records if "Every row was skipped" in r.getMessage()]
    assert "(4)" in line and "turn_extractor returned no turns for this row" in line
    assert "resume=False" in line
    assert "4 skipped" in repr(result)
    text = render_text(result, width=100)
    assert "0 succeeded, 4 skipped" in text and "Skipped rows" in text
    assert "turn_extractor returned no turns for this row" in text
    caplog.clear()
    some = sdk.multi_turn_http_solution(lambda message, session_id, turn_index, task: "yes")
    sdk.Experiment(config, some, tmp_path / "others").run()
    assert "Every row was skipped" not in caplog.text


def test_skipped_rows_are_listed_with_their_reason(platform, tmp_path, capsys):
    _, config = platform
    solution = sdk.multi_turn_http_solution(lambda message, session_id, turn_index, task: "yes")
    sdk.Experiment(config, solution, tmp_path / "results").run()
    assert main(["show", str(tmp_path / "results"), "--failures"]) == 0
    listed = capsys.readouterr().out.split("\nitem ")[1:]
    assert len(listed) == 1 and "skipped" in listed[0]
    assert "the row has no turns in the columns it was asked for (turns)" in listed[0]
    main(["report", str(tmp_path / "results"), "--junit", str(tmp_path / "junit.xml")])
    assert '<skipped message="the row has no turns' in (tmp_path / "junit.xml").read_text("utf-8")


def test_a_conversation_in_the_place_of_a_url_or_a_command_is_told_where_it_belongs(platform):
    _, config = platform
    made = sdk.multi_turn_http_solution(lambda message, session_id, turn_index, task: "yes")
    with pytest.raises(sdk.ConfigurationError, match="pass it to run_experiment_parallel"):
        sdk.run_multi_turn_experiment(config, made)
    with pytest.raises(sdk.ConfigurationError, match="pass it to run_experiment"):
        sdk.run_multi_turn_agent_experiment(config, made)
