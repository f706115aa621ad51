"""check(): what a run needs, asked one after the other, without creating a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
from run_support import answer, config_for, http_agent, run

from agentloop_experiment_sdk import Experiment, Task, http_solution_with, local_config
from agentloop_experiment_sdk.local import LocalAgentLoop

NODES = [{"id": "n", "type": "project", "parameters": {"answer": "output"}}]


def check(config: Any, path: Any, solution: Any = answer, **options: Any) -> Any:
    limit = options.pop("limit", None)
    return Experiment(config, solution, path, **options).check(limit)


def messages(report: Any) -> Dict[str, str]:
    return {item.name: item.message for item in report.failed}


def test_a_run_that_can_begin_passes_and_leaves_no_trace(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    local.create_pipeline("pipe-line", nodes=NODES)
    report = check(config_for(local, pipeline_name="pipe-line"), tmp_path / "r", limit=1)
    assert report and report.ok and not report.failed
    assert [item.name for item in report] == [
        "results directory",
        "credentials",
        "plan",
        "dataset",
        "SLS",
        "pipeline",
        "agent",
    ]
    text = str(report)
    assert "3 rows read; columns: id, q" in text or "1 row read" in text
    assert "local-project/experiment_detail exists" in text
    assert "'pipe-line' can be read and previewed" in text
    assert "without a trace id" in text
    assert text.count("ok   ") == 7
    assert not local.records() and not local.rows() and not (tmp_path / "r").exists()
    asked = local.requests
    assert not asked["CreateExperimentRun"] and not asked["PutLogs"]


def test_without_a_limit_the_agent_is_not_called(local: LocalAgentLoop, tmp_path: Path) -> None:
    report = check(config_for(local), tmp_path, lambda task: 1 / 0)
    assert report and "agent" not in [item.name for item in report]
    assert "3 rows read" in str(report)


def test_the_agent_is_called_for_so_many_rows(local: LocalAgentLoop, tmp_path: Path) -> None:
    asked = []

    def reply(body: Any) -> Any:
        asked.append(body["id"])
        return "fine"

    with http_agent(reply) as url:
        solution = http_solution_with(url, body_builder=lambda task: task.input)
        report = check(config_for(local), tmp_path, solution, limit=2)
    assert report and asked == ["0", "1"]
    assert str(report).count("agent: answered in") == 2 and ", trace " in str(report)


def test_an_agent_that_fails_is_named_with_its_row_and_error(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def solution(task: Task) -> None:
        raise ConnectionRefusedError("nobody listens")

    report = check(config_for(local), tmp_path, solution, limit=1)
    assert not report
    assert messages(report) == {"agent": "row 0: ConnectionRefusedError - nobody listens"}
    slow = check(config_for(local, dataset="d"), tmp_path, _never, limit=1, task_timeout=0.05)
    assert "TaskTimeout" in messages(slow)["agent"]


async def _never(task: Task) -> None:
    import asyncio

    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("settings", "failing", "words"),
    [
        ({"access_key_secret": "wrong"}, "plan", ("SignatureDoesNotMatch", "AccessKey")),
        ({"agent_space": "nowhere"}, "plan", ("nowhere", "Check")),
        ({"experiment_plan_id": "exp-plan-none"}, "plan", ("exp-plan-none", "Check")),
        ({"access_key_secret": ""}, "credentials", ("access_key_secret",)),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(
    local: LocalAgentLoop,
    tmp_path: Path,
    settings: Dict[str, str],
    failing: str,
    words: Any,
) -> None:
    plan_id = config_for(local).experiment_plan_id
    config = local_config(local, settings.pop("experiment_plan_id", plan_id), **settings)
    report = check(config, tmp_path)
    assert list(messages(report)) == [failing], str(report)
    for word in words:
        assert word in messages(report)[failing]


def test_no_credentials_at_all_are_a_failed_check(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the last resort of the library would ask a metadata server
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
    plan_id = config_for(local).experiment_plan_id
    config = local_config(local, plan_id, access_key_id=None, access_key_secret=None)
    report = check(config, tmp_path)
    assert list(messages(report)) == ["credentials"]
    assert "AGENTLOOP_AK" in messages(report)["credentials"]


def test_an_online_plan_is_refused(local: LocalAgentLoop, tmp_path: Path) -> None:
    report = check(config_for(local, experiment_type="online"), tmp_path)
    assert "offline" in messages(report)["plan"]


def test_an_empty_dataset_names_what_narrows_it(local: LocalAgentLoop, tmp_path: Path) -> None:
    report = check(config_for(local, query_sql="id = 'none'"), tmp_path)
    assert list(messages(report)) == ["dataset"]
    for word in ("selected_item_ids", "query_sql", "max_rows"):
        assert word in messages(report)["dataset"]


def test_a_missing_logstore_is_named(local: LocalAgentLoop, tmp_path: Path) -> None:
    with local.faults.fail("GetLogStore", 404, "LogStoreNotExist"):
        report = check(config_for(local), tmp_path)
    assert list(messages(report)) == ["SLS"]
    assert "Create the logstore experiment_detail" in messages(report)["SLS"]


def test_a_key_that_may_write_but_not_read_settings_passes(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    with local.faults.fail("GetLogStore", 401, "Unauthorized"):
        report = check(config_for(local), tmp_path)
    assert report and "may not be read (Unauthorized)" in str(report)


@pytest.mark.parametrize("action", ["GetPipeline", "PreviewPipeline"])
def test_missing_pipeline_permission_is_named(
    local: LocalAgentLoop, tmp_path: Path, action: str
) -> None:
    local.create_pipeline("pipe-line", nodes=NODES)
    with local.faults.fail(action, 403, "NoPermission"):
        report = check(config_for(local, pipeline_name="pipe-line"), tmp_path)
    assert list(messages(report)) == ["pipeline"]
    assert "NoPermission" in messages(report)["pipeline"]


def test_a_pipeline_whose_source_cannot_be_bound_is_named(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    local.create_pipeline("no-nodes", nodes=[])
    report = check(config_for(local, pipeline_name="no-nodes"), tmp_path)
    assert "no nodes" in messages(report)["pipeline"]


def test_the_results_directory_is_looked_at(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    (tmp_path / "file").write_text("x")
    report = check(config, tmp_path / "file")
    assert "is not a directory" in messages(report)["results directory"]
    assert "will be made" in str(check(config, tmp_path / "a" / "b" / "c"))
    run(config, answer, tmp_path / "r")
    assert "is writable and holds earlier results" in str(check(config, tmp_path / "r"))


def test_a_directory_without_permission_is_named(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    # root may write anywhere, so the answer of the system is given here
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) != str(tmp_path) and real(path, mode)
    )
    config = config_for(local)
    assert "is not writable" in messages(check(config, tmp_path))["results directory"]
    assert "cannot be made" in messages(check(config, tmp_path / "new"))["results directory"]


def test_the_part_of_the_dataset_that_would_run_is_read(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 10)
    assert "4 rows read" in str(check(config, tmp_path, limit=None, item_ids=["1", "2", "3", "4"]))
    assert "no row" in messages(check(config, tmp_path, item_ids=["99"]))["dataset"]


def test_a_given_executor_is_tried_out(local: LocalAgentLoop, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    config = config_for(local)
    with ThreadPoolExecutor(2) as executor:
        report = check(config, tmp_path, executor=executor)
    assert report, str(report)
    assert "a worker has loaded the solution" in str(report)
