"""What a user installs: the package, its marker for type checkers, its data, and nothing else."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import Dict, List

import pytest

PACKAGE = "agentloop_experiment_sdk"
ROOT = pathlib.Path(__file__).resolve().parents[1]


def package_files() -> List[str]:
    """Every file below the package that is not a by-product of running it."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


@pytest.fixture
def wheel(tmp_path: pathlib.Path, machine_environment: Dict[str, str]) -> pathlib.Path:
    # from a copy: a build leaves a directory behind, and takes up what an earlier one left
    source, target = tmp_path / "source", tmp_path / "dist"
    shutil.copytree(str(ROOT / PACKAGE), str(source / PACKAGE))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(str(ROOT / name), str(source))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(target), "."]
    done = subprocess.run(
        command, cwd=str(source), env=machine_environment, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(str(wheel)) as archive:
        names = archive.namelist()
    metadata = [name for name in names if name.split("/")[0].endswith(".dist-info")]
    assert sorted(set(names) - set(metadata)) == package_files()
    assert PACKAGE + "/py.typed" in names
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.slow
def test_the_wheel_imports_away_from_the_source_tree(
    wheel: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    code = (
        "import sys; sys.path.insert(0, {!r}); import {} as package; "
        "print(package.__file__, package.__version__)"
    ).format(str(wheel), PACKAGE)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=str(tmp_path), stdout=subprocess.PIPE, text=True
    )
    where, version = done.stdout.split()
    assert where.startswith(str(wheel))
    assert wheel.name.split("-")[1] == version
