"""Convolutions in slices of their output channels, each with weights of its own.

Invariant: the slices compute what the operation computed, channel by channel. A slice is some blocks deep, so that
nothing is read more often than before; or it is a block itself, lower than those before, in the order that this asks.

Order of weights, outermost first: blocks of output channels; slices of input channels (32 depth-first with 8 bits,
else 16); constants of the kernel; part-kernel first: groups of 8 input channels; micro-blocks of output channels; the
rest. So everything of a block is runs of [repeats][micro-blocks][values], and other blocks have the same micro-blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ... import weight_codec
from ...arch import Architecture, Language
from ...program.access import Kernel, is_indivisible, weight_arrangement
from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...stream.decode import Operation
from ...stream.fields import OFM, SCALES, WEIGHTS, InputPrecision, OutputPrecision, WeightWord
from ...stream.isa import BRICK_CHANNELS, Op, Register
from ...weight_order import WeightArrangement
from ...weight_order import weights_of as weights_in
from ..shram import ceil_div, round_up
from .reads import GRAIN, Span

_GROUP = 8  # input channels of a step


@dataclass(frozen=True, slots=True)
class _Weights:
    """A stream, decoded."""

    runs: tuple[NDArray[np.int16], ...]  # [repeats, micro-blocks of all output channels, values]
    micro: int  # output channels of a micro-block
    _encoded: dict[tuple[int, int, int], bytes] = field(default_factory=dict)

    def encoded(self, first: int, stop: int, block: int) -> bytes:
        """Channels `first` to `stop` in blocks of `block` channels."""
        if (first, stop, block) not in self._encoded:
            begin, end, step = first // self.micro, ceil_div(stop, self.micro), ceil_div(block, self.micro)
            blocks = range(begin, end, step)
            values = np.concatenate([run[:, at : min(at + step, end)].ravel() for at in blocks for run in self.runs])
            self._encoded[first, stop, block] = weight_codec.encode_stream(values)
        return self._encoded[first, stop, block]


@dataclass(frozen=True, slots=True)
class _Core:
    """What one core reads for an operation."""

    weights: _Weights
    scale: int  # byte of its scales in the constants


@dataclass(frozen=True, slots=True)
class _WholeKernel:
    """What all cores of an Ethos-U85 read for an operation: their micro-blocks are parts of one."""

    weights: NDArray[np.int16]  # [O, H, W, I]
    order: WeightArrangement
    scale: int  # byte of all scales in the constants

    @property
    def grain(self) -> int:
        """Channels that slices are made of."""
        return max(self.order.micro_depth, BRICK_CHANNELS)

    def encoded(self, part: Span, block: int, target: Architecture, core: int) -> bytes:
        """Channels `part` in blocks of `block` channels, for one core."""
        order = replace(self.order, block_depth=block)
        return weight_codec.encode_ordered(self.weights[slice(*part)], target, order)[core]


_Known = tuple[_Core, ...] | _WholeKernel | None


class Slices:
    """Constants, and after them the slices of their weights: each is made once, however many programs read it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.extended = bytearray()
        self.cores: dict[object, _Known] = {}
        self._encoded: dict[object, tuple[int, int]] = {}

    @property
    def all(self) -> bytes:
        """The constants with what is after them."""
        return self.data + self.extended

    def encoded(self, key: object, weights: Callable[[], bytes]) -> tuple[int, int]:
        """Where the encoded `weights` called `key` are, and their bytes."""
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

    def sliced(self, most_bytes: int, others: Mapping[int, int] | None = None) -> NpuProgram | None:
        """The program with convolutions whose weights take more in slices of at most so many, where that can be.

        `others`: the same of single operations.
        """
        parts = self.parts(most_bytes, others or {})
        return None if len(parts) == sum(map(len, parts)) else self.joined(parts)

    def parts(self, most_bytes: int, others: Mapping[int, int]) -> list[list[NpuOperation]]:
        """What `sliced` makes of each operation."""
        return [self._slices(made, others.get(i, most_bytes)) for i, made in enumerate(self.program.operations)]

    def joined(self, parts: Iterable[Iterable[NpuOperation]]) -> NpuProgram:
        """The program of these operations."""
        return self.grown(replace(self.program, operations=tuple(chain.from_iterable(parts))))

    def grown(self, program: NpuProgram) -> NpuProgram:
        """`program`, whose constants are as many as there are with all slices."""
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
        """Of what may be sliced."""
        lengths = (operation.registers.get(stream.length, 0) for stream in WEIGHTS)
        return sum(lengths) if operation.op is Op.CONV else 0

    def _read(self, operation: NpuOperation) -> _Known:
        """The weights of an operation by core; None where they are not what is expected."""
        key = weights_of(operation)
        if key not in self.slices.cores:
            u85 = operation.language is Language.U85
            self.slices.cores[key] = self._whole(operation) if u85 else self._decoded(operation)
        return self.slices.cores[key]

    def _decoded(self, operation: NpuOperation) -> tuple[_Core, ...] | None:
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
        """Whether channels of an operation can have weights of their own, or it reads none."""
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
                key, encode = (whole, core, part, block), partial(cores.encoded, part, block, npu, core)
                at, length = self.slices.encoded(key, encode)
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
            at, length = self.slices.encoded((whole, core, channels), partial(known.weights.encoded, *channels))
            scale = known.scale + weight_codec.SCALE_BYTES * first
            addresses |= {weights.base: (self.constants, at), scales.base: (self.constants, scale)}
            registers |= {
                weights.length: length,
                scales.length: round_up(weight_codec.SCALE_BYTES * (last - first), GRAIN),
            }
        return replace(made, registers=registers, addresses=addresses)


def weights_of(operation: NpuOperation) -> object:
    """Which weights and scales an operation reads, and what their order follows from: the depth of its blocks."""
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
    """The weights of a core by run; None where they are not as many as there should be. Programs that are compared have
    the same streams, wherever those are.
    """
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
