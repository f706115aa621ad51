"""Rate control from the command line."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from agentloop_experiment_sdk.cli.options import workers


@pytest.mark.parametrize("text, value", [("8", 8), ("auto", "auto"), ("4-32", (4, 32))])
def test_workers_are_a_number_a_range_or_auto(text: str, value: Any) -> None:
    assert workers(text) == value


@pytest.mark.parametrize("text", ["", "many", "4-", "-4x", "4-32-64"])
def test_other_workers_are_no_value(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="4-32"):
        workers(text)
