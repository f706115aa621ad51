"""What users call: arguments, return values, and that everything in it stays callable."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk import (
    ConfigurationError,
    Connection,
    Experiment,
    LocalAgentLoop,
    Task,
    list_plans,
    local_config,
    run_experiment,
    run_experiment_parallel,
    run_multi_turn_agent_experiment,
    run_multi_turn_experiment,
)

ROWS = [{"id": str(n), "q": "question {}".format(n)} for n in range(3)]
TALKS = [
    {"id": "a", "turns": [{"content": "hello"}, {"content": "and now?"}]},
    {"id": "b", "turns": [{"content": "hi"}]},
]


@pytest.fixture
def local() -> Iterator[LocalAgentLoop]:
    with LocalAgentLoop() as running:
        yield running


def config_over(local: LocalAgentLoop, rows: List[Dict[str, Any]]) -> Any:
    return local_config(local, local.create_plan(local.load_dataset(rows)))


def answer(task: Task) -> str:
    return "answer to {}".format(task.input["q"])


@pytest.mark.parametrize("run_it", [run_experiment, run_experiment_parallel])
def test_the_functions_return_the_record_id(
    local: LocalAgentLoop, tmp_path: Path, run_it: Any
) -> None:
    record_id = run_it(config_over(local, ROWS), answer, str(tmp_path / "r"))
    assert type(record_id) is str and local.records() == [record_id]
    assert sorted(row["experiment_output"] for row in local.rows(record_id)) == [
        "answer to question {}".format(n) for n in range(3)
    ]


def test_the_function_for_one_row_after_the_other_uses_the_calling_thread(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    config = config_over(local, ROWS)
    threads: List[int] = []

    def solution(task: Task) -> None:
        threads.append(threading.get_ident())

    run_experiment(config, solution, tmp_path / "a")
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    run_experiment(config, solution, tmp_path / "b", n_workers=2)
    assert threading.get_ident() not in threads


def test_the_function_for_one_row_after_the_other_works_in_a_notebook(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    """A cell runs in an event loop, in which ``asyncio.run`` is not allowed."""
    config = config_over(local, ROWS)

    async def ask(task: Task) -> str:
        return answer(task)

    async def cell() -> str:
        return run_experiment(config, lambda task: asyncio.run(ask(task)), tmp_path)

    record_id = asyncio.run(cell())
    assert {row["status"] for row in local.rows(record_id)} == {"success"}


def test_results_go_to_the_working_directory_by_default(
    local: LocalAgentLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def solution(task: Task) -> None:
        os.chdir("/")  # an agent that moves must not move the results

    run_experiment(config_over(local, ROWS), solution)
    assert (tmp_path / "results" / "evaluation_meta.json").exists()
    assert len(list((tmp_path / "results").glob("*/0/solution.json"))) == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_repeat", 0),
        ("n_repeat", 1.5),
        ("n_workers", 0),
        ("n_workers", True),
        ("n_workers", "8"),
        ("limit", 0),
        ("stop_if_first", -1),
        ("row_retries", -1),
        ("row_retries", None),
        ("task_timeout", 0),
        ("task_timeout", "5"),
        ("drain_timeout", None),
        ("stop_grace", -1),
        ("max_failures", -1),
        ("max_failures", 1.5),
        ("max_failures", True),
        ("resume", "yes"),
        ("on_undelivered", "drop"),
        ("on_event", 5),
        ("progress", "loud"),
        ("parameters", [1]),
        ("item_ids", "abc"),
        ("item_ids", 5),
        ("result_dir", None),
        ("result_dir", ""),
        ("result_dir", "nul\0x"),
        ("record_id", 123),
        ("record_id", ["x"]),
        ("record_id", " "),
        ("record_id", "a\nb"),
        ("client_token", b"x"),
        ("version", ["v"]),
        ("version", True),
        ("evaluators", [1]),
        ("evaluators", answer),
    ],
)
def test_arguments_that_cannot_be_used_are_named_before_anything_happens(
    tmp_path: Path, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sdk.AgentLoopConfig("space", "plan", "cn-hangzhou")
    with pytest.raises(ConfigurationError) as caught:
        Experiment(config, answer, **{name: value})
    assert name.rstrip("s") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("forever", [float("inf"), 1e300, 10**30])
def test_forever_is_a_time_like_any_other(
    local: LocalAgentLoop, tmp_path: Path, forever: float, capfd: pytest.CaptureFixture[str]
) -> None:
    async def solution(task: Task) -> str:
        return answer(task)

    config = config_over(local, ROWS)
    for number, way in enumerate((answer, solution)):
        result = Experiment(
            config,
            way,
            tmp_path / str(number),
            task_timeout=forever,
            stop_grace=forever,
            drain_timeout=forever,
        ).run()
        assert (result.status, result.counts.undelivered) == ("completed", 0)
    assert sdk.call_solution(answer, Task("t", ROWS[0]), forever).success
    assert "Traceback" not in capfd.readouterr().err


def test_an_id_that_is_empty_is_none_and_a_version_may_be_a_number(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    """As a variable of the environment that is not set gives it, and a build its number."""
    config = config_over(local, ROWS)
    for number, version in enumerate((None, "", 3, 1.5)):
        options: Dict[str, Any] = {"record_id": "", "client_token": "", "version": version}
        result = Experiment(config, answer, tmp_path / str(number), **options).run()
        assert result.meta["version"] == ("" if version is None else str(version))


def test_a_path_may_be_bytes(local: LocalAgentLoop, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "r")
    result = Experiment(config_over(local, ROWS), answer, path).run()  # type: ignore[arg-type]
    assert result.path == str(tmp_path / "r")


def test_a_solution_that_cannot_be_called_is_named(tmp_path: Path) -> None:
    config = sdk.AgentLoopConfig("space", "plan", "cn-hangzhou")
    with pytest.raises(ConfigurationError, match="must be callable"):
        Experiment(config, "http://agent", tmp_path)
    with pytest.raises(ConfigurationError, match="config must be an AgentLoopConfig.*'dict'"):
        Experiment({"agent_space": "space"}, answer, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no_such_option"):
        run_experiment(config, answer, tmp_path, no_such_option=1)


def test_options_may_be_iterables_and_mappings(local: LocalAgentLoop, tmp_path: Path) -> None:
    experiment = Experiment(
        config_over(local, ROWS),
        answer,
        tmp_path,
        item_ids=(str(n) for n in range(2)),  # type: ignore[arg-type]
        parameters=None,
    )
    assert experiment.run().counts.total == 2
    assert experiment.run().counts.total == 2


class Chat(BaseHTTPRequestHandler):
    """Answers each turn with how many it has seen of its session."""

    sessions: Dict[str, int] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = str(body["session_id"])
        self.sessions[session] = self.sessions.get(session, 0) + 1
        reply = {"answer": body["message"], "turn": self.sessions[session]}
        content = json.dumps(reply).encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[str]:
    Chat.sessions = {}
    server = HTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield "http://127.0.0.1:{}/".format(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(60)


@pytest.mark.parametrize("parallel", [True, False])
def test_conversations_over_http(
    local: LocalAgentLoop, tmp_path: Path, chat: str, parallel: bool
) -> None:
    events: List[Any] = []
    record_id = run_multi_turn_experiment(
        config_over(local, TALKS),
        chat,
        result_dir=tmp_path,
        parallel=parallel,
        # one option of the solution, and some of the experiment
        timeout=60.0,
        version="v3",
        on_event=events.append,
    )
    rows = {row["dataset.id"]: row for row in local.rows(record_id)}
    assert sorted(rows) == ["a", "b"] and {row["status"] for row in rows.values()} == {"success"}
    assert sorted(Chat.sessions.values()) == [1, 2]
    assert "v3" in rows["a"]["experiment_config"] and events
    assert "and now?" in rows["a"]["experiment_output"]


def test_conversations_over_the_command_line(local: LocalAgentLoop, tmp_path: Path) -> None:
    def command(message: str, session_id: str, turn_index: int, task: Task) -> List[str]:
        return [sys.executable, "-c", "print({!r})".format("{}: {}".format(turn_index, message))]

    record_id = run_multi_turn_agent_experiment(
        config_over(local, TALKS), command, result_dir=tmp_path, session_id="s-1", n_repeat=2
    )
    rows = local.rows(record_id)
    assert len(rows) == 4 and {row["status"] for row in rows} == {"success"}
    assert {row["session_id"] for row in rows} == {"s-1"}


def test_plans_are_listed_without_a_plan_id(local: LocalAgentLoop) -> None:
    local.load_dataset(ROWS)
    ids = {local.create_plan(name="plan {}".format(n)) for n in range(3)}
    found = list_plans(
        Connection(
            local.endpoints.region_id,
            local.endpoints.agent_space,
            local.endpoints.agentloop_endpoint,
            access_key_id=local.endpoints.access_key_id,
            access_key_secret=local.endpoints.access_key_secret,
        )
    )
    assert {plan.plan_id for plan in found} == ids
    assert {plan.experiment_type for plan in found} == {"offline"}
    named = list_plans(local_config(local, "any").connection, plan_name="plan 1")
    assert [plan.plan_name for plan in named] == ["plan 1"]


def test_local_config_takes_a_server_or_its_endpoints_and_further_settings(
    local: LocalAgentLoop,
) -> None:
    by_server = local_config(local, "plan", max_rows=7)
    by_endpoints = local_config(local.endpoints, "plan", experiment_name="other")
    assert by_server.max_rows == 7 and by_endpoints.experiment_name == "other"
    assert by_server.agentloop_endpoint == by_endpoints.agentloop_endpoint


def test_the_scores_of_the_platform_can_be_read_from_the_result(
    local: LocalAgentLoop, tmp_path: Path
) -> None:
    result = Experiment(config_over(local, ROWS), answer, tmp_path).run()
    local.score(result.record_id, [{"metric": "helpful", "score": 0.5, "dataset_item_id": "0"}])
    scores = result.cloud_scores()
    assert scores is not None and local.requests["GetExperimentRun"] >= 1


def python(code: str) -> str:
    root = str(Path(sdk.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH=root),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    ).stdout.decode("utf-8")


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import agentloop_experiment_sdk.evaluate.metric",
        "from agentloop_experiment_sdk import llm_judge",
        "from agentloop_experiment_sdk.evaluate import evaluate_output",
        "import agentloop_experiment_sdk.run.experiment",
        "from agentloop_experiment_sdk import *",
    ],
)
def test_evaluate_is_a_function_whatever_was_imported_before(before: str) -> None:
    # a package of the same name takes its place when it is imported later than the function
    said = python(
        before + "\nfrom agentloop_experiment_sdk import evaluate; print(callable(evaluate))"
    )
    assert said.strip() == "True"


def test_every_public_function_stays_one_after_a_run(local: LocalAgentLoop, tmp_path: Path) -> None:
    run_experiment(config_over(local, ROWS), answer, tmp_path, evaluators=[sdk.contains("answer")])
    for name in sdk.__all__:
        if name not in ("__version__", "Event"):
            assert callable(getattr(sdk, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sdk.nothing  # noqa: B018
    assert set(sdk.__all__) <= set(dir(sdk))


def test_an_interpreter_ends_at_once_after_a_run_with_everything_in_it(tmp_path: Path) -> None:
    said = python(
        """
import agentloop_experiment_sdk as sdk, time
with sdk.LocalAgentLoop() as local:
    plan = local.create_plan(local.load_dataset([{{"id": "1", "q": "a"}}]))
    async def solution(task):
        return "fine"
    sdk.run_experiment_parallel(sdk.local_config(local, plan), solution, {!r}, n_workers=8,
                                evaluators=[sdk.contains("fine")], task_timeout=60)
print("ended")
""".format(str(tmp_path))
    )
    assert said.strip() == "ended"
