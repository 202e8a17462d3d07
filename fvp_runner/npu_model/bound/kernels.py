"""The kernels on real memory (convolutions, pools, elementwise operations, resizing), and the output path of them all.

Invariant: there is one bound class for each spec. Blocks of accumulator sums go into the output path, in any order, and
the output feature map comes out; nothing of a kernel's arithmetic is there, and nothing of the output path anywhere
else. Sums are exact: float32 is used where no partial sum can reach 2**24, otherwise the products are cut into pieces
for which that holds, or float64 is used; accumulators that are kept are the sums themselves, with the input's zero
point taken in, without any bias. Padding never takes part in a pool; an average is divided by the number of elements
that are inside the input, halves away from zero, before the output is scaled. An elementwise operation reads both
inputs before anything is written, so it may write over its own input. An output place of Ethos-U85's RESIZE is (place *
step + offset) / numerator input places; what is outside the input is its edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.isa import (
    AccumulatorInput,
    ElementwiseMode,
    PoolMode,
    ResizeKind,
    Rounding,
    ScaleRounding,
    TableKind,
    Upscale,
)

from ..arithmetic import rescale
from ..arithmetic.rescale import Clamped, Int64, Scale
from ..arithmetic.weights import SCALE_BYTES, ScaleTable, decode_fast, decode_mlw
from ..errors import AccumulatorOverflowError
from ..spec.feature_maps import Activation, InputSpec, OutputSpec, Registers
from ..spec.operations import DmaSpec, ElementwiseSpec, Span, SumSpec
from ..spec.stream import DecodedStep
from ..spec.u85 import ResizeAxis, ResizeSpec
from .memory import Dma, FeatureMapAccess, RegionMemory

BLOCK_ELEMENTS = 1 << 15  # sums handled at once: a float64 block of these stays in a level-2 cache


class OutputPath:
    """The bound output of one kernel: `put_sums` takes sums, `store_values` writes what is not yet in memory."""

    def __init__(self, spec: OutputSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self.shape = (spec.height, spec.width, spec.depth)
        self.map = FeatureMapAccess(memory, regs, spec.layout, spec.stored_shape, is_write=True)
        self.target = self.map.array.transpose(np.argsort(spec.axes))  # in the order in which results come
        if spec.reverse >= 0:
            self.target = np.flip(self.target, spec.reverse)
        self._row = spec.width * spec.depth
        self.rows_per_block = max(1, min(spec.height, BLOCK_ELEMENTS // self._row))
        self._work: NDArray[np.float64] = np.empty(0)
        self.set_rescale(Scale.single_scale(1, 0), None, math.inf)
        self._lut: NDArray[np.uint8] | None = None
        if spec.activation is Activation.LUT:
            start = memory.accelerator.lut_address + 256 * spec.lut_slot
            self._lut = memory.shram[start : start + spec.lut_bytes]

    def set_rescale(self, scale: Scale, bias: Int64 | None, reach: float) -> None:
        """Set how sums become values, which they are without it; `reach` bounds |sum + bias|."""
        spec = self.spec
        low, high, zero = spec.low, spec.high, spec.zero_point
        if spec.activation in (Activation.TANH, Activation.SIGMOID):
            low, high, zero = -(1 << 31), (1 << 31) - 1, 0  # these functions take the value before it is narrowed
        if spec.wraps:
            low, high, reach = -(1 << 63), (1 << 63) - 1, math.inf
        clamp = Clamped(scale, bias, zero, low, high, reach)
        # Short rows of channels make numpy loop in small steps: handle a row of pixels as one.
        times = spec.width if clamp.exact and spec.depth < 64 and spec.width * spec.depth <= 4096 else 1
        self._clamp = clamp.repeat_pixels(times)
        self._rows = (times * spec.depth,)
        if clamp.exact:
            self._work = np.empty(self.rows_per_block * self._row)

    def put_sums(self, first: int, sums: NDArray[Any]) -> None:
        """Sums of rows [first, first + n): [n, width, depth] or any shape with as many elements, channels last."""
        spec = self.spec
        count = sums.size // self._row
        flat = sums.reshape(-1, *self._rows)
        values = self._clamp(flat, self._work[: sums.size].reshape(flat.shape) if self._clamp.exact else None)
        values = values.reshape(count, spec.width, spec.depth)
        target = self.target[first : first + count]
        if spec.activation is Activation.NONE:
            np.copyto(target, values, casting="unsafe")
        else:
            target[...] = self._activate_values(values.astype(np.int64))

    def _activate_values(self, values: Int64) -> Int64:
        spec = self.spec
        if spec.activation is Activation.LUT:
            assert self._lut is not None
            if spec.table is not TableKind.NONE:
                return rescale.look_up(spec.table, self._lut, values)
            if spec.dtype.itemsize == 2:
                return rescale.look_up_16(self._lut.view("<i4").astype(np.int64), np.clip(values, -32768, 32767))
            index = values if spec.dtype == np.uint8 else values + 128
            table = self._lut.view(spec.dtype)
            return table[np.clip(index, 0, len(table) - 1)].astype(np.int64)
        result = rescale.tanh(values) if spec.activation is Activation.TANH else rescale.sigmoid(values)
        return np.clip(result + spec.zero_point, spec.low, spec.high)

    def store_values(self) -> None:
        self.map.store_values()


class WindowKernel:
    """A bound kernel over windows.

    `padded` is its input, [padded height, padded width, depth] of type `dtype`, with `fill` in what is padding or left
    out by upscaling.
    """

    def __init__(
        self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool, dtype: Any, fill: int
    ) -> None:
        self.spec, self.regs, self.checks, self._memory = spec, regs, checks, memory
        self.output = OutputPath(spec.output, memory, regs)
        self._input = FeatureMapAccess(memory, regs, spec.input.map, spec.input.shape, is_write=False)
        extents = (spec.window.padded_height, spec.window.padded_width, spec.input.shape[2])
        self.padded: NDArray[Any] = np.full(extents, fill, dtype)
        self._parts = list(self._input_parts())
        self.maps = [] if spec.ignores_input else [self._input]
        self._loaded, self._matrix = (self._second_input(found) for found in (spec.loaded, spec.matrix))
        self._spans = [memory.span_bytes(span, regs) for span in spec.weights + spec.scales]
        self._shadows = [memory.span_shadow(span) for span in spec.weights + spec.scales]
        self._continues = spec.start is AccumulatorInput.KEEP
        # Sums start from nothing and go to the output at once.
        self.plain = not (self._continues or spec.output.kept or spec.loaded)
        self._limit = 1 << (spec.accumulator_bits - 1)

    def _input_parts(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Parts of the padded input that are in memory, and where: neither padding nor left out by upscaling."""
        window, inner = self.spec.window, self.padded[self.spec.window.unpadded_slices]
        if window.upscale is Upscale.NONE:
            yield inner, self._input.array
            return
        phases = (0, 1) if window.upscale is Upscale.NEAREST else (0,)
        for dy, dx in product(phases, phases):
            target = inner[dy::2, dx::2]
            if target.size:
                yield target, self._input.array[: target.shape[0], : target.shape[1]]

    def _load_input(self) -> None:
        """Bring the input from memory; what is not there never changes."""
        self._input.load_values()
        for target, source in self._parts:
            np.copyto(target, source, casting="unsafe")

    def _second_input(self, found: InputSpec | None) -> FeatureMapAccess | None:
        """IFM2, if it is this."""
        if found is None:
            return None
        self.maps.append(FeatureMapAccess(self._memory, self.regs, found.map, found.shape, is_write=False))
        return self.maps[-1]

    def constant_shadows(self) -> Iterator[tuple[Span, NDArray[np.bool_]]]:
        """Weight streams and scale tables, with the shadows of the bytes that are used; none without shadows."""
        used = [None] * len(self.spec.weights) + [count * SCALE_BYTES for count in self._table_channels()]
        for span, shadow, count in zip(self.spec.weights + self.spec.scales, self._shadows, used, strict=True):
            if shadow is not None:
                yield span, shadow[:count]

    def _table_channels(self) -> list[int]:
        """Channels of each scale table."""
        count = len(self.spec.scales)
        return [-(-(self.spec.output.depth - table) // count) for table in range(count)]

    def _read_scales(self, source: list[bytes]) -> ScaleTable:
        """Biases and scales of all channels, in the bytes of the tables."""
        spec = self.spec
        if not spec.scales:
            return ScaleTable(*(np.zeros(spec.output.depth, np.int64) for _ in range(3)))
        parts = zip(source, self._table_channels(), spec.scales, strict=True)
        return ScaleTable.interleave_cores([
            ScaleTable.parse_records(
                np.frombuffer(data, np.uint8), channels, f"{self.regs.op_text}, {span.name}", *spec.record
            )
            for data, channels, span in parts
        ])  # fmt: skip

    def _channel_scale(self, table: ScaleTable) -> Scale:
        whole, for_all = self.spec.scale, self.spec.output.global_scale or not self.spec.scales
        return whole if for_all else Scale(table.scale, table.shift, whole.rounding)

    def _initial_sums(self) -> Int64 | None:
        """The sums to start from; None: zero."""
        if self._loaded is not None:
            self._loaded.load_values()
            return self._loaded.array.astype(np.int64)
        if not self._continues:
            return None
        found = self._memory.accumulators
        if found is None or found.shape != self.spec.output.shape:
            self.regs.raise_illegal(
                "ACC_FORMAT keeps the accumulators, but no operation before left them in this shape"
            )
        return found

    def _put_all(self, sums: NDArray[Any]) -> None:
        """All rows of sums to where they go."""
        if self.spec.output.kept:
            self._memory.accumulators = sums.astype(np.int64)
            return
        for row in range(0, len(sums), self.output.rows_per_block):
            self.output.put_sums(row, sums[row : row + self.output.rows_per_block])

    def _check_sums(self, sums: NDArray[Any]) -> None:
        """`AccumulatorOverflowError` for a sum, zero points and bias taken in, that an accumulator cannot hold."""
        low, high = int(sums.min(initial=0)), int(sums.max(initial=0))
        if low < -self._limit or high >= self._limit:
            raise AccumulatorOverflowError(
                f"{self.regs.op_text}: a sum reaches {max(-low, high)}, beyond the accumulator's {self._limit} "
                f"(ACC_FORMAT INT{self.spec.accumulator_bits}); what hardware does then is not defined"
            )


_FLOAT32 = 2.0**24
_PATCH_BYTES = 1 << 20  # of gathered input at once


@dataclass(frozen=True, slots=True, eq=False)
class DecodedConstants:
    """Weights and scales of one operation, decoded; `source` are the bytes they came from."""

    source: list[bytes]
    chunks: tuple[tuple[slice, NDArray[Any]], ...]  # CONV: rows of the weight matrix, [taps, channels] each
    taps: NDArray[Any]  # DEPTHWISE: [kernel height, kernel width, channels]
    bias: NDArray[np.int64]  # of the tables
    zeros: NDArray[np.int64]  # what the input's zero point adds to the sums
    scale: Scale
    reach: float  # bounds |sum + bias|
    may_overflow: bool


class Convolution(WindowKernel):
    """The bound operation; `run` executes it once. `memo` keeps what was decoded beyond this binding."""

    def __init__(
        self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool, memo: list[DecodedConstants]
    ) -> None:
        kind = np.float32 if spec.input.dtype.itemsize == 1 else np.float64
        super().__init__(spec, memory, regs, checks, kind, spec.input.zero_point)
        self.memo = memo
        self._constants: DecodedConstants | None = None

    def _prepare_constants(self) -> DecodedConstants:
        """Decode weights and scales, unless they are those of the last run."""
        source = [span.tobytes() for span in self._spans]
        if self._matrix is not None:
            self._matrix.load_values()
            source.append(self._matrix.array.tobytes())
        if self._constants is None or source != self._constants.source:
            if not self.memo or source != self.memo[0].source:
                self.memo[:] = [self._decode_constants(source)]
            found = self._constants = self.memo[0]
            if self.plain:
                self.output.set_rescale(found.scale, found.bias + found.zeros, found.reach)
            else:  # the zero point's part is in the sums
                self.output.set_rescale(found.scale, found.bias, math.inf)
        return self._constants

    def _decode_constants(self, source: list[bytes]) -> DecodedConstants:
        spec, streams = self.spec, len(self.spec.weights)
        if self._matrix is not None:  # a row of input channels for each output channel
            assert spec.matrix is not None
            values = self._matrix.array[0].astype(np.int64) - spec.matrix.zero_point
            weights = np.ascontiguousarray(values.T)[None, None]
        else:
            shape = (spec.window.height, spec.window.width, spec.orders[0].ifm_depth, spec.output.depth)
            weights, cores = np.zeros(shape, np.int64), len(spec.orders)
            decoded = (
                self._core_streams(source[0]) if spec.fast else [decode_mlw(stream) for stream in source[:streams]]
            )
            for core, order in enumerate(spec.orders):
                name = f"{self.regs.op_text}, {spec.weights[core].name}"
                weights[..., core::cores] = order.arrange_weights(decoded[core::cores], name)
        return self._arrange_constants(source, weights, self._read_scales(source[streams : streams + len(spec.scales)]))

    def _core_streams(self, stream: bytes) -> list[NDArray[np.int16]]:
        """The streams of all cores in one of the fast format."""
        order = self.spec.orders[0]
        whole = decode_fast(stream, order.weight_count * order.cores).reshape(-1, order.cores, order.interleaved_count)
        return [np.ascontiguousarray(whole[:, core]).reshape(-1) for core in range(order.cores)]

    def _arrange_constants(
        self, source: list[bytes], weights: NDArray[np.int64], table: ScaleTable
    ) -> DecodedConstants:
        spec, dtype = self.spec, self.padded.dtype
        info = np.iinfo(spec.input.dtype)
        largest, zero = max(abs(int(info.min)), int(info.max)), spec.input.zero_point
        # sum((x - zp) * w) = sum(x * w) - zp * sum(w): the input is used as it is.
        zeros = -zero * weights.sum(axis=(0, 1, 2))
        magnitude = int(np.abs(weights).sum(axis=(0, 1, 2)).max(initial=0))
        sums = magnitude * (largest + abs(zero))
        biggest_bias = int(np.abs(table.bias).max(initial=0))
        chunks: list[tuple[slice, NDArray[Any]]] = []
        taps: NDArray[Any] = np.empty(0)
        if spec.depthwise:
            exact = dtype == np.float64 or sums < _FLOAT32
            taps = weights[:, :, 0, :].astype(dtype if exact else np.float64)
        else:
            matrix = weights.reshape(-1, spec.output.depth)
            rows = step = len(matrix)
            if dtype == np.float32 and magnitude * largest >= _FLOAT32:
                step = int(_FLOAT32) // (largest * max(int(np.abs(matrix).max()), 1))
            for start in range(0, rows, step):
                part = slice(start, min(start + step, rows))
                chunks.append((part, np.ascontiguousarray(matrix[part], dtype)))
        reach = float(sums + biggest_bias + int(np.abs(table.bias + zeros).max(initial=0)))
        may_overflow = sums + biggest_bias >= self._limit
        return DecodedConstants(
            source, tuple(chunks), taps, table.bias, zeros, self._channel_scale(table), reach, may_overflow
        )

    def run(self) -> None:
        constants = self._prepare_constants()
        self._load_input()
        blocks = (self._depthwise_blocks if self.spec.depthwise else self._convolve_blocks)(constants)
        whole = np.zeros(self.spec.output.shape if not self.plain else 0, np.int64)
        for first, sums in blocks:
            if self.checks and constants.may_overflow:
                self._check_sums(sums + (constants.bias + constants.zeros))
            if self.plain:
                self.output.put_sums(first, sums)
            else:
                rows = sums.reshape(-1, *whole.shape[1:])
                whole[first : first + len(rows)] = rows
        if not self.plain:
            start = self._initial_sums()
            whole += constants.zeros
            self._put_all(whole if start is None else whole + start)
        self.output.store_values()

    def _convolve_blocks(self, constants: DecodedConstants) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and sums of each block."""
        spec, window, padded = self.spec, self.spec.window, self.padded
        out, height, width = spec.output, spec.output.height, spec.output.width
        taps = window.height * window.width * spec.input.shape[2]
        rows = min(self.output.rows_per_block, max(1, _PATCH_BYTES // (width * taps * padded.itemsize)))
        patches = window.window_patches(padded, height, width)
        plain = window.height == window.width == window.stride_x == window.stride_y == 1 and not window.is_padded
        for first in range(0, height, rows):
            last = min(first + rows, height)
            matrix = (padded if plain else patches)[first:last].reshape(-1, taps)
            if len(constants.chunks) == 1:
                sums = matrix @ constants.chunks[0][1]
            else:
                sums = np.zeros((len(matrix), out.depth))
                for part, chunk in constants.chunks:
                    sums += matrix[:, part] @ chunk
            yield first, sums

    def _depthwise_blocks(self, constants: DecodedConstants) -> Iterator[tuple[int, NDArray[Any]]]:
        window, out, padded = self.spec.window, self.spec.output, self.padded
        taps = constants.taps
        for first in range(0, out.height, self.output.rows_per_block):
            rows = range(first, min(first + self.output.rows_per_block, out.height))
            sums = np.zeros((len(rows), out.width, out.depth), taps.dtype)
            product = np.empty_like(sums)
            for y, x in window.kernel_taps:
                np.multiply(window.tap_view(padded, y, x, rows, out.width), taps[y, x], out=product)
                np.add(sums, product, out=sums)
            yield first, sums


_EXTREMES: dict[PoolMode, np.ufunc] = {PoolMode.MAX: np.maximum, PoolMode.MIN: np.minimum}
# What comes of what was kept and what is new; of other pools: their sum.
_JOINED: dict[PoolMode, Callable[[Any, Any], Any]] = {PoolMode.NONE: lambda kept, _: kept, **_EXTREMES}


class Pooling(WindowKernel):
    def __init__(self, spec: SumSpec, memory: RegionMemory, regs: Registers, checks: bool) -> None:
        assert spec.pool is not None
        self.pool = spec.pool
        info, zero = np.iinfo(spec.input.dtype), spec.input.zero_point
        largest = max(abs(int(info.min)), int(info.max)) + abs(zero)
        taps = spec.window.height * spec.window.width * (spec.input.shape[2] if spec.sums_channels else 1)
        if self.pool in _EXTREMES or self.pool.is_argmax:
            dtype: Any = spec.input.dtype
            fill = int(info.max if self.pool is PoolMode.MIN else info.min)
            largest, taps = (taps << 16, 1) if self.pool.is_argmax else (largest, 1)
        else:
            dtype = np.float32 if largest * taps < 1 << 24 else np.float64 if largest * taps < 1 << 52 else np.int64
            fill = zero
        super().__init__(spec, memory, regs, checks, dtype, fill)
        self._inside = self._window_counts() if self.pool is PoolMode.AVERAGE else None
        # What the input's zero point adds to all that the windows give.
        self._zeros = 0 if self.pool.is_argmax or self._inside is not None else zero * taps
        self._reach = 2.0 * largest * taps if self.plain else math.inf
        self._may_overflow = not self.plain or largest * taps >= self._limit
        if not spec.scales:
            self._set_output_scale()

    def _set_output_scale(self) -> None:
        table = self._read_scales([span.tobytes() for span in self._spans])
        bias = table.bias - self._zeros if self.plain else table.bias
        reach = self._reach + float(np.abs(bias).max(initial=0))
        self.output.set_rescale(self._channel_scale(table), bias if bias.any() else None, reach)

    def _window_counts(self) -> Int64:
        """Elements inside the input for each output position: [height, width, 1]."""
        window, out = self.spec.window, self.spec.output
        inside = np.zeros((window.padded_height, window.padded_width, 1), np.int64)
        inside[window.unpadded_slices] = 1
        counts: Int64 = np.maximum(self._over_windows(inside, np.add), 1)
        return counts.reshape(out.height, out.width, 1)

    def _over_windows(self, padded: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
        """Combine the elements of each window: first along columns of the input, then along rows."""
        window, out = self.spec.window, self.spec.output
        rows = range(out.height)
        if out.height == out.width == 1 and window.dilation_y == window.dilation_x == 1:
            result: NDArray[Any] = combine.reduce(combine.reduce(padded, axis=0), axis=0)
            return result.reshape(1, 1, -1)
        columns = window.padded_width
        high = np.array(self._window_rows(padded, 0, rows, columns))
        for y in range(1, window.height):
            combine(high, self._window_rows(padded, y, rows, columns), out=high)
        stop = (out.width - 1) * window.stride_x + 1
        wide = np.array(high[:, 0 : stop : window.stride_x])
        for x in range(1, window.width):
            left = x * window.dilation_x
            combine(wide, high[:, left : left + stop : window.stride_x], out=wide)
        return wide

    def _window_rows(self, padded: NDArray[Any], y: int, rows: range, columns: int) -> NDArray[Any]:
        window = self.spec.window
        top = y * window.dilation_y
        return padded[top : top + (len(rows) - 1) * window.stride_y + 1 : window.stride_y, :columns]

    def run(self) -> None:
        sums = self._pooled_values() if self.plain else self._accumulated_sums()
        if self.checks and self._may_overflow:
            self._check_sums(sums.astype(np.int64) - self._zeros if self.plain else sums)
        if self.spec.scales and not self.spec.output.kept:
            self._set_output_scale()
        self._put_all(sums)
        self.output.store_values()

    def _accumulated_sums(self) -> Int64:
        """The sums of what was kept and what is new, without the input's zero point."""
        start = self._initial_sums()
        if start is not None and self.spec.ignores_input:
            return start
        new = self._pooled_values().astype(np.int64) - self._zeros
        joined: Int64 = new if start is None else _JOINED.get(self.pool, np.add)(start, new)
        return joined

    def _pooled_values(self) -> NDArray[Any]:
        """The values that the windows give: [height, width, depth]."""
        self._load_input()
        padded, window = self.padded, self.spec.window
        if self.pool.is_argmax:
            return self._maximum_places(padded)
        if self.pool is PoolMode.REDUCE_SUM:
            padded = padded.sum(axis=2, keepdims=True)
        sums = self._over_windows(padded, _EXTREMES.get(self.pool, np.add))
        if self._inside is None:
            return sums
        return _divide_rounded(
            sums.astype(np.int64) - self.spec.input.zero_point * window.height * window.width, self._inside
        )

    def _maximum_places(self, padded: NDArray[Any]) -> Int64:
        """The first place of each window's maximum, above 16 bits of the value: OFM_SCALE shifts the value out."""
        window, out = self.spec.window, self.spec.output
        values = np.stack([window.tap_view(padded, y, x, range(out.height), out.width) for y, x in window.kernel_taps])
        place = np.argmax(values, axis=0).astype(np.int64)
        value = np.take_along_axis(values, place[None], 0)[0].astype(np.int64)
        found: Int64 = (place << 16) | (value & 0xFFFF)
        return found


def _divide_rounded(sums: Int64, count: Int64) -> Int64:
    """`sums` / `count`, halves away from zero."""
    half = count // 2
    return np.where(sums < 0, -((half - sums) // count), (sums + half) // count)


Kind = ElementwiseMode
_BINARY: dict[ElementwiseMode, Callable[[Any, Any], Any]] = {
    Kind.ADD: np.add,
    Kind.SUB: np.subtract,
    Kind.MUL: np.multiply,
    Kind.MIN: np.minimum,
    Kind.MAX: np.maximum,
    # All bits of a true result are set: regor masks with it (SELECT), and puts an AND with 1 after it (EQUAL).
    Kind.CMP_EQ: lambda a, b: np.where(a == b, -1, 0),
    Kind.CMP_NE: lambda a, b: np.where(a != b, -1, 0),
    Kind.CMP_GE: lambda a, b: np.where(a >= b, -1, 0),
    Kind.CMP_GT: lambda a, b: np.where(a > b, -1, 0),
    Kind.AND: np.bitwise_and,
    Kind.OR: np.bitwise_or,
    Kind.XOR: np.bitwise_xor,
    Kind.AND_NOT: lambda a, b: a & ~b,
}


class Elementwise:
    def __init__(self, spec: ElementwiseSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self.maps: list[FeatureMapAccess] = []
        self._inputs = [self._bind_operand(found, memory, regs) for found in spec.inputs]
        self.output = OutputPath(spec.output, memory, regs)
        a, b = spec.first, spec.second or spec.first
        if spec.swap:
            a, b = b, a
        self._a, self._b = _Operand(a, spec.first_scale), _Operand(b, spec.second_scale)
        self._plain = _Operand(a, Scale.single_scale(1, 0))
        if not spec.scale.is_identity:
            self.output.set_rescale(spec.scale, None, self._value_bound())

    def _bind_operand(self, found: InputSpec, memory: RegionMemory, regs: Registers) -> NDArray[Any]:
        if found.layout is None:
            return np.full((1, 1, 1), found.scalar, np.int64)
        self.maps.append(FeatureMapAccess(memory, regs, found.layout, found.shape, is_write=False))
        return self.maps[-1].array

    def _value_bound(self) -> float:
        """Bounds what is rescaled."""
        if self.spec.kind is Kind.MUL:
            return self._a.reach * self._b.reach
        return self._a.reach + self._b.reach if self.spec.kind in (Kind.ADD, Kind.SUB) else math.inf

    def run(self) -> None:
        spec, output = self.spec, self.output
        for found in self.maps:
            found.load_values()
        inputs, (height, width, depth), step = self._inputs, spec.output.shape, output.rows_per_block
        if step < height and not output.map.is_scratch:  # what is put is in memory at once
            inputs = [values.copy() for values in inputs]
        for row in range(0, height, step):
            rows = [values[row : row + step] if values.shape[0] > 1 else values for values in inputs]
            if spec.swap:
                rows.reverse()
            value = (
                self._unary_values(rows[0])
                if spec.second is None
                else self._binary_values(self._a(rows[0]), self._b(rows[1]))
            )
            shape = (min(step, height - row), width, depth)
            output.put_sums(row, value if value.shape == shape else np.broadcast_to(value, shape))
        output.store_values()

    def _unary_values(self, raw: NDArray[Any]) -> Int64:
        a, kind = self._a(raw), self.spec.kind
        if kind is Kind.ABS:
            return np.abs(a)
        if kind is Kind.NOT:
            return ~a
        if kind is Kind.CLZ:
            return _leading_zeros(a)
        return np.where(self._plain(raw) < 0, self._b(raw), a)  # LRELU

    def _binary_values(self, a: Int64, b: Int64) -> Int64:
        kind = self.spec.kind
        if kind in _BINARY:
            value: Int64 = _BINARY[kind](a, b)
            return value
        if kind is Kind.DIV:
            whole = np.abs(a) // np.maximum(np.abs(b), 1)
            return np.where((a < 0) != (b < 0), -whole, whole)
        by = np.clip(b, 0, 63)
        if kind is Kind.SHL:
            room = (np.int64(1) << 62) >> by  # beyond this the result saturates anyway
            return (a if self.spec.output.wraps else np.clip(a, -room, room)) << by
        if kind is Kind.LSR:
            bits = 8 * self.spec.first.dtype.itemsize
            return (a & ((1 << min(bits, 63)) - 1)) >> by
        return _shifted_right(a, by, self.spec.scale_rounding)


class _Operand:
    """The contribution of an operand: its value without the zero point, rescaled. Tabulated for 8 bits."""

    def __init__(self, source: InputSpec, scale: Scale) -> None:
        self._zero, self._scale = source.zero_point, None if scale.is_identity else scale
        self._table: Int64 | None = None
        info = np.iinfo(source.dtype)
        if source.dtype.itemsize == 1:
            every = np.arange(256, dtype=np.uint8).view(source.dtype)
            self._table = self._exact_value(every.astype(np.int64) - self._zero)
        ends = [source.scalar] * 2 if source.layout is None else [int(info.min), int(info.max)]
        self.reach = math.inf  # bounds the magnitude
        if source.dtype.itemsize < 8:
            self.reach = float(np.abs(self._exact_value(np.array(ends, np.int64) - self._zero)).max())

    def _exact_value(self, value: Int64) -> Int64:
        return value if self._scale is None else self._scale.rescale_exact(value)

    def __call__(self, raw: NDArray[Any]) -> Int64:
        if self._table is not None and raw.itemsize == 1:
            return self._table[raw.view(np.uint8)]
        value = raw.astype(np.int64)
        if self._zero:
            value -= self._zero
        return self._exact_value(value)


def _shifted_right(value: Int64, by: Int64, rounding: Rounding | ScaleRounding) -> Int64:
    """`value` / 2**by, rounded."""
    half = (np.int64(1) << by) >> 1
    if rounding is Rounding.TRUNCATE or rounding is ScaleRounding.TRUNCATE_TO_LOWER:
        half = np.zeros_like(half)
    elif rounding is Rounding.TFL:
        half = half - ((value < 0) & (by > 0))
    shifted: Int64 = (value + half) >> by
    return shifted


def _leading_zeros(value: Int64) -> Int64:
    """Leading zero bits of 32-bit values; none for negative ones, 32 for 0."""
    _, exponent = np.frexp(np.maximum(value, 0).astype(np.float64))
    return np.where(value < 0, 0, 32 - exponent).astype(np.int64)


_FRACTION = 16  # bits that OFM_SCALE has too many


class Resizing:
    def __init__(self, spec: ResizeSpec, memory: RegionMemory, regs: Registers) -> None:
        self.spec = spec
        self._input = FeatureMapAccess(memory, regs, spec.input.map, spec.input.shape, is_write=False)
        self.maps = [self._input]
        self.output = OutputPath(spec.output, memory, regs)

    def run(self) -> None:
        spec = self.spec
        self._input.load_values()
        values = self._input.array.astype(np.int64) - spec.input.zero_point
        top, down = _input_places(spec.y, spec.output.height)
        left, right = _input_places(spec.x, spec.output.width)
        if spec.kind is ResizeKind.BILINEAR:
            rows = [_clip_places(top + step, values.shape[0]) for step in (0, 1)]
            columns = [_clip_places(left + step, values.shape[1]) for step in (0, 1)]
            shares = (spec.y.numerator - down, down), (spec.x.numerator - right, right)
            sums = np.zeros(spec.output.shape, np.int64)
            for i in (0, 1):
                for j in (0, 1):
                    part = values[rows[i]][:, columns[j]]
                    sums += part * shares[0][i][:, None, None] * shares[1][j][None, :, None]
            result = sums << _FRACTION  # OFM_SCALE takes these out, and the product of both numerators
        else:
            nearest = spec.kind is ResizeKind.NEAREST
            rows0 = _clip_places(top + (nearest & (2 * down >= spec.y.numerator)), values.shape[0])
            columns0 = _clip_places(left + (nearest & (2 * right >= spec.x.numerator)), values.shape[1])
            result = values[rows0][:, columns0] << _FRACTION
        self.output.put_sums(0, spec.scale.rescale_exact(result))
        self.output.store_values()


def _input_places(axis: ResizeAxis, count: int) -> tuple[Int64, Int64]:
    """Input place and the rest of the way to the next, in parts of the numerator."""
    at = np.arange(count, dtype=np.int64) * axis.step + axis.offset
    return at // axis.numerator, at % axis.numerator


def _clip_places(places: Int64, extent: int) -> Int64:
    found: Int64 = np.clip(places, 0, extent - 1)
    return found


Kernel = Convolution | Pooling | Elementwise | Resizing
Bound = Kernel | Dma


def bind_step(step: DecodedStep, memory: RegionMemory, checks: bool, memo: list[DecodedConstants]) -> Bound:
    """The operation on real memory; `memo` keeps its decoded weights (at most one set) for the next binding."""
    registers, spec = step.registers, step.spec
    if isinstance(spec, ElementwiseSpec):
        return Elementwise(spec, memory, registers)
    if isinstance(spec, DmaSpec):
        return Dma(spec, memory, registers)
    if isinstance(spec, ResizeSpec):
        return Resizing(spec, memory, registers)
    if spec.pool is not None:
        return Pooling(spec, memory, registers, checks)
    return Convolution(spec, memory, registers, checks, memo)
