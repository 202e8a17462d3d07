"""Tables as CSV text.

Invariant: the text reads back as the same cells; with `for_spreadsheets` no text cell is one that a spreadsheet would
run as a formula (names come from model files, and those from anywhere).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from ..names import printable_text

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a cell more than text; OWASP, "CSV Injection"

_QUOTED = "\r\n"  # csv.writer quotes the cells in which it finds a character of its line's end


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]], for_spreadsheets: bool = False) -> str:
    """The text of a table; `for_spreadsheets` puts an apostrophe before text that begins like a formula."""
    writer = csv.writer(_Echo(), lineterminator=_QUOTED)
    lines = (writer.writerow([_harmless_cell(c) for c in row] if for_spreadsheets else row) for row in (header, *rows))
    return "".join(line.removesuffix(_QUOTED) + "\n" for line in lines)


class _Echo:
    """A file for `csv.writer`, whose `writerow` then returns the line."""

    def write(self, text: str) -> str:
        return text


def _harmless_cell(cell: object) -> object:
    """A cell that a spreadsheet does not run and a terminal does not obey."""
    if not isinstance(cell, str):
        return cell
    return printable_text(f"'{cell}" if cell.startswith(_FORMULA) else cell, "\t\r\n")
