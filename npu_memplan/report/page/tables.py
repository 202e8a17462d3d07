"""Pages of plots and tables (`explore`, `report --against`, `sweep`, `evidence`), and the frame that all pages have.

Invariant: a page is one file that fetches nothing (its Content-Security-Policy forbids it); texts that come from a
model or a file are escaped by the caller, data here. Every cell and mark is a value of the caller's, and a table can be
searched and sorted; every mark of front.html is a point of the front, at its bytes and cycles, with the number or the
name that the table has for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...tuning.pareto import ParetoFront, ParetoPoint


@dataclass(frozen=True, slots=True)
class Page:
    """The parts that differ from page to page. All but `title` is HTML."""

    title: str  # of the window, plain text
    heading: str
    subtitle: str
    body: str
    footer: str  # after what made it
    sections: tuple[tuple[str, str], ...] = ()  # (id, label) of what the head links to
    styles: tuple[str, ...] = ()  # assets in addition to style.css
    scripts: tuple[str, ...] = ()  # assets that read `data`
    data: Mapping[str, Any] = field(default_factory=dict)

    def html_text(self) -> str:
        """The text of the page."""
        links = "".join(f'<a href="#{name}" id="to-{name}">{label}</a>' for name, label in self.sections)
        parts = {
            "@TITLE@": escape(self.title),
            "@STYLE@": "\n".join(map(asset_text, ("style.css", *self.styles))),
            "@HEADING@": self.heading,
            "@SUBTITLE@": self.subtitle,
            "@NAVIGATION@": links,
            "@BODY@": self.body,
            "@FOOTER@": f"Made by npu-memplan {metadata.version('npu_memplan')}. {self.footer}",
            "@DATA@": data_text(self.data),
            "@SCRIPT@": "\n".join(map(asset_text, ("theme.js", *self.scripts))),
        }
        return re.sub("|".join(parts), lambda found: parts[found[0]], asset_text("page.html"))


def data_text(data: Mapping[str, Any]) -> str:
    """The data of a page; "<" is escaped so that no name in the model or of a file can close the script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def asset_text(name: str) -> str:
    """The text of a file that the pages are made of."""
    return resources.files(__package__).joinpath("assets").joinpath(name).read_text(encoding="utf-8")


Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table with a heading. Columns of numbers stand right; None is an empty cell."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Marks at (x, y) with a class ("point", "default", "vela"), a name beside it or "", and a text for the pointer."""

    heading: str
    x: str  # the title of the axis, with its unit
    y: str
    marks: Sequence[tuple[float, float, str, str, str]]
    line: Sequence[tuple[float, float]] = field(default_factory=tuple)  # through these places


def tables_page(
    title: str, subtitle: str, plots: Sequence[Plot], tables: Sequence[PageTable], footer: str, cards: str = ""
) -> str:
    """The text of a page; all but `cards`, which is HTML, is plain text."""
    sections = [cards] if cards else []
    for number, plot in enumerate(plots):
        sections.append(
            f'<section class="panel"><h2>{escape(plot.heading)}</h2><div id="plot{number}"></div></section>'
        )
    for number, table in enumerate(tables):
        heading = escape(table.heading)
        note = f'<p class="quiet">{escape(table.note)}</p>' if table.note else ""
        sections.append(
            f'<section class="panel" id="section{number}"><div class="bar"><h2>{heading}</h2><label class="find">'
            f'<span class="sr">Filter: {heading}</span><input id="find{number}" type="search" placeholder="Filter">'
            f'</label><span class="quiet" id="count{number}"></span></div>{note}'
            f'<div id="table{number}" class="table" tabindex="0" role="region" aria-label="{heading}"></div></section>'
        )
    numeric = [[_is_numeric(table, i) for i in range(len(table.columns))] for table in tables]
    return Page(
        title=title,
        heading=escape(title),
        subtitle=escape(subtitle),
        body="".join(sections),
        footer=escape(footer),
        scripts=("base.js", "chart.js", "datatable.js", "kit.js"),
        data={
            "plots": [{"x": p.x, "y": p.y, "marks": p.marks, "line": p.line} for p in plots],
            "tables": [
                {"columns": t.columns, "numeric": kinds, "rows": t.rows}
                for t, kinds in zip(tables, numeric, strict=True)
            ],
        },
    ).html_text()


def _is_numeric(table: PageTable, column: int) -> bool:
    cells = [row[column] for row in table.rows if row[column] is not None]
    return bool(cells) and all(isinstance(cell, (int, float)) for cell in cells)


_TIMES = ("ms", "ms, least", "ms, most", "times its constants' reads")
_COLUMNS = ("point", "bytes", "KiB", "cycles", *_TIMES, "made by", "flags")


def front_page(front: ParetoFront) -> str:
    """The text of front.html."""
    named = list(_named_points(front))
    marks = [
        (p.bytes, p.cycles, kind, name, f"{name}: {p.bytes:,} bytes, {p.cycles:,} cycles: {p.backend} {p.flags}")
        for kind, name, p in named
    ]
    rows = [
        (name, p.bytes, p.bytes / 1024, p.cycles, p.milliseconds, p.least_milliseconds, p.most_milliseconds,
         None if p.over_port is None else 1 + p.over_port, p.backend, p.flags)
        for _, name, p in named
    ]  # fmt: skip
    line = [(p.bytes, p.cycles) for p in front.points]
    return tables_page(
        f"{front.model}: memory and time",
        f"{front.pool}: {_ends_of(front)}, estimated",
        [Plot("The front", f"bytes of {front.pool}", "estimated cycles", marks, line)],
        [PageTable("Points", _COLUMNS, rows)],
        "Cycles are estimates, of Vela's streams as well; a point fits every memory of at least its bytes.",
    )


def _ends_of(front: ParetoFront) -> str:
    """The ends of a front as text: `from 14,000 bytes in 0.120 to 0.150 ms to 24,000 bytes in 0.088 to 0.110 ms`."""
    small, fast = front.points[0], front.points[-1]
    return f"from {small.bytes:,} bytes in {small.time_text} to {fast.bytes:,} bytes in {fast.time_text}"


def _named_points(front: ParetoFront) -> Iterator[tuple[str, str, ParetoPoint]]:
    """(class, name, point): the points by number, then the default compile and Vela's."""
    yield from (("point", str(number), p) for number, p in enumerate(front.points, 1))
    if front.default is not None:
        yield "default", "default", front.default
    yield from (("vela", p.backend, p) for p in front.vela)
