"""The command line: parses, calls the API, prints, sets the exit code."""

from __future__ import annotations

from .program import main

__all__ = ["main"]
