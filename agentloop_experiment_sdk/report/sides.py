"""The runs that a comparison is given: directories, results, baseline files."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Union

from ..errors import ConfigurationError
from ..results.stored import ResultRow
from .baseline import Baseline, ItemOutcome, load_baseline
from .summary import ExperimentResult, PathLike, load_result

Run = Union[PathLike, ExperimentResult, Baseline]


@dataclass(frozen=True, repr=False)
class Side:
    """One run of a comparison; ``result`` is None for an imported baseline."""

    name: str
    baseline: Baseline
    result: Optional[ExperimentResult] = None

    def __repr__(self) -> str:
        return "<Side {!r}>".format(self.name)

    def first_row(self, item: Optional[ItemOutcome]) -> Optional[ResultRow]:
        """The first repeat of an item of this run; None without one, or of an imported baseline."""
        if self.result is None or item is None:
            return None
        return self.result.rows_of(item.task_id)[0]


def load_sides(runs: Sequence[Run], names: Optional[Sequence[str]]) -> List[Side]:
    """The runs of a comparison, read and named.

    Raises:
        ConfigurationError: One of them is no run.
        ResultsDirectoryError: A directory cannot be read.
    """
    loaded = [load_run(run) for run in runs]
    chosen = list(names) if names is not None else _names(runs, loaded)
    sides = []
    for name, run in zip(chosen, loaded):
        if isinstance(run, ExperimentResult):
            sides.append(Side(str(name), Baseline.of(run), run))
        else:
            sides.append(Side(str(name), run))
    return sides


def load_run(run: Any) -> Union[ExperimentResult, Baseline]:
    """A run from whatever names one: a result, a baseline, a directory, a baseline file.

    Raises:
        ConfigurationError: It is none of these.
        ResultsDirectoryError: The directory cannot be read.
    """
    if isinstance(run, (ExperimentResult, Baseline)):
        return run
    if not isinstance(run, (str, os.PathLike)):
        raise ConfigurationError(
            "A run is a results directory, a loaded result or a baseline file, not {!r}.".format(
                run
            )
        )
    # a file that is not there is named as what it was meant to be
    is_file = os.path.isfile(run) or (
        not os.path.exists(run) and os.path.splitext(run)[1].lower() == ".json"
    )
    return load_baseline(run) if is_file else load_result(run)


def _names(runs: Sequence[Run], loaded: Sequence[Union[ExperimentResult, Baseline]]) -> List[str]:
    """Short names that differ: versions, else directories, else the runs' names, numbered."""
    places = [_place(run, found) for run, found in zip(runs, loaded)]
    for names in ([_version(run) for run in loaded], places):
        if all(names) and len(set(names)) == len(names):
            return names
    chosen = [run.name for run in loaded]
    counts = Counter(chosen)
    return [
        name if counts[name] == 1 else "{} #{}".format(name, place + 1)
        for place, name in enumerate(chosen)
    ]


def _place(run: Run, loaded: Union[ExperimentResult, Baseline]) -> str:
    """The name of the directory or file that the run is in; of a bare baseline its own."""
    if isinstance(loaded, ExperimentResult):
        return os.path.basename(os.path.abspath(loaded.path))
    return loaded.name if isinstance(run, (ExperimentResult, Baseline)) else os.path.basename(run)


def _version(run: Union[ExperimentResult, Baseline]) -> str:
    known = run.configuration if isinstance(run, Baseline) else run.meta
    return str(known.get("version") or "")
