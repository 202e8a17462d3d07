"""Planned tensors and delegates' scratch in one arena.

Planned tensors and the contents of the delegates' scratch planned together, for firmware with one arena.

Invariant: the scratch of every delegate begins at byte 0 of planned buffer 1. A tensor that a delegate takes or gives
lies where the stream has it wherever that is possible, so that its copy is from a byte onto itself. On firmware with a
temporary allocator of its own the program gives the same results, in more memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import NpuMemplanError, RefusalError
from ..ethosu.program.overlap import find_overlaps
from ..ethosu.program.program import BufferRole
from ..models.executorch.delegates import ALIGNMENT, BACKEND, EthosUCall, npu_calls
from ..models.executorch.program import Delegate, ExecutorchProgram, KernelCall, Method, PlannedPlace
from ..planners import PlanningError, plan
from ..problem import AllowedOverlap, Buffer, Lifetime, Plan, Pool, Problem
from .memory_map import Commands, LiftedCall, TensorBlock, lift_call, placed_tensors, points_of, tensor_blocks
from .replanning import SLACKS, TOLERANCES, ReplannedTensors

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
        """Of planned buffer 1, the scratch included."""
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
        made = _Arena(method, calls, lifted, usage, slack, merges).planned()
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
            "which would lie over planned tensors; compile it without --one-arena"
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
        return not any((name, True) in program.touched(index) for index in range(len(program.operations)))

    def _can_be_fixed(self, call: _Call, block: TensorBlock, offset: int) -> bool:
        """Whether nothing else in a stream that stays as it is can meet it: no other call while it is needed."""
        meets = [one for one in self.calls if block.first <= one.one.position < block.last]
        ends = block.last == call.one.position + 1 or block.first == call.one.position
        return offset >= 0 and len(meets) == 1 and ends and len(block.members) == 1

    # -- the problem ------------------------------------------------------------------------------------

    def planned(self) -> SharedArena | None:
        """None where the streams that stay leave no room for the tensors."""
        merged = {home for call in self.calls for home, _ in call.merged.values()}
        buffers = [self._tensor(number, number in merged) for number in range(len(self.blocks))]
        overlaps: list[AllowedOverlap] = []
        for call in self.calls:
            buffers += self._contents(call)
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

    def _contents(self, call: _Call) -> Iterator[Buffer]:
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
        """Where each of a call's buffers lies in the scratch, which is where it lies in the arena."""
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
