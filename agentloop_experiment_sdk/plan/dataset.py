"""Reads the rows that a plan selects, and says what it leaves out or cannot find."""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..errors import CloudError, ConfigurationError
from ..jsontext import sls_text
from ..lines import counted
from ..models import Plan
from .asking import in_waves
from .paging import PAGE_ROWS, Query, Row, Table, fetch
from .sql import Selection, literal, parse_selection

logger = logging.getLogger(__name__)

# one id fewer than a page has rows: unless ids are repeated, one query reads the chunk
_CHUNK_IDS = PAGE_ROWS - 1
_NAMED_IDS = 5
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_dataset(
    api: AgentLoopApi, plan: Plan, most: int, item_ids: Optional[Iterable[Any]]
) -> Table:
    """Up to ``most`` rows: of ``item_ids``, else of the plan's selected ids, else of its condition.

    Raises:
        CloudError: A query was refused or not answered.
        DatasetError: The plan's ``query_sql`` cannot be used.
        ConfigurationError: ``item_ids`` is empty or a single text.
    """
    ids = _wanted_ids(plan, item_ids)

    def query(sql: str) -> Tuple[List[str], List[Row]]:
        return api.execute_query(plan.agent_space, plan.dataset, sql)

    # AgentLoop: the condition counts only where the plan selects no ids
    condition = "" if plan.selected_item_ids else plan.query_sql
    selection = parse_selection(plan.dataset, condition)
    if ids is None:
        return _load_selection(query, selection, plan, most)
    return _load_ids(query, selection, plan, ids, most)


def item_id_text(value: Any) -> str:
    """The text of an id: "" when it is absent, ``0`` when it is 0."""
    return "" if value is None else sls_text(value)


def _wanted_ids(plan: Plan, item_ids: Optional[Iterable[Any]]) -> Optional[List[str]]:
    """The ids to load, None for every row."""
    if item_ids is None:
        return list(plan.selected_item_ids) or None
    if isinstance(item_ids, (str, bytes)):
        raise ConfigurationError("item_ids must be a list of ids, not one text.")
    ids = list(dict.fromkeys(item_id_text(item) for item in item_ids))
    if not ids:
        raise ConfigurationError("item_ids is empty; leave it out to run every row.")
    if plan.selected_item_ids:
        chosen = set(plan.selected_item_ids)
        outside = [item for item in ids if item not in chosen]
        _warn_missing(outside, "not selected by plan {}".format(plan.plan_id))
        ids = [item for item in ids if item in chosen]
    return ids


def _load_selection(query: Query, selection: Selection, plan: Plan, most: int) -> Table:
    table = fetch(query, selection, most)
    if table.full and most == plan.max_rows:
        _warn_left_out(plan, _count(query, selection), len(table.rows))
    return table


def _count(query: Query, selection: Selection) -> Optional[int]:
    """How many rows the selection has, None when the answer is not one number."""
    try:
        _, rows = query(selection.count())
        if len(rows) != 1 or len(rows[0]) != 1 or isinstance(rows[0][0], bool):
            return None
        total = int(rows[0][0]) - selection.offset
    except (CloudError, TypeError, ValueError) as error:
        logger.info("The rows of dataset %s could not be counted: %s", selection.dataset, error)
        return None
    return total if selection.most is None else min(total, selection.most)


def _warn_left_out(plan: Plan, total: Optional[int], loaded: int) -> None:
    if total is None:
        logger.warning(
            "max_rows=%d was reached; rows of dataset %s beyond it are left out. Raise max_rows "
            "to run them.",
            plan.max_rows,
            plan.dataset,
        )
    elif total > loaded:
        logger.warning(
            "max_rows=%d leaves out %d of %s of dataset %s. Raise max_rows to run them.",
            plan.max_rows,
            total - loaded,
            counted(total, "row"),
            plan.dataset,
        )


def _load_ids(
    query: Query, selection: Selection, plan: Plan, ids: Sequence[str], most: int
) -> Table:
    """The rows of ``ids``, in that order."""
    tables = _load_chunks(query, selection, [literal(item) for item in ids], most)
    asked = ids[: len(tables) * _CHUNK_IDS]
    missing = _missing(tables, asked)
    tables += _load_numbers(query, selection, missing, most)
    _warn_missing(_missing(tables, asked), "not in dataset {}".format(plan.dataset))
    columns = next((table.columns for table in tables if table.rows), [])
    place = {item: at for at, item in enumerate(ids)}
    rows = sorted(_with_ids(tables), key=lambda found: place.get(found[0], len(place)))
    if most == plan.max_rows:
        left_out = max(0, len(rows) - most) + len(ids) - len(asked)
        _warn_left_out(plan, most + left_out, most)
    return Table(columns, [row for _, row in rows[:most]])


def _load_chunks(
    query: Query, selection: Selection, literals: Sequence[str], most: int
) -> List[Table]:
    """The tables of the ids, chunk by chunk, until there are ``most`` rows."""
    chunks = [literals[at : at + _CHUNK_IDS] for at in range(0, len(literals), _CHUNK_IDS)]
    return in_waves(
        [_fetch_of(query, selection.only(chunk)) for chunk in chunks],
        lambda tables: sum(len(table.rows) for table in tables) >= most,
    )


def _load_numbers(
    query: Query, selection: Selection, missing: Sequence[str], most: int
) -> List[Table]:
    """The rows of ids that the plan names as text but the dataset holds as numbers."""
    numbers = [item for item in missing if _WHOLE_NUMBER.fullmatch(item)]
    if not numbers:
        return []
    try:
        return _load_chunks(query, selection, numbers, most)
    except CloudError as error:
        logger.debug("Dataset %s does not compare ids with numbers: %s", selection.dataset, error)
        return []


def _fetch_of(query: Query, selection: Selection) -> Callable[[], Table]:
    return lambda: fetch(query, selection)


def _with_ids(tables: Iterable[Table]) -> List[Tuple[str, Row]]:
    found = []
    for table in tables:
        at = table.id_at
        found += [("" if at is None else item_id_text(row[at]), row) for row in table.rows]
    return found


def _missing(tables: Iterable[Table], ids: Sequence[str]) -> List[str]:
    present = {item for item, _ in _with_ids(tables)}
    return [item for item in ids if item not in present]


def _warn_missing(missing: Sequence[str], what: str) -> None:
    if missing:
        shown = ", ".join(repr(item) for item in missing[:_NAMED_IDS])
        more = ", …" if len(missing) > _NAMED_IDS else ""
        logger.warning(
            "%s %s: %s%s", counted(len(missing), "selected id", "is", "are"), what, shown, more
        )
