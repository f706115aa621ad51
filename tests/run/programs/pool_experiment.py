"""An experiment over a process pool, in a process of its own, as its one argument (JSON) says.

Prints ``call <item id> <pid>`` when its solution is called, and a last line of JSON. With
``unguarded`` it runs whenever it is imported, as a script without a main guard does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict

sys.dont_write_bytecode = True

from agentloop_experiment_sdk import AgentLoopConfig, Experiment  # noqa: E402

JOB: Dict[str, Any] = json.loads(sys.argv[1])


def say(line: str) -> None:
    """One write for each line: several processes print."""
    os.write(1, (line + "\n").encode("utf-8"))


def solution(task: Any) -> str:
    """Takes ``seconds``."""
    say("call {} {}".format(task.input["id"], os.getpid()))
    time.sleep(JOB.get("seconds", 0.0))
    return "answer"


def main() -> int:
    """Run it; the exit code is 130 after Ctrl-C."""
    context = multiprocessing.get_context(JOB["method"])
    try:
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            config = AgentLoopConfig(**JOB["config"])
            experiment = Experiment(
                config, solution, JOB["path"], executor=executor, progress=False
            )
            result = experiment.run()
    except KeyboardInterrupt:
        say(json.dumps({"raised": "KeyboardInterrupt"}))
        return 130
    except Exception as error:
        say(json.dumps({"raised": type(error).__name__, "message": str(error)}))
        return 1
    say(json.dumps({"succeeded": result.counts.succeeded}))
    return 0


# making one does nothing yet, so it needs no guard
MADE = Experiment(AgentLoopConfig(**JOB["config"]), solution, JOB["path"])

if JOB.get("unguarded"):
    sys.exit(main())
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs with it ignored
    sys.exit(main())
