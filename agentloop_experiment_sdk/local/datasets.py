"""Datasets: each one a real SQLite table, in a database of its own agent space."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections import Counter
from itertools import zip_longest
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, TextIO, Union
from urllib.parse import quote

from ..arguments import unusable
from ..errors import ConfigurationError
from .exchange import ServiceError
from .sql import DEFAULT_LIMIT, JSON_MARK, GuardedDatabase, QueryResult, quoted, stored_value
from .store import Document, Store

Row = Mapping[str, Any]
Rows = Union[str, "os.PathLike[str]", Iterable[Row]]
KIND = "dataset"
_LONGEST_FIELD = 2**31 - 1  # of a CSV file; the csv module stops at 128 KiB by itself
_DEEPEST = 900  # levels of a row; beyond about 950 Python cannot write what it could read


class Datasets:
    """The datasets of all agent spaces.

    Args:
        store: Keeps what is known about each dataset.
        path: The server's file; the tables stand beside it in ``<path>.<space>.datasets``.
        writable: Whether queries may insert, update and delete rows.
    """

    def __init__(self, store: Store, path: Optional[str] = None, writable: bool = False) -> None:
        self._store = store
        self._path = path
        self.writable = writable
        self._databases: Dict[str, GuardedDatabase] = {}

    def close(self) -> None:
        """Close all databases."""
        for database in self._databases.values():
            database.close()

    def get(self, space: str, name: str) -> Document:
        """What is known about a dataset.

        Raises:
            ServiceError: 404 DatasetNotExist.
        """
        found = self._store.get(KIND, space, name)
        if found is None:
            raise ServiceError(
                404, "DatasetNotExist", "The dataset {} does not exist in {}.".format(name, space)
            )
        return found

    def create(self, space: str, document: Document) -> None:
        """Make a dataset of ``document["datasetName"]`` with the columns of its ``schema``."""
        name = document["datasetName"]
        if self._store.get(KIND, space, name) is not None:
            raise ServiceError(
                409, "DatasetAlreadyExist", "The dataset {} exists already.".format(name)
            )
        schema: Mapping[str, Any] = document["schema"]
        columns = ", ".join(_declared(column, key["type"]) for column, key in schema.items())
        try:
            self._tables(space).execute("CREATE TABLE {} ({})".format(quoted(name), columns))
        except (sqlite3.Error, ValueError) as error:
            raise _invalid("The dataset cannot be made: {}".format(error)) from error
        self._store.put(KIND, space, name, dict(document, booleans=[]))

    def add(self, space: str, name: str, rows: Sequence[Row]) -> int:
        """Append rows, all or none; a column that is new is added. Returns their number."""
        document = self.get(space, name)
        tables = self._tables(space)
        tables.execute("BEGIN")
        with tables:
            for column in new_columns(document["schema"], rows):
                kind = column_type([row.get(column) for row in rows])
                self._add_column(space, name, _declared(column, kind))
                document["schema"][column] = {"type": kind}
            self._settle_booleans(space, document, rows)
            self._insert(space, document, rows)
            if "id" in document["schema"]:
                # pages are read ordered by it; without an index each page sorts the whole table
                tables.execute(
                    "CREATE INDEX IF NOT EXISTS {} ON {} (id)".format(
                        quoted(name + " by id"), quoted(name)
                    )
                )
        self._store.put(KIND, space, name, document)
        return len(rows)

    def query(
        self, space: str, name: str, sql: str, *, limit: int = DEFAULT_LIMIT, offset: int = 0
    ) -> QueryResult:
        """Run a query over the datasets of the space; ``name`` must exist."""
        booleans = set(self.get(space, name)["booleans"])
        result = self._database(space).query(
            sql, writable=self.writable, limit=limit, offset=offset
        )
        for at, column in enumerate(result.columns):
            if column in booleans:
                for row in result.rows:
                    row[at] = bool(row[at]) if row[at] in (0, 1) else row[at]
        return result

    def delete(self, space: str, name: str) -> None:
        """Remove a dataset and its rows."""
        self.get(space, name)
        self._tables(space).execute("DROP TABLE {}".format(quoted(name)))
        self._store.delete(KIND, space, name)

    def _insert(self, space: str, document: Document, rows: Sequence[Row]) -> None:
        columns, booleans = list(document["schema"]), set(document["booleans"])
        self._tables(space).executemany(
            "INSERT INTO {} ({}) VALUES ({})".format(
                quoted(document["datasetName"]),
                ", ".join(map(quoted, columns)),
                ", ".join("?" * len(columns)),
            ),
            ([_stored(row.get(key), key in booleans) for key in columns] for row in rows),
        )

    def _add_column(self, space: str, name: str, column: str) -> None:
        try:
            self._tables(space).execute("ALTER TABLE {} ADD COLUMN {}".format(quoted(name), column))
        except (sqlite3.Error, ValueError) as error:
            raise _invalid("The column {} cannot be added: {}".format(column, error)) from error

    def _settle_booleans(self, space: str, document: Document, rows: Sequence[Row]) -> None:
        """Keep a column of nothing but booleans as 0 and 1, so that ``WHERE flag`` works.

        A column that holds anything else keeps its booleans as JSON.
        """
        booleans: Set[str] = set(document["booleans"])
        for column in document["schema"]:
            values = {type(row[column]) for row in rows if row.get(column) is not None}
            if column not in booleans:
                if values == {bool} and self._is_empty(space, document["datasetName"], column):
                    booleans.add(column)
            elif values - {bool}:
                booleans.discard(column)
                self._tables(space).execute(
                    "UPDATE {0} SET {1} = ? || CASE {1} WHEN 0 THEN 'false' ELSE 'true' END"
                    " WHERE {1} IS NOT NULL".format(
                        quoted(document["datasetName"]), quoted(column)
                    ),
                    (JSON_MARK,),
                )
        document["booleans"] = sorted(booleans)

    def _is_empty(self, space: str, name: str, column: str) -> bool:
        found = self._tables(space).execute(
            "SELECT 1 FROM {0} WHERE {1} IS NOT NULL LIMIT 1".format(quoted(name), quoted(column))
        )
        return found.fetchone() is None

    def _tables(self, space: str) -> sqlite3.Connection:
        return self._database(space).connection

    def _database(self, space: str) -> GuardedDatabase:
        if space not in self._databases:
            path = None
            if self._path is not None:
                path = "{}.{}.datasets".format(self._path, quote(space, safe=""))
            self._databases[space] = GuardedDatabase(path)
        return self._databases[space]


def read_rows(source: Rows) -> List[Row]:
    """Rows of a list, a ``.jsonl`` file (one object a line) or a ``.csv`` file (all text).

    Raises:
        ConfigurationError: ``source`` is something else, a row is not a JSON object, a line of a
            table does not fit its header or has a value in a column without a name, or the file's
            ending is another one.
        OSError: The file cannot be read.
    """
    if not isinstance(source, (str, os.PathLike)):
        if isinstance(source, (bytes, Mapping)) or not isinstance(source, Iterable):
            raise unusable("rows", source, "a list of dicts, or a .jsonl or .csv file")
        return [_listed_row(row, number) for number, row in enumerate(source, 1)]
    ending = os.path.splitext(os.fspath(source))[1].lower()
    with open(source, encoding="utf-8-sig", newline="") as file:
        try:
            if ending == ".csv":
                return list(_csv_rows(file))
            if ending in (".jsonl", ".ndjson"):
                return [
                    _object(line, "line {}".format(count))
                    for count, line in enumerate(file, 1)
                    if line.strip()
                ]
        except UnicodeDecodeError as error:
            raise ConfigurationError("a dataset file is UTF-8; here {}".format(error)) from error
    raise ConfigurationError("a dataset file ends in .jsonl or .csv, not in {!r}".format(ending))


def new_columns(known: Mapping[str, Any], rows: Iterable[Row]) -> List[str]:
    """The columns of ``rows`` that are not ``known``, in the order they first occur."""
    found: Dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row))
    return [column for column in found if column not in known]


def column_type(values: Iterable[Any]) -> str:
    """The index type of a column: text, long, double or json."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int}:
        return "long"
    if kinds and kinds <= {int, float}:
        return "double"
    return "json" if kinds and kinds <= {dict, list, bool} else "text"


def _declared(column: str, kind: str) -> str:
    """A column for CREATE TABLE; declared only if whole numbers, so that ``id IN ('1')`` works.

    Columns of any other kind have no declared type, so every value keeps its own.
    """
    return quoted(column) + (" INTEGER" if kind == "long" else "")


def _stored(value: Any, is_boolean: bool) -> Any:
    return int(value) if is_boolean and value is not None else stored_value(value)


def _csv_rows(file: TextIO) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = []
    reader = csv.reader(file)
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        names = next(reader, [])
        _check_header(names)
        nameless = [at for at, name in enumerate(names) if not name]
        for values in reader:
            # a single one, such as the index of a table that pandas wrote, is a column called ""
            _check_values(values, names, nameless if len(nameless) > 1 else (), reader.line_num)
            if values:
                rows.append(dict(zip_longest(names, values)))
    except csv.Error as error:
        raise ConfigurationError("line {}: {}".format(reader.line_num, error)) from error
    finally:
        csv.field_size_limit(before)
    return rows


def _check_header(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1 and name:
            raise ConfigurationError(
                "the header has the column {!r} {} times, and a row can hold only one value of "
                "it; give each column a name of its own".format(name, count)
            )
    if names and not any(names):
        raise ConfigurationError("the header, the first line, names no column")


def _check_values(
    values: Sequence[str], names: Sequence[str], nameless: Sequence[int], line: int
) -> None:
    if len(values) > len(names):
        raise ConfigurationError(
            "line {} has more values than the header; put a value that holds a comma in double "
            "quotes".format(line)
        )
    for at in nameless:  # tables that a spreadsheet wrote often have several, all empty
        if at < len(values) and values[at]:
            raise ConfigurationError(
                "line {} has a value in column {}, and the header has no name for it; name the "
                "column, or remove it".format(line, at + 1)
            )


def _listed_row(row: Any, number: int) -> Row:
    place = "row {}".format(number)
    try:
        text = json.dumps(row)
    except RecursionError as error:
        raise _too_deep(place) from error
    except (TypeError, ValueError) as error:
        raise ConfigurationError("{} is not JSON: {}".format(place, error)) from error
    return _object(text, place)


def _object(text: str, place: str) -> Row:
    try:
        row = json.loads(text)
    except RecursionError as error:
        raise _too_deep(place) from error
    except ValueError as error:
        reason = getattr(error, "msg", error)
        raise ConfigurationError("{} is not a JSON object: {}".format(place, reason)) from error
    if not isinstance(row, dict):
        raise ConfigurationError("{} is not a JSON object".format(place))
    if text.count("[") + text.count("{") > _DEEPEST and _is_too_deep(row):
        raise _too_deep(place)
    return row


def _is_too_deep(row: Row) -> bool:
    level: List[Any] = [row]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, (dict, list))
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


def _too_deep(place: str) -> ConfigurationError:
    return ConfigurationError(
        "{} is nested too deeply: at most {} levels can be kept".format(place, _DEEPEST)
    )


def _invalid(message: str) -> ServiceError:
    return ServiceError(400, "ParameterInvalid", message)
