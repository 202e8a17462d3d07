"""A delegate by native lowering, its weights copied to faster memory where there is room and time.

Invariant: inputs and outputs are those of Vela's blocks, in their order and with their shapes; regions are 0
(constants), 1 (scratch) and, where the memory mode has it, 2 (fast scratch). Nothing is shared in the scratch yet, and
nothing lies in the fast one: `replan_call` does that. TVM is not needed. A program with copies computes what it
computed without; while an operation runs, the maps and copies in the copies' memory have no more bytes than the limit.
Whether they have places within it is found by a plan of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import RefusalError
from ..ethosu.lowering import Lowered, LoweringTarget, lower
from ..ethosu.program.access import accesses
from ..ethosu.program.hazards import schedule
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.schedule.constants import Slicer, Slices, compact, constant_blocks, loaded_early
from ..ethosu.schedule.prefetch.copies import FreeCapacity, OccupiedRange, insert
from ..ethosu.schedule.prefetch.search import WORK, CopySearch, stretch_ranges
from ..ethosu.schedule.prefetch.timed_program import DemandCache, Place, TimedProgram
from ..ethosu.schedule.stripes.cascade_space import CascadeSpace, apply
from ..ethosu.stream.decode import Operation, decode
from ..ethosu.stream.encode import build_payload, encode
from ..ethosu.time import MODELS, MemoryMap
from ..executorch.board import memories_for, options_for
from ..executorch.memory_map import FAST, SCRATCH, LiftedCall
from ..executorch.replanning import ScratchGoal, place_contents
from ..frontend.tosa.layers import build_layers
from ..models.executorch.delegates import (
    ALIGNMENT,
    BACKEND,
    BlockSlot,
    EthosUCall,
    build_blocks,
    npu_calls,
    read_blocks,
    slots_data,
)
from ..models.executorch.program import Delegate, DelegateCall, ExecutorchProgram, Method, ValueTensor
from ..models.tensor import SIGNED
from ..models.tosa import read_tosa_graph
from ..tuning.cascades import best_choice

_PARTS = (4, 8, 16, 32)  # of the limit: weights of a slice
_LEAST_SLICE = 2048  # bytes
_FIRST = 8  # a part of the work: of every form, to see which are the best


@dataclass(frozen=True, slots=True)
class CopyBudget:
    """The budget of the search for copies: forms of a program, and work for each."""

    forms: int
    work: int  # in units of `prefetch.search.WORK`


BUDGETS = {"quick": CopyBudget(1, WORK // 8), "normal": CopyBudget(2, WORK), "max": CopyBudget(4, 4 * WORK)}


@dataclass(frozen=True, slots=True)
class CopySpace:
    """The room for copies: NPU `region` beside maps `names` that lie `where` they do, up to the limit."""

    memory_map: MemoryMap
    region: int
    where: Place
    names: frozenset[str]

    @property
    def is_faster(self) -> bool:
        """Whether the region lies in another memory than the constants: copies within one are of no use."""
        regions = self.memory_map.regions
        return regions[self.region].name != regions[0].name


def programs_with_copies(lowered: Lowered, space: CopySpace, limit_bytes: int, budget: CopyBudget) -> Iterator[Lowered]:
    """`lowered` with copies of constants within the limit, those of the fewest optimistic cycles by each model of time:
    convolutions whole, or with much weight in slices, which need less room at a time.
    """
    program = lowered.program
    if not space.is_faster or not constant_blocks(program):
        return
    held, forms = _held_ranges(program, space), tuple(_program_variants(lowered, limit_bytes))
    for model in MODELS:  # which one decides is known at the end only
        cache = DemandCache(program.accelerator, replace(space.memory_map, assumptions=model))
        searches = []
        for form, counts in forms:
            timed = TimedProgram(form.program, constant_blocks(form.program), space.where, cache, space.region)
            room = FreeCapacity(list(stretch_ranges(held, counts)), limit_bytes, len(timed))
            searches.append((CopySearch(timed, room), form))
        for work in (budget.work // _FIRST, budget.work):
            for search, _ in searches:
                search.search_on(work)
            searches = sorted(searches, key=lambda pair: pair[0].best.cycles)[: budget.forms]
        for search, form in searches:
            made, _ = insert(search.timed, search.best.copies, space.region, reblocked=True)
            if made is not form.program:
                yield Lowered(made, form.constants)


def _held_ranges(program: NpuProgram, space: CopySpace) -> list[OccupiedRange]:
    """The ranges that are held in the region while the program runs."""
    sizes, found = {b.name: b.size_bytes for b in program.buffers}, []
    for name, (first, last) in program.live_ranges().items():
        if name in space.names:
            _, start = space.where(name)
            found.append(OccupiedRange(first, last, start, start + sizes[name]))
    return found


def _program_variants(lowered: Lowered, limit_bytes: int) -> Iterator[tuple[Lowered, Sequence[int]]]:
    """The program, and with weights in slices; of each into how many operations it makes every one of the program."""
    program = lowered.program
    yield lowered, [1] * len(program.operations)
    slicer, seen = Slicer(program, Slices(lowered.constants)), [[1] * len(program.operations)]
    for part in _PARTS:
        parts = slicer.parts(max(limit_bytes // part, _LEAST_SLICE))
        counts = [len(made) for made in parts]
        if counts not in seen:
            seen.append(counts)
            yield Lowered(*compact(slicer.join_operations(parts), slicer.slices.all)), counts


_CONSTANTS = 0  # region
_SHARES = (1.0, 0.95, 0.9, 0.8)  # of the room for maps and copies, until what is found there has places within it


class NativeBlocksError(RefusalError):
    """A delegate has another interface natively than in Vela's blocks."""


def native_calls(tosa: bytes, vela: EthosUCall, goal: ScratchGoal) -> tuple[LiftedCall, ...]:
    """Calls that compute what the graph `tosa` does, like the call `vela` of Vela's: in stripes as far as they are of
    use, and whole, each with constants read in place and with copies of them; every buffer lies apart.

    Raises `TosaLayersError`, `LoweringError`, `NativeBlocksError`.
    """
    target, memory_map = vela.call.accelerator, memories_for(vela, {}, goal.board)
    graph = read_tosa_graph(tosa, f"delegate {vela.delegate}")
    layers, _ = build_layers(graph, target, "npu")
    lowered = lower(layers, target, LoweringTarget(memory_map=memory_map, for_cycles=goal.objective != "bytes"))
    fast_bytes = _fast_bytes(vela, goal)
    # in a fast scratch there are no inputs and outputs
    groups = CascadeSpace(lowered.program, memory_map=memory_map, io_in_pools=not fast_bytes)
    limits = [fast_bytes] if fast_bytes else _limits(vela, goal)
    chosen = dict.fromkeys([*(best_choice(groups, limit).groups for limit in limits), ()])
    calls: list[LiftedCall] = []
    for one in chosen:
        made = replace(lowered, program=apply(lowered.program, one, groups.costs.blocks)) if one else lowered
        calls.append(_call(made, vela, goal, fast_bytes))
        calls += _with_copies(made, calls[-1], vela, goal, memory_map)
    return tuple(calls)


def _with_copies(
    lowered: Lowered, call: LiftedCall, vela: EthosUCall, goal: ScratchGoal, memory_map: MemoryMap
) -> Iterator[LiftedCall]:
    """`lowered`, which is `call`, with copies of constants in the scratch: within the pool; or in no more bytes than
    Vela has; or, for the fewest bytes, in no more than without copies. None where feature maps lie in a fast scratch.
    """
    placed = None if call.fast_bytes else place_contents(call)
    if placed is None:
        return
    places, _, _ = placed
    most = goal.pool_bytes or (call.end_bytes(places) if goal.objective == "bytes" else vela.blocks.scratch_bytes)
    where = {b.name: (b.original_region, b.original_offset) for b in call.program.buffers}
    where |= {name: (SCRATCH, offset) for name, offset in places.items()}
    space = CopySpace(memory_map, SCRATCH, where.__getitem__, frozenset(places))
    early = replace(lowered, program=loaded_early(lowered.program))
    for share in _SHARES:
        made = programs_with_copies(early, space, int(most * share), BUDGETS[goal.effort])
        calls = [replace(_call(one, vela, goal, 0), limit_bytes=most) for one in made]
        fitting = [one for one in calls if place_contents(one) is not None]
        yield from fitting
        if fitting or not calls:
            return


def _limits(vela: EthosUCall, goal: ScratchGoal) -> list[int | None]:
    """Bytes within which stripes take the fewest cycles; None: bytes and cycles are weighed."""
    if goal.pool_bytes is not None:
        return [goal.pool_bytes]
    if goal.objective == "bytes":
        return [0]
    return [*([None] if goal.objective == "auto" else []), vela.blocks.scratch_bytes]


def _call(lowered: Lowered, vela: EthosUCall, goal: ScratchGoal, fast_bytes: int) -> LiftedCall:
    program, size = _apart(lowered.program)
    slots = _slots(program, vela)
    placed = [program.place(index, _home(program)) for index in range(len(program.operations))]
    count = len(vela.blocks.inputs)
    data = build_blocks(
        {
            "cmd_data": build_payload(replace(vela.call.payload, words=encode(schedule(placed, program.accelerator)))),
            "weight_data": lowered.constants,
            "scratch_size": size.to_bytes(4, "little"),
            "inputs": slots_data([slot for slot, _ in slots[:count]]),
            "outputs": slots_data([slot for slot, _ in slots[count:]]),
        }
    )
    one = npu_calls(delegate_program(data, vela.method.delegates[vela.delegate].specs))[0]
    contents = tuple(b for b in program.buffers if b.original_region == SCRATCH and b.role is not BufferRole.LUT)
    return LiftedCall(one, one.call, program, contents, tuple(name for _, name in slots), goal.board, fast_bytes)


def delegate_program(data: bytes, specs: Mapping[str, bytes]) -> ExecutorchProgram:
    """A program that calls the one delegate with these bytes."""
    delegate = Delegate(BACKEND, memoryview(data), 0, False, specs)
    blocks = read_blocks(delegate, {}, "the delegate")
    slots = (*blocks.inputs, *blocks.outputs)
    values = tuple(ValueTensor(SIGNED[s.element_bytes], s.element_bytes, s.shape, ()) for s in slots)
    numbers = tuple(range(len(slots)))
    inputs, outputs = numbers[: len(blocks.inputs)], numbers[len(blocks.inputs) :]
    method = Method("forward", values, inputs, outputs, (DelegateCall(0, numbers),), (delegate,), {})
    return ExecutorchProgram("delegate", len(data), (method,))


def _slots(program: NpuProgram, vela: EthosUCall) -> list[tuple[BlockSlot, str]]:
    """The inputs, then the outputs: where they lie, and their buffers."""
    blocks, ends = vela.blocks, (BufferRole.INPUT, BufferRole.OUTPUT)
    given, made = ([b for b in program.buffers if b.role is role] for role in ends)
    if (len(given), len(made)) != (len(blocks.inputs), len(blocks.outputs)):
        raise NativeBlocksError(f"delegate {vela.delegate} has another number of inputs or outputs in Vela's blocks")
    pairs = list(zip((*blocks.inputs, *blocks.outputs), (*given, *made), strict=True))
    if any(slot.size_bytes != buffer.size_bytes for slot, buffer in pairs):
        raise NativeBlocksError(f"delegate {vela.delegate} has inputs or outputs of other sizes in Vela's blocks")
    return [(replace(slot, offset_bytes=b.original_offset, region=SCRATCH), b.name) for slot, b in pairs]


def _fast_bytes(vela: EthosUCall, goal: ScratchGoal) -> int:
    """The bytes of fast scratch in the delegate's memory mode: its size, or what Vela's stream touches there."""
    pools = options_for(vela, {}, goal.board).planned_pools()
    if len(pools) < FAST:
        return 0
    size = pools[FAST - 1].size_bytes
    if size is not None:
        return size
    call = vela.call
    operations = [one for one in decode(call.words, call.accelerator.language) if isinstance(one, Operation)]
    touched = [one for operation in operations for one in accesses(operation, call.accelerator)]
    return max((int(one.ranges[-1, 1]) for one in touched if one.region == FAST and len(one.ranges)), default=0)


def _apart(program: NpuProgram) -> tuple[NpuProgram, int]:
    """`program` with every buffer at bytes of its own, and the bytes of the scratch."""
    buffers, size = [], 0
    for buffer in program.buffers:
        if buffer.role is BufferRole.CONSTANTS:
            buffers.append(replace(buffer, original_region=_CONSTANTS, original_offset=0))
        elif buffer.role is BufferRole.LUT:
            buffers.append(buffer)
        else:
            buffers.append(replace(buffer, original_region=SCRATCH, original_offset=size))
            size += -(-buffer.size_bytes // ALIGNMENT) * ALIGNMENT
    return replace(program, buffers=tuple(buffers)), size


def _home(program: NpuProgram) -> Callable[[str], tuple[int, int]]:
    """Region and byte of each buffer, by name."""
    homes = {b.name: (b.original_region, b.original_offset) for b in program.buffers}
    return homes.__getitem__
