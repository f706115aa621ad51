"""How the calls in a worker hear that their run was stopped."""

from __future__ import annotations

import os
import threading
from typing import Dict, Set, Tuple

from .invoke import Call

_POLL_S = 0.5


class StopWatch:
    """Cancels the calls of a run that was stopped: when told so, or when its file is gone.

    A file that this process never saw says nothing: the driver may be on another machine.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """After a fork, which copies neither threads nor the right to their locks."""
        self._changed = threading.Condition()
        self._calls: Dict[int, Tuple[Call, str, str]] = {}
        self._seen: Set[str] = set()
        self._stopped: Set[str] = set()
        self._watching = False
        self._idle = False

    def add(self, call: Call, run_id: str, stop_file: str) -> bool:
        """Watch a call; False when its run was stopped already, and the call must not begin."""
        self.see(stop_file)
        if self._is_stopped(run_id, stop_file):
            call.scope.cancel()
            return False
        with self._changed:
            self._calls[id(call)] = (call, run_id, stop_file)
            start, self._watching = not self._watching, True
            if self._idle:
                self._changed.notify()
        if start:
            threading.Thread(target=self._watch, name="agentloop-stop", daemon=True).start()
        return True

    def remove(self, call: Call) -> None:
        """The call is over."""
        with self._changed:
            self._calls.pop(id(call), None)

    def see(self, stop_file: str) -> None:
        """Note a file whose absence will mean something."""
        if stop_file and stop_file not in self._seen and os.path.exists(stop_file):
            self._seen.add(stop_file)

    def stop(self, run_id: str) -> None:
        """Cancel the calls of a run."""
        with self._changed:
            self._stopped.add(run_id)
            self._changed.notify()

    def _is_stopped(self, run_id: str, stop_file: str) -> bool:
        return run_id in self._stopped or (
            stop_file in self._seen and not os.path.exists(stop_file)
        )

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._idle = not self._calls
                self._changed.wait(None if self._idle else _POLL_S)
                watched = list(self._calls.values())
            for call, run_id, stop_file in watched:
                if not call.was_stopped and self._is_stopped(run_id, stop_file):
                    call.scope.cancel()


WATCH = StopWatch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.begin_anew)
