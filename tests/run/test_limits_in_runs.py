"""Rate control inside whole runs: settings, engines, events."""

from __future__ import annotations

import http.server
import threading
import time
from typing import Any, Dict, List

import pytest

from agentloop_experiment_sdk import (
    ConfigurationError,
    Experiment,
    SolutionOutput,
    http_solution_with,
    local_config,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.models import Task
from agentloop_experiment_sdk.run import limits, starts
from agentloop_experiment_sdk.run.events import LimitChanged, Progress
from agentloop_experiment_sdk.run.progress import ProgressBar, ProgressLog
from agentloop_experiment_sdk.run.settings import RunSettings, concurrency
from agentloop_experiment_sdk.scope import AttemptScope
from agentloop_experiment_sdk.solutions.call import failure_from


class Counter:
    """How many calls are under way, and the most there ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.most = 0

    def __enter__(self) -> Counter:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.running -= 1


def run(tmp_path: Any, solution: Any, rows: int, **options: Any) -> List[Any]:
    events: List[Any] = []
    with LocalAgentLoop() as local:
        plan = local.create_plan(local.load_dataset([{"id": n} for n in range(rows)]))
        Experiment(
            local_config(local, plan),
            solution,
            tmp_path / "results",
            on_event=events.append,
            progress=False,
            **options,
        ).run()
        assert len(local.rows()) == rows
    return events


@pytest.mark.parametrize(
    "given, expected",
    [
        (7, {"n_workers": 7}),
        ("auto", {"n_workers": 64, "fewest_workers": 1, "first_workers": 4}),
        ((4, 32), {"n_workers": 32, "fewest_workers": 4}),
        ([2, 2], {"n_workers": 2, "fewest_workers": 2}),
        (range(2, 9), {"n_workers": 8, "fewest_workers": 2}),
    ],
)
def test_n_workers_is_a_number_a_range_or_auto(given: Any, expected: Dict[str, int]) -> None:
    assert concurrency(given) == expected
    RunSettings(**concurrency(given))


@pytest.mark.parametrize(
    "given", ["many", 0, True, 2.5, (4,), (0, 4), (8, 4), (1, 2, 3), (1, "4"), range(0), None]
)
def test_any_other_n_workers_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="n_workers"):
        RunSettings(**concurrency(given))


@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf"), "10", True])
def test_a_rate_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_rps"):
        RunSettings(max_rps=given)


def test_an_executor_has_a_size_of_its_own() -> None:
    with pytest.raises(ConfigurationError, match="executor"):
        RunSettings(executor=object(), **concurrency("auto"))


def test_no_more_attempts_run_than_the_limit_allows_and_all_are_delivered(tmp_path: Any) -> None:
    counter = Counter()

    def solution(task: Task) -> str:
        with counter:
            time.sleep(0.005)
        return "done"

    events = run(tmp_path, solution, 60, n_workers=(2, 3))
    assert counter.most <= 3
    assert {event.limit for event in events if isinstance(event, Progress)} <= {2, 3}


def test_async_attempts_obey_the_limit_too(tmp_path: Any) -> None:
    import asyncio

    counter = Counter()

    async def solution(task: Task) -> str:
        with counter:
            await asyncio.sleep(0.002)
        return "done"

    run(tmp_path, solution, 60, n_workers=(1, 3))
    assert counter.most <= 3


@pytest.fixture
def started(monkeypatch: Any) -> List[float]:
    """When the limits let each attempt start, by their own clock: threads may be late after it."""
    times: List[float] = []

    class RecordingLimits(limits.Limits):
        def started(self, key: Any, now: float) -> None:
            times.append(now)
            super().started(key, now)

    monkeypatch.setattr(starts, "Limits", RecordingLimits)
    return times


@pytest.mark.parametrize("workers", [{"n_workers": 8}, {"n_workers": 1, "serial": True}])
def test_starts_are_spaced_by_max_rps(
    tmp_path: Any, started: List[float], workers: Dict[str, Any]
) -> None:
    run(tmp_path, lambda task: "done", 11, max_rps=50.0, **workers)
    # 10 intervals of 20 ms, of which one may be caught up on
    assert len(started) == 11
    assert started[-1] - started[0] >= 9 * 0.02 - 1e-6


def test_throttled_rows_of_a_custom_solution_lower_the_limit(tmp_path: Any) -> None:
    def solution(task: Task) -> SolutionOutput:
        return SolutionOutput.failure("RateLimitError", "slow down")

    events = run(tmp_path, solution, 30, n_workers=(1, 8))
    changes = [event for event in events if isinstance(event, LimitChanged)]
    assert not changes or all(change.reason == "RateLimitError" for change in changes)
    assert [event.limit for event in events if isinstance(event, Progress)][-1] == 1


class ThrottlingAgent(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    refusals = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = type(self)
        refused, kind.refusals = kind.refusals > 0, kind.refusals - 1
        self.send_response(429 if refused else 200)
        if refused:
            self.send_header("Retry-After", "0.01")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def test_a_refusal_that_a_retry_hides_from_the_result_lowers_the_limit(tmp_path: Any) -> None:
    class Agent(ThrottlingAgent):
        refusals = 1

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        solution = http_solution_with("http://127.0.0.1:{}/".format(server.server_port))
        events = run(tmp_path, solution, 12, n_workers="auto")
    finally:
        server.shutdown()
        server.server_close()
    counts = [event for event in events if isinstance(event, Progress)][-1]
    assert counts.failed == 0 and counts.succeeded == 12
    assert LimitChanged(4, 3, "429") in events


def test_the_scope_passes_a_refusal_on() -> None:
    heard: List[Any] = []
    scope = AttemptScope("record", "item")
    scope.note_refusal("429")
    scope.on_refusal = lambda reason, retry_after: heard.append((reason, retry_after))
    scope.note_refusal("503", 2.0)
    assert heard == [("503", 2.0)]


def test_progress_tells_a_lower_limit_and_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        ProgressLog()(LimitChanged(20, 16, "429"))
    assert "limit 20→16: 429" in caplog.text


def test_the_bar_shows_why_the_limit_is_what_it_is() -> None:
    shown: List[Dict[str, Any]] = []

    class FakeBar:
        n = 0

        def __init__(self, **_: Any) -> None:
            pass

        def set_postfix(self, facts: Dict[str, Any], refresh: bool) -> None:
            shown.append(dict(facts))

        def update(self, _: int) -> None:
            pass

    bar = ProgressBar(FakeBar)
    bar(Progress(10, 1, 0, 0, 0, limit=20))
    bar(LimitChanged(20, 16, "429"))
    bar(Progress(10, 2, 0, 0, 0, limit=16))
    bar(Progress(10, 3, 0, 0, 0, limit=17))
    assert [facts["limit"] for facts in shown] == ["20", "20→16: 429", "17"]


class StatusError(Exception):
    def __init__(self, status: Any, headers: Any = None) -> None:
        super().__init__("refused")
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()


def test_the_status_and_the_pause_of_an_exception_are_kept() -> None:
    meta = failure_from(StatusError(429, {"retry-after": "1.5"})).meta
    assert (meta["status_code"], meta["retry_after"]) == (429, 1.5)


@pytest.mark.parametrize("pause", ["Thu, 01 Jan 1970 00:00:00 GMT", "soon", object()])
def test_the_status_is_kept_whatever_stands_beside_it(pause: Any) -> None:
    meta = failure_from(StatusError(429, {"Retry-After": pause})).meta
    assert meta["status_code"] == 429
    assert meta.get("retry_after") == (0.0 if "1970" in str(pause) else None)


@pytest.mark.parametrize(
    "error", [StatusError("429"), StatusError(200), StatusError(429, {"retry-after": "soon"})]
)
def test_what_is_no_status_of_an_error_is_not_taken_for_one(error: Exception) -> None:
    assert "retry_after" not in failure_from(error).meta
    assert failure_from(error).meta["error_message"] == "refused"
