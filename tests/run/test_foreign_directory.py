"""A results directory that somebody else made leads no run, deliver or evaluate out of it."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest
from run_support import answer, config_for, item_rows, run, solutions

from agentloop_experiment_sdk import (
    ResultsDirectoryError,
    compare,
    deliver,
    evaluate,
    exact_match,
    gate,
    load_result,
)
from agentloop_experiment_sdk.local import LocalAgentLoop
from agentloop_experiment_sdk.report.html import render_html
from agentloop_experiment_sdk.report.junit import render_junit
from agentloop_experiment_sdk.report.text import render_text
from agentloop_experiment_sdk.results import places

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")


@pytest.fixture
def outside(tmp_path: Any) -> Any:
    """A folder of the user that no run has anything to do with."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("precious\n")
    return folder


def untouched(outside: Any) -> bool:
    names = sorted(entry.name for entry in outside.iterdir())
    return names == ["precious"] and (outside / "precious").read_text() == "precious\n"


@pytest.mark.parametrize("name", [".lock", "journal.jsonl"])
def test_files_that_are_written_in_place_are_not_written_through_a_link(
    local: LocalAgentLoop, tmp_path: Any, outside: Any, name: str
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    (path / name).unlink()
    (path / name).symlink_to(outside / "precious")
    for work in (
        lambda: run(config, answer, path),
        lambda: run(config, answer, path, resume=False),
        lambda: deliver(path, config),
        lambda: evaluate(path, [exact_match()]),
    ):
        with pytest.raises(ResultsDirectoryError, match="symbolic link"):
            work()
    assert untouched(outside)


@pytest.mark.parametrize("name", [".lock", "journal.jsonl", "history"])
def test_a_directory_that_holds_nothing_but_a_link_is_refused(
    local: LocalAgentLoop, tmp_path: Any, outside: Any, name: str
) -> None:
    path = tmp_path / "r"
    path.mkdir()
    (path / name).symlink_to(outside if name == "history" else outside / "precious")
    with pytest.raises(ResultsDirectoryError, match="symbolic link"):
        run(config_for(local), answer, path)
    assert untouched(outside) and len(local.records()) == 0


def test_no_answer_is_written_through_a_linked_folder(
    local: LocalAgentLoop, tmp_path: Any, outside: Any
) -> None:
    """A task's id can be known beforehand: it is made of the row's content."""
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    task, repeat = solutions(path)[0].parents[1], solutions(path)[0].parent
    shutil.rmtree(repeat)
    repeat.symlink_to(outside, target_is_directory=True)
    with pytest.raises(ResultsDirectoryError, match="symbolic link"):
        run(config, answer, path)
    shutil.rmtree(path)
    path.mkdir()
    (path / task.name).symlink_to(outside, target_is_directory=True)
    with pytest.raises(ResultsDirectoryError, match="symbolic link"):
        run(config, answer, path)
    assert untouched(outside)


def test_no_score_is_written_through_a_linked_folder(
    local: LocalAgentLoop, tmp_path: Any, outside: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    (solutions(path)[0].parent / "evaluation").symlink_to(outside, target_is_directory=True)
    with pytest.raises(ResultsDirectoryError, match="symbolic link"):
        evaluate(path, [exact_match()])
    with pytest.raises(ResultsDirectoryError, match="symbolic link"):
        run(config, answer, path, evaluators=[exact_match()])
    assert untouched(outside)


def test_links_that_are_only_read_or_replaced_are_no_obstacle(
    local: LocalAgentLoop, tmp_path: Any, outside: Any
) -> None:
    """Tools that keep big files in a cache put links in their place."""
    config, path = config_for(local), tmp_path / "r"
    record = run(config, answer, path).record_id
    cache = tmp_path / "cache"
    cache.mkdir()
    for number, file in enumerate([*solutions(path), path / "evaluation_meta.json"]):
        kept = cache / str(number)
        shutil.move(str(file), str(kept))
        file.symlink_to(kept)
    before = [kept.read_bytes() for kept in sorted(cache.iterdir())]
    link = tmp_path / "link"
    link.symlink_to(path, target_is_directory=True)
    assert load_result(link).counts.succeeded == 3
    assert run(config, answer, link).record_id == record
    assert [kept.read_bytes() for kept in sorted(cache.iterdir())] == before


NAMES = ["../../outside", "/etc", "..", ".", "", "a/b", "a\0b", "\ud800", "x" * 5000, 10**5]


@pytest.mark.parametrize("name", NAMES[:-2])
def test_a_task_that_is_no_folder_of_the_directory_is_refused(
    local: LocalAgentLoop, tmp_path: Any, name: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    (path / "tasks.json").write_text(json.dumps({"tasks": [[name, "1"]]}))
    for work in (load_result, lambda p: deliver(p, config), lambda p: evaluate(p, [exact_match()])):
        with pytest.raises(ResultsDirectoryError, match=r"tasks\.json lists the task"):
            work(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_journal_that_names_other_folders_is_read_without_them(
    local: LocalAgentLoop, tmp_path: Any, outside: Any, name: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    for task, repeat in ((name, "0"), ("0", name)):
        entry = {"event": "saved", "task": task, "repeat": repeat, "attempt": 1, "bytes": 1}
        entry.update(status="success", latency_ms=1)
        with open(path / "journal.jsonl", "a") as file:
            file.write(json.dumps(entry) + "\n")
    assert load_result(path).counts.total == 3
    assert deliver(path, config).undelivered == 0
    assert evaluate(path, [exact_match()]).counts.total == 3
    assert run(config, answer, path).counts.total == 3
    assert len(local.rows()) == 3


@pytest.mark.parametrize("target", ["..", ".", "../../outside", "", "a\0b", 3])
def test_an_unfinished_move_ends_below_history(
    local: LocalAgentLoop, tmp_path: Any, outside: Any, target: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    meta = json.loads((path / "evaluation_meta.json").read_text())
    meta.update(status="archiving", archived_status="completed", archive_to=target)
    (path / "evaluation_meta.json").write_text(json.dumps(meta))
    result = run(config, answer, path)
    assert result.counts.succeeded == 3 and untouched(outside)
    if target:
        assert [entry.parent.name for entry in (path / "history").iterdir()] == ["history"]
        moved = next((path / "history").iterdir())
        assert load_result(moved).counts.succeeded == 3


@pytest.mark.parametrize("pipeline", ["", "pipe"])
@pytest.mark.parametrize("value", [5, ["x"], {"a": 1}, "soon", 1e999])
def test_facts_of_an_answer_that_are_none_hold_up_no_row(
    local: LocalAgentLoop, tmp_path: Any, value: Any, pipeline: str
) -> None:
    if pipeline:
        local.create_pipeline(pipeline, nodes=[{"id": "a", "type": "project"}])
    config, path = config_for(local, pipeline_name=pipeline), tmp_path / "r"
    run(config, answer, path)
    file = solutions(path)[0]
    document = json.loads(file.read_text())
    document["meta"]["agentloop.attempt"].update(trace_id=value, started_at=value)
    file.write_text(json.dumps(document))
    (path / "journal.jsonl").unlink()
    report = deliver(path, config)
    assert (report.delivered, report.undelivered) == (3, 0)


HUGE = [10**400, -(10**400), 10**5000, 1e999, True, [], {}, "9" * 5000]


@pytest.mark.parametrize("value", HUGE, ids=range(len(HUGE)))
def test_numbers_out_of_all_proportion_are_passed_over(
    local: LocalAgentLoop, tmp_path: Any, value: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path, evaluators=[exact_match()])
    text = "1e999" if value == 1e999 else _plain(value)
    for file in (*solutions(path), *path.glob("*/*/evaluation/*.json")):
        document = json.loads(file.read_text())
        if "result" in document:
            document["result"] = "@"
        else:
            facts = document["meta"]["agentloop.attempt"]
            facts.update(latency_ms="@", number="@", started_at="@", finished_at="@")
            document["meta"].update(ttft_ms="@", usage={"input_tokens": "@", "model": "@"})
        file.write_text(json.dumps(document).replace('"@"', text))
    meta = json.loads((path / "evaluation_meta.json").read_text())
    meta["benchmark"]["total_tasks"] = meta["experiment_start_time"] = "@"
    (path / "evaluation_meta.json").write_text(json.dumps(meta).replace('"@"', text))
    (path / "journal.jsonl").unlink()
    if isinstance(value, float):
        first = solutions(path)[0]
        entry = {"event": "saved", "task": first.parents[1].name, "repeat": "0", "attempt": 1}
        entry.update(status="success", latency_ms="@", bytes=first.stat().st_size)
        (path / "journal.jsonl").write_text(json.dumps(entry).replace('"@"', text) + "\n")
    result = load_result(path)
    limits = {"max_cost": 1, "prices": {"*": (0.5, 1)}}
    for subject in (result, gate(result, **limits), compare([result, result])):
        assert render_text(subject) and render_junit(subject)
        json.dumps(subject.to_dict())
    assert render_html(result) and render_html(compare([result, result]))
    assert run(config, answer, path).counts.total == 3


def _plain(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return ("-" if value < 0 else "") + "1" + "0" * (400 if abs(value) < 10**401 else 5000)
    return json.dumps(value)


@pytest.mark.parametrize("name", ["a", "a.b", "..a", "a b", "数据", "-rf", "CON", "a%2Fb"])
def test_one_name_is_one_name(name: str) -> None:
    assert places.is_one_name(name)


def test_ids_of_the_dataset_name_no_file(local: LocalAgentLoop, tmp_path: Any) -> None:
    from agentloop_experiment_sdk import local_config

    ids = ["../../../x", "/x", "a\0b", "x" * 10_000, "CON", "nul.txt", "a\nb", "\x1b[31m", "..", ""]
    ids += ["<script>", "C:\\x", "%s%n", "\u202e", "."]
    rows = [dict(row, id=name) for row, name in zip(item_rows(len(ids)), ids)]
    config = local_config(local, local.create_plan(local.load_dataset(rows, "hostile")))
    result = run(config, answer, tmp_path / "r")
    assert result.counts.succeeded == len(ids)
    written = {entry.name for entry in tmp_path.rglob("*")}
    assert not written & set(ids)
    assert {entry.name for entry in tmp_path.iterdir()} == {"r"}
    assert sorted(row["dataset.q"] for row in local.rows()) == sorted(row["q"] for row in rows)


@pytest.mark.parametrize("repeats", [10**12, 1e300, 10**400, -1, "x", None, []])
def test_a_number_of_repeats_that_nobody_asked_for_is_no_reason_to_fill_the_memory(
    local: LocalAgentLoop, tmp_path: Any, repeats: Any
) -> None:
    config, path = config_for(local), tmp_path / "r"
    run(config, answer, path)
    meta = json.loads((path / "evaluation_meta.json").read_text())
    (path / "evaluation_meta.json").write_text(json.dumps(dict(meta, total_repeats=repeats)))
    works = [load_result, lambda p: deliver(p, config), lambda p: evaluate(p, [exact_match()])]
    for work in works:
        if repeats in (10**12, 1e300):
            with pytest.raises(ResultsDirectoryError, match="repeats; it was not written by"):
                work(path)
        else:
            work(path)
