"""Nothing that is received is run: no pickle, eval, exec, yaml or shell in the package, but one.

Datasets, agents' answers, commands' output, the cloud's answers and the files of a results
directory are data. The one exception is named here: with ``executor=`` the run sends its own
solution to its own workers, and both ends pickle what ``concurrent.futures`` carries anyway.
"""

from __future__ import annotations

import ast
from typing import Any, Dict, Iterator, Set, Tuple

import pytest
from test_house import MODULES, PACKAGE, TREES

# what may be imported nowhere else: module of ours -> module of theirs
EXCEPTIONS = {
    ("run.kit", "pickle"),
    ("run.kit", "cloudpickle"),
    ("cli.executors", "cloudpickle"),
    ("solutions.spawn", "ctypes"),  # calls posix_spawn with the command that the user gave
}
DANGEROUS_MODULES = {
    "pickle",
    "_pickle",
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
    "ctypes",
    "_ctypes",
    "cffi",
    "commands",
}
# parsers that expand entities; the escaping functions of xml.sax.saxutils are no parsers
XML = "xml"
DANGEROUS_NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
# module -> what may not be taken from it, by any name it goes by; ``*`` at the end is any ending
DANGEROUS_MEMBERS = {
    "os": ("system", "popen", "exec*", "spawn*", "posix_spawn*", "startfile"),
    "subprocess": ("getoutput", "getstatusoutput"),
    "asyncio": ("create_subprocess_shell",),
    "tempfile": ("mktemp",),
    "sys": ("setrecursionlimit",),
    "shutil": ("unpack_archive",),
    "builtins": ("eval", "exec", "compile", "__import__"),
    "posix": ("*",),
    "nt": ("*",),
}
# whatever they are asked of: names that mean the same everywhere
DANGEROUS_METHODS = {
    "exec_module",
    "load_module",
    "read_pickle",
    "to_pickle",
    "enable_load_extension",
    "load_extension",
    "getoutput",
    "getstatusoutput",
    "create_subprocess_shell",
    "unpack_archive",
}
# keywords that make a harmless call run something, and the value that they may have
DANGEROUS_KEYWORDS = {"shell": False, "allow_pickle": False, "enable_load_extension": False}
IMPORTERS = {"import_module", "__import__", "find_spec", "spec_from_loader"}
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


def known_as(tree: ast.AST) -> Dict[str, str]:
    """Each name that a module is imported under -> the module."""
    names: Dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
    return names


def is_dangerous(module: str, member: str) -> bool:
    wanted = DANGEROUS_MEMBERS.get(module, ())
    return any(
        member.startswith(name[:-1]) if name.endswith("*") else member == name for name in wanted
    )


def is_dangerous_module(name: str) -> bool:
    top = name.split(".")[0]
    return top in DANGEROUS_MODULES or (top == XML and name != "xml.sax.saxutils")


def faults(tree: ast.AST) -> Iterator[str]:
    """What in a module could run what it was given."""
    names = known_as(tree)
    for name in imports(tree):
        if is_dangerous_module(name):
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in DANGEROUS_NAMES:
            yield node.id
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if is_dangerous(node.module or "", alias.name) or alias.name == "*":
                    yield "{}.{}".format(node.module, alias.name)
        elif isinstance(node, ast.Attribute):
            yield from _attribute_faults(node, names)
        elif isinstance(node, ast.Call):
            yield from _call_faults(node, names)


def _attribute_faults(node: ast.Attribute, names: Dict[str, str]) -> Iterator[str]:
    owner = getattr(node.value, "id", "")
    if is_dangerous(names.get(owner, owner), node.attr) or node.attr in DANGEROUS_METHODS:
        yield "{}.{}".format(owner, node.attr)


def _call_faults(call: ast.Call, names: Dict[str, str]) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from _spread_faults(keyword.value)
        elif not _is_harmless(keyword.arg, keyword.value):
            yield keyword.arg + "="
    function = call.func
    called = getattr(function, "attr", getattr(function, "id", ""))
    texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    if called in IMPORTERS:
        yield from (text for text in texts if isinstance(text, str) and is_dangerous_module(text))
    if called == "getattr" and call.args:
        owner = getattr(call.args[0], "id", "")
        for text in texts:
            if isinstance(text, str) and is_dangerous(names.get(owner, owner), text):
                yield "{}.{}".format(owner, text)


def _spread_faults(value: ast.AST) -> Iterator[str]:
    """``**{"shell": True}``, also where the mapping is merged or made by ``dict``."""
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values):
                name = getattr(key, "value", None)
                if isinstance(name, str) and not _is_harmless(name, item):
                    yield name + "="


def _is_harmless(name: str, value: ast.AST) -> bool:
    constant = getattr(value, "value", None)
    return name not in DANGEROUS_KEYWORDS or constant is DANGEROUS_KEYWORDS[name]


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
        "from os import system",
        "from os import popen as run",
        "from os import execv",
        "from os import *",
        "import os as o; o.system('x')",
        "import os; getattr(os, 'system')('x')",
        "from subprocess import getoutput",
        "import subprocess as sp; sp.getoutput(x)",
        "from builtins import eval as e",
        "import builtins as b; b.exec(x)",
        "import importlib; importlib.import_module('pickle')",
        "from importlib import import_module; import_module('yaml.loader')",
        "from subprocess import run; run(x, **{'shell': True})",
        "from subprocess import run; run(x, **dict(given, **{'shell': maybe}))",
        "import pandas; pandas.read_pickle(x)",
        "import numpy; numpy.load(x, allow_pickle=True)",
        "connection.enable_load_extension(True)",
        "connection.load_extension('x')",
        "import ctypes",
        "from ctypes import CDLL",
        "import posix; posix.system('x')",
    ],
)
def test_the_check_sees_what_it_is_for(code: str) -> None:
    assert list(faults(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import re; re.compile('x')",
        "import ast; ast.literal_eval('1')",
        "f(shell=False)",
        "f(**{'shell': False})",
        "f(**options)",
        "import os; os.path.join('a', 'b')",
        "from os import path",
        "import numpy; numpy.load(x, allow_pickle=False)",
        "import importlib; importlib.import_module('json')",
        "system = 1; thing.system",
    ],
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
