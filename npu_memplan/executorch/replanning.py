"""The memory of an ExecuTorch program planned again for a board.

The memory of an ExecuTorch program planned again for unchanged firmware: scratch of delegates, planned tensors.

Invariant: the scratch comes from the temporary allocator, inputs and outputs are copied; what would not become smaller
stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..errors import NpuMemplanError
from ..ethosu.program.overlap import find_overlaps
from ..ethosu.program.program import BufferRole
from ..models.executorch.delegates import ALIGNMENT, EthosUCall, npu_calls
from ..models.executorch.program import Delegate, ExecutorchProgram, Method, PlannedPlace
from ..planners import PlanningError, plan
from ..problem import Buffer, Lifetime, Pool, Problem
from .memory_map import LiftedCall, lift_call, placed_tensors, tensor_blocks

_POOL, _FAST = "scratch", "fast_scratch"
SLACKS = (0, 1, 2, 4)
_SLACKS_OF_EFFORT: Mapping[str, tuple[int, ...]] = {"quick": (0,), "normal": SLACKS, "max": (*range(9), 12, 16)}
TOLERANCES: Mapping[str, float] = {"auto": 1.01, "cycles": 1.0, "bytes": math.inf}  # of the cycles before


class ScratchError(NpuMemplanError):
    """The scratch of a delegate does not fit the pool."""


@dataclass(frozen=True, slots=True)
class ScratchGoal:
    """What is best. `objective`: the least bytes at whatever cycles (`bytes`), at no more cycles than before
    (`cycles`), at a hundredth more at most (`auto`). With `pool_bytes`: the fewest cycles that fit it. Cycles are an
    estimate, with the memories of `board`, or with those that the delegate was compiled for."""

    objective: str = "auto"
    effort: str = "normal"
    pool_bytes: int | None = None
    board: str = ""

    def __post_init__(self) -> None:
        for value, known in ((self.objective, TOLERANCES), (self.effort, _SLACKS_OF_EFFORT)):
            if value not in known:
                raise ScratchError(f"{value!r} is none of {', '.join(known)}")


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


@dataclass(frozen=True, slots=True)
class ReplannedTensors:
    """Places of the planned tensors of a method, and the bytes of each planned buffer."""

    places: Mapping[int, PlannedPlace]
    planned_bytes: Mapping[int, int]


def replan_scratch(program: ExecutorchProgram, goal: ScratchGoal | None = None) -> list[ReplannedDelegate]:
    """Every Ethos-U delegate of `program`, each once, in the order of its calls.

    `ScratchError` where one does not fit the pool.
    """
    first: dict[Delegate, EthosUCall] = {}
    for one in npu_calls(program):
        first.setdefault(one.method.delegates[one.delegate], one)
    return [_replan_delegate(one, goal or ScratchGoal()) for one in first.values()]


def _replan_delegate(one: EthosUCall, goal: ScratchGoal) -> ReplannedDelegate:
    try:
        lifted = lift_call(one, goal.board)
    except NpuMemplanError as error:
        note = f"its stream cannot be read as operations on buffers: {error}"
        return _fitting(replace(_as_it_is(one), note=note), goal)
    return replan_call(lifted, goal)


def _as_it_is(one: EthosUCall) -> ReplannedDelegate:
    before = one.blocks.scratch_bytes
    return ReplannedDelegate(one.method.delegates[one.delegate], one.method.name, one.delegate, before, before)


def replan_call(lifted: LiftedCall, goal: ScratchGoal, apart: bool = False) -> ReplannedDelegate:
    """The delegate of one call; `apart`: its buffers lie apart, which is no plan to compare others with.

    `ScratchError` where it does not fit the pool.
    """
    kept = _as_it_is(lifted.one)
    before, usual = kept.before_bytes, lifted.cycles()
    found, least = [] if apart else [(usual, kept)], before
    for slack in _SLACKS_OF_EFFORT[goal.effort]:
        made = place_contents(lifted, slack)
        if made is None:
            continue
        places, fast, bound = made
        scratch = lifted.end_bytes(places)
        least = min(least, scratch)
        if scratch > before and goal.pool_bytes is None:
            continue
        commands = lifted.commands(places, fast)
        changed = replace(kept, scratch_bytes=scratch, bound_bytes=bound, data=lifted.data(commands, places))
        found.append((lifted.cycles(commands), changed))
    if goal.pool_bytes is not None:
        fitting = [pair for pair in found if pair[1].scratch_bytes <= goal.pool_bytes]
        best = min(fitting, key=lambda pair: (pair[0], pair[1].scratch_bytes))[1] if fitting else None
        return best or _fitting(replace(kept, scratch_bytes=least), goal)
    if apart and not found:
        raise ScratchError(f"delegate {kept.number} has no plan within {lifted.limit_bytes:,} bytes of scratch")
    usual = min(cycles for cycles, _ in found) if apart else usual
    allowed = [one for cycles, one in found if cycles <= usual * TOLERANCES[goal.objective]] or [kept]
    smallest = min(allowed, key=lambda one: one.scratch_bytes)
    if smallest.data is None:
        slower = f"{least:,} bytes would take more cycles (--objective bytes)"
        return replace(kept, note=slower if least < before else "no smaller one found")
    return smallest


def place_contents(lifted: LiftedCall, slack: int = 0) -> tuple[Mapping[str, int], Mapping[str, int], int] | None:
    """Bytes of contents in the scratch and in the fast scratch, and a bound of the scratch; None: they do not fit."""
    try:
        made = plan(_problem(lifted, slack), "fit" if lifted.limit_bytes else "auto")
    except PlanningError:
        if lifted.limit_bytes:
            return None
        raise
    places, fast = (
        {one.buffer: one.offset_bytes for one in made.placements if one.pool == pool} for pool in (_POOL, _FAST)
    )
    return places, fast, made.usage[0].lower_bound_bytes


def _fitting(one: ReplannedDelegate, goal: ScratchGoal) -> ReplannedDelegate:
    size = goal.pool_bytes
    if size is not None and one.scratch_bytes > size:
        raise ScratchError(
            f"delegate {one.number} of method {one.method!r} needs at least {one.scratch_bytes:,} bytes of scratch, "
            f"the pool has {size:,}: {one.scratch_bytes - size:,} too few; give a larger pool, or a smaller model"
        )
    return one


def _problem(lifted: LiftedCall, slack: int) -> Problem:
    """What lies in the scratch: inputs from the start on, outputs until the end.

    Others are kept for `slack` operations more at both ends, so that copies and kernels beside them need not wait, and
    lie in the fast scratch as far as it has room: those that move the most bytes.
    """
    live, end = lifted.program.live_ranges(), len(lifted.program.operations) + 1
    pools, fast = [Pool(_POOL, lifted.limit_bytes or None, ALIGNMENT)], lifted.fast_bytes
    moved = lifted.program.moved_bytes() if fast else {}
    if fast:
        pools.append(Pool(_FAST, fast, ALIGNMENT))
    buffers = []
    for buffer in lifted.contents:
        first, last = (time + 1 for time in live.get(buffer.name, (-1, -1)))
        first, last = max(first - slack, 0), min(last + slack, end)
        first = 0 if buffer.role in (BufferRole.INPUT, BufferRole.STATE) else first
        last = end if buffer.role in (BufferRole.OUTPUT, BufferRole.STATE) else last
        homes = (_FAST, _POOL) if fast and not buffer.role.is_parameter else (_POOL,)
        read, written = moved.get(buffer.name, (0, 0))
        lives = (Lifetime(first, last + 1),)
        buffers.append(
            Buffer(buffer.name, buffer.size_bytes, lives, buffer.alignment, homes, read_bytes=read, write_bytes=written)
        )
    names = {buffer.name for buffer in buffers}
    found = (overlap.allowed for overlap in find_overlaps(lifted.program))
    overlaps = tuple(one for one in found if {one.first, one.second} <= names)
    return Problem(tuple(buffers), tuple(pools), overlaps=overlaps, name=lifted.program.name)


def replan_tensors(method: Method) -> ReplannedTensors | None:
    """The planned buffers of a method in fewer bytes; None where none is found."""
    places: dict[int, PlannedPlace] = {}
    sizes = dict(method.planned_bytes)
    tensors = placed_tensors(method)
    for memory, size in method.planned_bytes.items():
        blocks = [block for block in tensor_blocks(method) if block.memory == memory]
        inside = [tensor for tensor in tensors if tensor.memory == memory]
        alignment = _alignment({tensor.offset_bytes for tensor in inside})
        buffers = [
            Buffer(str(number), block.size_bytes, (Lifetime(block.first, block.last),), alignment)
            for number, block in enumerate(blocks)
        ]
        found = plan(Problem(tuple(buffers), (Pool(_POOL, alignment=ALIGNMENT),), name=method.name))
        # What the file has beyond its tensors is room that a backend reads over.
        end = max((tensor.end_bytes for tensor in inside), default=size)
        used = _align_size(found.usage[0].used_bytes) + max(size - _align_size(end), 0)
        if used >= size:
            continue
        sizes[memory] = used
        for placement in found.placements:
            for value, offset in blocks[int(placement.buffer)].members.items():
                places[value] = PlannedPlace(memory, placement.offset_bytes + offset)
        places |= {tensor.value: PlannedPlace(memory, 0) for tensor in inside if not tensor.size_bytes}
    return ReplannedTensors(places, sizes) if sizes != dict(method.planned_bytes) else None


def _alignment(offsets: Collection[int]) -> int:
    """What the file's own plan keeps to, as far as its offsets show: at most 64 bytes."""
    return next(step for step in (64, 32, ALIGNMENT) if step == ALIGNMENT or not any(o % step for o in offsets))


def _align_size(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
