"""SLS is out, refuses, or loses answers: every answer stays on disk, and every row gets there."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, List

import pytest
from run_support import (
    CAP_S,
    answer,
    completed,
    config_for,
    counters,
    item_rows,
    items,
    journal,
    meta_of,
    run,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import (
    AttemptDone,
    CloudError,
    ConfigurationError,
    Experiment,
    ResultsDirectoryError,
    RowsDelivered,
    Task,
    deliver,
    load_result,
    local_config,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results import backlog


def outage_in_the_middle(
    local: LocalAgentLoop, path: Path, mode: str, count: int, seconds: float
) -> None:
    """SLS goes out once some rows are delivered, and returns ``seconds`` after all are on disk."""
    config = config_for(local, count)
    half, out, all_done = count // 2, threading.Event(), threading.Event()
    delivered, done = [0], [0]

    def on_event(event: Any) -> None:
        if isinstance(event, RowsDelivered):
            delivered[0] += event.count
        elif isinstance(event, AttemptDone):
            done[0] += 1
            if done[0] == count:
                all_done.set()

    def solution(task: Task) -> str:
        # the second half begins once the outage has
        if len(calls) >= half:
            assert out.wait(CAP_S)
        calls.append(task.id)
        return answer(task)

    calls: List[str] = []
    results: List[Any] = []
    experiment = Experiment(config, solution, path, n_workers=4, on_event=on_event)
    thread = threading.Thread(target=lambda: results.append(experiment.run()))
    thread.start()
    wait_until(lambda: delivered[0] > 0)
    outage = local.faults.outage(mode)
    began = time.monotonic()
    out.set()
    assert all_done.wait(CAP_S), "the outage holds no worker"
    assert len(solutions(path)) == count
    before = len(local.rows())
    wait_until(lambda: outage.hits > 0)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))  # the outage itself
    assert len(local.rows()) == before < count
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "running"
    outage.stop()
    thread.join(CAP_S)
    assert results[0].counts.undelivered == 0
    assert sorted(items(local)) == sorted(str(n) for n in range(count))
    assert counters(local, record_id) == completed(count)


@pytest.mark.parametrize("mode", ["503", "403", "refuse"])
def test_an_outage_in_the_middle_loses_nothing(
    local: LocalAgentLoop, tmp_path: Path, mode: str
) -> None:
    outage_in_the_middle(local, tmp_path, mode, 40, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["503", "refuse"])
def test_an_outage_of_30_seconds_in_the_middle_loses_nothing(
    local: LocalAgentLoop, tmp_path: Path, mode: str
) -> None:
    outage_in_the_middle(local, tmp_path, mode, 1000, 30.0)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "Unauthorized"), (404, "LogStoreNotExist"), (403, "WriteQuotaExceed"), (500, "Oops")],
)
def test_refused_rows_are_counted_logged_and_delivered_later_exactly_once(
    local: LocalAgentLoop,
    tmp_path: Path,
    status: int,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = config_for(local, 12)
    fault = local.faults.fail("PutLogs", status, code)
    result = run(config, answer, tmp_path, drain_timeout=1.5)
    assert fault.hits >= 1
    assert (result.counts.succeeded, result.counts.undelivered) == (12, 12)
    assert result.status == "completed" and len(solutions(tmp_path)) == 12
    assert counters(local, result.record_id) == completed(12)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [
        "12 rows were not delivered to SLS. They are kept in {0}; send them later with: "
        "agentloop-experiment deliver {0}".format(tmp_path)
    ]
    assert code in caplog.text
    waits = [r.getMessage() for r in caplog.records if "goes on trying" in r.getMessage()]
    if status in (401, 404):
        assert not waits, "what is refused for good is not waited for"
    if status == 500:
        (line,) = waits
        assert line.startswith("12 rows still to be delivered") and "up to 2 seconds" in line
        assert "(drain_timeout)" in line and "Ctrl-C ends the wait" in line
        assert str(tmp_path) in line and "agentloop-experiment deliver" in line
    assert caplog.text.count("not delivered yet") <= 1
    # still refused: nothing is lost by asking
    report = deliver(tmp_path, config, drain_timeout=1.0)
    assert (report.delivered, report.undelivered) == (0, 12)
    fault.stop()
    report = deliver(tmp_path, config)
    assert (report.record_id, report.delivered, report.undelivered) == (result.record_id, 12, 0)
    report = deliver(tmp_path, config)
    assert (report.delivered, report.undelivered) == (0, 0)
    assert sorted(items(local), key=int) == [str(n) for n in range(12)]
    assert load_result(tmp_path).counts.undelivered == 0
    assert meta_of(tmp_path)["status"] == "completed"
    assert counters(local, result.record_id) == completed(12)


def test_a_lost_answer_doubles_rows_with_identical_ids_only(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    fault = local.faults.drop("PutLogs", stored=True, times=2)
    result = run(config_for(local, 10), answer, tmp_path)
    assert fault.hits == 2 and result.counts.undelivered == 0
    rows = local.rows()
    copies = Counter((row["task_id"], row["repeat_id"], row["attempt"]) for row in rows)
    assert len(copies) == 10 and len(rows) <= 30
    assert len({tuple(sorted(without_time(row).items())) for row in rows}) == 10


def without_time(row: Any) -> Any:
    return {name: value for name, value in row.items() if not name.startswith("__")}


def test_one_bad_row_does_not_hold_the_others(
    local: LocalAgentLoop,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "BACKOFF_S", (0.02, 0.1))
    config = config_for(local, 4)
    local.faults.fail("PutLogs", 403, "WriteQuotaExceed", containing="answer to question 2")
    result = run(config, answer, tmp_path)
    assert result.counts.undelivered == 1
    assert [row.item_id for row in result.undelivered] == ["2"]
    assert sorted(items(local)) == ["0", "1", "3"]
    assert counters(local, result.record_id) == completed(4)
    assert "1 row was not delivered" in caplog.text
    local.faults.clear()
    assert deliver(tmp_path, config).delivered == 1
    assert len(items(local)) == 4


# ------------------------------------------------------------------- held records


def test_a_held_record_stays_running_until_deliver_has_sent_its_rows(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    events: List[Any] = []
    fault = local.faults.fail("PutLogs", 401, "Unauthorized")
    result = run(config, answer, tmp_path, on_undelivered="hold", on_event=events.append)
    assert result.status == "running" and events[-1].status == "running"
    assert events[-1].undelivered == 3
    assert statuses(local, result.record_id)[-1] == "running"
    assert deliver(tmp_path, config).undelivered == 3
    assert local.record(result.record_id)["status"] == "running"
    fault.stop()
    assert deliver(tmp_path, config).delivered == 3
    assert counters(local, result.record_id) == completed(3)
    assert meta_of(tmp_path)["status"] == "completed" and meta_of(tmp_path)["finished_at"]


def test_a_record_is_not_held_when_all_its_rows_are_there(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    result = run(config_for(local), answer, tmp_path, on_undelivered="hold")
    assert result.status == "completed" and counters(local, result.record_id) == completed(3)


def test_deliver_does_not_complete_a_run_that_is_not_over(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    fault = local.faults.fail("PutLogs", 401, "Unauthorized")
    record_id = run(config, answer, tmp_path, on_undelivered="hold", limit=2).record_id
    # as a killed run of three rows leaves it
    meta = meta_of(tmp_path)
    tasks = tmp_path / "tasks.json"
    tasks.write_text(
        tasks.read_text().replace("[[", '[["00000000-0000-0000-0000-000000000000", "9"], [', 1)
    )
    fault.stop()
    assert deliver(tmp_path, config).delivered == 2
    assert local.record(record_id)["status"] == "running"
    assert meta_of(tmp_path)["status"] == meta["status"] == "running"


# ---------------------------------------------------------------------- deliver


def undelivered_run(local: LocalAgentLoop, path: Path, **options: Any) -> Any:
    config = config_for(local)
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        run(config, options.pop("solution", answer), path, **options)
    return config


def test_rows_sent_later_are_the_rows_that_would_have_been_sent(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    options = {"version": "v7", "parameters": {"temperature": 0.5}, "solution": sometimes}
    config = undelivered_run(local, tmp_path / "later", **options)
    deliver(tmp_path / "later", config)
    now = run(config, sometimes, tmp_path / "now", version="v7", parameters={"temperature": 0.5})
    later_id = meta_of(tmp_path / "later")["record_id"]
    later, direct = (
        sorted(map(comparable, local.rows(record_id)), key=lambda row: row["task_id"])
        for record_id in (later_id, now.record_id)
    )
    assert later == direct
    assert {row["status"] for row in later} == {"success", "failed"}


def sometimes(task: Task) -> str:
    if task.input["id"] == "1":
        raise ValueError("bad row")
    return answer(task)


def comparable(row: Any) -> Any:
    """A row without what differs from run to run."""
    varying = (
        "experiment_id",
        "experiment_metadata",
        "experiment_record_name",
        "experiment_metrics",
    )
    return {
        name: value
        for name, value in without_time(row).items()
        if name not in varying and "time" not in name
    }


def test_deliver_takes_endpoints_from_the_directory_and_keys_from_the_environment(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    undelivered_run(local, tmp_path)
    monkeypatch.setenv("AGENTLOOP_AK", local.endpoints.access_key_id)
    monkeypatch.setenv("AGENTLOOP_SK", local.endpoints.access_key_secret)
    caplog.set_level(logging.INFO)
    assert deliver(tmp_path).delivered == 3
    # a directory from somebody else may name any place
    ends = local.endpoints
    told = "AgentLoop at {} and SLS at {}".format(ends.agentloop_endpoint, ends.sls_endpoint)
    assert told in caplog.text


def test_deliver_sends_rows_that_a_killed_run_had_not_journaled(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = undelivered_run(local, tmp_path)
    (tmp_path / "journal.jsonl").unlink()
    assert deliver(tmp_path, config).delivered == 3
    assert len(journal(tmp_path).delivered) == 3


def test_deliver_says_what_is_wrong_with_a_directory(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    with pytest.raises(ResultsDirectoryError, match="no results directory"):
        deliver(tmp_path / "none", config)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsDirectoryError, match="holds no experiment results"):
        deliver(tmp_path / "empty", config)
    with local.faults.fail("CreateExperimentRun", 400, "BadRequest"), pytest.raises(CloudError):
        run(config, answer, tmp_path / "early")
    with pytest.raises(ResultsDirectoryError, match="no record yet"):
        deliver(tmp_path / "early", config)


def test_deliver_refuses_a_config_of_another_space(local: LocalAgentLoop, tmp_path: Path) -> None:
    undelivered_run(local, tmp_path)
    plan = meta_of(tmp_path)["identity"]["plan_id"]
    with pytest.raises(ConfigurationError, match="agent_space 'local'"):
        deliver(tmp_path, local_config(local, plan, agent_space="other"))
    with pytest.raises(ConfigurationError, match="drain_timeout"):
        deliver(tmp_path, drain_timeout=0)


def test_deliver_in_history(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = undelivered_run(local, tmp_path)
    first = meta_of(tmp_path)["record_id"]
    run(config, answer, tmp_path, resume=False)
    (kept,) = (tmp_path / "history").iterdir()
    report = deliver(kept, config)
    assert (report.record_id, report.delivered) == (first, 3)


def test_a_full_disk_while_delivering_is_an_error_and_leaves_the_record_alone(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop_experiment_sdk.results.directory import ResultsDirectory

    config = undelivered_run(local, tmp_path)

    def full(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ResultsDirectory, "note_delivered", full)
        with pytest.raises(ResultsDirectoryError, match="No space left on device"):
            deliver(tmp_path, config)
    # the rows arrived; without a line in the journal they are sent once more
    assert deliver(tmp_path, config).delivered == 3
    record = local.record(meta_of(tmp_path)["record_id"])
    assert record["status"] == "completed", "delivering does not fail a record"


# ------------------------------------------- answers that left the run undelivered


@pytest.mark.parametrize("by", ["run", "deliver"])
def test_undelivered_answers_of_repeats_that_a_later_run_lacks_are_still_sent(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    config = undelivered_run(local, tmp_path, n_repeat=3)
    if by == "deliver":
        with local.faults.fail("PutLogs", 401, "Unauthorized"):
            result = run(config, answer, tmp_path)
        assert (result.counts.total, result.counts.undelivered) == (3, 9)
        assert deliver(tmp_path, config).delivered == 9
    else:
        assert run(config, answer, tmp_path).counts.undelivered == 0
    assert "6 answers are no part of this run" in caplog.text
    rows = Counter((row["task_id"], row["repeat_id"]) for row in local.rows())
    assert len(rows) == 9 and set(rows.values()) == {1}
    assert deliver(tmp_path, config).delivered == 0
    (record_id,) = local.records()
    assert counters(local, record_id) == completed(3)


def test_undelivered_answers_of_rows_that_changed_since_are_still_sent(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = undelivered_run(local, tmp_path)
    changed = [{"id": str(n), "q": "changed" if n == 1 else "question " + str(n)} for n in range(2)]
    local.load_dataset(changed, "dataset", replace=True)
    assert run(config, answer, tmp_path).counts.undelivered == 0
    asked = Counter(row["dataset.q"] for row in local.rows())
    assert asked == {"question 0": 1, "question 1": 1, "question 2": 1, "changed": 1}
    assert run(config, answer, tmp_path).counts.total == 2 and len(local.rows()) == 4


def test_answers_that_left_the_run_after_they_were_delivered_are_not_sent_again(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path, n_repeat=2)
    local.load_dataset([*item_rows(3), {"id": "3", "q": "new"}], "dataset", replace=True)
    local.faults.refuse_reopen()
    result = run(config, answer, tmp_path)  # under a new record
    assert len(local.records()) == 2
    assert len(local.rows(result.record_id)) == 4 and result.counts.undelivered == 0


def test_an_answer_that_is_gone_is_not_owed(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = undelivered_run(local, tmp_path, n_repeat=2)
    (tmp_path / str(local_task(tmp_path)) / "1" / "solution.json").unlink()
    assert run(config, answer, tmp_path).counts.undelivered == 0
    assert len(local.rows()) == 5


def local_task(path: Path) -> str:
    """The id of one of the directory's tasks."""
    return min(entry.name for entry in path.iterdir() if entry.is_dir() and entry.name != "history")
