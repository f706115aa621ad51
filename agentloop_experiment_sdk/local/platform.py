"""What the operations of both services share: stored data, settings, faults, clocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from .datasets import Datasets
from .exchange import Request, ServiceError, path_parameters
from .faults import Faults
from .sql import is_utf8
from .store import Document, Store

_Item = TypeVar("_Item")

SPACE = "space"
PROJECT = "project"
PLAN = "plan"
RUN = "run"
PIPELINE = "pipeline"
EVALUATION = "evaluation"
LOGSTORE = "logstore"
DASHBOARD = "dashboard"


@dataclass(frozen=True)
class Settings:
    """Names and keys of one LocalAgentLoop."""

    agent_space: str
    project: str
    region_id: str
    access_key_id: str
    access_key_secret: str


class Platform:
    """The state behind one LocalAgentLoop; used on the server's thread only.

    Args:
        settings: Names and keys.
        store: Documents and logs.
        datasets: Dataset tables.
        faults: Injected faults.
        now: The wall clock in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        datasets: Datasets,
        faults: Faults,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.store = store
        self.datasets = datasets
        self.faults = faults
        self.now = now

    def now_ms(self) -> int:
        """The wall clock in milliseconds."""
        return int(self.now() * 1000)

    def now_iso(self) -> str:
        """The wall clock as ``yyyy-MM-ddTHH:mm:ssZ``."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now()))

    def space(self, name: str) -> Document:
        """An agent space.

        Raises:
            ServiceError: 404 AgentSpaceNotExist.
        """
        return self.require(SPACE, "", name, "AgentSpaceNotExist", "agent space")

    def require(self, kind: str, scope: str, name: str, code: str, title: str) -> Document:
        """A document that must exist.

        Raises:
            ServiceError: 404 with ``code``.
        """
        found = self.store.get(kind, scope, name)
        if found is None:
            raise ServiceError(404, code, "The {} {!r} does not exist.".format(title, name))
        return found

    def has_project(self, name: str) -> bool:
        """Whether an agent space uses the SLS project."""
        return self.store.exists(PROJECT, "", name)


@dataclass
class Call:
    """One OpenAPI request taken apart."""

    request: Request
    path: Mapping[str, str]
    body: Dict[str, Any]

    @property
    def space(self) -> str:
        """The agent space in the path."""
        return self.path["agentSpace"]

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.request.query.get(name, default)

    def number(self, name: str, default: int) -> int:
        """A whole number of the query, 0 or more."""
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()):
            raise invalid("{} must be a whole number, not {!r}".format(name, text))
        return int(text)

    def required(self, name: str) -> str:
        """A text of the body that must be there."""
        return required_text(self.body, name)

    def optional(self, names: Mapping[str, Any]) -> Dict[str, Any]:
        """The fields of the body that are there and not null, checked against their types."""
        found: Dict[str, Any] = {}
        for name, kind in names.items():
            value = self.body.get(name)
            if value is None:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                raise invalid("{} has the wrong type".format(name))
            found[name] = value
        return found


Handler = Callable[[Platform, Call], Dict[str, Any]]


@dataclass(frozen=True)
class Operation:
    """One operation of the OpenAPI: its action, where it lives, and what carries it out."""

    action: str
    method: str
    path: str
    handler: Handler

    def match(self, method: str, segments: List[str]) -> Optional[Dict[str, str]]:
        """The path's parameters, or None if the request goes elsewhere."""
        return path_parameters(self.path, segments) if method == self.method else None


def required_text(body: Mapping[str, Any], name: str) -> str:
    """A text of a body that must be there.

    Raises:
        ServiceError: It is not there, empty, or no text.
    """
    value = body.get(name)
    if not isinstance(value, str) or not value or not is_utf8(value):
        raise invalid("{} is required and must be text".format(name))
    return value


def invalid(message: str) -> ServiceError:
    """The refusal of a malformed argument."""
    return ServiceError(400, "ParameterInvalid", message)


def page_of(items: Sequence[_Item], offset: int, size: int) -> List[_Item]:
    """The items of one page."""
    return list(items[offset : offset + size])


def token_page(call: Call, items: List[Document], size: int = 20) -> Tuple[List[Document], str]:
    """One page in the nextToken style: the items and the token of the next page, "" on the last."""
    size = min(call.number("maxResults", size), 100) or size
    offset = call.number("nextToken", 0)
    rest = offset + size
    return page_of(items, offset, size), str(rest) if rest < len(items) else ""
