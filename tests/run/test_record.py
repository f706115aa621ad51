"""The cloud record of a run: created once, kept up to date, closed with the truth."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
from run_support import (
    CAP_S,
    answer,
    completed,
    config_for,
    counters,
    done_counts,
    edit_meta,
    items,
    meta_of,
    run,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import (
    AttemptDone,
    CloudError,
    Experiment,
    ExperimentError,
    local_config,
    run_experiment,
    run_experiment_parallel,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.run.record import RecordOpener
from agentloop_experiment_sdk.run.reporter import OutOfTime, RecordReporter
from agentloop_experiment_sdk.run.tally import Counts


@pytest.mark.parametrize(
    ("count", "milestones"),
    [
        (1, [1, 1, 1, 1, 1]),
        (3, [1, 1, 2, 3, 3]),
        (10, [1, 3, 5, 8, 10]),
        (1000, [100, 250, 500, 750, 1000]),
    ],
)
def test_a_run_is_reported_from_pending_to_completed(
    local: LocalAgentLoop, tmp_path: Path, count: int, milestones: List[int]
) -> None:
    seen: Dict[str, Any] = {}

    def solution(task: Any) -> str:
        if not seen:
            seen.update(local.record(task.metadata["record_id"]), updates=local.updates)
        return answer(task)

    config = config_for(local, count)
    record_id = run_experiment_parallel(config, solution, tmp_path / "r", n_workers=4)
    assert seen["status"] in ("pending", "running")
    updates = local.updates(record_id)
    assert updates[0]["status"] == "running" and updates[0]["totalTasks"] == count
    assert updates[0]["executedAt"] > 0
    assert len(updates) == 7
    assert statuses(local, record_id) == ["running"] * 6 + ["completed"]
    reached = done_counts(local, record_id)
    # an update is sent at once after its milestone; rows that end together are one step
    assert reached == sorted(reached) and reached[-1] == count
    assert all(told >= due for told, due in zip(reached, milestones))
    assert updates[-1]["completedAt"] >= updates[0]["executedAt"]
    assert counters(local, record_id) == completed(count)


def test_milestones_come_at_their_rows_when_rows_end_one_by_one(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    done = threading.Semaphore(1)

    def solution(task: Any) -> str:
        assert done.acquire(timeout=CAP_S)
        return answer(task)

    def on_event(event: Any) -> None:
        if isinstance(event, AttemptDone):
            done.release()

    result = run(config_for(local, 20), solution, tmp_path, on_event=on_event)
    assert done_counts(local, result.record_id) == [2, 5, 10, 15, 20]


def test_failed_and_succeeded_rows_are_counted_apart_over_all_repeats(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def solution(task: Any) -> str:
        if task.input["id"] == "1":
            raise ValueError("bad row")
        return answer(task)

    result = run(config_for(local, 4), solution, tmp_path, n_repeat=3)
    assert counters(local, result.record_id) == completed(12, failed=3)
    assert vars(result.counts)["failed"] == 3


def test_failed_progress_updates_are_logged_and_do_not_stop_the_run(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fault = local.faults.fail("UpdateExperimentRun", 400, "BadUpdate", times=6)
    record_id = run_experiment(config_for(local, 10), answer, tmp_path)
    assert fault.hits == 6
    assert caplog.text.count("could not be updated to running") == 6
    assert "BadUpdate" in caplog.text
    assert counters(local, record_id) == completed(10)


def test_an_update_that_crashes_in_the_client_does_not_end_the_reporter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: List[str] = []

    class Api:
        def update_run(
            self, space: str, record_id: str, body: Dict[str, Any], *, timeout: Any = None
        ) -> Dict[str, Any]:
            told.append(body["status"])
            if len(told) == 1:
                raise TypeError("in the client")
            return {}

    reporter = RecordReporter(Api(), "space", "record")  # type: ignore[arg-type]
    reporter.begin(Counts(1), announce=True)
    reporter.complete(Counts(1, 1))
    assert told == ["running", "completed"]
    assert "in the client" in caplog.text


def test_completing_is_tried_again(local: LocalAgentLoop, tmp_path: Path) -> None:
    # 1 announcement and 5 milestones pass, then two tries to complete fail
    local.faults.fail("UpdateExperimentRun", 503, "ServiceUnavailable", after=6, times=2)
    record_id = run_experiment(config_for(local, 1), answer, tmp_path)
    assert counters(local, record_id) == completed(1)


def test_a_record_that_cannot_be_completed_fails_no_row_and_is_completed_by_the_next_run(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local, 2)
    fault = local.faults.fail("UpdateExperimentRun", 403, "NoPermission", after=6)
    with pytest.raises(CloudError) as caught:
        run_experiment(config, answer, tmp_path)
    assert caught.value.code == "NoPermission"
    assert "All rows are done, but record" in caplog.text
    fault.stop()
    calls: List[str] = []
    record_id = run_experiment(config, lambda task: calls.append(task.id), tmp_path)
    assert not calls and counters(local, record_id) == completed(2)
    assert len(local.rows(record_id)) == 2


def test_giving_up_on_completing_raises_the_last_error() -> None:
    pauses: List[float] = []

    class Api:
        def update_run(self, *_args: Any, **_kwargs: Any) -> Dict[str, Any]:
            raise CloudError(
                "busy", code="Busy", retryable=True, retry_after=pauses and 9.0 or None
            )

    reporter = RecordReporter(Api(), "space", "record", sleep=pauses.append)  # type: ignore[arg-type]
    with pytest.raises(CloudError, match="busy"):
        reporter.complete(Counts(1, 1))
    assert pauses == [0.5, 9.0, 9.0]


def test_after_failed_no_progress_is_told_and_failed_is_told_once_for_the_same_counts() -> None:
    told: List[Any] = []

    class Api:
        def update_run(
            self, space: str, record_id: str, body: Dict[str, Any], *, timeout: Any = None
        ) -> Dict[str, Any]:
            told.append((body["status"], body["completedTasks"], timeout))
            return {}

    reporter = RecordReporter(Api(), "space", "record")  # type: ignore[arg-type]
    reporter.begin(Counts(10), announce=False)
    reporter.fail_now(Counts(10, 4), 2.0)
    reporter.advance(Counts(10, 5))
    reporter.fail_now(Counts(10, 4), 1.0)
    reporter.fail_now(Counts(10, 5), 1.0)
    reporter.join(None)
    reporter.join(None)
    assert told == [("failed", 4, 2.0), ("failed", 5, 1.0)]


def test_a_reporter_that_hangs_is_left_behind_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    class Api:
        def update_run(self, *_args: Any, **_kwargs: Any) -> Dict[str, Any]:
            release.wait(CAP_S)
            return {}

    reporter = RecordReporter(Api(), "space", "record")  # type: ignore[arg-type]
    reporter.fail_now(Counts(1), 1.0)
    reporter.join(0.01)
    assert "has not acknowledged its last update" in caplog.text
    release.set()


# -------------------------------------------------- creation and crashes around it


def test_name_and_token_are_written_down_before_the_record_is_created(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    written: List[Dict[str, Any]] = []

    def look(request: Any) -> bool:
        written.append(dict(meta_of(tmp_path), body=request.json_body(), asked=request.query))
        return False

    local.faults.fail("CreateExperimentRun", when=look)
    run_experiment(config_for(local), answer, tmp_path)
    (meta,) = written
    assert meta["record_id"] is None
    assert meta["record_name"] == meta["body"]["recordName"]
    assert meta["client_token"] == meta["asked"]["clientToken"]


@pytest.mark.parametrize("tokens_ignored", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_a_lost_answer_to_creation_makes_one_record(
    local: LocalAgentLoop, tmp_path: Path, stored: bool, tokens_ignored: bool
) -> None:
    local.faults.ignore_client_tokens(tokens_ignored)
    local.faults.drop("CreateExperimentRun", stored=stored, times=1)
    record_id = run_experiment(config_for(local), answer, tmp_path)
    assert local.records() == [record_id]
    assert counters(local, record_id) == completed(3)


def test_two_runs_that_begin_at_once_and_lose_both_answers_keep_to_their_own_records(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    local.faults.drop("CreateExperimentRun", stored=True, times=2)
    both: Dict[int, str] = {}

    def begin(number: int) -> None:
        both[number] = run_experiment(config, answer, tmp_path / str(number))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP_S)
    assert sorted(both.values()) == sorted(local.records()) and len(local.records()) == 2
    assert all(counters(local, record_id) == completed(3) for record_id in both.values())


def test_of_several_new_records_of_its_name_a_run_takes_the_one_of_its_token(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(local)
    plain = RecordOpener._new_name

    def name_in_use(opener: RecordOpener) -> str:
        # another process has begun in the same second, and has lost its answer, too
        name = plain(opener)
        _create_run(local, config, recordName=name)
        return name

    monkeypatch.setattr(RecordOpener, "_new_name", name_in_use)
    # what the other process created comes first
    local.faults.drop("CreateExperimentRun", stored=True, after=1, times=1)
    record_id = run_experiment(config, answer, tmp_path)
    other, own = local.records()
    assert record_id == own and counters(local, own) == completed(3)
    assert local.record(other)["status"] == "pending"


def test_creation_that_is_refused_is_an_error(local: LocalAgentLoop, tmp_path: Path) -> None:
    local.faults.fail("CreateExperimentRun", 403, "NoPermission")
    with pytest.raises(CloudError) as caught:
        run_experiment(config_for(local), answer, tmp_path)
    assert caught.value.code == "NoPermission" and caught.value.request_id
    assert not local.records() and local.requests["CreateExperimentRun"] == 1
    assert meta_of(tmp_path)["status"] == "failed"  # nothing runs, and show must not say so


def test_creation_is_tried_again_after_an_outage_and_given_up_in_the_end(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    local.faults.outage("503", "CreateExperimentRun", times=1)
    run_experiment(config, answer, tmp_path / "a")
    assert len(local.records()) == 1
    local.faults.outage("503", "CreateExperimentRun")
    with pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path / "b")
    assert len(local.records()) == 1


def test_a_record_that_was_made_without_an_answer_is_found_by_the_next_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    local.faults.ignore_client_tokens()
    # stored but not answered, and the list is out as well: as after a crash around the call
    with local.faults.drop("CreateExperimentRun", stored=True), local.faults.fail(
        "ListExperimentRuns", 403, "NoPermission"
    ), pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path)
    (made,) = local.records()
    assert run_experiment(config, answer, tmp_path) == made
    assert local.records() == [made]
    assert counters(local, made) == completed(3)


def test_a_name_without_a_record_of_that_name_makes_one(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    with local.faults.fail("CreateExperimentRun", 400, "BadRequest"), pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path)
    name, token = meta_of(tmp_path)["record_name"], meta_of(tmp_path)["client_token"]
    record_id = run_experiment(config, answer, tmp_path)
    assert local.record(record_id)["recordName"] == name
    assert meta_of(tmp_path)["client_token"] == token


def test_a_crash_before_the_record_id_was_written_is_found_again_in_the_list(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    local.faults.ignore_client_tokens()
    with local.faults.drop("CreateExperimentRun", stored=True), local.faults.fail(
        "ListExperimentRuns", 403, "NoPermission"
    ), pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path / "crashed")
    (made,) = local.records()
    # other runs of the plan are newer, more than a page of them, some in the same second
    for number in range(60):
        _create_run(local, config, recordName="other {}".format(number))
    assert run_experiment(config, answer, tmp_path / "other") != made
    assert run_experiment(config, answer, tmp_path / "crashed") == made
    assert counters(local, made) == completed(3)


def test_a_record_that_another_run_uses_under_the_same_name_is_left_alone(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    other = run_experiment(config, answer, tmp_path / "other")
    local.faults.ignore_client_tokens()
    with local.faults.fail("CreateExperimentRun", 400, "BadRequest"), pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path / "crashed")
    # names have a resolution of a second
    edit_meta(tmp_path / "crashed", record_name=local.record(other)["recordName"])
    assert run_experiment(config, answer, tmp_path / "crashed") != other
    assert len(local.rows(other)) == 3


def _create_run(local: LocalAgentLoop, config: Any, **fields: Any) -> None:
    from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi

    AgentLoopApi(config.connection.access()).create_run(
        config.agent_space,
        {
            "experimentPlanId": config.experiment_plan_id,
            "offlineExperiments": [{"label": "experimentA", "name": "x"}],
            **fields,
        },
    )


def test_an_answer_without_a_record_id_is_an_error() -> None:
    from agentloop_experiment_sdk.run.record import _record_id

    with pytest.raises(CloudError, match="without a recordId") as caught:
        _record_id({"requestId": "r-1"})
    assert caught.value.request_id == "r-1"


# ------------------------------------------------------------------ reopening


def finished(local: LocalAgentLoop, path: Path, count: int = 3) -> Any:
    config = config_for(local, count)
    return config, run_experiment(config, answer, path)


@pytest.mark.parametrize("how", [{}, {"answer": "persisted"}, {"answer": "failed"}])
def test_a_record_that_may_not_be_reopened_gives_way_to_a_new_one_with_all_rows(
    local: LocalAgentLoop, tmp_path: Path, how: Dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    config, first = finished(local, tmp_path)
    local.faults.refuse_reopen(**how)
    calls: List[str] = []
    experiment = Experiment(
        config, lambda task: calls.append(task.id) or answer(task), tmp_path, n_repeat=2
    )
    second = experiment.run().record_id
    assert second != first and len(calls) == 3
    assert "cannot be continued" in caplog.text
    assert len(local.rows(second)) == 6
    assert counters(local, second) == completed(6)
    assert counters(local, first) == completed(3)
    assert meta_of(tmp_path)["record_id"] == second


def test_a_complete_run_needs_no_reopening(local: LocalAgentLoop, tmp_path: Path) -> None:
    config, first = finished(local, tmp_path)
    local.faults.refuse_reopen()
    assert run_experiment(config, answer, tmp_path) == first


def test_a_vanished_record_gives_way_to_a_new_one(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config, first = finished(local, tmp_path)
    edit_meta(tmp_path, record_id="00000000-0000-0000-0000-000000000000")
    second = run_experiment(config, lambda task: 1 / 0, tmp_path)
    assert second not in (first, "00000000-0000-0000-0000-000000000000")
    (line,) = [r.getMessage() for r in caplog.records if "new one" in r.getMessage()]
    assert "it is not there any more; all rows go under a new one." in line and len(line) < 120
    assert len(local.rows(second)) == 3 and counters(local, second) == completed(3)


def test_an_outage_while_reopening_is_an_error_and_changes_nothing(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, first = finished(local, tmp_path)
    with local.faults.outage("503", "UpdateExperimentRun"), pytest.raises(CloudError):
        run_experiment(config, answer, tmp_path, n_repeat=2)
    assert local.records() == [first]
    assert meta_of(tmp_path)["status"] == "failed"  # of six rows three have no result
    assert run_experiment(config, answer, tmp_path, n_repeat=2) == first
    assert counters(local, first) == completed(6)


def test_a_completion_that_hangs_has_the_time_that_an_ended_run_leaves_it() -> None:
    release = threading.Event()

    class Api:
        def update_run(self, *_args: Any, **_kwargs: Any) -> Dict[str, Any]:
            release.wait(CAP_S)
            return {}

    for ahead in (False, True):
        reporter = RecordReporter(Api(), "space", "record")  # type: ignore[arg-type]
        if ahead:  # an earlier update hangs already
            reporter.begin(Counts(1), announce=True)
        reporter.hurry(0.05)
        with pytest.raises(OutOfTime):
            reporter.complete(Counts(1, 1))
    release.set()


def test_stopping_a_run_whose_record_is_not_acknowledged_leaves_it_for_the_next_run(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(local)
    experiment = Experiment(config, answer, tmp_path, stop_grace=0.1)
    with local.faults.outage("hang", "UpdateExperimentRun"):
        stopper = threading.Thread(
            target=lambda: (wait_until(lambda: len(local.rows()) == 3), experiment.stop())
        )
        stopper.start()
        result = experiment.run()
        stopper.join(CAP_S)
    assert result.status == "interrupted" and result.counts.undelivered == 0
    again = run(config, answer, tmp_path)
    assert (again.record_id, again.status) == (result.record_id, "completed")
    assert counters(local, result.record_id) == completed(3)


# ------------------------------------------------------ given by the caller


def test_rows_are_written_under_a_record_that_the_caller_made(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    _create_run(local, config)
    (given,) = local.records()
    assert run(config, answer, tmp_path, record_id=given).record_id == given
    assert local.records() == [given]
    updates = local.updates(given)
    assert updates[0]["status"] == "running" and updates[0]["executedAt"] > 0
    assert counters(local, given) == completed(3)


def test_a_complete_run_is_told_again_under_another_given_record(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, first = finished(local, tmp_path)
    _create_run(local, config)
    given = local.records()[-1]
    assert run(config, answer, tmp_path, record_id=given).record_id == given
    assert statuses(local, given)[0] == "running"
    assert len(local.rows(given)) == 3 and counters(local, given) == completed(3)
    assert len(local.rows(first)) == 3


def test_a_given_record_that_cannot_be_written_is_an_error(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    with pytest.raises(ExperimentError, match="The record nowhere cannot be written"):
        run(config_for(local), answer, tmp_path, record_id="nowhere")
    assert not local.records()


def test_a_given_record_that_is_not_there_is_found_before_results_are_touched(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, first = finished(local, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for options in ({}, {"resume": False}, {"n_repeat": 2}):
        with pytest.raises(ExperimentError, match="nowhere cannot be written: there is no such"):
            run(config, answer, tmp_path, record_id="nowhere", **options)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert local.records() == [first] and statuses(local, first)[-1] == "completed"


def test_a_given_record_need_not_be_readable(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    _create_run(local, config)
    (given,) = local.records()
    local.faults.fail("GetExperimentRun", 403, "NoPermission")
    assert run(config, answer, tmp_path, record_id=given).record_id == given


def test_a_given_record_that_cannot_be_asked_for_is_an_error(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    with local.faults.outage("503", "GetExperimentRun"), pytest.raises(CloudError):
        run(config_for(local), answer, tmp_path / "r", record_id="any")
    assert not (tmp_path / "r" / "evaluation_meta.json").exists()


def test_a_given_record_that_refuses_leaves_finished_results_finished(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config, _ = finished(local, tmp_path)
    _create_run(local, config)
    local.faults.fail("UpdateExperimentRun", 403, "NoPermission")
    with pytest.raises(ExperimentError, match="cannot be written"):
        run(config, answer, tmp_path, record_id=local.records()[-1])
    assert meta_of(tmp_path)["status"] == "completed"


def test_a_given_client_token_creates_the_record(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    first = run(config, answer, tmp_path / "a", client_token="launcher-1").record_id
    # the launcher lost its answer and starts again elsewhere: the platform knows the token
    second = run(config, answer, tmp_path / "b", client_token="launcher-1").record_id
    assert first == second and local.records() == [first]


def test_the_same_plan_may_be_run_in_several_spaces_and_names(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    other = local_config(local, config.experiment_plan_id, experiment_name="experimentB")
    first = run_experiment(config, answer, tmp_path / "a")
    second = run_experiment(other, answer, tmp_path / "b")
    assert first != second
    assert local.record(second)["experimentConfig"] == [
        {"label": "experimentA", "name": "experimentB"}
    ]
    assert sorted(items(local, second)) == ["0", "1", "2"]
