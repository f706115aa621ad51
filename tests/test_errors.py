"""The error tree: stable codes, messages for people, what programs need to decide."""

from __future__ import annotations

import pickle
from typing import Any, List, Type

import pytest

from agentloop_experiment_sdk import errors
from agentloop_experiment_sdk.errors import CloudError, ConfigurationError, ExperimentError


def tree(root: Type[ExperimentError] = ExperimentError) -> List[Type[ExperimentError]]:
    return [root] + [kind for child in root.__subclasses__() for kind in tree(child)]


CLASSES = sorted({kind for kind in tree() if kind.__module__ == errors.__name__}, key=str)


def test_every_error_of_the_module_is_in_the_one_tree() -> None:
    declared = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert set(declared) == set(CLASSES)


def test_codes_are_stable_and_unlike() -> None:
    codes = {kind.__name__: kind.code for kind in CLASSES}
    assert len(set(codes.values())) == len(codes)
    assert codes["ConfigurationError"] == "InvalidConfiguration"
    assert codes["EmptyDatasetError"] == "EmptyDataset"
    assert codes["DirectoryLockedError"] == "ResultsDirectoryLocked"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_reads_as_its_message_and_carries_its_code(kind: Any) -> None:
    error = kind("Something happened; do this.", request_id="r-1")
    assert str(error) == error.message == "Something happened; do this."
    assert (error.code, error.request_id) == (kind.code, "r-1")
    assert kind("m", code="").code == kind.code
    assert kind("m", code="Given").code == "Given"
    assert kind.code != "Given"
    assert kind.__doc__.split("\n")[0].endswith(".")


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_the_way_to_another_process(kind: Any) -> None:
    error = kind("m", code="C", request_id="r")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), vars(again), str(again)) == (kind, vars(error), "m")


def test_bad_arguments_are_also_value_errors() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(errors.CredentialsError, ConfigurationError)


def test_a_cloud_error_says_whether_and_when_to_try_again() -> None:
    plain = CloudError("refused")
    assert (plain.status, plain.retryable, plain.ambiguous, plain.retry_after) == (
        None,
        False,
        False,
        None,
    )
    busy = CloudError("busy", status=503, retryable=True, ambiguous=True, retry_after=2.5)
    again = pickle.loads(pickle.dumps(busy))
    assert (again.status, again.retryable, again.ambiguous, again.retry_after) == (
        503,
        True,
        True,
        2.5,
    )
