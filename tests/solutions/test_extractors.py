from __future__ import annotations

from typing import Any, Callable

import pytest

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk.cli.solutions import _EXTRACTORS as CLI_NAMES
from agentloop_experiment_sdk.solutions import extractors


@pytest.mark.parametrize(
    "extractor, data, text",
    [
        (
            extractors.openai_chat_extractor,
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
            "Hi",
        ),
        (
            extractors.openai_chat_extractor,
            {"choices": [{"index": 1, "delta": {"content": "no"}}, {"delta": {"content": "yes"}}]},
            "yes",
        ),
        (
            extractors.openai_chat_extractor,
            {"choices": [{"delta": {"content": [{"type": "text", "text": "part"}, {"x": 1}]}}]},
            "part",
        ),
        (extractors.openai_chat_extractor, {"choices": [], "usage": {"total_tokens": 3}}, None),
        (extractors.openai_chat_extractor, {"choices": [{"delta": {"content": None}}]}, None),
        (extractors.openai_chat_extractor, {"choices": [{"delta": {"tool_calls": []}}]}, None),
        (extractors.openai_completions_extractor, {"choices": [{"index": 0, "text": " a"}]}, " a"),
        (extractors.openai_completions_extractor, {"choices": [{"text": ""}]}, None),
        (
            extractors.openai_responses_extractor,
            {"type": "response.output_text.delta", "delta": "Hi", "item_id": "m"},
            "Hi",
        ),
        (
            extractors.openai_responses_extractor,
            {"type": "response.refusal.delta", "delta": "No"},
            "No",
        ),
        (
            extractors.openai_responses_extractor,
            {"type": "response.function_call_arguments.delta", "delta": "{"},
            None,
        ),
        (
            extractors.openai_responses_extractor,
            {"type": "response.completed", "response": {"output": []}},
            None,
        ),
        (
            extractors.anthropic_extractor,
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
            "Hi",
        ),
        (
            extractors.anthropic_extractor,
            {"type": "content_block_delta", "delta": {"type": "input_json_delta"}},
            None,
        ),
        (extractors.anthropic_extractor, {"type": "ping"}, None),
        (extractors.dashscope_extractor, {"output": {"text": "Hi", "finish_reason": "null"}}, "Hi"),
        (
            extractors.dashscope_extractor,
            {"output": {"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}},
            "Hi",
        ),
        (
            extractors.dashscope_extractor,
            {"output": {"choices": [{"message": {"content": [{"text": "a"}, {"text": "b"}]}}]}},
            "ab",
        ),
        (extractors.dify_extractor, {"event": "message", "answer": "Hi"}, "Hi"),
        (extractors.dify_extractor, {"event": "agent_message", "answer": "Hi"}, "Hi"),
        (extractors.dify_extractor, {"event": "text_chunk", "data": {"text": "Hi"}}, "Hi"),
        (extractors.dify_extractor, {"event": "message_end", "answer": "x"}, None),
        (extractors.coze_extractor, {"type": "answer", "content": "Hi"}, "Hi"),
        (extractors.coze_extractor, {"type": "follow_up", "content": "x"}, None),
    ],
)
def test_each_stream_gives_its_text(extractor: Callable[[Any], Any], data: Any, text: Any) -> None:
    assert extractor(data) == text


@pytest.mark.parametrize("name", [n for n in dir(extractors) if n.endswith("_extractor")])
@pytest.mark.parametrize("data", ["text", None, 7, [], {}, {"choices": [7]}, {"delta": 7}])
def test_no_extractor_stumbles_over_a_foreign_event(name: str, data: Any) -> None:
    assert getattr(extractors, name)(data) is None


def test_cozes_closing_event_does_not_repeat_the_answer() -> None:
    data = {"type": "answer", "content": "whole"}
    assert extractors.coze_extractor(data, event="conversation.message.completed") is None


def test_every_extractor_is_exported_and_has_a_name_on_the_command_line() -> None:
    found = {name for name in vars(extractors) if name.endswith("_extractor")}
    assert found == {name for name in sdk.__all__ if name.endswith("_extractor")}
    assert all(getattr(sdk, name) is getattr(extractors, name) for name in found)
    assert found == set(CLI_NAMES.values())
