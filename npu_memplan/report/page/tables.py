"""Pages of plots and tables alone: those of `explore`, `report --against`, `sweep` and `evidence`.

Invariant: every cell and mark is a value of the caller's; a table can be searched and sorted, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from .build import Page

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
    ).html()


def _is_numeric(table: PageTable, column: int) -> bool:
    cells = [row[column] for row in table.rows if row[column] is not None]
    return bool(cells) and all(isinstance(cell, (int, float)) for cell in cells)
