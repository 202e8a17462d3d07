"""memory.txt: the verdict, pools, kinds of bytes, the largest buffers, and the memory map in characters.

Invariant: every size is shown in bytes and in KiB, columns are aligned, and the plain text (memory.txt, a pipe,
NO_COLOR) carries the same characters as the coloured terminal. A line of the map, with time to the right, address
upwards and one letter a kind, is never wider than `width` columns, and only ASCII is used, so it reads the same in a
log file, a serial terminal and a commit message.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ...artifact import Artifact
from ...artifact.board_fit import BoardFit, fit_of
from ...artifact.timing import Timing
from ...ethosu.time import models_text
from ...problem import BufferKind, Problem
from ...process.setup import terminal_console
from ...sizes import count_text, kib_text, milliseconds_text, percent_text
from ..colours import KIND_COLOURS, KIND_LETTERS
from ..facts.dearest import DEAREST_HEADING, dearest_lines
from ..facts.memory import MemoryView, PoolView, kinds_of_bytes, memory_view, placed_at, point_label
from ..facts.npu_work import multiplier_use, operations_text
from .compile_result import result_texts, verdict

FREE = "."
MARGIN = 14  # columns of the address scale


def ascii_map(problem: Problem, view: MemoryView, pool: PoolView, width: int = 80, rows: int = 16) -> list[str]:
    """Lines of the map of one pool: `rows` address rows (highest first), then the time axis."""
    room = width - MARGIN - 1
    end = max(view.end, 1)
    columns = end * (room // end) if room >= end else room  # every point equally wide, where that is possible
    cells = _cell_letters(problem, view, pool, columns, rows)
    lines = []
    for row in range(rows - 1, -1, -1):
        top = pool.used_bytes * (row + 1) / rows
        scale = f"{kib_text(top):>{MARGIN - 2}} |" if (rows - 1 - row) % 4 == 0 else " " * (MARGIN - 2) + " |"
        lines.append(scale + "".join(cells[row]))
    lines.append(f"{'0':>{MARGIN - 2}} +" + "-" * columns)
    peak, _ = pool.curve.peak
    at = min(columns - 1, int((peak + 0.5) * columns / end))
    lines.append(" " * (MARGIN + at) + "^")
    caption = f"peak at point {peak} of {view.end}"
    lines.append(" " * max(MARGIN, min(MARGIN + at, width - len(caption))) + caption)
    return lines


def legend_text(problem: Problem) -> str:
    """`I input  n npu_internal ...` for the kinds that occur."""
    present = {b.kind for b in problem.buffers}
    kinds = [f"{letter} {kind.value.replace('_', ' ')}" for kind, letter in KIND_LETTERS.items() if kind in present]
    return "  ".join([*kinds, f"{FREE} free"])


def _cell_letters(problem: Problem, view: MemoryView, pool: PoolView, columns: int, rows: int) -> list[list[str]]:
    """The letter of the kind that covers most of each cell; `FREE` when less than half is covered."""
    kinds = {b.name: b.kind for b in problem.buffers}
    per_column, per_row = max(view.end, 1) / columns, max(pool.used_bytes, 1) / rows
    area: list[list[dict[BufferKind, float]]] = [[{} for _ in range(columns)] for _ in range(rows)]
    for r in pool.rectangles:
        kind = kinds[r.buffer]
        for row in range(int(r.low / per_row), min(rows, math.ceil(r.high / per_row))):
            tall = min(r.high, (row + 1) * per_row) - max(r.low, row * per_row)
            for column in range(int(r.first / per_column), min(columns, math.ceil(r.last / per_column))):
                wide = min(r.last, (column + 1) * per_column) - max(r.first, column * per_column)
                if wide > 0 and tall > 0:
                    cell = area[row][column]
                    cell[kind] = cell.get(kind, 0.0) + wide * tall
    half = per_column * per_row / 2
    return [
        [KIND_LETTERS[max(cell, key=lambda k: cell[k])] if sum(cell.values()) >= half else FREE for cell in line]
        for line in area
    ]


WIDTH = 80
HOST_SHOWN = 3  # calls of the host, the dearest
LARGEST = 8  # rows of the table of buffers at the peak


def memory_text(artifact: Artifact) -> str:
    """The text of memory.txt, at most 80 columns wide."""
    sink = io.StringIO()
    print_memory(artifact, terminal_console(sink, width=WIDTH, no_color=True, force_terminal=False))
    return "".join(line.rstrip() + "\n" for line in sink.getvalue().splitlines())


def print_memory(artifact: Artifact, console: Console | None = None) -> None:
    """Print the whole table to `console` (default: stdout), after its verdict; `console` decides on colour."""
    console = console or terminal_console()
    view = memory_view(artifact.problem, artifact.plan)
    plan, target = artifact.plan, artifact.target
    fit = fit_of(artifact)
    console.print(Text("\n".join(textwrap.wrap(verdict(artifact), WIDTH)), style="bold"))
    if fit is not None:
        console.print()
        _print_block(console, f"Memories of {fit.board.name}", _fit_table(fit))
        if fit.loading:
            console.print(textwrap.fill(fit.loading, WIDTH), "")
    where = "host only" if target.accelerator == "none" else f"{target.accelerator}, {target.memory_mode}"
    console.print(f"{artifact.source}: {where}; {operations_text(artifact)}", soft_wrap=True)
    share = multiplier_use(artifact)
    if share is not None:
        console.print(
            f"NPU: about {artifact.estimated_cycles:,} cycles for {artifact.npu_macs:,} MACs, "
            f"{percent_text(share, 1)} of its peak"
        )
        if artifact.timing is not None and artifact.estimated_cycles:
            console.print(_time_text(artifact, artifact.timing))
    if artifact.host_layers:
        console.print(textwrap.fill(host_work_text(artifact), WIDTH))
    console.print(_status_text(artifact, view))
    if plan.stopped_early:
        console.print(f"The search was stopped by its budget ({plan.budget}).")
    console.print()
    _print_block(console, "Pools", _pool_table(view))
    _print_block(console, "Kinds of bytes", _kind_table(artifact))
    times = dearest_lines(artifact)
    if times:
        console.print(Text(DEAREST_HEADING, style="bold"))
        console.print(Text("\n".join(times), no_wrap=True, overflow="crop"), soft_wrap=True)
        console.print()
    for pool in view.pools:
        if pool.rectangles:
            point, peak = pool.curve.peak
            what = point_label(artifact.problem, point)
            heading = f"Peak of {pool.pool.name}: {peak:,} bytes ({kib_text(peak)}) live at point {point}: {what}"
            _print_block(console, heading, _peak_table(artifact, pool))
            _print_map(artifact, view, pool, console)
    console.print(legend_text(artifact.problem), soft_wrap=True)
    for line in result_texts(artifact):
        console.print(textwrap.fill(line, WIDTH, subsequent_indent="  "))
    for note in artifact.notes:
        console.print(f"note: {note}")


def print_maps(artifact: Artifact) -> None:
    """Print the map of each pool in use: bytes upwards, operations to the right."""
    console = terminal_console()
    view = memory_view(artifact.problem, artifact.plan)
    for pool in view.pools:
        if pool.rectangles:
            console.print(Text(f"Map of {pool.pool.name}", style="bold"))
            _print_map(artifact, view, pool, console)
    console.print(legend_text(artifact.problem), soft_wrap=True)


def _print_map(artifact: Artifact, view: MemoryView, pool: PoolView, console: Console) -> None:
    for line in ascii_map(artifact.problem, view, pool, min(console.width, WIDTH)):
        console.print(_colour_line(line), soft_wrap=True)
    console.print()


def _time_text(artifact: Artifact, timing: Timing) -> str:
    """Milliseconds of the NPU, what they are spent with and depend on, and Vela's own estimate."""
    clock = f"at {timing.clock_hz / 1e6:,.0f} MHz"
    lines = [f"{milliseconds_text(artifact.npu_milliseconds)} {clock}; {timing.main_causes()}"]
    calls = len(artifact.calls) - artifact.host_operations
    lines.append(f"Not counted: the start and the end of {count_text(calls, 'NPU call')} (driver, interrupt, caches).")
    if timing.by_model:
        lines.append(f"Cycles by model of shared memories: {models_text(timing.by_model)}")
    lines.append(timing.beside_vela())
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines if line)


def host_work_text(artifact: Artifact) -> str:
    """The CPU's cycles, its dearest calls, and the time."""
    cycles, clock = artifact.host_cycles or 0, artifact.host_clock_hz
    calls: dict[str, int] = {}
    for row in artifact.host_layers:
        calls[row.function] = calls.get(row.function, 0) + row.cycles
    dearest = sorted(calls.items(), key=lambda call: -call[1])[:HOST_SHOWN]
    shares = ", ".join(f"{percent_text(own, cycles)} {function}" for function, own in dearest)
    text = f"CPU: about {cycles:,} cycles ({shares})"
    if not clock:
        return text
    whole = milliseconds_text(artifact.total_milliseconds)
    return f"{text}; {1000 * cycles / clock:.3f} ms at {clock / 1e6:,.0f} MHz; with the NPU {whole}"


def _fit_table(fit: BoardFit) -> Table:
    table = plain_table(("memory", "holds"), ("bytes", "of", "headroom"))
    for use in fit.uses:
        share = percent_text(use.headroom_bytes, use.memory.size_bytes)
        table.add_row(use.memory.name, ", ".join(use.holds), f"{use.used_bytes:,}", f"{use.memory.size_bytes:,}", share)
    return table


_BETWEEN_COLUMNS = 3


def _print_block(console: Console, heading: str, table: Table) -> None:
    console.print(Text(heading, style="bold"))
    names, *others = table.columns
    for column in others:
        column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    # long names give way, figures never
    names.max_width = console.width - sum(c.min_width or 0 for c in others) - _BETWEEN_COLUMNS * len(others)
    console.print(table)
    console.print()


def _status_text(artifact: Artifact, view: MemoryView) -> str:
    plan = artifact.plan
    if plan.status.value == "optimal":
        return f"Plan: optimal, made by {plan.planner}; no placement of these buffers is smaller."
    gaps = "; ".join(
        f"{p.pool.name} is {p.used_bytes - p.lower_bound_bytes:,} bytes "
        f"({percent_text(p.used_bytes - p.lower_bound_bytes, p.lower_bound_bytes)}) above its bound"
        for p in view.pools
        if p.used_bytes > p.lower_bound_bytes
    )
    if gaps and all(p.free_bytes is not None and p.free_bytes > 0 for p in view.pools):
        return f"Plan: it fits, made by {plan.planner}; {gaps}, with room left."
    at_bound = "no pool can be lower, but which buffers spill is not proven best"
    return f"Plan: feasible, made by {plan.planner}; {gaps or at_bound}."


def plain_table(texts: Sequence[str], figures: Sequence[str]) -> Table:
    """A table with these headings, the figures right-aligned."""
    columns = [Column(heading, no_wrap=True) for heading in texts]
    return table_of(*columns, *(Column(heading, justify="right", no_wrap=True) for heading in figures))


def table_of(*columns: Column | str) -> Table:
    """A table with a line below its headings and no other."""
    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")


def _pool_table(view: MemoryView) -> Table:
    table = plain_table(("pool",), ("used", "KiB", "bound", "capacity", "free"))
    for p in view.pools:
        capacity = "-" if p.pool.size_bytes is None else f"{p.pool.size_bytes:,}"
        free = "-" if p.free_bytes is None else f"{p.free_bytes:,}"
        used = (f"{p.used_bytes:,}", kib_text(p.used_bytes)[:-4])
        table.add_row(p.pool.name, *used, f"{p.lower_bound_bytes:,}", capacity, free)
    return table


def _kind_table(artifact: Artifact) -> Table:
    table = plain_table(("kind", "memory"), ("bytes", "KiB"))
    for row in kinds_of_bytes(artifact):
        sizes = ("-", "-") if row.size_bytes is None else (f"{row.size_bytes:,}", kib_text(row.size_bytes)[:-4])
        table.add_row(row.label, row.memory, *sizes)
    return table


def _peak_table(artifact: Artifact, pool: PoolView) -> Table:
    point, _ = pool.curve.peak
    table = plain_table(("buffer", "kind"), ("bytes", "KiB", "offset"))
    live = placed_at(artifact.problem, artifact.plan, pool.pool.name, point)
    for b in live[:LARGEST]:
        offset = artifact.plan.placement(b.name).offset_bytes
        table.add_row(b.name, b.kind.value, f"{b.size_bytes:,}", kib_text(b.size_bytes)[:-4], f"{offset:,}")
    if len(live) > LARGEST:
        rest = sum(b.size_bytes for b in live[LARGEST:])
        table.add_row(f"{len(live) - LARGEST} more", "", f"{rest:,}", kib_text(rest)[:-4], "")
    return table


def _colour_line(line: str) -> Text:
    """The map line with each kind's letter in its colour."""
    text = Text(line, no_wrap=True)
    bar = line.find("|")
    if bar >= 0:
        text.highlight_regex(r"\.+$|(?<=\S)\.+", "dim")
        for kind, letter in KIND_LETTERS.items():
            for run in re.compile(f"{re.escape(letter)}+").finditer(line, bar + 1):
                text.stylize(KIND_COLOURS[kind], *run.span())
    return text
