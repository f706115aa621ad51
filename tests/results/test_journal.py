"""The journal: what its lines add up to, whatever a crash left of them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop_experiment_sdk.results import journal
from agentloop_experiment_sdk.results.journal import (
    Journal,
    JournalState,
    Saved,
    delivered_line,
    read_state,
    saved_line,
)

ONE = Saved("t1", "0", 1, "success", 12.5, 100, {"m": (3, 4)})
TWO = Saved("t2", "0", 1, "failed", 1.0, 50, error="Boom")


def opened(path: Path) -> Journal:
    log = Journal(str(path))
    log.open()
    return log


def test_saved_and_delivered_lines_are_read_back(tmp_path: Path) -> None:
    log = opened(tmp_path / "j")
    log.append([saved_line(ONE), saved_line(TWO)], fsync=True)
    log.append([delivered_line(ONE.key, 1, "r1")])
    log.close()
    log.close()
    state = read_state(str(tmp_path / "j"))
    assert state.saved == {ONE.key: ONE, TWO.key: TWO}
    assert state.is_delivered(ONE.key, "r1")
    assert not state.is_delivered(ONE.key, "r2") and not state.is_delivered(TWO.key, "r1")
    assert not state.is_delivered(("t3", "0"), "r1")


def test_a_newer_try_is_not_delivered_by_an_older_line(tmp_path: Path) -> None:
    state = JournalState({ONE.key: ONE}, {ONE.key: (1, "r1")})
    assert state.is_delivered(ONE.key, "r1")
    state.saved[ONE.key] = Saved("t1", "0", 2, "success", 1.0, 90)
    assert not state.is_delivered(ONE.key, "r1")


def test_no_number_is_given_to_two_answers() -> None:
    state = JournalState({}, {ONE.key: (4, "r1")})
    assert state.next_number(ONE.key) == 5
    assert state.next_number(TWO.key) == 1
    state.saved[TWO.key] = TWO
    assert state.next_number(TWO.key) == 2


def test_an_absent_journal_is_empty(tmp_path: Path) -> None:
    assert read_state(str(tmp_path / "absent")) == JournalState()


def test_a_torn_last_line_is_cut_before_anything_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(saved_line(ONE) + saved_line(TWO)[:-5])
    log = opened(path)
    log.append([delivered_line(ONE.key, 1, "r")])
    log.close()
    assert path.read_bytes() == saved_line(ONE) + delivered_line(ONE.key, 1, "r")


def test_a_long_torn_tail_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(saved_line(ONE) + b"x" * 200_000)
    opened(path).close()
    assert path.read_bytes() == saved_line(ONE)
    path.write_bytes(b"x" * 200_000)
    opened(path).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "j"
    log = opened(path)
    log.append([saved_line(ONE)])
    real = os.write
    room = [20]

    def write(handle: int, data: Any) -> int:
        if not room[0]:
            raise OSError(code, os.strerror(code))
        size = real(handle, data[: room[0]])
        room[0] -= size
        return size

    monkeypatch.setattr(journal.os, "write", write)
    with pytest.raises(OSError) as failure:
        log.append([saved_line(TWO)])
    assert failure.value.errno == code
    assert path.read_bytes() == saved_line(ONE)
    monkeypatch.undo()
    log.append([saved_line(TWO)])
    log.close()
    assert path.read_bytes() == saved_line(ONE) + saved_line(TWO)


def test_the_error_of_the_disk_is_reported_even_if_the_cut_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path / "j")

    def fails(*args: Any) -> Any:
        raise OSError(errno.EIO if len(args[1:]) and args[1] == 0 else errno.ENOSPC, "x")

    monkeypatch.setattr(journal.os, "write", fails)
    monkeypatch.setattr(journal.os, "ftruncate", fails)
    with pytest.raises(OSError) as failure:
        log.append([saved_line(ONE)])
    assert failure.value.errno == errno.ENOSPC
    log.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"1",
        b'"text"',
        b"{}",
        b'{"event":"saved","task":"t","repeat":"0"}',
        b'{"event":"saved","task":"t","repeat":"0","attempt":1,"status":"strange",'
        b'"latency_ms":1,"bytes":1}',
        b'{"event":"saved","task":"t","repeat":"0","attempt":1,"status":"success",'
        b'"latency_ms":1,"bytes":1e999}',
        b'{"event":"saved","task":"t","repeat":"0","attempt":1,"status":"success",'
        b'"latency_ms":1,"bytes":1,"tokens":{"m":[1]}}',
        b'{"event":"other","task":"t","repeat":"0"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_lines_that_cannot_be_read_are_passed_over(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(saved_line(ONE) + line + b"\n" + saved_line(TWO))
    assert read_state(str(path)).saved == {ONE.key: ONE, TWO.key: TWO}


def test_a_folded_journal_is_one_json_document_with_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "j"
    log = opened(path)
    again = Saved("t1", "0", 2, "success", 3.0, 70)
    log.append([saved_line(ONE), saved_line(TWO), delivered_line(ONE.key, 1, "r")])
    log.append([saved_line(again), delivered_line(ONE.key, 2, "r")])
    before = read_state(str(path))
    log.fold()
    assert read_state(str(path)) == before
    assert len(json.loads(path.read_text())) == 3
    with pytest.raises(OSError):
        log.append([saved_line(ONE)])
    reopened = opened(path)
    reopened.append([delivered_line(TWO.key, 1, "r")])
    reopened.close()
    assert read_state(str(path)).is_delivered(TWO.key, "r")


def test_an_empty_journal_folds_to_a_json_document(tmp_path: Path) -> None:
    opened(tmp_path / "j").fold()
    assert json.loads((tmp_path / "j").read_text()) == []


def test_the_lines_stay_when_folding_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path / "j")
    log.append([saved_line(ONE)])

    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(journal, "write_atomically", full)
    with pytest.raises(OSError):
        log.fold()
    assert (tmp_path / "j").read_bytes() == saved_line(ONE)


Keys = Tuple[str, str]
keys = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["0", "1"]))
numbers = st.integers(1, 4)
saved_entries = st.builds(
    lambda key, number, status, size: Saved(key[0], key[1], number, status, 1.5, size),
    keys,
    numbers,
    st.sampled_from(journal.STATUSES),
    st.integers(0, 10**6),
)
entries = st.one_of(
    saved_entries, st.tuples(keys, numbers, st.sampled_from(["r1", "r2", "准 \ud800"]))
)


def line_of(entry: Any) -> bytes:
    return saved_line(entry) if isinstance(entry, Saved) else delivered_line(*entry)


def state_of(given_entries: List[Any]) -> JournalState:
    state = JournalState()
    for entry in given_entries:
        if isinstance(entry, Saved):
            state.saved[entry.key] = entry
        else:
            state.delivered[entry[0]] = (entry[1], entry[2])
    return state


@given(st.lists(entries, max_size=12), st.data())
def test_any_prefix_of_a_journal_gives_the_state_of_its_whole_lines(
    tmp_path_factory: Any, written: List[Any], data: Any
) -> None:
    lines = [line_of(entry) for entry in written]
    text = b"".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    whole = text[:cut].count(b"\n")
    path = tmp_path_factory.mktemp("journal") / "j"
    path.write_bytes(text[:cut])
    assert read_state(str(path)) == state_of(written[:whole])
    log = opened(path)
    log.append(lines[whole:])
    assert path.read_bytes() == text
    log.fold()
    assert read_state(str(path)) == state_of(written)
