"""The examples run as a newcomer runs them: in processes of their own, away from the checkout."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def run_example(name: str, directory: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)] + list(arguments),
        cwd=str(directory),
        env=dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUTF8="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    output = done.stdout.decode("utf-8")
    assert done.returncode == 0, output + done.stderr.decode("utf-8")
    return output


def solutions(directory: pathlib.Path) -> List[dict]:
    paths = directory.rglob("solution.json")
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def test_the_quickstart_shows_its_result_and_where_it_is(tmp_path: pathlib.Path) -> None:
    output = run_example("quickstart.py", tmp_path)
    assert "12 rows, 12 succeeded" in output
    assert "record " in output and "latency" in output
    place = output.rsplit("The results are in ", 1)[1].strip().rstrip(".")
    assert len(solutions(tmp_path / place)) == 12
    assert not list(EXAMPLES.rglob("__pycache__"))


@pytest.mark.parametrize("kind", ["http", "command"])
def test_an_example_of_a_ready_made_solution_runs_locally(
    kind: str, tmp_path: pathlib.Path
) -> None:
    run_example("{}_offline_experiment.py".format(kind), tmp_path, "--local")
    found = solutions(tmp_path / "results")
    assert len(found) == 12 and all(item["success"] for item in found)


def test_the_custom_solution_example_runs_locally(tmp_path: pathlib.Path) -> None:
    run_example("custom_solution_experiment.py", tmp_path, "--local", "--result-dir", "mine")
    found = solutions(tmp_path / "mine")
    assert sorted(item["output"] for item in found)[-1] == "Tokyo"


@pytest.mark.parametrize("name", ["http_offline_experiment.py", "custom_solution_experiment.py"])
def test_an_example_without_an_account_says_what_to_set(name: str, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=str(tmp_path),
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stderr=subprocess.PIPE,
        timeout=60,
    )
    message = done.stderr.decode("utf-8")
    assert done.returncode == 1 and "AGENTLOOP_SPACE" in message and "--local" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_shows_no_traceback_of_the_agent() -> None:
    with subprocess.Popen(
        [sys.executable, "-B", str(EXAMPLES / "small_agent.py"), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as agent:
        assert agent.stdout is not None and agent.stdout.readline().startswith(b"http://")
        agent.send_signal(signal.SIGINT)
        _, said = agent.communicate(timeout=60)
    assert agent.returncode == 0 and said == b""


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables(tmp_path: pathlib.Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(str(EXAMPLES / "notebook.ipynb"), as_version=4)
    os.environ["PYTHONPATH"] = str(ROOT)
    client.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert len(shown) == 3 and all("<table" in html for html in shown)
    assert "worse ['q-02'" in str(notebook.cells[-2]["outputs"])
