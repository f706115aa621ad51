"""Every block of the READMEs runs: Python in one namespace, shell commands one after the other."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import List, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
READMES = [ROOT / "README.md", ROOT / "README-CN.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(readme: pathlib.Path) -> List[Tuple[str, str]]:
    return BLOCK.findall(readme.read_text(encoding="utf-8"))


def blocks_of(readme: pathlib.Path, language: str) -> List[str]:
    return [text for kind, text in blocks(readme) if kind == language]


@pytest.fixture(params=READMES, ids=lambda path: path.name)
def readme(request: pytest.FixtureRequest) -> pathlib.Path:
    return request.param


def test_python_blocks_run_in_order(
    readme: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks_of(readme, "python")
    assert len(found) >= 6
    namespace = {"__name__": "__readme__"}
    try:
        for number, text in enumerate(found):
            exec(compile(text, "{} block {}".format(readme.name, number), "exec"), namespace)
        assert namespace["verdict"].passed, namespace["verdict"].reasons
        assert pathlib.Path("report.html").stat().st_size > 10_000
    finally:
        if "local" in namespace:
            namespace["local"].close()


def test_shell_blocks_run_in_order(readme: pathlib.Path, tmp_path: pathlib.Path) -> None:
    scripts = [text for text in blocks_of(readme, "bash") if "pip install" not in text]
    assert scripts
    for text in scripts:
        run_shell(text, tmp_path)


def test_the_ci_job_runs(readme: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (job,) = blocks_of(readme, "yaml")
    steps = re.findall(r"- run: (?:>\n)?((?:.*\n)(?:\s{10}.*\n)*)", job)
    commands = [" ".join(step.split()) for step in steps if "pip install" not in step]
    assert len(commands) == 1
    for text in blocks_of(readme, "bash"):
        if "pip install" not in text:
            run_shell(text, tmp_path)
    shutil.rmtree(tmp_path / "results")
    run_shell(commands[0], tmp_path)
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").strip()
    assert "<testsuite" in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def test_the_set_up_is_two_commands(readme: pathlib.Path) -> None:
    first, second = blocks_of(readme, "bash")[:2]
    assert first == "pip install . && python examples/quickstart.py\n"
    assert second == 'pip install -e ".[dev]" && pytest\n'


def test_both_languages_show_the_same_code() -> None:
    english, chinese = (blocks(readme) for readme in READMES)
    assert [kind for kind, _ in english] == [kind for kind, _ in chinese]
    for (kind, ours), (_, theirs) in zip(english, chinese):
        if kind in ("bash", "yaml"):
            assert ours == theirs


def table_after(readme: pathlib.Path, heading: str) -> List[str]:
    section = readme.read_text(encoding="utf-8").split("\n## {}\n".format(heading))[1]
    return [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")][1:]


def test_both_languages_show_the_same_numbers() -> None:
    tables = map(table_after, READMES, ("How fast it is", "有多快"))
    english, chinese = ([re.findall(r"\d[\d,.]*\d|\d", line) for line in rows] for rows in tables)
    # "four names" and the like are words in both
    assert [sorted(numbers) for numbers in english] == [sorted(numbers) for numbers in chinese]


def test_every_trouble_has_a_command_that_diagnoses_it() -> None:
    english, chinese = map(table_after, READMES, ("When something is wrong", "出问题时"))
    commands = [
        [re.findall(r"`agentloop-experiment (\w+)", line) for line in rows]
        for rows in (english, chinese)
    ]
    assert commands[0] == commands[1] and all(commands[0])


def run_shell(text: str, directory: pathlib.Path) -> None:
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "agentloop-experiment"
    command.write_text(
        '#!/bin/sh\nexec "{}" -m agentloop_experiment_sdk "$@"\n'.format(sys.executable)
    )
    command.chmod(0o755)
    environment = dict(os.environ, GITHUB_STEP_SUMMARY=str(directory / "summary.md"))
    environment["PATH"] = "{}{}{}".format(programs, os.pathsep, os.environ["PATH"])
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        ["bash", "-eu", "-c", text],
        cwd=str(directory),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
