"""front.html: the front of a model as a plot and a table, in one page that fetches nothing.

Invariant: every mark is a point of the front, at its bytes and cycles, with the number or the name that the table has
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from ...sizes import difference, kib
from .build import Page

if TYPE_CHECKING:
    from ...tuning.pareto import ParetoFront, ParetoPoint


def front_page(front: ParetoFront) -> str:
    return Page(
        title=f"{front.model}: memory and time",
        heading=escape(f"{front.model}: memory and time"),
        subtitle=_message(front),
        body=f'<section class="cards" aria-label="Summary">{_cards(front)}</section>'
        f'<section class="panel" id="front"></section>'
        f'<section class="panel"><div class="plain">{_table(front)}</div></section>',
        footer="Cycles are estimates, of Vela's streams as well; a point fits every memory that is not smaller than "
        "its bytes.",
        scripts=("base.js", "chart.js", "front.js"),
        data={"pool": front.pool, "points": [_mark(kind, name, point) for kind, name, point in _named(front)]},
    ).html()


def _cards(front: ParetoFront) -> str:
    """The ends of the front and the default compile, each compared with Vela's Performance in bytes and time."""
    ends = {"least memory": front.points[0], "fastest": front.points[-1], "default compile": front.default}
    if len(front.points) == 1:
        ends = {"least memory and fastest": front.points[0], "default compile": front.default}
    return "".join(_card(label, point, front.vela[:1]) for label, point in ends.items() if point is not None)


def _card(label: str, point: ParetoPoint, vela: Sequence[ParetoPoint]) -> str:
    notes = "".join(
        f'<div class="quiet">{difference(point.bytes, theirs.bytes)} bytes, '
        f"{difference(point.cycles, theirs.cycles)} time<br>beside {escape(theirs.backend)}</div>"
        for theirs in vela
    )
    value = f"{kib(point.bytes)} <small>{_between(point)} ms</small>"
    return f'<div class="card"><div class="label">{label}</div><div class="value">{value}</div>{notes}</div>'


def _message(front: ParetoFront) -> str:
    """The ends of the front, and what the colours are."""
    small, fast = front.points[0], front.points[-1]
    colours = [("ours", "points")]
    colours += [("default", "default compile")] if front.default is not None else []
    colours += [("vela", "Vela's own placement")] if front.vela else []
    keys = " ".join(f'<i class="key" style="background:var(--{name})"></i>{escape(what)}' for name, what in colours)
    return (
        f"{escape(front.pool)}: from {small.bytes:,} bytes in {_between(small)} ms to {fast.bytes:,} bytes in "
        f"{_between(fast)} ms, estimated. {keys}"
    )


def _named(front: ParetoFront) -> Iterator[tuple[str, str, ParetoPoint]]:
    """(class, name, point): the points by number, then the default compile and Vela's."""
    yield from (("point", str(number), p) for number, p in enumerate(front.points, 1))
    if front.default is not None:
        yield "default", "default", front.default
    yield from (("vela", p.backend, p) for p in front.vela)


def _mark(kind: str, name: str, point: ParetoPoint) -> dict[str, str | int]:
    title = f"{name}: {point.bytes:,} bytes, {point.cycles:,} cycles: {point.backend} {point.flags}"
    return {"class": kind, "name": name, "bytes": point.bytes, "cycles": point.cycles, "title": title}


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
