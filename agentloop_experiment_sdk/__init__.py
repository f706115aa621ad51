"""Run your agent over a dataset offline, and trust what comes back."""

from ._version import __version__

__all__ = ["__version__"]
