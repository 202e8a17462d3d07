"""front.html: the front of a model as a plot and a table, in one page that fetches nothing.

Invariant: every mark is a point of the front, at its bytes and cycles; hovering says what the table says.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .html import made_by, plain_page

if TYPE_CHECKING:
    from ...tuning.pareto import ParetoFront, ParetoPoint

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 420, 80, 44, 14
_STYLE = (
    ".front text{font:12px sans-serif;fill:currentColor}.front .axis{stroke:currentColor;stroke-opacity:.35}"
    ".front .line{fill:none;stroke:#2f7ed8;stroke-width:1.5}.front .point{fill:#2f7ed8}.front .vela{fill:#d8652f}"
)


def front_page(front: ParetoFront) -> str:
    return plain_page(
        escape(f"{front.model}: memory and time"),
        escape(f"pool {front.pool}; blue: this package's points, orange: Vela's own placement"),
        f"<section>{_plot(front)}</section><section>{_table(front)}</section>",
        f"{made_by()} Cycles are estimates, of Vela's streams as well; a point fits every memory that is not smaller "
        "than its bytes.",
        style=_STYLE,
    )


def _plot(front: ParetoFront) -> str:
    every = (*front.points, *front.vela)
    most_bytes, most_cycles = max(p.bytes for p in every) * 1.05, max(p.cycles for p in every) * 1.05

    def x(size: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 10) * size / most_bytes, 1)

    def y(cycles: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * cycles / most_cycles, 1)

    parts = []
    for k in range(6):
        size, cycles = most_bytes * k / 5, most_cycles * k / 5
        parts.append(f'<line class="axis" x1="{x(size)}" x2="{x(size)}" y1="{y(0)}" y2="{y(0) + 5}"/>')
        parts.append(f'<text x="{x(size)}" y="{y(0) + 18}" text-anchor="middle">{size / 1024:,.0f} KiB</text>')
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(cycles)}" y2="{y(cycles)}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(cycles) + 4}" text-anchor="end">{cycles:,.0f}</text>')
    line = " ".join(f"{x(p.bytes)},{y(p.cycles)}" for p in front.points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    for kind, points in (("point", front.points), ("vela", front.vela)):
        for p in points:
            said = escape(f"{p.bytes:,} bytes, {p.cycles:,} cycles: {p.backend} {p.flags}")
            at = f'cx="{x(p.bytes)}" cy="{y(p.cycles)}"'
            parts.append(f'<circle class="{kind}" {at} r="5"><title>{said}</title></circle>')
    text = "".join(parts)
    return f'<svg class="front" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="cycles over bytes">{text}</svg>'


def _table(front: ParetoFront) -> str:
    heads = "".join(f"<th>{h}</th>" for h in ("bytes", "KiB", "cycles", "ms", "over its bound", "made by", "flags"))
    rows = "".join(_row(point) for point in (*front.points, *front.vela))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _row(point: ParetoPoint) -> str:
    gap = f"{100 * (point.cycles / point.bound_cycles - 1):.0f} %" if point.bound_cycles else ""
    cells = (f"{point.bytes:,}", f"{point.bytes / 1024:.2f}", f"{point.cycles:,}", _between(point), gap)
    numbers = "".join(f'<td class="num">{cell}</td>' for cell in cells)
    return f"<tr>{numbers}<td>{escape(point.backend)}</td><td><code>{escape(point.flags)}</code></td></tr>"


def _between(point: ParetoPoint) -> str:
    """`0.093 to 0.104`."""
    ends = f"{point.milliseconds:.3f}", f"{point.most_milliseconds:.3f}"
    return " to ".join(dict.fromkeys(ends))
