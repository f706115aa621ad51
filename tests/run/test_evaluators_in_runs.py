"""Local evaluators through a run, on resume, and over a directory that is there."""

from __future__ import annotations

import asyncio
import json
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
    journal,
    meta_of,
    run,
    solutions,
    statuses,
    wait_until,
)

from agentloop_experiment_sdk import (
    ConfigurationError,
    Experiment,
    ResultsDirectoryError,
    SolutionOutput,
    Task,
    contains,
    deliver,
    evaluate,
    load_result,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.run.advice import ScoringNotice


def length(task: Task, output: SolutionOutput) -> int:
    return len(str(output.output))


async def kind(task: Task, output: SolutionOutput) -> str:
    await asyncio.sleep(0)
    return "even" if int(task.input["id"]) % 2 == 0 else "odd"


def metrics_of(row: Dict[str, str]) -> Dict[str, Any]:
    read: Dict[str, Any] = json.loads(row["experiment_metrics"])
    return read


def files(path: Path) -> List[str]:
    return sorted(file.name for file in path.glob("*/*/evaluation/*.json"))


def test_scores_are_stored_sent_and_summed_up(local: LocalAgentLoop, tmp_path: Path) -> None:
    result = run(config_for(local, 4), answer, tmp_path, evaluators=[length, kind])
    assert files(tmp_path) == ["kind.json"] * 4 + ["length.json"] * 4
    rows = local.rows()
    assert len(rows) == 4
    for row in rows:
        metrics = metrics_of(row)
        assert metrics["length"] == 20
        assert metrics["kind"] == ("even" if int(row["dataset.id"]) % 2 == 0 else "odd")
    assert result.metrics["length"].values == (20.0,) * 4
    stored = json.loads((tmp_path / "evaluation_result.json").read_text("utf-8"))
    assert set(stored["repeats"]["0"]["metrics"]) == {"length", "kind"}
    assert meta_of(tmp_path)["evaluators"] == ["length", "kind"]


def test_an_evaluator_that_raises_leaves_its_error_and_the_row_is_sent(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(task: Task, output: SolutionOutput) -> None:
        raise SystemExit("no judge")

    result = run(config_for(local), answer, tmp_path, evaluators=[broken, length])
    assert counters(local, result.record_id) == completed(3)
    for row in local.rows():
        assert "broken" not in metrics_of(row) and "length" in metrics_of(row)
    assert len(files(tmp_path)) == 6
    told = [r.getMessage() for r in caplog.records if "gave a row no score" in r.getMessage()]
    assert len(told) == 1 and "broken gave a row no score: SystemExit: no judge." in told[0]


def test_a_complete_run_has_nothing_to_score(local: LocalAgentLoop, tmp_path: Path) -> None:
    calls: List[str] = []

    def noting(task: Task, output: SolutionOutput) -> bool:
        calls.append(task.id)
        return True

    def skipping(task: Task) -> SolutionOutput:
        return SolutionOutput.success("", meta={"skipped": task.input["id"] == "1"})

    config = config_for(local)
    record_id = run(config, skipping, tmp_path, evaluators=[noting]).record_id
    assert len(calls) == 2, "skipped rows are not scored"
    updates = len(local.updates(record_id))
    run(config, skipping, tmp_path, evaluators=[noting])
    assert len(calls) == 2
    # a skipped row lacks its scores for ever, which is no reason to open the record again
    assert statuses(local, record_id)[updates:] == ["completed"]


def test_resume_runs_missing_evaluators_only_and_sends_no_row_twice(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    calls: List[str] = []

    def first(task: Task, output: SolutionOutput) -> bool:
        calls.append("first")
        return True

    record_id = run(config, answer, tmp_path, evaluators=[first]).record_id
    result = run(config, lambda task: 1 / 0, tmp_path, evaluators=[first, length])
    assert calls == ["first"] * 3 and result.record_id == record_id
    assert len(files(tmp_path)) == 6 and len(local.rows()) == 3
    assert counters(local, record_id) == completed(3)
    assert set(result.metrics) == {"first", "length"}


def test_undelivered_rows_are_sent_with_their_scores(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    with local.faults.fail("PutLogs", 401, "Unauthorized"):
        run(config, answer, tmp_path / "a", evaluators=[length])
        run(config, answer, tmp_path / "b", evaluators=[length])
    deliver(tmp_path / "a", config)
    run(config, answer, tmp_path / "b", evaluators=[length, kind])
    for path, names in (("a", {"length"}), ("b", {"length", "kind"})):
        rows = local.rows(meta_of(tmp_path / path)["record_id"])
        assert len(rows) == 3
        for row in rows:
            assert names <= set(metrics_of(row))


def test_a_row_that_runs_again_is_scored_again(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local)
    fail = [True]

    def sometimes(task: Task) -> str:
        if fail[0] and task.input["id"] == "1":
            raise ValueError("bad")
        return answer(task)

    ok = contains("answer", name="ok")
    run(config, sometimes, tmp_path, evaluators=[ok])
    fail[0] = False
    run(config, sometimes, tmp_path, evaluators=[ok], retry_failed=True)
    assert [row.evaluations["ok"]["result"] for row in load_result(tmp_path)] == [True] * 3
    last = [row for row in local.rows() if row["dataset.id"] == "1"][-1]
    assert metrics_of(last)["ok"] is True and last["attempt"] == "2"


def test_a_row_that_runs_again_without_evaluators_keeps_no_score_of_its_old_answer(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 1)
    run(config, lambda task: 1 / 0, tmp_path, evaluators=[length])
    assert len(files(tmp_path)) == 1
    run(config, answer, tmp_path, retry_failed=True)
    assert files(tmp_path) == []
    assert "length" not in metrics_of(local.rows()[-1])


def test_stop_leaves_unscored_rows_for_the_next_run(local: LocalAgentLoop, tmp_path: Path) -> None:
    config = config_for(local, 8)
    begun, release = threading.Event(), threading.Event()

    def slow(task: Task, output: SolutionOutput) -> bool:
        begun.set()
        release.wait(CAP_S)
        return True

    results: List[Any] = []
    options = {"evaluators": [slow], "stop_grace": 0.5}
    experiment = Experiment(config, answer, tmp_path, **options)  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: results.append(experiment.run()), daemon=True)
    thread.start()
    assert begun.wait(CAP_S)
    wait_until(lambda: len(journal(tmp_path).saved) == 8)
    experiment.stop()
    thread.join(CAP_S)
    assert results[0].counts.undelivered == 8 and not local.rows()
    release.set()
    result = run(config, lambda task: 1 / 0, tmp_path, evaluators=[slow])
    assert len(local.rows()) == 8 and all("slow" in metrics_of(row) for row in local.rows())
    assert counters(local, result.record_id) == completed(8)


def test_an_interrupt_inside_an_evaluator_ends_the_run(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    def interrupted(task: Task, output: SolutionOutput) -> bool:
        raise KeyboardInterrupt

    config = config_for(local)
    with pytest.raises(KeyboardInterrupt):
        run(config, answer, tmp_path, evaluators=[interrupted])
    assert meta_of(tmp_path)["status"] == "interrupted"
    result = run(config, answer, tmp_path, evaluators=[length])
    assert counters(local, result.record_id) == completed(3) and result.counts.undelivered == 0


def test_a_run_that_waits_for_its_evaluators_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([0.0, 29.0, 30.0, 31.0])
    notice = ScoringNotice(lambda: next(times))
    for _ in range(3):
        notice.tell(2)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "2 rows are still to be scored" in line and "Ctrl-C ends the wait" in line


def test_a_run_stopped_while_it_waits_for_an_evaluator_says_how_to_go_on(
    local: LocalAgentLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    release, begun = threading.Event(), threading.Event()

    def slow(task: Task, output: SolutionOutput) -> bool:
        begun.set()
        return release.wait(CAP_S)

    config = config_for(local)
    experiment = Experiment(config, answer, tmp_path, evaluators=[slow], stop_grace=0.1)
    stopper = threading.Thread(target=lambda: (begun.wait(CAP_S), experiment.stop()))
    stopper.start()
    result = experiment.run()
    stopper.join(CAP_S)
    release.set()
    if result.counts.incomplete == 0:
        assert "all its rows were answered, but not all sent; run it again" in caplog.text
    assert "retry_failed" not in caplog.text


def test_scores_that_cannot_be_written_end_the_run_with_a_clear_error(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local, 4)

    def in_the_way(task: Task, output: SolutionOutput) -> bool:
        (solutions(tmp_path)[0].parent / "evaluation").touch()
        for path in solutions(tmp_path):
            target = path.parent / "evaluation"
            if not target.exists():
                target.touch()
        return True

    with pytest.raises(ResultsDirectoryError, match="cannot be written"):
        run(config, answer, tmp_path, evaluators=[in_the_way])
    (record_id,) = local.records()
    assert statuses(local, record_id)[-1] == "failed"


# ------------------------------------------------------------------------ evaluate()


def test_evaluate_scores_a_finished_run_afresh_without_calling_anyone(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_for(local)
    run(config, answer, tmp_path, evaluators=[length])
    before = local.requests
    result = evaluate(tmp_path, [kind, contains("question 1", name="one")])
    assert local.requests == before
    assert set(result.metrics) == {"kind", "one"}
    assert [row.evaluations["one"]["result"] for row in result] == [False, True, False]
    stored = json.loads((tmp_path / "evaluation_result.json").read_text("utf-8"))
    assert set(stored["repeats"]["0"]["metrics"]) == {"kind", "one"}
    assert meta_of(tmp_path)["evaluators"] == ["kind", "one"]
    assert meta_of(tmp_path)["status"] == "completed"
    # the journal was folded again, and the run can go on
    assert run(config, lambda task: 1 / 0, tmp_path).counts.succeeded == 3


def test_evaluate_passes_over_rows_without_a_result(local: LocalAgentLoop, tmp_path: Path) -> None:
    run(config_for(local), answer, tmp_path)
    (solutions(tmp_path)[0].parents[1] / "task_meta.json").unlink()
    solutions(tmp_path)[1].unlink()
    result = evaluate(tmp_path, [length])
    assert len(files(tmp_path)) == 1 and result.counts.incomplete == 1


def test_evaluate_says_what_is_missing(local: LocalAgentLoop, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="at least one evaluator"):
        evaluate(tmp_path, [])
    with pytest.raises(ResultsDirectoryError):
        evaluate(tmp_path / "none", [length])
