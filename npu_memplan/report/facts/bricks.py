"""What the NPU's operations do with the planned buffers: brick padding, copies, DMAs.

Invariant: everything is read from the command streams that were written (src/<name>_npu.c),
so a report describes what will run, not what some earlier stage meant. Operation j of a
stream is point `first + j` of its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...artifact import Artifact
from ...artifact.parts import ArtifactError, Call
from ...ethosu.arch import accelerator
from ...ethosu.program.featuremap import FeatureMap
from ...ethosu.stream.commands import Command, Operation
from ...ethosu.stream.decode import decode
from ...ethosu.stream.isa import BRICK_CHANNELS, Op, PoolMode, Register
from ...ethosu.stream.register_text import MODES
from ...files.paths import read_c
from ...names import identifier
from ...problem import Agent, Buffer, BufferKind

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
    """What the streams next to plan.json show (nothing without `directory`), and host calls that no
    operator of the model requested."""
    where = _Where(artifact)
    paddings: dict[str, BrickPadding] = {}
    copies: list[ByteMove] = list(_host_extras(artifact, where))
    for point, operation in operations(artifact, directory) if directory is not None else ():
        if operation.op is Op.DMA_START:
            copies.extend(_dma(where, point, operation))
            continue
        view = FeatureMap.ofm(operation)
        name = where.buffer(view.region, view.bases[0], point)
        if view.brick and name is not None:
            found = _padding(where, name, view)
            if found is not None and found.channels > getattr(paddings.get(name), "channels", 0):
                paddings[name] = found
        if name is not None and _only_moves(operation):
            copies.append(ByteMove(point, "copy by a 1x1 average pool", name, where.buffers[name].size_bytes))
    lost = sorted((p for p in paddings.values() if p.lost_bytes), key=lambda p: (-p.lost_bytes, p.buffer))
    return NpuFindings(tuple(lost), tuple(copies))


def operations(artifact: Artifact, directory: Path) -> Iterator[tuple[int, Operation]]:
    """(point, operation) of every NPU call, in program order."""
    for call, commands in command_streams(artifact, directory):
        yield from enumerate((c for c in commands if isinstance(c, Operation)), call.points[0])


def command_streams(artifact: Artifact, directory: Path) -> Iterator[tuple[Call, tuple[Command, ...]]]:
    """The NPU's calls in program order, each with its stream."""
    streams: dict[str, str] = {}
    for path in sorted((directory / "src").glob("*_npu.c")):
        streams |= dict(_STREAM.findall(read_c(path)))
    for call in artifact.calls:
        text = streams.get(f"{artifact.name}_{identifier(call.function)}")
        if call.agent is Agent.NPU and text is not None:
            words = text.replace(",", " ").split()
            wrong = next((word for word in words if not _WORD.fullmatch(word)), None)
            if wrong is not None:
                raise ArtifactError(
                    f"{directory}: the command stream of {call.function} in src is damaged: {wrong[:20]!r} is no "
                    "word of 32 bits; compile the model again"
                )
            yield call, decode([int(word, 16) for word in words], accelerator(artifact.target.accelerator).language)


_NAMES = {Op.CONV: "convolution", Op.DEPTHWISE: "depthwise convolution", Op.DMA_START: "DMA"}


def npu_labels(artifact: Artifact, directory: Path | None) -> dict[int, str]:
    """What the NPU does at each point of its calls, e.g. `depthwise convolution to 48x48x8`."""
    found = operations(artifact, directory) if directory is not None else ()
    return {point: describe_operation(operation) for point, operation in found}


def describe_operation(operation: Operation) -> str:
    """E.g. `depthwise convolution to 48x48x8`, `DMA of 64 bytes`."""
    if operation.op is Op.DMA_START:
        return f"DMA of {operation[Register.DMA0_LEN]} bytes"
    view = FeatureMap.ofm(operation)
    return f"{kind_of(operation)} to {view.height}x{view.width}x{view.depth}"


def _mode(operation: Operation) -> str:
    return MODES[operation.op](operation.parameter).name.lower()


def kind_of(operation: Operation) -> str:
    """What an operation does, e.g. `depthwise convolution`, `average pool`, `element-wise add`, `DMA`."""
    if operation.op is Op.POOL:
        return f"{_mode(operation)} pool".replace("_", " ")
    if operation.op is Op.ELEMENTWISE:
        return f"element-wise {_mode(operation)}"
    if operation.op is Op.RESIZE:
        return f"resize {_mode(operation)}"
    return _NAMES[operation.op]


class _Where:
    """Which buffer is at an address of a region at a point."""

    def __init__(self, artifact: Artifact) -> None:
        placed = {p.buffer: p for p in artifact.plan.placements}
        region = dict(zip((p.name for p in artifact.problem.pools), artifact.regions, strict=True))
        self.buffers = {b.name: b for b in artifact.problem.buffers}
        self.low = {name: p.offset_bytes for name, p in placed.items()}
        self._by_region: dict[int, list[Buffer]] = {}
        for b in artifact.problem.buffers:
            self._by_region.setdefault(region[placed[b.name].pool], []).append(b)

    def buffer(self, region: int, address: int, point: int) -> str | None:
        """The youngest buffer that holds `address` at `point` (the written one, where two overlap on purpose)."""
        found = [
            (life.first, b.name)
            for b in self._by_region.get(region, ())
            if self.low[b.name] <= address < self.low[b.name] + b.size_bytes
            for life in b.lifetimes
            if life.first <= point < life.last
        ]
        return max(found, key=lambda born: born[0])[1] if found else None


def _padding(where: _Where, name: str, view: FeatureMap) -> BrickPadding | None:
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
    for call in artifact.calls:
        name = call.function.rsplit("_", 1)[0] if call.function.rpartition("_")[2].isdigit() else call.function
        if call.agent is Agent.HOST and not {name, call.function} & kinds:
            for buffer in call.writes:
                known = where.buffers.get(buffer)
                yield ByteMove(call.points[0], f"host call {name}", buffer, known.size_bytes if known else 0)


def _dma(where: _Where, point: int, operation: Operation) -> Iterator[ByteMove]:
    source, target = operation.get(Register.DMA0_SRC_REGION), operation.get(Register.DMA0_DST_REGION)
    if target & _INTERNAL:
        return  # a lookup table for the NPU's own memory: no pool is touched
    name = where.buffer(target, operation[Register.DMA0_DST], point)
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
