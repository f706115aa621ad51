"""Nothing that is received is run: no pickle, eval, exec, yaml or shell in the package, but one.

Datasets, agents' answers, commands' output, the cloud's answers and the files of a results
directory are data. The one exception is named here: with ``executor=`` the run sends its own
solution to its own workers, and both ends pickle what ``concurrent.futures`` carries anyway.
"""

from __future__ import annotations

import ast
from typing import Any, Iterator, Set, Tuple

import pytest
from test_house import MODULES, PACKAGE, TREES

# what may be imported nowhere else: module of ours -> module of theirs
EXCEPTIONS = {("run.kit", "pickle"), ("run.kit", "cloudpickle"), ("cli.executors", "cloudpickle")}
DANGEROUS_MODULES = {
    "pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "jsonpickle",
    "joblib",
    "yaml",
    "runpy",
    "code",
    "codeop",
    "pty",
    "xmlrpc",
    "tarfile",
    "zipfile",
}
# parsers that expand entities; the escaping functions of xml.sax.saxutils are no parsers
XML = "xml"
DANGEROUS_NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
DANGEROUS_ATTRIBUTES = {
    ("os", "system"),
    ("os", "popen"),
    ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"),
    ("asyncio", "create_subprocess_shell"),
    ("tempfile", "mktemp"),
    ("sys", "setrecursionlimit"),
    ("shutil", "unpack_archive"),
    ("builtins", "eval"),
    ("builtins", "exec"),
}
# runs a file that the user named on the command line
RUNS_THE_USERS_FILE = {"cli.loading"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def faults(tree: ast.AST) -> Iterator[str]:
    """What in a module could run what it was given."""
    for name in imports(tree):
        if name.split(".")[0] in DANGEROUS_MODULES:
            yield name
        if name.split(".")[0] == XML and name != "xml.sax.saxutils":
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in DANGEROUS_NAMES:
            yield node.id
        if isinstance(node, ast.Attribute):
            place = (getattr(node.value, "id", ""), node.attr)
            if place in DANGEROUS_ATTRIBUTES or node.attr == "exec_module":
                yield ".".join(place)
            if place[0] == "os" and node.attr.startswith(("exec", "spawn")):
                yield ".".join(place)
    for call in calls(tree):
        for keyword in call.keywords:
            constant = getattr(keyword.value, "value", None)
            if keyword.arg == "shell" and constant is not False:
                yield "shell="


def found() -> Set[Tuple[str, str]]:
    return {(module, fault) for module, path in MODULES.items() for fault in faults(TREES[path])}


def test_nothing_that_is_received_can_be_run() -> None:
    allowed = EXCEPTIONS | {(module, ".exec_module") for module in RUNS_THE_USERS_FILE}
    assert found() == allowed, PACKAGE


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads as read",
        "import yaml.loader",
        "def f():\n    import marshal",
        "eval('1')",
        "run = exec",
        "import os; os.system('x')",
        "import os; os.execvp('x', [])",
        "import subprocess; subprocess.run('x', shell=True)",
        "import subprocess; subprocess.Popen('x', shell=maybe)",
        "import xml.etree.ElementTree as tree",
        "import os; act = os.popen",
    ],
)
def test_the_check_sees_what_it_is_for(code: str) -> None:
    assert list(faults(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["import re; re.compile('x')", "import ast; ast.literal_eval('1')", "f(shell=False)"]
)
def test_the_check_leaves_the_rest_alone(code: str) -> None:
    assert not list(faults(ast.parse(code)))


def test_pickles_are_read_only_by_the_workers_that_a_run_has_started() -> None:
    """``run.kit`` alone reads one, and only ``run.remote``, the worker's side, asks it to."""
    readers = {
        module
        for module, path in MODULES.items()
        for call in calls(TREES[path])
        if _is(call, "KITS", "get")
    }
    loads = {
        module
        for module, path in MODULES.items()
        for call in calls(TREES[path])
        if _is(call, "pickle", "loads") or _is(call, "pickle", "load")
    }
    assert (readers, loads) == ({"run.remote"}, {"run.kit"})


def _is(call: Any, owner: str, name: str) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and (
        (getattr(function.value, "id", ""), function.attr) == (owner, name)
    )
