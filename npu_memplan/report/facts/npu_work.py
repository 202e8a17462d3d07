"""What the NPU does with the planned buffers (brick padding, copies, DMAs, operations by kind), and how long it takes.

Invariant: everything is read from the command streams that were written (src/<name>_npu.c), so a report describes what
will run, not what some earlier stage meant; operation j of a stream is point `first + j` of its call. An operation's
cycles are those by which it makes its stream longer, so they add up to the estimate of the inference. Kernels in a row
that fill one feature map channel by channel count as parts of one output: Vela splits so. Networks of several NPUs that
may run at the same time take at least what each takes by itself, and at most what it takes with every memory that
another NPU uses meanwhile served in turn (`ethosu.time.memory`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...artifact.files import Contention
from ...artifact.model import Artifact, ArtifactError, Call
from ...ethosu.arch import ACCELERATORS, Architecture, accelerator
from ...ethosu.program.access import FeatureMap
from ...ethosu.program.describe import MODES
from ...ethosu.stream.decode import Command, Operation, decode
from ...ethosu.stream.isa import BRICK_CHANNELS, Op, PoolMode, Register
from ...ethosu.time import (
    Described,
    Estimate,
    MemoryMap,
    Needs,
    Requester,
    Share,
    cycles_by_model,
    estimate,
    served_in_turn,
)
from ...files.paths import read_c
from ...names import c_identifier
from ...problem import Agent, Buffer, BufferKind, Plan
from ...sizes import count_text
from ...target_data import load_board

_STREAM = re.compile(r"uint32_t (\w+)_stream\[\d+\] = \{([^}]*)\}")
_WORD = re.compile(r"0x[0-9a-fA-F]{1,8}")
_INTERNAL = 1 << 8  # DMA region bit: the NPU's own memory (lookup tables)


@dataclass(frozen=True, slots=True)
class BrickPadding:
    """A feature map stored in bricks of 16 channels: `lost_bytes` of `size_bytes` hold nothing."""

    buffer: str
    channels: int
    stored_channels: int
    size_bytes: int
    lost_bytes: int


@dataclass(frozen=True, slots=True)
class ByteMove:
    """An operation that only moves bytes; `what` says which and between what."""

    point: int
    what: str
    buffer: str  # destination
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NpuFindings:
    """Paddings by buffer (largest loss first) and copies in program order."""

    paddings: tuple[BrickPadding, ...] = ()
    copies: tuple[ByteMove, ...] = ()


def npu_findings(artifact: Artifact, directory: Path | None) -> NpuFindings:
    """The findings in the streams next to plan.json, and host calls that come from no operator of the model."""
    where = _Where(artifact)
    paddings: dict[str, BrickPadding] = {}
    copies: list[ByteMove] = list(_host_extras(artifact, where))
    for point, operation in stream_operations(artifact, directory) if directory is not None else ():
        if operation.op is Op.DMA_START:
            copies.extend(_dma_moves(where, point, operation))
            continue
        view = FeatureMap.ofm(operation)
        name = where.find_buffer(view.region, view.bases[0], point)
        if view.brick and name is not None:
            found = _brick_padding(where, name, view)
            if found is not None and found.channels > getattr(paddings.get(name), "channels", 0):
                paddings[name] = found
        if name is not None and _only_moves(operation):
            copies.append(ByteMove(point, "copy by a 1x1 average pool", name, where.buffers[name].size_bytes))
    lost = sorted((p for p in paddings.values() if p.lost_bytes), key=lambda p: (-p.lost_bytes, p.buffer))
    return NpuFindings(tuple(lost), tuple(copies))


def stream_operations(artifact: Artifact, directory: Path) -> Iterator[tuple[int, Operation]]:
    """(point, operation) of every NPU call, in program order."""
    for call, commands in command_streams(artifact, directory):
        yield from enumerate((c for c in commands if isinstance(c, Operation)), call.points[0])


def command_streams(artifact: Artifact, directory: Path) -> Iterator[tuple[Call, tuple[Command, ...]]]:
    """The NPU's calls in program order, each with its stream."""
    streams: dict[str, str] = {}
    for path in sorted((directory / "src").glob("*_npu.c")):
        streams |= dict(_STREAM.findall(read_c(path)))
    for call in artifact.calls:
        text = streams.get(f"{artifact.name}_{c_identifier(call.function)}")
        if call.agent is Agent.NPU and text is not None:
            words = text.replace(",", " ").split()
            wrong = next((word for word in words if not _WORD.fullmatch(word)), None)
            if wrong is not None:
                raise ArtifactError(
                    f"{directory}: the command stream of {call.function} in src is damaged: {wrong[:20]!r} is no "
                    "word of 32 bits; compile the model again"
                )
            found = decode([int(word, 16) for word in words], accelerator(artifact.target.accelerator).language)
            operations = sum(isinstance(command, Operation) for command in found)
            if operations > call.points[1] - call.points[0]:
                raise ArtifactError(
                    f"{directory}: the command stream of {call.function} in src has {operations} operations, and its "
                    f"call in plan.json has {call.points[1] - call.points[0]} points; compile the model again"
                )
            yield call, found


_NAMES = {Op.CONV: "convolution", Op.DEPTHWISE: "depthwise convolution", Op.DMA_START: "DMA"}


def npu_labels(artifact: Artifact, directory: Path | None) -> dict[int, str]:
    """What the NPU does at each point of its calls, e.g. `depthwise convolution to 48x48x8`."""
    found = stream_operations(artifact, directory) if directory is not None else ()
    return {point: describe_operation(operation) for point, operation in found}


def describe_operation(operation: Operation) -> str:
    """E.g. `depthwise convolution to 48x48x8`, `DMA of 64 bytes`."""
    if operation.op is Op.DMA_START:
        return f"DMA of {operation[Register.DMA0_LEN]} bytes"
    view = FeatureMap.ofm(operation)
    return f"{kind_of(operation)} to {view.height}x{view.width}x{view.depth}"


def _operation_mode(operation: Operation) -> str:
    return MODES[operation.op](operation.parameter).name.lower()


def kind_of(operation: Operation) -> str:
    """The kind of an operation, e.g. `depthwise convolution`, `average pool`, `element-wise add`, `DMA`."""
    if operation.op is Op.POOL:
        return f"{_operation_mode(operation)} pool".replace("_", " ")
    if operation.op is Op.ELEMENTWISE:
        return f"element-wise {_operation_mode(operation)}"
    if operation.op is Op.RESIZE:
        return f"resize {_operation_mode(operation)}"
    return _NAMES[operation.op]


class _Where:
    """The buffer at an address of a region at a point."""

    def __init__(self, artifact: Artifact) -> None:
        placed = {p.buffer: p for p in artifact.plan.placements}
        region = dict(zip((p.name for p in artifact.problem.pools), artifact.regions, strict=True))
        self.buffers = {b.name: b for b in artifact.problem.buffers}
        self.low = {name: p.offset_bytes for name, p in placed.items()}
        self._by_region: dict[int, list[Buffer]] = {}
        for b in artifact.problem.buffers:
            self._by_region.setdefault(region[placed[b.name].pool], []).append(b)

    def find_buffer(self, region: int, address: int, point: int) -> str | None:
        """The youngest buffer that holds `address` at `point` (the written one, where two overlap on purpose)."""
        found = [
            (life.first, b.name)
            for b in self._by_region.get(region, ())
            if self.low[b.name] <= address < self.low[b.name] + b.size_bytes
            for life in b.lifetimes
            if life.first <= point < life.last
        ]
        return max(found, key=lambda born: born[0])[1] if found else None


def _brick_padding(where: _Where, name: str, view: FeatureMap) -> BrickPadding | None:
    """Padding of the buffer as far as this operation shows it (it may write a slice of the channels)."""
    if view.stride_y <= 0 or view.stride_c <= 0 or not view.depth:
        return None
    inside = (view.bases[0] - where.low[name]) % view.stride_y
    channels = inside // view.stride_c * BRICK_CHANNELS + view.depth
    bricks = -(-channels // BRICK_CHANNELS)
    size = where.buffers[name].size_bytes
    # the padding of the very last pixel may lie beyond the buffer's end: count pixels, not bricks
    pixels = -(-size // (bricks * BRICK_CHANNELS * view.element_bytes))
    lost = max(0, size - pixels * channels * view.element_bytes)
    return BrickPadding(name, channels, bricks * BRICK_CHANNELS, size, lost)


def _host_extras(artifact: Artifact, where: _Where) -> Iterator[ByteMove]:
    """Host calls whose name is no operator kind of the model: layout changes, copies, requantisations."""
    if not artifact.operators:
        return
    kinds = {o.kind.lower() for o in artifact.operators}
    kinds |= {row.function for row in artifact.host_layers if row.operator >= 0}
    for call in artifact.calls:
        name = call.function.rsplit("_", 1)[0] if call.function.rpartition("_")[2].isdigit() else call.function
        if call.agent is Agent.HOST and not {name, call.function} & kinds:
            for buffer in call.writes:
                known = where.buffers.get(buffer)
                yield ByteMove(call.points[0], f"host call {name}", buffer, known.size_bytes if known else 0)


def _dma_moves(where: _Where, point: int, operation: Operation) -> Iterator[ByteMove]:
    source, target = operation.get(Register.DMA0_SRC_REGION), operation.get(Register.DMA0_DST_REGION)
    if target & _INTERNAL:
        return  # a lookup table for the NPU's own memory: no pool is touched
    name = where.find_buffer(target, operation[Register.DMA0_DST], point)
    if name is None:
        return
    weights = where.buffers[name].kind is BufferKind.WEIGHTS or source == 0
    what = "weights brought to RAM by DMA" if weights else "feature map moved by DMA"
    yield ByteMove(point, what, name, operation[Register.DMA0_LEN])


def _only_moves(operation: Operation) -> bool:
    """A 1x1 average pool whose output has the zero point and size of its input: bytes move, values do not change."""
    if operation.op is not Op.POOL or operation.parameter != PoolMode.AVERAGE:
        return False
    if operation.get(Register.KERNEL_HEIGHT_M1) or operation.get(Register.KERNEL_WIDTH_M1):
        return False
    source, target = FeatureMap.ifm(operation), FeatureMap.ofm(operation)
    plain = operation.get(Register.ACTIVATION) == 0 and source.zero_point == target.zero_point
    raw = operation.get(Register.OFM_SCALE)  # a 32-bit scale below a 6-bit shift
    scale, shift = raw & 0xFFFFFFFF, raw >> 32 & 0x3F
    # 0x80000001 >> 31 rounds to the identity on every 8-bit and 16-bit value
    return plain and source.element_bytes == target.element_bytes and scale - (1 << shift) in (0, 1)


@dataclass(frozen=True, slots=True)
class NpuWork:
    """`count` operations of one kind with outputs of one size."""

    kind: str  # e.g. "depthwise convolution", "DMA"
    output: str  # e.g. "25x5x64", or "" for transfers
    count: int = 0
    cycles: int = 0  # estimated
    macs: int = 0


def operations_text(artifact: Artifact) -> str:
    """The counts as text: `5 NPU operations, 1 host call`."""
    return (
        f"{count_text(artifact.npu_operations, 'NPU operation')}, {count_text(artifact.host_operations, 'host call')}"
    )


def npu_work(artifact: Artifact, directory: Path | None) -> tuple[NpuWork, ...]:
    """The NPU's work in the order in which each kind and size begins; nothing without `directory`."""
    shares = [share for _, time in call_estimates(artifact, directory) for share in time.shares]
    found: dict[tuple[str, str], list[Share]] = {}
    for share, output in _output_shares(shares):
        found.setdefault((kind_of(share.operation), output), []).append(share)
    return tuple(
        NpuWork(*key, len(same), sum(s.cycles for s in same), sum(s.macs for s in same)) for key, same in found.items()
    )


def call_estimates(artifact: Artifact, directory: Path | None) -> Iterator[tuple[Call, Estimate]]:
    """The NPU's calls in program order, each with the estimate of its stream; nothing without `directory`."""
    npu, memory_map = ACCELERATORS.get(artifact.target.accelerator), artifact.memory_map
    if directory is not None and npu is not None and memory_map is not None:
        for call, commands in command_streams(artifact, directory):
            yield call, estimate(commands, npu, memory_map)


def describe_operations(call: Call, time: Estimate) -> Described:
    """Describe each operation of a call for a trace."""
    return [(describe_operation(s.operation), {"call": call.function, "macs": s.macs}) for s in time.shares]


def _output_shares(stream: Sequence[Share]) -> Iterator[tuple[Share, str]]:
    """Every operation with the size of the output it writes, or helps to write; transfers have none."""
    parts: list[tuple[Share, FeatureMap]] = []
    for share in stream:
        if share.is_transfer:
            yield share, ""
            continue
        view = FeatureMap.ofm(share.operation)
        if parts and not (parts[-1][0].operation.op is share.operation.op and _goes_on(parts[-1][1], view)):
            yield from _group_shares(parts)
            parts.clear()
        parts.append((share, view))
    yield from _group_shares(parts)


def _goes_on(first: FeatureMap, second: FeatureMap) -> bool:
    """Whether `second` holds the channels after `first`, of one feature map."""
    alike = all(
        getattr(first, name) == getattr(second, name)
        for name in ("region", "brick", "element_bytes", "height", "width", "stride_x", "stride_y", "stride_c")
    )
    if first.brick:
        step, room = -(-first.depth // BRICK_CHANNELS) * first.stride_c, first.stride_y
    else:
        step, room = first.depth * first.element_bytes, first.stride_x
    return alike and step < room and second.bases[0] - first.bases[0] == step


def _group_shares(parts: Sequence[tuple[Share, FeatureMap]]) -> Iterator[tuple[Share, str]]:
    depth = sum(view.depth for _, view in parts)
    return ((share, f"{view.height}x{view.width}x{depth}") for share, view in parts)


def multiplier_use(artifact: Artifact) -> float | None:
    """Share of the NPU's multiply-accumulates that the inference uses in its estimated time; None when unknown."""
    npu = ACCELERATORS.get(artifact.target.accelerator)
    if npu is None or not artifact.estimated_cycles or artifact.npu_macs is None:
        return None
    return artifact.npu_macs / (artifact.estimated_cycles * npu.macs)


@dataclass(frozen=True, slots=True)
class WorkChange:
    """The same work by two programs; a side that lacks it has a count of 0."""

    kind: str
    output: str
    before: NpuWork
    after: NpuWork

    @property
    def cycle_change(self) -> int:
        """Estimated cycles that `after` needs more."""
        return self.after.cycles - self.before.cycles


def work_changes(before: tuple[NpuWork, ...], after: tuple[NpuWork, ...]) -> tuple[WorkChange, ...]:
    """Both programs' work side by side, in the order of `before`, then of what only `after` does."""
    old, new = ({(w.kind, w.output): w for w in side} for side in (before, after))
    keys = dict.fromkeys([*old, *new])
    return tuple(WorkChange(*key, old.get(key, NpuWork(*key)), new.get(key, NpuWork(*key))) for key in keys)


def by_kind(changes: tuple[WorkChange, ...]) -> tuple[WorkChange, ...]:
    """The changes with outputs of all sizes taken together, the most cycles first."""
    kinds: dict[str, list[WorkChange]] = {}
    for change in changes:
        kinds.setdefault(change.kind, []).append(change)
    sums = (
        WorkChange(kind, "", _sum_work(kind, [c.before for c in same]), _sum_work(kind, [c.after for c in same]))
        for kind, same in kinds.items()
    )
    return tuple(sorted(sums, key=lambda c: -max(c.before.cycles, c.after.cycles)))


def _sum_work(kind: str, parts: list[NpuWork]) -> NpuWork:
    return NpuWork(kind, "", sum(w.count for w in parts), sum(w.cycles for w in parts), sum(w.macs for w in parts))


@dataclass(frozen=True, slots=True)
class WrittenNetwork:
    """One network that was written into `folder`; `npu` is the board of its NPU."""

    artifact: Artifact
    folder: Path
    npu: str

    @property
    def architecture(self) -> Architecture:
        return accelerator(self.artifact.target.accelerator)


def network_contention(
    networks: Mapping[str, WrittenNetwork], joint: Plan, together: Collection[tuple[str, str]]
) -> dict[str, Contention]:
    """The contention of networks that may run together with one of another NPU."""
    used = {usage.pool: usage.used_bytes for usage in joint.usage}
    constants = sum(one.artifact.constants_bytes + one.artifact.stream_bytes for one in networks.values())
    maps: dict[str, MemoryMap] = {}
    for name, one in networks.items():
        regions = dict(zip(one.artifact.regions, (p.name for p in one.artifact.problem.pools), strict=True))
        found = one.artifact.target.memory_map(regions, Needs(used, constants))
        if found is not None and one.artifact.target.board:
            maps[name] = found
    made = {}
    for name in maps:
        pairs = [{*pair} for pair in together if name in pair]
        partners = [n for n in maps if {name, n} in pairs and networks[n].npu != networks[name].npu]
        if partners:
            made[name] = _contention_beside(name, partners, networks, maps)
    return made


def _contention_beside(
    name: str, others: Iterable[str], networks: Mapping[str, WrittenNetwork], maps: Mapping[str, MemoryMap]
) -> Contention:
    own, own_map = networks[name], maps[name]
    users: dict[str, dict[str, Requester]] = {}  # by memory of ours and NPU
    for other in others:
        for memory in {m.name: m for m in (*maps[other].regions.values(), maps[other].stream)}.values():
            there = Requester(networks[other].architecture, maps[other].clock_hz, memory)
            for mine in {m.name for m in (*own_map.regions.values(), own_map.stream)}:
                if _memory_base(networks[other], memory.name) == _memory_base(own, mine):
                    users.setdefault(mine, {})[networks[other].npu] = there
    slower = {
        m.name: served_in_turn(Requester(own.architecture, own_map.clock_hz, m), list(users[m.name].values()))
        for m in (*own_map.regions.values(), own_map.stream)
        if m.name in users
    }
    shared = replace(
        own_map,
        regions={region: slower.get(m.name, m) for region, m in own_map.regions.items()},
        stream=slower.get(own_map.stream.name, own_map.stream),
    )
    streams = [(commands, own.architecture) for _, commands in command_streams(own.artifact, own.folder)]
    alone, most = (cycles_by_model(streams, where).values() for where in (own_map, shared))
    return Contention(min(alone), max(*alone, *most), own_map.clock_hz, tuple(others), tuple(sorted(users)))


def _memory_base(network: WrittenNetwork, memory: str) -> int:
    """The first byte of a memory, by which boards of one chip know it."""
    return load_board(network.artifact.target.board).memory(memory).base
