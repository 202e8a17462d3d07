"""The table of `compile --all-boards`: where a model fits.

Invariant: a figure is the board file's or an estimate that says so; what is not known is a dash.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..process.incidents import FAULT
from ..process.setup import terminal
from ..report.text.memory_txt import plain_table
from .boards import BoardRow

HEADINGS = ("board", "fits", "NPU", "SRAM, KiB", "flash, KiB", "NPU ms", "host")
NOTE = (
    "Needed / there, of the memories that hold pools (SRAM, with DRAM where the mode has it) and of those that hold "
    "constants (flash). A row is what compile --board BOARD makes, with the flag that the column fits names instead of "
    "yes (bytes: --objective bytes, Size: --optimise Size). Milliseconds are estimated from the board file's figures; "
    "the host's roughly (?: its clock is not known), and not in the NPU's. The user's own program is not in the bytes. "
    "Of the boards, Corstone-300 alone was run by us, on emulators."
)


def fit_cells(row: BoardRow) -> tuple[str, ...]:
    """The cells of a row under `HEADINGS`."""
    npu = row.options.accelerator.removeprefix("ethos-")
    if row.fit is None:
        return (row.board, "no", npu, "-", "-", "-", "-")
    kept = (row.fit.of(read_only) for read_only in (False, True))
    sizes = (f"{_kib(used)}/{there >> 10}" if there else "-" for used, there in kept)
    time = "-" if row.milliseconds is None else f"{row.milliseconds:.3f}"
    host = f"~{row.host_milliseconds:.2f}" if row.host_milliseconds else "?" if row.host_operations else "-"
    fits = "no" if not row.fits else row.changed.rpartition(" ")[2] or "yes"
    return (row.board, fits, npu, *sizes, time, host)


def _kib(size: int) -> str:
    """KiB, rounded up; with a decimal where few."""
    return f"{size / 1024:.1f}" if size < 100 << 10 else str(-(-size >> 10))


def print_fits(rows: Sequence[BoardRow]) -> None:
    console = terminal()
    table = plain_table(HEADINGS[:3], HEADINGS[3:])
    for row in rows:
        table.add_row(*fit_cells(row))
    console.print(table)
    console.print()
    for row in rows:
        if row.verdict != "fits":
            console.print(f"{row.board}: {row.verdict}")
        for text in row.faults if row.fit is not None else ():
            console.print(f"{row.board}: {FAULT}{text}")
    console.print(NOTE)
