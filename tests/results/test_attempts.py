"""The files of one attempt: their order, what they hold, and what failures leave."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results_values import EXPERIMENT, result, saved, task, writer

from agentloop_experiment_sdk.models import SolutionOutput, Task
from agentloop_experiment_sdk.results import attempts, layout


def refuse(constant: str) -> None:
    raise AssertionError("not strict JSON: " + constant)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """The names of the files as they appear."""
    names: List[str] = []
    real = layout.write_atomically

    def write(path: str, data: bytes, **options: Any) -> None:
        names.append(os.path.basename(path))
        real(path, data, **options)

    monkeypatch.setattr(attempts.layout, "write_atomically", write)
    return names


def test_files_are_written_in_the_order_that_makes_the_answer_last(
    tmp_path: Path, written: List[str]
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "model": "m"}
    writing = writer(tmp_path, fsync=True)
    writing.save(result(task(1), usage=usage))
    assert written == ["task_meta.json", "stats.json", "solution.json"]
    writing.save(result(task(1), repeat="1"))
    assert written[3:] == ["solution.json"]


def test_no_attempt_gets_done_once_the_writer_is_closed(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.close()
    with pytest.raises(OSError, match="is over"):
        writing.save(result(task(1)))
    assert not list(tmp_path.iterdir())


def test_an_attempt_that_was_being_written_when_the_writer_closed_does_not_get_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = writer(tmp_path)
    make = writing._make_folder

    def slowly(*arguments: Any) -> bool:
        made = make(*arguments)
        writing.close()
        return made

    monkeypatch.setattr(writing, "_make_folder", slowly)
    with pytest.raises(OSError, match="is over"):
        writing.save(result(task(1)))
    assert [path.name for path in tmp_path.rglob("*.json")] == ["task_meta.json"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_answer_is_stored_with_agent_scopes_four_keys_and_our_facts_in_meta(
    tmp_path: Path,
) -> None:
    answered = task(1)
    entry = writer(tmp_path).save(
        result(answered, {"a": 1}, trace_id="ab" * 16, experiment_input="asked")
    )
    path = tmp_path / answered.id / "0" / "solution.json"
    document = read(path)
    assert set(document) == {"success", "output", "trajectory", "meta"}
    assert document["output"] == {"a": 1} and document["trajectory"] == []
    facts = document["meta"].pop(layout.ATTEMPT_KEY)
    assert document["meta"] == {"experiment_input": "asked"}
    assert facts == {
        "number": 1,
        "experiment": EXPERIMENT,
        "record_id": "record-1",
        "solution_hash": "h1",
        "version": "",
        "parameters": {},
        "started_at": 1796025600000,
        "finished_at": 1796025600012,
        "latency_ms": 12.345,
        "trace_id": "ab" * 16,
    }
    assert entry == saved(1, path.stat().st_size, latency_ms=12.345)


def test_the_task_is_described_in_agent_scopes_keys(tmp_path: Path) -> None:
    answered = Task("t", {"q": 1}, "truth", {"tag": "x"}, {"dataset_item_id": 0})
    writer(tmp_path).save(result(answered))
    assert read(tmp_path / "t" / "task_meta.json") == {
        "id": "t",
        "input": {"q": 1},
        "ground_truth": "truth",
        "tags": {"tag": "x"},
        "metrics": [],
        "metadata": {"dataset_item_id": 0},
    }
    assert attempts.read_task(str(tmp_path), "t") == answered


def test_usage_becomes_statistics_of_agent_scope(tmp_path: Path) -> None:
    entry = writer(tmp_path).save(result(task(1), usage={"input_tokens": 3, "model": "m\ud800"}))
    assert read(tmp_path / task(1).id / "0" / "stats.json") == {
        "llm": {"m\ufffd": 1},
        "agent": 0,
        "tool": {},
        "embedding": {},
        "chat_usage": {"m\ufffd": {"input_tokens": 3, "output_tokens": 0}},
    }
    assert entry.usage == {"m\ufffd": (3, 0)}


class Hostile(Dict[str, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "usage, counted",
    [
        (None, {}),
        ("text", {}),
        ({}, {}),
        ({"input_tokens": None, "output_tokens": "3"}, {}),
        ({"input_tokens": True}, {}),
        ({"input_tokens": -1}, {}),
        ({"input_tokens": math.inf, "output_tokens": 2.9}, {"unknown": (0, 2)}),
        ({"input_tokens": 0, "output_tokens": 0}, {"unknown": (0, 0)}),
        (Hostile(input_tokens=1), {"unknown": (1, 0)}),
    ],
)
def test_usage_of_any_shape_is_counted_or_passed_over(usage: Any, counted: Any) -> None:
    assert attempts.chat_usage(usage) == counted


def test_failed_and_skipped_answers_say_so(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    failed = writing.save(result(task(1), "", success=False, error_type="Boom"))
    unnamed = writing.save(result(task(2), "", success=False))
    skipped = writing.save(result(task(3), {"skipped": True}, skipped=True))
    assert [(s.status, s.error) for s in (failed, unnamed, skipped)] == [
        ("failed", "Boom"),
        ("failed", "UnknownError"),
        ("skipped", ""),
    ]
    for entry in (failed, unnamed, skipped):
        assert attempts.saved_from_disk(str(tmp_path), entry.key, EXPERIMENT) == entry


class NoTruth:
    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


@pytest.mark.parametrize("value", [ValueError("x"), NoTruth(), {"a": 1}, 7, "", b"x", "\ud800"])
def test_an_error_type_of_any_kind_is_text(tmp_path: Path, value: Any) -> None:
    entry = writer(tmp_path).save(result(task(1), "", success=False, error_type=value))
    assert isinstance(entry.error, str) and entry.error
    again = attempts.saved_from_disk(str(tmp_path), entry.key, EXPERIMENT)
    assert again is not None and again.error == entry.error


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=5),
        st.binary(max_size=5),
        st.dates(),
        st.decimals(),
        st.just(NoTruth()),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(output=values, meta=st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_hostile_answers_are_stored_as_strict_json(
    tmp_path_factory: Any, output: Any, meta: Any
) -> None:
    root = tmp_path_factory.mktemp("answers")
    entry = writer(root).save(result(task(1), output, **meta))
    document = read(root / entry.task_id / "0" / "solution.json")
    assert set(document) == {"success", "output", "trajectory", "meta"}
    on_disk = attempts.saved_from_disk(str(root), entry.key, EXPERIMENT)
    assert on_disk is not None and on_disk.size == entry.size


def test_surrogates_and_infinities_in_the_answer_are_replaced(tmp_path: Path) -> None:
    writer(tmp_path).save(result(task(1), {"t": "math \ud835 tail", "n": [math.nan, math.inf]}))
    document = read(tmp_path / task(1).id / "0" / "solution.json")
    assert document["output"] == {"t": "math \ufffd tail", "n": [None, None]}


def test_the_earlier_try_is_kept_until_and_after_the_new_one(
    tmp_path: Path, written: List[str]
) -> None:
    writing = writer(tmp_path)
    usage = {"input_tokens": 1}
    writing.save(result(task(1), "", success=False, error_type="Boom", usage=usage))
    entry = writing.save(result(task(1), "good", number=2))
    folder = tmp_path / task(1).id / "0"
    assert read(folder / "attempt-1.json")["meta"]["error_type"] == "Boom"
    assert read(folder / "solution.json")["output"] == "good"
    facts = read(folder / "solution.json")["meta"][layout.ATTEMPT_KEY]
    assert (facts["number"], facts["retried"]) == (2, True)
    assert entry.number == 2
    assert not (folder / "stats.json").exists()  # they spoke of the earlier answer


def test_evaluations_of_the_earlier_answer_do_not_stand_beside_the_new_one(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.save(result(task(1)))
    scores = tmp_path / task(1).id / "0" / "evaluation"
    scores.mkdir()
    (scores / "exact.json").write_text('{"name": "exact", "result": 1}')
    writing.save(result(task(1), "new", number=2))
    assert not scores.exists()


def test_earlier_tries_are_kept_without_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(attempts.os, "link", no_links)
    writing = writer(tmp_path)
    for number in (1, 2, 3):
        writing.save(result(task(1), "answer %d" % number, number=number))
    folder = tmp_path / task(1).id / "0"
    kept = [read(folder / name)["output"] for name in ("attempt-1.json", "attempt-2.json")]
    assert kept == ["answer 1", "answer 2"]


def test_a_torn_answer_is_not_kept_as_an_earlier_try(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    writing.save(result(task(1)))
    folder = tmp_path / task(1).id / "0"
    (folder / "solution.json").write_bytes(b'{"success": tr')
    writing.save(result(task(1), "new", number=2))
    assert sorted(os.listdir(str(folder))) == ["solution.json"]


def test_a_kept_try_is_not_overwritten(tmp_path: Path) -> None:
    """A crash came between keeping the earlier try and writing the new one."""
    writing = writer(tmp_path)
    writing.save(result(task(1), "first"))
    folder = tmp_path / task(1).id / "0"
    os.link(str(folder / "solution.json"), str(folder / "attempt-1.json"))
    writing.save(result(task(1), "second", number=2))
    assert read(folder / "attempt-1.json")["output"] == "first"


def test_leftovers_of_a_killed_run_are_removed_with_the_next_answer(tmp_path: Path) -> None:
    folder = tmp_path / task(1).id / "0"
    folder.mkdir(parents=True)
    torn = ".77-0123456789ab-3.tmp"
    (folder / ("solution.json" + torn)).write_bytes(b"half")
    (folder.parent / ("task_meta.json" + torn)).write_bytes(b"half")
    writer(tmp_path).save(result(task(1)))
    assert sorted(os.listdir(str(folder))) == ["solution.json"]
    assert sorted(os.listdir(str(folder.parent))) == ["0", "task_meta.json"]


def test_a_torn_or_outdated_description_of_the_task_is_written_again(tmp_path: Path) -> None:
    for content in (b"", b"{", b"{}"):
        folder = tmp_path / task(1).id
        folder.mkdir(exist_ok=True)
        (folder / "task_meta.json").write_bytes(content)
        writer(tmp_path).save(result(task(1)))
        assert read(folder / "task_meta.json")["id"] == task(1).id


def test_a_description_that_is_right_is_left_alone(tmp_path: Path, written: List[str]) -> None:
    writer(tmp_path).save(result(task(1)))
    writer(tmp_path).save(result(task(1), repeat="1"))
    assert written == ["task_meta.json", "solution.json", "solution.json"]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_full_disk_leaves_no_partial_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    real, count = os.write, [0]

    def write(handle: int, data: Any) -> int:
        count[0] += 1
        if count[0] > step:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(layout.os, "write", write)
    with pytest.raises(OSError, match="No space"):
        writer(tmp_path).save(result(task(1), usage={"input_tokens": 1}))
    monkeypatch.undo()
    names = [name for _, _, files in os.walk(str(tmp_path)) for name in files]
    assert names == ["task_meta.json", "stats.json"][:step]
    assert attempts.saved_from_disk(str(tmp_path), (task(1).id, "0"), EXPERIMENT) is None
    again = writer(tmp_path).save(result(task(1)))
    assert attempts.saved_from_disk(str(tmp_path), again.key, EXPERIMENT) == again
    assert not (tmp_path / task(1).id / "0" / "stats.json").exists()


def test_a_full_disk_keeps_the_earlier_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = writer(tmp_path)
    first = writing.save(result(task(1)))

    def full(handle: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layout.os, "write", full)
    with pytest.raises(OSError):
        writing.save(result(task(1), "new", number=2))
    monkeypatch.undo()
    assert attempts.saved_from_disk(str(tmp_path), first.key, EXPERIMENT) == first


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"success": 1}', b'{"success": true, "output"']
)
def test_a_torn_answer_does_not_count(tmp_path: Path, content: bytes) -> None:
    entry = writer(tmp_path).save(result(task(1)))
    (tmp_path / task(1).id / "0" / "solution.json").write_bytes(content)
    assert attempts.read_solution(str(tmp_path), entry.key) is None
    assert attempts.saved_from_disk(str(tmp_path), entry.key, EXPERIMENT) is None


def test_an_answer_of_another_experiment_does_not_count(tmp_path: Path) -> None:
    entry = writer(tmp_path, "another").save(result(task(1)))
    assert attempts.saved_from_disk(str(tmp_path), entry.key, EXPERIMENT) is None


@pytest.mark.parametrize(
    "meta",
    [
        None,
        "text",
        {},
        {layout.ATTEMPT_KEY: "x"},
        {layout.ATTEMPT_KEY: {"number": "x", "latency_ms": "x"}},
        {layout.ATTEMPT_KEY: {"number": -3, "latency_ms": 1e999}},
        {layout.ATTEMPT_KEY: {"latency_ms": 10**400}},
    ],
)
def test_an_answer_of_another_tool_counts(tmp_path: Path, meta: Any) -> None:
    folder = tmp_path / task(1).id / "0"
    folder.mkdir(parents=True)
    text = json.dumps({"success": True, "output": "x", "trajectory": [], "meta": meta})
    (folder / "solution.json").write_text(text)
    found = attempts.saved_from_disk(str(tmp_path), (task(1).id, "0"), EXPERIMENT)
    assert found == saved(1, len(text), latency_ms=0.0)


def test_an_answer_that_vanishes_while_it_is_read_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = writer(tmp_path).save(result(task(1)))

    def gone(path: str) -> int:
        raise FileNotFoundError(path)

    monkeypatch.setattr(attempts.os.path, "getsize", gone)
    assert attempts.saved_from_disk(str(tmp_path), entry.key, EXPERIMENT) is None


def test_a_task_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert attempts.read_task(str(tmp_path), "absent") is None
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "task_meta.json").write_text('{"input": "text of another tool"}')
    assert attempts.read_task(str(tmp_path), "t") is None


def test_the_stored_answer_reads_back_as_an_output(tmp_path: Path) -> None:
    entry = writer(tmp_path).save(result(task(1), {"a": [1]}))
    document = attempts.read_solution(str(tmp_path), entry.key)
    assert document is not None
    assert SolutionOutput.from_dict(document).output == {"a": [1]}


def test_what_answered_is_the_same_in_memory_and_read_again(tmp_path: Path) -> None:
    parameters = {"n": 10**5000, "x": float("nan"), "b": {1: (2, 3)}, "a": "\ud800"}
    stamp = attempts.Stamp(EXPERIMENT, "record-1", "h1", "v\ud800", parameters)
    attempts.AttemptWriter(str(tmp_path), stamp).save(result(task(1)))
    facts = read(tmp_path / task(1).id / "0" / "solution.json")["meta"][layout.ATTEMPT_KEY]
    known = attempts.setup_of({"parameters": parameters, "version": "v\ud800"})
    assert attempts.setup_of(facts) == known is not None
    assert not attempts.is_other(attempts.setup_of({"solution_hash": "h1"}), known)
