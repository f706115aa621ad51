"""The plan's dataset as tasks with a stable identity.

A task id is a UUIDv5 (RFC 9562 section 5.5) over the dataset, the item id, the ordinal among rows
equal in id and content, and the SHA-256 of the row's canonical JSON. The same row has the same
id in every run; a row that changes in any column, or gains one, is a new task.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any, Dict, Iterable, Optional, Sequence, Tuple

from ..cloud.agentloop import AgentLoopApi
from ..cloud.openapi_errors import remedy
from ..errors import CloudError, ConfigurationError, DatasetError, EmptyDatasetError
from ..jsontext import to_jsonable
from ..models import Plan, Task
from .dataset import item_id_text, read_dataset
from .paging import Row, id_column

# the URL namespace of RFC 9562 applied to the project's name; never change it: results are
# found again by these ids
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://agentloop-experiment-sdk/task")
_NAMESPACE_OCTETS = NAMESPACE.bytes
_SHOWN_IDS = 5
_CANONICAL = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
)


def load_tasks(
    api: AgentLoopApi,
    plan: Plan,
    *,
    limit: Optional[int] = None,
    item_ids: Optional[Iterable[Any]] = None,
) -> Tuple[Task, ...]:
    """All rows that the plan selects, as tasks.

    A plan that selects item ids yields their rows in the plan's order and its ``query_sql`` is
    not used, as AgentLoop defines it; otherwise the rows of ``query_sql`` come ordered by id. At
    most ``plan.max_rows`` rows are loaded; how many are left out is said at WARNING.

    Args:
        api: The client to ask.
        plan: What to load.
        limit: At most so many rows, to run a part of the dataset.
        item_ids: Only the rows with these ids, in this order.

    Raises:
        EmptyDatasetError: No row is left.
        DatasetError: The dataset cannot be read, or the plan's ``query_sql`` is unusable.
        ConfigurationError: ``limit`` is not above 0, or the ``ground_truth_field`` is no column.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigurationError("limit must be a whole number above 0, not {!r}.".format(limit))
    most = plan.max_rows if limit is None else min(limit, plan.max_rows)
    try:
        table = read_dataset(api, plan, most, item_ids)
    except CloudError as error:
        raise _unreadable(plan, error) from error
    if not table.rows:
        raise _empty(plan, item_ids is not None)
    return build_tasks(plan.dataset, table.columns, table.rows, plan.ground_truth_field)


def check_columns(tasks: Sequence[Task], wanted: Iterable[str]) -> None:
    """Refuse a solution that takes columns which the dataset does not have.

    Raises:
        ConfigurationError: A column is missing; the message lists those there are.
    """
    columns = tasks[0].input
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise ConfigurationError(
            "The solution takes {} from the row, but dataset {} has no such column; its columns "
            "are {}.".format(
                ", ".join("{%s}" % name for name in missing),
                tasks[0].metadata.get("dataset"),
                ", ".join(columns),
            )
        )


def check_turn_columns(tasks: Sequence[Task], names: Sequence[str]) -> None:
    """Refuse a conversation none of whose columns for turns is in the dataset: no row has turns.

    Raises:
        ConfigurationError: None of ``names`` is a column; the message lists those there are.
    """
    columns = tasks[0].input
    if names and not any(name in columns for name in names):
        raise ConfigurationError(
            "The conversation takes its turns from {} (turns_field), but dataset {} has no such "
            "column; its columns are {}.".format(
                " or ".join(map(repr, names)), tasks[0].metadata.get("dataset"), ", ".join(columns)
            )
        )


def build_tasks(
    dataset: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    ground_truth_field: Optional[str] = None,
) -> Tuple[Task, ...]:
    """The tasks of rows that were read.

    Args:
        dataset: The dataset's name, a part of each task's identity.
        columns: The names of the columns.
        rows: Their values, one for each column.
        ground_truth_field: The column that holds the expected answer.

    Raises:
        ConfigurationError: ``ground_truth_field`` is no column; the message lists them.
    """
    if ground_truth_field is not None and ground_truth_field not in columns:
        raise ConfigurationError(
            "ground_truth_field {!r} is not a column of dataset {}; its columns are {}.".format(
                ground_truth_field, dataset, ", ".join(columns)
            )
        )
    id_name = id_column(columns)
    equals: Dict[Tuple[str, str], int] = {}
    tasks = []
    for row in rows:
        values = dict(zip(columns, row))
        item_id = item_id_text(values.get(id_name)) if id_name is not None else ""
        digest = _digest(values)
        ordinal = equals.get((item_id, digest), 0)
        equals[item_id, digest] = ordinal + 1
        tasks.append(
            Task(
                id=task_id(dataset, item_id, ordinal, digest),
                input=values,
                ground_truth="" if ground_truth_field is None else values.get(ground_truth_field),
                metadata={"dataset": dataset, "dataset_item_id": item_id},
            )
        )
    return tuple(tasks)


def task_id(dataset: str, item_id: str, ordinal: int, digest: str) -> str:
    """The id of a row; the parts are joined as a JSON array, so none can run into the next.

    Equal to ``uuid.uuid5(NAMESPACE, name)``, which takes three times as long; RFC 9562 section
    5.5 puts the version into the high bits of octet 6 and the variant into those of octet 8.
    """
    name = _CANONICAL.encode([dataset, item_id, ordinal, digest])
    octets = bytearray(hashlib.sha1(_NAMESPACE_OCTETS + name.encode("ascii")).digest()[:16])
    octets[6] = octets[6] & 0x0F | 0x50
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _digest(values: Dict[str, Any]) -> str:
    try:
        text = _CANONICAL.encode(values)
    except (TypeError, ValueError, RecursionError):
        text = _CANONICAL.encode(to_jsonable(values))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _empty(plan: Plan, narrowed: bool) -> EmptyDatasetError:
    return EmptyDatasetError(
        "Dataset {} of plan {!r} ({}) yields no row. Check what narrows it: selected_item_ids={}, "
        "query_sql={!r}, max_rows={}{}.".format(
            plan.dataset,
            plan.plan_name,
            plan.plan_id,
            _shown(plan.selected_item_ids),
            plan.query_sql,
            plan.max_rows,
            ", and the item_ids given to this run" if narrowed else "",
        )
    )


def _shown(ids: Sequence[str]) -> str:
    if len(ids) <= _SHOWN_IDS:
        return repr(list(ids))
    return "{} and {} more".format(repr(list(ids[:_SHOWN_IDS])), len(ids) - _SHOWN_IDS)


def _unreadable(plan: Plan, error: CloudError) -> DatasetError:
    return DatasetError(
        "Could not read dataset {} for plan {} of agent space {} (query_sql {!r}). {} {}".format(
            plan.dataset,
            plan.plan_id,
            plan.agent_space,
            plan.query_sql,
            error,
            remedy(error, "agentloop:ExecuteQuery"),
        ),
        code=error.code,
        request_id=error.request_id,
    )
