"""Evaluators by name: built-in ones with their settings, or the user's own."""

from __future__ import annotations

import argparse
import inspect
import re
from typing import Any, Collection, Dict, List

from ..errors import ConfigurationError
from .loading import load
from .solutions import json_or_text, pair

_MATCHING = ("exact_match", "contains", "regex_match", "json_equal", "numeric_close")
_LIMITS = ("latency_below", "ttft_below", "tokens_below")
BUILT_IN = _MATCHING + _LIMITS
# what each takes before the keywords, and what makes a ground truth unnecessary
_FIRST = {
    "contains": "text",
    "regex_match": "pattern",
    "numeric_close": "tolerance",
    "latency_below": "ms",
    "ttft_below": "ms",
    "tokens_below": "limit",
}
_OWN_EXPECTATION = ("text", "pattern", "expected_field")
_TEXTS = ("text", "pattern", "field", "expected_field", "name", "kind")

EPILOG = """\
evaluators (--evaluator, may be given again)
  exact_match  json_equal  numeric_close:0.01  contains:TEXT  regex_match:PATTERN
  latency_below:MS  ttft_below:MS  tokens_below:N
  more settings as NAME=VALUE: exact_match:field=answer.text,expected_field=gold,ignore_case=true
  or your own: evals.py:polite, a function (task, output) -> bool, number, text or dict"""


def evaluators_of(options: argparse.Namespace) -> List[Any]:
    """The evaluators that the options name.

    Raises:
        ConfigurationError: There is no such evaluator, or its settings cannot be used.
    """
    found: List[Any] = []
    for text in options.evaluator or ():
        name, _, settings = text.partition(":")
        if name in BUILT_IN:
            found.append(_built_in(name, settings, options))
        elif ":" in text:
            named = load(text, "evaluator")
            found.extend(named if isinstance(named, (list, tuple)) else [named])
        else:
            raise ConfigurationError(
                "There is no evaluator {!r}; there are {}, or write module:function.".format(
                    text, ", ".join(BUILT_IN)
                )
            )
    return found


def _built_in(name: str, text: str, options: argparse.Namespace) -> Any:
    from ..evaluate import limits, matching

    make = getattr(limits if name in _LIMITS else matching, name)
    settings = _settings(name, text, inspect.signature(make).parameters)
    if name in _MATCHING:
        if options.argv is not None:
            settings.setdefault("field", "stdout")  # a command's answer is what it prints
        _check_expectation(name, settings, options)
    try:
        return make(**settings)
    except TypeError as error:
        raise ConfigurationError("--evaluator {}: {}.".format(name, error)) from error


def _settings(name: str, text: str, known: Collection[str]) -> Dict[str, Any]:
    """``VALUE,name=value,…`` as keyword arguments; a comma splits only before ``name=``."""
    settings: Dict[str, Any] = {}
    for number, part in enumerate(re.split(r",(?=[a-z_]+=)", text) if text else ()):
        key = part.partition("=")[0]
        if number == 0 and name in _FIRST and key not in known:
            key, value = _FIRST[name], part
        else:
            key, value = pair(part, "--evaluator {}:…".format(name))
        if key not in known:
            raise ConfigurationError(
                "--evaluator {}: there is no setting {!r}; there are {}.".format(
                    name, key, ", ".join(known)
                )
            )
        settings[key] = value if key in _TEXTS else json_or_text(value)
    return settings


def _check_expectation(name: str, settings: Any, options: argparse.Namespace) -> None:
    if options.ground_truth_field or any(key in settings for key in _OWN_EXPECTATION):
        return
    if getattr(options, "resuming", False):
        return  # the tasks on disk may have theirs
    raise ConfigurationError(
        "--evaluator {} has nothing to compare with: give --ground-truth-field COLUMN, or "
        "{}:expected_field=COLUMN.".format(name, name)
    )
