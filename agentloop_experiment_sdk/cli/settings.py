"""What a run is made of, from the command line's options: its config and how it is run."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import re
import sys
from typing import Any, Dict, Iterator, Mapping, Optional, Union

from ..api import local_config
from ..errors import ConfigurationError
from ..plan.config import AgentLoopConfig
from ..results.metadata import repeats_of
from . import connections, embedded, evaluators, solutions

# options whose name and value are those of an option of Experiment
_SAME = (
    "serial",
    "resume",
    "retry_failed",
    "row_retries",
    "task_timeout",
    "max_rps",
    "limit",
    "stop_if_first",
    "on_undelivered",
    "drain_timeout",
)
# rows that need not be limited by the cloud's caution
_ALL_ROWS = 1_000_000_000


@contextlib.contextmanager
def config_of_run(given: argparse.Namespace, meta: Mapping[str, Any]) -> Iterator[AgentLoopConfig]:
    """The config of the run, and for its time the AgentLoop of ``--local``."""
    known = connections.settings_of(meta)
    if given.local is None and not embedded.is_local(given, known):
        yield connections.config_of(given, known)
        return
    embedded.check_alone(given)
    order = ""
    if given.local is not None:
        order = embedded.file_order(embedded.check_dataset(given.local))
    with embedded.local_loop(given.result_dir) as local:
        if given.local is not None:
            known["experiment_plan_id"] = embedded.load_plan(local, given.local, order)
        settings = {"max_rows": _ALL_ROWS, **connections.dataset_settings(given, known)}
        yield local_config(local, known["experiment_plan_id"], **settings)


def experiment_options(given: argparse.Namespace, meta: Mapping[str, Any]) -> Dict[str, Any]:
    """The options of ``Experiment``."""
    if given.serial and given.n_workers not in (None, 1):
        raise ConfigurationError("--serial runs one row at once; leave out --n-workers.")
    if given.serial and given.executor is not None:
        raise ConfigurationError("--serial runs rows in the main thread; leave out --executor.")
    parameters = dict(meta.get("parameters") or {})
    for text in given.parameter or ():
        name, value = solutions.pair(text, "--parameter")
        parameters[name] = solutions.json_or_text(value)
    return {
        **{name: getattr(given, name) for name in _SAME},
        "n_repeat": given.n_repeat if given.n_repeat is not None else max(1, repeats_of(meta)),
        "n_workers": 1 if given.serial else 4 if given.n_workers is None else given.n_workers,
        "item_ids": given.item_id,
        "max_failures": _max_failures(given.max_failures),
        "version": given.version or str(meta.get("version") or ""),
        "parameters": parameters,
        "evaluators": evaluators.evaluators_of(given),
        "progress": _progress(given),
    }


def _max_failures(text: Optional[str]) -> Union[None, int, float]:
    """``5`` is a count, ``0.1`` and ``10%`` are shares of all rows."""
    if text is None:
        return None
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"\d*\.?\d+%?", text):
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    raise ConfigurationError("--max-failures must be a count or a share: 5, 0.1 or 10%.")


def _progress(given: argparse.Namespace) -> Optional[bool]:
    fixed: Dict[str, Optional[bool]] = {"bar": True, "log": None, "none": False}
    if given.progress != "auto":
        return fixed[given.progress]
    drawable = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    return True if drawable and not given.json else None
