"""One kernel as the estimate sees it: its shapes, blocks and windows, read from registers once.

Invariant: everything is taken from the operation's registers and the architecture; nothing depends on where it came
from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..arch import Architecture, Language, OutputKind, Shape
from ..program.access import AccessError, FeatureMap, Kernel, lut_index, results
from ..stream.decode import Operation
from ..stream.fields import Activation
from ..stream.isa import AccFormat, ElementwiseMode, Op, PoolMode, Register, Upscale
from .traits import Engine, Traits, u85_traits


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis of a kernel: its OFM blocks, and the input elements that each of them reads."""

    blocks: tuple[tuple[int, int], ...]  # (size, how many): whole blocks, then the rest
    reads: tuple[tuple[int, int], ...]  # (input elements, how many) of blocks and pieces of the window, without padding
    count: int  # of its blocks
    read: int  # input elements that all blocks read


@dataclass(frozen=True, slots=True)
class Extent:
    """One spatial axis of a kernel before it is cut into blocks."""

    size: int  # of the OFM
    source: int  # input elements
    window: tuple[int, int, int] | None = None  # stride, dilation and leading padding; None: element by element
    pieces: tuple[range, ...] = ()  # taps of each piece of a large kernel
    upscale: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel operation."""

    engine: Engine
    ofm: FeatureMap
    ifm: FeatureMap
    ifm2: FeatureMap | None
    extents: tuple[Extent, Extent]  # y, x
    y: Axis
    x: Axis
    depths: tuple[tuple[int, int], ...]  # OFM blocks in depth of one core: (channels, how many)
    depth_blocks: int  # of all cores together: they work on the same blocks
    block: Shape  # of the registers
    pieces: tuple[int, ...]  # kernel elements of each piece of a large kernel
    part_kernel: bool
    macs: int
    made: Shape  # results, wherever they go
    traits: Traits

    def in_blocks(self, block: Shape, part_kernel: bool) -> Work:
        """The same kernel in other OFM blocks, in the other order of its weights."""
        y, x, cores = *self.extents, self.traits.cores
        return Work(  # many blocks are tried: `replace` would take longer
            engine=self.engine,
            ofm=self.ofm,
            ifm=self.ifm,
            ifm2=self.ifm2,
            extents=self.extents,
            y=_axis(y, block.height),
            x=_axis(x, block.width),
            depths=_split(-(-self.made.depth // cores), -(-block.depth // cores)),
            depth_blocks=-(-self.made.depth // block.depth),
            block=block,
            pieces=self.pieces,
            part_kernel=part_kernel,
            macs=self.macs,
            made=self.made,
            traits=self.traits,
        )

    @property
    def ifm_bits(self) -> int:
        return 8 * self.ifm.element_bytes

    @property
    def blocks(self) -> int:
        return self.plane_blocks * self.depth_blocks

    @property
    def micro_depth(self) -> int:
        """Channels that a kernel which does not sum them makes one after the other."""
        return min(self.traits.micro.depth, self.block.depth) if self.traits.by_depth else self.block.depth

    @property
    def steps(self) -> int:
        """Pieces in which the outputs are made."""
        if self.sums_channels or self.engine is Engine.ELEMENTWISE or not self.traits.by_depth:
            return self.blocks
        return self.plane_blocks * sum(count * -(-depth // self.micro_depth) for depth, count in self.depths)

    @property
    def plane_blocks(self) -> int:
        """OFM blocks of one depth: how often the weights are read."""
        return self.y.count * self.x.count

    @property
    def sums_channels(self) -> bool:
        """Every OFM block reads all input channels."""
        return self.engine in (Engine.CONV, Engine.REDUCE_SUM)

    @property
    def slice_channels(self) -> int:
        """Input channels of one pass: a convolution goes over its input in such slices."""
        traits = self.traits
        return min(max(self.ifm.depth, 1), traits.part_slice if self.part_kernel else traits.deep_slice)

    @property
    def slices(self) -> int:
        """Passes over the input's channels for each OFM block."""
        return -(-max(self.ifm.depth, 1) // self.slice_channels) if self.sums_channels else 1


_MOST_ELEMENTS = 1 << 16  # of one kernel: what Vela lets a pool have
_ENGINES = {
    Op.CONV: Engine.CONV,
    Op.DEPTHWISE: Engine.DEPTHWISE,
    Op.ELEMENTWISE: Engine.ELEMENTWISE,
    Op.RESIZE: Engine.ELEMENTWISE,
}


def work_of(operation: Operation, accelerator: Architecture) -> Work:
    """Read a CONV, DEPTHWISE, POOL or ELEMENTWISE."""
    r = Register
    engine = _ENGINES.get(operation.op)
    if engine is None:
        engine = Engine.REDUCE_SUM if operation.parameter == PoolMode.REDUCE_SUM else Engine.POOL
    ofm, ifm, ifm2 = FeatureMap.ofm(operation), FeatureMap.ifm(operation), FeatureMap.ifm2(operation)
    block = Shape(*(operation[b] + 1 for b in (r.OFM_BLK_HEIGHT_M1, r.OFM_BLK_WIDTH_M1, r.OFM_BLK_DEPTH_M1)))
    made, traits = Shape(*results(operation)), _TRAITS[operation.language](operation, engine, (ifm, ofm), accelerator)
    cores = traits.cores
    kernel = None if engine is Engine.ELEMENTWISE else Kernel.from_registers(operation)
    part = kernel is not None and kernel.part_kernel_first and engine is Engine.CONV
    pieces: tuple[int, ...] = (1,)
    macs = 0
    if kernel is None:
        extents = (Extent(made.height, ifm.height), Extent(made.width, ifm.width))
    else:
        upscale = 1 if operation.get(r.IFM_UPSCALE) == Upscale.NONE else 2
        limit = accelerator.sub_kernel
        rows = _pieces((kernel.height - 1) // kernel.dilation_y + 1, limit // kernel.dilation_y)
        columns = _pieces((kernel.width - 1) // kernel.dilation_x + 1, limit // kernel.dilation_x)
        if len(rows) * len(columns) > _MOST_ELEMENTS // limit:  # 1 x 65,536 in parts of 1 x 8 are the most
            raise AccessError(
                f"{operation.op.name} at stream offset {operation.offset_bytes:#x} has a kernel of {kernel.height} x "
                f"{kernel.width} elements: more than any NPU takes; the stream is damaged"
            )
        pieces = tuple(len(a) * len(b) for a in rows for b in columns)
        down = (kernel.stride_y, kernel.dilation_y, kernel.pad_top)
        across = (kernel.stride_x, kernel.dilation_x, kernel.pad_left)
        extents = (
            Extent(made.height, ifm.height, down, rows, upscale),
            Extent(made.width, ifm.width, across, columns, upscale),
        )
        if engine in (Engine.CONV, Engine.DEPTHWISE):
            deep = ifm.depth if engine is Engine.CONV else 1
            macs = made.elements * sum(pieces) * deep
    return Work(
        engine=engine,
        ofm=ofm,
        ifm=ifm,
        ifm2=ifm2,
        extents=extents,
        y=_axis(extents[0], block.height),
        x=_axis(extents[1], block.width),
        depths=_split(-(-made.depth // cores), -(-block.depth // cores)),
        depth_blocks=-(-made.depth // block.depth),
        block=block,
        pieces=pieces,
        part_kernel=part,
        macs=macs,
        made=made,
        traits=traits,
    )


def _traits(
    operation: Operation, engine: Engine, maps: tuple[FeatureMap, FeatureMap], accelerator: Architecture
) -> Traits:
    (ifm, ofm), micro = maps, accelerator.ofm_micro
    single_row = (
        micro.height == 2
        and engine is Engine.CONV
        and ofm.height == 1
        and ofm.width % 2 == 0
        and operation[Register.KERNEL_HEIGHT_M1] == 0
    )
    bits = min(8 * ifm.element_bytes, 16)
    return Traits(
        micro=Shape(1, 4, micro.depth) if single_row else micro,
        acc40=operation.get(Register.ACC_FORMAT) == AccFormat.INT40 and engine is not Engine.ELEMENTWISE,
        looks_up=lut_index(operation) is not None
        or bool(Activation.FUNCTION.value_in(operation.get(Register.ACTIVATION))),
        clamps=_clamps(operation, ofm),
        turned=False,
        output=_output(operation, engine, ifm, ofm),
        cores=accelerator.cores if operation.get(Register.PARALLEL_MODE) else 1,
        taps=4 if engine is Engine.DEPTHWISE else 4 * 8 // bits,
        channels=accelerator.ifm_micro_depth,
        part_slice=16 * 8 // bits,
        deep_slice=32 * 8 // bits,
        by_depth=False,
    )


_TRAITS = {Language.U55_U65: _traits, Language.U85: u85_traits}


def _split(extent: int, block: int) -> tuple[tuple[int, int], ...]:
    whole, rest = divmod(extent, block)
    return (((block, whole),) if whole else ()) + (((rest, 1),) if rest else ())


def _pieces(taps: int, most: int) -> tuple[range, ...]:
    return tuple(range(start, min(start + most, taps)) for start in range(0, taps, max(most, 1)))


@lru_cache(4096)
def _axis(extent: Extent, block: int) -> Axis:
    blocks = _split(extent.size, block)
    if extent.window is None:
        return _count_blocks(blocks, _split(extent.source, block))
    stride, dilation, pad = extent.window
    reads: dict[int, int] = {}
    for start in range(0, extent.size, block):
        last = (min(start + block, extent.size) - 1) * stride
        for piece in extent.pieces:
            size = _count_inside(
                start * stride + piece.start * dilation - pad,
                last + (piece.stop - 1) * dilation + 1 - pad,
                extent.source,
                extent.upscale,
            )
            reads[size] = reads.get(size, 0) + 1
    return _count_blocks(blocks, tuple(reads.items()))


def _count_blocks(blocks: tuple[tuple[int, int], ...], reads: tuple[tuple[int, int], ...]) -> Axis:
    return Axis(blocks, reads, sum(n for _, n in blocks), sum(size * n for size, n in reads))


def _count_inside(first: int, last: int, source: int, upscale: int) -> int:
    """Count the elements of the input, `source` long, under enlarged positions `first` to `last`."""
    return max(0, min(-(-last // upscale), source) - max(first // upscale, 0))


def _clamps(operation: Operation, ofm: FeatureMap) -> bool:
    low, high = operation.get(Register.ACTIVATION_MIN), operation.get(Register.ACTIVATION_MAX)
    if ofm.element_bytes > 2:
        return False
    bits = 8 * ofm.element_bytes
    widest = (-(1 << bits - 1) & 0xFFFF, (1 << bits - 1) - 1) if ofm.signed else (0, (1 << bits) - 1)
    return (low, high) != widest


def _output(operation: Operation, engine: Engine, ifm: FeatureMap, ofm: FeatureMap) -> OutputKind:
    if engine is not Engine.ELEMENTWISE:
        if operation.get(Register.ACC_FORMAT) == AccFormat.INT40:
            return OutputKind.MUL
        maximum = engine is Engine.POOL and operation.parameter == PoolMode.MAX
        return OutputKind.MAX_POOL if maximum else OutputKind.OTHER
    mode = operation.elementwise
    if ifm.element_bytes == 4:
        return OutputKind.UNARY_32 if mode.is_unary else OutputKind.BINARY_32
    if mode is ElementwiseMode.MUL:
        return OutputKind.MUL_TO_32 if ofm.element_bytes == 4 else OutputKind.MUL
    return OutputKind.ADD if mode in (ElementwiseMode.ADD, ElementwiseMode.SUB) else OutputKind.OTHER


def sub_blocks(work: Work) -> Iterator[tuple[int, int, int, int]]:
    """(rows, columns, channels of one core, how many) of every kind of OFM block: at most eight."""
    for height, rows in work.y.blocks:
        for width, columns in work.x.blocks:
            for depth, deep in work.depths:
                yield height, width, depth, rows * columns * deep
