"""A real dataset through a real agent process, serial and parallel: every row exactly once.

Not part of the test suite. How to run it:

    pip download --no-deps bfcl-eval && unzip -q bfcl_eval-*.whl 'bfcl_eval/data/*'
    python tests/acceptance/public_dataset.py bfcl_eval/data/BFCL_v4_live_simple.json

The question files of that package are JSON lines of nested chats and function definitions. The
agent is an HTTP server in a process of its own that picks the function whose words overlap most
with the question.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from agentloop_experiment_sdk import (
    LocalAgentLoop,
    http_solution_with,
    local_config,
    run_experiment,
    run_experiment_parallel,
)

AGENT = r"""
import json, re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def words(text):
    return set(re.findall(r"[a-z]+", text.lower()))

class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = words(json.dumps(asked["question"]))
        def overlap(function):
            return len(question & words(function["name"] + " " + function["description"]))
        best = max(asked["function"], key=overlap)
        body = json.dumps({"call": best["name"], "of": len(asked["function"])}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print("http://127.0.0.1:%d/" % server.server_address[1], flush=True)
server.serve_forever()
"""

VARYING = {"experiment_id", "experiment_start_time", "experiment_metadata", "experiment_metrics"}
VARYING |= {"traceId", "__time__"}


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def stable(row):
    return {name: value for name, value in row.items() if name not in VARYING}


def check(server, record_id, rows):
    stored = server.rows(record_id)
    ids = collections.Counter(row["dataset.id"] for row in stored)
    assert ids == collections.Counter(row["id"] for row in rows), "rows lost or doubled"
    assert all(row["status"] == "success" for row in stored)
    record = server.record(record_id)
    assert (record["status"], record["completedTasks"]) == ("completed", len(rows)), record
    return {row["task_id"]: stable(row) for row in stored}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    rows = rows_of(parser.parse_args().file)
    with LocalAgentLoop() as server, subprocess.Popen(
        [sys.executable, "-c", AGENT], stdout=subprocess.PIPE, universal_newlines=True
    ) as agent:
        plan_id = server.create_plan(server.load_dataset(rows))
        config = local_config(server, plan_id, max_rows=len(rows))
        solution = http_solution_with(
            agent.stdout.readline().strip(),
            body_builder=lambda task: {
                "question": task.input["question"],
                "function": task.input["function"],
            },
        )
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            serial = check(server, run_experiment(config, solution, one), rows)
            parallel = check(
                server, run_experiment_parallel(config, solution, two, n_workers=16), rows
            )
        agent.terminate()
    assert serial == parallel, "serial and parallel rows differ"
    print("{} rows, each exactly once, equal fields serial and parallel".format(len(rows)))


if __name__ == "__main__":
    main()
