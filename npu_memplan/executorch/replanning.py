"""The memory of an ExecuTorch program planned again for a board, tensors and delegates' scratch in one arena or apart.

Invariant: the scratch comes from the temporary allocator, inputs and outputs are copied; what would not become smaller
stays as it is. The scratch of every delegate begins at byte 0 of planned buffer 1. A tensor that a delegate takes or
gives lies where the stream has it wherever that is possible, so that its copy is from a byte onto itself. On firmware
with a temporary allocator of its own the program gives the same results, with its scratch in memory of its own.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import NpuMemplanError, RefusalError
from ..ethosu.program.overlap import find_overlaps
from ..ethosu.program.program import BufferRole
from ..models.executorch.delegates import ALIGNMENT, BACKEND, EthosUCall, npu_calls
from ..models.executorch.program import Delegate, ExecutorchProgram, KernelCall, Method, PlannedPlace
from ..planners import PlanningError, plan
from ..problem import AllowedOverlap, Buffer, Lifetime, Plan, Pool, Problem
from .memory_map import Commands, LiftedCall, TensorBlock, lift_call, placed_tensors, points_of, tensor_blocks

_POOL, _FAST = "scratch", "fast_scratch"
SLACKS = (0, 1, 2, 4)
_SLACKS_OF_EFFORT: Mapping[str, tuple[int, ...]] = {"quick": (0,), "normal": SLACKS, "max": (*range(9), 12, 16)}
TOLERANCES: Mapping[str, float] = {"auto": 1.01, "cycles": 1.0, "bytes": math.inf}  # of the cycles before


class ScratchError(NpuMemplanError):
    """The scratch of a delegate does not fit the pool."""


@dataclass(frozen=True, slots=True)
class ScratchGoal:
    """The goal of a search; cycles are an estimate."""

    objective: str = "auto"  # least `bytes`; at no more `cycles` than before; `auto`: at a hundredth more at most
    effort: str = "normal"
    pool_bytes: int | None = None  # the fewest cycles that fit it
    board: str = ""  # whose memories; empty: those that the delegate was compiled for

    def __post_init__(self) -> None:
        for value, known in ((self.objective, TOLERANCES), (self.effort, _SLACKS_OF_EFFORT)):
            if value not in known:
                raise ScratchError(f"{value!r} is none of {', '.join(known)}")


@dataclass(frozen=True, slots=True, eq=False)
class ReplannedDelegate:
    """The result for one delegate; `data` is None where it is left as it is, and `note` says why."""

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
    """The delegate of one call; `apart`: its buffers lie apart, which is no plan to compare others with."""
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
    """The problem of the scratch: inputs from the start on, outputs until the end.

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
        alignment = _file_alignment({tensor.offset_bytes for tensor in inside})
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


def _file_alignment(offsets: Collection[int]) -> int:
    """The alignment that the file's own plan keeps to, as far as its offsets show: at most 64 bytes."""
    return next(step for step in (64, 32, ALIGNMENT) if step == ALIGNMENT or not any(o % step for o in offsets))


def _align_size(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


ARENA = 1  # memory id of the planned buffer that the scratch lies in
_TEMPORARY = ("aten::topk", "llama::")  # kernels that use the temporary allocator


class OneArenaError(RefusalError):
    """A program cannot have its scratch in the planned buffer."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedArena:
    """A method in one arena. `cycles` and `cycles_before` are those of its delegates, by the estimate."""

    method: Method
    tensors: ReplannedTensors
    delegates: Mapping[Delegate, bytes]
    bound_bytes: int
    cycles: int
    cycles_before: int
    copied_bytes: int  # by the runtime, which skips what is there already
    copied_bytes_before: int

    @property
    def arena_bytes(self) -> int:
        """The bytes of planned buffer 1, the scratch included."""
        return self.tensors.planned_bytes[ARENA]


@dataclass(slots=True, eq=False)
class _Call:
    """A delegate's call in the problem; `start` is the point of its copies in, `stop` that of its copies out."""

    one: EthosUCall
    lifted: LiftedCall | None
    start: int
    stop: int
    moves: bool
    merged: dict[str, tuple[int, int]] = field(default_factory=dict)  # buffer -> block, offset in it


def plan_one_arena(program: ExecutorchProgram, method: Method, objective: str = "auto") -> SharedArena:
    """The fewest bytes within the cycles that the `objective` allows (as `replan_scratch`)."""
    require_own_scratch(program, method)
    calls = [one for one in npu_calls(program) if one.method is method]
    usage = Counter(one.method.delegates[one.delegate] for one in npu_calls(program))
    lifted = {one.position: _lift_delegate(one) for one in calls}
    found: list[SharedArena] = []
    for slack, merges in ((None, True), (None, False), *((slack, True) for slack in SLACKS)):
        made = _Arena(method, calls, lifted, usage, slack, merges).plan_tensors()
        if made is not None and (objective == "bytes" or made.cycles <= made.cycles_before * TOLERANCES[objective]):
            found.append(made)
    if not found:
        raise OneArenaError(f"{program.name}: no plan of method {method.name!r} in one arena is found")
    return min(found, key=lambda one: (one.arena_bytes, one.cycles, one.copied_bytes))


def require_own_scratch(program: ExecutorchProgram, method: Method) -> None:
    """`OneArenaError` where something else than an Ethos-U delegate may use the temporary allocator."""
    kernels = [i.name for i in method.instructions if isinstance(i, KernelCall) and i.name.startswith(_TEMPORARY)]
    foreign = [one.backend for one in method.delegates if one.backend != BACKEND]
    if kernels or foreign:
        raise OneArenaError(
            f"{program.name}: {(kernels + foreign)[0]} in method {method.name!r} may use the temporary allocator, "
            "which would lie over planned tensors; compile it without --emit one-arena"
        )


def _lift_delegate(one: EthosUCall) -> LiftedCall | None:
    try:
        return lift_call(one)
    except NpuMemplanError:
        return None


class _Arena:
    """One problem; `slack` as in `replan_scratch`, None: the streams stay as they are. `merges`: inputs and outputs of
    delegates lie where the streams have them, as far as possible."""

    def __init__(
        self,
        method: Method,
        calls: Sequence[EthosUCall],
        lifted: Mapping[int, LiftedCall | None],
        usage: Mapping[Delegate, int],
        slack: int | None,
        merges: bool = True,
    ) -> None:
        self.method, self.slack = method, slack
        self.starts, _ = points_of(method, {p: one.program for p, one in lifted.items() if one is not None})
        self.blocks = tensor_blocks(method)
        self.home = {value: number for number, block in enumerate(self.blocks) for value in block.members}
        self.calls = []
        for one in calls:
            moves = slack is not None and lifted[one.position] is not None
            moves = moves and usage[one.method.delegates[one.delegate]] == 1
            start, stop = self.starts[one.position], self.starts[one.position + 1] - 1
            self.calls.append(_Call(one, lifted[one.position], start, stop, moves))
        self.first = {n: self._point(block.first) for n, block in enumerate(self.blocks)}
        self.end = {n: self._point(block.last) for n, block in enumerate(self.blocks)}
        self.fixed: dict[int, int] = {}
        for call in self.calls if merges else ():
            self._merge(call)

    def _point(self, instruction: int) -> int:
        return self.starts[min(instruction, len(self.starts) - 1)]

    # -- inputs and outputs that lie where the stream has them ------------------------------------------

    def _merge(self, call: _Call) -> None:
        inputs = len(call.one.blocks.inputs)
        slots = (*call.one.blocks.inputs, *call.one.blocks.outputs)
        taken: set[int] = set()
        names = [str(number) for number in range(len(slots))] if call.lifted is None else call.lifted.slots
        for number, (value, name, slot) in enumerate(zip(call.one.arguments, names, slots, strict=True)):
            home, tensor = self.home.get(value), self.method.tensor(value)
            if home is None or tensor is None or home in taken or tensor.size_bytes != slot.size_bytes:
                continue
            block = self.blocks[home]
            fits = self._fits_input(call, name, block) if number < inputs else block.first == call.one.position
            offset = slot.offset_bytes - block.members[value]
            if block.memory != ARENA or not fits or (not call.moves and not self._can_be_fixed(call, block, offset)):
                continue
            taken.add(home)
            call.merged[name] = (home, block.members[value])
            if not call.moves:
                self.fixed[home] = offset
            live = None if call.lifted is None else call.lifted.program.live_ranges().get(name)
            if live is None or len(block.members) > 1:
                continue
            if number >= inputs:
                self.first[home] = call.start + 1 + live[0]
            elif block.last == call.one.position + 1:  # the stream may overwrite it once it has read it
                self.end[home] = min(call.start + 1 + live[1] + (self.slack or 0), call.stop) + 1

    def _fits_input(self, call: _Call, name: str, block: TensorBlock) -> bool:
        """Whether the tensor may lie in the scratch: it ends here, or the stream only reads it."""
        if block.last == call.one.position + 1:
            return True
        if call.lifted is None:
            return False
        program = call.lifted.program
        return not any((name, True) in program.buffers_of(index) for index in range(len(program.operations)))

    def _can_be_fixed(self, call: _Call, block: TensorBlock, offset: int) -> bool:
        """Whether nothing else in a stream that stays as it is can meet it: no other call while it is needed."""
        meets = [one for one in self.calls if block.first <= one.one.position < block.last]
        ends = block.last == call.one.position + 1 or block.first == call.one.position
        return offset >= 0 and len(meets) == 1 and ends and len(block.members) == 1

    # -- the problem ------------------------------------------------------------------------------------

    def plan_tensors(self) -> SharedArena | None:
        """None where the streams that stay leave no room for the tensors."""
        merged = {home for call in self.calls for home, _ in call.merged.values()}
        buffers = [self._tensor(number, number in merged) for number in range(len(self.blocks))]
        overlaps: list[AllowedOverlap] = []
        for call in self.calls:
            buffers += self._call_buffers(call)
            overlaps += self._overlaps(call) if call.moves else _placed_so(call, self.fixed)
        ids = sorted({ARENA, *(block.memory for block in self.blocks)})
        pools = tuple(Pool(_pool(memory), alignment=ALIGNMENT) for memory in ids)
        try:
            found = plan(Problem(tuple(buffers), pools, overlaps=tuple(overlaps), name=self.method.name))
        except PlanningError:
            return None
        return self._result(found)

    def _tensor(self, number: int, merged: bool) -> Buffer:
        block, pool = self.blocks[number], _pool(self.blocks[number].memory)
        life = Lifetime(self.first[number], max(self.end[number], self.first[number] + 1))
        fixed = (pool, self.fixed[number]) if number in self.fixed else None
        return Buffer(f"t{number}", block.size_bytes, (life,), ALIGNMENT, (pool,), fixed=fixed)

    def _call_buffers(self, call: _Call) -> Iterator[Buffer]:
        pool, life = _pool(ARENA), Lifetime(call.start, call.stop + 1)
        if call.lifted is None:
            yield Buffer(_name(call, ""), call.one.blocks.scratch_bytes, (life,), 1, (pool,), fixed=(pool, 0))
            return
        live = call.lifted.program.live_ranges()
        for buffer in call.lifted.contents:
            if buffer.name in call.merged:
                continue
            slack = self.slack or 0
            first, last = (call.start + 1 + time for time in live.get(buffer.name, (-1, -1)))
            first, last = max(first - slack, call.start), min(last + slack, call.stop)
            first = call.start if buffer.role in (BufferRole.INPUT, BufferRole.STATE) else first
            last = call.stop if buffer.role in (BufferRole.OUTPUT, BufferRole.STATE) else last
            fixed = None if call.moves else (pool, buffer.original_offset)
            alignment = buffer.alignment if call.moves else 1
            yield Buffer(_name(call, buffer.name), buffer.size_bytes, (Lifetime(first, last + 1),), alignment, (pool,),
                         fixed=fixed)  # fmt: skip

    def _overlaps(self, call: _Call) -> Iterator[AllowedOverlap]:
        """Proven for one call: not of a tensor that is needed after it, nor of one in a block of several."""
        assert call.lifted is not None
        names = {buffer.name: _name(call, buffer.name) for buffer in call.lifted.contents}
        for name, (home, _) in call.merged.items():
            block = self.blocks[home]
            whole = len(block.members) == 1 and block.size_bytes == call.lifted.program.buffer(name).size_bytes
            after = block.first != call.one.position and block.last != call.one.position + 1
            if whole and not after:
                names[name] = f"t{home}"
            else:
                del names[name]
        for found in find_overlaps(call.lifted.program):
            one = found.allowed
            if one.first in names and one.second in names:
                yield replace(one, first=names[one.first], second=names[one.second])

    # -- what comes of it -------------------------------------------------------------------------------

    def _result(self, found: Plan) -> SharedArena:
        offsets = {placement.buffer: placement.offset_bytes for placement in found.placements}
        tensors = {
            value: PlannedPlace(block.memory, offsets[f"t{number}"] + offset)
            for number, block in enumerate(self.blocks)
            for value, offset in block.members.items()
        }
        tensors |= {t.value: PlannedPlace(t.memory, 0) for t in placed_tensors(self.method) if not t.size_bytes}
        used = {int(one.pool): -(-one.used_bytes // ALIGNMENT) * ALIGNMENT for one in found.usage}
        sizes = {memory: used.get(memory, 0) for memory in {*self.method.planned_bytes, ARENA}}
        delegates: dict[Delegate, bytes] = {}
        cycles = before = copied = copied_before = 0
        for call in self.calls:
            sizes[ARENA] = max(sizes[ARENA], 0 if call.moves else call.one.blocks.scratch_bytes)
            usual = call.lifted.cycles() if call.lifted is not None else 0
            before, spent = before + usual, usual
            places = {} if call.lifted is None else self._places(call, offsets)
            if call.moves:
                assert call.lifted is not None
                commands: Commands = call.lifted.commands(places)
                spent = call.lifted.cycles(commands)
                delegates[call.one.method.delegates[call.one.delegate]] = call.lifted.data(commands, places)
            cycles += spent
            slots = (*call.one.blocks.inputs, *call.one.blocks.outputs)
            copied_before += sum(slot.size_bytes for slot in slots)
            copied += sum(
                slot.size_bytes
                for number, (slot, value) in enumerate(zip(slots, call.one.arguments, strict=True))
                if tensors.get(value) != PlannedPlace(ARENA, _slot_place(call, number, places))
            )
        bound = max(one.lower_bound_bytes for one in found.usage if one.pool == _pool(ARENA))
        made = ReplannedTensors(tensors, sizes)
        return SharedArena(self.method, made, delegates, bound, cycles, before, copied, copied_before)

    def _places(self, call: _Call, offsets: Mapping[str, int]) -> dict[str, int]:
        """The place of each of a call's buffers in the scratch, which is where it lies in the arena."""
        assert call.lifted is not None
        places = {}
        for buffer in call.lifted.contents:
            if buffer.name in call.merged:
                home, offset = call.merged[buffer.name]
                places[buffer.name] = offsets[f"t{home}"] + offset
            else:
                places[buffer.name] = offsets[_name(call, buffer.name)]
        return places


def _slot_place(call: _Call, number: int, places: Mapping[str, int]) -> int:
    slots = (*call.one.blocks.inputs, *call.one.blocks.outputs)
    return places[call.lifted.slots[number]] if call.moves and call.lifted is not None else slots[number].offset_bytes


def _placed_so(call: _Call, fixed: Mapping[int, int]) -> Iterator[AllowedOverlap]:
    """Buffers of a stream that stays as it is, which share bytes while both are held, as its compiler put them."""
    if call.lifted is None:
        places = {_name(call, ""): 0, **{f"t{home}": fixed[home] for home, _ in call.merged.values()}}
        for (first, here), (second, there) in itertools.combinations(places.items(), 2):
            yield AllowedOverlap(first, second, there - here, there - here, "placed so in the file")
        return
    program = call.lifted.program
    live = program.live_ranges()
    names = {b.name: f"t{call.merged[b.name][0]}" if b.name in call.merged else _name(call, b.name)
             for b in call.lifted.contents}  # fmt: skip
    for number, one in enumerate(call.lifted.contents):
        for other in call.lifted.contents[:number]:
            distance = other.original_offset - one.original_offset
            if -other.size_bytes < distance < one.size_bytes and one.name in live and other.name in live:
                yield AllowedOverlap(names[one.name], names[other.name], distance, distance, "placed so in the file")


def _pool(memory: int) -> str:
    return str(memory)


def _name(call: _Call, buffer: str) -> str:
    return f"c{call.one.position}.{buffer}"
