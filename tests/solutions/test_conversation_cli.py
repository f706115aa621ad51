"""Conversations with a command line agent that keeps its session between runs."""

import json
import os
import sys
import uuid

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.solutions.command_turns import parse_stdout
from agentloop_experiment_sdk.solutions.conversation import multi_turn_cli_solution

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "session_agent.py")
ID = "0af7651916cd43dd8448eb211c80319c"


def task(*turns):
    return Task("t-1", {"turns": list(turns)}, metadata={"record_id": "r", "dataset_item_id": 3})


@pytest.fixture
def agent(tmp_path):
    """Builds the agent's command line: a session is begun in the first turn, resumed later."""

    def build(*flags):
        def command(message, session_id, turn_index, task):
            named = ["--resume" if turn_index else "--session-id", session_id]
            return [sys.executable, "-S", PROGRAM, "--sessions", str(tmp_path)] + (
                list(flags) + named + [message]
            )

        return command

    return build


def stored(tmp_path):
    return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]


@pytest.mark.parametrize("form", ["json", "lines"])
def test_the_agent_remembers_over_the_turns_of_a_row(agent, tmp_path, form):
    solution = multi_turn_cli_solution(agent("--format", form))
    output = solution(task("remember blue", "remember green", "recall"))
    assert output.success is True
    assert output.output["final_reply"] == "blue, green"
    session = stored(tmp_path)[0]
    assert session["id"] == output.output["session_id"] == output.meta["session_id"]
    assert uuid.UUID(session["id"]).version == 4
    assert session["prompts"] == ["remember blue", "remember green", "recall"]
    assert output.output["turns_total"] == len(output.output["turns"]) == 3
    raw = output.output["turns"][0]
    assert (raw if form == "json" else raw[-1])["result"] == "I keep 1 words"
    assert output.output["usage_total"] == {
        "input_tokens": 60,
        "output_tokens": 9,
        "total_tokens": 69,
    }
    assert output.meta["experiment_input"] == {
        "turns": ["remember blue", "remember green", "recall"]
    }
    assert output.meta["turns"][0]["command"]["argv"][-1] == "remember blue"


def test_plain_text_is_the_reply_and_each_row_has_its_own_session(agent, tmp_path):
    solution = multi_turn_cli_solution(agent("--format", "text"))
    outputs = [solution(task("remember " + word, "recall")) for word in ("one", "two")]
    assert [output.output["final_reply"] for output in outputs] == ["one", "two"]
    assert outputs[0].output["turns"] == ["I keep 1 words\n", "one\n"]
    assert len(stored(tmp_path)) == 2


def test_the_session_that_the_agent_took_is_resumed(agent, tmp_path):
    solution = multi_turn_cli_solution(agent("--own-session"), session_id="ours")
    output = solution(task("remember blue", "recall"))
    assert output.success and output.output["final_reply"] == "blue"
    assert output.output["requested_session_id"] == "ours"
    assert output.output["session_id"] == stored(tmp_path)[0]["id"] != "ours"


def test_a_failing_turn_fails_the_row_and_keeps_the_turns_so_far(agent):
    output = multi_turn_cli_solution(agent())(task("remember blue", "fail", "recall"))
    assert output.success is False
    assert output.meta["error_type"] == "CommandFailed"
    message = output.meta["error_message"]
    assert message == "turn 2 of 3: exit code 1: the model is out of reach"
    assert len(output.output["turns"]) == 1 and len(output.meta["turns"]) == 2
    assert output.output["failed_turn"]["raw"] == {
        "stdout": "so far\n",
        "stderr": "the model is out of reach\n",
        "returncode": 1,
    }


def test_a_turn_that_takes_too_long_is_ended(agent):
    command = agent()

    def build(message, session_id, turn_index, task):
        argv = command(message, session_id, turn_index, task)
        return {"argv": argv, "timeout": 2 if message == "hang" else None}

    output = multi_turn_cli_solution(build)(task("hi", "hang"))
    assert output.meta["error_type"] == "CommandTimeout"
    assert output.output["failed_turn"]["raw"]["stdout"] == "thinking\n"
    assert [turn["command"]["timeout"] for turn in output.meta["turns"]] == [1800.0, 2]


def test_an_agent_that_reports_an_error_in_its_json_fails_the_turn(agent):
    output = multi_turn_cli_solution(agent())(task("refuse"))
    assert output.success is False and output.meta["error_type"] == "AgentError"
    assert output.meta["error_message"] == "turn 1 of 1: I will not"
    assert output.output["usage_total"]["total_tokens"] == 13


def test_a_builder_can_give_input_environment_and_parser_of_a_turn(agent, tmp_path):
    command = agent("--format", "text")

    def build(message, session_id, turn_index, task):
        argv = command(message, session_id, turn_index, task)
        return {
            "argv": argv[:-1] + ["-"],
            "stdin": message,
            "env": {"TRACEPARENT": "00-{}-{}-01".format(ID, "b" * 16)},
            "parser": lambda stdout: {"reply": stdout.strip()[::-1], "raw": [turn_index]},
        }

    solution = multi_turn_cli_solution(build, output_parser=lambda stdout: "unused", trace=True)
    output = solution(task("remember blue", "hi"))
    assert output.output["final_reply"] == "ih dias uoy"
    assert output.output["turns"] == [[0], [1]]
    assert stored(tmp_path)[0]["prompts"] == ["remember blue", "hi"]
    assert output.meta["traceId"] == ID


def test_an_output_parser_reads_the_turn_and_may_fail_it(agent):
    def parser(stdout):
        answer = json.loads(stdout)
        return {"reply": answer["result"], "usage": answer["usage"], "trace_id": ID}

    output = multi_turn_cli_solution(agent(), output_parser=parser)(task("hi"))
    assert output.output["turns"] == ["you said hi"] and output.meta["traceId"] == ID

    broken = multi_turn_cli_solution(agent("--format", "text"), output_parser=parser)(task("hi"))
    assert broken.meta["error_type"] == "JSONDecodeError"
    assert broken.output["failed_turn"]["raw"]["stdout"] == "you said hi\n"


def test_a_trace_is_recorded_only_if_something_confirms_it(agent, tmp_path):
    assert "traceId" not in multi_turn_cli_solution(agent())(task("hi")).meta
    traced = multi_turn_cli_solution(agent(), trace=True, session_id="traced")
    output = traced(task("hi", "ho"))
    kept = json.loads((tmp_path / "traced.json").read_text())
    assert output.meta["trace_ids"] == [trace.split("-")[1] for trace in kept["traces"]]
    assert output.meta["traceId"] == output.meta["trace_ids"][0]
    seen = []

    def resolver(session_id, turn_index, raw):
        seen.append((session_id, turn_index, raw["result"]))
        return ID if turn_index == 0 else None

    resolved = multi_turn_cli_solution(agent(), session_id="s1", trace_id_resolver=resolver)
    meta = resolved(task("hi", "ho")).meta
    assert meta["traceId"] == ID and meta["trace_ids"] == [ID, None]
    assert seen == [("s1", 0, "you said hi"), ("s1", 1, "you said ho")]


def test_a_row_without_turns_fails_unless_it_is_to_be_skipped(agent):
    failed = multi_turn_cli_solution(agent())(Task("t", {"q": "x"}))
    assert failed.success is False and failed.meta["error_type"] == "MissingTurns"
    skipped = multi_turn_cli_solution(agent(), on_missing_turns="skip")(Task("t", {"q": "x"}))
    assert skipped.meta["skipped"] is True


def test_other_settings_reach_every_command(tmp_path):
    def build(message, session_id, turn_index, task):
        return ["sh", "-c", "pwd; echo $WORD; cat"]

    solution = multi_turn_cli_solution(build, cwd=tmp_path, env={"WORD": "w"})
    assert solution(task("hi")).output["turns"] == ["{}\nw\n".format(tmp_path.resolve())]
    bounded = multi_turn_cli_solution(build, max_output_bytes=3)
    assert bounded(task("hi")).meta["error_type"] == "CommandOutputTooLarge"


@pytest.mark.parametrize(
    ("built", "says"),
    [("one string", "list of arguments"), ({"argv": ["x"], "shell": 1}, "shell; known are")],
)
def test_a_builder_that_returns_something_else_fails_its_row(built, says):
    output = multi_turn_cli_solution(lambda *args: built)(task("hi"))
    assert output.meta["error_type"] == "ConfigurationError"
    assert says in output.meta["error_message"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: multi_turn_cli_solution(["agent"]),
        lambda: multi_turn_cli_solution(print, per_turn_timeout=0),
        lambda: multi_turn_cli_solution(print, session_id_factory="uuid"),
        lambda: multi_turn_cli_solution(print, on_missing_turns=None),
        lambda: multi_turn_cli_solution(print, env="A=1"),
    ],
)
def test_unusable_arguments_are_refused_when_the_solution_is_made(make):
    with pytest.raises(ConfigurationError):
        make()


def test_the_output_of_known_agents_is_understood():
    events = [
        {"type": "thread.started", "thread_id": "th-1"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
        {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 1}},
    ]
    turn = parse_stdout("\n".join(map(json.dumps, events)))
    assert (turn.reply, turn.session_id) == ("done", "th-1")
    assert turn.usage["total_tokens"] == 6 and turn.raw == events
    listed = parse_stdout(json.dumps(events))
    assert (listed.reply, listed.session_id, listed.raw) == ("done", "th-1", events)
    assert parse_stdout('{"score": 1}\n').reply == '{"score": 1}'
    assert parse_stdout('{"trace_id": "%s"}' % ID).trace_id == ID
