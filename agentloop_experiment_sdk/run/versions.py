"""Rows in a resumed directory that another version of the agent answered."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Iterable, Mapping, Optional

from ..results import attempts
from ..results.attempts import Setup, setup_of
from ..results.directory import ResultsDirectory
from ..results.journal import Key

logger = logging.getLogger(__name__)

_MIXED = "mixed_versions"  # in evaluation_meta.json: later runs must look, too


def tell_other_versions(
    directory: ResultsDirectory, earlier: Mapping[str, Any], done: Iterable[Key]
) -> None:
    """Warn of done attempts that another version, or other parameters, answered.

    Args:
        directory: The directory that goes on.
        earlier: Its ``evaluation_meta.json`` before this run; it speaks for attempts that do not
            say what answered them.
        done: The attempts that are not run again.
    """
    current, before = setup_of(directory.meta), setup_of(earlier)
    if current is None or (before in (None, current) and not earlier.get(_MIXED)):
        return  # the files are opened only where they can tell something
    keys = list(done)
    setups = Counter(_setup(directory, key) or before for key in keys)
    others = {s: n for s, n in setups.items() if s is not None and s != current}
    if not others:
        return
    directory.update_meta(**{_MIXED: True})
    logger.warning(
        "%d of the %d done attempts were answered by another version or with other parameters "
        "(%s), this run is %s. They stay as they are: pass resume=False, or another result_dir, "
        "to run them too.",
        sum(others.values()),
        len(keys),
        ", ".join("{} of {}".format(n, _name(setup, current)) for setup, n in others.items()),
        _name(current, current),
    )


def _setup(directory: ResultsDirectory, key: Key) -> Optional[Setup]:
    document = attempts.read_solution(directory.path, key)
    return None if document is None else setup_of(attempts.attempt_facts(document))


def _name(setup: Setup, current: Setup) -> str:
    name = "version {!r}".format(setup.version) if setup.version else "no version"
    return name if setup.parameters == current.parameters else name + " with other parameters"
