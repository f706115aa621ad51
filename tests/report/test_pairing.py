from __future__ import annotations

from agentloop_experiment_sdk.report.baseline import ItemOutcome
from agentloop_experiment_sdk.report.pairing import pair_items

UUID = "00000000-0000-5000-8000-00000000000"


def item(task, item_id=None, known_hash="", **facts):
    return ItemOutcome(task, item_id, 1, 1, known_hash=known_hash, **facts)


def names(pairing):
    return [(pair.baseline.task_id, pair.candidate.task_id) for pair in pairing.pairs]


def test_rows_with_equal_item_ids_are_told_apart_by_their_task():
    old = [item(UUID + "1", "dup"), item(UUID + "2", "dup")]
    new = [item(UUID + "2", "dup"), item(UUID + "1", "dup")]
    assert names(pair_items(old, new)) == [(UUID + "2",) * 2, (UUID + "1",) * 2]


def test_an_item_id_that_is_not_unique_falls_back_to_the_input():
    old = [item(UUID + "1", "dup", "h1"), item(UUID + "2", "dup", "h2")]
    new = [item(UUID + "3", "dup", "h2"), item(UUID + "4", "dup", "h9")]
    pairing = pair_items(old, new)
    assert names(pairing) == [(UUID + "2", UUID + "3")]
    assert pairing.only_baseline == (old[0],) and pairing.only_candidate == (new[1],)


def test_equal_inputs_pair_in_order():
    old = [item("a", None, "h"), item("b", None, "h"), item("c", None, "h")]
    new = [item("x", None, "h"), item("y", None, "h")]
    pairing = pair_items(old, new)
    assert names(pairing) == [("a", "x"), ("b", "y")]
    assert not any(pair.input_changed for pair in pairing.pairs)


def test_without_ids_and_inputs_the_task_name_decides():
    old, new = [item("t1", None, "h1"), item("t2")], [item("t1", None, "h2"), item("t2")]
    pairing = pair_items(old, new)
    assert names(pairing) == [("t1", "t1"), ("t2", "t2")]
    assert [pair.input_changed for pair in pairing.pairs] == [True, False]


def test_nothing_pairs_with_nothing():
    assert pair_items([], [item("a")]).pairs == ()
