"""front.html: the front of a model as a plot and a table.

Invariant: every mark is a point of the front, at its bytes and cycles, with the number or the name that the table has
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .tables import PageTable, Plot, tables_page

if TYPE_CHECKING:
    from ...tuning.pareto import ParetoFront, ParetoPoint

_COLUMNS = ("point", "bytes", "KiB", "cycles", "ms", "ms, slowest model", "over the port, %", "made by", "flags")


def front_page(front: ParetoFront) -> str:
    """The text of front.html."""
    named = list(_named_points(front))
    marks = [
        (p.bytes, p.cycles, kind, name, f"{name}: {p.bytes:,} bytes, {p.cycles:,} cycles: {p.backend} {p.flags}")
        for kind, name, p in named
    ]
    rows = [
        (name, p.bytes, p.bytes / 1024, p.cycles, p.milliseconds, p.most_milliseconds,
         100 * (p.cycles / p.bound_cycles - 1) if p.bound_cycles else None, p.backend, p.flags)
        for _, name, p in named
    ]  # fmt: skip
    line = [(p.bytes, p.cycles) for p in front.points]
    return tables_page(
        f"{front.model}: memory and time",
        f"{front.pool}: {_ends_of(front)}, estimated",
        [Plot("The front", f"bytes of {front.pool}", "estimated NPU cycles", marks, line)],
        [PageTable("Points", _COLUMNS, rows)],
        "Cycles are estimates, of Vela's streams as well; a point fits every memory of at least its bytes.",
    )


def _ends_of(front: ParetoFront) -> str:
    """`from 14,000 bytes in 0.120 to 0.150 ms to 24,000 bytes in 0.088 to 0.110 ms`."""
    small, fast = front.points[0], front.points[-1]
    return f"from {small.bytes:,} bytes in {_between(small)} ms to {fast.bytes:,} bytes in {_between(fast)} ms"


def _named_points(front: ParetoFront) -> Iterator[tuple[str, str, ParetoPoint]]:
    """(class, name, point): the points by number, then the default compile and Vela's."""
    yield from (("point", str(number), p) for number, p in enumerate(front.points, 1))
    if front.default is not None:
        yield "default", "default", front.default
    yield from (("vela", p.backend, p) for p in front.vela)


def _between(point: ParetoPoint) -> str:
    """`0.093 to 0.104`."""
    ends = f"{point.milliseconds:.3f}", f"{point.most_milliseconds:.3f}"
    return " to ".join(dict.fromkeys(ends))
