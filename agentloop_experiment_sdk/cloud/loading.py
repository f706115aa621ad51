"""Importing the two official clients: a second of CPU before the first row, and when to spend it.

The first call of each would import it, too; but then it is the first rows that wait.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Iterator


def load_clients() -> threading.Thread:
    """Import the client of AgentLoop, then that of SLS in a thread: it ends when it is there.

    Plan and dataset can be asked for meanwhile. Not both at once: they share packages, and two
    threads within one circle of imports may see half of it.
    """
    with _no_collections():
        import alibabacloud_agentloop20260520.client  # noqa: F401
    thread = threading.Thread(target=_load_sls, name="agentloop-import", daemon=True)
    thread.start()
    return thread


def _load_sls() -> None:
    # what keeps it from being imported is said by the first call
    with contextlib.suppress(Exception), _no_collections():
        import aliyun.log  # noqa: F401


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Imports make objects that stay: looking for garbage among them takes a twentieth more."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
