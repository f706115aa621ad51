"""What type checkers make of the public API: right usage passes, and mistakes are found."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from typing import Dict, List, Set, Tuple

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPING = ROOT / "tests" / "typing"
MARK = re.compile(r"# error: ([\w-]+), (\w+)$")

Found = Dict[int, Set[str]]


def run(command: List[str], environment: Dict[str, str]) -> Tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=str(ROOT),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def mypy(name: str, environment: Dict[str, str]) -> Found:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: extra dev")
    command = ["mypy", "--strict", "--no-pretty", "--no-error-summary", str(TYPING / name)]
    status, output, errors = run(command, environment)
    assert status in (0, 1), output + errors
    found: Found = {}
    for line, code in re.findall(r"^.*?:(\d+): error: .*\[([\w-]+)\]$", output, re.M):
        found.setdefault(int(line), set()).add(code)
    assert bool(found) == bool(status), output + errors
    return found


def pyright(name: str, environment: Dict[str, str]) -> Found:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed: extra peers")
    # it needs node, and may fetch it and its program at the first use
    try:
        status, output, errors = run(["pyright", "--version"], environment)
    except subprocess.TimeoutExpired as error:
        pytest.skip("pyright cannot be run here: {}".format(error))
    if status:
        pytest.skip("pyright cannot be run here: " + (errors or output).strip()[-200:])
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, str(TYPING / name)]
    status, output, errors = run(command, environment)
    assert status in (0, 1), output + errors
    report = json.loads(output)
    assert report["summary"]["filesAnalyzed"] == 1
    found: Found = {}
    for each in report["generalDiagnostics"]:
        line = each["range"]["start"]["line"] + 1
        found.setdefault(line, set()).add(each.get("rule", each["message"]))
    return found


def expected(column: int) -> Dict[int, str]:
    """Line number to the rule it must break."""
    lines = (TYPING / "wrong.py").read_text(encoding="utf-8").splitlines()
    marks = {number: MARK.search(line) for number, line in enumerate(lines, 1)}
    found = {number: mark.group(column) for number, mark in marks.items() if mark}
    assert len(found) >= 40
    return found


def assert_found(found: Found, wanted: Dict[int, str]) -> None:
    assert sorted(found) == sorted(wanted)
    other = {line: found[line] for line, rule in wanted.items() if rule not in found[line]}
    assert not other


def test_mypy_accepts_what_users_write(machine_environment: Dict[str, str]) -> None:
    assert mypy("usage.py", machine_environment) == {}


def test_mypy_finds_every_mistake(machine_environment: Dict[str, str]) -> None:
    assert_found(mypy("wrong.py", machine_environment), expected(1))


def test_pyright_accepts_what_users_write(machine_environment: Dict[str, str]) -> None:
    assert pyright("usage.py", machine_environment) == {}


def test_pyright_finds_every_mistake(machine_environment: Dict[str, str]) -> None:
    assert_found(pyright("wrong.py", machine_environment), expected(2))
