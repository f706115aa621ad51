"""Run an HTTP agent over a plan's dataset.

python http_offline_experiment.py --local
AGENT_URL=https://agent.example.com/invoke AGENT_TOKEN=... python http_offline_experiment.py
"""

import sys

sys.dont_write_bytecode = True

import contextlib
import logging
import os

import target
from agentloop_experiment_sdk import http_solution_with, run_experiment_parallel


@contextlib.contextmanager
def agent_url(local):
    if "AGENT_URL" in os.environ:
        yield os.environ["AGENT_URL"]
    elif local:
        with target.small_http_agent() as url:
            yield url
    else:
        sys.exit("Set AGENT_URL to the address of your agent, or pass --local.")


def main():
    logging.basicConfig(level=logging.INFO)
    options = target.options(__doc__)
    token = os.environ.get("AGENT_TOKEN")
    with target.config(options.local) as config, agent_url(options.local) as url:
        solution = http_solution_with(
            url,
            headers={"Authorization": "Bearer {}".format(token)} if token else None,
            body_builder=lambda task: {"input": task.input.get("input", "")},
            timeout=300,
        )
        record_id = run_experiment_parallel(
            config, solution, result_dir=options.result_dir, n_workers=options.n_workers
        )
    logging.getLogger(__name__).info("Experiment record: %s", record_id)


if __name__ == "__main__":
    main()
