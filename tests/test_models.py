"""The values the rooms exchange: built, checked, copied, compared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from typing import Any

import pytest

from agentloop_experiment_sdk.errors import ConfigurationError
from agentloop_experiment_sdk.models import (
    Attempt,
    HttpRequestSpec,
    Identity,
    Plan,
    Result,
    SolutionOutput,
    Task,
)


def test_a_task_needs_an_id_and_an_input_only() -> None:
    task = Task("t", {"q": 1})
    assert (task.ground_truth, task.tags, task.metadata) == ("", None, {})
    assert Task("t", {}).metadata is not task.metadata
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.id = "other"  # type: ignore[misc]


def test_success_builds_on_the_class_and_reads_on_the_output() -> None:
    good = SolutionOutput.success("answer", meta={"a": 1})
    assert (good.success, good.output, good.trajectory, good.meta) == (True, "answer", [], {"a": 1})
    assert SolutionOutput(success=False).success is False
    assert SolutionOutput(1).success is True  # type: ignore[arg-type]
    good.success = False
    assert good.success is False


def test_a_failure_keeps_its_type_and_message_in_meta() -> None:
    given = {"status": 502}
    failed = SolutionOutput.failure("HTTPError", ValueError("no"), meta=given, output="partial")
    assert failed.to_dict() == {
        "success": False,
        "output": "partial",
        "trajectory": [],
        "meta": {"status": 502, "error_type": "HTTPError", "error_message": "no"},
    }
    assert given == {"status": 502}
    assert SolutionOutput.failure("", "m").meta["error_type"] == "UnknownError"


def test_an_output_is_the_same_after_its_dict() -> None:
    output = SolutionOutput(True, {"a": 1}, [{"step": 1}], {"m": 2})
    assert SolutionOutput.from_dict(output.to_dict()) == output
    assert SolutionOutput.from_dict({}) == SolutionOutput(False)
    assert output != SolutionOutput(True) and output != "text"
    assert "output={'a': 1}" in repr(output)
    with pytest.raises(TypeError):
        hash(output)


def test_an_output_does_not_share_its_meta_with_the_caller() -> None:
    meta = {"a": 1}
    SolutionOutput(True, meta=meta).meta["b"] = 2
    assert meta == {"a": 1}


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_an_output_can_be_copied_and_sent_to_another_process(clone: Any) -> None:
    output = SolutionOutput.failure("E", "m", output=[1])
    assert clone(output) == output


def test_a_subclass_builds_itself() -> None:
    class Mine(SolutionOutput):
        pass

    assert type(Mine.success("x")) is Mine
    assert type(Mine.failure("E", "m")) is Mine


def test_a_request_is_a_post_unless_told_otherwise() -> None:
    spec = HttpRequestSpec("https://host:8443/path?q=1")
    assert (spec.method, spec.timeout) == ("POST", None)
    assert HttpRequestSpec("http://h", method="get").method == "GET"


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "HTTPS://HOST/",
        "http://127.0.0.1:80/x",
        "http://[::1]:8080/",
        "http://user:pw@host/",
        "http://bücher.example/ä?q=é b",
        "http://host:/",
    ],
)
def test_a_usable_url_is_taken_as_it_is(url: str) -> None:
    assert HttpRequestSpec(url).url == url


@pytest.mark.parametrize(
    "url, hint",
    [
        ("", "http://"),
        ("host/path", "http://"),
        ("ftp://host/", "http://"),
        ("http://", "name a host"),
        ("http:///path", "name a host"),
        ("http://a b/", "name a host"),
        ("http://host:99999/", "cannot be read"),
        ("http://host:port/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://host/\r\nX-Injected: 1", "line break"),
        ("http://host/\n", "line break"),
        ("http://ho\tst/", "control character"),
        (None, "must be text"),
        (b"http://host/", "must be text"),
    ],
)
def test_an_unusable_url_is_refused_when_the_request_is_built(url: Any, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        HttpRequestSpec(url)


@pytest.mark.parametrize("method", ["", "CONNECT", "GET ", "G\nET", None, 1])
def test_an_unusable_method_is_refused(method: Any) -> None:
    with pytest.raises(ConfigurationError, match="use one of GET, POST"):
        HttpRequestSpec("http://h", method=method)


def test_a_request_has_one_body() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        HttpRequestSpec("http://h", json={}, data="")
    assert HttpRequestSpec("http://h", json={}).data is None


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "5"])
def test_an_unusable_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        HttpRequestSpec("http://h", timeout=timeout)


def test_two_plans_with_the_same_identity_are_the_same_experiment() -> None:
    plan = Plan("space", "p-1", "plan", "cn-hangzhou", "project", "dataset")
    assert plan.identity == Identity("space", "p-1", "experimentA", "cn-hangzhou")
    other = dataclasses.replace(plan, plan_name="renamed", max_rows=5)
    assert other.identity == plan.identity
    assert dataclasses.replace(plan, experiment_name="B").identity != plan.identity


def test_each_attempt_gets_its_own_copy_of_everything() -> None:
    parameters = {"temperature": [0.1]}
    row = Task("t", {"q": [1]}, ["truth"], {"tag": [1]}, {"dataset": "d", "nested": {"n": 1}})
    attempt = Attempt(row, "0")
    task = attempt.task_for("record-1", {"version": "v2", "parameters": parameters})
    assert task.metadata == {
        "dataset": "d",
        "nested": {"n": 1},
        "record_id": "record-1",
        "repeat_id": "0",
        "version": "v2",
        "parameters": {"temperature": [0.1]},
    }
    for holder in (task.input["q"], task.ground_truth, task.tags["tag"]):  # type: ignore[index]
        holder.append("changed")
    task.metadata["parameters"]["temperature"].append("changed")
    task.metadata["nested"]["n"] = "changed"
    assert row == Task(
        "t", {"q": [1]}, ["truth"], {"tag": [1]}, {"dataset": "d", "nested": {"n": 1}}
    )
    assert parameters == {"temperature": [0.1]}
    assert attempt.key == ("t", "0")


def test_a_parameter_that_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    task = Attempt(Task("t", {}), "0").task_for("r", {"parameters": {"lock": lock}})
    assert task.metadata["parameters"]["lock"] is lock


@pytest.mark.parametrize(
    "output, status",
    [
        (SolutionOutput.success("x"), "success"),
        (SolutionOutput.failure("E", "m"), "failed"),
        (SolutionOutput.success({"skipped": True}, meta={"skipped": True}), "skipped"),
        (SolutionOutput.success("x", meta={"skipped": "no"}), "success"),
        (SolutionOutput.failure("E", "m", meta={"skipped": True}), "failed"),
    ],
)
def test_a_result_is_a_success_a_failure_or_skipped(output: SolutionOutput, status: str) -> None:
    assert Result(Attempt(Task("t", {}), "0"), output, 1, 2, 1.0).status == status


def test_the_repr_of_a_request_shows_where_it_goes_and_no_credential() -> None:
    secret = "zz-1111-zz"
    spec = HttpRequestSpec(
        "https://al:{0}@host:8443/chat?api_key={0}".format(secret),
        headers={"Authorization": secret},
        params={"token": secret},
        json={"password": secret},
    )
    assert repr(spec) == "HttpRequestSpec(POST https://host:8443/chat)"
