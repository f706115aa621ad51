"""A working directory with an agent and a dataset, and a LocalAgentLoop that stands for a cloud."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import pytest

from agentloop_experiment_sdk import LocalAgentLoop
from agentloop_experiment_sdk.cli import main

AGENT = '''\
import json, os, sys, time


def answer(task):
    """Adds what the row asks for."""
    return str(sum(map(int, task.input["question"].split("+"))))


async def answer_async(task):
    return answer(task)


def half(task):
    if task.input["id"] % 2:
        raise ValueError("cannot do odd rows")
    return answer(task)


def broken(task):
    raise ValueError("boom")


def slow(task):
    time.sleep(0.2)
    return answer(task)


def gated(task):
    """Says that it began, and answers once a file of the row's id exists: the test decides when."""
    open("began-{}".format(task.input["id"]), "w").close()
    while not os.path.exists("go-{}".format(task.input["id"])):
        time.sleep(0.01)
    return answer(task)


def polite(task, output):
    return "please" in str(output.output)


def long_answer(task, output):
    return len(str(output.output)) > 3


class Nested:
    call = staticmethod(answer)


EVALUATORS = [polite, long_answer]
'''


class Outcome(NamedTuple):
    """What ``main`` did in this process."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> List[Dict[str, Any]]:
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> Dict[str, Any]:
        """The last JSON line."""
        return self.events[-1]


Cli = Callable[..., Outcome]


@pytest.fixture
def work(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """An own working directory with ``agent.py`` and ``sums.jsonl`` (six rows)."""
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    rows = [{"id": n, "question": "{0}+{0}".format(n), "gold": str(2 * n)} for n in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def cli(work: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """``cli("run", …)`` runs the command line in this process."""

    def call(*arguments: Any) -> Outcome:
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def cloud(work: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAgentLoop]:
    """A LocalAgentLoop with a plan over ``sums.jsonl``, named by the environment."""
    with LocalAgentLoop() as local:
        plan = local.create_plan(local.load_dataset("sums.jsonl", "sums"), "sums plan")
        for name, value in variables(local, plan).items():
            monkeypatch.setenv(name, value)
        yield local


def variables(local: LocalAgentLoop, plan: str) -> Dict[str, str]:
    """The environment that points the command line at ``local``."""
    return {
        "AGENTLOOP_ENDPOINT": local.endpoints.agentloop_endpoint,
        "AGENTLOOP_SLS_ENDPOINT": local.endpoints.sls_endpoint,
        "AGENTLOOP_SPACE": local.endpoints.agent_space,
        "AGENTLOOP_REGION": local.endpoints.region_id,
        "AGENTLOOP_PLAN_ID": plan,
        "AGENTLOOP_AK": local.endpoints.access_key_id,
        "AGENTLOOP_SK": local.endpoints.access_key_secret,
    }
