"""What a ``SolutionOutput`` is made of, and how a row fails that makes a wrong one."""

from __future__ import annotations

import email.message
import types
from typing import Any

import pytest

from agentloop_experiment_sdk import ConfigurationError, SolutionOutput, Task, call_solution

WRONG = ["x", "", b"", 5, 0, False, [], [("a", 1)]]


@pytest.mark.parametrize("meta", WRONG)
@pytest.mark.parametrize(
    "make",
    [
        lambda meta: SolutionOutput(True, "", None, meta),
        lambda meta: SolutionOutput.success("", meta),
        lambda meta: SolutionOutput.failure("E", "m", meta),
    ],
)
def test_meta_that_is_no_mapping_is_refused(make: Any, meta: Any) -> None:
    with pytest.raises(ConfigurationError, match="meta of a SolutionOutput must be a mapping"):
        make(meta)


def test_any_mapping_is_meta() -> None:
    assert SolutionOutput(True, meta=types.MappingProxyType({"a": 1})).meta == {"a": 1}


def test_what_is_like_a_mapping_is_meta() -> None:
    headers: Any = email.message.Message()  # what urllib calls the headers of an answer
    headers["X-Request-Id"] = "7"
    assert SolutionOutput.success("a", headers).meta == {"X-Request-Id": "7"}


def test_a_row_that_makes_a_wrong_output_fails_and_says_why() -> None:
    output = call_solution(lambda task: SolutionOutput(True, meta="x"), Task("t", {}))  # type: ignore[arg-type]
    assert output.meta["error_type"] == "ConfigurationError"
    assert output.meta["error_message"].endswith("a mapping of names to values, not 'str'.")


def test_a_stored_output_without_facts_can_be_read() -> None:
    for meta in (None, {}, [], ""):
        assert SolutionOutput.from_dict({"success": True, "meta": meta}).meta == {}
