"""The files of one attempt: written once it is answered, read again for resume and delivery."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from .. import jsontext
from ..models import Attempt, Identity, Result, Task
from ..tracing import valid_trace_id
from . import layout
from .journal import Key, Saved
from .stored import mapping_of, number_or_none

Usage = Mapping[str, Tuple[int, int]]


def experiment_key(identity: Identity) -> str:
    """A short digest of the identity; a ``solution.json`` with another one is not ours."""
    text = jsontext.dumps(asdict(identity))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


@dataclass(frozen=True)
class Stamp:
    """What every ``solution.json`` of a run says about the run."""

    experiment: str
    record_id: str
    solution_hash: str
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """The version that answered, and its parameters as canonical JSON: equal or not, no more."""

    version: str
    parameters: str


class AttemptWriter:
    """Writes attempts below ``root``; thread-safe for different attempts.

    Order: ``task_meta.json`` once per task, ``stats.json``, then ``solution.json``, which makes
    the attempt count as done.
    """

    def __init__(self, root: str, stamp: Stamp, *, fsync: bool = False) -> None:
        self._root = root
        self._stamp = stamp
        self._fsync = fsync
        self._described: Set[str] = set()
        self._closed = False

    def close(self) -> None:
        """From now on no attempt gets done: its directory may soon be another run's."""
        self._closed = True

    def save(self, result: Result) -> Saved:
        """Write the attempt and return its journal entry.

        Raises:
            OSError: The files could not be written; the attempt is not done.
        """
        self._check_open()
        attempt = result.attempt
        folder = layout.attempt_folder(self._root, attempt.task.id, attempt.repeat_id)
        if not self._make_folder(attempt.task, folder):
            _clear(self._root, attempt)
        usage = chat_usage(result.output.meta.get("usage"))
        if usage:
            path = os.path.join(folder, layout.STATS_FILE)
            layout.write_json(path, _stats(usage), indent=None, fsync=self._fsync)
        data = jsontext.dumps(self._solution(result)).encode("utf-8")
        path = os.path.join(folder, layout.SOLUTION_FILE)
        self._check_open()  # again: the disk may have taken its time
        layout.write_atomically(path, data, fsync=self._fsync)
        return _saved(result, len(data), usage)

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the run that wrote here is over", self._root)

    def _make_folder(self, task: Task, folder: str) -> bool:
        """Make the attempt's folder, and describe its task; False when it was there."""
        if task.id not in self._described:
            self._describe(task, os.path.dirname(folder))
            self._described.add(task.id)
        try:
            os.mkdir(folder)
        except FileExistsError:
            return False
        return True

    def _describe(self, task: Task, folder: str) -> None:
        path = os.path.join(folder, layout.TASK_META_FILE)
        data = jsontext.dumps(task_meta(task)).encode("utf-8")
        try:
            os.mkdir(folder)  # the root is there: makedirs would ask for it for every task
        except FileExistsError:
            layout.remove_leftovers(folder)
            if _content(path) == data:
                return
        layout.write_atomically(path, data, fsync=self._fsync)

    def _solution(self, result: Result) -> Dict[str, Any]:
        facts: Dict[str, Any] = {
            "number": result.attempt.number,
            "experiment": self._stamp.experiment,
            "record_id": self._stamp.record_id,
            "solution_hash": self._stamp.solution_hash,
            "version": self._stamp.version,
            "parameters": self._stamp.parameters,
            "started_at": result.started_at,
            "finished_at": result.finished_at,
            "latency_ms": result.latency_ms,
        }
        if result.trace_id:
            facts["trace_id"] = result.trace_id
        if result.attempt.number > 1:
            facts["retried"] = True
        document = result.output.to_dict()
        document["meta"] = dict(document["meta"], **{layout.ATTEMPT_KEY: facts})
        return document


def task_meta(task: Task) -> Dict[str, Any]:
    """``task_meta.json``: AgentScope's keys and the task's place in the dataset."""
    return {
        "id": task.id,
        "input": task.input,
        "ground_truth": task.ground_truth,
        "tags": task.tags,
        "metrics": [],
        "metadata": task.metadata,
    }


def read_task(root: str, task_id: str) -> Optional[Task]:
    """The task of a folder, or None when its ``task_meta.json`` cannot be read."""
    meta = layout.read_json_object(os.path.join(root, task_id, layout.TASK_META_FILE))
    if meta is None or not isinstance(meta.get("input"), dict):
        return None
    return Task(
        task_id,
        meta["input"],
        meta.get("ground_truth", ""),
        meta.get("tags"),
        meta.get("metadata") or {},
    )


def read_solution(root: str, key: Key) -> Optional[Dict[str, Any]]:
    """The ``solution.json`` of an attempt, or None when it is absent, torn or of another form."""
    folder = layout.attempt_folder(root, *key)
    document = layout.read_json_object(os.path.join(folder, layout.SOLUTION_FILE))
    if document is None or not isinstance(document.get("success"), bool):
        return None
    if not isinstance(document.get("meta"), dict):
        document["meta"] = {}
    return document


def attempt_facts(document: Mapping[str, Any]) -> Dict[str, Any]:
    """What a ``solution.json`` says about its attempt; ``{}`` in another tool's file."""
    facts = document["meta"].get(layout.ATTEMPT_KEY)
    return facts if isinstance(facts, dict) else {}


def setup_of(facts: Mapping[str, Any]) -> Optional[Setup]:
    """What answered, as the facts of an attempt or ``evaluation_meta.json`` say.

    None where they do not: attempts of earlier versions of this package.
    """
    if "version" not in facts:
        return None
    parameters = mapping_of(facts.get("parameters"))
    # as they are stored, which is how those of another run are read
    stored = json.loads(jsontext.dumps(parameters)) if parameters else {}
    text = json.dumps(stored, sort_keys=True) if stored else ""
    return Setup(sys.intern(_text(facts.get("version"))), sys.intern(text))


def is_other(setup: Optional[Setup], current: Optional[Setup]) -> bool:
    """Whether both are known and differ."""
    return setup is not None and current is not None and setup != current


def config_of(facts: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """``experiment_config`` of the row of an attempt with these facts; None as ``setup_of``."""
    if "version" not in facts:
        return None
    fields = {
        "version": _text(facts.get("version")),
        "parameters": mapping_of(facts.get("parameters")),
    }
    return {name: value for name, value in fields.items() if value}


def number_of(document: Mapping[str, Any]) -> int:
    """Which try of its attempt a ``solution.json`` is, from 1."""
    return max(1, _count(attempt_facts(document).get("number")) or 1)


def trace_id_of(document: Mapping[str, Any]) -> Optional[str]:
    """The trace that a ``solution.json`` was recorded under, or None."""
    return valid_trace_id(attempt_facts(document).get("trace_id"))


def started_at_of(document: Mapping[str, Any]) -> Optional[int]:
    """When the call behind a ``solution.json`` began, milliseconds since the epoch, or None."""
    return _count(attempt_facts(document).get("started_at"))


def latency_of(document: Mapping[str, Any]) -> Optional[float]:
    """Milliseconds of the call behind a ``solution.json``, None when nobody measured it."""
    return number_or_none(attempt_facts(document).get("latency_ms"))


def names_another(document: Mapping[str, Any], experiment: str) -> bool:
    """Whether a ``solution.json`` says that it belongs to another experiment than this known one.

    "" stands for an experiment that is not known.
    """
    named = attempt_facts(document).get("experiment", experiment)
    return experiment != "" and named != experiment


def saved_from_disk(root: str, key: Key, experiment: str) -> Optional[Saved]:
    """The journal entry of an attempt that has none, or None when it must run (again).

    A ``solution.json`` that names another experiment does not count.
    """
    document = read_solution(root, key)
    if document is None or names_another(document, experiment):
        return None
    path = os.path.join(layout.attempt_folder(root, *key), layout.SOLUTION_FILE)
    try:
        size = os.path.getsize(path)
    except OSError:
        return None
    return saved_of(document, key, size)


def saved_of(document: Mapping[str, Any], key: Key, size: int) -> Saved:
    """The journal entry of a ``solution.json`` of so many bytes."""
    return Saved(
        key[0],
        key[1],
        number_of(document),
        status_of(document),
        latency_of(document) or 0.0,
        size,
        chat_usage(document["meta"].get("usage")),
        "" if document["success"] else error_type_of(document["meta"]),
    )


def status_of(document: Mapping[str, Any]) -> str:
    """``success``, ``failed`` or ``skipped``, as ``Result.status``."""
    if not document["success"]:
        return "failed"
    return "skipped" if document["meta"].get("skipped") is True else "success"


def error_type_of(meta: Mapping[str, Any]) -> str:
    """The error type of a failed attempt, as text."""
    value = meta.get("error_type")
    return (jsontext.sls_text(value) if value is not None else "") or "UnknownError"


def chat_usage(usage: Any) -> Usage:
    """Model name to (input, output) tokens from a solution's ``meta["usage"]``, else ``{}``."""
    usage = jsontext.to_jsonable(usage)
    if not isinstance(usage, dict):
        return {}
    tokens = (_count(usage.get("input_tokens")), _count(usage.get("output_tokens")))
    if tokens == (None, None):
        return {}
    return {str(usage.get("model") or "unknown"): (tokens[0] or 0, tokens[1] or 0)}


def _text(value: Any) -> str:
    return "" if value is None else jsontext.sls_text(value)


def _count(value: Any) -> Optional[int]:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    try:
        return int(value) if usable else None
    except (OverflowError, ValueError):
        return None


def _stats(usage: Usage) -> Dict[str, Any]:
    return {
        "llm": dict.fromkeys(usage, 1),
        "agent": 0,
        "tool": {},
        "embedding": {},
        "chat_usage": {
            model: {"input_tokens": tokens[0], "output_tokens": tokens[1]}
            for model, tokens in usage.items()
        },
    }


def _saved(result: Result, size: int, usage: Usage) -> Saved:
    error = error_type_of(result.output.meta) if result.status == "failed" else ""
    attempt = result.attempt
    return Saved(
        attempt.task.id,
        attempt.repeat_id,
        attempt.number,
        result.status,
        result.latency_ms,
        size,
        usage,
        error,
    )


def _clear(root: str, attempt: Attempt) -> None:
    """Make an attempt's folder ready for another answer: what belongs to the present one goes.

    The answer itself is kept as ``attempt-<n>.json``, and ``solution.json`` stays until it is
    replaced. Evaluations and statistics go first: beside the new answer they would be wrong.
    """
    folder = layout.attempt_folder(root, *attempt.key)
    layout.remove_leftovers(folder)
    document = read_solution(root, attempt.key)
    if document is not None and attempt.number > 1:
        _keep(folder, number_of(document))
    shutil.rmtree(os.path.join(folder, layout.EVALUATION_DIR), ignore_errors=True)
    try:
        os.unlink(os.path.join(folder, layout.STATS_FILE))
    except FileNotFoundError:
        pass


def _keep(folder: str, number: int) -> None:
    """Keep the answer that is about to be replaced as ``attempt-<n>.json``."""
    path = os.path.join(folder, layout.SOLUTION_FILE)
    kept = os.path.join(folder, "attempt-{}.json".format(number))
    if os.path.exists(kept):
        return
    try:
        os.link(path, kept)
    except OSError:  # a file system without links
        with layout.open_regular(path) as file:
            layout.write_atomically(kept, file.read())


def _content(path: str) -> Optional[bytes]:
    try:
        with layout.open_regular(path) as file:
            return file.read()
    except OSError:
        return None
