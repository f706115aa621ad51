"""Writes results directories of the documented format, row by row, for the readers' tests."""

from __future__ import annotations

import os
import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional

from agentloop_experiment_sdk import jsontext
from agentloop_experiment_sdk.models import Identity
from agentloop_experiment_sdk.results import attempts, journal, layout

IDENTITY = Identity("space", "plan-1", "experimentA", "cn-test")
RECORD_ID = "record-1"


def task_id_of(item: Any, content: Any, dataset: str = "faq") -> str:
    """A stable task id, in the form of the real ones."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, jsontext.dumps([dataset, item, content])))


def row(item: Any, **facts: Any) -> Dict[str, Any]:
    """One row: ``status``, ``output``, ``latency_ms``, ``usage``, ``error``, ``scores``, ..."""
    return dict({"item": item, "repeat": "0", "status": "success"}, **facts)


def meta_of(tasks: int, repeats: int = 1, **changes: Any) -> Dict[str, Any]:
    """An ``evaluation_meta.json`` of this package."""
    meta: Dict[str, Any] = {
        "evaluation_name": "nightly 2026/11/29 08:00:00",
        "created_at": "2026-11-29 08:00:00",
        "total_repeats": repeats,
        "benchmark": {"name": "faq", "description": "nightly", "total_tasks": tasks},
        "schema_version": 1,
        "format_version": 1,
        "record_id": RECORD_ID,
        "record_name": "nightly 2026/11/29 08:00:00",
        "client_token": "token",
        "status": "completed",
        "identity": dict(IDENTITY.__dict__),
        "plan": {"plan_name": "nightly", "project": "p", "dataset": "faq", "pipeline_name": ""},
        "experiment_start_time": 1796025600000,
        "finished_at": 1796025660000,
        "solution": {"name": "agent.answer", "hash": "hash-1"},
        "version": "v1",
        "parameters": {},
        "evaluators": [],
    }
    meta.update(changes)
    return meta


class Builder:
    """A results directory under construction."""

    def __init__(self, root: Any, repeats: int = 1, **meta: Any) -> None:
        self.root = str(root)
        self.repeats = repeats
        self.meta = meta
        self.tasks: Dict[str, Any] = {}
        self.lines: List[bytes] = []
        os.makedirs(self.root, exist_ok=True)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> Builder:
        """Write the files of ``rows``."""
        for facts in rows:
            self._add(dict(facts))
        return self

    def finish(self) -> str:
        """Write the directory's own files; returns its path."""
        meta = meta_of(len(self.tasks), self.repeats, **self.meta)
        layout.write_json(os.path.join(self.root, layout.META_FILE), meta)
        listed = {"tasks": [[task_id, item] for task_id, item in self.tasks.items()]}
        layout.write_json(os.path.join(self.root, layout.TASKS_FILE), listed, indent=None)
        with open(os.path.join(self.root, layout.JOURNAL_FILE), "ab") as file:
            file.writelines(self.lines)
        return self.root

    def _add(self, facts: Dict[str, Any]) -> None:
        content = facts.get("input", {"id": facts["item"], "question": "q-%s" % facts["item"]})
        task_id = facts.get("task_id") or task_id_of(facts["item"], content)
        self.tasks.setdefault(task_id, facts["item"])
        folder = layout.attempt_folder(self.root, task_id, facts["repeat"])
        os.makedirs(folder, exist_ok=True)
        task_meta = {
            "id": task_id,
            "input": content,
            "ground_truth": facts.get("ground_truth", ""),
            "tags": None,
            "metrics": [],
            "metadata": {"dataset": "faq", "dataset_item_id": facts["item"]},
        }
        _write(os.path.dirname(folder), layout.TASK_META_FILE, task_meta)
        if facts["status"] == "incomplete":
            return
        data = jsontext.dumps(solution_of(facts)).encode("utf-8")
        layout.write_atomically(os.path.join(folder, layout.SOLUTION_FILE), data)
        for name, score in facts.get("scores", {}).items():
            write_score(folder, name, score)
        self._journal(facts, task_id, len(data))

    def _journal(self, facts: Mapping[str, Any], task_id: str, size: int) -> None:
        if facts.get("journal", True):
            saved = journal.Saved(
                task_id,
                facts["repeat"],
                facts.get("number", 1),
                facts["status"],
                facts.get("latency_ms", 100.0),
                size,
                attempts.chat_usage(facts.get("usage")),
                facts.get("error", ("Boom", ""))[0] if facts["status"] == "failed" else "",
            )
            self.lines.append(journal.saved_line(saved))
        if facts.get("delivered", True):
            key = (task_id, facts["repeat"])
            self.lines.append(journal.delivered_line(key, facts.get("number", 1), RECORD_ID))


def solution_of(facts: Mapping[str, Any]) -> Dict[str, Any]:
    """The ``solution.json`` of a row."""
    meta: Dict[str, Any] = dict(facts.get("meta", {}))
    if facts["status"] == "failed":
        meta["error_type"], meta["error_message"] = facts.get("error", ("Boom", "it broke"))
    if facts["status"] == "skipped":
        meta["skipped"] = True
    for name in ("usage", "ttft_ms"):
        if name in facts:
            meta[name] = facts[name]
    meta[layout.ATTEMPT_KEY] = {
        "number": facts.get("number", 1),
        "experiment": attempts.experiment_key(IDENTITY),
        "record_id": RECORD_ID,
        "solution_hash": facts.get("solution_hash", "hash-1"),
        "started_at": 1796025600000,
        "finished_at": 1796025600100,
        "latency_ms": facts.get("latency_ms", 100.0),
        "trace_id": facts.get("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        **facts.get("setup", {}),
    }
    return {
        "success": facts["status"] != "failed",
        "output": facts.get("output", "answer"),
        "trajectory": facts.get("trajectory", []),
        "meta": meta,
    }


def write_score(folder: str, name: str, score: Any, message: Optional[str] = None) -> None:
    """One ``evaluation/<metric>.json``."""
    os.makedirs(os.path.join(folder, layout.EVALUATION_DIR), exist_ok=True)
    content = {
        "name": name,
        "result": score,
        "created_at": "2026-11-29 08:00:01",
        "message": message,
        "metadata": {},
    }
    target = os.path.join(layout.EVALUATION_DIR, layout.metric_file_name(name))
    _write(folder, target, content)


def build(root: Any, rows: Iterable[Mapping[str, Any]], repeats: int = 1, **meta: Any) -> str:
    """A complete directory in one call."""
    return Builder(root, repeats, **meta).add(rows).finish()


def build_plain(root: Any, rows: Iterable[Mapping[str, Any]], repeats: int = 1) -> str:
    """A directory as AgentScope's own tools write it: no journal, no task list, any task name."""
    tasks = set()
    for facts in rows:
        tasks.add(facts["item"])
        folder = layout.attempt_folder(str(root), facts["item"], facts.get("repeat", "0"))
        os.makedirs(folder, exist_ok=True)
        task = {"id": facts["item"], "input": "q", "ground_truth": "a", "tags": {}, "metrics": []}
        _write(os.path.dirname(folder), layout.TASK_META_FILE, task)
        if facts["status"] == "incomplete":
            continue
        answer = {
            "success": facts["status"] != "failed",
            "output": facts.get("output", "answer"),
            "trajectory": [],
            "meta": None,
        }
        _write(folder, layout.SOLUTION_FILE, answer)
        stats = {"llm": {}, "agent": 0, "tool": {}, "embedding": {}}
        _write(folder, layout.STATS_FILE, dict(stats, chat_usage=facts.get("chat_usage", {})))
        for name, score in facts.get("scores", {}).items():
            write_score(folder, name, score)
    meta = {
        "evaluation_name": "ace",
        "created_at": "2026-11-29 08:00:00",
        "total_repeats": repeats,
        "benchmark": {"name": "ACE", "description": "d", "total_tasks": len(tasks)},
        "schema_version": 1,
    }
    _write(str(root), layout.META_FILE, meta)
    return str(root)


def _write(folder: str, name: str, value: Any) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(jsontext.dumps(value, 4))
