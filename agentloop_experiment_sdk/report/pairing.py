"""Which item of one run is which item of another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Callable, Dict, Hashable, List, Optional, Sequence, Tuple

from ..results import layout
from .baseline import ItemOutcome

KeyOf = Callable[[ItemOutcome], Optional[Hashable]]


@dataclass(frozen=True)
class ItemPair:
    """The same item in two runs; ``input_changed`` when its row differs between them."""

    baseline: ItemOutcome
    candidate: ItemOutcome
    input_changed: bool = False

    @property
    def label(self) -> str:
        """What a person calls the item."""
        return self.candidate.label


@dataclass(frozen=True)
class Pairing:
    """The items two runs have in common, and those only one of them has."""

    pairs: Tuple[ItemPair, ...]
    only_baseline: Tuple[ItemOutcome, ...]
    only_candidate: Tuple[ItemOutcome, ...]


def pair_items(baseline: Sequence[ItemOutcome], candidate: Sequence[ItemOutcome]) -> Pairing:
    """Pair the items of two runs.

    In this order: the same task (a task id is a digest of its row, ordinal included, so it settles
    rows with equal item ids); the same dataset item id, where each run has it once; the same input,
    the n-th of equal ones with the n-th; the same task id of another tool's directory.
    """
    left, right = list(baseline), list(candidate)
    found: List[Tuple[ItemOutcome, ItemOutcome]] = []
    for key, unique in ((_same_row, True), (_item_id, True), (_input, False), (_task_id, True)):
        matched = _match(left, right, key, unique)
        found += matched
        gone_left = {id(old) for old, _ in matched}
        gone_right = {id(new) for _, new in matched}
        left = [item for item in left if id(item) not in gone_left]
        right = [item for item in right if id(item) not in gone_right]
        if not left or not right:
            break
    order = {id(item): place for place, item in enumerate(candidate)}
    found.sort(key=lambda pair: order[id(pair[1])])
    pairs = tuple(ItemPair(old, new, _input_changed(old, new)) for old, new in found)
    return Pairing(pairs, tuple(left), tuple(right))


def _match(
    left: Sequence[ItemOutcome], right: Sequence[ItemOutcome], key_of: KeyOf, unique: bool
) -> List[Tuple[ItemOutcome, ItemOutcome]]:
    """Items with equal keys; a key that is not unique pairs in order, or not at all."""
    keyed = _keyed(right, key_of, unique)
    pairs = []
    for key, old in _keyed(left, key_of, unique).items():
        if key in keyed:
            pairs.append((old, keyed[key]))
    return pairs


def _keyed(
    items: Sequence[ItemOutcome], key_of: KeyOf, unique: bool
) -> Dict[Tuple[Hashable, int], ItemOutcome]:
    keyed: Dict[Tuple[Hashable, int], ItemOutcome] = {}
    seen: "Counter[Hashable]" = Counter()
    for item in items:
        key = key_of(item)
        if key is not None:
            keyed[(key, seen[key])] = item
            seen[key] += 1
    if not unique:
        return keyed
    return {key: item for key, item in keyed.items() if seen[key[0]] == 1}


def _same_row(item: ItemOutcome) -> Optional[Hashable]:
    if layout.is_task_folder(item.task_id):
        return item.task_id
    return (item.task_id, item.input_hash) if item.input_hash else None


def _item_id(item: ItemOutcome) -> Optional[Hashable]:
    return item.item_id


def _input(item: ItemOutcome) -> Optional[Hashable]:
    return item.input_hash or None


def _task_id(item: ItemOutcome) -> Optional[Hashable]:
    return item.task_id


def _input_changed(old: ItemOutcome, new: ItemOutcome) -> bool:
    if old.task_id == new.task_id and layout.is_task_folder(new.task_id):
        return False
    return old.input_hash != new.input_hash
