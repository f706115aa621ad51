"""Run a command-line agent over a plan's dataset.

python command_offline_experiment.py --local
AGENT_COMMAND="your-agent-cli --output-format text --prompt" python command_offline_experiment.py
"""

import sys

sys.dont_write_bytecode = True

import logging
import os
import shlex

import target
from agentloop_experiment_sdk import command_solution_with, run_experiment_parallel


def command(local):
    if "AGENT_COMMAND" in os.environ:
        return shlex.split(os.environ["AGENT_COMMAND"])
    if local:
        return [sys.executable, "-B", str(target.AGENT), "--prompt"]
    sys.exit("Set AGENT_COMMAND to a command that takes the prompt last, or pass --local.")


def main():
    logging.basicConfig(level=logging.INFO)
    options = target.options(__doc__)
    base = command(options.local)
    with target.config(options.local) as config:
        solution = command_solution_with(
            lambda task: base + [str(task.input.get("input", ""))], default_timeout=120
        )
        record_id = run_experiment_parallel(
            config, solution, result_dir=options.result_dir, n_workers=options.n_workers
        )
    logging.getLogger(__name__).info("Experiment record: %s", record_id)


if __name__ == "__main__":
    main()
