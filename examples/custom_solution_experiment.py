"""Run any Python code over a plan's dataset; here an async function.

python custom_solution_experiment.py --local
AGENTLOOP_SPACE=... AGENTLOOP_PLAN_ID=... AGENTLOOP_REGION=... python custom_solution_experiment.py
"""

import sys

sys.dont_write_bytecode = True

import asyncio
import logging

import target
from agentloop_experiment_sdk import SolutionOutput, Task, run_experiment_parallel
from small_agent import answer


async def solution(task: Task, pre_hook) -> SolutionOutput:
    question = str(task.input.get("input", ""))
    pre_hook()  # the agent call begins here: latency counts from now
    await asyncio.sleep(0.05)  # your agent, model or workflow goes here
    return SolutionOutput.success(answer(question), meta={"experiment_input": question})


def main():
    logging.basicConfig(level=logging.INFO)
    options = target.options(__doc__)
    with target.config(options.local) as config:
        record_id = run_experiment_parallel(
            config, solution, result_dir=options.result_dir, n_workers=options.n_workers
        )
    logging.getLogger(__name__).info("Experiment record: %s", record_id)


if __name__ == "__main__":
    main()
