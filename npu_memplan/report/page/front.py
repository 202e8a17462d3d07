"""front.html: the front of a model as a plot and a table, in one page that fetches nothing.

Invariant: every mark is a point of the front, at its bytes and cycles, with the number or the name that the table has
for it. An axis is logarithmic where its values are far apart, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from .build import Page

if TYPE_CHECKING:
    from ...tuning.pareto import ParetoFront, ParetoPoint

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 420, 380, 64, 14, 50, 22
_FAR = 8  # times the least: from there on an axis is logarithmic


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    @classmethod
    def of(cls, values: list[int], start: float, end: float) -> _Axis:
        """An axis that has room around `values`, which are positive."""
        if max(values) > _FAR * min(values):
            return cls(min(values) / 1.3, max(values) * 1.3, start, end, True)
        return cls(0, max(values) * 1.08, start, end, False)

    def at(self, value: float) -> float:
        """The pixel of `value`."""
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + (self.end - self.start) * share, 1)

    def ticks(self) -> list[float]:
        """Round values: 1, 2 and 5 times powers of ten where it is logarithmic, else about five steps."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [v for p in powers for k in (1, 2, 5) if self.low <= (v := k * 10.0**p) <= self.high]
        step = 10.0 ** math.floor(math.log10(self.high / 5))
        step *= next(k for k in (1, 2, 5, 10) if self.high / (k * step) <= 6)
        return [k * step for k in range(int(self.high / step) + 1)]

    @property
    def scale(self) -> str:
        return ", logarithmic" if self.is_log else ""


def front_page(front: ParetoFront) -> str:
    return Page(
        title=f"{front.model}: memory and time",
        heading=escape(f"{front.model}: memory and time"),
        subtitle=escape(
            f"pool {front.pool}; blue: this package's points, green: the default compile, orange: Vela's own placement"
        ),
        body=f'<section class="panel">{_plot(front)}</section><section class="panel rows">{_table(front)}</section>',
        footer="Cycles are estimates, of Vela's streams as well; a point fits every memory that is not smaller than "
        "its bytes.",
        styles=("front.css",),
    ).html()


def _named(front: ParetoFront) -> Iterator[tuple[str, str, ParetoPoint]]:
    """(class, name, point): the points by number, then the default compile and Vela's."""
    yield from (("point", str(number), p) for number, p in enumerate(front.points, 1))
    if front.default is not None:
        yield "default", "default", front.default
    yield from (("vela", p.backend, p) for p in front.vela)


def _plot(front: ParetoFront) -> str:
    named = list(_named(front))
    across = _Axis.of([p.bytes for _, _, p in named], _LEFT, _WIDTH - _RIGHT)
    up = _Axis.of([p.cycles for _, _, p in named], _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for size in across.ticks():
        x = across.at(size)
        parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{_short(size)}</text>')
    for cycles in up.ticks():
        y = up.at(cycles)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{_short(cycles)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">bytes of {escape(front.pool)}{across.scale}</text>'
    )
    parts.append(f'<text x="4" y="12">estimated NPU cycles{up.scale}</text>')
    line = " ".join(f"{across.at(p.bytes)},{up.at(p.cycles)}" for p in front.points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    boxes = [(across.at(p.bytes) - 4, up.at(p.cycles) - 4, 8.0, 8.0) for _, _, p in named]
    for kind, name, p in named:
        x, y = across.at(p.bytes), up.at(p.cycles)
        said = escape(f"{name}: {p.bytes:,} bytes, {p.cycles:,} cycles: {p.backend} {p.flags}")
        parts.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="4"><title>{said}</title></circle>')
        left, top = _free(x, y, 6.2 * len(name), boxes)
        parts.append(f'<text x="{left:.1f}" y="{top + 10:.1f}" text-anchor="start">{escape(name)}</text>')
    text = "".join(parts)
    return f'<svg class="front" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="cycles over bytes">{text}</svg>'


_Box = tuple[float, float, float, float]  # left, top, width, height


def _free(x: float, y: float, width: float, boxes: list[_Box]) -> tuple[float, float]:
    """Left and top of a name `width` wide beside the mark at `x`, `y` and over no other; its box is added."""
    places = [(left, top) for top in (y - 17, y + 5, y - 6, y - 29, y + 17) for left in (x + 6, x - 6 - width)]
    inside = [(left, top) for left, top in places if left >= _LEFT and left + width <= _WIDTH and top >= 0]
    free = [
        (left, top)
        for left, top in inside
        if not any(left < a + w and a < left + width and top < t + h and t < top + 12 for a, t, w, h in boxes)
    ]
    left, top = (free or inside or places)[0]
    boxes.append((left, top, width, 12.0))
    return left, top


def _short(value: float) -> str:
    """`20 k`, `1.5 M`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"


def _table(front: ParetoFront) -> str:
    names = ("point", "bytes", "KiB", "cycles", "ms", "over its bound", "made by", "flags")
    heads = "".join(f"<th>{h}</th>" for h in names)
    rows = "".join(_row(name, point) for _, name, point in _named(front))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _row(name: str, point: ParetoPoint) -> str:
    gap = f"{100 * (point.cycles / point.bound_cycles - 1):.0f} %" if point.bound_cycles else ""
    cells = (f"{point.bytes:,}", f"{point.bytes / 1024:.2f}", f"{point.cycles:,}", _between(point), gap)
    numbers = "".join(f'<td class="num">{cell}</td>' for cell in cells)
    made = f"<td>{escape(point.backend)}</td><td><code>{escape(point.flags)}</code></td>"
    return f"<tr><td>{escape(name)}</td>{numbers}{made}</tr>"


def _between(point: ParetoPoint) -> str:
    """`0.093 to 0.104`."""
    ends = f"{point.milliseconds:.3f}", f"{point.most_milliseconds:.3f}"
    return " to ".join(dict.fromkeys(ends))
