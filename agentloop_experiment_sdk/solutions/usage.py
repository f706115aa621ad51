"""Token usage out of an agent's answer, whole or streamed.

Shapes: OpenAI chat, completions and responses; Anthropic messages; DashScope; Dify; Coze.
"""

from __future__ import annotations

from collections import abc
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

UsageExtractor = Callable[[Any], Optional[Mapping[str, Any]]]

_INPUT = ("input_tokens", "prompt_tokens", "input_count")
_OUTPUT = ("output_tokens", "completion_tokens", "output_count")
_TOTAL = ("total_tokens", "token_count")
# Anthropic counts what the prompt cache served or stored beside input_tokens
_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")


class UsageMeter:
    """Collects the usage and model name that one answer reports, possibly over many events.

    Args:
        extractor: Takes an answer or event and returns its usage (None: nothing here); without it
            the known shapes are looked for.
    """

    def __init__(self, extractor: Optional[UsageExtractor] = None) -> None:
        self._extractor = extractor
        self._counts: Dict[str, int] = {}
        self._model = ""
        self.error = ""

    def add(self, value: Any) -> None:
        """Look at one answer or event; later numbers replace earlier ones, as running sums do."""
        if self._extractor is not None:
            self._add_extracted(value)
        elif isinstance(value, dict):
            for place in _places(value):
                self._note(place.get("usage"), place.get("model"))

    def _add_extracted(self, value: Any) -> None:
        assert self._extractor is not None
        try:
            found = self._extractor(value)
            if found is not None:
                self._note(found, found.get("model"))
        except Exception as error:  # a lost count is no reason to lose the row
            self.error = "{}: {}".format(type(error).__name__, error)

    def _note(self, usage: Any, model: Any) -> None:
        if isinstance(model, str) and model:
            self._model = model
        # most events have none, and asking for the abstract type takes longer than all the rest
        if usage is not None and isinstance(usage, abc.Mapping):
            self._counts.update(normalised(usage))

    @property
    def usage(self) -> Optional[Dict[str, Any]]:
        """``input_tokens``, ``output_tokens``, ``total_tokens`` and ``model`` if it is known."""
        counts = self._counts
        if not counts:
            return None
        parts = counts.get("input_tokens", 0), counts.get("output_tokens", 0)
        usage: Dict[str, Any] = {"input_tokens": parts[0], "output_tokens": parts[1]}
        usage["total_tokens"] = max(counts.get("total_tokens", 0), sum(parts))
        if self._model:
            usage["model"] = self._model
        return usage


def normalised(usage: Mapping[str, Any]) -> Dict[str, int]:
    """The counts of a usage object under our three names; what is not a count is left out."""
    counts = {}
    for name, aliases in (
        ("input_tokens", _INPUT),
        ("output_tokens", _OUTPUT),
        ("total_tokens", _TOTAL),
    ):
        found = next((usage[key] for key in aliases if is_count(usage.get(key))), None)
        if found is not None:
            counts[name] = int(found)
    if "input_tokens" in counts:
        counts["input_tokens"] += sum(int(usage[k]) for k in _CACHED if is_count(usage.get(k)))
    return counts


def is_count(value: Any) -> bool:
    """Whether ``value`` is a whole number that can count tokens."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value >= 0 and value == value // 1


def _places(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Where the known shapes keep ``usage`` and ``model``: the top, and one step below it."""
    yield value
    # OpenAI responses events, Anthropic's message_start, Dify's message_end, wrapped answers
    for name in ("response", "message", "metadata", "data"):
        inner = value.get(name)
        if isinstance(inner, dict):
            yield inner
