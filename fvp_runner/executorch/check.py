"""All checks of one `.pte` file for one board: delegates, pools, copies, then a run.

Invariant: every check is made, whatever one before it found; a pool that is too small is named with the bytes that it
lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from npu_memplan.errors import NpuMemplanError
from npu_memplan.executorch.board import PoolNeed, fit_pools, memories_for, options_for
from npu_memplan.executorch.memory_map import live_bytes, placed_tensors
from npu_memplan.executorch.replanning import ARENA, require_own_scratch
from npu_memplan.files.arrays import InputError
from npu_memplan.models.executorch.delegates import ALIGNMENT, BACKEND, EthosUCall, npu_calls
from npu_memplan.models.executorch.program import ExecutorchProgram, Method, PlannedPlace
from npu_memplan.models.network import Network
from npu_memplan.sizes import count_text
from npu_memplan.target_data import Board, load_memory_mode

from .. import vela_check
from ..npu_model.errors import NpuModelError
from ..npu_model.model import NpuModel
from ..vela_check import Level, Remark
from .model import ExecutorchModel, Given, fast_scratch_bytes, method_inputs, same_outputs, simulate_method

PLANNED, TEMP, FAST = "planned", "temp", "fast"  # names of the firmware's pools


@dataclass(frozen=True, slots=True)
class FirmwarePools:
    """A user's description of the firmware: operators that it registers (none: unknown), sizes of its pools by name,
    whether the scratch lies in planned buffer 1 (`compile --emit one-arena`)."""

    registered: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    one_arena: bool = False


def check_program(program: ExecutorchProgram, board: Board, requested: FirmwarePools, given: Given) -> list[Remark]:
    """Every finding, in the order in which a firmware would meet them."""
    calls = npu_calls(program)
    found = [*_check_backends(program), *_check_operators(program, requested)]
    remedy = f"export the model again with EthosUCompileSpec({board.accelerators[-1]!r})"
    for one in calls:
        found += [*vela_check.check_accelerators(one.network, board, remedy), *_check_delegate(one)]
    found += [
        *_check_planned_memory(program),
        *_check_pools(program, calls, requested, board),
        *_check_copies(calls, requested.one_arena),
    ]
    for method in program.methods:
        if any(one.method is method for one in calls):
            found += _in_one_arena(program, method, given) if requested.one_arena else ()
            found += _check_run(program, method, board, given)
    return found


def _check_backends(program: ExecutorchProgram) -> Iterator[Remark]:
    names = [delegate.backend for method in program.methods for delegate in method.delegates]
    if BACKEND not in names:
        others = ", ".join(dict.fromkeys(names)) or "none"
        yield Remark(Level.WRONG, "delegates", f"no delegate is of {BACKEND} (of others: {others}): nothing of it runs "
                     "on the NPU; lower the model with EthosUPartitioner")  # fmt: skip
        return
    text = f"{names.count(BACKEND)} of {BACKEND}"
    foreign = [name for name in dict.fromkeys(names) if name != BACKEND]
    yield Remark(Level.RIGHT, "delegates", text + (f"; also {', '.join(foreign)}" if foreign else ""))


def _check_operators(program: ExecutorchProgram, requested: FirmwarePools) -> Iterator[Remark]:
    names = {i.name for m in program.methods for i in m.instructions if hasattr(i, "name")}
    needed = sorted(name for name in names if not name.startswith("executorch_prim::"))
    missing = [name for name in needed if requested.registered and name not in requested.registered]
    for name in missing:
        yield Remark(Level.WRONG, "operators", f"{name} is needed and not among the registered: the method does not "
                     "load; register its kernel")  # fmt: skip
    if not missing:
        listed = ", ".join(needed) or "no operator"
        yield Remark(Level.RIGHT, "operators", f"the firmware has to register {listed}")


def _check_delegate(one: EthosUCall) -> Iterator[Remark]:
    """One call: where its blocks are in the file, what its stream touches, whether waits are missing."""
    data = one.method.delegates[one.delegate]
    what = f"delegate {one.delegate} of method {one.method.name!r}"
    if data.file_offset % ALIGNMENT:
        yield Remark(Level.WRONG, "alignment", f"{what} begins at byte {data.file_offset:,}, "
                     f"{data.file_offset % ALIGNMENT} beyond a multiple of {ALIGNMENT}: it is refused")  # fmt: skip
    for tensor, index in zip(one.network.tensors, one.arguments, strict=True):
        known = one.method.tensor(index)
        if known is not None and known.size_bytes != tensor.size_bytes:
            level = Level.NOTE if tensor.dtype == known.dtype else Level.WRONG  # padded, or another type
            yield Remark(level, "copies", f"{tensor.name} of {what}: {tensor.dtype}, {tensor.size_bytes:,} bytes, but "
                         f"{known.dtype}, {known.size_bytes:,} bytes in the method")  # fmt: skip
        end, has = tensor.arena_offset + tensor.size_bytes, one.blocks.scratch_bytes
        if end > has:
            yield Remark(Level.WRONG, "scratch", f"{tensor.name} of {what} ends at byte {end:,} of its scratch, which "
                         f"has {has:,}: {end - has:,} too few; the runtime writes over other memory")  # fmt: skip
    try:
        network = _with_fast_scratch(one)
        yield from vela_check.check_regions(network)
        NpuModel(one.call.accelerator).prepare_stream(one.call.words)
    except NpuModelError as error:
        yield Remark(Level.WRONG, "hazards", f"operator {one.position}: {error}")
        return
    yield Remark(Level.RIGHT, "hazards", f"operator {one.position}: no kernel or transfer starts before what it "
                 "depends on has ended")  # fmt: skip


def _with_fast_scratch(one: EthosUCall) -> Network:
    call = replace(one.call, scratch_fast_bytes=fast_scratch_bytes(one))
    return replace(one.network, operators=(call,))


def _check_planned_memory(program: ExecutorchProgram) -> Iterator[Remark]:
    for method in program.methods:
        wrong = False
        for tensor in placed_tensors(method):
            has = method.planned_bytes.get(tensor.memory, 0)
            if tensor.end_bytes > has:
                wrong = True
                yield Remark(Level.WRONG, PLANNED, f"value {tensor.value} of method {method.name!r} ends at byte "
                             f"{tensor.end_bytes:,} of planned buffer {tensor.memory}, which has {has:,}: "
                             f"{tensor.end_bytes - has:,} too few")  # fmt: skip
        live = live_bytes(method)
        for buffer, size in method.planned_bytes.items():
            if size and not wrong:
                yield Remark(Level.RIGHT, PLANNED, f"buffer {buffer} of method {method.name!r}: {size:,} bytes, "
                             f"at most {live[buffer]:,} are needed at one time")  # fmt: skip


def _pool_needs(
    program: ExecutorchProgram, calls: Sequence[EthosUCall], board: Board, one_arena: bool
) -> list[PoolNeed]:
    """The pools that a firmware needs for all methods, which share them."""
    pools, constants = _preferred_memories(calls[0], board) if calls else ((), ())
    scratch = max((c.blocks.scratch_bytes for c in calls), default=0)
    needs = [
        PoolNeed(TEMP, 0 if one_arena else scratch, True, preferred=pools[:1]),
        PoolNeed(FAST, max((fast_scratch_bytes(c) for c in calls), default=0), True, preferred=pools[1:2]),
    ]
    buffers = sorted({buffer for method in program.methods for buffer in method.planned_bytes})
    for buffer in buffers:
        size, shared = max(m.planned_bytes.get(buffer, 0) for m in program.methods), one_arena and buffer == ARENA
        name = PLANNED if len(buffers) == 1 else f"{PLANNED}{buffer}"
        needs.append(PoolNeed(name, max(size, scratch) if shared else size, shared, preferred=pools[:1]))
    needs.append(PoolNeed("file", program.file_bytes, bool(calls), True, constants))
    return [need for need in needs if need.size_bytes]


def _preferred_memories(one: EthosUCall, board: Board) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Memories of the pools behind regions 1 and 2 and of constants, in the memory mode that it was compiled for."""
    try:
        mode = options_for(one, {}, str(board.path)).memory_mode
        placement = board.memory_placement(mode)
    except NpuMemplanError:  # another NPU than the board's, which has been said
        return (), ()
    pools = load_memory_mode(mode).pools
    return tuple(placement.pools[p][0] for p in pools if p in placement.pools), placement.constants


def _check_pools(
    program: ExecutorchProgram, calls: Sequence[EthosUCall], requested: FirmwarePools, board: Board
) -> Iterator[Remark]:
    needs = _pool_needs(program, calls, board, requested.one_arena)
    what = {TEMP: "the temporary allocator (scratch of the delegates)", FAST: "ethosu_fast_scratch", "file": "the file"}
    for need in needs:
        has = requested.sizes.get(need.name, requested.sizes.get(PLANNED) if need.name.startswith(PLANNED) else None)
        inside = ", the scratch inside," if requested.one_arena and need.npu else ""
        named = what.get(need.name, f"planned buffer {need.name.removeprefix(PLANNED) or 1}{inside}")
        if has is None:
            yield Remark(Level.NOTE, "pools", f"{need.name}: {named} needs {need.size_bytes:,} bytes")
        elif has < need.size_bytes:
            yield Remark(Level.WRONG, "pools", f"{need.name}: {named} needs {need.size_bytes:,} bytes, the pool has "
                         f"{has:,}: {need.size_bytes - has:,} too few")  # fmt: skip
        else:
            yield Remark(Level.RIGHT, "pools", f"{need.name}: {named} needs {need.size_bytes:,} of {has:,} bytes")
    fit = fit_pools(needs, board.memories)
    for need, home in fit.homes:
        if home is None:
            yield Remark(Level.WRONG, "memory", f"{need.name}: {need.size_bytes:,} bytes; board {board.name} has no "
                         "memory for it that the NPU reaches")  # fmt: skip
        elif need.preferred and home.name not in need.preferred and not fit.short:
            yield Remark(Level.NOTE, "memory", f"{need.name} lies in {home.name}: {', '.join(need.preferred)}, where "
                         "the delegates were compiled for, has too few bytes for all that lies there")  # fmt: skip
    for short, used in fit.short:
        inside = ", ".join(f"{n.name} {n.size_bytes:,}" for n, home in fit.homes if home is short)
        yield Remark(Level.WRONG, "memory", f"{short.name} of board {board.name} has {short.size_bytes:,} bytes, but "
                     f"{used:,} are to lie there ({inside}): {used - short.size_bytes:,} too few")  # fmt: skip
    if fit.fits:
        where = ", ".join(f"{need.name} in {home.name}" for need, home in fit.homes if home is not None)
        yield Remark(Level.RIGHT, "memory", f"fits board {board.name}: {where}; ExecuTorch's method allocator and the "
                     "firmware itself come on top")  # fmt: skip


def _check_copies(calls: Sequence[EthosUCall], one_arena: bool) -> Iterator[Remark]:
    if calls:
        inside = sum(_copied_bytes(c, c.inputs, c.call.inputs, one_arena) for c in calls)
        outside = sum(_copied_bytes(c, c.outputs, c.call.outputs, one_arena) for c in calls)
        text = f"{count_text(len(calls), 'call')} of delegates copy {inside:,} bytes into the scratch, "
        text += f"{outside:,} out of it"
        yield Remark(Level.NOTE, "copies", text)


def _copied_bytes(one: EthosUCall, values: Sequence[int], numbers: Sequence[int], one_arena: bool) -> int:
    """The bytes of tensors `values` of the method, `numbers` of the delegate, that one arena has to copy."""
    copied = 0
    for value, number in zip(values, numbers, strict=True):
        tensor, known = one.network.tensors[number], one.method.tensor(value)
        lies_there = known is not None and known.place == PlannedPlace(ARENA, tensor.arena_offset)
        copied += 0 if one_arena and lies_there else tensor.size_bytes
    return copied


def _in_one_arena(program: ExecutorchProgram, method: Method, given: Given) -> Iterator[Remark]:
    """Whether the method gives the same where its scratch lies over planned tensors, whatever its kernels do."""
    try:
        require_own_scratch(program, method)
        models = [ExecutorchModel(program, method, one_arena=inside, stand_ins=True) for inside in (False, True)]
        values = given(program.name, method_inputs(method, [*models[0].calls.values()]))
        apart, inside = (model.run(values).outputs for model in models)
    except InputError:  # the user's file, not the program
        raise
    except NpuMemplanError as error:
        yield Remark(Level.WRONG, "one arena", f"method {method.name!r}: {error}")
        return
    if same_outputs(apart, inside):
        yield Remark(Level.RIGHT, "one arena", f"method {method.name!r} gives the same outputs with its "
                     "scratch in planned buffer 1")  # fmt: skip
    else:
        yield Remark(Level.WRONG, "one arena", f"method {method.name!r} gives other outputs with its scratch in "
                     "planned buffer 1; write it with compile --emit one-arena")  # fmt: skip


def _check_run(program: ExecutorchProgram, method: Method, board: Board, given: Given) -> Iterator[Remark]:
    one = next(c for c in npu_calls(program) if c.method is method)
    fits = one.call.accelerator.name in board.accelerators
    try:
        where = memories_for(one, {}, str(board.path) if fits else "")
        ran = simulate_method(program, method, given, where, True)
    except InputError:
        raise
    except NpuMemplanError as error:
        yield Remark(Level.WRONG, "run", f"{type(error).__name__.removesuffix('Error')}: {error}")
        return
    cycles = sum(stats.cycles for stats in ran.stats)
    alone = f"; {', '.join(ran.missing)} were not run, so delegates had inputs of their own" if ran.missing else ""
    time = f"{cycles:,} estimated cycles"
    if fits:
        time += f", {1000 * cycles / where.clock_hz:.3f} ms at {where.clock_hz / 1e6:,.0f} MHz"
    yield Remark(Level.NOTE, "run", f"method {method.name!r} runs in our simulator, {time}{alone}; not compared")
