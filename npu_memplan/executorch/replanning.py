"""The scratch of Ethos-U delegates planned anew: the same operations at other addresses, in fewer bytes.

Invariant: the firmware stays as it is (the scratch comes from the temporary allocator, inputs and outputs are copied);
constants and fast scratch keep their places; a scratch that would not become smaller is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..errors import NpuMemplanError
from ..ethosu.hazards.waits import schedule
from ..ethosu.program.overlap_search import find_overlaps
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.stream.commands import Command
from ..ethosu.stream.container import build_payload
from ..ethosu.stream.decode import decode
from ..ethosu.stream.encode import encode
from ..ethosu.time import estimate
from ..models.executorch.program import Delegate, ExecutorchProgram
from ..models.executorch.vela_blocks import slots_data, with_blocks
from ..models.executorch.vela_network import EthosUCall, npu_calls
from ..planners import plan
from ..problem import Buffer, Lifetime, Plan, Pool, Problem
from ..vela.lift import arguments, lift
from .lowered_for import memories_for

_POOL, _REGION = "scratch", 1
_ANY_SIZE = 1 << 40
_SLACKS = (0, 1, 2, 4)
_TOLERANCES: Mapping[str, float] = {"auto": 1.01, "cycles": 1.0, "bytes": math.inf}  # of the cycles before
Commands: TypeAlias = tuple[Command, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReplannedDelegate:
    """What came of one delegate; `data` is None where it is left as it is, and `note` says why."""

    delegate: Delegate
    method: str
    number: int
    before_bytes: int
    scratch_bytes: int
    bound_bytes: int = 0
    data: bytes | None = None
    note: str = ""


def replan_scratch(program: ExecutorchProgram, objective: str = "auto") -> list[ReplannedDelegate]:
    """Every Ethos-U delegate of `program`, each once, in the order of its calls.

    `objective`: the least bytes at whatever cycles (`bytes`), at no more cycles than before (`cycles`), at a hundredth
    more at most (`auto`); by the estimate.
    """
    first: dict[Delegate, EthosUCall] = {}
    for one in npu_calls(program):
        first.setdefault(one.method.delegates[one.delegate], one)
    return [_replanned(delegate, one, _TOLERANCES[objective]) for delegate, one in first.items()]


def _replanned(delegate: Delegate, one: EthosUCall, tolerance: float) -> ReplannedDelegate:
    before = one.blocks.scratch_bytes
    kept = ReplannedDelegate(delegate, one.method.name, one.delegate, before, before)
    call = replace(one.call, scratch_fast_bytes=_ANY_SIZE if one.uses_fast_scratch else 0)
    network = replace(one.network, operators=(call,))
    try:
        lifted = lift(network, call)
    except NpuMemplanError as error:
        return replace(kept, note=f"its stream cannot be read as operations on buffers: {error}")
    usual = _cycles(decode(call.words, call.accelerator.language), one)
    best: tuple[int, int, Commands, dict[str, tuple[int, int]]] | None = None
    least = before
    for slack in _SLACKS:
        found = plan(_problem(lifted, slack))
        usage = found.usage[0]
        scratch = -(-usage.used_bytes // 16) * 16
        if scratch >= before:
            continue
        least = min(least, scratch)
        places = dict(_places(lifted, found))
        placed = [lifted.place(index, places.__getitem__) for index in range(len(lifted.operations))]
        commands = schedule(placed, lifted.accelerator)
        if _cycles(commands, one) <= usual * tolerance and (best is None or scratch < best[0]):
            best = scratch, usage.lower_bound_bytes, commands, places
    if best is None:
        how = (
            f"{least:,} bytes would take more cycles (--objective bytes)" if least < before else "no smaller one found"
        )
        return replace(kept, note=how)
    scratch, bound, commands, places = best
    payload = replace(call.payload, words=encode(commands))
    named = {argument.tensor: places[argument.name][1] for argument in arguments(network, call)}
    slots = (*one.blocks.inputs, *one.blocks.outputs)
    if len(named) != len(slots):
        return replace(kept, note="it has inputs or outputs that lie over one another")
    moved = [replace(slot, offset_bytes=named[number]) for number, slot in enumerate(slots)]
    count = len(one.blocks.inputs)
    changed = {"cmd_data": build_payload(payload), "scratch_size": scratch.to_bytes(4, "little")}
    if count:
        changed["inputs"] = slots_data(moved[:count])
    if len(moved) > count:
        changed["outputs"] = slots_data(moved[count:])
    data = with_blocks(delegate, changed)
    return replace(kept, scratch_bytes=scratch, bound_bytes=bound, data=data)


def _cycles(commands: Iterable[Command], one: EthosUCall) -> int:
    """An estimate, with the memories that the delegate was compiled for."""
    return estimate(commands, one.call.accelerator, memories_for(one, {})).total


def _problem(lifted: NpuProgram, slack: int) -> Problem:
    """What lies in the scratch: inputs from the start on, outputs until the end.

    Others are kept for `slack` operations more at both ends, so that copies and kernels beside them need not wait.
    """
    live, end = lifted.live_ranges(), len(lifted.operations) + 1
    buffers = []
    for buffer in lifted.buffers:
        if buffer.original_region != _REGION or buffer.role in (BufferRole.CONSTANTS, BufferRole.LUT):
            continue
        first, last = (time + 1 for time in live.get(buffer.name, (-1, -1)))
        first, last = max(first - slack, 0), min(last + slack, end)
        first = 0 if buffer.role in (BufferRole.INPUT, BufferRole.STATE) else first
        last = end if buffer.role in (BufferRole.OUTPUT, BufferRole.STATE) else last
        buffers.append(Buffer(buffer.name, buffer.size_bytes, (Lifetime(first, last + 1),), buffer.alignment))
    names = {buffer.name for buffer in buffers}
    found = (overlap.allowed for overlap in find_overlaps(lifted))
    overlaps = tuple(one for one in found if {one.first, one.second} <= names)
    return Problem(tuple(buffers), (Pool(_POOL, alignment=16),), overlaps=overlaps, name=lifted.name)


def _places(lifted: NpuProgram, found: Plan) -> Iterator[tuple[str, tuple[int, int]]]:
    """Region and address of every buffer."""
    for buffer in lifted.buffers:
        yield buffer.name, (buffer.original_region, buffer.original_offset)
    for one in found.placements:
        yield one.buffer, (_REGION, one.offset_bytes)
