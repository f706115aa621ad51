"""Solutions that run in the workers of an executor, so they live in a module of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

from agentloop_experiment_sdk import trace_headers


def facts(task: Any) -> Dict[str, Any]:
    """Who answers, and what the agent would be sent."""
    headers = trace_headers()
    return {
        "pid": os.getpid(),
        "id": task.input["id"],
        "traceparent": headers["traceparent"],
        "baggage": headers["baggage"],
        "version": task.metadata.get("version"),
        "parameters": task.metadata.get("parameters"),
    }


async def on_the_loop(task: Any) -> Dict[str, Any]:
    """Which loop, of which process, answers."""
    await asyncio.sleep(0)
    return {"pid": os.getpid(), "loop": id(asyncio.get_running_loop())}


def note(folder: Any, name: str, text: str = "") -> None:
    """Leave a file for the test to find."""
    part = Path(folder) / (name + ".part")
    part.write_text(text, "utf-8")
    os.replace(str(part), str(Path(folder) / name))


def wait_for_file(folder: Any, name: str, cap: float = 60.0) -> None:
    """Wait for a file that the test makes."""
    ends = time.monotonic() + cap
    while not (Path(folder) / name).exists():
        if time.monotonic() > ends:
            raise TimeoutError(name)
        time.sleep(0.01)


class Gated:
    """Says who calls, then waits for the file ``gate``; row ``0`` kills its process if asked to."""

    def __init__(self, folder: Any, held: str = "0") -> None:
        self.folder = str(folder)
        self.held = held

    def __call__(self, task: Any) -> str:
        item = task.input["id"]
        note(self.folder, "begun-{}-{}".format(item, os.getpid()), item)
        if item == self.held:
            wait_for_file(self.folder, "gate")
        return "answer " + str(item)


class Deadly:
    """Kills its own process for one row, once row ``0`` runs, which waits for the file ``gate``."""

    def __init__(self, folder: Any, deadly: str) -> None:
        self.folder = str(folder)
        self.deadly = deadly

    def __call__(self, task: Any) -> str:
        item = task.input["id"]
        if item == "0":
            note(self.folder, "begun")
            wait_for_file(self.folder, "gate")
        if item == self.deadly:
            wait_for_file(self.folder, "begun")
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"


class Endless:
    """Awaits for ever, and says when it is cancelled."""

    def __init__(self, folder: Any) -> None:
        self.folder = str(folder)

    async def __call__(self, task: Any) -> str:
        note(self.folder, "begun-" + task.input["id"])
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note(self.folder, "cancelled-" + task.input["id"])
            raise
        return "never"


class Heavy:
    """A solution with a lot of data, that notes each time it is loaded."""

    def __init__(self, folder: Any, size: int) -> None:
        self.folder = str(folder)
        self.data = b"\0" * size

    def __getstate__(self) -> Dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        note(self.folder, "loaded-{}-{}".format(os.getpid(), time.monotonic_ns()))

    def __call__(self, task: Any) -> int:
        return len(self.data)


class Unloadable:
    """Can be pickled, but not loaded again."""

    def __reduce__(self) -> Any:
        return (no_such_library, ())

    def __call__(self, task: Any) -> str:
        return "never"


def no_such_library() -> None:
    """What a missing library does."""
    raise ModuleNotFoundError("No module named 'agent_of_the_driver'")


class Locked:
    """Holds a lock, so it cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, task: Any) -> str:
        return "never"


def large(task: Any) -> str:
    """An answer of 20 MB."""
    return "ä" * 10_000_000


def unpicklable(task: Any) -> Dict[str, Any]:
    """An answer that cannot be pickled, but stored."""
    return {"lock": threading.Lock(), "items": (n for n in range(3))}


def sleeping(task: Any) -> str:
    """Ignores every cancellation for a while."""
    time.sleep(float(task.input.get("seconds", 5)))
    return "late"


def failing_twice_then_answering(folder: Any) -> Any:
    """A solution whose rows fail at their first call, with whatever process."""

    def solution(task: Any) -> str:
        mark = "tried-" + task.input["id"]
        if not (Path(folder) / mark).exists():
            note(folder, mark)
            raise ValueError("the first time")
        return "the second time"

    return solution


def names(folder: Any, prefix: str) -> List[str]:
    """What was noted with a prefix."""
    found = [path.name for path in Path(folder).glob(prefix + "*")]
    return sorted(name for name in found if not name.endswith(".part"))
