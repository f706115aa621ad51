"""Everything LocalAgentLoop remembers except dataset rows: JSON documents, logs, record updates.

One SQLite file, or memory. Used on the server's thread only.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
    body TEXT NOT NULL, UNIQUE (kind, scope, name));
CREATE TABLE IF NOT EXISTS logs (
    seq INTEGER PRIMARY KEY, project TEXT NOT NULL, logstore TEXT NOT NULL, time INTEGER NOT NULL,
    record TEXT, trace TEXT, contents TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS logs_by_record ON logs (project, logstore, record);
CREATE INDEX IF NOT EXISTS logs_by_trace ON logs (project, logstore, trace);
CREATE TABLE IF NOT EXISTS updates (
    seq INTEGER PRIMARY KEY, record TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS updates_by_record ON updates (record);
"""
_INDEXED = {"experiment_id": "record", "traceId": "trace"}

Document = Dict[str, Any]
LogRow = Dict[str, str]


class Store:
    """The documents and logs.

    Args:
        path: The SQLite file; None keeps everything in memory.
    """

    def __init__(self, path: Optional[str] = None) -> None:
        self._database = sqlite3.connect(
            path or ":memory:", check_same_thread=False, isolation_level=None
        )
        # survives the death of the process; a power cut may lose the last writes
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file; what was stored stays in it."""
        self._database.close()

    def get(self, kind: str, scope: str, name: str) -> Optional[Document]:
        """One document, or None."""
        found = self._database.execute(
            "SELECT body FROM documents WHERE kind = ? AND scope = ? AND name = ?",
            (kind, scope, name),
        ).fetchone()
        return None if found is None else _document(found[0])

    def exists(self, kind: str, scope: str, name: str) -> bool:
        """Whether there is such a document."""
        found = self._database.execute(
            "SELECT 1 FROM documents WHERE kind = ? AND scope = ? AND name = ?", (kind, scope, name)
        )
        return found.fetchone() is not None

    def put(self, kind: str, scope: str, name: str, body: Document) -> None:
        """Write a document; one that exists keeps its place in lists."""
        self._database.execute(
            "INSERT INTO documents (kind, scope, name, body) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (kind, scope, name) DO UPDATE SET body = excluded.body",
            (kind, scope, name, json.dumps(body)),
        )

    def delete(self, kind: str, scope: str, name: str) -> bool:
        """Remove a document; returns whether there was one."""
        done = self._database.execute(
            "DELETE FROM documents WHERE kind = ? AND scope = ? AND name = ?", (kind, scope, name)
        )
        return done.rowcount > 0

    def list(self, kind: str, scope: Optional[str] = None) -> List[Document]:
        """The documents of a kind, of one scope or of all, in the order they were created."""
        rows = self._database.execute(
            "SELECT body FROM documents WHERE kind = ? AND scope = coalesce(?, scope) ORDER BY seq",
            (kind, scope),
        )
        return [_document(body) for (body,) in rows]

    def find(self, kind: str, name: str) -> Optional[Tuple[str, Document]]:
        """The scope and body of the document of that name in any scope."""
        found = self._database.execute(
            "SELECT scope, body FROM documents WHERE kind = ? AND name = ?", (kind, name)
        ).fetchone()
        return None if found is None else (found[0], _document(found[1]))

    def add_update(self, record_id: str, body: Document) -> None:
        """Remember the body of one UpdateExperimentRun."""
        self._database.execute(
            "INSERT INTO updates (record, body) VALUES (?, ?)", (record_id, json.dumps(body))
        )

    def updates(self, record_id: str) -> List[Document]:
        """The bodies of UpdateExperimentRun of a record in order."""
        rows = self._database.execute(
            "SELECT body FROM updates WHERE record = ? ORDER BY seq", (record_id,)
        )
        return [_document(body) for (body,) in rows]

    def add_logs(self, project: str, logstore: str, rows: Sequence[LogRow]) -> None:
        """Store log rows, all or none; each carries ``__time__`` in seconds as text."""
        values = [
            (
                project,
                logstore,
                int(row["__time__"]),
                row.get("experiment_id"),
                row.get("traceId"),
                json.dumps(row),
            )
            for row in rows
        ]
        self._database.execute("BEGIN")
        with self._database:
            self._database.executemany(
                "INSERT INTO logs (project, logstore, time, record, trace, contents)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )

    def delete_logs(self, project: str, logstore: str) -> None:
        """Remove all rows of a logstore."""
        self._database.execute(
            "DELETE FROM logs WHERE project = ? AND logstore = ?", (project, logstore)
        )

    def logs(
        self,
        project: str,
        logstore: str,
        *,
        begin: Optional[int] = None,
        end: Optional[int] = None,
        equal: Iterable[Tuple[str, str]] = (),
    ) -> Iterator[LogRow]:
        """Log rows in arrival order with begin ≤ time < end.

        ``equal`` narrows by the fields that have an index (case-insensitively); others are ignored.
        """
        where = ["project = ?", "logstore = ?"]
        values: List[Any] = [project, logstore]
        for condition, bound in (("time >= ?", begin), ("time < ?", end)):
            if bound is not None:
                where.append(condition)
                values.append(bound)
        for field, text in equal:
            if field in _INDEXED:
                # the index needs plain equality; ids are written in lower case or as they are
                where.append("{} IN (?, ?)".format(_INDEXED[field]))
                values += [text, text.lower()]
        rows = self._database.execute(
            "SELECT contents FROM logs WHERE {} ORDER BY seq".format(" AND ".join(where)), values
        )
        for (contents,) in rows:
            yield json.loads(contents)


def _document(body: str) -> Document:
    loaded: Document = json.loads(body)
    return loaded
