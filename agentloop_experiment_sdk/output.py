"""What a solution answered; apart from ``models``, because every script imports it."""

from __future__ import annotations

from collections import abc
from typing import Any, Dict, Mapping, Optional, Protocol, Sequence, overload

from .errors import ConfigurationError


class _Build(Protocol):
    def __call__(self, output: Any, meta: Optional[Mapping[str, Any]] = None) -> SolutionOutput: ...


class _Success:
    """``SolutionOutput.success(...)`` builds an output; ``output.success`` reads its bool."""

    @overload
    def __get__(self, instance: None, owner: Any) -> _Build: ...

    @overload
    def __get__(self, instance: SolutionOutput, owner: Any) -> bool: ...

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return owner._succeeded
        return instance._success

    def __set__(self, instance: Any, value: bool) -> None:
        instance._success = bool(value)


class SolutionOutput:
    """What a solution answered for one task.

    Args:
        success: False marks the row as failed.
        output: The answer: any value; it is stored as strict JSON.
        trajectory: The steps the agent took, if it reports them; None is stored as ``[]``.
        meta: Facts about the call. ``experiment_input`` and ``traceId`` are read by the SDK.

    Raises:
        ConfigurationError: ``meta`` is no mapping.
    """

    __slots__ = ("_success", "output", "trajectory", "meta")

    success: _Success = _Success()

    def __init__(
        self,
        success: bool,
        output: Any = "",
        trajectory: Optional[Sequence[Any]] = None,
        meta: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self.success = success
        self.output = output
        self.trajectory: Sequence[Any] = [] if trajectory is None else trajectory
        self.meta: Dict[str, Any] = {} if meta is None else _facts(meta)

    @classmethod
    def _succeeded(cls, output: Any, meta: Optional[Mapping[str, Any]] = None) -> SolutionOutput:
        """A successful output."""
        return cls(True, output, meta=meta)

    @classmethod
    def failure(
        cls,
        error_type: Any,
        error_message: Any,
        meta: Optional[Mapping[str, Any]] = None,
        output: Any = "",
    ) -> SolutionOutput:
        """A failed output; type and message go into ``meta`` as ``error_type``, ``error_message``.

        An empty ``error_type`` becomes ``UnknownError``.
        """
        facts = {} if meta is None else _facts(meta)
        facts["error_type"] = str(error_type) or "UnknownError"
        facts["error_message"] = str(error_message)
        return cls(False, output, meta=facts)

    def to_dict(self) -> Dict[str, Any]:
        """The four keys of ``solution.json``: success, output, trajectory, meta."""
        return {
            "success": self.success,
            "output": self.output,
            "trajectory": self.trajectory,
            "meta": self.meta,
        }

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> SolutionOutput:
        """The output that ``mapping``, of ``to_dict``, holds; a missing key takes its default."""
        return cls(
            bool(mapping.get("success")),
            mapping.get("output", ""),
            mapping.get("trajectory"),
            mapping.get("meta") or None,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SolutionOutput) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "SolutionOutput(success={!r}, output={!r}, trajectory={!r}, meta={!r})".format(
            self.success, self.output, self.trajectory, self.meta
        )


def _facts(meta: Any) -> Dict[str, Any]:
    """A copy of ``meta``."""
    if isinstance(meta, abc.Mapping) or hasattr(meta, "keys"):  # an HTTP message, a row of a table
        return dict(meta)
    raise ConfigurationError(
        "The meta of a SolutionOutput must be a mapping of names to values, not {!r}.".format(
            type(meta).__name__
        )
    )
