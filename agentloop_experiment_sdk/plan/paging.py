"""Reads all rows of a selection in pages, without losing or repeating one.

Pages are ordered by ``id``. Rows with equal ids may come in another order with each query, but
such a block of rows always fills the same places. A block that crosses the border of two pages
is therefore read again, ordered by all columns: rows that are equal in every column are
interchangeable. A dataset without the column ``id`` is ordered by all columns from the start.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import CloudError
from .asking import IN_FLIGHT, together
from .sql import Selection, identifier

logger = logging.getLogger(__name__)

PAGE_ROWS = 100
# refusals that another statement would meet as well
_NOT_THE_SQL = (None, 401, 403, 404)

Row = Sequence[Any]
Query = Callable[[str], Tuple[List[str], List[Row]]]


class Table(NamedTuple):
    """Columns and rows, and whether reading ended because ``most`` rows were there."""

    columns: List[str]
    rows: List[Row]
    full: bool = False

    @property
    def id_at(self) -> Optional[int]:
        """The place of the column ``id``, None if there is none."""
        return _id_at(self.columns)


def id_column(columns: Sequence[str]) -> Optional[str]:
    """The name of the column ``id`` as the dataset spells it, None if there is none."""
    at = _id_at(columns)
    return None if at is None else columns[at]


def fetch(query: Query, selection: Selection, most: Optional[int] = None) -> Table:
    """Reads up to ``most`` rows of the selection; None reads all.

    Args:
        query: Runs one SQL statement.
        selection: Which rows.
        most: The most rows to answer.

    Raises:
        CloudError: A statement was refused or not answered.
    """
    limits = [limit for limit in (most, selection.most) if limit is not None]
    wanted = min(limits) if limits else None
    columns, rows, order = _first_page(query, selection, wanted)
    if len(rows) < PAGE_ROWS or wanted == PAGE_ROWS:
        return Table(columns, rows, len(rows) == wanted)
    if _id_at(columns) is None:
        order, rows = _order_without_id(query, selection, columns, rows)
    rows = rows + _pages(query, selection, order, PAGE_ROWS, wanted)
    rows = _settle_blocks(query, selection, columns, rows)
    return Table(columns, rows, len(rows) == wanted)


def _first_page(
    query: Query, selection: Selection, wanted: Optional[int]
) -> Tuple[List[str], List[Row], List[str]]:
    count = PAGE_ROWS if wanted is None else min(PAGE_ROWS, wanted)
    if count == 0:
        return [], [], []
    try:
        columns, rows = query(selection.page(["id"], 0, count))
        return columns, rows[:count], ["id"]
    except CloudError as error:
        if error.retryable or error.status in _NOT_THE_SQL:
            raise
        try:
            # the dataset may have no column id
            columns, rows = query(selection.page([], 0, count))
        except CloudError:
            raise error from error.__cause__
        return columns, rows[:count], []


def _order_without_id(
    query: Query, selection: Selection, columns: List[str], rows: List[Row]
) -> Tuple[List[str], List[Row]]:
    order = [identifier(column) for column in columns]
    try:
        return order, query(selection.page(order, 0, PAGE_ROWS))[1]
    except CloudError as error:
        logger.warning(
            "Dataset %s has no column id and cannot be ordered by its columns, so rows may be "
            "missed or read twice: %s",
            selection.dataset,
            error,
        )
        return [], rows


def _pages(
    query: Query, selection: Selection, order: Sequence[str], start: int, stop: Optional[int]
) -> List[Row]:
    """The rows from ``start`` to ``stop``, or to the first page that is not full.

    One page, then two, then four at a time: long datasets are read at several times the speed of
    one page after the other, short ones ask for few pages that are not there.
    """
    rows: List[Row] = []
    width = 1
    while stop is None or start < stop:
        wave = _places(start, stop, width)
        pages = together([_call(query, selection.page(order, *place)) for place in wave])
        for (_, count), (_, page) in zip(wave, pages):
            rows += page[:count]
            if len(page) < count:
                return rows
        start += width * PAGE_ROWS
        width = min(2 * width, IN_FLIGHT)
    return rows


def _places(start: int, stop: Optional[int], width: int) -> List[Tuple[int, int]]:
    """Offset and row count of the next ``width`` pages."""
    end = start + width * PAGE_ROWS
    end = end if stop is None else min(end, stop)
    return [(at, min(PAGE_ROWS, end - at)) for at in range(start, end, PAGE_ROWS)]


def _call(query: Query, sql: str) -> Callable[[], Tuple[List[str], List[Row]]]:
    return lambda: query(sql)


def _settle_blocks(
    query: Query, selection: Selection, columns: List[str], rows: List[Row]
) -> List[Row]:
    """``rows`` with each block of equal ids that crosses a border read again in a total order."""
    at = _id_at(columns)
    if at is None:
        return rows
    order = ["id"] + [identifier(name) for name in columns if name.lower() != "id"]
    end = 0
    for border in range(PAGE_ROWS, len(rows), PAGE_ROWS):
        if border < end or rows[border - 1][at] != rows[border][at]:
            continue
        start, end = _block(rows, at, border)
        try:
            block = _pages(query, selection, order, start, end)
        except CloudError as error:
            logger.warning(
                "Rows of dataset %s with the id %r cannot be put in order, so some may be missed "
                "or read twice: %s",
                selection.dataset,
                rows[border][at],
                error,
            )
            continue
        rows = rows[:start] + block + rows[end:]
    return rows


def _block(rows: List[Row], at: int, border: int) -> Tuple[int, int]:
    """The places of the rows around ``border`` that have the same id."""
    start = end = border
    while start > 0 and rows[start - 1][at] == rows[border][at]:
        start -= 1
    while end < len(rows) and rows[end][at] == rows[border][at]:
        end += 1
    return start, end


def _id_at(columns: Sequence[str]) -> Optional[int]:
    for at, name in enumerate(columns):
        if name.lower() == "id":
            return at
    return None
