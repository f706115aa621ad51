"""Who may read and write what a run leaves: the umask decides, and keys are never in it."""

from __future__ import annotations

import logging
import os
import stat
from typing import Any, Iterator

import pytest
from run_support import item_rows, run

from agentloop_experiment_sdk import (
    AgentLoopConfig,
    SolutionOutput,
    compare,
    deliver,
    evaluate,
    exact_match,
    export_baseline,
    gate,
    latency_below,
    local_config,
)
from agentloop_experiment_sdk.cli import main
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.report.files import write_report

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has access lists, not modes")
KEY_ID, SECRET, TOKEN = "LTAI-key-id-0001", "the-secret-of-the-key", "the-security-token"


@pytest.fixture
def umask() -> Iterator[Any]:
    """Sets the process's umask for one test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def reporting(task: Any) -> SolutionOutput:
    if task.input["id"] == "1":
        raise ValueError("no")
    return SolutionOutput.success("a", meta={"usage": {"input_tokens": 1, "output_tokens": 2}})


def leave_everything(local: LocalAgentLoop, config: AgentLoopConfig, root: Any) -> None:
    """All files that the package writes: two runs, one of them archived, scores, reports."""
    path = root / "results"
    run(config, reporting, path)
    again = run(config, reporting, path, resume=False, evaluators=[latency_below(9)])
    result = evaluate(path, [exact_match(), latency_below(9)])
    deliver(path, config)
    for ending in ("html", "md", "json", "xml", "txt"):
        write_report(compare([result, again]), root / ("report." + ending))
    write_report(gate(result), root / "gate.md")
    export_baseline(result, root / "baseline.json")


@posix
@pytest.mark.parametrize("mask", [0o077, 0o027, 0o022, 0o002])
def test_the_umask_decides_who_may_read_and_write(
    local: LocalAgentLoop, tmp_path: Any, umask: Any, mask: int
) -> None:
    umask(mask)
    config = local_config(local, local.create_plan(local.load_dataset(item_rows(3))))
    (tmp_path / "made").mkdir()
    leave_everything(local, config, tmp_path / "made")
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "q": "x"}\n')
    (tmp_path / "agent.py").write_text("def answer(task):\n    return 1\n")
    names = ("html", "junit", "markdown", "report-json", "export-baseline")
    wanted = [text for name in names for text in ("--" + name, str(tmp_path / "made" / name))]
    place = [
        "--result-dir",
        str(tmp_path / "made" / "cli"),
        "--local",
        str(tmp_path / "rows.jsonl"),
    ]
    assert main(["run", str(tmp_path / "agent.py") + ":answer", *place, *wanted]) == 0
    modes = {
        str(entry.relative_to(tmp_path)): stat.S_IMODE(entry.lstat().st_mode)
        for entry in [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    }
    assert len(modes) > 40
    assert not {name: oct(mode) for name, mode in modes.items() if mode & mask}
    executable = {
        name for name, mode in modes.items() if mode & 0o111 and not (tmp_path / name).is_dir()
    }
    assert not executable


def test_keys_are_in_no_file_and_no_log_line(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalAgentLoop(access_key_id=KEY_ID, access_key_secret=SECRET) as local:
        local.set_access_key(KEY_ID, SECRET, TOKEN)
        plan = local.create_plan(local.load_dataset(item_rows(3)))
        config = local_config(local, plan, security_token=TOKEN)
        leave_everything(local, config, tmp_path)
    files = [entry for entry in tmp_path.rglob("*") if entry.is_file()]
    assert len(files) > 30
    for secret in (KEY_ID, SECRET, TOKEN):
        assert not [file for file in files if secret.encode() in file.read_bytes()]
        assert secret not in caplog.text and secret not in repr(config)


@posix
def test_a_report_is_not_written_through_a_link_that_waits_for_it(
    local: LocalAgentLoop, tmp_path: Any
) -> None:
    """In a folder like /tmp others may guess the name of a temporary file."""
    config = local_config(local, local.create_plan(local.load_dataset(item_rows(3))))
    result = run(config, reporting, tmp_path / "r")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "report.html.{}.tmp".format(os.getpid())).symlink_to(tmp_path / "precious")
    write_report(result, tmp_path / "report.html")
    assert (tmp_path / "precious").read_text() == "precious"
    (tmp_path / "second.html").symlink_to(tmp_path / "precious")
    write_report(result, tmp_path / "second.html")  # the link is replaced
    assert (tmp_path / "precious").read_text() == "precious"


@posix
@pytest.mark.parametrize("mask", [0, 0o022])
def test_no_umask_makes_results_writable_for_others(
    local: LocalAgentLoop, tmp_path: Any, umask: Any, mask: int
) -> None:
    umask(mask)
    config = local_config(local, local.create_plan(local.load_dataset(item_rows(3))))
    leave_everything(local, config, tmp_path)
    files = [entry for entry in (tmp_path / "results").rglob("*") if entry.is_file()]
    assert {entry.name for entry in files} >= {
        "evaluation_meta.json",
        "evaluation_result.json",
        "journal.jsonl",
        "task_meta.json",
        "solution.json",
        "stats.json",
        ".lock",
    }
    modes = {str(entry): oct(stat.S_IMODE(entry.lstat().st_mode)) for entry in files}
    assert set(modes.values()) == {oct(0o644)}, modes
