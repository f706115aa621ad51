"""Reading the platform's scores: against LocalAgentLoop, and for what a live one may answer."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

import pytest

from agentloop_experiment_sdk import (
    ConfigurationError,
    Experiment,
    LocalAgentLoop,
    load_result,
    local_config,
)
from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi
from agentloop_experiment_sdk.cloud.scores import CloudScore, CloudScores, read_scores
from agentloop_experiment_sdk.cloud.sls import SlsLogstore
from agentloop_experiment_sdk.errors import CloudError


def score(number: int, **fields: Any) -> Dict[str, Any]:
    """A row as the field page documents it."""
    row = {
        "timestamp": 1000 + number,
        "evaluator_name": "judge",
        "score_name": "helpful",
        "score_value": number,
        "normalized_score_value": number / 10,
        "score_range": "[0,10]",
    }
    return dict(row, **fields)


class Running:
    """A LocalAgentLoop with one finished run in it."""

    def __init__(self, local: LocalAgentLoop, path: Any) -> None:
        self.local = local
        plan = local.create_plan(local.load_dataset([{"id": 1, "q": "x"}]))
        experiment = Experiment(local_config(local, plan), lambda task: "a", str(path))
        self.result = experiment.run()
        self.record_id = self.result.record_id
        ends = local.endpoints
        self.access = CloudAccess(
            ends.region_id,
            ends.agentloop_endpoint,
            ends.sls_endpoint,
            AccessKey(ends.access_key_id, ends.access_key_secret),
        )
        self.api = AgentLoopApi(self.access, sleep=lambda seconds: None)

    def read(self, wait: float = 0.0, logstore: Any = None, **options: Any) -> CloudScores:
        """``read_scores`` with the real clients, or with another logstore."""
        return read_scores(
            self.api,
            "local",
            lambda project, name: logstore or SlsLogstore(self.access, project, name),
            self.record_id,
            wait,
            **options,
        )


@pytest.fixture
def running(tmp_path: Any) -> Iterator[Running]:
    with LocalAgentLoop() as local:
        yield Running(local, tmp_path / "results")


class Time:
    """A clock that only sleeping moves; ``then`` is called after each sleep."""

    def __init__(self, then: Any = lambda: None) -> None:
        self.at = 0.0
        self.sleeps: List[float] = []
        self._then = then

    def clock(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.at += seconds
        self._then()

    @property
    def options(self) -> Dict[str, Any]:
        return {"clock": self.clock, "sleep": self.sleep}


def test_scores_are_read_through_the_result_of_a_run(running: Running) -> None:
    rows = [score(number, trace_id="t-1", dataset_item_id=7) for number in range(250)]
    task_id = running.local.score(running.record_id, rows)
    scores = running.result.cloud_scores(wait=30)
    assert (scores.record_id, scores.task_id, scores.status) == (
        running.record_id,
        task_id,
        "completed",
    )
    assert scores.finished and scores.complete and len(scores) == 250
    assert [found.value for found in scores] == [float(number) for number in range(250)]
    assert scores.means() == {"helpful": 124.5}
    second = scores.scores[1]
    assert second.normalized == 0.1 and second.range == (0.0, 10.0)
    assert (second.evaluator, second.status) == ("judge", "success")
    assert (second.item_id, second.trace_id) == ("7", "t-1")
    assert second.row["task_mode"] == "batch" and second.row["eval_id"]


def test_a_result_read_from_disk_has_no_way_to_the_cloud(running: Running) -> None:
    with pytest.raises(ConfigurationError, match="without access to the cloud"):
        load_result(running.result.path).cloud_scores()


def test_rows_of_other_tasks_are_not_taken(running: Running) -> None:
    running.local.put_logs("evaluation_detail", [{"task_id": "another", "score_value": "1"}])
    running.local.score(running.record_id, [score(1)])
    assert len(running.read()) == 1


def test_without_an_evaluation_there_is_nothing_and_no_waiting_by_default(
    running: Running,
) -> None:
    time = Time()
    found = running.read(**time.options)
    assert found == CloudScores(running.record_id)
    assert time.sleeps == []


def test_it_waits_for_the_task_to_begin_and_to_end(running: Running) -> None:
    steps = iter(
        [
            lambda: running.local.score(running.record_id, [score(1)], status="running"),
            lambda: running.local.score(running.record_id, [score(2)], status="completed"),
        ]
    )
    time = Time(lambda: next(steps)())
    found = running.read(wait=100, **time.options)
    assert (found.status, len(found)) == ("completed", 2)
    assert time.sleeps == [1.0, 2.0]


def test_it_waits_no_longer_than_asked(running: Running) -> None:
    running.local.score(running.record_id, [score(1)], status="running")
    time = Time()
    found = running.read(wait=10, **time.options)
    assert (found.finished, len(found)) == (False, 1)
    assert time.sleeps == [1.0, 2.0, 5.0, 2.0]


class Pages:
    """A logstore that answers what it is told: (rows, complete) by call."""

    def __init__(self, *answers: Tuple[List[Dict[str, str]], bool]) -> None:
        self._answers = list(answers)
        self.asked: List[Tuple[str, int, int, int]] = []

    def read(
        self, query: str, from_s: int, to_s: int, *, offset: int = 0, size: int = 100
    ) -> Tuple[List[Dict[str, str]], bool]:
        self.asked.append((query, from_s, to_s, offset))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def text_row(number: int) -> Dict[str, str]:
    return {name: str(value) for name, value in score(number).items()}


def test_an_incomplete_page_is_asked_again(running: Running) -> None:
    running.local.score(running.record_id, [score(1)])
    pages = Pages(([], False), ([text_row(1)], True))
    found = running.read(logstore=pages)
    assert found.complete and len(found) == 1
    assert [asked[3] for asked in pages.asked] == [0, 0]


def test_a_page_that_stays_incomplete_is_said(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.local.score(running.record_id, [score(1)])
    found = running.read(logstore=Pages(([text_row(1)], False)))
    assert (found.complete, len(found)) == (False, 1)
    assert "scores may be missing" in caplog.text


def test_pages_follow_each_other_and_equal_rows_count_once(running: Running) -> None:
    running.local.score(running.record_id, [score(1)])
    full = [text_row(number) for number in range(100)]
    pages = Pages((full, True), ([text_row(99), text_row(100)], True))
    found = running.read(logstore=pages)
    assert len(found) == 101
    assert [asked[3] for asked in pages.asked] == [0, 100]


def test_rows_that_are_not_indexed_yet_are_waited_for_but_not_for_ever(running: Running) -> None:
    running.local.score(running.record_id, [score(1), score(2)])
    time = Time()
    late = Pages(([], True), ([text_row(1), text_row(2)], True))
    assert len(running.read(wait=600, logstore=late, **time.options)) == 2
    assert time.sleeps == [1.0]
    time = Time()
    never = Pages(([text_row(1)], True))
    assert len(running.read(wait=600, logstore=never, **time.options)) == 1
    assert time.at == 30.0


def test_the_time_range_covers_the_run_and_the_query_quotes_the_task(running: Running) -> None:
    task_id = running.local.score(running.record_id, [score(1)])
    pages = Pages(([], True))
    now = running.local.record(running.record_id)["executedAt"] / 1000 + 50
    running.read(logstore=pages, now=lambda: now)
    query, from_s, to_s, _ = pages.asked[0]
    assert query == 'task_id: "{}"'.format(task_id)
    assert from_s <= now - 50 <= now < to_s


class Api:
    """Answers of AgentLoop that LocalAgentLoop does not give."""

    def __init__(self, record: Any, project: str = "p") -> None:
        self._record, self._project = record, project

    def get_run(self, space: str, record_id: str) -> Dict[str, Any]:
        return {"record": self._record}

    def get_evaluation_task(self, space: str, task_id: str) -> Dict[str, Any]:
        return {"status": "Completed"}

    def list_evaluation_runs(self, space: str, task_id: str) -> Dict[str, Any]:
        return {"evaluationRuns": ["odd", {"successCount": None}, {"failedCount": "1"}]}

    def get_agent_space(self, space: str) -> Dict[str, Any]:
        return {"slsProject": self._project}


def read_from(api: Any, logstore: Any, **options: Any) -> CloudScores:
    return read_scores(api, "s", lambda project, name: logstore, "r", **options)


def test_odd_fields_become_none_not_errors() -> None:
    rows = [
        {"score_value": "NaN", "score_range": "high", "status": "failed"},
        {"score_value": "", "score_range": "[1]", "evaluator_display_name": "Judge"},
        {"score_value": "2", "score_range": '["a",1]', "evaluator_name": "e", "traceId": "t"},
        {"score_value": "3", "score_range": "{}"},
    ]
    found = read_from(Api({"evaluationTaskId": "e-1"}), Pages((rows, True)))
    assert [(one.value, one.range) for one in found] == [(None,) * 2] * 2 + [(2, None), (3, None)]
    assert [one.status for one in found] == ["failed", "unknown", "unknown", "unknown"]
    assert [one.evaluator for one in found] == ["", "Judge", "e", ""]
    assert found.scores[2].name == "e" and found.scores[2].trace_id == "t"
    assert found.means() == {"e": 2.0, "": 3.0}
    assert isinstance(found.scores[0], CloudScore)


def test_a_record_without_a_start_is_looked_for_over_a_month() -> None:
    pages = Pages(([], True))
    read_from(Api({"evaluationTaskId": 'a"\\b'}), pages, now=lambda: 100 * 86400.0)
    query, from_s, _, _ = pages.asked[0]
    assert query == 'task_id: "a\\"\\\\b"'
    assert from_s < 70 * 86400


def test_a_record_that_is_no_object_has_no_scores() -> None:
    assert len(read_from(Api(None), Pages(([], True)))) == 0


def test_a_space_without_a_project_is_said() -> None:
    with pytest.raises(ConfigurationError, match="not bound to an SLS project"):
        read_from(Api({"evaluationTaskId": "e"}, project=""), Pages(([], True)))


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan"), True, "5"])
def test_a_wait_that_is_no_time_is_refused(wait: Any) -> None:
    with pytest.raises(ConfigurationError, match="wait must be"):
        read_from(Api({}), Pages(([], True)), wait=wait)


def test_a_run_without_a_record_has_no_scores() -> None:
    with pytest.raises(ConfigurationError, match="no experiment record"):
        read_scores(Api({}), "s", lambda *names: Pages(([], True)), "")  # type: ignore[arg-type]


def test_a_refusal_of_the_cloud_is_passed_on(running: Running) -> None:
    running.local.score(running.record_id, [score(1)])
    with running.local.faults.outage("403", "GetLogs"), pytest.raises(CloudError):
        running.read()
