from __future__ import annotations

import json
import os

import pytest
from results_builder import Builder, build, build_plain, row, task_id_of, write_score

from agentloop_experiment_sdk.errors import ResultsDirectoryError
from agentloop_experiment_sdk.results import attempts, layout
from agentloop_experiment_sdk.results.reader import read_results
from agentloop_experiment_sdk.results.stored import number_or_none


def statuses(stored):
    return {(head.label, head.repeat_id): head.status for head in stored.heads}


def test_rows_carry_what_the_journal_says_without_opening_their_files(tmp_path, monkeypatch):
    usage = {"input_tokens": 7, "output_tokens": 3, "model": "qwen"}
    build(
        tmp_path,
        [
            row("a", latency_ms=12.5, usage=usage),
            row("b", status="failed", error=("Timeout", "too late")),
            row("c", status="skipped"),
        ],
    )
    opened = []
    real = layout.read_json_object
    monkeypatch.setattr(layout, "read_json_object", lambda path: opened.append(path) or real(path))
    stored = read_results(tmp_path)
    first, second, third = stored.heads
    assert (first.status, first.latency_ms, first.usage) == ("success", 12.5, {"qwen": (7, 3)})
    assert (second.status, second.error_type) == ("failed", "Timeout")
    assert third.status == "skipped"
    assert sorted(map(os.path.basename, opened)) == ["evaluation_meta.json", "tasks.json"]


def test_payloads_are_read_when_asked_for_and_freed_with_the_row(tmp_path):
    build(
        tmp_path,
        [
            row(
                7,
                output={"text": "hé"},
                ttft_ms=41,
                trajectory=["step"],
                ground_truth="gt",
                scores={"exact match": True},
                status="failed",
                error=("HTTPError", "HTTP 502"),
            )
        ],
    )
    stored = read_results(str(tmp_path))
    (only,) = stored.rows()
    assert only.label == "7" and only.key == (only.task_id, "0") and only.done
    assert only.output == {"text": "hé"} and only.trajectory == ["step"]
    assert only.input == {"id": 7, "question": "q-7"} and only.ground_truth == "gt"
    assert only.error_message == "HTTP 502" and only.ttft_ms == 41.0
    assert only.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert only.evaluations["exact match"]["result"] is True
    assert "solution" in vars(only) and "solution" not in vars(stored.heads[0])


def test_undelivered_rows_are_those_without_a_line_for_their_newest_attempt_and_record(tmp_path):
    builder = Builder(tmp_path)
    builder.add([row("a"), row("b", delivered=False), row("c", number=2)])
    builder.finish()
    assert [head.delivered for head in read_results(tmp_path).heads] == [True, False, True]
    meta = json.loads((tmp_path / layout.META_FILE).read_text())
    layout.write_json(str(tmp_path / layout.META_FILE), dict(meta, record_id="another"))
    assert [head.delivered for head in read_results(tmp_path).heads] == [False, False, False]


def test_a_row_without_a_journal_line_is_read_from_its_file(tmp_path):
    build(
        tmp_path,
        [
            row("a", journal=False, number=3, latency_ms=9.0, delivered=False),
            row("b", journal=False, status="failed", usage={"input_tokens": 1}),
            row("c", journal=False, status="skipped"),
        ],
    )
    a, b, c = read_results(tmp_path).heads
    assert (a.status, a.number, a.latency_ms, a.delivered) == ("success", 3, 9.0, False)
    assert (b.status, b.error_type, b.usage) == ("failed", "Boom", {"unknown": (1, 0)})
    assert c.status == "skipped"


def test_an_error_is_named_alike_with_and_without_a_journal_line(tmp_path):
    folder = tmp_path / "task_1" / "0"
    folder.mkdir(parents=True)
    meta = {"error_type": {"kind": "Boom"}}
    (folder / "solution.json").write_text(json.dumps({"success": False, "meta": meta}))
    saved = attempts.saved_from_disk(str(tmp_path), ("task_1", "0"), "")
    found = next(read_results(tmp_path).rows())
    assert found.error_type == saved.error == '{"kind":"Boom"}'


def test_torn_and_empty_files_are_incomplete_rows(tmp_path):
    build(tmp_path, [row("a"), row("b"), row("c"), row("d", status="incomplete"), row("e")])
    folders = [head.folder for head in read_results(tmp_path).heads]
    open(os.path.join(folders[0], layout.SOLUTION_FILE), "w").close()
    with open(os.path.join(folders[1], layout.SOLUTION_FILE), "r+b") as file:
        file.truncate(12)
    with open(os.path.join(folders[2], layout.SOLUTION_FILE), "w") as file:
        file.write('{"success": "yes"}')
    stored = read_results(tmp_path)
    assert [head.status for head in stored.heads] == ["incomplete"] * 4 + ["success"]
    torn = next(stored.rows())
    assert torn.output == "" and torn.meta == {} and torn.trace_id is None and not torn.done
    assert torn.error_message == "" and torn.delivered is None


def test_an_answer_that_names_another_experiment_does_not_count(tmp_path):
    build(tmp_path, [row("a", journal=False)])
    (head,) = read_results(tmp_path).heads
    path = os.path.join(head.folder, layout.SOLUTION_FILE)
    solution = layout.read_json_object(path)
    solution["meta"][layout.ATTEMPT_KEY]["experiment"] = "another"
    layout.write_json(path, solution)
    assert read_results(tmp_path).heads[0].status == "incomplete"
    meta = layout.read_json_object(str(tmp_path / layout.META_FILE))
    layout.write_json(str(tmp_path / layout.META_FILE), dict(meta, identity=None))
    assert read_results(tmp_path).heads[0].status == "success"


def test_a_running_directory_shows_rows_that_are_not_there_yet(tmp_path):
    builder = Builder(tmp_path, repeats=2, status="running", finished_at=None)
    builder.add([row("a"), row("b", repeat="1"), row("c", status="incomplete")])
    stored = read_results(builder.finish())
    assert stored.meta["status"] == "running" and stored.expected == 6
    assert statuses(stored)[("a", "0")] == "success"
    assert statuses(stored)[("b", "0")] == "incomplete"
    assert statuses(stored)[("b", "1")] == "success"


def test_a_directory_that_has_only_begun_is_readable(tmp_path):
    layout.write_json(str(tmp_path / layout.META_FILE), {"format_version": 1, "status": "running"})
    stored = read_results(tmp_path)
    assert stored.heads == () and stored.expected == 0 and stored.record_id == ""


def test_stale_task_folders_are_listed_and_not_counted(tmp_path):
    build(tmp_path, [row("a"), row("b")])
    left = task_id_of("gone", {"x": 1})
    os.makedirs(str(tmp_path / left / "0"))
    (tmp_path / left / "0" / layout.SOLUTION_FILE).write_text('{"success": true}')
    (tmp_path / "my notes").mkdir()
    stored = read_results(tmp_path)
    assert stored.stale == (left,) and len(stored.heads) == 2


def test_repeats_beyond_the_declared_ones_are_not_counted(tmp_path):
    build(tmp_path, [row("a"), row("a", repeat="1"), row("a", repeat="2")], repeats=2)
    assert [head.repeat_id for head in read_results(tmp_path).heads] == ["0", "1"]


def test_without_a_number_of_repeats_those_on_disk_count(tmp_path):
    build(tmp_path, [row("a"), row("a", repeat="10"), row("a", repeat="2")], total_repeats=None)
    assert [head.repeat_id for head in read_results(tmp_path).heads] == ["0", "2", "10"]


def test_a_torn_task_list_falls_back_to_the_folders(tmp_path):
    build(tmp_path, [row("a"), row("b")])
    (tmp_path / layout.TASKS_FILE).write_text('{"tasks": [["x"')
    assert sorted(head.label for head in read_results(tmp_path).heads) == ["a", "b"]
    (tmp_path / layout.TASKS_FILE).write_text('{"tasks": [1]}')
    assert len(read_results(tmp_path).heads) == 2


def test_a_plain_agentscope_directory_is_read(tmp_path):
    usage = {"qwen": {"input_tokens": 5, "output_tokens": 2}, "gpt": {"input_tokens": 1}}
    build_plain(
        tmp_path,
        [
            row("task_10", chat_usage=usage, scores={"accuracy": 0.5}),
            row("task_2", status="failed"),
            row("task_2", repeat="1"),
            row("math problem/1".replace("/", "-"), status="incomplete"),
        ],
        repeats=2,
    )
    (tmp_path / "history").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    stored = read_results(tmp_path)
    assert [head.task_id for head in stored.heads][::2] == ["math problem-1", "task_2", "task_10"]
    by_key = {head.key: head for head in stored.heads}
    ten = by_key[("task_10", "0")]
    assert ten.usage == {"qwen": (5, 2), "gpt": (1, 0)}
    assert ten.latency_ms is None and ten.delivered is None and ten.item_id is None
    assert by_key[("task_2", "0")].error_type == "UnknownError"
    assert by_key[("task_2", "1")].status == "success"
    assert stored.expected == 6 and stored.stale == () and stored.record_id == ""


def test_a_plain_directory_may_not_have_all_its_task_folders_yet(tmp_path):
    build_plain(tmp_path, [row("a"), row("b")])
    meta = layout.read_json_object(str(tmp_path / layout.META_FILE))
    meta["benchmark"]["total_tasks"] = 5
    layout.write_json(str(tmp_path / layout.META_FILE), meta)
    assert read_results(tmp_path).expected == 5


def test_folders_without_any_meta_file_are_still_results(tmp_path):
    folder = tmp_path / "t1" / "run-a"
    folder.mkdir(parents=True)
    (folder / layout.SOLUTION_FILE).write_text('{"success": true, "output": 1}')
    (head,) = read_results(tmp_path).heads
    assert (head.task_id, head.repeat_id, head.status) == ("t1", "run-a", "success")
    assert next(read_results(tmp_path).rows()).trajectory == []


def test_scores_that_cannot_be_read_are_passed_over(tmp_path):
    build(tmp_path, [row("a", scores={"good": 1})])
    (head,) = read_results(tmp_path).heads
    folder = os.path.join(head.folder, layout.EVALUATION_DIR)
    with open(os.path.join(folder, "torn.json"), "w") as file:
        file.write('{"name": "to')
    with open(os.path.join(folder, "un%20named.json"), "w") as file:
        file.write('{"result": "yes"}')
    write_score(head.folder, "no result", None)
    (only,) = read_results(tmp_path).rows()
    assert sorted(only.evaluations) == ["good", "no result", "un named"]


def test_an_absent_directory_is_a_clear_error(tmp_path):
    with pytest.raises(ResultsDirectoryError, match="There is no results directory"):
        read_results(tmp_path / "nowhere")


def test_a_file_in_place_of_a_directory_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ResultsDirectoryError, match="Give the directory itself"):
        read_results(tmp_path / "file")


def test_a_directory_without_results_says_where_to_look(tmp_path):
    (tmp_path / "something").mkdir()
    with pytest.raises(ResultsDirectoryError, match="run an experiment"):
        read_results(tmp_path)
    (tmp_path / layout.HISTORY_DIR / "20261129T080000Z-record-1").mkdir(parents=True)
    with pytest.raises(ResultsDirectoryError, match="history/"):
        read_results(tmp_path)


@pytest.mark.parametrize("version", [2, "x", None])
def test_a_newer_format_is_refused(tmp_path, version):
    build(tmp_path, [row("a")], format_version=version)
    with pytest.raises(ResultsDirectoryError, match="upgrade"):
        read_results(tmp_path)


def test_an_earlier_experiment_under_history_is_a_results_directory(tmp_path):
    path = build(tmp_path / "history" / "20261129T080000Z-record-1", [row("a")])
    assert len(read_results(path).heads) == 1


def test_a_bool_is_no_number():
    assert number_or_none(True) is None and number_or_none("1") is None
    assert number_or_none(2) == 2.0
