"""The memory of a method as its file has it, as a problem and its plan: planned tensors, contents of the scratch.

Invariant: every tensor and every buffer inside a stream lies where the file puts it; things that share bytes while both
are held are allowed to at that distance and no other, because the file says so, not because that was proven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..artifact.parts import Call
from ..errors import NpuMemplanError
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.stream.decode import decode
from ..ethosu.time import Estimate, estimate
from ..models.executorch.program import DelegateCall, ExecutorchProgram, KernelCall, Method
from ..models.executorch.vela_network import EthosUCall, npu_calls
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
from ..vela.lift import lift
from .lifetimes import most_held, placed_tensors
from .lifted_call import with_fast_scratch
from .lowered_for import memories_for

SCRATCH, FAST = "scratch", "fast_scratch"
_KINDS = {BufferRole.ROLLING: BufferKind.ROLLING, BufferRole.WEIGHTS: BufferKind.WEIGHTS}
_REGIONS = {1: SCRATCH, 2: FAST}


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
    """Where everything in `method` lies; an instruction is one point, a delegate two and one for each operation."""
    lifted: dict[int, NpuProgram] = {}
    notes: list[str] = []
    calls = {one.position: one for one in npu_calls(program) if one.method is method}
    for position, one in calls.items():
        try:
            network = with_fast_scratch(one)
            lifted[position] = lift(network, network.npu_calls[0])
        except NpuMemplanError as error:
            notes.append(f"the contents of the scratch at instruction {position} are not shown: {error}")
    starts, points = points_of(method, lifted)
    things = list(_planned(method, starts))
    for position, one in calls.items():
        things += _inside(one, lifted.get(position), starts[position], starts[position + 1])
    sizes = {_planned_pool(memory): size for memory, size in method.planned_bytes.items()}
    sizes[SCRATCH] = max((one.blocks.scratch_bytes for one in calls.values()), default=0)
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


def _planned(method: Method, starts: Sequence[int]) -> Iterator[_Thing]:
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


def _inside(one: EthosUCall, lifted: NpuProgram | None, start: int, end: int) -> Iterator[_Thing]:
    """What lies in the scratch while a delegate runs, from point `start` to `end`."""
    label = f"call{one.position}"
    if lifted is None:
        whole = Buffer(f"{label}.{SCRATCH}", one.blocks.scratch_bytes, (Lifetime(start, end),), 1, (SCRATCH,),
                       kind=BufferKind.NPU_INTERNAL)  # fmt: skip
        yield _Thing(whole, SCRATCH, 0)
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
            if a.pool == b.pool and _meet(a.span[:2], b.span[:2]) and _meet(a.span[2:], b.span[2:]):
                distance = b.offset_bytes - a.offset_bytes
                yield AllowedOverlap(a.buffer.name, b.buffer.name, distance, distance, "placed so in the file")


def _meet(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
