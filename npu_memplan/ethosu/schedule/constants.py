"""Constants of a program: which kernels read which bytes, weights in slices of output channels, and look-up tables.

Invariant: every operation reads the same values and computes the same, channel by channel. A slice is some blocks deep,
so that nothing is read more often than before; or it is one block, shallower than those before, with its weights in the
order of such blocks. `compact` leaves out bytes that nothing reads; bytes that one register reaches stay together, in
the same order and at the same residue of an address. A table is loaded after the last kernel that reads what lay in its
bytes, and before the first that reads it; where operations are interleaved, before the first of them.

Order of weights, outermost first: blocks of output channels; slices of input channels (32 depth-first with 8 bits, else
16); constants of the kernel; part-kernel first: groups of 8 input channels; micro-blocks of output channels; the rest.
So everything of a block is runs of [repeats][micro-blocks][values], and other blocks have the same micro-blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ...problem.spans import merge_spans
from .. import weight_codec
from ..arch import Architecture, Language
from ..program.access import Kernel, is_indivisible, lut_span, weight_arrangement
from ..program.program import BufferRole, NpuOperation, NpuProgram, goes_on
from ..stream.decode import Operation
from ..stream.fields import IFM2, OFM, SCALES, WEIGHTS, InputPrecision, OutputPrecision, WeightWord
from ..stream.isa import BRICK_CHANNELS, Op, Register
from ..weight_order import WeightArrangement
from ..weight_order import weights_of as weights_in
from .rams import ceil_div, round_up

STREAMS = (*WEIGHTS, *SCALES)
REGIONS = frozenset({IFM2.region, *(stream.region for stream in STREAMS)})  # registers: where constants are read
GRAIN = 16  # bytes; constants start and copies are multiples of it
_SMALL = 64  # bytes of an operand that is copied together with its neighbours
Span = tuple[int, int]  # first byte in the constants, and one past the last


@dataclass(frozen=True, slots=True)
class ConstantBlock:
    """Constants that are copied together to a buffer of their own, because the same kernels read them."""

    constants: str  # the buffer they are in
    spans: tuple[Span, ...]  # ascending, apart; each is one transfer
    readers: tuple[int, ...]  # operations, ascending

    @property
    def size_bytes(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    def inner(self, offset: int) -> int:
        """The place of a byte of the constants in the copy."""
        at = 0
        for start, stop in self.spans:
            if start <= offset < stop:
                return at + offset - start
            at += stop - start
        raise ValueError(f"byte {offset} of {self.constants} is not in {self.spans}")

    def transfers(self, copy: str, operator: int) -> Iterator[NpuOperation]:
        """The operations that fill buffer `copy`."""
        for start, stop in self.spans:
            places = {Register.DMA0_SRC: (self.constants, start), Register.DMA0_DST: (copy, self.inner(start))}
            yield NpuOperation(Op.DMA_START, 0, {Register.DMA0_LEN: stop - start}, places, operator)

    def read_by(self, operation: NpuOperation, copy: str, start: int = 0) -> NpuOperation:
        """`operation`, a reader, with a copy read at byte `start` of buffer `copy`."""
        addresses = dict(operation.addresses)
        for stream in STREAMS:
            if stream.base in addresses:  # a core without channels: its registers must name the same region
                has_bytes = operation.registers.get(stream.length, 0)
                addresses[stream.base] = copy, start + (self.inner(addresses[stream.base][1]) if has_bytes else 0)
        for base in IFM2.bases:
            if addresses.get(base, ("",))[0] == self.constants:
                addresses[base] = copy, start + self.inner(addresses[base][1])
        return replace(operation, addresses=addresses)


def in_place(program: NpuProgram) -> NpuProgram:
    """`program` with readers of copied constants reading the source; as it is where one has no place there."""
    constants = {b.name for b in program.buffers if b.role is BufferRole.CONSTANTS}
    copied: dict[str, list[tuple[int, int, str, int]]] = {}  # buffer -> (start, stop, constants, byte), latest first
    operations: list[NpuOperation] = []
    needed: set[str] = set()  # buffers that are read otherwise
    skipped: set[str] = set()
    weights = {b.name for b in program.buffers if b.role is BufferRole.WEIGHTS}
    for index, operation in enumerate(program.operations):
        if operation.op is Op.DMA_START:
            (source, at), (target, to) = operation.addresses[Register.DMA0_SRC], operation.addresses[Register.DMA0_DST]
            if target in weights and source in constants:
                stop = to + operation.registers[Register.DMA0_LEN]
                copied.setdefault(target, []).insert(0, (to, stop, source, at))
                skipped.add(target)
                continue
        moved = _read_from_source(operation, copied, _ends(program, index, copied))
        needed.update(name for name, _ in moved.addresses.values() if name in weights)
        operations.append(moved)
    if skipped & needed:
        return program  # a copy is read in a way not known here: all copies stay
    used = {name for operation in operations for name, _ in operation.addresses.values()}
    buffers = tuple(b for b in program.buffers if b.role.is_parameter or b.name in used or b.name not in weights)
    return replace(program, buffers=buffers, operations=tuple(operations)) if skipped else program


def _ends(program: NpuProgram, index: int, buffers: Container[str]) -> dict[Register, int]:
    """Address registers through which an operation reads constants in `buffers`, and where what they read ends."""
    operation, ends = program.operations[index], {}
    for stream in STREAMS:
        name, start = operation.addresses.get(stream.base, ("", 0))
        if name in buffers:
            ends[stream.base] = start + operation.registers.get(stream.length, 0)
    operand = IFM2.bases[0]
    name, _ = operation.addresses.get(operand, ("", 0))
    if name in buffers:
        ends[operand] = max(spans[-1][1] for found, spans, _ in program.accesses(index) if found == name)
    return ends


def _read_from_source(
    operation: NpuOperation, copied: dict[str, list[tuple[int, int, str, int]]], ends: Mapping[Register, int]
) -> NpuOperation:
    """`operation` with what it reads of copies read from their source."""
    addresses = dict(operation.addresses)
    for base, stop in ends.items():
        buffer, start = addresses[base]
        # the latest copy that touches these bytes must have all of them
        latest = next((c for c in copied[buffer] if c[0] < max(stop, start + 1) and start < c[1]), None)
        if latest is not None and latest[0] <= start and stop <= latest[1]:
            addresses[base] = (latest[2], latest[3] + start - latest[0])
    return replace(operation, addresses=addresses) if addresses != operation.addresses else operation


def constant_blocks(program: NpuProgram) -> tuple[ConstantBlock, ...]:
    """The constants that can be copied, by their first reader."""
    sizes = {b.name: b.size_bytes for b in program.buffers if b.role is BufferRole.CONSTANTS}
    readers: dict[tuple[str, tuple[Span, ...]], list[int]] = {}
    for index, operation in enumerate(program.operations):
        found = [
            (*operation.addresses[stream.base], operation.registers.get(stream.length, 0))
            for stream in STREAMS
            if stream.base in operation.addresses
        ]
        holders = {name for name, _, length in found if length}
        if len(holders) != 1 or not holders <= sizes.keys():
            continue
        (holder,) = holders
        spans = merge_spans((start, start + length + -length % GRAIN) for _, start, length in found if length)
        if spans[-1][1] <= sizes[holder] and not any(start % GRAIN for start, _ in spans):
            readers.setdefault((holder, spans), []).append(index)
    constants = [ConstantBlock(holder, spans, tuple(indices)) for (holder, spans), indices in readers.items()]
    return tuple(sorted((*constants, *_operands(program, sizes)), key=lambda constant: constant.readers))


def _operands(program: NpuProgram, sizes: Mapping[str, int]) -> Iterator[ConstantBlock]:
    """Small constants that kernels read as second operands, joined where close: a transfer costs a latency."""
    found: dict[str, list[tuple[Span, int]]] = {}
    for index, operation in enumerate(program.operations):
        holder, start = operation.addresses.get(IFM2.bases[0], ("", 0))
        if holder not in sizes:
            continue
        stop = _ends(program, index, sizes)[IFM2.bases[0]]
        stop += -stop % GRAIN
        if not start % GRAIN and stop - start <= _SMALL and stop <= sizes[holder]:
            found.setdefault(holder, []).append(((start, stop), index))
    for holder, reads in found.items():
        for span in merge_spans(span for span, _ in reads):
            inside = sorted(index for (start, _), index in reads if span[0] <= start < span[1])
            yield ConstantBlock(holder, (span,), tuple(inside))


_GROUP = 8  # input channels of a step


@dataclass(frozen=True, slots=True)
class _Weights:
    """A stream, decoded."""

    runs: tuple[NDArray[np.int16], ...]  # [repeats, micro-blocks of all output channels, values]
    micro: int  # output channels of a micro-block
    _encoded: dict[tuple[int, int, int], bytes] = field(default_factory=dict)

    def encode_channels(self, first: int, stop: int, block: int) -> bytes:
        """Channels `first` to `stop` in blocks of `block` channels."""
        if (first, stop, block) not in self._encoded:
            begin, end, step = first // self.micro, ceil_div(stop, self.micro), ceil_div(block, self.micro)
            blocks = range(begin, end, step)
            values = np.concatenate([run[:, at : min(at + step, end)].ravel() for at in blocks for run in self.runs])
            self._encoded[first, stop, block] = weight_codec.encode_stream(values)
        return self._encoded[first, stop, block]


@dataclass(frozen=True, slots=True)
class _Core:
    """The weights and scales that one core reads for an operation."""

    weights: _Weights
    scale: int  # byte of its scales in the constants


@dataclass(frozen=True, slots=True)
class _WholeKernel:
    """The weights that all cores of an Ethos-U85 read for an operation: their micro-blocks are parts of one."""

    weights: NDArray[np.int16]  # [O, H, W, I]
    order: WeightArrangement
    scale: int  # byte of all scales in the constants

    @property
    def grain(self) -> int:
        """Channels that slices are made of."""
        return max(self.order.micro_depth, BRICK_CHANNELS)

    def encode_channels(self, part: Span, block: int, target: Architecture, core: int) -> bytes:
        """Channels `part` in blocks of `block` channels, for one core."""
        order = replace(self.order, block_depth=block)
        return weight_codec.encode_ordered(self.weights[slice(*part)], target, order)[core]


DecodedWeights = tuple[_Core, ...] | _WholeKernel | None


class Slices:
    """Constants, followed by slices of their weights; each slice is encoded once, however many programs read it.
    `decoded`: the weights of the same constants that were decoded before.
    """

    def __init__(self, data: bytes, decoded: dict[object, DecodedWeights] | None = None) -> None:
        self.data = data
        self.extended = bytearray()
        self.cores: dict[object, DecodedWeights] = {} if decoded is None else decoded
        self._encoded: dict[object, tuple[int, int]] = {}

    @property
    def all(self) -> bytes:
        """The constants and all slices encoded so far."""
        return self.data + self.extended

    def encode_once(self, key: object, weights: Callable[[], bytes]) -> tuple[int, int]:
        """The offset of the slice called `key`, and its size in bytes; `weights` encodes it where it is new."""
        if key not in self._encoded:
            data = weights()
            self._encoded[key] = (len(self.data) + len(self.extended), len(data))
            self.extended += data
        return self._encoded[key]


class Slicer:
    """Slices of one program's convolutions."""

    def __init__(self, program: NpuProgram, slices: Slices) -> None:
        self.program, self.slices = program, slices
        (self.constants,) = (b.name for b in program.buffers if b.role is BufferRole.CONSTANTS)

    def slice_convolutions(self, most_bytes: int) -> NpuProgram | None:
        """The program with convolutions of more than `most_bytes` of weights in slices of at most that; None: none."""
        parts = self.parts(most_bytes)
        return None if len(parts) == sum(map(len, parts)) else self.join_operations(parts)

    def parts(self, most_bytes: int) -> list[list[NpuOperation]]:
        """The operations that `slice_convolutions` makes of each operation."""
        return [self._slices(operation, most_bytes) for operation in self.program.operations]

    def join_operations(self, parts: Iterable[Iterable[NpuOperation]]) -> NpuProgram:
        """The program with these parts in place of its operations."""
        return self.extend_constants(replace(self.program, operations=tuple(chain.from_iterable(parts))))

    def extend_constants(self, program: NpuProgram) -> NpuProgram:
        """`program` with its constants buffer as large as the constants and all slices."""
        size = len(self.slices.data) + len(self.slices.extended)
        larger = (
            replace(b, size_bytes=size, shape=(size,)) if b.name == self.constants else b for b in program.buffers
        )
        return replace(program, buffers=tuple(larger))

    def _slices(self, operation: NpuOperation, most_bytes: int) -> list[NpuOperation]:
        registers, total = operation.registers, self.weight_bytes(operation)
        if total <= most_bytes:
            return [operation]
        depth, block = registers[Register.OFM_DEPTH_M1] + 1, registers[Register.OFM_BLK_DEPTH_M1] + 1
        cores = self._read(operation)
        # scales of a slice start at a multiple of 16 bytes, for each core
        grain = cores.grain if isinstance(cores, _WholeKernel) else BRICK_CHANNELS * max(1, len(cores or ()))
        whole = int(np.lcm(block, grain))
        most = depth // ceil_div(total, most_bytes)
        step = max(grain, most // (whole if most >= whole else grain) * (whole if most >= whole else grain))
        if cores is None or step >= depth:
            return [operation]
        parts = [(start, min(start + step, depth)) for start in range(0, depth, step)]
        return [self._slice(operation, part, min(block, step)) for part in parts]

    @staticmethod
    def weight_bytes(operation: NpuOperation) -> int:
        """The bytes of an operation's weights that may be sliced."""
        lengths = (operation.registers.get(stream.length, 0) for stream in WEIGHTS)
        return sum(lengths) if operation.op is Op.CONV else 0

    def _read(self, operation: NpuOperation) -> DecodedWeights:
        """The weights of an operation by core; None where they are not what is expected."""
        key = weights_of(operation)
        if key not in self.slices.cores:
            u85 = operation.language is Language.U85
            self.slices.cores[key] = self._whole(operation) if u85 else self._decode_weights(operation)
        return self.slices.cores[key]

    def _decode_weights(self, operation: NpuOperation) -> tuple[_Core, ...] | None:
        """The weights of an operation that are encoded for each core; None where they are not all constants."""
        npu, registers = self.program.accelerator, operation.registers
        count = npu.cores if registers.get(Register.PARALLEL_MODE) else 1
        depth, block = registers[Register.OFM_DEPTH_M1] + 1, registers[Register.OFM_BLK_DEPTH_M1] + 1
        if depth < count or block % count:
            return None  # a core without channels has no weights
        found = []
        for core in range(count):
            places = [operation.addresses.get(stream.base) for stream in (WEIGHTS[core], SCALES[core])]
            if any(place is None or place[0] != self.constants for place in places):
                return None
            (_, start), (_, scale) = (place for place in places if place is not None)
            stream = self.slices.data[start : start + registers[WEIGHTS[core].length]]
            sizes, channels = tuple(_sizes(operation, npu)), len(range(core, depth, count))
            weights = _read_stream(stream, sizes, channels, block // count, npu.ofm_micro.depth)
            if weights is None:
                return None
            found.append(_Core(weights, scale))
        return tuple(found)

    def _whole(self, operation: NpuOperation) -> _WholeKernel | None:
        """An Ethos-U85 kernel; None for one whose blocks stay, and in the fast format."""
        npu, registers = self.program.accelerator, operation.registers
        kernel = operation.place(lambda _: (0, 0))
        if is_indivisible(kernel) or WeightWord.FAST.value_in(registers.get(Register.WEIGHT_FORMAT, 0)):
            return None
        bases = (*(stream.base for stream in WEIGHTS[: npu.cores]), SCALES[0].base)
        places = [place for base in bases if (place := operation.addresses.get(base)) is not None]
        if len(places) < len(bases) or any(name != self.constants for name, _ in places):
            return None
        window = Kernel.from_registers(kernel)
        rows = (window.height - 1) // window.dilation_y + 1
        columns = (window.width - 1) // window.dilation_x + 1
        depth = 1 if operation.op is Op.DEPTHWISE else registers[Register.IFM_DEPTH_M1] + 1
        spans = [(at, registers[stream.length]) for (_, at), stream in zip(places[: npu.cores], WEIGHTS, strict=False)]
        found = [weight_codec.decode_weights(self.slices.data[at : at + size]) for at, size in spans]
        order = weight_arrangement(kernel, npu)
        weights = weights_in(found, (registers[Register.OFM_DEPTH_M1] + 1, rows, columns, depth), order, npu)
        return None if weights is None else _WholeKernel(weights, order, places[-1][1])

    def _slice(self, operation: NpuOperation, part: Span, block: int) -> NpuOperation:
        registers, addresses = dict(operation.registers), dict(operation.addresses)
        registers[Register.OFM_DEPTH_M1] = part[1] - part[0] - 1
        registers[Register.OFM_BLK_DEPTH_M1] = block - 1
        for base in OFM.bases:
            if base in addresses:
                name, at = addresses[base]
                addresses[base] = (name, at + _channel_bytes(registers) * part[0])
        return self.with_weights(replace(operation, registers=registers, addresses=addresses), operation, part)

    def may_cut(self, operation: NpuOperation) -> bool:
        """Whether channels of an operation can be computed apart: with encoded weights of their own, or without any."""
        if is_indivisible(operation.place(lambda _: (0, 0))):
            return False
        return WEIGHTS[0].base not in operation.addresses or self._read(operation) is not None

    def with_weights(self, made: NpuOperation, operation: NpuOperation, part: Span) -> NpuOperation:
        """`made`, which makes channels `part` of `operation` in blocks of its own depth, with their weights alone."""
        if WEIGHTS[0].base not in operation.addresses:
            return made
        registers, addresses = dict(made.registers), dict(made.addresses)
        cores, whole, (start, stop) = self._read(operation), weights_of(operation), part
        assert cores is not None
        block = registers[Register.OFM_BLK_DEPTH_M1] + 1
        if isinstance(cores, _WholeKernel):
            npu = self.program.accelerator
            for core, weights in enumerate(WEIGHTS[: npu.cores]):
                key, encode = (whole, core, part, block), partial(cores.encode_channels, part, block, npu, core)
                at, length = self.slices.encode_once(key, encode)
                addresses[weights.base], registers[weights.length] = (self.constants, at), length
            scale = cores.scale + weight_codec.SCALE_BYTES * start
            addresses[SCALES[0].base] = (self.constants, scale)
            filled = round_up(stop - start, cores.grain)
            registers[SCALES[0].length] = round_up(weight_codec.SCALE_BYTES * filled, GRAIN)
            return replace(made, registers=registers, addresses=addresses)
        for core, known in enumerate(cores):
            first, last = start // len(cores), _count(stop, core, len(cores))
            weights, scales = WEIGHTS[core], SCALES[core]
            if first == last:  # a core without channels names what the first one reads
                addresses |= {weights.base: addresses[WEIGHTS[0].base], scales.base: addresses[SCALES[0].base]}
                registers |= {weights.length: 0, scales.length: 0}
                continue
            channels = (first, last, block // len(cores))
            at, length = self.slices.encode_once(
                (whole, core, channels), partial(known.weights.encode_channels, *channels)
            )
            scale = known.scale + weight_codec.SCALE_BYTES * first
            addresses |= {weights.base: (self.constants, at), scales.base: (self.constants, scale)}
            registers |= {
                weights.length: length,
                scales.length: round_up(weight_codec.SCALE_BYTES * (last - first), GRAIN),
            }
        return replace(made, registers=registers, addresses=addresses)


def weights_of(operation: NpuOperation) -> object:
    """A key of the weights and scales that an operation reads: their places, and the depth of its blocks."""
    registers = operation.registers
    streams = [(operation.addresses.get(stream.base), registers.get(stream.length)) for stream in (*WEIGHTS, *SCALES)]
    depths = (registers[Register.OFM_DEPTH_M1], registers[Register.OFM_BLK_DEPTH_M1])
    return (*streams, *depths, registers.get(Register.PARALLEL_MODE))


def _count(stop: int, core: int, cores: int) -> int:
    """Channels of one core below channel `stop`."""
    return len(range(core, stop, cores))


@lru_cache(128)
def _read_stream(
    stream: bytes, sizes: tuple[tuple[int, int], ...], channels: int, block: int, depth: int
) -> _Weights | None:
    """The weights of a core by run, cached for programs that are compared; None where the number is wrong."""
    weights, count = weight_codec.decode_weights(stream), ceil_div(channels, depth)
    if sum(repeats * values for repeats, values in sizes) * count != len(weights) or (
        block % depth and block < channels
    ):
        return None
    found: list[list[NDArray[np.int16]]] = [[] for _ in sizes]
    at, step = 0, ceil_div(block, depth)
    for first in range(0, count, step):
        micros = min(step, count - first)
        for run, (repeats, values) in zip(found, sizes, strict=True):
            size = repeats * micros * values
            run.append(weights[at : at + size].reshape(repeats, micros, values))
            at += size
    return _Weights(tuple(np.concatenate(run, axis=1) for run in found), depth)


def _sizes(operation: NpuOperation, npu: Architecture) -> Iterator[tuple[int, int]]:
    """Repeats, and values of a micro-block, of each run of a block of output channels."""
    kernel = Kernel.from_registers(Operation(operation.op, operation.parameter, operation.registers))
    narrow, part = (
        not InputPrecision.SIZE.value_in(operation.registers[Register.IFM_PRECISION]),
        kernel.part_kernel_first,
    )
    slice_depth = 32 if narrow and not part else 16
    spans = [
        [min(step, extent - at) for at in range(0, extent, step)]
        for extent, step in (
            ((kernel.height - 1) // kernel.dilation_y + 1, npu.sub_kernel // kernel.dilation_y),
            ((kernel.width - 1) // kernel.dilation_x + 1, npu.sub_kernel // kernel.dilation_x),
        )
    ]
    depth = 1 if operation.op is Op.DEPTHWISE else operation.registers[Register.IFM_DEPTH_M1] + 1
    for first in range(0, depth, slice_depth):
        for rows in spans[0]:
            for columns in spans[1]:
                if operation.op is Op.DEPTHWISE:
                    yield 1, round_up(rows * columns, 4) * npu.ofm_micro.depth
                elif part:
                    elements = round_up(rows * columns, 4 if narrow else 2)
                    yield ceil_div(min(slice_depth, depth - first), _GROUP), elements * npu.ofm_micro.depth * _GROUP
                else:
                    yield 1, rows * columns * npu.ofm_micro.depth * slice_depth


def _channel_bytes(registers: Mapping[Register, int]) -> int:
    """Bytes from one output channel to the next; of bricks, on average over whole ones."""
    precision = registers[Register.OFM_PRECISION]
    if OutputPrecision.BRICK.value_in(precision):
        return registers[Register.OFM_STRIDE_C] // BRICK_CHANNELS
    return 1 << OutputPrecision.SIZE.value_in(precision)


def compact(program: NpuProgram, data: bytes) -> tuple[NpuProgram, bytes]:
    """`program` and the `data` of its only buffer of constants, both without what is not read."""
    (constants,) = (b.name for b in program.buffers if b.role is BufferRole.CONSTANTS)
    kept: list[Span] = []
    for start, stop in sorted(_read(program, constants)):
        if kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(stop, kept[-1][1]))
        else:
            kept.append((start, stop))
    starts: list[tuple[Span, int]] = []
    size = 0
    for start, stop in kept:
        starts.append(((start, stop), size))
        size += stop - start

    def new_address(at: int) -> int:
        return next(to + at - start for (start, stop), to in starts if start <= at <= stop)

    operations = tuple(
        replace(
            operation,
            addresses={
                register: (name, new_address(at) if name == constants else at)
                for register, (name, at) in operation.addresses.items()
            },
        )
        for operation in program.operations
    )
    buffers = tuple(replace(b, size_bytes=size, shape=(size,)) if b.name == constants else b for b in program.buffers)
    return replace(program, buffers=buffers, operations=operations), b"".join(
        data[a:b].ljust(b - a, b"\0") for a, b in kept
    )


def _read(program: NpuProgram, constants: str) -> set[Span]:
    """The constants that each register reaches, from the first to the last byte, widened to whole grains."""
    found: set[Span] = set()
    for index, operation in enumerate(program.operations):
        for name, at in operation.addresses.values():
            if name == constants:
                found.add((at - at % GRAIN, at - at % GRAIN + GRAIN))
        for access in program.symbolic_accesses(index):
            for register, ranges in access.parts:
                if register is not None and len(ranges) and operation.addresses[register][0] == constants:
                    start, stop = int(ranges[0, 0]), int(ranges[-1, 1])
                    found.add((start - start % GRAIN, stop + -stop % GRAIN))
    return found


def transfers(program: NpuProgram, first: int, last: int) -> tuple[int, ...]:
    """Indices of the transfers of tables among operations `first` to `last`."""
    found = (index for index in range(first, last + 1) if loaded_table(program, program.operations[index]) is not None)
    return tuple(found)


def may_lie_beside(program: NpuProgram, operations: Sequence[int]) -> bool:
    """Whether the look-up tables of `operations` can be loaded together before all of them."""
    loaded: list[range] = []
    read: list[range] = []
    for index in operations:
        operation = program.operations[index]
        table = loaded_table(program, operation)
        if table is not None:
            if any(share_bytes(table, other) for other in (*loaded, *read)):
                return False
            loaded.append(table)
        elif (table := read_table(operation)) is not None:
            read.append(table)
    # without a memory of their own, tables do not survive operations that read none
    return not (loaded or read) or len(operations) == 1 or program.accelerator.lut_reserved


def loaded_table(program: NpuProgram, operation: NpuOperation) -> range | None:
    """Bytes of the tables' memory that an operation loads."""
    if operation.op is not Op.DMA_START:
        return None
    name, start = operation.addresses[Register.DMA0_DST]
    if program.buffer(name).role is not BufferRole.LUT:
        return None
    return range(start, start + operation.registers[Register.DMA0_LEN])


def read_table(operation: NpuOperation) -> range | None:
    """Bytes of the tables' memory that an operation reads."""
    if operation.op is Op.DMA_START:
        return None
    found = lut_span(Operation(operation.op, operation.parameter, operation.registers, language=operation.language))
    return None if found is None else range(found[0], sum(found))


def share_bytes(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop


_AHEAD = 4  # operations: within so many the port is idle once, or it is busy all the time


def loaded_early(program: NpuProgram) -> NpuProgram:
    """`program` with its look-up tables loaded up to four operations earlier, on NPUs whose tables survive."""
    operations = list(program.operations)
    if not program.accelerator.lut_reserved:
        return program
    for index, operation in enumerate(program.operations):
        table = loaded_table(program, operation)
        at = index
        while table is not None and at > max(0, index - _AHEAD):
            before = operations[at - 1]
            read = read_table(before)
            if loaded_table(program, before) is not None or (read is not None and share_bytes(table, read)):
                break
            at -= 1
        while 0 < at < index and goes_on(operations[at - 1]):  # nothing comes between the operations of a chain
            at += 1
        if at < index:
            operations.insert(at, operations.pop(index))
    if tuple(operations) == program.operations:
        return program
    return replace(program, operations=tuple(operations))
