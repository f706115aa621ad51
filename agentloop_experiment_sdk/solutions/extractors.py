"""Ready-made chunk extractors: from one event of a known stream to the text it adds.

Each takes an event's parsed JSON and returns its piece of the answer, or None if it has none.
Pass one as ``chunk_extractor=``.

To add a dialect: write its ``<service>_extractor`` here, with the source of its format; export it
in the package's ``__init__`` (three lists) and name it in ``cli/solutions.py``, which a test
demands; add examples of its events to ``tests/solutions/test_extractors.py``. If the dialect also
has shapes of its own, token usage belongs in ``usage.py`` and failure events in ``stream.py``.
"""

from __future__ import annotations

from collections import abc
from typing import Any, Optional


def openai_chat_extractor(data: Any) -> Optional[str]:
    """Text of an OpenAI ``chat.completion.chunk`` (``/v1/chat/completions``), first choice.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://platform.openai.com/docs/api-reference/chat-streaming
    """
    return _text(_at(_first_choice(data), "delta", "content"))


def openai_completions_extractor(data: Any) -> Optional[str]:
    """Text of an OpenAI ``text_completion`` chunk (``/v1/completions``), first choice.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://platform.openai.com/docs/api-reference/completions
    """
    return _text(_at(_first_choice(data), "text"))


def openai_responses_extractor(data: Any) -> Optional[str]:
    """Text of an OpenAI Responses event: ``response.output_text.delta`` or a refusal's delta.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://platform.openai.com/docs/api-reference/responses-streaming
    """
    kinds = ("response.output_text.delta", "response.refusal.delta")
    return _text(_at(data, "delta")) if _at(data, "type") in kinds else None


def anthropic_extractor(data: Any) -> Optional[str]:
    """Text of an Anthropic Messages event: a ``content_block_delta`` with a ``text_delta``.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
    """
    is_text = _at(data, "delta", "type") == "text_delta"
    return _text(_at(data, "delta", "text")) if is_text else None


def dashscope_extractor(data: Any) -> Optional[str]:
    """Text of a DashScope event: ``output.text``, or the first choice's message.

    Ask for ``"incremental_output": true``: without it every event repeats the whole text so far.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://help.aliyun.com/zh/model-studio/qwen-api-via-dashscope
    """
    output = _at(data, "output")
    content = _at(_first_choice(output), "message", "content")
    return _text(content) or _text(_at(output, "text"))


def dify_extractor(data: Any) -> Optional[str]:
    """Text of a Dify event: ``message``, ``agent_message``, or a workflow's ``text_chunk``.

    Args:
        data: The event's parsed JSON, else its text.

    Returns:
        The text it adds, or None.

    Source: https://docs.dify.ai (Send Chat Message, Execute Workflow)
    """
    kind = _at(data, "event")
    if kind in ("message", "agent_message"):
        return _text(_at(data, "answer"))
    return _text(_at(data, "data", "text")) if kind == "text_chunk" else None


def coze_extractor(data: Any, event: str = "conversation.message.delta") -> Optional[str]:
    """Text of a Coze v3 chat event: the answer's ``conversation.message.delta``.

    The event's type is needed too: the closing ``conversation.message.completed`` repeats the
    whole answer in the same shape.

    Args:
        data: The event's parsed JSON, else its text.
        event: The event's type.

    Returns:
        The text it adds, or None.

    Source: https://www.coze.com/docs/developer_guides/chat_v3
    """
    is_delta = event == "conversation.message.delta" and _at(data, "type") == "answer"
    return _text(_at(data, "content")) if is_delta else None


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, abc.Mapping) else None
    return value


def _first_choice(value: Any) -> Any:
    choices = _at(value, "choices")
    choices = choices if isinstance(choices, (list, tuple)) else ()
    return next((each for each in choices if _at(each, "index") in (None, 0)), None)


def _text(content: Any) -> Optional[str]:
    """``content`` as text: a string, or the ``text`` parts of a list (multimodal answers)."""
    if isinstance(content, (list, tuple)):
        parts = [_at(part, "text") for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) and content else None
