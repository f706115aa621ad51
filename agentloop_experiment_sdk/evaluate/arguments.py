"""What ``llm_judge`` may be given, argument by argument."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Mapping, Sequence, Tuple

from ..errors import ConfigurationError
from .metric import is_number
from .selection import check_name, check_selector

# Source: RFC 9110 section 5.6.2, token.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET = ("api_key", "headers", "extra_body")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Refuse arguments that a judge cannot use; the one of ``base_url`` is checked elsewhere.

    Raises:
        ConfigurationError: One cannot be used; the message names it, and shows no key.
    """
    for name, is_usable, wanted in _WANTED:
        value = given[name]
        if not is_usable(value):
            shown = "" if name in _SECRET else ", not {!r}".format(value)
            raise ConfigurationError("llm_judge(): {} must be {}{}.".format(name, wanted, shown))
    check_name(given["name"])
    for name in ("field", "expected_field"):
        check_selector(given[name])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_header_value(value: Any) -> bool:
    """Whether the value can be sent: RFC 9110 section 5.5, and what ``http.client`` encodes."""
    return _is_text(value) and not re.search("[\r\n\0]|[^\0-\xff]", value)


def _are_headers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _HEADER_NAME.fullmatch(name) and _is_header_value(text)
        for name, text in value.items()
    )


def _is_list_of_texts(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return is_list and all(map(_is_text, value))


def _are_different(choices: Sequence[str]) -> bool:
    return len(choices) != 1 and len({choice.casefold() for choice in choices}) == len(choices)


def _is_scale(value: Any) -> bool:
    if not isinstance(value, Sequence) or len(value) != 2 or not all(map(is_number, value)):
        return False
    return bool(-math.inf < value[0] < value[1] < math.inf)


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_temperature(value: Any) -> bool:
    return is_number(value) and 0 <= value < math.inf


def _has_text_keys(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _or_none(is_usable: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_usable(value)


# name, what a usable value is, and how to say so
_WANTED: Tuple[Tuple[str, Callable[[Any], bool], str], ...] = (
    ("model", _is_text, "a text that is not empty"),
    ("rubric", _is_text, "a text that is not empty"),
    (
        "api_key",
        _or_none(_is_header_value),
        "a text that is not empty and has no line break, or None to send none",
    ),
    ("headers", _or_none(_are_headers), "a mapping of header names to texts without line breaks"),
    ("choices", _is_list_of_texts, "a list of texts, best first"),
    ("choices", _are_different, "at least two different texts"),
    ("scale", _is_scale, "two numbers (lowest, highest)"),
    ("timeout", _is_time, "a number of seconds above 0"),
    ("retries", _is_count, "a whole number of 0 or more"),
    ("temperature", _or_none(_is_temperature), "a number of 0 or more, or None to leave it out"),
    ("extra_body", _or_none(_has_text_keys), "a mapping of keys to JSON values"),
    ("post", _or_none(callable), "a function (url, headers, body, timeout)"),
    ("sleep", callable, "a function of seconds"),
    ("jitter", _or_none(callable), "a function without arguments"),
)
