"""When the two official clients are imported: before the first row, which else would wait."""

from __future__ import annotations

import contextlib
import threading


def load_clients() -> threading.Thread:
    """Import the client of AgentLoop, then that of SLS in a thread: it ends when it is there.

    Plan and dataset can be asked for meanwhile. Not both at once: they share packages, and two
    threads within one circle of imports may see half of it.
    """
    import alibabacloud_agentloop20260520.client  # noqa: F401

    thread = threading.Thread(target=_load_sls, name="agentloop-import", daemon=True)
    thread.start()
    return thread


def _load_sls() -> None:
    # what keeps it from being imported is said by the first call
    with contextlib.suppress(Exception):
        import aliyun.log  # noqa: F401
