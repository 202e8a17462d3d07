"""One model on many boards: compiled once for each kind of NPU and memory mode, then held to each board.

Invariant: a row is what `compile --board --objective bytes` of that board would find: the same plan of the least
memory, in the board's own memories, at its clock. What is too large as asked for is tried once more with Vela's
`--optimise Size`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NpuMemplanError
from ..ethosu.time import estimate
from ..options import CompileOptions
from ..report.facts.fit import BoardFit, fit_of
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
    host_operations: int = 0
    host_milliseconds: float | None = None  # roughly; None: the host's clock is not known
    message: str = ""

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
        told = ("fits", "verdict", "milliseconds", "host_operations", "host_milliseconds")
        return {
            "board": self.board,
            "accelerator": self.options.accelerator,
            **{name: getattr(self, name) for name in told},
            "flags": list(self.options.to_cli_args()) if self.fit is not None else [],
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
    """A row for each board of `names` (default: all that ship), in order; `options` but for what a board decides."""
    made: dict[tuple[str, ...], Compiled | str] = {}  # by the flags that ask for it

    def compiled(wanted: CompileOptions) -> Compiled | str:
        flags = wanted.to_cli_args()
        if flags not in made:
            from ..pipeline import plan_model

            report_progress(" ".join(flags), len(rows), len(chosen))
            try:
                made[flags] = plan_model(model, wanted)
            except NpuMemplanError as error:
                made[flags] = str(error).splitlines()[0]
        return made[flags]

    chosen = tuple(names) or board_names()
    rows: list[BoardRow] = []
    for name in chosen:
        tried = _tried(name, options, compiled)
        first = next(tried)
        rows.append(first if first.fits else next((row for row in tried if row.fits), first))
    return tuple(rows)


def _tried(
    name: str, options: CompileOptions, compiled: Callable[[CompileOptions], Compiled | str]
) -> Iterator[BoardRow]:
    """The row as asked for, then of the smaller stream."""
    requested = replace(options, board=name, accelerator=load_board(name).accelerator, objective="bytes")
    smaller = (_SMALLER,) if options.npu_compiler == "vela" and options.optimise != _SMALLER else ()
    for optimise in (options.optimise, *smaller):
        wanted = replace(requested, optimise=optimise)
        try:
            wanted = wanted.resolved()
            # native lowering chooses by the board's memories, Vela's stream is the same for all boards alike
            kept = wanted.board if wanted.npu_compiler != "vela" else ""
            found = compiled(replace(wanted, board=kept, pools={p.name: _ENDLESS for p in wanted.planned_pools()}))
        except NpuMemplanError as error:
            found = str(error).splitlines()[0]
        if isinstance(found, str):
            yield BoardRow(name, wanted, message=found)
            return
        yield _row(name, wanted, found)


def _row(name: str, options: CompileOptions, compiled: Compiled) -> BoardRow:
    """The plan of `compiled` in the memories of a board, and its time there."""
    artifact = replace(compiled.artifact, target=replace(options, pools={}))
    memory_map = artifact.memory_map
    calls = [compiled.sources.launches[c.function] for c in artifact.calls if c.function in compiled.sources.launches]
    cycles = (
        sum(estimate(call.commands, call.accelerator, memory_map).total for call in calls)
        if memory_map is not None
        else 0
    )
    milliseconds = 1000 * cycles / memory_map.clock_hz if memory_map is not None and calls else None
    clock = load_board(name).clock.cpu_hz
    host = 1000 * artifact.host_cycles / clock if clock and artifact.host_cycles else None
    return BoardRow(name, options, fit_of(artifact), milliseconds, artifact.host_operations, host)
