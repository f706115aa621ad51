"""Running again in the same results directory: what is done is not done twice."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from run_support import (
    answer,
    completed,
    config_for,
    counters,
    edit_meta,
    item_rows,
    items,
    journal,
    meta_of,
    run,
    solutions,
    statuses,
)

from agentloop_experiment_sdk import (
    DirectoryLockedError,
    Experiment,
    ResumeError,
    deliver,
    gate,
    latency_below,
    load_result,
    local_config,
    run_experiment,
    run_experiment_parallel,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results.lock import DirectoryLock


class Calls(List[str]):
    """A solution that notes the ids of the rows it was called for."""

    def __init__(self, reply: Callable[[Any], Any] = answer) -> None:
        super().__init__()
        self.reply = reply

    def __call__(self, task: Any) -> Any:
        self.append(task.input["id"])
        return self.reply(task)


def failing(*ids: str) -> Callable[[Any], Any]:
    def reply(task: Any) -> Any:
        if task.input["id"] in ids:
            raise ValueError("row {} is bad".format(task.input["id"]))
        return answer(task)

    return reply


@pytest.mark.parametrize("run_it", [run_experiment, run_experiment_parallel])
def test_nothing_left_to_do_is_one_completed_update_and_nothing_else(
    local: LocalAgentLoop, tmp_path: Path, run_it: Any
) -> None:
    config = config_for(local)
    first = run_it(config, answer, tmp_path)
    before = local.requests
    updates = len(local.updates(first))
    calls = Calls()
    assert run_it(config, calls, tmp_path) == first
    assert not calls
    (update,) = local.updates(first)[updates:]
    assert update["status"] == "completed" and update["completedAt"] > 0
    assert (update["totalTasks"], update["completedTasks"], update["failedTasks"]) == (3, 3, 0)
    after = local.requests
    assert after["UpdateExperimentRun"] - before["UpdateExperimentRun"] == 1
    for action in ("CreateExperimentRun", "PutLogs", "ListExperimentRuns", "GetExperimentRun"):
        assert after[action] == before[action], action
    assert len(local.rows(first)) == 3
    assert meta_of(tmp_path)["status"] == "completed"


def test_only_what_is_missing_is_run_and_the_counters_cover_everything(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 6)
    record_id = run(config, Calls(failing("4")), tmp_path).record_id
    lost = [path for path in solutions(tmp_path) if load_input(path)["id"] in ("1", "2")]
    lost[0].unlink()
    lost[1].write_bytes(b'{"success": tr')
    calls = Calls()
    assert run(config, calls, tmp_path).record_id == record_id
    assert sorted(calls) == ["1", "2"]
    assert counters(local, record_id) == completed(6, failed=1)
    # the new answers of the lost rows go to SLS as well
    assert sorted(items(local, record_id)) == ["0", "1", "1", "2", "2", "3", "4", "5"]
    assert len(solutions(tmp_path)) == 6


def load_input(solution: Path) -> Dict[str, Any]:
    read: Dict[str, Any] = json.loads((solution.parents[1] / "task_meta.json").read_text("utf-8"))
    return dict(read["input"])


@pytest.mark.parametrize("content", [b"", b'{"success": tr', b"[]", b'{"output": 1}', b"\xff\xfe"])
def test_a_torn_or_foreign_solution_is_run_again(
    local: LocalAgentLoop, tmp_path: Path, content: bytes
) -> None:
    config = config_for(local, 2)
    record_id = run_experiment(config, answer, tmp_path)
    solutions(tmp_path)[0].write_bytes(content)
    calls = Calls()
    assert run_experiment(config, calls, tmp_path) == record_id
    assert len(calls) == 1
    assert counters(local, record_id) == completed(2)
    assert json.loads(solutions(tmp_path)[0].read_text("utf-8"))["success"] is True


def test_files_without_a_journal_are_read_and_not_sent_twice_only_if_the_journal_says_so(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    record_id = run_experiment(config, answer, tmp_path)
    (tmp_path / "journal.jsonl").unlink()
    calls = Calls()
    assert run_experiment(config, calls, tmp_path) == record_id
    assert not calls
    # nobody knows what was delivered: at least once
    rows = local.rows(record_id)
    assert len(rows) == 6
    same = {(row["task_id"], row["repeat_id"], row["attempt"]) for row in rows}
    assert len(same) == 3
    assert counters(local, record_id) == completed(3)


def test_a_torn_last_line_of_the_journal_is_cut(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    record_id = run_experiment(config, answer, tmp_path)
    with open(tmp_path / "journal.jsonl", "ab") as file:
        file.write(b'{"event":"saved","task":"x')
    assert run_experiment(config, Calls(), tmp_path, n_repeat=2) == record_id
    assert len(journal(tmp_path).saved) == 6
    assert counters(local, record_id) == completed(6)


def test_more_repeats_add_only_what_is_new(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    record_id = run_experiment(config, Calls(failing("1")), tmp_path)
    calls = Calls()
    assert run_experiment(config, calls, tmp_path, n_repeat=3) == record_id
    assert sorted(calls) == ["0", "0", "1", "1", "2", "2"]
    assert counters(local, record_id) == completed(9, failed=1)
    repeats = sorted(row["repeat_id"] for row in local.rows(record_id))
    assert repeats == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    assert statuses(local, record_id)[-1] == "completed"
    assert meta_of(tmp_path)["total_repeats"] == 3


def test_fewer_repeats_count_only_what_is_asked_for(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    record_id = run_experiment(config, answer, tmp_path, n_repeat=2)
    calls = Calls()
    assert run_experiment(config, calls, tmp_path, n_repeat=1) == record_id
    assert not calls and counters(local, record_id) == completed(3)


def add_rows(local: LocalAgentLoop, config: Any, statement: str) -> None:
    """Change the dataset as its owner would."""
    from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi

    AgentLoopApi(config.connection.access()).execute_query("local", "dataset", statement)


@pytest.fixture
def writable() -> Any:
    with LocalAgentLoop(writable_sql=True) as running:
        yield running


def test_new_and_changed_rows_are_run_and_old_ones_become_stale(
    writable: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(writable)
    record_id = run_experiment(config, answer, tmp_path)
    add_rows(writable, config, "INSERT INTO dataset (id, q) VALUES ('7', 'new')")
    add_rows(writable, config, "UPDATE dataset SET q = 'changed' WHERE id = '1'")
    add_rows(writable, config, "DELETE FROM dataset WHERE id = '0'")
    calls = Calls()
    result = run(config, calls, tmp_path)
    assert result.record_id == record_id
    assert sorted(calls) == ["1", "7"]
    assert counters(writable, record_id) == completed(3)
    assert result.counts.total == 3 and result.counts.stale == 2
    assert "2 task folders belong to rows that changed or left the plan" in caplog.text
    assert "1 attempt in" in caplog.text
    assert len(solutions(tmp_path)) == 5


# --------------------------------------------------------------- failed rows


def test_failed_rows_count_as_done(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    run_experiment(config, failing("1"), tmp_path)
    calls = Calls()
    record_id = run_experiment(config, calls, tmp_path)
    assert not calls and counters(local, record_id) == completed(3, failed=1)


def test_retry_failed_runs_them_again_and_keeps_the_old_answer(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local, 4)
    record_id = run_experiment(config, failing("1", "2"), tmp_path)
    assert counters(local, record_id) == completed(4, failed=2)
    calls = Calls(failing("2"))
    result = run(config, calls, tmp_path, retry_failed=True)
    assert result.record_id == record_id and sorted(calls) == ["1", "2"]
    assert counters(local, record_id) == completed(4, failed=1)
    # the two that run again are not among those that are skipped
    assert "2 attempts in" in caplog.text
    rows = [row for row in local.rows(record_id) if row["dataset.id"] in ("1", "2")]
    told = sorted((row["dataset.id"], row["attempt"], row["status"]) for row in rows)
    assert told == [
        ("1", "1", "failed"),
        ("1", "2", "success"),
        ("2", "1", "failed"),
        ("2", "2", "failed"),
    ]
    again = [path for path in solutions(tmp_path) if load_input(path)["id"] in ("1", "2")]
    for path in again:
        facts = json.loads(path.read_text("utf-8"))["meta"]["agentloop.attempt"]
        assert facts["number"] == 2 and facts["retried"] is True
        kept = json.loads((path.parent / "attempt-1.json").read_text("utf-8"))
        assert kept["success"] is False
    assert not load_result(tmp_path).undelivered


def test_retry_failed_without_failures_has_nothing_to_do(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run_experiment(config, answer, tmp_path)
    before = local.requests["UpdateExperimentRun"]
    run(config, lambda task: 1 / 0, tmp_path, retry_failed=True)
    assert local.requests["UpdateExperimentRun"] == before + 1


def test_row_retries_try_failed_rows_again_in_the_same_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    tries: Dict[str, int] = {}

    def solution(task: Any) -> Any:
        item = task.input["id"]
        tries[item] = tries.get(item, 0) + 1
        if item == "1" and tries[item] < 3 or item == "2":
            raise ConnectionError("try {}".format(tries[item]))
        return answer(task)

    result = run(config_for(local), solution, tmp_path, n_workers=1, row_retries=2)
    assert tries == {"0": 1, "1": 3, "2": 3}
    assert counters(local, result.record_id) == completed(3, failed=1)
    sent = {row["dataset.id"]: row for row in local.rows(result.record_id)}
    assert len(local.rows(result.record_id)) == 3, "only the last try of a row is sent"
    assert [sent[item]["attempt"] for item in "012"] == ["1", "3", "3"]
    assert "try 3" in sent["2"]["experiment_output"]
    for path in solutions(tmp_path):
        item = load_input(path)["id"]
        kept = sorted(name.name for name in path.parent.glob("attempt-*.json"))
        assert kept == ([] if item == "0" else ["attempt-1.json", "attempt-2.json"])
        facts = json.loads(path.read_text("utf-8"))["meta"]["agentloop.attempt"]
        assert facts.get("retried", False) is (item != "0")


# ----------------------------------------------------------- which experiment


def test_resume_true_demands_something_to_go_on_with(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    with pytest.raises(ResumeError, match="no results directory"):
        run(config, answer, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists() and not local.records()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResumeError, match="it is empty"):
        run(config, answer, tmp_path / "empty", resume=True)
    record_id = run(config, answer, tmp_path / "r").record_id
    assert run(config, answer, tmp_path / "r", resume=True).record_id == record_id
    other = local_config(local, config.experiment_plan_id, experiment_name="other")
    with pytest.raises(ResumeError, match="its experiment_name is 'experimentA'"):
        run(other, answer, tmp_path / "r", resume=True)
    assert counters(local, record_id) == completed(3)


def test_resume_false_starts_afresh_and_keeps_the_earlier_run_usable(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    (tmp_path / "notes.txt").write_text("mine")
    first = run(config, answer, tmp_path).record_id
    calls = Calls()
    second = run(config, calls, tmp_path, resume=False).record_id
    assert first != second and len(calls) == 3
    (kept,) = (tmp_path / "history").iterdir()
    assert kept.name.endswith(first)
    assert "were moved to" in caplog.text
    assert (tmp_path / "notes.txt").exists()
    assert load_result(kept).record_id == first and len(solutions(kept)) == 3
    assert run(config, lambda task: 1 / 0, kept, resume=True).record_id == first
    assert deliver(kept, config).undelivered == 0


def test_another_experiment_moves_the_earlier_one_to_history(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    first = run(config, answer, tmp_path).record_id
    other_plan = local_config(local, local.create_plan("dataset", "another plan"))
    calls = Calls()
    second = run(other_plan, calls, tmp_path).record_id
    assert len(calls) == 3 and second != first
    third = run(config, Calls(), tmp_path).record_id
    assert third not in (first, second)
    assert len(list((tmp_path / "history").iterdir())) == 2


def test_a_solution_that_names_another_experiment_never_counts_as_done(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path / "a")
    other = local_config(local, config.experiment_plan_id, experiment_name="other")
    run(other, answer, tmp_path / "b")
    for path in solutions(tmp_path / "a"):
        target = tmp_path / "b" / path.relative_to(tmp_path / "a")
        shutil.copyfile(path, target)
    (tmp_path / "b" / "journal.jsonl").unlink()
    calls = Calls()
    run(other, calls, tmp_path / "b")
    assert len(calls) == 3


def test_a_second_run_in_a_directory_in_use_is_refused(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    inner: List[BaseException] = []

    def solution(task: Any) -> str:
        try:
            run(config, answer, tmp_path)
        except DirectoryLockedError as error:
            inner.append(error)
        return "fine"

    record_id = run(config, solution, tmp_path).record_id
    assert len(inner) == 3
    assert local.records() == [record_id]
    lock = DirectoryLock(os.path.join(str(tmp_path), ".lock"))
    lock.acquire()  # the run gave it back
    lock.release()


# ------------------------------------------------------------------ what is said


def test_what_is_skipped_is_said_with_number_age_and_change_of_the_solution(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path)
    caplog.clear()
    run(config, answer, tmp_path)
    (record,) = [r for r in caplog.records if "not run again" in r.getMessage()]
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert text.startswith("3 attempts in {} ".format(tmp_path))
    assert "seconds ago" in text and "resume=False" in text and "CHANGED" not in text

    for back_s, age in ((600, "10 minutes"), (3 * 3600, "3 hours"), (3 * 86400, "3 days")):
        edit_meta(tmp_path, experiment_start_time=int((time.time() - back_s) * 1000))
        caplog.clear()
        run(config, answer, tmp_path)
        assert "begun {} ago".format(age) in caplog.text

    caplog.clear()
    run(config, lambda task: "a new solution", tmp_path)
    assert "the solution has CHANGED since they were answered" in caplog.text


def test_rows_of_another_version_are_told_counted_and_not_run_again(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path, version="v1", parameters={"top": 1}, limit=2)
    caplog.clear()
    run(config, answer, tmp_path, version="v1", parameters={"top": 1}, limit=2)
    assert "another version" not in caplog.text
    calls = Calls()
    for _ in range(2):  # the second run continues one of its own version, and tells all the same
        caplog.clear()
        record_id = run(config, calls, tmp_path, version="v2", parameters={"top": 2}).record_id
        assert (
            "done attempts were answered by another version or with other parameters (2 of version "
            "'v1' with other parameters), this run is version 'v2'. They stay as they are: pass "
            "resume=False, or another result_dir, to run them too."
        ) in caplog.text
    assert len(calls) == 1
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in solutions(tmp_path)]
    found = [document["meta"]["agentloop.attempt"] for document in documents]
    assert sorted(facts["version"] for facts in found) == ["v1", "v1", "v2"]
    assert sorted(facts["parameters"]["top"] for facts in found) == [1, 1, 2]
    assert not gate(tmp_path, require_delivered=False)
    rows = local.rows(record_id)
    configs = [json.loads(row["experiment_config"]) for row in rows]
    assert sorted(each["version"] for each in configs) == ["v1", "v1", "v2"]


def test_a_directory_that_does_not_say_what_answered_still_resumes(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path, version="v1")
    for path in solutions(tmp_path):
        document = json.loads(path.read_text(encoding="utf-8"))
        del document["meta"]["agentloop.attempt"]["version"]
        del document["meta"]["agentloop.attempt"]["parameters"]
        path.write_text(json.dumps(document), encoding="utf-8")
    assert gate(tmp_path)
    caplog.clear()
    run(config, answer, tmp_path, version="v2")
    assert "(3 of version 'v1'), this run is version 'v2'" in caplog.text


def test_a_row_is_delivered_later_with_the_version_that_answered(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path, version="v1", parameters={"top": 1})
    (tmp_path / "journal.jsonl").unlink()  # nothing counts as delivered
    record_id = run(config, answer, tmp_path, version="v2").record_id
    configs = [json.loads(row["experiment_config"]) for row in local.rows(record_id)]
    assert configs and all(c == {"version": "v1", "parameters": {"top": 1}} for c in configs)


def test_a_first_run_says_nothing_about_resuming(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(config_for(local), answer, tmp_path)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


# ---------------------------------------------------------------- undelivered


def test_undelivered_rows_are_delivered_by_the_next_run(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        result = run(config, answer, tmp_path)
    assert result.counts.undelivered == 3
    assert not local.rows(result.record_id)
    message = [
        r.getMessage() for r in caplog.records if "were not delivered to SLS" in r.msg % r.args
    ]
    assert message and "agentloop-experiment deliver {}".format(tmp_path) in message[-1]
    calls = Calls()
    again = run(config, calls, tmp_path)
    assert again.record_id == result.record_id and not calls
    assert again.counts.undelivered == 0
    assert sorted(items(local, result.record_id)) == ["0", "1", "2"]
    assert counters(local, result.record_id) == completed(3)


def test_progress_of_a_resumed_run_counts_what_was_delivered_before(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run(config, failing("2"), tmp_path)
    seen: List[Any] = []
    run(config, answer, tmp_path, n_repeat=2, retry_failed=True, on_event=seen.append)
    told = [event for event in seen if type(event).__name__ == "Progress"]
    assert told[0].delivered >= 2
    assert all(event.delivered <= event.done for event in told)


def test_one_experiment_object_may_run_again(local: LocalAgentLoop, tmp_path: Path) -> None:
    calls = Calls()
    experiment = Experiment(config_for(local), calls, tmp_path)
    first = experiment.run()
    assert experiment.run().record_id == first.record_id
    assert len(calls) == 3


def test_a_part_of_the_dataset_may_be_run_first(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 10)
    record_id = run(config, Calls(), tmp_path, limit=2).record_id
    assert counters(local, record_id) == completed(2)
    calls = Calls()
    assert run(config, calls, tmp_path, item_ids=["5", 7]).record_id == record_id
    # the rows of the first part stay in view
    assert sorted(calls) == ["5", "7"] and counters(local, record_id) == completed(4)
    rest = Calls()
    assert run(config, rest, tmp_path).record_id == record_id
    assert len(rest) == 6 and counters(local, record_id) == completed(10)
    assert sorted(items(local, record_id), key=int) == [str(n) for n in range(10)]


def test_a_part_run_again_hides_nothing_of_the_whole(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 10)
    whole = run(config, Calls(), tmp_path, evaluators=[latency_below(60)])
    before = [(row.label, row.status) for row in whole]
    calls, told = Calls(), []

    def scored(task: Any, output: Any) -> bool:
        told.append(task.input["id"])
        return True

    part = run(config, calls, tmp_path, limit=2, evaluators=[scored])
    assert calls == [] and part.record_id == whole.record_id
    assert [(row.label, row.status) for row in part] == before
    assert counters(local, whole.record_id) == completed(10)
    assert sorted(told) == ["0", "1"]  # only the part is run, or scored
    result = json.loads((tmp_path / "evaluation_result.json").read_text())
    assert (result["total_tasks"], result["repeats"]["0"]["completed_tasks"]) == (10, 10)
    assert result["repeats"]["0"]["metrics"]["latency_below"]["involved_tasks"] == 10
    assert load_result(tmp_path).counts.stale == 0


def test_a_part_delivers_and_gates_what_the_whole_still_owes(
    local: LocalAgentLoop, tmp_path: Path, caplog: Any
) -> None:
    config = config_for(local, 6)
    fault = local.faults.fail("PutLogs", 401, "Unauthorized")
    record_id = run(config, answer, tmp_path, item_ids=["0", "1", "2"]).record_id
    assert load_result(tmp_path).counts.undelivered == 3
    fault.stop()
    result = run(config, answer, tmp_path, item_ids=["5"])
    assert (result.counts.total, result.counts.undelivered) == (4, 0)
    assert sorted(items(local, record_id)) == ["0", "1", "2", "5"]
    # a row that a killed run has left open stays an open row
    first = next(row for row in result if row.label == "0")
    os.unlink(os.path.join(first.folder, "solution.json"))
    result = run(config, answer, tmp_path, item_ids=["5", "4"])
    assert (result.counts.total, result.counts.incomplete) == (5, 1)
    assert "1 attempt outside this part of the dataset has no result yet" in caplog.text
    assert not gate(result).passed
    assert run(config, answer, tmp_path).counts.succeeded == 6


def test_a_full_run_drops_what_left_the_dataset(local: LocalAgentLoop, tmp_path: Path) -> None:
    run(config_for(local, 4), answer, tmp_path)
    local.load_dataset(item_rows(2), replace=True)
    config = local_config(local, local.create_plan())
    assert run(config, answer, tmp_path, limit=1).counts.total == 4
    result = run(config, answer, tmp_path)
    assert (result.counts.total, result.counts.stale) == (2, 2)


def test_a_directory_of_another_tool_is_moved_away_and_stays_readable(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    folder = tmp_path / "task-a" / "0"
    folder.mkdir(parents=True)
    solution = {"success": True, "output": "x", "trajectory": [], "meta": {}}
    (folder / "solution.json").write_text(json.dumps(solution))
    (tmp_path / "task-a" / "task_meta.json").write_text(json.dumps({"id": "task-a", "input": "q"}))
    meta = {"evaluation_name": "other", "total_repeats": 1, "schema_version": 1}
    (tmp_path / "evaluation_meta.json").write_text(json.dumps(meta))
    record_id = run(config_for(local), answer, tmp_path).record_id
    assert counters(local, record_id) == completed(3)
    (kept,) = (tmp_path / "history").iterdir()
    assert [row.output for row in load_result(kept)] == ["x"]
