"""A run boiled down to what a comparison needs; exported, committed, and compared against later."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import jsontext
from ..arguments import path_of
from ..errors import ConfigurationError
from ..lines import counted
from ..results import layout
from ..results.stored import mapping_of, number_or_none, read_task_meta
from .measures import RowMeasures, by_task, mean_of, tokens_of
from .summary import ExperimentResult, PathLike

FORMAT = "agentloop-baseline"
FORMAT_VERSION = 1
HOW_TO_EXPORT = (
    "Write one of an earlier run with `agentloop-experiment report DIR --export-baseline FILE`, or "
    "export_baseline()."
)


@dataclass(frozen=True)
class ItemOutcome:
    """What all repeats of one task came to.

    Attributes:
        task_id, item_id: The task, and its dataset item id as text or None.
        tries, passed: Answered rows, and those that succeeded; skipped rows are in neither.
        scores: Metric name to its mean over the repeats.
        labels: Category metric to its most frequent value.
        latency_ms, ttft_ms, tokens: Means over the repeats, None where not measured.
        known_hash: The hash of the task's input when it was stored; "" leaves it to the folder.
        folder: The task's folder, "" in an imported baseline.
    """

    task_id: str
    item_id: Optional[str]
    tries: int
    passed: int
    scores: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    latency_ms: Optional[float] = None
    ttft_ms: Optional[float] = None
    tokens: Optional[float] = None
    known_hash: str = ""
    folder: str = ""

    @property
    def label(self) -> str:
        """What a person calls the item."""
        return self.task_id if self.item_id is None else self.item_id

    @property
    def input_hash(self) -> str:
        """A digest of the task's input, read when asked for; "" when it cannot be read."""
        if self.known_hash or not self.folder:
            return self.known_hash
        return input_hash(read_task_meta(self.folder).get("input"))


@dataclass(frozen=True, repr=False)
class Baseline:
    """The outcome of a run per item, without payloads.

    Attributes:
        name: What the run is called.
        record_id: Its cloud record, or "".
        configuration: What the run was made of: plan, solution, version, parameters.
        kinds: Metric name to its kind.
        items: The items that were answered.
    """

    name: str
    record_id: str
    configuration: Mapping[str, Any]
    kinds: Mapping[str, str]
    items: Tuple[ItemOutcome, ...]

    def __repr__(self) -> str:
        return "<Baseline {!r}: {}>".format(self.name, counted(len(self.items), "item"))

    @classmethod
    def of(cls, result: ExperimentResult) -> Baseline:
        """The baseline of a result."""
        kinds = {name: summary.kind for name, summary in result.metrics.items()}
        return cls(
            result.name,
            result.record_id,
            configuration_of(result),
            kinds,
            tuple(items_of(result)),
        )


def export_baseline(result: ExperimentResult, path: PathLike) -> None:
    """Write the compact baseline of ``result``, one item a line, to be committed.

    Args:
        result: The run that later ones are compared against.
        path: The file to write, such as ``baseline.json``; replaced atomically.

    Raises:
        ConfigurationError: The run has no answered row, or an argument is something else.
    """
    target = path_of("path", path)
    if not isinstance(result, ExperimentResult):
        raise ConfigurationError(
            "A baseline is made of a result (of load_result), not of {!r}.".format(result)
        )
    baseline = Baseline.of(result)
    if not baseline.items:
        raise ConfigurationError(
            "{} has no answered row, so it cannot be a baseline.".format(result.path)
        )
    layout.check_target(target)
    layout.write_atomically(target, baseline_text(baseline).encode("utf-8"))


def load_baseline(path: PathLike) -> Baseline:
    """Read a file that ``export_baseline`` wrote to ``path``.

    Raises:
        ConfigurationError: The file is absent or is no baseline of a format this version reads.
    """
    try:
        with open(path_of("path", path), "rb") as file:
            document = json.loads(file.read())
        return _baseline(document)
    except ConfigurationError:
        raise
    except OSError as error:
        raise ConfigurationError(
            "The baseline {} cannot be read: {}. {}".format(
                path, error.strerror or error, HOW_TO_EXPORT
            )
        ) from error
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ConfigurationError(
            "{} is no baseline file of this version. {}".format(path, HOW_TO_EXPORT)
        ) from error


def baseline_text(baseline: Baseline) -> str:
    """The file's text; equal runs give equal text."""
    head = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": baseline.name,
        "record_id": baseline.record_id,
        "configuration": baseline.configuration,
        "kinds": baseline.kinds,
    }
    lines = [jsontext.dumps(_item_dict(item)) for item in baseline.items]
    start = jsontext.dumps(head, 1)[:-2]
    return start + ',\n "items": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def items_of(result: ExperimentResult) -> List[ItemOutcome]:
    """The answered items of a result, in the order of its tasks."""
    items = []
    for rows in by_task(result.measures).values():
        answered = [measure for measure in rows if measure.row.status in ("success", "failed")]
        if answered:
            items.append(_item(answered))
    return items


def configuration_of(result: ExperimentResult) -> Dict[str, Any]:
    """What a run was made of, flat: one entry per setting, parameters under ``parameters.<name>``.

    Names of runs and times are left out: they differ always and explain nothing.
    """
    meta = result.meta
    benchmark, identity = mapping_of(meta.get("benchmark")), mapping_of(meta.get("identity"))
    plan, solution = mapping_of(meta.get("plan")), mapping_of(meta.get("solution"))
    flat: Dict[str, Any] = {
        "dataset": benchmark.get("name"),
        "tasks": benchmark.get("total_tasks"),
        "repeats": meta.get("total_repeats"),
        "version": meta.get("version"),
        "solution": solution.get("name"),
        "solution hash": solution.get("hash"),
        "evaluators": meta.get("evaluators"),
        "plan": plan.get("plan_name"),
        "pipeline": plan.get("pipeline_name"),
        "experiment": identity.get("experiment_name"),
        "agent space": identity.get("agent_space"),
        "region": identity.get("region_id"),
    }
    for name, value in sorted(mapping_of(meta.get("parameters")).items()):
        flat["parameters." + name] = value
    return {name: value for name, value in flat.items() if value not in (None, "", [], {})}


def input_hash(value: Any) -> str:
    """A short digest of a task's input; "" for None."""
    if value is None:
        return ""
    text = json.dumps(jsontext.to_jsonable(value), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def _item(rows: Sequence[RowMeasures]) -> ItemOutcome:
    first = rows[0].row
    return ItemOutcome(
        task_id=first.task_id,
        item_id=first.item_id,
        tries=len(rows),
        passed=sum(1 for measure in rows if measure.row.status == "success"),
        scores=_mean_scores(rows),
        labels=_labels(rows),
        latency_ms=mean_of(measure.row.latency_ms for measure in rows),
        ttft_ms=mean_of(measure.ttft_ms for measure in rows),
        tokens=mean_of(tokens_of(measure.row) for measure in rows),
        folder=os.path.dirname(first.folder),
    )


def _mean_scores(rows: Sequence[RowMeasures]) -> Dict[str, float]:
    values: Dict[str, List[float]] = {}
    for measure in rows:
        for name, score in measure.scores.items():
            if not isinstance(score, str):
                values.setdefault(name, []).append(score)
    # exact, so that equal scores have equal means in whatever order the repeats come
    return {name: math.fsum(scores) / len(scores) for name, scores in values.items()}


def _labels(rows: Sequence[RowMeasures]) -> Dict[str, str]:
    counters: Dict[str, "Counter[str]"] = {}
    for measure in rows:
        for name, score in measure.scores.items():
            if isinstance(score, str):
                counters.setdefault(name, Counter())[score] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in counters.items()}


def _item_dict(item: ItemOutcome) -> Dict[str, Any]:
    entry: Dict[str, Any] = {
        "item": item.item_id,
        "task": item.task_id,
        "input": item.input_hash,
        "tries": item.tries,
        "passed": item.passed,
    }
    # not rounded: a difference of one sign in every item, however small, reads like evidence
    measured = {
        "scores": dict(item.scores),
        "labels": dict(item.labels),
        "latency_ms": item.latency_ms,
        "ttft_ms": item.ttft_ms,
        "tokens": item.tokens,
    }
    entry.update((name, value) for name, value in measured.items() if value not in (None, {}))
    return entry


def _baseline(document: Any) -> Baseline:
    if document["format"] != FORMAT or document["format_version"] > FORMAT_VERSION:
        raise ValueError("another format")
    return Baseline(
        str(document["name"]),
        str(document["record_id"]),
        dict(document["configuration"]),
        dict(document["kinds"]),
        tuple(_read_item(entry) for entry in document["items"]),
    )


def _read_item(entry: Mapping[str, Any]) -> ItemOutcome:
    item_id = entry["item"]
    tries, passed = int(entry["tries"]), int(entry["passed"])
    if not 0 <= passed <= tries <= _MOST_TRIES or not tries:
        raise ValueError("an item passed more often than it was tried")
    return ItemOutcome(
        task_id=str(entry["task"]),
        item_id=None if item_id is None else str(item_id),
        tries=tries,
        passed=passed,
        scores={str(name): _finite(value) for name, value in entry.get("scores", {}).items()},
        labels={str(name): str(value) for name, value in entry.get("labels", {}).items()},
        latency_ms=number_or_none(entry.get("latency_ms")),
        ttft_ms=number_or_none(entry.get("ttft_ms")),
        tokens=number_or_none(entry.get("tokens")),
        known_hash=str(entry["input"]),
    )


_MOST_TRIES = 1_000_000


def _finite(value: Any) -> float:
    found = number_or_none(value)
    if found is None:
        raise ValueError("a score is no number")
    return found
