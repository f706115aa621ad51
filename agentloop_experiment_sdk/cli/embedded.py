"""The AgentLoop of ``--local``: kept in a file inside the results directory.

So the next run goes on with the same plan and record, and ``deliver`` finds both again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Sequence

from ..errors import ConfigurationError, EmptyDatasetError
from ..results import layout, places

if TYPE_CHECKING:
    from ..local import LocalAgentLoop

_FOLDER, _FILE = ".local", "agentloop.sqlite"
_REGION = "cn-local"
_OF_A_CLOUD = (
    "plan",
    "project",
    "space",
    "region",
    "agentloop_endpoint",
    "sls_endpoint",
    "access_key_id",
    "access_key_secret",
    "security_token",
)


def store_of(result_dir: str) -> str:
    """The file in which the AgentLoop of a results directory keeps its data."""
    return os.path.join(result_dir, _FOLDER, _FILE)


def is_local(options: argparse.Namespace, known: Mapping[str, Any]) -> bool:
    """Whether the results, with the settings ``known`` of them, have an AgentLoop of their own."""
    elsewhere = options.agentloop_endpoint or options.sls_endpoint
    here = known.get("region_id") == _REGION and os.path.isfile(store_of(options.result_dir))
    return here and not elsewhere


def check_alone(options: argparse.Namespace) -> None:
    """Refuse options about another AgentLoop, which would be ignored.

    Raises:
        ConfigurationError: There is one.
    """
    for name in _OF_A_CLOUD:
        if getattr(options, name) is not None:
            raise ConfigurationError(
                "--{} does not go with a local AgentLoop (--local).".format(name.replace("_", "-"))
            )


@contextlib.contextmanager
def local_loop(result_dir: str) -> Iterator[LocalAgentLoop]:
    """The AgentLoop of a results directory, running.

    Raises:
        ConfigurationError: Its file cannot be used.
    """
    import sqlite3

    from ..local import LocalAgentLoop

    store = store_of(result_dir)
    made = _missing(os.path.dirname(store))
    try:
        os.makedirs(os.path.dirname(store), exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            "The results directory {} cannot be made: {}. Pass a result_dir that can be "
            "written.".format(result_dir, error.strerror or error)
        ) from error
    places.check_folders(result_dir, [store, *_files_beside(store)])
    try:
        local = LocalAgentLoop(store, region_id=_REGION).start()
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(
            "The local AgentLoop cannot keep its data in {}: {}.".format(store, error)
        ) from error
    try:
        with contextlib.closing(local):
            yield local
    except BaseException:
        if not os.path.lexists(os.path.join(result_dir, layout.META_FILE)):
            _take_back(store, made)
        raise


def _missing(folder: str) -> List[str]:
    """``folder`` and the folders above it that are still to be made, the innermost first."""
    found = []
    while folder and not os.path.lexists(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def _files_beside(store: str) -> List[str]:
    folder = os.path.dirname(store)
    return [os.path.join(folder, name) for name in os.listdir(folder)]


def _take_back(store: str, made: Sequence[str]) -> None:
    """Leave nothing of a run that was refused before it wrote anything."""
    if os.path.dirname(store) in made:
        shutil.rmtree(os.path.dirname(store), ignore_errors=True)
        for folder in made[1:]:
            with contextlib.suppress(OSError):  # the user has put something into it meanwhile
                os.rmdir(folder)


def check_dataset(path: str) -> List[str]:
    """Refuse a dataset file before anything is made for it; returns its columns.

    Raises:
        ConfigurationError: The file cannot be read, or has no rows.
    """
    from ..local.datasets import new_columns, read_rows

    try:
        rows = read_rows(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not rows:
        raise EmptyDatasetError(
            "The dataset file {} has no rows; write one JSON object a line, or a CSV line under "
            "the header.".format(path)
        )
    return new_columns({}, rows)


def file_order(columns: Sequence[str]) -> str:
    """The ``query_sql`` by which a plan reads a dataset of these columns in its file's order.

    Without it rows come by id, as in the cloud; then the first three of twelve rows of a CSV file,
    where an id is text, are 1, 10 and 11.
    """
    from ..local.plans import AS_ADDED

    taken = {column.lower() for column in columns}
    return next((order for order in AS_ADDED if order.split()[-1] not in taken), "")


def dataset_name(path: str) -> str:
    """What the dataset of a file is called: the file's name without its ending."""
    return os.path.splitext(os.path.basename(path))[0]


def load_plan(local: LocalAgentLoop, path: str, query_sql: str = "") -> str:
    """Load a dataset file and return the plan over it; the same file gets the same plan again.

    Args:
        local: Where to load it.
        path: The file.
        query_sql: That of the plan.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    import sqlite3

    from ..local import ServiceError

    name = dataset_name(path)
    try:
        local.load_dataset(path, name, replace=True)
    except (OSError, ValueError, ServiceError, sqlite3.Error) as error:
        raise _unreadable(path, error) from error
    return local.create_plan(name, "local plan of " + name, query_sql=query_sql)


def _unreadable(path: str, error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or error
    return ConfigurationError("The dataset {} cannot be read: {}.".format(path, reason))
