"""The parts of a report, and how its numbers read; text, Markdown and HTML only lay them out."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Optional, Protocol, Tuple

from ..lines import one_line
from .measures import PASS_FAIL
from .statistics import Estimate

EXAMPLE = 300
LISTED = 20
NOT_SCORED = "not scored"
# an agent may report whole numbers that no float holds
_LARGEST = 1e308


class Subject(Protocol):
    """What can be reported on: a result, a comparison, a gate's verdict."""

    def sections(self) -> List[Section]:
        """The parts of the report, the headline first."""
        ...

    def to_dict(self) -> Dict[str, Any]:
        """The report as plain JSON values."""
        ...


@dataclass(frozen=True)
class Table:
    """Cells of text under a header.

    Attributes:
        header: The columns' names.
        rows: The cells.
        right: The columns that align right.
        wrap: Whether a long text in the last column takes several lines instead of being cut.
        spare: The columns that a narrow terminal can do without, the first to go first.
    """

    header: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]
    right: FrozenSet[int] = frozenset()
    wrap: bool = False
    spare: Tuple[int, ...] = ()

    def without(self, places: FrozenSet[int]) -> Table:
        """The table without the columns at ``places``."""
        kept = [place for place in range(len(self.header)) if place not in places]
        return Table(
            tuple(self.header[place] for place in kept),
            tuple(tuple(row[place] for place in kept) for row in self.rows),
            frozenset(new for new, place in enumerate(kept) if place in self.right),
            self.wrap,
        )


@dataclass(frozen=True)
class Section:
    """A titled part of a report: lines and a table; ``level`` 1 is the headline."""

    title: str
    lines: Tuple[str, ...] = ()
    table: Optional[Table] = None
    level: int = 2


def share(value: float) -> str:
    """A share as a percentage; never rounded up to 100 or down to 0."""
    percent = 100 * value
    text = "{:.1f}%".format(percent)
    if text == "100.0%" and value < 1:
        return "99.9%"
    if text == "0.0%" and value > 0:
        return "0.1%"
    return text


def milliseconds(value: float, more: int = 0) -> str:
    """A time for people: ms below a second, else seconds; the page's script writes the same.

    ``more`` digits than usual tell values apart that lie close together.
    """
    if value < 10:
        return "{:.{}g} ms".format(value, 2 + more)
    if more:
        in_ms = value < 1000
        return "{:.{}f} {}".format(
            value if in_ms else value / 1000, more if in_ms else 2 + more, "ms" if in_ms else "s"
        )
    # halves go up, as JavaScript rounds
    rounded = math.floor(value + 0.5) if value < 1000 else 1000
    return "{} ms".format(rounded) if rounded < 1000 else "{:.2f} s".format(value / 1000)


def number(value: float) -> str:
    """A number for people: whole ones with separators, others with four digits."""
    if not -_LARGEST <= value <= _LARGEST:
        return "{} 1e308".format("over" if value > 0 else "under \u2212")
    if value == int(value) and abs(value) < 1e15:
        return "{:,}".format(int(value))
    return "{:,.1f}".format(value) if abs(value) >= 1000 else "{:.4g}".format(value)


def measure_text(name: str, kind: str, value: float) -> str:
    """A value of the measure ``name`` with its unit."""
    if kind == PASS_FAIL:
        return share(value)
    return milliseconds(value) if name.endswith("_ms") else number(value)


def measure_name(name: str) -> str:
    """What a person calls a measure."""
    names = {"latency_ms": "latency", "ttft_ms": "first token", "tokens": "tokens/row"}
    return names.get(name, name)


def interval_text(estimate: Estimate, kind: str, name: str = "") -> str:
    """``low to high`` of an estimate."""
    low, high = (measure_text(name, kind, value) for value in (estimate.low, estimate.high))
    return "{} to {}".format(low, high)


def signed(name: str, kind: str, value: float) -> str:
    """A change with its sign and unit; of a pass rate in percentage points."""
    sign = "+" if value > 0 else "\u2212" if value < 0 else "\u00b1"
    size = abs(value)
    if kind == PASS_FAIL:
        return "{}{:.{}f} pp".format(sign, 100 * size, 1 if size >= 0.001 or not size else 2)
    if name.endswith("_ms") or size >= 100:
        return sign + measure_text(name, kind, size)
    return "{}{:.3g}".format(sign, size)


def signed_interval(name: str, kind: str, low: float, high: float) -> str:
    """``low to high`` of a change; a unit that both ends share is written once."""
    texts = [signed(name, kind, value).split(" ") for value in (low, high)]
    if texts[0][1:] == texts[1][1:]:
        del texts[0][1:]
    return " to ".join(map(" ".join, texts))


def markup(text: str) -> str:
    """``text`` as it may stand in HTML, between tags or in quotes, without control characters."""
    return html.escape(one_line(text), quote=True)


def shorten(text: str, limit: int = EXAMPLE) -> str:
    """``text`` on one line of at most ``limit`` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"
