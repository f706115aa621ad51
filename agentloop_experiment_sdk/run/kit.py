"""What a worker of a given executor needs for all rows of a run: sent once, loaded once."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple, Union

from ..errors import ConfigurationError
from ..solutions.call import Prepared, prepare

_KITS_KEPT = 4


@dataclass(frozen=True)
class Kit:
    """What all calls of a run share.

    ``solution`` takes a task and a ``pre_hook``; ``extra`` goes into ``task.metadata``;
    ``timeout`` is the run's ``task_timeout`` in seconds.
    """

    solution: Prepared
    extra: Mapping[str, Any]
    timeout: Optional[float] = None


def packed(
    solution: Any,
    extra: Mapping[str, Any],
    timeout: Optional[float] = None,
    *,
    by_name: bool = False,
) -> Tuple[str, bytes]:
    """The kit of a run as bytes, and their digest.

    Args:
        solution: The user's solution.
        extra: As in ``Kit``.
        timeout: As in ``Kit``.
        by_name: The workers have the script that runs, as the children of multiprocessing do: what
            it defines is sent as a name if that can be. Else it is sent as code, with the globals
            that it uses, by cloudpickle, which Dask and loky bring along.

    Raises:
        ConfigurationError: It cannot be sent to another process.
    """
    ways = _ways()
    if by_name:
        ways.reverse()
    parts = [_pickled("solution", solution, ways), _pickled("parameters", extra, ways)]
    data = pickle.dumps((*parts, timeout))
    return hashlib.sha256(data).hexdigest(), data


def _ways() -> List[Callable[[Any], bytes]]:
    try:
        from cloudpickle import dumps
    except ImportError:
        return [pickle.dumps]
    return [dumps, pickle.dumps]


def _pickled(what: str, value: Any, ways: List[Callable[[Any], bytes]]) -> bytes:
    errors: List[Exception] = []
    for dumps in ways:
        try:
            return bytes(dumps(value))
        except Exception as error:
            errors.append(error)
    raise ConfigurationError(
        "The {} cannot be sent to the executor's workers: {}. Define it in an importable module, "
        "without open clients or locks in it{}.".format(
            what, errors[-1], "" if len(ways) > 1 else ", or install cloudpickle"
        )
    ) from errors[-1]


def _unpacked(data: bytes) -> Kit:
    try:
        solution, extra, timeout = pickle.loads(data)
        return Kit(prepare(pickle.loads(solution)), pickle.loads(extra), timeout)
    except Exception as error:
        raise ConfigurationError(
            "A worker of the executor cannot load the solution: {}: {}. Its modules must be "
            "installed, or on the import path, where the workers run.".format(
                type(error).__name__, error
            )
        ) from error


class KitStore:
    """The kits this worker has, each loaded once; the latest few are kept."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """After a fork: another thread may have held the lock."""
        self._kits: OrderedDict[str, Kit] = OrderedDict()
        self._loading = threading.Lock()

    def get(self, digest: str, kit: Union[None, bytes, Kit]) -> Optional[Kit]:
        """The kit; from ``kit`` if it is not known yet, None if it is not given either.

        Raises:
            ConfigurationError: It cannot be loaded here.
        """
        if isinstance(kit, Kit):
            return kit
        # under the lock: a solution may hold a model, which two threads must not both load
        with self._loading:
            known = self._kits.pop(digest, None) or (_unpacked(kit) if kit else None)
            if known is not None:
                self._kits[digest] = known
            while len(self._kits) > _KITS_KEPT:
                self._kits.popitem(last=False)
            return known


KITS = KitStore()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KITS.begin_anew)
