"""``--executor``: processes of this machine, or the workers of a Dask cluster, run the rows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, Iterator, Optional

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

FORMS = "processes, processes:N or dask://HOST:PORT"
_CONNECT_S = 10.0


@contextlib.contextmanager
def executor_of(text: Optional[str], solution: Any) -> Iterator[Any]:
    """The executor that ``--executor`` names, for as long as the run takes; None without one.

    Processes are forked where that is the custom, so this comes before anything starts a thread.

    Raises:
        ConfigurationError: The text names none, or it cannot be reached.
    """
    if text is None:
        yield None
        return
    processes = re.fullmatch(r"processes(?::(\d+))?", text)
    dask = re.fullmatch(r"dask://([^/]+:\d+)/?", text)
    if processes is not None:
        with _processes(int(processes.group(1) or os.cpu_count() or 1)) as pool:
            yield pool
    elif dask is not None:
        with _dask("tcp://" + dask.group(1), solution) as client:
            yield client
    else:
        raise ConfigurationError("--executor must be {}, not {!r}.".format(FORMS, text))


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from ..run.cluster import start_processes

    if count < 1:
        raise ConfigurationError("--executor processes:N needs at least one process.")
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_leave_ctrl_c)
    try:
        start_processes(pool)
        yield pool
    finally:
        # what still runs was given up by the run, and must not hold up the end
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown()


def _leave_ctrl_c() -> None:
    """A terminal sends Ctrl-C to all processes; the run itself tells its workers what to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _dask(address: str, solution: Any) -> Iterator[Any]:
    try:
        import cloudpickle
        from distributed import Client
    except ImportError as error:
        raise ConfigurationError(
            "--executor dask://… needs Dask: pip install 'agentloop-experiment-sdk[dask]'."
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            "There is no Dask scheduler at {}: {}.".format(address, error)
        ) from error
    module = sys.modules.get(getattr(solution, "__module__", ""))
    if module is not None and _is_script(module):
        # the workers need not have the file that was named
        cloudpickle.register_pickle_by_value(module)
    with client:
        yield client


def _is_script(module: Any) -> bool:
    """Whether a module is a file of the user's rather than something installed."""
    file = os.path.realpath(str(getattr(module, "__file__", None) or ""))
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = "site-packages" in file or file.startswith(os.path.realpath(package) + os.sep)
    return bool(file) and "." not in module.__name__ and not installed
