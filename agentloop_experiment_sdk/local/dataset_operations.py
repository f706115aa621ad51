"""Operations on datasets."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

from .datasets import KIND, Row, column_type, new_columns
from .exchange import ServiceError
from .platform import Call, Operation, Platform, invalid, token_page
from .sql import DEFAULT_LIMIT

_ALL = "/agentspace/{agentSpace}/dataset"
_ONE = _ALL + "/{datasetName}"
_TYPES = ("text", "long", "double", "json")


def new_dataset(platform: Platform, name: str, **fields: Any) -> Dict[str, Any]:
    """The document of a dataset that begins now."""
    now = platform.now_iso()
    document = {
        "datasetName": name,
        "description": "",
        "regionId": platform.settings.region_id,
        "createTime": now,
        "updateTime": now,
        "isFavorite": False,
        "labels": {},
        "schema": {},
    }
    return dict(document, **fields)


def load_rows(platform: Platform, space: str, name: str, rows: List[Row], replace: bool) -> str:
    """Make a dataset of ``rows``, also in the place of another one if ``replace``; its name.

    Raises:
        ServiceError: There is a dataset of that name, or SQLite refuses a column's name.
    """
    if replace and platform.store.get(KIND, space, name) is not None:
        platform.datasets.delete(space, name)
    elif platform.store.get(KIND, space, name) is not None:
        hint = "The dataset {} exists already: give this one another name=, or pass replace=True."
        raise ServiceError(409, "DatasetAlreadyExist", hint.format(name))
    columns = new_columns({}, rows) or ["id"]
    schema = {
        column: {"type": column_type([row.get(column) for row in rows])} for column in columns
    }
    document = new_dataset(platform, name, agentSpace=space, schema=schema)
    platform.datasets.create(space, document)
    platform.datasets.add(space, name, rows)
    return name


def _create(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    name = call.required("datasetName")
    schema = call.body.get("schema")
    if not isinstance(schema, dict) or not schema:
        raise invalid("schema is required: an object of columns")
    for column, key in schema.items():
        if not isinstance(key, dict) or key.get("type") not in _TYPES:
            raise invalid("the type of column {!r} must be one of {}".format(column, _TYPES))
    fields = call.optional({"description": str})
    document = new_dataset(platform, name, agentSpace=call.space, schema=schema, **fields)
    platform.datasets.create(call.space, document)
    return {}


def _get(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    return _public(platform.datasets.get(call.space, call.path["datasetName"]))


def _list(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    named, labels = call.text("datasetName"), _labels(call)
    datasets = [
        _public(dataset, without=("schema",))
        for dataset in platform.store.list(KIND, call.space)
        if named in dataset["datasetName"] and labels.items() <= dataset["labels"].items()
    ]
    page, token = token_page(call, datasets)
    return {
        "total": len(datasets),
        "maxResults": len(page),
        "nextToken": token,
        "datasets": page,
    }


def _labels(call: Call) -> Dict[str, Any]:
    try:
        labels = json.loads(call.text("labels", "{}"))
    except ValueError:
        labels = None
    if not isinstance(labels, dict):
        raise invalid("labels must be a JSON object")
    return labels


def _add(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    rows = call.body.get("dataArray")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("dataArray is required: a list of objects")
    added = platform.datasets.add(call.space, call.path["datasetName"], rows)
    return {"affectedRows": added}


def _query(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    if call.body.get("type") != "SQL":
        raise invalid("type is required and must be SQL")
    started = platform.now_ms()
    bounds = call.optional({"offset": int, "length": int})
    result = platform.datasets.query(
        call.space,
        call.path["datasetName"],
        call.required("query"),
        limit=bounds.get("length", DEFAULT_LIMIT),
        offset=bounds.get("offset", 0),
    )
    meta = {
        "count": len(result.rows),
        "affectedRows": result.affected,
        "elapsedMillisecond": platform.now_ms() - started,
        "progress": "Complete",
        "truncation": {"truncated": False, "truncatedColumnIndexes": []},
    }
    return {
        "columns": result.columns,
        "columnTypes": result.types,
        "rows": result.rows,
        "meta": meta,
    }


def _delete(platform: Platform, call: Call) -> Dict[str, Any]:
    platform.space(call.space)
    platform.datasets.delete(call.space, call.path["datasetName"])
    return {}


def _public(dataset: Dict[str, Any], without: Tuple[str, ...] = ()) -> Dict[str, Any]:
    hidden: List[str] = ["booleans", *without]
    return {key: value for key, value in dataset.items() if key not in hidden}


OPERATIONS: Tuple[Operation, ...] = (
    Operation("CreateDataset", "POST", _ALL, _create),
    Operation("GetDataset", "GET", _ONE, _get),
    Operation("ListDatasets", "GET", _ALL, _list),
    Operation("AddDatasetData", "POST", _ONE + "/rows", _add),
    Operation("ExecuteQuery", "POST", _ONE + "/query", _query),
    Operation("DeleteDataset", "DELETE", _ONE, _delete),
)
