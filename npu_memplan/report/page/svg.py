"""The memory map as an SVG for papers: address over time, one panel a pool.

Invariant: one `<rect class="b">` per lifetime of each buffer, at exact plan coordinates
scaled by the two factors in the root's data attributes; no script, no outside reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from ...problem import BufferKind, Plan, Problem
from ...sizes import kib
from ..colours import KIND_COLOURS, KIND_LABELS, ink_on
from ..facts.memory import MemoryView, PoolView, memory_view, shared_areas

WIDTH, PANEL, CURVE = 960.0, 320.0, 90.0  # drawing area of one pool, in SVG units
LEFT, RIGHT, GAP = 84.0, 24.0, 58.0
_FAR = 1.6  # of the bytes in use: the highest capacity that is drawn
STYLE = """
text{font-family:Inter,"Segoe UI",Helvetica,Arial,sans-serif;font-size:12px;fill:#333a44}
.t{font-size:15px;font-weight:600}.n{font-size:10px;text-anchor:middle;dominant-baseline:central}
.g{stroke:#d8dde3;stroke-width:1}.b{stroke:#fff;stroke-width:.6}.r{text-anchor:end}.m{text-anchor:middle}
.c{fill:#3d7dca22;stroke:#3d7dca;stroke-width:1.5}.lb{stroke:#2f9e6e;stroke-dasharray:5 3}
.sh{fill:url(#hatch)}.hl{stroke:#fff;stroke-opacity:.65;stroke-width:1.4}
.cap{stroke:#d1495b;stroke-dasharray:2 3}.pk{stroke:#333a44;stroke-dasharray:3 3;stroke-width:1}
"""

# Where buffers lie on one another on purpose; a page with several maps has it once.
HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="hl" d="M-1,7 L7,-1 M-1,1 L1,-1 M5,7 L7,5"/></pattern></defs>'
)


def svg_map(problem: Problem, plan: Plan, title: str = "") -> str:
    """The text of a stand-alone SVG file."""
    view = memory_view(problem, plan)
    top = 34.0
    panels, bottom = _panels(problem, view, top, {})
    parts = [
        _root(view, bottom + 44, 'xmlns="http://www.w3.org/2000/svg"'),
        f"<style>{STYLE}</style>",
        HATCH,
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="t" x="{LEFT:g}" y="24">{escape(title or problem.name)}</text>',
        *panels,
        *_legend([k for k in BufferKind if k in {b.kind for b in problem.buffers}], bottom + 6),
        "</svg>\n",
    ]
    return "\n".join(parts)


def svg_inline(problem: Problem, plan: Plan, scale_bytes: Mapping[str, int]) -> str:
    """The map for a page that brings its own style, with room for larger letters; pool `p` is drawn as if it were
    `scale_bytes[p]` high, so that two maps side by side can have one scale."""
    view = memory_view(problem, plan)
    panels, bottom = _panels(problem, view, 8, scale_bytes)
    return "\n".join([_root(view, bottom, 'class="plan" role="img"', margin=44), *panels, "</svg>"])


def _root(view: MemoryView, height: float, attributes: str, margin: float = 0) -> str:
    width = margin + LEFT + WIDTH + RIGHT
    return (
        f'<svg {attributes} viewBox="{0 - margin:g} 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'data-points="{view.end}">'
    )


def _panels(problem: Problem, view: MemoryView, top: float, scale_bytes: Mapping[str, int]) -> tuple[list[str], float]:
    """All pools in use one below the other, and where they end."""
    parts: list[str] = []
    for panel in [p for p in view.pools if p.rectangles] or list(view.pools[:1]):
        parts.extend(_panel(problem, panel, view, top, scale_bytes.get(panel.pool.name, panel.used_bytes)))
        top += PANEL + CURVE + GAP + 26
    return parts, top


def _panel(problem: Problem, panel: PoolView, view: MemoryView, top: float, scale_bytes: int) -> Iterator[str]:
    kinds = {b.name: b.kind for b in problem.buffers}
    used, x_scale = max(scale_bytes, 1), WIDTH / view.end
    y_scale = PANEL / used
    floor = top + 22 + PANEL
    yield f'<g data-pool={quoteattr(panel.pool.name)} data-bytes="{used}" data-floor="{floor:g}">'
    yield (
        f'<text x="{LEFT:g}" y="{top + 14:g}">pool {escape(panel.pool.name)}: {panel.used_bytes:,} bytes '
        f"({kib(panel.used_bytes)}), bound {panel.lower_bound_bytes:,} bytes</text>"
    )
    for size in range(0, used + 1, _round_bytes(used / 5)):
        y = floor - size * y_scale
        yield f'<line class="g" x1="{LEFT:g}" x2="{LEFT + WIDTH:g}" y1="{y:.2f}" y2="{y:.2f}"/>'
        yield f'<text class="r" x="{LEFT - 8:g}" y="{y + 4:.2f}">{_size(size)}</text>'
    names = []
    for r in panel.rectangles:
        x, width = LEFT + r.first * x_scale, (r.last - r.first) * x_scale
        y, tall = floor - r.high * y_scale, (r.high - r.low) * y_scale
        yield (
            f'<rect class="b" x="{x:.3f}" y="{y:.3f}" width="{width:.3f}" height="{tall:.3f}" '
            f'fill="{KIND_COLOURS[kinds[r.buffer]]}"><title>{escape(r.buffer)}: {r.high - r.low:,} bytes at {r.low:,}, '
            f"points {r.first}..{r.last - 1}</title></rect>"
        )
        if width > 6.2 * len(r.buffer) + 8 and tall > 13:  # shown above the hatching
            ink = ink_on(KIND_COLOURS[kinds[r.buffer]])
            middle = f'x="{x + width / 2:.2f}" y="{y + tall / 2:.2f}"'
            names.append(f'<text class="n" {middle} style="fill:{ink}">{escape(r.buffer)}</text>')
    for r in shared_areas(problem, panel):
        yield (
            f'<rect class="sh" x="{LEFT + r.first * x_scale:.3f}" y="{floor - r.high * y_scale:.3f}" '
            f'width="{(r.last - r.first) * x_scale:.3f}" height="{(r.high - r.low) * y_scale:.3f}">'
            f"<title>{escape(r.buffer)}</title></rect>"
        )
    yield from names
    peak, _ = panel.curve.peak
    x = LEFT + (peak + 0.5) * x_scale
    yield f'<line class="pk" x1="{x:.2f}" x2="{x:.2f}" y1="{floor - PANEL:g}" y2="{floor + 14 + CURVE:g}"/>'
    yield from _curve(panel, view, floor + 14, x_scale, used)
    yield "</g>"


def _curve(panel: PoolView, view: MemoryView, top: float, x_scale: float, used: int) -> Iterator[str]:
    # a capacity far above what is used is left out: it would flatten the curve
    capacity = min(panel.pool.size_bytes or 0, round(_FAR * used))
    levels = [used, panel.lower_bound_bytes, capacity, panel.curve.peak[1]]
    y_scale = CURVE / (max(*levels, 1) * 1.05)
    floor = top + CURVE
    points = [f"{LEFT:g},{floor:g}"]
    for start, end, live in panel.curve.steps(view.end):
        y = floor - live * y_scale
        points.append(f"{LEFT + start * x_scale:.2f},{y:.2f} {LEFT + end * x_scale:.2f},{y:.2f}")
    points.append(f"{LEFT + WIDTH:g},{floor:g}")
    yield f'<polygon class="c" points="{" ".join(points)}"/>'
    lines = [("lb", panel.lower_bound_bytes)] + (
        [("cap", capacity)] if capacity and capacity == panel.pool.size_bytes else []
    )
    for name, value in lines:
        y = floor - value * y_scale
        yield f'<line class="{name}" x1="{LEFT:g}" x2="{LEFT + WIDTH:g}" y1="{y:.2f}" y2="{y:.2f}"/>'
    yield f'<text class="r" x="{LEFT - 8:g}" y="{top + 12:g}">live bytes</text>'
    yield f'<text class="r" x="{LEFT - 8:g}" y="{floor + 16:g}">point</text>'
    for tick in range(0, view.end + 1, _step(view.end / 8)):
        yield f'<text class="m" x="{LEFT + tick * x_scale:.2f}" y="{floor + 16:g}">{tick}</text>'


def _round_bytes(least: float) -> int:
    """The smallest power of two that is at least `least`: ticks at it are round in bytes and in KiB."""
    return 1 << max(0, math.ceil(math.log2(max(least, 1))))


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size and size % (unit // 4) == 0 and size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B" if size else "0"


def _step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is at least `least`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _legend(kinds: list[BufferKind], top: float) -> Iterator[str]:
    x = LEFT
    for kind in kinds:
        yield f'<rect x="{x:g}" y="{top:g}" width="12" height="12" rx="2" fill="{KIND_COLOURS[kind]}"/>'
        yield f'<text x="{x + 17:g}" y="{top + 10:g}">{KIND_LABELS[kind]}</text>'
        x += 30 + 6.4 * len(KIND_LABELS[kind])
