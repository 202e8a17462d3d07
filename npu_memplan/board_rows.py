"""`--board all`: one model on many boards.

Invariant: every row is of a compile like any other, so its plan is verified. A row has flags that give its figures
again; a figure is the board file's or an estimate that says so, and what is not known is a dash. What has no room as
requested is tried again with `--objective bytes`, then with `--npu-compiler vela,Size`; programs are made once for all
boards of the same NPU, memory mode and speeds, those of the fewest cycles if pools and CPUs are the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .artifact import Artifact
from .artifact.board_fit import BoardFit, fit_of
from .clock import limit_searches
from .errors import NpuMemplanError
from .ethosu.time import printed_cycles
from .frontend.start import vela_options
from .options import NO_NPU, CompileOptions
from .planners import PlanningError
from .process.incidents import FAULT, FAULTS, gather_incidents, report_fault
from .process.setup import terminal_console
from .report.text.memory_txt import plain_table
from .target_data import board_names, load_board

if TYPE_CHECKING:
    from .cache import ProgramCache
    from .stages import Compiled


_SMALLER = "Size"
_ENDLESS = 1 << 40  # bytes of a pool whose size does not matter yet


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One board. `fit` None: the model cannot be compiled for it, and `message` says why."""

    board: str
    options: CompileOptions  # that the row is of
    fit: BoardFit | None = None
    milliseconds: float | None = None  # of NPU and CPU, estimated; None: unknown
    most_milliseconds: float | None = None  # under the slowest model of shared memories
    host_operations: int = 0
    host_milliseconds: float | None = None  # of the CPU alone
    message: str = ""
    changed: str = ""  # the flag without which it has no room there
    faults: tuple[str, ...] = ()  # of ours, while it was compiled

    @property
    def fits(self) -> bool:
        """Whether the plan and its constants have room there."""
        return self.fit is not None and self.fit.shortest_memory is None

    @property
    def verdict(self) -> str:
        """`fits`, with the flag where one is needed; else what is missing."""
        if self.fit is None:
            return self.message
        return f"{self.fit.verdict} with {self.changed}" if self.fits and self.changed else self.fit.verdict

    def to_dict(self) -> dict[str, Any]:
        uses = () if self.fit is None else self.fit.uses
        keys = ("fits", "verdict", "milliseconds", "most_milliseconds", "host_operations", "host_milliseconds")
        return {
            "board": self.board,
            "accelerator": self.options.accelerator,
            **{name: getattr(self, name) for name in keys},
            "flags": list(self.options.to_cli_args()) if self.fit is not None else [],
            "loading": "" if self.fit is None else self.fit.loading,
            "faults": list(self.faults),
            "memories": [
                {"name": u.memory.name, "holds": list(u.holds), "bytes": u.used_bytes, "of": u.memory.size_bytes}
                for u in uses
            ],
        }


def on_boards(
    model: Path,
    options: CompileOptions,
    names: Sequence[str] = (),
    report_progress: Callable[[str, int, int], None] = lambda *_: None,
    cache: ProgramCache | None = None,
) -> tuple[BoardRow, ...]:
    """A row for each board of `names` (default: all that ship), in order; `options` but for what a board decides.

    A fault of ours is reported in the rows that it ended, or of which it ended a part; in strict mode it is raised.
    What `cache` has of a board is not compiled again.
    """
    made: dict[object, _Made] = {}  # by what it depends on

    def compile_for(wanted: CompileOptions) -> _Made:
        # a program depends on what memories the NPU has, and how fast they are, not on the board itself; that of the
        # fewest cycles on their sizes, and the CPU, too
        shared = wanted.accelerator != NO_NPU
        speeds = (vela_options(wanted), repr(wanted.memory_map())) if shared else ()
        pools = (repr(wanted.planned_pools()), wanted.cpu, wanted.cpu_clock_hz) if shared and wanted.for_cycles else ()
        key = (replace(wanted, board="").to_cli_args() if shared else wanted.to_cli_args(), *speeds, *pools)
        if key not in made:
            shown = wanted if wanted.for_cycles else replace(wanted, pools={})
            report_progress(" ".join(shown.to_cli_args()), len(rows), len(chosen))
            with gather_incidents() as incidents:
                found = _plan_or_reason(model, wanted, cache if wanted.for_cycles else None)
            made[key] = _Made(found, tuple(incidents.faults))
        return made[key]

    chosen = tuple(names) or board_names()
    rows: list[BoardRow] = []
    with limit_searches(options.time_limit_s):
        for name in chosen:
            rows.append(_first_that_fits(_try_board(name, options, compile_for)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Made:
    """The result of one compile, or why it made nothing."""

    compiled: Compiled | str
    faults: tuple[str, ...] = ()


def _plan_or_reason(model: Path, wanted: CompileOptions, cache: ProgramCache | None) -> Compiled | str:
    from .compiler import plan_model

    try:
        return plan_model(model, wanted, cache=cache)
    except PlanningError as error:
        pool = f"does not fit: pool {error.pool} needs {error.required_bytes:,} bytes"
        return f"{pool}, {error.available_bytes:,} are there" if error.pool else str(error).splitlines()[0]
    except NpuMemplanError as error:
        return str(error).splitlines()[0]
    except FAULTS as error:
        return FAULT + report_fault(" ".join(wanted.to_cli_args()), error)


def _first_that_fits(tried: Iterator[BoardRow]) -> BoardRow:
    """The first row that fits, of rows that are made one after the other; else the one that lacks the fewest bytes."""
    rows: list[BoardRow] = []
    for row in tried:
        if row.fits:
            return row
        rows.append(row)
    return min(
        rows,
        key=lambda row: -row.fit.shortest_memory.headroom_bytes if row.fit and row.fit.shortest_memory else _ENDLESS,
    )


def _try_board(name: str, options: CompileOptions, compiled: Callable[[CompileOptions], _Made]) -> Iterator[BoardRow]:
    """The row as requested, then of the fewest bytes, then of the smaller stream."""
    requested = replace(options, board=name, accelerator=load_board(name).accelerator)
    ways = [(requested, "")]
    if requested.objective != "bytes":
        ways.append((replace(requested, objective="bytes"), "--objective bytes"))
    if options.npu_compiler == "vela" and options.optimise != _SMALLER:
        ways.append((replace(requested, objective="bytes", optimise=_SMALLER), f"--npu-compiler vela,{_SMALLER}"))
    for wanted, changed in ways:
        try:
            wanted = wanted.resolve_defaults()
            sizes = {} if wanted.for_cycles else {p.name: _ENDLESS for p in wanted.planned_pools()}
            found = compiled(replace(wanted, pools={**sizes, **wanted.pools}))
        except NpuMemplanError as error:
            found = _Made(str(error).splitlines()[0])
        if isinstance(found.compiled, str):
            yield BoardRow(name, wanted, message=found.compiled, faults=found.faults)
        else:
            yield replace(_board_row(name, wanted, found.compiled), changed=changed, faults=found.faults)


def _board_row(name: str, options: CompileOptions, compiled: Compiled) -> BoardRow:
    """The plan of `compiled` in the memories of a board, and its time there."""
    artifact = replace(compiled.artifact, target=replace(options, pools={}))
    by_model, clock_hz = _cycles_and_clock(compiled, artifact)
    clock = options.cpu_clock_hz or clock_hz
    host = 1000 * artifact.host_cycles / clock if clock and artifact.host_cycles else None
    milliseconds = most = host
    if by_model:
        milliseconds, most = (1000 * cycles / clock_hz + (host or 0) for cycles in (by_model[0], max(by_model)))
    return BoardRow(name, options, fit_of(artifact), milliseconds, most, artifact.host_operations, host)


def _cycles_and_clock(compiled: Compiled, artifact: Artifact) -> tuple[list[int], float]:
    """The cycles of the NPU, under each model of a printed range, and its clock, in the memories of `artifact`."""
    timing, memory_map = compiled.artifact.timing, artifact.memory_map
    if artifact.target.for_cycles:  # it was compiled for these memories, and may be from the cache, without streams
        return (list(timing.by_model.values()), timing.clock_hz) if timing is not None else ([], 0.0)
    launches = compiled.sources.launches
    calls = [launches[call.function] for call in artifact.calls if call.function in launches]
    if memory_map is None or not calls:
        return [], 0.0
    return list(printed_cycles([(c.commands, c.accelerator) for c in calls], memory_map).values()), memory_map.clock_hz


HEADINGS = ("board", "fits", "NPU", "SRAM, KiB", "flash, KiB", "ms", "CPU")
_WITH_DRAM = (
    "Of {boards}, the column flash has DRAM, where tensors may lie beside the constants; --pool sram is the NPU's own "
    "memory there, not all of the tensors'."
)
NOTE = (
    "Needed / there, of the memories that hold pools alone (SRAM) and of the one that holds constants (flash; with one "
    "memory for all, the first figure has all). A row is what compile --board BOARD makes, "
    "with the flag that the column fits names instead of yes (bytes: --objective bytes, Size: --npu-compiler "
    "vela,Size). Milliseconds of an inference are estimated from the board file's figures; CPU is its share (?: its "
    "clock is not known, and taken as the NPU's). The user's own program is not in the bytes. Of the boards, those of "
    "Corstone alone were run by us, on emulators."
)


def fit_cells(row: BoardRow) -> tuple[str, ...]:
    """The cells of a row under `HEADINGS`."""
    npu = row.options.accelerator.removeprefix("ethos-")
    if row.fit is None:
        return (row.board, "no", npu, "-", "-", "-", "-")
    kept = (row.fit.bytes_of(constants) for constants in (False, True))
    sizes = (f"{_kib_text(used)}/{there >> 10}" if there else "-" for used, there in kept)
    time = "-" if row.milliseconds is None else f"{row.milliseconds:.3f}"
    host = "?" if row.host_operations else "-"
    if row.host_milliseconds and row.milliseconds:
        guessed = "" if row.options.cpu_clock_hz else " ?"
        host = f"{100 * row.host_milliseconds / row.milliseconds:.0f} %{guessed}"
    fits = "no" if not row.fits else row.changed.replace(",", " ").rpartition(" ")[2] or "yes"
    return (row.board, fits, npu, *sizes, time, host)


def _kib_text(size: int) -> str:
    """KiB, rounded up; with a decimal where few."""
    return f"{size / 1024:.1f}" if size < 100 << 10 else str(-(-size >> 10))


def print_fits(rows: Sequence[BoardRow]) -> None:
    console = terminal_console()
    table = plain_table(HEADINGS[:3], HEADINGS[3:])
    for row in rows:
        table.add_row(*fit_cells(row))
    console.print(table)
    console.print()
    for row in rows:
        if row.verdict != "fits":
            console.print(f"{row.board}: {row.verdict}")
        if row.fits and row.fit is not None and row.fit.loading:
            console.print(f"{row.board}: {row.fit.loading}")
        for text in row.faults if row.fit is not None else ():
            console.print(f"{row.board}: {FAULT}{text}")
    with_dram = [row.board for row in rows if row.fit is not None and row.fit.has_dram]
    if with_dram:
        console.print(_WITH_DRAM.format(boards=", ".join(with_dram)))
    console.print(NOTE)
