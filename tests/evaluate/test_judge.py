"""The LLM judge over real HTTP: what it asks, how it reads verdicts, when it tries again."""

from __future__ import annotations

import json
import socket
from typing import Any, List

import pytest
from chat_server import chat_server, says

from agentloop_experiment_sdk import jsontext
from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.evaluate import evaluate_output, llm_judge
from agentloop_experiment_sdk.models import SolutionOutput, Task

KEY = "sk-very-secret-0123"
RUBRIC = "Is the answer {right}?"
TASK = Task("t", {"q": "2+2"}, "4")
OUTPUT = SolutionOutput.success({"answer": "four", "other": "left out"})


def judge(base_url: str, **options: Any) -> Any:
    settings = dict({"api_key": KEY, "sleep": no_sleep, "jitter": lambda: 1.0}, **options)
    return llm_judge(base_url, "judge-1", RUBRIC, **settings)


def no_sleep(seconds: float) -> None:
    pass


def metric(evaluator: Any, output: Any = OUTPUT, task: Any = TASK) -> Any:
    (result,) = evaluate_output([evaluator], task, output)
    assert KEY not in jsontext.dumps(result)
    return result


def test_the_judge_sees_input_output_and_expected_value_and_scores() -> None:
    reply = says('{"reason": "right", "score": 0.75}', usage={"total_tokens": 9})
    with chat_server(reply) as server:
        result = metric(judge(server.base_url, field="answer", extra_body={"max_tokens": 99}))
    assert (result.name, result.result, result.message) == ("llm_judge", 0.75, "right")
    assert result.metadata == {
        "evaluator": "llm_judge",
        "judge_model": "judge-1",
        "judge_usage": {"total_tokens": 9},
    }
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["Authorization"] == "Bearer " + KEY
    assert request["headers"]["Content-Type"] == "application/json"
    body = request["body"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge-1", 0.0, 99)
    system, user = body["messages"]
    assert RUBRIC in system["content"] and "from 0 to 1" in system["content"]
    assert json.loads(user["content"]) == {"input": {"q": "2+2"}, "output": "four", "expected": "4"}


def test_without_key_temperature_and_ground_truth_none_is_sent() -> None:
    with chat_server(says('{"score": 1}')) as server:
        evaluator = judge(server.base_url + "/", api_key=None, temperature=None)
        result = metric(evaluator, task=Task("t", {"q": 1}))
    assert (result.result, result.message) == (1.0, None)
    assert "judge_usage" not in result.metadata
    (request,) = server.requests
    assert "Authorization" not in request["headers"]
    assert "temperature" not in request["body"]
    assert "expected" not in json.loads(request["body"]["messages"][1]["content"])


def test_endpoints_with_a_query_and_headers_of_their_own_can_be_used() -> None:
    with chat_server(says('{"score": 1}')) as server:
        url = server.base_url + "/deployments/d/chat/completions?api-version=1"
        metric(judge(url, api_key=None, headers={"api-key": KEY}))
    (request,) = server.requests
    assert request["path"] == "/v1/deployments/d/chat/completions?api-version=1"
    assert {name.lower(): value for name, value in request["headers"].items()}["api-key"] == KEY


@pytest.mark.parametrize(
    "content, score",
    [
        ('{"score": 1}', 1.0),
        ('{"score": "0.5", "reason": null}', 0.5),
        ('```json\n{"score": 1, "reason": "r"}\n```', 1.0),
        ('<think>maybe {"score": 0}? {no}</think> {"reason": "x {y}", "score": 1}', 1.0),
        ('{"score": 1} and {"other": 2}', 1.0),
        ([{"type": "text", "text": '{"score"'}, {"text": ": 0.25}"}, "x"], 0.25),
    ],
)
def test_a_verdict_is_found_in_what_models_say(content: Any, score: float) -> None:
    with chat_server(says(content)) as server:
        assert metric(judge(server.base_url)).result == score


@pytest.mark.parametrize(
    "reply, hint",
    [
        (says("It is good."), "no JSON verdict"),
        (says('{"score": 2}'), "not from 0 to 1"),
        (says('{"score": true}'), "not from 0 to 1"),
        (says('{"score": "high"}'), "not from 0 to 1"),
        (says('{"score": NaN}'), "not from 0 to 1"),
        (says(None), "no JSON verdict"),
        (says('{"a": ' * 20_000), "no JSON verdict"),
        ((200, '{"choices": []}'), "no message"),
        ((200, "[]"), "not a JSON object"),
        ((200, b"\xff"), "not a JSON object"),
        ((500, "boom"), "HTTP 500: boom"),
        ((429, "slow down"), "HTTP 429"),
    ],
)
def test_a_try_without_a_verdict_is_repeated_then_the_row_has_no_score(
    reply: Any, hint: str
) -> None:
    pauses: List[float] = []
    with chat_server(reply) as server:
        result = metric(judge(server.base_url, sleep=pauses.append))
    assert result.result is None
    assert "no verdict in 3 tries" in result.message and hint in result.message
    assert (len(server.requests), pauses) == (3, [1.0, 2.0])


def test_a_later_try_can_give_the_verdict_and_the_server_says_when() -> None:
    pauses: List[float] = []

    def busy(handler: Any) -> None:
        handler.answer(503, "busy", Retry_After="7")

    def far(handler: Any) -> None:
        handler.answer(429, "busy", Retry_After="86400")

    def dated(handler: Any) -> None:
        handler.answer(429, "busy", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")

    with chat_server(busy, far, dated, says("hm"), says('{"score": 1}')) as server:
        result = metric(judge(server.base_url, sleep=pauses.append, retries=4))
    assert (result.result, pauses) == (1.0, [7.0, 60.0, 4.0, 8.0])


def test_a_dropped_connection_is_tried_again() -> None:
    def drop(handler: Any) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    with chat_server(drop, says('{"score": 1}')) as server:
        assert metric(judge(server.base_url)).result == 1.0
    with chat_server(drop) as server:
        assert "RemoteDisconnected" in metric(judge(server.base_url, retries=0)).message


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_a_refusal_is_not_repeated_and_quotes_no_key(status: int) -> None:
    with chat_server((status, "Incorrect API key provided: {}".format(KEY))) as server:
        result = metric(judge(server.base_url))
    assert result.result is None and len(server.requests) == 1
    assert "HTTP {}".format(status) in result.message and "***" in result.message
    assert "Check base_url, model and api_key" in result.message


def test_choices_make_a_category() -> None:
    choices = ("Correct", "Partly", "Wrong")
    with chat_server(says('{"score": "good"}'), says('{"score": " partly "}')) as server:
        evaluator = judge(server.base_url, choices=choices)
        result = metric(evaluator)
        assert (result.result, result.metric_type) == ("Partly", "category")
        assert metric(evaluator, SolutionOutput.failure("E", "m")).result == "Wrong"
    assert (
        '"Correct" or "Partly" or "Wrong"' in (server.requests[0]["body"]["messages"][0]["content"])
    )


def test_a_row_without_an_answer_gets_the_lowest_score_unasked() -> None:
    with chat_server(says('{"score": 5}')) as server:
        evaluator = judge(server.base_url, scale=(1, 5), field="answer")
        failed = metric(evaluator, SolutionOutput.failure("TimeoutError", "m"))
        absent = metric(evaluator, SolutionOutput.success({"else": 1}))
        assert metric(evaluator).result == 5.0
    assert (failed.result, failed.message) == (1.0, "The row failed: TimeoutError.")
    assert absent.result == 1.0 and "There is no 'answer'" in absent.message
    assert len(server.requests) == 1


def test_a_key_that_the_model_repeats_is_masked() -> None:
    reply = says(json.dumps({"score": 1, "reason": "the key is " + KEY}))
    with chat_server(reply) as server:
        assert metric(judge(server.base_url)).message == "the key is ***"
        bearer = {"X-Auth": "Token " + KEY}
        assert metric(judge(server.base_url, api_key=None, headers=bearer)).message == (
            "the key is ***"
        )


def test_the_evaluators_repr_shows_no_key() -> None:
    text = repr(judge("https://host/v1", headers={"X-Key": KEY}))
    assert KEY not in text and "https://host/v1/chat/completions" in text


def test_another_way_to_post_can_be_given() -> None:
    def post(url: str, headers: Any, body: bytes, timeout: float) -> Any:
        assert (url, timeout) == ("https://host/v1/chat/completions", 5)
        return 200, {}, says('{"score": 0.5}')[1].encode()

    assert metric(judge("https://host/v1", post=post, timeout=5)).result == 0.5


@pytest.mark.parametrize(
    "options, hint",
    [
        ({"model": " "}, "model must be"),
        ({"rubric": ""}, "rubric must be"),
        ({"base_url": "host/v1"}, "http://"),
        ({"base_url": "https://user:pw@host/v1"}, "as api_key"),
        ({"choices": "yes"}, "list of texts"),
        ({"choices": ["yes", ""]}, "list of texts"),
        ({"choices": ["yes"]}, "two different"),
        ({"choices": ["yes", "YES"]}, "two different"),
        ({"scale": (1, 1)}, "lowest, highest"),
        ({"scale": (1, 2, 3)}, "lowest, highest"),
        ({"scale": (float("nan"), 1)}, "lowest, highest"),
        ({"scale": 5}, "lowest, highest"),
        ({"scale": ("0", "1")}, "lowest, highest"),
        ({"choices": None}, "list of texts"),
        ({"choices": {"yes", "no"}}, "list of texts"),
        ({"choices": b""}, "list of texts"),
        ({"headers": {"X-Key": 5}}, "names to texts"),
        ({"headers": 5}, "headers must be"),
        ({"headers": "X-Key"}, "headers must be"),
        ({"headers": {5: "x"}}, "headers must be"),
        ({"headers": {"X Key": "x"}}, "headers must be"),
        ({"headers": {"X-Key": "a\r\nb"}}, "line breaks"),
        ({"extra_body": "x"}, "extra_body must be"),
        ({"extra_body": 5}, "extra_body must be"),
        ({"extra_body": {5: 1}}, "extra_body must be"),
        ({"temperature": object()}, "temperature must be"),
        ({"temperature": "0"}, "temperature must be"),
        ({"temperature": True}, "temperature must be"),
        ({"temperature": -1}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"name": ""}, "name must be"),
        ({"name": None}, "name must be"),
        ({"post": 0}, "post must be"),
        ({"sleep": None}, "sleep must be"),
        ({"jitter": 0.5}, "jitter must be"),
        ({"base_url": None}, "base_url"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": "5"}, "above 0"),
        ({"retries": -1}, "whole number"),
        ({"retries": True}, "whole number"),
        ({"retries": 1.5}, "whole number"),
        ({"api_key": "a\nb"}, "line break"),
        ({"api_key": 5}, "api_key must be"),
        ({"api_key": ""}, "api_key must be"),
        ({"api_key": b"key"}, "api_key must be"),
        ({"api_key": "\u94a5"}, "api_key must be"),
        ({"field": ""}, "A path such as"),
    ],
)
def test_unusable_arguments_are_refused_when_the_judge_is_built(options: Any, hint: str) -> None:
    settings = dict({"base_url": "https://host/v1", "model": "m", "rubric": "r"}, **options)
    with pytest.raises(ConfigurationError, match=hint):
        llm_judge(**settings)


@pytest.mark.parametrize(
    "options",
    [{"api_key": KEY + "\n"}, {"headers": {"X-Key": KEY + "\n"}}, {"extra_body": [KEY]}],
)
def test_a_refused_key_is_not_quoted(options: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        judge("https://host/v1", **options)
    assert KEY not in str(caught.value)
