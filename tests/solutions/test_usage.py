from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest

from agentloop_experiment_sdk.solutions.usage import UsageExtractor, UsageMeter


def usage_of(answer: Any, extractor: Optional[UsageExtractor] = None) -> Any:
    meter = UsageMeter(extractor)
    meter.add(answer)
    return meter.usage


def counts(given: int, made: int, total: int, **more: Any) -> Dict[str, Any]:
    return {"input_tokens": given, "output_tokens": made, "total_tokens": total, **more}


@pytest.mark.parametrize(
    "answer, usage",
    [
        (
            {"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
            counts(3, 4, 7, model="m"),
        ),
        (
            {"usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}, "output": {}},
            counts(3, 4, 7),
        ),
        (
            {
                "type": "message",
                "model": "claude",
                "usage": {
                    "input_tokens": 3,
                    "cache_read_input_tokens": 10,
                    "cache_creation_input_tokens": 2,
                    "output_tokens": 4,
                },
            },
            counts(15, 4, 19, model="claude"),
        ),
        (
            {
                "event": "message_end",
                "metadata": {"usage": {"prompt_tokens": 1, "total_tokens": 9}},
            },
            counts(1, 0, 9),
        ),
        (
            {"usage": {"token_count": 7, "output_count": 4, "input_count": 3}},
            counts(3, 4, 7),
        ),
        ({"data": {"usage": {"prompt_tokens": 3.0}}}, counts(3, 0, 3)),
        ({"usage": None}, None),
        ({"usage": {"prompt_tokens": "3", "completion_tokens": True, "total_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": 1.5, "total_tokens": float("nan")}}, None),
        ({"answer": "x"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_the_usage_of_an_answer_is_found(answer: Any, usage: Any) -> None:
    assert usage_of(answer) == usage


def streamed(events: List[Any]) -> Any:
    meter = UsageMeter()
    for event in events:
        meter.add(event)
    return meter.usage


def test_openai_reports_it_in_the_last_chunk() -> None:
    chunks = [
        {"model": "gpt", "choices": [{"delta": {"content": "a"}}], "usage": None},
        {"model": "gpt", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    ]
    assert streamed(chunks) == counts(5, 2, 7, model="gpt")


def test_openai_responses_report_it_in_the_completed_response() -> None:
    done = {"model": "gpt", "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}}
    events = [
        {"type": "response.created", "response": {"model": "gpt", "usage": None}},
        {"type": "response.completed", "response": done},
    ]
    assert streamed(events) == counts(5, 2, 7, model="gpt")


def test_anthropic_reports_it_in_two_events() -> None:
    start = {"model": "claude", "usage": {"input_tokens": 25, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": start},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 15}},
    ]
    assert streamed(events) == counts(25, 15, 40, model="claude")


def test_dashscope_reports_running_sums() -> None:
    events = [
        {
            "output": {"text": "a"},
            "usage": {"total_tokens": 6, "input_tokens": 5, "output_tokens": 1},
        },
        {
            "output": {"text": "b"},
            "usage": {"total_tokens": 8, "input_tokens": 5, "output_tokens": 3},
        },
    ]
    assert streamed(events) == counts(5, 3, 8)


def test_a_users_extractor_replaces_the_known_shapes() -> None:
    answer = {"usage": {"prompt_tokens": 1}, "cost": {"in": 10, "out": 5}}

    def extract(value: Any) -> Any:
        return {"input_tokens": value["cost"]["in"], "output_tokens": 5, "model": "own"}

    assert usage_of(answer, extract) == counts(10, 5, 15, model="own")
    assert usage_of(answer, lambda value: None) is None


def test_an_extractor_that_fails_costs_the_count_not_the_row() -> None:
    meter = UsageMeter(lambda value: value["missing"])
    meter.add({})
    assert meter.usage is None
    assert meter.error == "KeyError: 'missing'"
