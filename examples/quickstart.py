"""A whole experiment on this machine: no account, no network beyond loopback.

An embedded AgentLoop holds a dataset of twelve questions; a small HTTP agent runs in a process of
its own; every question is sent to it, and every answer becomes a row of ``experiment_detail``.
"""

import sys

sys.dont_write_bytecode = True

import logging
import time

import target
from agentloop_experiment_sdk import Experiment, exact_match, http_solution_with, render_text


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    result_dir = time.strftime("./results/quickstart-%Y%m%d-%H%M%S")
    with target.config(local=True) as config, target.small_http_agent() as url:
        solution = http_solution_with(
            url, body_builder=lambda task: {"input": task.input["input"]}, timeout=30
        )
        experiment = Experiment(
            config,
            solution,
            result_dir=result_dir,
            n_workers=4,
            evaluators=[exact_match(field="answer")],
        )
        result = experiment.run()
    print()
    print(render_text(result))
    print("The results are in {}.".format(result_dir))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
