"""The settings of one run, checked before anything is sent or written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

from ..arguments import check_count, is_list, path_of, unusable
from ..errors import ConfigurationError
from .events import Event
from .limits import AUTO, AUTO_BEGIN
from .progress import Listener, ProgressBar, ProgressLog, progress_listener

COMPLETE, HOLD = "complete", "hold"
LONGEST_S = 365 * 86400.0
"""What "for ever" comes to in seconds; Python's waits refuse some three hundred years."""

_CONTROL = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class RunSettings:
    """How an experiment runs. See ``Experiment`` for what each setting means.

    Raises:
        ConfigurationError: A value cannot be used; the message names it.
    """

    result_dir: str = "./results"
    n_repeat: int = 1
    n_workers: int = 1
    serial: bool = False
    resume: Optional[bool] = None
    retry_failed: bool = False
    row_retries: int = 0
    task_timeout: Optional[float] = None
    limit: Optional[int] = None
    item_ids: Optional[Sequence[Any]] = None
    max_failures: Union[None, int, float] = None
    stop_if_first: Optional[int] = None
    on_event: Optional[Callable[[Event], None]] = None
    progress: Union[None, bool, Listener] = None
    evaluators: Sequence[Any] = ()
    client_token: Optional[str] = None
    record_id: Optional[str] = None
    version: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    on_undelivered: str = COMPLETE
    drain_timeout: float = 300.0
    stop_grace: float = 5.0
    fsync: bool = False
    executor: Any = None
    max_rps: Optional[float] = None
    fewest_workers: Optional[int] = None
    first_workers: Optional[int] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "result_dir", path_of("result_dir", self.result_dir))
        for name in ("n_repeat", "n_workers", "limit", "stop_if_first"):
            value = getattr(self, name)
            if value is not None or name in ("n_repeat", "n_workers"):
                check_count(name, value, 1)
        check_count("row_retries", self.row_retries, 0)
        for name in ("task_timeout", "drain_timeout", "stop_grace"):
            object.__setattr__(self, name, seconds(name, getattr(self, name)))
        _check_max_failures(self.max_failures)
        _check_rate(self.max_rps)
        if self.executor is not None and self.fewest_workers is not None:
            raise ConfigurationError(
                "An executor has a size of its own; give n_workers as a number with it."
            )
        if self.resume not in (None, True, False):
            raise unusable("resume", self.resume, "None, True or False")
        if self.on_undelivered not in (COMPLETE, HOLD):
            raise unusable("on_undelivered", self.on_undelivered, '"complete" or "hold"')
        if self.on_event is not None and not callable(self.on_event):
            raise unusable("on_event", self.on_event, "a callable that takes an event")
        object.__setattr__(self, "progress", progress_listener(self.progress))
        if self.item_ids is not None:
            object.__setattr__(self, "item_ids", _ids(self.item_ids))
        for name in ("record_id", "client_token"):
            object.__setattr__(self, name, _id(name, getattr(self, name)))
        object.__setattr__(self, "version", _version(self.version))
        if not isinstance(self.parameters, Mapping):
            raise unusable("parameters", self.parameters, "a mapping")

    def listeners(self) -> Tuple[Listener, ...]:
        """Who is told of events."""
        return tuple(item for item in (self.on_event, self.progress) if callable(item))

    @property
    def awaits_each_row(self) -> bool:
        """Whether something waits for the news of each row: a listener of the user's, or an end of
        the run that failed rows bring about."""
        listens = any(not isinstance(item, (ProgressLog, ProgressBar)) for item in self.listeners())
        return listens or self.max_failures is not None or self.stop_if_first is not None

    def config_fields(self) -> Mapping[str, Any]:
        """What ``experiment_config`` of every row says."""
        fields = {"version": self.version, "parameters": dict(self.parameters)}
        return {name: value for name, value in fields.items() if value}


def concurrency(n_workers: Any) -> Dict[str, int]:
    """The settings that ``n_workers`` stands for: a number, a range, or ``"auto"``.

    Raises:
        ConfigurationError: It is none of these.
    """
    if n_workers == "auto":
        fewest, most = AUTO
        return {"n_workers": most, "fewest_workers": fewest, "first_workers": AUTO_BEGIN}
    if isinstance(n_workers, (tuple, list, range)):
        fewest, most = _ends(n_workers)
        return {"n_workers": most, "fewest_workers": fewest}
    return {"n_workers": n_workers}


def _ends(given: Any) -> Tuple[int, int]:
    if isinstance(given, range) and len(given) > 0:
        given = (given[0], given[-1])
    whole = [item for item in given if isinstance(item, int) and not isinstance(item, bool)]
    if len(whole) != 2 or len(given) != 2 or not 1 <= whole[0] <= whole[1]:
        raise unusable(
            "n_workers", given, 'a whole number, a range such as (4, 32), or "auto" (1 to 64)'
        )
    return whole[0], whole[1]


def _check_rate(value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value < float("inf")):
        raise unusable("max_rps", value, "a number of starts per second above 0, or None")


def _ids(value: Any) -> Tuple[Any, ...]:
    if not is_list(value):
        raise unusable("item_ids", value, "a list of ids")
    return tuple(value)


def seconds(name: str, value: Any) -> Optional[float]:
    """A setting in seconds, at most ``LONGEST_S``; only the time-outs of a row may be None, for no
    limit.

    Raises:
        ConfigurationError: It is not a number above 0.
    """
    if value is None and name in ("task_timeout", "timeout"):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise unusable(name, value, "a number of seconds above 0")
    return min(value, LONGEST_S)


def _id(name: str, value: Any) -> Optional[str]:
    """An id in one line; None and "" (a variable of the environment that is not set) are none."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not value.strip() or _CONTROL.search(value):
        raise unusable(name, value, "a text in one line, or None")
    return value


def _version(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise unusable("version", value, "a text, or a number")
    return str(value)


def _check_max_failures(value: Any) -> None:
    if value is None:
        return
    count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    share = isinstance(value, float) and 0.0 <= value <= 1.0
    if not (count or share):
        raise unusable("max_failures", value, "a count (int), or a share of all rows (0.0 to 1.0)")
