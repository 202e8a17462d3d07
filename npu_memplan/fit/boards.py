"""One model on many boards: for each what `compile --board` of it finds, with the objective requested.

Invariant: a row's flags give its figures again. What has no room as requested is tried again with `--objective bytes`,
then with Vela's `--optimise Size`; plans of the fewest bytes are made once for all boards of the same NPU, memory mode
and speeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact.board_fit import BoardFit, fit_of
from ..clock import limited
from ..errors import NpuMemplanError
from ..ethosu.time import printed_cycles
from ..frontend.start import vela_options
from ..options import NO_NPU, CompileOptions
from ..process.incidents import FAULT, FAULTS, gathering, report_fault
from ..target_data import board_names, load_board

if TYPE_CHECKING:
    from ..artifact import Artifact
    from ..cache.programs import ProgramCache
    from ..stages import Compiled

_SMALLER = "Size"
_ENDLESS = 1 << 40  # bytes of a pool whose size does not matter yet


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One board. `fit` None: the model cannot be compiled for it, and `message` says why."""

    board: str
    options: CompileOptions  # that the row is of
    fit: BoardFit | None = None
    milliseconds: float | None = None  # of the NPU, estimated
    most_milliseconds: float | None = None  # under the slowest model of shared memories
    host_operations: int = 0
    host_milliseconds: float | None = None  # roughly; None: the host's clock is not known
    message: str = ""
    changed: str = ""  # the flag without which it has no room there
    faults: tuple[str, ...] = ()  # of ours, while it was compiled

    @property
    def fits(self) -> bool:
        """Whether the plan and its constants have room there."""
        return self.fit is not None and self.fit.short is None

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

    A fault of ours is reported in the rows that it ended, or of which it ended a part; with `strictly` it is raised.
    What `cache` has of a board is not compiled again.
    """
    made: dict[object, _Made] = {}  # by what it depends on

    def compiled(wanted: CompileOptions) -> _Made:
        # native lowering, and what is tuned, depend on all of the board's memories; Vela's stream on what its own
        # configuration has of them
        shared = not wanted.for_cycles and wanted.npu_compiler == "vela" and wanted.accelerator != NO_NPU
        key = (replace(wanted, board="").to_cli_args(), vela_options(wanted)) if shared else wanted.to_cli_args()
        if key not in made:
            report_progress(" ".join(wanted.to_cli_args()), len(rows), len(chosen))
            with gathering() as incidents:
                found = _plan(model, wanted, cache if wanted.for_cycles else None)
            made[key] = _Made(found, tuple(incidents.faults))
        return made[key]

    chosen = tuple(names) or board_names()
    rows: list[BoardRow] = []
    with limited(options.time_limit_s):
        for name in chosen:
            rows.append(_first_that_fits(_tried(name, options, compiled)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Made:
    """What one compile made, or why it made nothing."""

    compiled: Compiled | str
    faults: tuple[str, ...] = ()


def _plan(model: Path, wanted: CompileOptions, cache: ProgramCache | None) -> Compiled | str:
    from ..compiler import plan_model

    try:
        return plan_model(model, wanted, cache=cache)
    except NpuMemplanError as error:
        return str(error).splitlines()[0]
    except FAULTS as error:
        return FAULT + report_fault(" ".join(wanted.to_cli_args()), error)


def _first_that_fits(tried: Iterator[BoardRow]) -> BoardRow:
    """Of rows that are made one after the other; where none fits, the one that lacks the fewest bytes."""
    rows: list[BoardRow] = []
    for row in tried:
        if row.fits:
            return row
        rows.append(row)
    return min(rows, key=lambda row: -row.fit.short.headroom_bytes if row.fit and row.fit.short else _ENDLESS)


def _tried(name: str, options: CompileOptions, compiled: Callable[[CompileOptions], _Made]) -> Iterator[BoardRow]:
    """The row as requested, then of the fewest bytes, then of the smaller stream."""
    requested = replace(options, board=name, accelerator=load_board(name).accelerator)
    ways = [(requested, "")]
    if requested.objective != "bytes":
        ways.append((replace(requested, objective="bytes"), "--objective bytes"))
    if options.npu_compiler == "vela" and options.optimise != _SMALLER:
        ways.append((replace(requested, objective="bytes", optimise=_SMALLER), f"--optimise {_SMALLER}"))
    for wanted, changed in ways:
        try:
            wanted = wanted.resolved()
            sizes = {} if wanted.for_cycles else {p.name: _ENDLESS for p in wanted.planned_pools()}
            found = compiled(replace(wanted, pools={**sizes, **wanted.pools}))
        except NpuMemplanError as error:
            found = _Made(str(error).splitlines()[0])
        if isinstance(found.compiled, str):
            yield BoardRow(name, wanted, message=found.compiled, faults=found.faults)
        else:
            yield replace(_row(name, wanted, found.compiled), changed=changed, faults=found.faults)


def _row(name: str, options: CompileOptions, compiled: Compiled) -> BoardRow:
    """The plan of `compiled` in the memories of a board, and its time there."""
    artifact = replace(compiled.artifact, target=replace(options, pools={}))
    by_model, clock_hz = _cycles(compiled, artifact)
    milliseconds = most = None
    if by_model:
        milliseconds, most = (1000 * cycles / clock_hz for cycles in (by_model[0], max(by_model)))
    clock = load_board(name).clock.cpu_hz
    host = 1000 * artifact.host_cycles / clock if clock and artifact.host_cycles else None
    return BoardRow(name, options, fit_of(artifact), milliseconds, most, artifact.host_operations, host)


def _cycles(compiled: Compiled, artifact: Artifact) -> tuple[list[int], float]:
    """Of the NPU, under each model of a printed range, and its clock, in the memories of `artifact`."""
    timing, memory_map = compiled.artifact.timing, artifact.memory_map
    if artifact.target.for_cycles:  # it was compiled for these memories, and may be from the cache, without streams
        return (list(timing.by_model.values()), timing.clock_hz) if timing is not None else ([], 0.0)
    launches = compiled.sources.launches
    calls = [launches[call.function] for call in artifact.calls if call.function in launches]
    if memory_map is None or not calls:
        return [], 0.0
    return list(printed_cycles([(c.commands, c.accelerator) for c in calls], memory_map).values()), memory_map.clock_hz
