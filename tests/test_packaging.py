"""What a user installs: the package, its marker for type checkers, its data, and nothing else."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from typing import Dict, Iterator, List, NamedTuple, Set

import pytest

pytestmark = pytest.mark.slow

PACKAGE = "agentloop_experiment_sdk"
ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (PACKAGE, "docs", "examples", "tests")
FILES = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "README-CN.md", "pyproject.toml")
RUNTIME = ["alibabacloud_agentloop20260520", "aliyun-log-python-sdk"]
# what running and building leave in a checkout, and no release may hold
LEFTOVERS = (
    "build/lib/{}/gone.py".format(PACKAGE),
    "results/evaluation_meta.json",
    ".coverage",
    "{}/__pycache__/api.cpython-38.pyc".format(PACKAGE),
    "tests/__pycache__/conftest.cpython-38.pyc",
    "tests/.hypothesis/examples/0",
    "examples/.ipynb_checkpoints/notebook.ipynb",
)


class Built(NamedTuple):
    """The two files of a release, and the source files they were made of."""

    wheel: pathlib.Path
    sdist: pathlib.Path
    sources: Set[str]


def source_files() -> Iterator[pathlib.PurePath]:
    """Every file of the source tree that is neither hidden nor a by-product of running it."""
    for name in FILES:
        yield pathlib.PurePath(name)
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        inside = path.relative_to(ROOT)
        hidden = any(part.startswith((".", "__pycache__")) for part in inside.parts)
        if path.is_file() and not hidden:
            yield inside


def run(command: List[str], directory: pathlib.Path, environment: Dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=str(directory),
        env={name: text for name, text in environment.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, machine_environment: Dict[str, str]) -> Built:
    """Built from a copy, because a build leaves files behind and takes up those of another."""
    pytest.importorskip("build", reason="the extra dev is not installed")
    source = tmp_path_factory.mktemp("release") / "source"
    sources = {path.as_posix() for path in source_files()}
    for name in sources:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(ROOT / name), str(source / name))
    for name in LEFTOVERS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("", encoding="utf-8")
    # the sdist of the source, then the wheel of that sdist: a file missing there is missing here
    run([sys.executable, "-m", "build", "--outdir", "dist", "."], source, machine_environment)
    (wheel,) = (source / "dist").glob("*.whl")
    (sdist,) = (source / "dist").glob("*.tar.gz")
    return Built(wheel, sdist, sources)


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(str(built.wheel)) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    package = {name for name in built.sources if name.startswith(PACKAGE + "/")}
    assert names - metadata == package
    assert {PACKAGE + "/py.typed", PACKAGE + "/report/assets/report.css"} < package
    assert sum(name.endswith("/LICENSE") for name in metadata) == 1
    assert built.wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_requires_the_two_clients_only(built: Built) -> None:
    with zipfile.ZipFile(str(built.wheel)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    required = metadata.get_all("Requires-Dist") or []
    always = [re.split(r"[^\w-]", text)[0] for text in required if "extra ==" not in text]
    assert sorted(always) == RUNTIME
    assert metadata["Requires-Python"] == ">=3.8"


def test_the_sdist_holds_the_source_tree_and_nothing_else(built: Built) -> None:
    with tarfile.open(str(built.sdist)) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    generated = {name for name in names if name.startswith(PACKAGE + ".egg-info/")}
    assert names - generated == built.sources | {"PKG-INFO", "setup.cfg"}


@pytest.fixture(scope="module")
def python(
    built: Built,
    tmp_path_factory: pytest.TempPathFactory,
    machine_environment: Dict[str, str],
) -> str:
    """The interpreter of a new virtual environment with the wheel and what it requires."""
    home = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "venv", "venv"], home, machine_environment)
    found = home / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-compile", str(built.wheel)]
    run([str(found)] + install, home, machine_environment)
    return str(found)


def test_the_installed_wheel_runs_the_quickstart(
    built: Built, python: str, tmp_path: pathlib.Path, machine_environment: Dict[str, str]
) -> None:
    code = "import {0} as p; print(p.__file__); print(p.__version__)".format(PACKAGE)
    where, version = run([python, "-c", code], tmp_path, machine_environment).split()
    assert pathlib.Path(where).parts[-3] == "site-packages"
    assert version == built.wheel.name.split("-")[1]
    shutil.copytree(str(ROOT / "examples"), str(tmp_path / "examples"))
    output = run([python, "examples/quickstart.py"], tmp_path, machine_environment)
    assert "12 rows, 12 succeeded" in output
    assert list(tmp_path.glob("results/*/evaluation_meta.json"))


def test_the_installed_command_line_says_what_it_can_do(
    python: str, tmp_path: pathlib.Path, machine_environment: Dict[str, str]
) -> None:
    program = pathlib.Path(python).with_name("agentloop-experiment")
    assert "deliver" in run([str(program), "--help"], tmp_path, machine_environment)


def test_type_checkers_read_the_types_of_the_installed_wheel(
    python: str, tmp_path: pathlib.Path, machine_environment: Dict[str, str]
) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    shutil.copy(str(ROOT / "tests" / "typing" / "usage.py"), str(tmp_path))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "usage.py"]
    assert "no issues found" in run(mypy, tmp_path, machine_environment)
