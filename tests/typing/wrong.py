"""Mistakes that type checkers must find: each line says the rules of mypy and pyright it breaks."""
# pyright: basic

from __future__ import annotations

from typing import Callable

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk import Experiment, SolutionOutput, Task, run_experiment_parallel

config = sdk.AgentLoopConfig("space", "plan-1", "cn-hangzhou")


def answer(task: Task, pre_hook: Callable[[], None]) -> SolutionOutput:
    pre_hook("now")  # error: call-arg, reportCallIssue
    task.input = {}  # error: misc, reportAttributeAccessIssue
    if task.question:  # error: attr-defined, reportAttributeAccessIssue
        return SolutionOutput.failure("NoType")  # error: call-arg, reportCallIssue
    if not task.input:
        return "no output"  # error: return-value, reportReturnType
    return SolutionOutput.success("4", {"a": 1}, [])  # error: call-arg, reportCallIssue


def wordy(task: Task) -> bool:
    return True


def mute(task: Task, output: SolutionOutput) -> None:
    print(output.success(True))  # error: operator, reportCallIssue


sdk.AgentLoopConfig("space", "plan-1")  # error: call-arg, reportCallIssue
sdk.AgentLoopConfig("space", "plan-1", "x", max_row=1)  # error: call-arg, reportCallIssue
sdk.AgentLoopConfig("space", "plan-1", "x", max_rows="1")  # error: arg-type, reportArgumentType
Task("1", "question")  # error: arg-type, reportArgumentType
sdk.HttpRequestSpec("https://agent", timeout="1")  # error: arg-type, reportArgumentType
sdk.LocalAgentLoop(prot=80)  # error: call-arg, reportCallIssue

sdk.http_solution(lambda task: task.input)  # error: return-value, reportArgumentType
sdk.http_solution_with("https://agent", body_builder={})  # error: arg-type, reportArgumentType
sdk.http_solution_with("https://agent", time_out=1)  # error: call-arg, reportCallIssue
sdk.command_solution(lambda task: 1)  # error: return-value, reportArgumentType
sdk.command_solution_with(["agent", 1])  # error: list-item, reportArgumentType
sdk.command_solution_with(["agent"], env={"A": 1})  # error: dict-item, reportArgumentType
sdk.multi_turn_http_solution(answer)  # error: arg-type, reportArgumentType
sdk.multi_turn_http_solution_with("x", on_missing_turns="no")  # error: arg-type, reportArgumentType
sdk.multi_turn_cli_solution(["agent"])  # error: arg-type, reportArgumentType

run_experiment_parallel(config)  # error: call-arg, reportCallIssue
run_experiment_parallel(config, "answer")  # error: arg-type, reportArgumentType
run_experiment_parallel("plan-1", answer)  # error: arg-type, reportArgumentType
run_experiment_parallel(config, answer, n_workers="many")  # error: arg-type, reportArgumentType
run_experiment_parallel(config, answer, retry_fialed=True)  # error: call-arg, reportCallIssue
run_experiment_parallel(config, answer, max_rps="5")  # error: arg-type, reportArgumentType
run_experiment_parallel(config, answer, evaluators=[wordy])  # error: list-item, reportArgumentType
run_experiment_parallel(config, answer, evaluators=[mute])  # error: list-item, reportArgumentType
run_experiment_parallel(config, answer, executor=8)  # error: arg-type, reportArgumentType
run_experiment_parallel(config, answer, on_undelivered="")  # error: arg-type, reportArgumentType
record_id: int = run_experiment_parallel(config, answer)  # error: assignment, reportAssignmentType

experiment = Experiment(config, answer, resumes=True)  # error: call-arg, reportCallIssue
experiment.arun().counts  # error: attr-defined, reportAttributeAccessIssue
experiment.run().count  # error: attr-defined, reportAttributeAccessIssue
experiment.run().latency.p90  # error: union-attr, reportOptionalMemberAccess
sdk.call_solution(answer, {"input": "2 + 2"})  # error: arg-type, reportArgumentType
sdk.evaluate("./results", sdk.exact_match())  # error: arg-type, reportArgumentType
sdk.exact_match("42")  # error: call-arg, reportCallIssue
sdk.gate("./results", min_scores={"exact_match": "90%"})  # error: dict-item, reportArgumentType
sdk.compare("./results")[0].verdicts  # error: attr-defined, reportAttributeAccessIssue
sdk.deliver(1)  # error: arg-type, reportArgumentType
sdk.list_plans("cn-hangzhou")  # error: arg-type, reportArgumentType
sdk.no_such_name  # error: attr-defined, reportAttributeAccessIssue
