"""The names that users may rely on, and that ``help()`` says what they need to know of each."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pydoc
import re
from functools import cached_property
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import agentloop_experiment_sdk as sdk
from agentloop_experiment_sdk.run.options import RunOptions

# A new name is a minor release; one that goes is deprecated first: see "Developing" in README.md.
EXPORTED: Dict[str, List[str]] = {
    "agentloop_experiment_sdk": [
        "AgentLoopConfig",
        "AttemptDone",
        "CheckItem",
        "CheckReport",
        "CloudError",
        "Comparison",
        "ConfigurationError",
        "Connection",
        "CredentialsError",
        "DatasetError",
        "DeliveryReport",
        "DirectoryLockedError",
        "EmptyDatasetError",
        "EvaluationError",
        "Event",
        "Experiment",
        "ExperimentError",
        "ExperimentResult",
        "GateResult",
        "HttpRequestSpec",
        "LimitChanged",
        "LocalAgentLoop",
        "MetricResult",
        "PlanError",
        "PlanSummary",
        "Progress",
        "RecordCreated",
        "ResultRow",
        "ResultsDirectoryError",
        "ResumeError",
        "RowsDelivered",
        "RunAbortedError",
        "RunFinished",
        "SolutionOutput",
        "Task",
        "TooManyFailuresError",
        "__version__",
        "anthropic_extractor",
        "call_solution",
        "command_solution",
        "command_solution_with",
        "compare",
        "contains",
        "coze_extractor",
        "dashscope_extractor",
        "default_session_id",
        "deliver",
        "dify_extractor",
        "evaluate",
        "exact_match",
        "export_baseline",
        "gate",
        "http_solution",
        "http_solution_with",
        "json_equal",
        "latency_below",
        "list_plans",
        "llm_judge",
        "load_baseline",
        "load_result",
        "local_config",
        "multi_turn_cli_solution",
        "multi_turn_http_solution",
        "multi_turn_http_solution_with",
        "numeric_close",
        "openai_chat_extractor",
        "openai_completions_extractor",
        "openai_responses_extractor",
        "regex_match",
        "render_html",
        "render_json",
        "render_junit",
        "render_markdown",
        "render_text",
        "run_experiment",
        "run_experiment_parallel",
        "run_multi_turn_agent_experiment",
        "run_multi_turn_experiment",
        "tokens_below",
        "trace_headers",
        "ttft_below",
        "uuid_session_id",
        "write_html",
    ],
    "agentloop_experiment_sdk.evaluate": [
        "Evaluator",
        "MetricResult",
        "NamedEvaluator",
        "contains",
        "evaluate_output",
        "evaluate_output_async",
        "exact_match",
        "json_equal",
        "latency_below",
        "llm_judge",
        "missing_evaluators",
        "named_evaluators",
        "numeric_close",
        "regex_match",
        "tokens_below",
        "ttft_below",
    ],
    "agentloop_experiment_sdk.local": [
        "Endpoints",
        "Fault",
        "Faults",
        "LocalAgentLoop",
        "Request",
        "ServiceError",
    ],
}
# values that Python documents by their type: the version's text, and the union of the event classes
WITHOUT_DOCSTRING = ("__version__", "Event")
NAMES = sorted(
    {(module, name) for module in EXPORTED for name in EXPORTED[module]},
    key=lambda pair: (pair[1], pair[0]),
)


def modules() -> Dict[str, Any]:
    # the root exports a function under the name of the room "evaluate"
    return {name: importlib.import_module(name) for name in EXPORTED}


def documented() -> Iterator[Tuple[str, Any]]:
    """Every exported function and class, and the public members of the classes."""
    for module, name in NAMES:
        found = getattr(modules()[module], name)
        if name in WITHOUT_DOCSTRING:
            continue
        yield name, found
        if inspect.isclass(found):
            for member, value in members(found):
                yield "{}.{}".format(name, member), value


def members(owner: type) -> Iterator[Tuple[str, Any]]:
    """The public methods and properties that the package defines for a class."""
    ours = [kind for kind in owner.__mro__ if kind.__module__.startswith(sdk.__name__)]
    for name, value in ((name, value) for kind in ours for name, value in vars(kind).items()):
        described = (property, cached_property, classmethod, staticmethod)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, described)):
            yield name, getattr(value, "__func__", value)


DOCUMENTED = dict(documented())


def parameters(found: Any) -> List[str]:
    """The names a caller can give; an error class that adds none has those of its root."""
    if inspect.isclass(found):
        if getattr(found, "_is_protocol", False) or "__init__" not in vars(found):
            return []
    elif not inspect.isfunction(found):
        return []
    return [name for name in inspect.signature(found).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("module", list(EXPORTED))
def test_exactly_these_names_are_exported(module: str) -> None:
    assert sorted(modules()[module].__all__) == EXPORTED[module]


def test_dir_offers_every_exported_name() -> None:
    assert set(EXPORTED[sdk.__name__]) <= set(dir(sdk))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    for module in modules().values():
        with pytest.raises(AttributeError):
            module.run_experiment_serial  # noqa: B018


@pytest.mark.parametrize("name", list(DOCUMENTED))
def test_a_docstring_begins_with_one_line_that_is_a_sentence(name: str) -> None:
    text = inspect.getdoc(DOCUMENTED[name]) or ""
    first = text.split("\n\n")[0]
    assert "\n" not in first
    assert re.search(r"\w+ .*[.!?…]$", first), first


@pytest.mark.parametrize("name", list(DOCUMENTED))
def test_a_docstring_names_every_parameter(name: str) -> None:
    text = inspect.getdoc(DOCUMENTED[name]) or ""
    missing = [each for each in parameters(DOCUMENTED[name]) if not re.search(word(each), text)]
    assert not missing


def word(name: str) -> str:
    return r"(?<!\w){}(?!\w)".format(re.escape(name))


@pytest.mark.parametrize("name", list(DOCUMENTED))
def test_what_says_that_it_raises_names_errors_that_exist(name: str) -> None:
    text = inspect.getdoc(DOCUMENTED[name]) or ""
    section = re.search(r"^Raises:\n((?:[ ].*\n?)+)", text, re.M)
    for error in re.findall(r"^ {4}(\w+):", section.group(1), re.M) if section else []:
        places = [builtins, *modules().values()]
        assert any(issubclass(getattr(place, error, object), BaseException) for place in places)


@pytest.mark.parametrize("name", list(DOCUMENTED))
def test_help_shows_no_addresses_and_no_endless_defaults(name: str) -> None:
    shown = pydoc.plain(pydoc.render_doc(DOCUMENTED[name]))
    assert " at 0x" not in shown
    assert max(map(len, shown.splitlines())) < 2500


def test_help_of_the_package_shows_where_to_begin_and_nothing_private() -> None:
    shown = pydoc.plain(pydoc.render_doc(sdk))
    assert set(re.findall(r"``(\w+)``", sdk.__doc__ or "")) <= set(sdk.__all__)
    assert "run_experiment_parallel" in shown.split("PACKAGE CONTENTS")[0]
    assert "SUBMODULES" not in shown


def test_the_options_of_run_experiment_are_those_of_experiment() -> None:
    taken = inspect.signature(sdk.Experiment).parameters.values()
    keywords = {each.name: each.annotation for each in taken if each.kind is each.KEYWORD_ONLY}
    del keywords["serial"]  # the functions' own
    typed = {name: hint.__forward_arg__ for name, hint in RunOptions.__annotations__.items()}
    assert typed == keywords
