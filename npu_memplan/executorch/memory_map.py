"""The memory of an ExecuTorch method as its file has it: when its tensors are needed, where they are, what delegates
touch.

Invariant: every tensor and every buffer inside a stream lies where the file puts it; things that share bytes while both
are held are allowed to at that distance and no other, because the file says so, not because that was proven. A tensor
lives from the first instruction that names it to the last, inputs from the first instruction on, outputs to the last
one, and what has a value before the first inference (data in the file, or read before anything writes it) always;
tensors that share bytes on purpose (views, in-place operators) count once. Constants of a delegate keep their places;
so does what lies in the fast scratch, unless `fast_bytes` say that it may move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..artifact.model import Call
from ..errors import NpuMemplanError
from ..ethosu.program.hazards import schedule
from ..ethosu.program.program import BufferRole, NpuBuffer, NpuProgram
from ..ethosu.stream.decode import Command, decode
from ..ethosu.stream.encode import build_payload, encode
from ..ethosu.time import Estimate, estimate
from ..models.executorch.delegates import ALIGNMENT, SCRATCH_LIMIT_BYTES, EthosUCall, npu_calls, slots_data, with_blocks
from ..models.executorch.program import (
    VIEW,
    DelegateCall,
    ExecutorchProgram,
    JumpFalseCall,
    KernelCall,
    Method,
    MethodInstruction,
    MoveCall,
    values_of,
)
from ..models.network import Network
from ..models.vela import NpuCall
from ..problem import (
    Agent,
    AllowedOverlap,
    Buffer,
    BufferKind,
    Lifetime,
    Placement,
    Plan,
    PlanStatus,
    Pool,
    PoolUsage,
    Problem,
)
from ..vela.lift import LiftError, arguments, lift_program
from .board import memories_for

SCRATCH, FAST = 1, 2  # regions
_ANY_SIZE = 1 << 40
Commands: TypeAlias = "tuple[Command, ...]"
_NOTHING: Mapping[str, int] = {}


def with_fast_scratch(one: EthosUCall) -> Network:
    """The call with a memory of its own behind region 2, whose size no file says."""
    if not one.uses_fast_scratch:
        return one.network
    return replace(one.network, operators=(replace(one.call, scratch_fast_bytes=_ANY_SIZE),))


@dataclass(frozen=True, slots=True, eq=False)
class LiftedCall:
    """One call."""

    one: EthosUCall
    call: NpuCall
    program: NpuProgram
    contents: tuple[NpuBuffer, ...]  # what lies in the scratch
    slots: tuple[str, ...]  # the buffers of inputs and outputs in their order
    board: str = ""  # whose memories cycles are estimated with; empty: those that the delegate was compiled for
    fast_bytes: int = 0  # of the fast scratch, where contents that are no inputs or outputs may lie as well
    limit_bytes: int = 0  # the most bytes of scratch; 0: any number

    def commands(self, places: Mapping[str, int], fast: Mapping[str, int] = _NOTHING) -> Commands:
        """The stream with the contents at these bytes of the scratch, and of the fast scratch."""

        def place_of(name: str) -> tuple[int, int]:
            for region, known in ((SCRATCH, places), (FAST, fast)):
                if name in known:
                    return region, known[name]
            buffer = self.program.buffer(name)
            return buffer.original_region, buffer.original_offset

        placed = [self.program.place(index, place_of) for index in range(len(self.program.operations))]
        return schedule(placed, self.program.accelerator)

    def cycles(self, commands: Iterable[Command] | None = None) -> int:
        """An estimate; of its own stream by default."""
        if commands is None:
            commands = decode(self.call.words, self.call.accelerator.language)
        return estimate(commands, self.call.accelerator, memories_for(self.one, {}, self.board)).total

    def end_bytes(self, places: Mapping[str, int]) -> int:
        """The scratch that the contents need at these places."""
        end = max((places[b.name] + b.size_bytes for b in self.contents if b.name in places), default=0)
        return -(-end // ALIGNMENT) * ALIGNMENT

    def data(self, commands: Commands, places: Mapping[str, int]) -> bytes:
        """The delegate's bytes with that stream; `LiftError` where its blocks cannot state the places."""
        blocks, scratch_bytes = self.one.blocks, self.end_bytes(places)
        if scratch_bytes > SCRATCH_LIMIT_BYTES:
            raise LiftError(
                f"delegate {self.one.delegate} needs {scratch_bytes:,} bytes of scratch; its blocks state "
                f"{SCRATCH_LIMIT_BYTES:,} at most: export a smaller network, or split it"
            )
        old = (*blocks.inputs, *blocks.outputs)
        moved = [replace(slot, offset_bytes=places[name]) for slot, name in zip(old, self.slots, strict=True)]
        count = len(blocks.inputs)
        changed = {
            "cmd_data": build_payload(replace(self.call.payload, words=encode(commands))),
            "scratch_size": scratch_bytes.to_bytes(4, "little"),
            **({"inputs": slots_data(moved[:count])} if count else {}),
            **({"outputs": slots_data(moved[count:])} if len(moved) > count else {}),
        }
        return with_blocks(self.one.method.delegates[self.one.delegate], changed)


def lift_call(one: EthosUCall, board: str = "") -> LiftedCall:
    """`LiftError` where the stream, or what the delegate takes and gives, is not of separate buffers."""
    network = with_fast_scratch(one)
    call = network.npu_calls[0]
    program = lift_program(network, call)
    named = {argument.tensor: argument.name for argument in arguments(network, call)}
    count = len(one.blocks.inputs) + len(one.blocks.outputs)
    if len(named) != count:
        raise LiftError("it has inputs or outputs that lie over one another")
    unplanned = (BufferRole.CONSTANTS, BufferRole.LUT)
    contents = tuple(b for b in program.buffers if b.original_region == SCRATCH and b.role not in unplanned)
    return LiftedCall(one, call, program, contents, tuple(named[number] for number in range(count)), board)


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A planned tensor: its value in the method, its place, the instructions it lives for (half-open)."""

    value: int
    memory: int
    offset_bytes: int
    size_bytes: int
    first: int
    last: int

    @property
    def end_bytes(self) -> int:
        """One past its last byte."""
        return self.offset_bytes + self.size_bytes

    def shares(self, other: PlacedTensor) -> bool:
        """Whether the two have bytes in common while both are needed."""
        same = self.memory == other.memory and self.first < other.last and other.first < self.last
        return same and self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """Tensors that keep their distances: `members` are values with their offsets in the block."""

    memory: int
    size_bytes: int
    first: int
    last: int
    members: Mapping[int, int]


def placed_tensors(method: Method) -> tuple[PlacedTensor, ...]:
    """The planned tensors that anything names, in the order of the method's values."""
    lives = _with_aliases(method, _naming_spans(method))
    found = []
    for index in sorted(lives):
        tensor = method.tensor(index)
        if tensor is not None and tensor.place is not None:
            place = tensor.place
            found.append(PlacedTensor(index, place.memory_id, place.offset_bytes, tensor.size_bytes, *lives[index]))
    return tuple(found)


def tensor_blocks(method: Method) -> tuple[TensorBlock, ...]:
    """The placed tensors; those that share bytes while both are needed (the file says that they may) are one block."""
    placed = [tensor for tensor in placed_tensors(method) if tensor.size_bytes]
    owner = list(range(len(placed)))
    for number, one in enumerate(placed):
        for other in range(number):
            if one.shares(placed[other]):
                joined = (owner[number], owner[other])
                owner = [min(joined) if held in joined else held for held in owner]
    blocks = []
    for first in sorted(set(owner)):
        members = [one for one, held in zip(placed, owner, strict=True) if held == first]
        start = min(one.offset_bytes for one in members)
        blocks.append(
            TensorBlock(
                members[0].memory,
                max(one.end_bytes for one in members) - start,
                min(one.first for one in members),
                max(one.last for one in members),
                {one.value: one.offset_bytes - start for one in members},
            )
        )
    return tuple(blocks)


def _naming_spans(method: Method) -> dict[int, tuple[int, int]]:
    """The instructions (half-open) from the first to the last that names each tensor."""
    count = max(len(method.instructions), 1)
    lives: dict[int, tuple[int, int]] = {}
    states: set[int] = set()
    unclear: set[int] = set()  # first named by a delegate, as an input or an output
    for position, instruction in enumerate(method.instructions):
        written = _written(method, instruction)
        ends = instruction.arguments[:1] + instruction.arguments[-1:] if isinstance(instruction, KernelCall) else ()
        in_place = ends[0] if len(set(ends)) == 1 else -1
        for value in values_of(instruction):
            for index in method.tensors_in(value):
                if index not in lives and isinstance(instruction, DelegateCall):
                    unclear.add(index)
                elif (index not in lives and index not in written) or (index in unclear and in_place == value):
                    states.add(index)  # read first: a state, unless it is an input
                lives[index] = (lives.get(index, (position, 0))[0], position + 1)
    inputs = {i for value in method.inputs for i in method.tensors_in(value)}
    for index in inputs:
        lives[index] = (0, lives.get(index, (0, 1))[1])
    for index in (i for value in method.outputs for i in method.tensors_in(value)):
        lives[index] = (lives.get(index, (count - 1, 0))[0], count)
    for index in lives:
        tensor = method.tensor(index)
        if tensor is not None and (tensor.has_data or index in states - inputs):
            lives[index] = (0, count)
    return lives


def _written(method: Method, instruction: MethodInstruction) -> set[int]:
    """Tensors that an instruction may write without reading them: kernels name them last, but first where in place."""
    if isinstance(instruction, KernelCall) and instruction.arguments:
        return {*method.tensors_in(instruction.arguments[-1])} - {*method.tensors_in(instruction.arguments[0])}
    return set(values_of(instruction))


def _with_aliases(method: Method, lives: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Lifetimes in which a tensor lives as long as an alias of it, and all that a loop touches through the loop."""
    pairs, loops = [], []
    for position, instruction in enumerate(method.instructions):
        if isinstance(instruction, MoveCall):
            pairs.append((instruction.source, instruction.target))
        elif isinstance(instruction, KernelCall) and instruction.name == VIEW:
            pairs.append((instruction.arguments[0], instruction.arguments[-1]))
        elif isinstance(instruction, JumpFalseCall) and instruction.destination <= position:
            loops.append((instruction.destination, position + 1))
    changed = bool(pairs or loops)
    while changed:
        before = dict(lives)
        for pair in pairs:
            spans = [lives[index] for index in pair if index in lives]
            for index in pair if spans else ():
                lives[index] = (min(span[0] for span in spans), max(span[1] for span in spans))
        for start, end in loops:
            for index, (first, last) in lives.items():
                if first < end and start < last:
                    lives[index] = (min(first, start), max(last, end))
        changed = lives != before
    return lives


def live_bytes(method: Method) -> dict[int, int]:
    """Most bytes of each planned buffer that hold something needed at one time: no plan of these tensors has less."""
    tensors = placed_tensors(method)
    return {
        memory: most_held([(t.offset_bytes, t.end_bytes, t.first, t.last) for t in tensors if t.memory == memory])
        for memory in method.planned_bytes
    }


def most_held(placed: Sequence[tuple[int, int, int, int]]) -> int:
    """The most bytes that are held at one time; `placed`: first byte, end, first point, end, of each thing."""
    most = 0
    ordered = sorted(placed)
    for point in sorted({first for _, _, first, _ in ordered}):
        total = reached = 0
        for start, end, first, last in ordered:
            if first <= point < last:
                total += max(0, end - max(reached, start))
                reached = max(reached, end)
        most = max(most, total)
    return most


SCRATCH_POOL, FAST_POOL = "scratch", "fast_scratch"
_KINDS = {BufferRole.ROLLING: BufferKind.ROLLING, BufferRole.WEIGHTS: BufferKind.WEIGHTS}
_REGIONS = {1: SCRATCH_POOL, 2: FAST_POOL}


@dataclass(frozen=True, slots=True)
class MethodMemory:
    """The map of one method; `notes` say what it leaves out."""

    problem: Problem
    plan: Plan
    notes: tuple[str, ...]
    calls: tuple[Call, ...]  # kernels on the host, delegates on the NPU with their estimates
    delegates: tuple[Estimate, ...]  # of the NPU's calls


@dataclass(frozen=True, slots=True)
class _Thing:
    """Something in memory."""

    buffer: Buffer
    pool: str
    offset_bytes: int

    @property
    def span(self) -> tuple[int, int, int, int]:
        life = self.buffer.lifetimes[0]
        return self.offset_bytes, self.offset_bytes + self.buffer.size_bytes, life.first, life.last


def memory_of(program: ExecutorchProgram, method: Method) -> MethodMemory:
    """All memory of `method`: an instruction is one point, a delegate two and one for each operation."""
    lifted: dict[int, NpuProgram] = {}
    notes: list[str] = []
    calls = {one.position: one for one in npu_calls(program) if one.method is method}
    for position, one in calls.items():
        try:
            network = with_fast_scratch(one)
            lifted[position] = lift_program(network, network.npu_calls[0])
        except NpuMemplanError as error:
            notes.append(f"the contents of the scratch at instruction {position} are not shown: {error}")
    starts, points = points_of(method, lifted)
    things = list(_planned_things(method, starts))
    for position, one in calls.items():
        things += _scratch_things(one, lifted.get(position), starts[position], starts[position + 1])
    sizes = {_planned_pool(memory): size for memory, size in method.planned_bytes.items()}
    sizes[SCRATCH_POOL] = max((one.blocks.scratch_bytes for one in calls.values()), default=0)
    things = [thing for thing in things if thing.buffer.size_bytes]
    pools = list(dict.fromkeys([name for name, size in sizes.items() if size] + [thing.pool for thing in things]))
    problem = Problem(
        tuple(thing.buffer for thing in things),
        tuple(Pool(name, sizes.get(name) or None, 16) for name in pools),
        overlaps=tuple(_overlaps(things)),
        points=tuple(points),
        name=f"{program.name}:{method.name}",
    )
    placements = tuple(Placement(t.buffer.name, t.pool, t.offset_bytes) for t in things)
    usage = []
    for name in pools:
        spans = [thing.span for thing in things if thing.pool == name]
        usage.append(PoolUsage(name, max((span[1] for span in spans), default=0), most_held(spans)))
    plan = Plan(placements, tuple(usage), PlanStatus.FEASIBLE, "the file's own")
    times = {position: _estimate(one) for position, one in calls.items()}
    described = _calls(method, starts, {buffer.name for buffer in problem.buffers}, calls, times)
    return MethodMemory(problem, plan, tuple(notes), tuple(described), tuple(times.values()))


def _estimate(one: EthosUCall) -> Estimate:
    """The time of a delegate's stream, in the memories that its specs name."""
    npu = one.call.accelerator
    return estimate(decode(one.call.words, npu.language), npu, memories_for(one, {}))


def _calls(
    method: Method, starts: Sequence[int], known: Collection[str], calls: Mapping[int, EthosUCall],
    times: Mapping[int, Estimate],
) -> Iterator[Call]:  # fmt: skip
    """Kernels and delegates with the planned tensors that they read and write."""
    for position, instruction in enumerate(method.instructions):
        points = starts[position], starts[position + 1]
        if not isinstance(instruction, KernelCall | DelegateCall):
            continue
        inputs, outputs = _ends(instruction, calls.get(position))
        reads, writes = (
            tuple(f"value{i}" for value in values for i in method.tensors_in(value) if f"value{i}" in known)
            for values in (inputs, outputs)
        )
        if isinstance(instruction, KernelCall):
            yield Call(instruction.name, Agent.HOST, reads, writes, points)
            continue
        time = times.get(position)
        name = f"delegate {instruction.delegate}"
        cycles, macs = (None, None) if time is None else (time.total, time.macs)
        yield Call(name, Agent.NPU, reads, writes, points, cycles, macs)


def _ends(instruction: KernelCall | DelegateCall, one: EthosUCall | None) -> tuple[Sequence[int], Sequence[int]]:
    """Values that an instruction reads and writes; kernels name what they write last."""
    if one is not None:
        return one.inputs, one.outputs
    return instruction.arguments[:-1], instruction.arguments[-1:]


def _planned_pool(memory: int) -> str:
    return f"planned{memory}"


def points_of(method: Method, lifted: dict[int, NpuProgram]) -> tuple[list[int], list[str]]:
    """The first point of each instruction (and the end), and what happens at each point."""
    starts, labels = [0], []
    for position, instruction in enumerate(method.instructions):
        if isinstance(instruction, KernelCall):
            labels.append(f"{position} {instruction.name}")
        elif isinstance(instruction, DelegateCall):
            backend = method.delegates[instruction.delegate].backend
            operations = lifted[position].operations if position in lifted else ()
            labels.append(f"{position} {backend}: copies inputs")
            labels += [f"{position} {backend}: {number} {one.op.name}" for number, one in enumerate(operations)]
            labels.append(f"{position} {backend}: copies outputs")
        else:
            labels.append(f"{position} {type(instruction).__name__}")
        starts.append(len(labels))
    return starts, labels or ["0"]


def _planned_things(method: Method, starts: Sequence[int]) -> Iterator[_Thing]:
    inputs = {i for value in method.inputs for i in method.tensors_in(value)}
    outputs = {i for value in method.outputs for i in method.tensors_in(value)}
    for tensor in placed_tensors(method):
        index = tensor.value
        kind = BufferKind.INPUT if index in inputs else BufferKind.OUTPUT if index in outputs else BufferKind.TENSOR
        first = starts[min(tensor.first, len(starts) - 1)]
        last = max(starts[min(tensor.last, len(starts) - 1)], first + 1)
        buffer = Buffer(f"value{index}", tensor.size_bytes, (Lifetime(first, last),), 1,
                        (_planned_pool(tensor.memory),), kind=kind)  # fmt: skip
        yield _Thing(buffer, _planned_pool(tensor.memory), tensor.offset_bytes)


def _scratch_things(one: EthosUCall, lifted: NpuProgram | None, start: int, end: int) -> Iterator[_Thing]:
    """The contents of the scratch while a delegate runs, from point `start` to `end`."""
    label = f"call{one.position}"
    if lifted is None:
        whole = Buffer(f"{label}.{SCRATCH_POOL}", one.blocks.scratch_bytes, (Lifetime(start, end),), 1,
                       (SCRATCH_POOL,), kind=BufferKind.NPU_INTERNAL)  # fmt: skip
        yield _Thing(whole, SCRATCH_POOL, 0)
        return
    live = lifted.live_ranges()
    for buffer in lifted.buffers:
        pool = _REGIONS.get(buffer.original_region)
        if pool is None or buffer.role in (BufferRole.CONSTANTS, BufferRole.LUT):
            continue
        first, last = live.get(buffer.name, (0, 0))
        begin = start if buffer.role is BufferRole.INPUT else start + 1 + first
        stop = end if buffer.role is BufferRole.OUTPUT else start + last + 2
        kind = _KINDS.get(buffer.role, BufferKind.NPU_INTERNAL)
        made = Buffer(f"{label}.{buffer.name}", buffer.size_bytes, (Lifetime(begin, max(stop, begin + 1)),), 1, (pool,),
                      kind=kind)  # fmt: skip
        yield _Thing(made, pool, buffer.original_offset)


def _overlaps(things: Sequence[_Thing]) -> Iterator[AllowedOverlap]:
    """Pairs that share bytes while both are held."""
    for number, a in enumerate(things):
        for b in things[number + 1 :]:
            if a.pool == b.pool and _lives_meet(a.span[:2], b.span[:2]) and _lives_meet(a.span[2:], b.span[2:]):
                distance = b.offset_bytes - a.offset_bytes
                yield AllowedOverlap(a.buffer.name, b.buffer.name, distance, distance, "placed so in the file")


def _lives_meet(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
