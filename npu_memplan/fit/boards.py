"""One model on many boards: compiled once for all boards of the same NPU, memory mode and speeds.

Invariant: a row is what `compile --board --objective bytes` of that board would find: the same plan of the least
memory, in the board's own memories, at its clock. What is too large as requested is tried once more with Vela's
`--optimise Size`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact.board_fit import BoardFit, fit_of
from ..clock import limited
from ..errors import NpuMemplanError
from ..ethosu.time import cycles_by_model
from ..frontend.start import vela_options
from ..options import NO_NPU, CompileOptions
from ..process.incidents import FAULT, gathering, report_fault
from ..target_data import board_names, load_board

if TYPE_CHECKING:
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
        smaller = self.fits and self.options.optimise == _SMALLER
        return f"{self.fit.verdict} with --optimise {_SMALLER}" if smaller else self.fit.verdict

    def to_dict(self) -> dict[str, Any]:
        uses = () if self.fit is None else self.fit.uses
        told = ("fits", "verdict", "milliseconds", "most_milliseconds", "host_operations", "host_milliseconds")
        return {
            "board": self.board,
            "accelerator": self.options.accelerator,
            **{name: getattr(self, name) for name in told},
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
) -> tuple[BoardRow, ...]:
    """A row for each board of `names` (default: all that ship), in order; `options` but for what a board decides.

    A fault of ours is reported in the rows that it ended, or of which it ended a part; with `strictly` it is raised.
    """
    made: dict[object, _Made] = {}  # by what it depends on

    def compiled(wanted: CompileOptions) -> _Made:
        # native lowering chooses by all of the board's memories, Vela's stream by what Vela's configuration has of them
        lifted = wanted.npu_compiler == "vela" and wanted.accelerator != NO_NPU
        key = (replace(wanted, board="").to_cli_args(), vela_options(wanted)) if lifted else wanted.to_cli_args()
        if key not in made:
            report_progress(" ".join(wanted.to_cli_args()), len(rows), len(chosen))
            with gathering() as incidents:
                found = _plan(model, wanted)
            made[key] = _Made(found, tuple(incidents.faults))
        return made[key]

    chosen = tuple(names) or board_names()
    rows: list[BoardRow] = []
    with limited(options.time_limit_s):
        for name in chosen:
            tried = _tried(name, options, compiled)
            first = next(tried)
            rows.append(first if first.fits else next((row for row in tried if row.fits), first))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class _Made:
    """What one compile made, or why it made nothing."""

    compiled: Compiled | str
    faults: tuple[str, ...] = ()


def _plan(model: Path, wanted: CompileOptions) -> Compiled | str:
    from ..compiler import plan_model

    try:
        return plan_model(model, wanted)
    except NpuMemplanError as error:
        return str(error).splitlines()[0]
    except (OSError, MemoryError):
        raise
    except Exception as error:
        return FAULT + report_fault(" ".join(wanted.to_cli_args()), error)


def _tried(name: str, options: CompileOptions, compiled: Callable[[CompileOptions], _Made]) -> Iterator[BoardRow]:
    """The row as requested, then of the smaller stream."""
    requested = replace(options, board=name, accelerator=load_board(name).accelerator, objective="bytes")
    smaller = (_SMALLER,) if options.npu_compiler == "vela" and options.optimise != _SMALLER else ()
    for optimise in (options.optimise, *smaller):
        wanted = replace(requested, optimise=optimise)
        try:
            wanted = wanted.resolved()
            found = compiled(replace(wanted, pools={p.name: _ENDLESS for p in wanted.planned_pools()}))
        except NpuMemplanError as error:
            found = _Made(str(error).splitlines()[0])
        if isinstance(found.compiled, str):
            yield BoardRow(name, wanted, message=found.compiled, faults=found.faults)
            return
        yield replace(_row(name, wanted, found.compiled), faults=found.faults)


def _row(name: str, options: CompileOptions, compiled: Compiled) -> BoardRow:
    """The plan of `compiled` in the memories of a board, and its time there."""
    artifact = replace(compiled.artifact, target=replace(options, pools={}))
    memory_map = artifact.memory_map
    calls = [compiled.sources.launches[c.function] for c in artifact.calls if c.function in compiled.sources.launches]
    milliseconds = most = None
    if memory_map is not None and calls:
        by_model = cycles_by_model([(call.commands, call.accelerator) for call in calls], memory_map).values()
        milliseconds, most = (1000 * cycles / memory_map.clock_hz for cycles in (next(iter(by_model)), max(by_model)))
    clock = load_board(name).clock.cpu_hz
    host = 1000 * artifact.host_cycles / clock if clock and artifact.host_cycles else None
    return BoardRow(name, options, fit_of(artifact), milliseconds, most, artifact.host_operations, host)
