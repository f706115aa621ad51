"""What a pipeline makes of the trace of each row: on a grid, without a waiting worker."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import pytest
from results_values import VirtualTime, eventually, saved

from agentloop_experiment_sdk.cloud.access import AccessKey, CloudAccess
from agentloop_experiment_sdk.cloud.agentloop import AgentLoopApi
from agentloop_experiment_sdk.errors import CloudError
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.results.delivery import Outgoing
from agentloop_experiment_sdk.results.pipeline import (
    GIVE_UP_S,
    PREVIEWS_AT_ONCE,
    RETRY_S,
    Pipeline,
    Waiting,
)
from agentloop_experiment_sdk.results.preview import UnboundSourceError, bound_query, preview_body

DEFINITION = {
    "source": {"type": "logstore", "logstore": {"logstore": "traces", "query": "*", "new": 1}},
    "pipeline": {"nodes": [{"id": "n", "type": "project"}], "unknown": {"kept": True}},
}
STARTED_MS = 1796025600123


def trace(number: int) -> str:
    return "{:032x}".format(number + 1)


class ScriptedApi:
    """Answers previews as the test says, and notes when each trace was asked for."""

    def __init__(self, clock: VirtualTime) -> None:
        self.definition: Any = DEFINITION
        self.fetches = 0
        self.answer: Callable[[str], Any] = lambda trace_id: []
        self.asked: Dict[str, List[float]] = {}
        self.bodies: List[Mapping[str, Any]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._clock = clock
        self._lock = threading.Lock()

    def get_pipeline(self, space: str, name: str) -> Dict[str, Any]:
        assert (space, name) == ("space", "clean")
        self.fetches += 1
        if isinstance(self.definition, Exception):
            raise self.definition
        return self.definition  # type: ignore[no-any-return]

    def preview_pipeline(self, space: str, body: Mapping[str, Any]) -> Dict[str, Any]:
        trace_id = body["source"]["logstore"]["query"].split('"')[1]
        with self._lock:
            self.bodies.append(body)
            self.asked.setdefault(trace_id, []).append(self._clock.now)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            answer = self.answer(trace_id)
        finally:
            with self._lock:
                self._at_once -= 1
        if isinstance(answer, Exception):
            raise answer
        return {"data": answer}


class Asking:
    """A pipeline over a scripted API, and what it passes on."""

    def __init__(self, api: Any, clock: VirtualTime, **options: Any) -> None:
        self.done: Dict[str, Tuple[Optional[Mapping[str, Any]], str]] = {}
        self.kept: List[Mapping[str, Any]] = []
        self.clock = clock
        options.setdefault("keep", self.kept.append)
        self.pipeline = Pipeline(
            api,
            "space",
            "clean",
            self._done,
            clock=clock.clock,
            now=lambda: 1796025600 + clock.now,
            wait=clock.wait,
            **options,
        )
        self.started = 0

    def _done(self, row: Outgoing, fields: Optional[Mapping[str, Any]], reason: str) -> None:
        assert row.saved.task_id not in self.done
        self.done[row.saved.task_id] = (fields, reason)

    def submit(self, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            row = Outgoing(saved(number))
            self.pipeline.submit(Waiting(row, trace(number), STARTED_MS))

    def settle(self, threads: int = PREVIEWS_AT_ONCE) -> None:
        self.clock.settle(threads)

    def advance(self, seconds: float, threads: int = PREVIEWS_AT_ONCE) -> None:
        self.clock.advance(seconds, threads)

    def of(self, number: int) -> Tuple[Optional[Mapping[str, Any]], str]:
        return self.done[saved(number).task_id]


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def api(clock: VirtualTime) -> ScriptedApi:
    return ScriptedApi(clock)


@pytest.fixture
def asking(api: ScriptedApi, clock: VirtualTime) -> Iterator[Asking]:
    started = Asking(api, clock)
    yield started
    started.pipeline.close()


def test_the_first_preview_is_at_once_and_only_its_first_row_counts(
    asking: Asking, api: ScriptedApi
) -> None:
    api.answer = lambda trace_id: [{"answer": trace_id, "gone": None}, {"answer": "other"}]
    asking.submit(3)
    eventually(lambda: len(asking.done) == 3)
    assert [asking.of(n)[0] for n in range(3)] == [
        {"answer": trace(n), "gone": None} for n in range(3)
    ]
    assert asking.pipeline.waiting == 0


def test_all_rows_are_asked_for_on_the_same_grid_and_none_waits_for_another(
    asking: Asking, api: ScriptedApi, clock: VirtualTime
) -> None:
    """A hundred rows whose traces appear after twenty seconds take twenty seconds."""
    began = clock.now
    api.answer = lambda trace_id: [{"x": trace_id}] if clock.now >= began + 20 else []
    asking.submit(100)
    eventually(lambda: len(api.asked) == 100)
    asking.settle()
    for _ in range(4):
        asking.advance(5.0)
        eventually(lambda: sum(map(len, api.asked.values())) % 100 == 0)
    eventually(lambda: len(asking.done) == 100)
    assert {tuple(times) for times in api.asked.values()} == {(began, began + 10, began + 20)}
    assert all(asking.of(n)[0] == {"x": trace(n)} for n in range(100))
    assert api.fetches == 1


def test_previews_are_limited_in_number_at_a_time(asking: Asking, api: ScriptedApi) -> None:
    gate = threading.Semaphore(0)

    def held(trace_id: str) -> Any:
        assert gate.acquire(timeout=60)
        return [{"a": 1}]

    api.answer = held
    asking.submit(1)
    eventually(lambda: api.most_at_once == 1)
    asking.submit(30, start=1)
    eventually(lambda: api.most_at_once == PREVIEWS_AT_ONCE)
    for _ in range(31):
        gate.release()
    eventually(lambda: len(asking.done) == 31)
    assert api.most_at_once == PREVIEWS_AT_ONCE == 8


def test_rows_that_come_one_by_one_do_not_queue_behind_a_slow_preview(
    asking: Asking, api: ScriptedApi
) -> None:
    hold = threading.Event()
    api.answer = lambda trace_id: [{"a": 1}] if trace_id != trace(1) or hold.wait(60) else []
    asking.submit(1)
    eventually(lambda: len(asking.done) == 1)
    asking.submit(1, start=1)
    eventually(lambda: trace(1) in api.asked)
    asking.submit(1, start=2)
    eventually(lambda: saved(2).task_id in asking.done)
    hold.set()


def test_a_row_is_given_up_after_two_minutes(
    asking: Asking, api: ScriptedApi, clock: VirtualTime
) -> None:
    began = clock.now
    asking.submit(1)
    eventually(lambda: api.asked)
    for _ in range(int(GIVE_UP_S / RETRY_S) - 1):
        asking.advance(RETRY_S, 1)
    assert not asking.done
    asking.advance(RETRY_S, 1)
    fields, reason = asking.of(0)
    assert fields is None and reason == "its trace was not in the pipeline's source within 120 s"
    assert api.asked[trace(0)] == [began + RETRY_S * n for n in range(13)]


def test_previews_that_fall_behind_stay_on_the_grid_and_end_in_time(
    asking: Asking, api: ScriptedApi, clock: VirtualTime
) -> None:
    began = clock.now

    def slow(trace_id: str) -> Any:
        clock.now += 25.0
        return []

    api.answer = slow
    asking.submit(1)
    eventually(lambda: api.asked)
    while not asking.done:
        asking.advance(5.0, 1)
    assert all((when - began) % RETRY_S == 0 for when in api.asked[trace(0)])
    assert api.asked[trace(0)][-1] <= began + GIVE_UP_S


def test_each_preview_looks_up_to_a_minute_from_now(
    asking: Asking, api: ScriptedApi, clock: VirtualTime
) -> None:
    asking.submit(1)
    eventually(lambda: api.bodies)
    asking.advance(RETRY_S, 1)
    first, second = api.bodies
    assert first["fromTime"] == second["fromTime"] == STARTED_MS // 1000 - 60
    assert first["toTime"] == 1796025600 + 1000 + 60 and second["toTime"] == first["toTime"] + 10


def test_the_definition_is_fetched_once_kept_and_sent_without_loss(
    asking: Asking, api: ScriptedApi
) -> None:
    api.answer = lambda trace_id: [{"a": 1}]
    asking.submit(20)
    eventually(lambda: len(asking.done) == 20)
    assert api.fetches == 1 and asking.kept == [DEFINITION]
    body = api.bodies[0]
    assert body["pipeline"] == DEFINITION["pipeline"]
    assert body["source"] == {
        "type": "logstore",
        "logstore": {
            "logstore": "traces",
            "query": '(*) and traceId: "{}"'.format(
                api.bodies[0]["source"]["logstore"]["query"][-33:-1]
            ),
            "new": 1,
        },
    }
    assert DEFINITION["source"]["logstore"]["query"] == "*"  # type: ignore[index]


def test_a_known_definition_is_not_fetched(api: ScriptedApi, clock: VirtualTime) -> None:
    api.answer = lambda trace_id: [{"a": 1}]
    asking = Asking(api, clock, definition=DEFINITION)
    asking.submit(2)
    eventually(lambda: len(asking.done) == 2)
    assert api.fetches == 0 and asking.kept == []
    asking.pipeline.close()


def test_a_definition_that_cannot_be_stored_is_used_all_the_same(
    api: ScriptedApi, clock: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    def full(definition: Any) -> None:
        raise OSError(28, "No space left on device")

    api.answer = lambda trace_id: [{"a": 1}]
    asking = Asking(api, clock, keep=full)
    asking.submit(2)
    eventually(lambda: len(asking.done) == 2)
    assert asking.of(0)[0] == {"a": 1} and "could not be stored" in caplog.text
    asking.pipeline.close()


def test_a_row_without_a_trace_is_passed_on_at_once(asking: Asking, api: ScriptedApi) -> None:
    for number, missing in enumerate((None, "")):
        asking.pipeline.submit(Waiting(Outgoing(saved(number)), missing, STARTED_MS))
    assert asking.of(0) == asking.of(1) == (None, "the solution returned no trace id")
    assert api.fetches == 0


def test_a_refused_definition_is_asked_for_once_for_all_rows(
    asking: Asking, api: ScriptedApi
) -> None:
    api.definition = CloudError("GetPipeline is not allowed.", code="Forbidden", status=403)
    asking.submit(50)
    eventually(lambda: len(asking.done) == 50)
    assert api.fetches == 1 and not api.asked
    assert asking.of(49) == (None, "GetPipeline is not allowed")


def test_a_definition_that_cannot_be_had_now_is_asked_for_again_on_the_grid(
    asking: Asking, api: ScriptedApi
) -> None:
    api.definition = CloudError("busy", status=503, retryable=True)
    api.answer = lambda trace_id: [{"a": 1}]
    asking.submit(50)
    eventually(lambda: api.fetches == 1)
    asking.settle(8)
    assert api.fetches == 1 and not asking.done
    api.definition = DEFINITION
    asking.advance(RETRY_S, 8)
    eventually(lambda: len(asking.done) == 50)
    assert api.fetches == 2 and asking.of(7)[0] == {"a": 1}


def test_an_api_error_ends_the_wait_and_one_that_may_pass_does_not(
    asking: Asking, api: ScriptedApi
) -> None:
    final = CloudError("PreviewPipeline refused.", code="InvalidPipeline", status=400)
    passing = CloudError("try later.", code="ServerBusy", status=503, retryable=True)
    api.answer = lambda trace_id: final if trace_id == trace(0) else passing
    asking.submit(2)
    eventually(lambda: len(asking.done) == 1 and len(api.asked) == 2)
    assert asking.of(0) == (None, "PreviewPipeline refused")
    api.answer = lambda trace_id: [{"a": 1}]
    asking.advance(RETRY_S, 1)
    eventually(lambda: len(asking.done) == 2)
    assert asking.of(1)[0] == {"a": 1}


def test_an_error_that_does_not_pass_in_two_minutes_is_the_reason(
    asking: Asking, api: ScriptedApi
) -> None:
    api.answer = lambda trace_id: CloudError("busy.", code="Busy", status=503, retryable=True)
    asking.submit(1)
    eventually(lambda: api.asked)
    for _ in range(12):
        asking.advance(RETRY_S, 1)
    assert asking.of(0) == (None, "busy")


def test_an_unexpected_error_costs_the_row_its_fields_and_nothing_else(
    asking: Asking, api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.answer = lambda trace_id: KeyError("odd") if trace_id == trace(0) else [{"a": 1}]
    asking.submit(3)
    eventually(lambda: len(asking.done) == 3)
    assert asking.of(0) == (None, "an unexpected KeyError: 'odd'")
    assert asking.of(2)[0] == {"a": 1}


@pytest.mark.parametrize("answer", [None, "x", [], [None], ["text"], {}])
def test_answers_without_a_row_are_asked_again(
    asking: Asking, api: ScriptedApi, answer: Any
) -> None:
    api.answer = lambda trace_id: answer
    asking.submit(1)
    eventually(lambda: api.asked)
    asking.settle(1)
    assert not asking.done and asking.pipeline.waiting == 1
    api.answer = lambda trace_id: [{}]
    asking.advance(RETRY_S, 1)
    assert asking.of(0)[0] == {}


def test_reasons_are_logged_once_each_with_their_number(
    asking: Asking, api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(trace_id: str) -> CloudError:
        return CloudError("refused (request id {}).".format(trace_id), code="No", status=403)

    api.answer = refused
    with caplog.at_level(logging.WARNING):
        asking.submit(9)
        for number in (20, 21):
            asking.pipeline.submit(Waiting(Outgoing(saved(number)), None, STARTED_MS))
        eventually(lambda: len(asking.done) == 11)
        asking.pipeline.report()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert any("9 rows have no fields of pipeline clean: refused" in text for text in messages)
    assert "2 rows have no fields of pipeline clean: the solution returned no trace id." in messages


def test_closing_returns_the_rows_that_still_wait_and_passes_none_on(
    asking: Asking, api: ScriptedApi
) -> None:
    asking.submit(3)
    eventually(lambda: len(api.asked) == 3)
    asking.settle(3)
    left = asking.pipeline.close()
    assert sorted(row.saved.task_id for row in left) == sorted(saved(n).task_id for n in range(3))
    assert asking.pipeline.waiting == 0 and not asking.done
    assert asking.pipeline.close() == []


def test_a_row_under_way_when_it_closes_is_not_passed_on_stripped(
    asking: Asking, api: ScriptedApi
) -> None:
    hold = threading.Event()
    api.answer = lambda trace_id: [] if hold.wait(60) else []
    asking.submit(1)
    eventually(lambda: api.asked)
    asking.pipeline.close()
    hold.set()
    eventually(lambda: asking.pipeline.waiting == 0)
    assert not asking.done


@pytest.mark.parametrize(
    "query, bound",
    [
        ("*", '(*) and traceId: "T"'),
        ("", '(*) and traceId: "T"'),
        ("a or b", '(a or b) and traceId: "T"'),
        ("* | select x", '(*) and traceId: "T" | select x'),
        ("| select x", '(*) and traceId: "T" | select x'),
        ("a or b|select x | y", '(a or b) and traceId: "T" |select x | y'),
        ('k: "a|b" and c', '(k: "a|b" and c) and traceId: "T"'),
        ('k: "a\\"|b" | select "|"', '(k: "a\\"|b") and traceId: "T" | select "|"'),
        ('k: "a\\\\" | select x', '(k: "a\\\\") and traceId: "T" | select x'),
        ('k: "open | x', '(k: "open | x) and traceId: "T"'),
    ],
)
def test_the_query_is_bound_to_one_trace_and_its_analysis_kept(query: str, bound: str) -> None:
    assert bound_query(query, "T") == bound


@pytest.mark.parametrize(
    "definition, why",
    [
        ({}, "not a logstore"),
        ({"source": {"type": "dataset", "dataset": {}}, "pipeline": {"nodes": [1]}}, "logstore"),
        ({"source": {"type": "dataset", "logstore": {}}, "pipeline": {"nodes": [1]}}, "logstore"),
        ({"source": {"logstore": {}}, "pipeline": {}}, "no nodes"),
        ({"source": {"logstore": {}}, "pipeline": [1]}, "no nodes"),
        ({"source": {"logstore": {}}}, "no nodes"),
    ],
)
def test_a_source_that_cannot_be_bound_gives_no_fields(
    asking: Asking, api: ScriptedApi, definition: Any, why: str
) -> None:
    with pytest.raises(UnboundSourceError, match=why):
        preview_body(definition, "T", STARTED_MS, 1.0)
    api.definition = definition
    asking.submit(3)
    eventually(lambda: len(asking.done) == 3)
    assert asking.of(0)[0] is None and why in asking.of(0)[1]
    assert not api.bodies and api.fetches == 1


def test_a_trace_source_over_a_logstore_is_bound() -> None:
    source = {"type": "trace", "logstore": {"query": None}, "trajectory": {"enrich": {}}}
    body = preview_body({"source": source, "pipeline": {"nodes": [1]}}, "T", STARTED_MS, 1.0)
    assert body["source"]["logstore"]["query"] == '(*) and traceId: "T"'
    assert body["source"]["trajectory"] == {"enrich": {}}


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as started:
        nodes = [{"id": "n", "type": "project", "parameters": {"answer": "output", "q": "input"}}]
        started.create_pipeline("clean", nodes=nodes, query="input: *")
        yield started


def real_pipeline(local: LocalAgentLoop, done: Dict[str, Any], **options: Any) -> Pipeline:
    ends = local.endpoints
    key = AccessKey(ends.access_key_id, ends.access_key_secret)
    api = AgentLoopApi(CloudAccess(ends.region_id, ends.agentloop_endpoint, None, key))

    def note(row: Outgoing, fields: Any, reason: str) -> None:
        done[row.saved.task_id] = (fields, reason)

    return Pipeline(api, ends.agent_space, "clean", note, **options)


def traces(numbers: Any) -> List[Dict[str, str]]:
    return [
        {"traceId": trace(n), "input": "q%d" % n, "output": "answer %d" % n, "other": "x"}
        for n in numbers
    ]


def submit_now(pipeline: Pipeline, numbers: Any) -> None:
    import time

    for number in numbers:
        started = int(time.time() * 1000)
        pipeline.submit(Waiting(Outgoing(saved(number)), trace(number), started))


def test_each_row_gets_the_fields_of_its_own_trace_over_the_wire(local: LocalAgentLoop) -> None:
    done: Dict[str, Any] = {}
    pipeline = real_pipeline(local, done)
    local.put_logs("logstore-tracing", traces(range(30)))
    submit_now(pipeline, range(30))
    eventually(lambda: len(done) == 30)
    for number in range(30):
        fields = done[saved(number).task_id][0]
        assert fields["answer"] == "answer %d" % number and fields["q"] == "q%d" % number
        assert "other" not in fields
    assert local.requests["GetPipeline"] == 1
    assert local.requests["PreviewPipeline"] == 30
    pipeline.close()


def test_traces_that_come_late_are_found_on_the_grid_over_the_wire(local: LocalAgentLoop) -> None:
    clock = VirtualTime()
    done: Dict[str, Any] = {}
    pipeline = real_pipeline(local, done, clock=clock.clock, wait=clock.wait)
    submit_now(pipeline, range(10))
    assert local.wait_for("PreviewPipeline", 10)
    clock.settle(8)
    local.put_logs("logstore-tracing", traces(range(10)))
    assert not done
    clock.advance(RETRY_S, 8)
    eventually(lambda: len(done) == 10)
    assert Counter(fields["answer"] for fields, _ in done.values()) == Counter(
        "answer %d" % n for n in range(10)
    )
    assert local.requests["PreviewPipeline"] == 20
    pipeline.close()


def test_missing_permission_and_missing_pipelines_are_reasons_over_the_wire(
    local: LocalAgentLoop,
) -> None:
    done: Dict[str, Any] = {}
    local.faults.fail("PreviewPipeline", 403, "NoPermission", times=1)
    pipeline = real_pipeline(local, done)
    submit_now(pipeline, range(1))
    eventually(lambda: done)
    assert "NoPermission" in done[saved(0).task_id][1]
    pipeline.close()
    local.faults.fail("GetPipeline", 404, "PipelineNotExist")
    done.clear()
    pipeline = real_pipeline(local, done)
    submit_now(pipeline, range(5))
    eventually(lambda: len(done) == 5)
    assert {fields for fields, _ in done.values()} == {None}
    assert local.requests["GetPipeline"] == 2
    pipeline.close()
