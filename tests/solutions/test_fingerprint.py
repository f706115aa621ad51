"""A solution's fingerprint: the same in every process, another one when its code changes."""

import functools
import json
import subprocess
import sys

from agentloop_experiment_sdk.solutions.fingerprint import fingerprint_of, qualified_name


def solution(task):
    return {"a", "b"}


class Agent:
    def __call__(self, task):
        return task


def ready_made(task, pre_hook=None):
    return task


def test_functions_objects_and_partials_are_named_by_what_is_called():
    assert qualified_name(solution) == __name__ + ".solution"
    assert qualified_name(functools.partial(solution, 1)) == __name__ + ".solution"
    assert qualified_name(Agent()) == __name__ + ".Agent"
    assert qualified_name(Agent().__call__) == __name__ + ".Agent.__call__"
    assert qualified_name(len) == "builtins.len"
    assert qualified_name("text".join) == "str.join"


def test_equal_code_has_an_equal_hash_and_other_code_another():
    one = fingerprint_of(solution)
    assert len(one["hash"]) == 64
    assert one == fingerprint_of(functools.partial(solution, 1))
    assert one["hash"] != fingerprint_of(ready_made)["hash"]
    assert fingerprint_of(Agent())["hash"] == fingerprint_of(Agent)["hash"]


def test_a_ready_made_solution_is_described_by_its_text_and_its_builder():
    def made(builder):
        def wrapper(task, pre_hook=None):
            return task

        wrapper.fingerprint = "http POST https://agent.example/ask"
        wrapper.built_by = builder
        return wrapper

    first = fingerprint_of(made(solution))
    assert first["name"] == "http POST https://agent.example/ask"
    assert first == fingerprint_of(made(solution))
    assert first["hash"] != fingerprint_of(made(ready_made))["hash"]
    assert fingerprint_of(made(None))["hash"] != first["hash"]


def test_a_builtin_is_known_by_its_name():
    assert fingerprint_of(len) == fingerprint_of(len)
    assert fingerprint_of(len)["hash"] != fingerprint_of(sorted)["hash"]


_NO_SOURCE = """
import json, sys
from agentloop_experiment_sdk.solutions.fingerprint import fingerprint_of
names = {}
exec(compile(sys.argv[1], "<none>", "exec"), names)
print(json.dumps([fingerprint_of(names["f"]), fingerprint_of(names["Agent"]())]))
"""
_CODE = """
def f(task):
    inner = lambda: {}
    return inner() in {{"x", "y", "z"}}
class Agent:
    def __call__(self, task):
        return {}
"""


def _without_source(number, seed):
    done = subprocess.run(
        [sys.executable, "-c", _NO_SOURCE, _CODE.format(number, number)],
        stdout=subprocess.PIPE,
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    return json.loads(done.stdout)


def test_code_without_source_is_hashed_by_its_bytecode_in_every_process_alike():
    first = _without_source(1, "1")
    assert first == _without_source(1, "2")
    changed = _without_source(2, "1")
    assert first[0]["hash"] != changed[0]["hash"] and first[1]["hash"] != changed[1]["hash"]


def test_sourceless_code_is_told_apart_in_this_process_too():
    def agent_of(number):
        names = {}
        exec(compile(_CODE.format(number, number), "<none>", "exec"), names)
        return names

    one, two = agent_of(1), agent_of(2)
    assert fingerprint_of(one["f"])["hash"] != fingerprint_of(two["f"])["hash"]
    assert fingerprint_of(one["Agent"]())["hash"] != fingerprint_of(two["Agent"]())["hash"]
