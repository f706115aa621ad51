"""One injected fault: what it does, and which requests it hits."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple, Union

from ..arguments import check_count, unusable
from .arguments import check_texts, listed
from .exchange import Request

Condition = Callable[[Request], bool]
Actions = Union[str, Tuple[str, ...], List[str]]

ANY = "*"
SLS_ACTIONS = "sls:*"
OPENAPI_ACTIONS = "openapi:*"


@dataclass
class Verdict:
    """What the active faults do to one request; with nothing set it is served as usual."""

    delay: float = 0.0
    status: int = 0
    code: str = ""
    message: str = ""
    retry_after: Optional[float] = None
    cut: str = ""
    hang: bool = False

    @property
    def final(self) -> bool:
        """Whether the request's outcome is decided, so that later faults do not see it."""
        return bool(self.status or self.cut or self.hang)


class Fault:
    """One injected fault.

    Args:
        effect: What it does to a request it hits.
        actions: Action names, ``"*"``, ``"sls:*"`` or ``"openapi:*"``.
        after: Matching requests that pass unharmed first.
        times: Hits before the fault ends by itself; None for no end.
        every: Hit only every k-th matching request.
        when: Hit only requests for which this returns true; called on the server's thread.
        containing: Hit only requests whose target, body or decoded log values hold this text.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    def __init__(
        self,
        effect: Verdict,
        actions: Actions,
        *,
        after: int = 0,
        times: Optional[int] = None,
        every: int = 1,
        when: Optional[Condition] = None,
        containing: str = "",
    ) -> None:
        check_count("after", after, 0)
        check_count("every", every, 1)
        check_count("times", 1 if times is None else times, 1)
        if when is not None and not callable(when):
            raise unusable("when", when, "a callable that takes a request")
        check_texts(containing=containing, may_be_empty=True)
        self.effect = effect
        self.actions = _names(actions)
        self.hits = 0
        self._after = after
        self._times = times
        self._every = every
        self._when = when
        self._containing = containing
        self._seen = 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take the fault back; requests that hang already keep hanging."""
        self._stopped.set()

    @property
    def active(self) -> bool:
        """Whether the fault can still hit a request."""
        return not self._stopped.is_set()

    @property
    def looks_inside(self) -> bool:
        """Whether the fault depends on the contents of requests."""
        return bool(self._containing or self._when)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def strikes(self, request: Request, group: str) -> bool:
        """Whether this request of ``group`` is hit; counts it. On the server's thread only."""
        if not self.active or not self._concerns(request, group):
            return False
        self._seen += 1
        position = self._seen - self._after
        if position < 1 or position % self._every:
            return False
        self.hits += 1
        if self._times is not None and self.hits >= self._times:
            self.stop()
        return True

    def _concerns(self, request: Request, group: str) -> bool:
        if not {ANY, group, request.action} & set(self.actions):
            return False
        if self._containing and not request.contains(self._containing):
            return False
        return self._when is None or bool(self._when(request))


def _names(actions: Any) -> Tuple[str, ...]:
    given = [actions] if isinstance(actions, str) else actions
    wanted = 'the name of an action, a list of them, "*", "sls:*" or "openapi:*"'
    names = listed("action", given, lambda name: isinstance(name, str) and name != "", wanted)
    if not names:
        raise unusable("action", actions, wanted)
    return tuple(names)
