"""NPU calls of a program under a plan: where their buffers lie, and how long they are estimated to take.

Invariant: what is estimated is the stream that `codegen` would print for the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ethosu.program.hazards import stream_of
from ..ethosu.program.primfunc import from_primfunc
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.time import MemoryMap, ResourceUseCache, timeline
from ..problem import Plan, Problem
from ..vocabulary import is_npu

if TYPE_CHECKING:
    from ..extract.program import Invoke, Program, Step


@dataclass(frozen=True, slots=True, eq=False)
class PlacedCall:
    """One call of an NPU function: its operations are the points `[first, first + operations)` of the program."""

    invoke: Invoke
    program: NpuProgram
    storages: Mapping[str, str]  # buffer of the function -> buffer of the problem
    first: int

    def places(self, problem: Problem, plan: Plan) -> dict[str, tuple[int, int]]:
        """NPU region and address of every buffer; constants that are planned nowhere are region 0."""
        regions = {pool.name: 0 if pool.read_only else i + 1 for i, pool in enumerate(problem.pools)}
        placed = {p.buffer: (regions[p.pool], p.offset_bytes) for p in plan.placements}
        found = {}
        for buffer in self.program.buffers:
            if buffer.role is BufferRole.LUT:
                found[buffer.name] = (buffer.original_region, buffer.original_offset)
            else:
                found[buffer.name] = placed[self.storages[buffer.name]] if buffer.name in self.storages else (0, 0)
        return found


def npu_calls(program: Program) -> tuple[PlacedCall, ...]:
    """The NPU's calls, in program order."""
    return tuple(_calls(program))


def _calls(program: Program) -> Iterator[PlacedCall]:
    from ..extract.program import Fixed, View, steps

    for invoke in program.calls:
        if not is_npu(invoke.primfunc):
            continue
        npu = from_primfunc(invoke.primfunc)
        parameters = [b.name for b in npu.buffers if b.role.is_parameter]
        storages = {
            name: argument.tensor.name
            for name, argument in zip(parameters, invoke.arguments, strict=True)
            if isinstance(argument, View)
        }
        storages |= {str(i.allocation.buffer.name): i.name for i in invoke.internals}
        if any(not isinstance(a, View | Fixed) for a in invoke.arguments):
            continue
        ordered: list[Step] = list(steps(invoke.nodes))
        if len(ordered) == len(npu.operations) and ordered:
            yield PlacedCall(invoke, npu, storages, ordered[0].point)


def stream_cycles(
    program: NpuProgram,
    places: Mapping[str, tuple[int, int]],
    memory_map: MemoryMap,
    known: ResourceUseCache | None = None,
) -> int:
    """Estimated cycles of one call whose buffers lie at `places`."""
    return timeline(stream_of(program, places.__getitem__), program.accelerator, memory_map, known).total
