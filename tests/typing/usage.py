"""The public API as users' scripts use it. Type checkers read this file; it is never run."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Optional, Tuple

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk import (
    AgentLoopConfig,
    Experiment,
    ExperimentResult,
    HttpRequestSpec,
    LocalAgentLoop,
    SolutionOutput,
    Task,
    call_solution,
    command_solution,
    command_solution_with,
    compare,
    exact_match,
    gate,
    http_solution,
    http_solution_with,
    list_plans,
    llm_judge,
    local_config,
    multi_turn_cli_solution,
    multi_turn_http_solution,
    multi_turn_http_solution_with,
    openai_chat_extractor,
    run_experiment,
    run_experiment_parallel,
    run_multi_turn_agent_experiment,
    run_multi_turn_experiment,
    trace_headers,
)
from agentloop_experiment_sdk.evaluate import Evaluator, MetricResult
from agentloop_experiment_sdk.local import Endpoints, Fault, Faults

config = AgentLoopConfig(
    "space", "plan-1", "cn-hangzhou", max_rows=10, ground_truth_field="expected"
)


# solutions of every form


def plain(task: Task) -> str:
    question: Any = task.input["input"]
    return str(question)


def with_hook(task: Task, pre_hook: Callable[[], None]) -> SolutionOutput:
    headers: Dict[str, str] = trace_headers({"X-Team": "search"})
    pre_hook()
    return SolutionOutput.success({"answer": 42}, meta={"experiment_input": len(headers)})


async def asynchronous(task: Task) -> SolutionOutput:
    await asyncio.sleep(0)
    if not task.input:
        return SolutionOutput.failure("EmptyRow", "nothing to ask", output="")
    output = SolutionOutput(True, "answer", trajectory=[{"step": 1}], meta={"model": "m"})
    good: bool = output.success
    return output if good else SolutionOutput.from_dict(output.to_dict())


async def asynchronous_with_hook(task: Task, pre_hook: Callable[[], None]) -> Dict[str, object]:
    pre_hook()
    return {"answer": task.ground_truth}


def streamed(task: Task) -> Iterator[str]:
    yield "one "
    yield "two"


class Agent:
    def __call__(self, task: Task) -> object:
        return task.tags

    def method(self, task: Task) -> int:
        return len(task.metadata)


# ready-made solutions

every_row_its_request = http_solution(
    lambda task: HttpRequestSpec("https://agent.example.com", "PUT", json=task.input, timeout=9.5),
    chunk_extractor=openai_chat_extractor,
)
one_url = http_solution_with(
    "https://agent.example.com/invoke",
    headers={"Authorization": "Bearer x"},
    body_builder=lambda task: {"input": task.input["input"]},
    timeout=300,
    idle_timeout=30,
    end_mark="[DONE]",
    usage_extractor=lambda data: {"input_tokens": 1, "output_tokens": 2},
)
built = command_solution(lambda task: ["agent", task.id], env={"MODE": "test", "TOKEN": None})
fixed = command_solution_with(["agent", "--json"], stdin=lambda task: str(task.input))
one_command = command_solution_with(lambda task: ["agent", task.id], default_timeout=5)


async def send_turn(message: str, session_id: str, turn_index: int, task: Task) -> Dict[str, Any]:
    return {"reply": message.upper(), "session_id": session_id}


by_hand = multi_turn_http_solution(send_turn, on_missing_turns="fail")
conversation = multi_turn_http_solution_with("https://agent.example.com/chat", turns_field="turns")
session_cli = multi_turn_cli_solution(
    lambda message, session_id, turn_index, task: ["agent", "--session", session_id, message]
)
answered: SolutionOutput = call_solution(one_url, Task("try", {"input": "2 + 2"}), timeout=10)


# evaluators


def polite(task: Task, output: SolutionOutput) -> bool:
    return "please" in str(output.output)


def graded(row: Task, answer: SolutionOutput) -> Dict[str, object]:
    return {"score": 0.5, "reason": "half of it is there"}


async def asked(task: Task, output: SolutionOutput) -> float:
    await asyncio.sleep(0)
    return 1.0


evaluators: List[Evaluator] = [
    exact_match(field="answer", ignore_case=True),
    sdk.contains(["a", "b"]),
    sdk.regex_match(r"\d+", full=True),
    sdk.json_equal(ignore=["id"]),
    sdk.numeric_close(0.01, relative=0.1),
    sdk.latency_below(2_000),
    sdk.ttft_below(500.0),
    sdk.tokens_below(4_000, kind="output_tokens"),
    llm_judge("https://llm.example.com/v1", "judge", "Is it true?", choices=("yes", "no")),
]


# running


def listen(event: sdk.Event) -> None:
    if isinstance(event, sdk.RecordCreated):
        print(event.record_id, event.resumed)
    elif isinstance(event, sdk.AttemptDone):
        print(event.task_id, event.latency_ms / 1000)
    elif isinstance(event, sdk.Progress):
        print(event.done, event.total, event.eta_s)
    elif isinstance(event, sdk.RowsDelivered):
        print(event.count)
    elif isinstance(event, sdk.LimitChanged):
        print(event.before, event.after, event.reason)
    else:
        print(event.status, event.undelivered)


def run_all() -> List[str]:
    return [
        run_experiment(config, plain),
        run_experiment(config, with_hook, "./results", 2, 1, evaluators=[polite], fsync=True),
        run_experiment_parallel(config, asynchronous, n_repeat=3, n_workers="auto", max_rps=5),
        run_experiment_parallel(config, one_url, n_workers=(4, 32), resume=True),
        run_experiment_parallel(config, Agent(), evaluators=[*evaluators, graded, asked]),
        run_experiment_parallel(config, Agent().method, on_undelivered="hold"),
        run_experiment_parallel(config, streamed, max_failures=0.1, item_ids=["1", "2"]),
        run_experiment_parallel(config, asynchronous_with_hook, on_event=listen, progress=True),
        run_multi_turn_experiment(config, "https://agent.example.com/chat", headers={"A": "b"}),
        run_multi_turn_agent_experiment(config, lambda text, session, turn, task: ["agent", text]),
    ]


def elsewhere() -> str:
    with ProcessPoolExecutor(2) as pool:
        return run_experiment_parallel(config, plain, executor=pool)


async def awaited() -> Optional[float]:
    experiment = Experiment(
        config,
        by_hand,
        "./results",
        version="v1",
        parameters={"temperature": 0},
        stop_if_first=10,
        progress=listen,
    )
    report = experiment.check(limit=1)
    if not report:
        print([item.message for item in report.failed])
    running: Awaitable[ExperimentResult] = experiment.arun()
    result = await running
    experiment.stop()
    return result.success_rate


# reading


def read(result: ExperimentResult) -> Tuple[bool, str]:
    counts: int = result.counts.succeeded
    tail = None if result.latency is None else result.latency.p90
    for row in result:
        print(counts, tail, row.task_id, row.output, row.error_message, row.evaluations)
    comparison = compare([result, "./results-v1"], names=["new", "old"])
    verdict = gate(result, baseline="./baseline.json", min_scores={"exact_match": 0.9})
    sdk.export_baseline(result, "baseline.json")
    sdk.write_html(comparison, "report.html")
    pages: List[str] = [
        sdk.render_html(result),
        sdk.render_json(verdict, indent=None),
        sdk.render_junit(result, metrics=["exact_match"]),
        sdk.render_markdown(comparison),
        sdk.render_text(verdict, width=100),
    ]
    again = sdk.evaluate("./results", [exact_match(), polite])
    print(len(pages), again.metrics, result.pass_at(3), sdk.load_result("./results").to_dicts())
    return verdict.passed, comparison[0].verdict


def deliver_later() -> int:
    report: sdk.DeliveryReport = sdk.deliver("./results", config, drain_timeout=60)
    return report.undelivered


def plans() -> List[str]:
    found = list_plans(sdk.Connection("cn-hangzhou", "space"), status="pending")
    return [plan.plan_id for plan in found]


# the embedded AgentLoop


def local_run(rows: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    with LocalAgentLoop(port=0) as local:
        endpoints: Endpoints = local.endpoints
        faults: Faults = local.faults
        fault: Fault = faults.fail("PutLogs", times=1)
        plan_id = local.create_plan(local.load_dataset(rows), query_sql="level > 2")
        record_id = run_experiment(local_config(local, plan_id, max_rows=5), plain)
        print(endpoints.region_id, fault)
        return local.rows(record_id)


def errors() -> Optional[str]:
    try:
        run_experiment(config, plain)
    except sdk.CloudError as error:
        return error.code if error.retryable else error.request_id
    except (sdk.ConfigurationError, sdk.RunAbortedError) as error:
        return str(error)
    return None


def metric(result: MetricResult) -> Dict[str, Any]:
    return result.to_dict()
