"""Weights as the NPU stores them: both compressed formats, the order in which they are consumed, the tables of scales.

Invariant: decoding reads no bit outside the stream and always ends; a stream that is cut off or that uses a reserved
code is a `WeightStreamError`. Everything that decodes outside the kernel is zero and the number of weights is exact; so
a wrong block depth, traversal or micro-block is always noticed. The sequential part (where each chunk starts) touches
every chunk once, and all symbols of a slice are extracted together. Source of what is Ethos-U85's: the encoder of
ethos-u-vela 5.2.0.

The compressed stream is a row of slices. A slice has up to 32768 weights as Golomb-Rice symbols (quotient in unary,
remainder in WDIV bits), which index a palette or are values themselves; between two weights may stand a run of zeros,
coded the same way with ZDIV bits. Weights and runs come in interleaved chunks of at most 12 symbols, and the remainders
of a chunk follow in the next one.

The fast format of Ethos-U85 is a header of 32 bytes, then codes of 8, 2 or 4 bits. The header holds two flags (raw
values instead of a palette, a palette of four), a zero point for raw values, and sixteen palette entries of nine bits
with the sign in bit 0.

The order on Ethos-U55 and U65, outermost first: blocks of output channels; slices of input channels (32 depth-first
with 8 bits, else 16); sub-kernels of at most 8 x 8 dilated elements; part-kernel-first only: micro-blocks of 8 input
channels; micro-blocks of output channels; kernel elements, x fastest; depth-first only: micro-blocks of 8 input
channels over the whole slice; output channels of the micro-block; input channels of it. Depthwise kernels have one
input channel and no slices.

The order on Ethos-U85, outermost first: blocks of output channels; slices of input channels, from the last to the first
in every second block; sub-kernels of at most 8 x 8 dilated elements, y fastest; part-kernel first with 16 bits: groups
of 8 input channels; micro-blocks of output channels; phases of the stride (part-kernel first and depthwise); kernel
elements, x fastest and backwards in every second row; groups of 8 input channels (16 where weights are 2:4); this
core's groups of 4 output channels; output channels; input channels. Elements of a sub-kernel are filled up to a
multiple of 5 or 10 with zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightStreamError, WeightStreamLongError, WeightStreamShortError
from .rescale import Int64

_END_OF_STREAM = 7  # as ZDIV
_NO_ZERO_RUNS = 6  # as ZDIV
_UNCOMPRESSED = 7  # as WDIV
_WORD = Struct("<I")
_ONES = bytes(bits.bit_count() for bits in range(1 << 12))  # in twelve bits
_MASKS = tuple((1 << length) - 1 for length in range(13))
_MAX_WEIGHTS = 1 << 26  # a stream that says more is damaged; also bounds the memory used here


@dataclass(slots=True)
class _Chunks:
    """Bit positions of one kind of symbol (weights or zero runs) in one slice."""

    unary: list[int] = field(default_factory=list)  # of each chunk's unary bits
    second: list[int] = field(default_factory=list)  # of each chunk's second unary bits (weights only)
    remain: list[int] = field(default_factory=list)  # of each chunk's remainders
    counts: list[int] = field(default_factory=list)  # symbols that end in each chunk


@dataclass(slots=True)
class _Palette:
    zero_runs: bool
    values: Int64
    bits: int
    direct_offset: int


def decode_mlw(stream: bytes) -> NDArray[np.int16]:
    """All weights of a stream, zero runs included: int16 values in -255..255, in stream order.

    Raises `WeightStreamShortError` when the stream ends inside a slice and `WeightStreamError`
    when it uses a code that is reserved.
    """
    return _Decoder(stream).decode_all()


class _Decoder:
    def __init__(self, stream: bytes) -> None:
        self.size_bits = len(stream) * 8
        self.data = stream + bytes(16)
        self.bits = np.unpackbits(np.frombuffer(stream, np.uint8), bitorder="little")
        self.position = 0
        self.total = 0

    def take_bits(self, count: int) -> int:
        start = self.position
        self.position = start + count
        if self.position > self.size_bits:
            raise self.short_error()
        return (int.from_bytes(self.data[start >> 3 : (start >> 3) + 4], "little") >> (start & 7)) & ((1 << count) - 1)

    def short_error(self) -> WeightStreamShortError:
        return WeightStreamShortError(
            f"the weight stream of {self.size_bits // 8} bytes ends inside a slice, after {self.total} weights: "
            "it is too short or damaged; check WEIGHT_BASE and WEIGHT_LENGTH"
        )

    def decode_all(self) -> NDArray[np.int16]:
        parts: list[NDArray[np.int16]] = []
        palette: _Palette | None = None
        while self.position + 8 <= self.size_bits or self.position % 8:
            zero_div = self.take_bits(3)
            if zero_div == _END_OF_STREAM:
                self.position = (self.position + 7) // 8 * 8
                palette = None
                continue
            if zero_div > 3 and zero_div != _NO_ZERO_RUNS:
                raise WeightStreamError(f"weight stream: ZDIV {zero_div} at bit {self.position - 3} is reserved")
            palette = self.slice_header(zero_div, palette, parts)
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    def slice_header(self, zero_div: int, palette: _Palette | None, parts: list[NDArray[np.int16]]) -> _Palette:
        at = self.position
        count, weight_div = self.take_bits(15) + 1, self.take_bits(3)
        truncated, new_palette = bool(self.take_bits(1)), bool(self.take_bits(1))
        zero_runs = zero_div != _NO_ZERO_RUNS
        if new_palette:
            direct_offset, size, bits = self.take_bits(5), self.take_bits(5), 0
            size += size > 0
            bits = self.take_bits(3) + 2
            values = np.array([self.take_bits(bits) for _ in range(size)], np.int64)
            palette = _Palette(zero_runs, values, bits, direct_offset)
        elif palette is None or palette.zero_runs != zero_runs:
            raise WeightStreamError(f"weight stream: the slice at bit {at} uses a palette that was not defined")
        uncompressed = weight_div == _UNCOMPRESSED
        if uncompressed:
            size = len(palette.values)
            weight_div = (size - 1).bit_length() if size else palette.bits
        elif weight_div > 5:
            raise WeightStreamError(f"weight stream: WDIV {weight_div} at bit {at} is reserved")
        runs = count + new_palette if zero_runs else 0
        weights, zeros = self.walk_chunks(count, runs, weight_div, zero_div, uncompressed, truncated)
        if self.position > self.size_bits:
            raise self.short_error()
        symbols = self.weight_symbols(weights, count, weight_div, uncompressed, truncated)
        if symbols.max(initial=0) > 511:
            raise WeightStreamError(f"weight stream: a symbol of the slice at bit {at} does not fit 9 bits")
        table = np.concatenate([palette.values, np.arange(512) + palette.direct_offset])
        coded = table[symbols]
        signed = np.where(coded & 1, -(coded >> 1), coded >> 1)
        if not zero_runs:
            self.total += count
            parts.append(signed.astype(np.int16))
            return palette
        lengths = self.zero_symbols(zeros, runs, zero_div)
        before = np.cumsum(lengths)
        total = count + int(before[-1])
        self.total += total
        if self.total > _MAX_WEIGHTS:
            raise WeightStreamError(f"weight stream: it decodes to more than {_MAX_WEIGHTS} weights: it is damaged")
        # Run i precedes weight i when the palette is new, else after it.
        preceding = before[:count] if new_palette else np.concatenate([[0], before[: count - 1]])
        out = np.zeros(total, np.int16)
        out[np.arange(count) + preceding] = signed
        parts.append(out)
        return palette

    def walk_chunks(
        self, count: int, runs: int, weight_div: int, zero_div: int, uncompressed: bool, truncated: bool
    ) -> tuple[_Chunks, _Chunks]:
        """Find where the chunks of one slice are; leaves `position` after the slice."""
        if not (runs or uncompressed):
            return self.walk_weights(count, weight_div, truncated), _Chunks()
        weights, zeros = _Chunks(), _Chunks()
        data, position, limit = self.data, self.position, self.size_bits
        zero_bits = 12 if zero_div < 3 else 8
        zero_mask = (1 << zero_bits) - 1
        in_chunk = 8 if uncompressed and weight_div > 5 else 12
        w_seen = z_seen = 0  # symbols whose unary part was read
        w_left, z_left = count, runs  # symbols whose remainder is still to come
        w_symbols = z_symbols = w_pending = z_pending = 0  # of the previous chunk, whose remainders come next
        while position <= limit:
            balance = w_seen - z_seen if runs else 0
            w_enable = balance < 8 and w_seen < count
            z_enable = balance >= 0 and z_seen < runs
            unary = w_new = z_new = 0
            if w_enable:
                weights.unary.append(position)
                if not uncompressed:
                    byte = position >> 3
                    unary = (int.from_bytes(data[byte : byte + 3], "little") >> (position & 7)) & 0xFFF
                    position += 12
            if z_enable:
                zeros.unary.append(position)
                byte = position >> 3
                ones = (int.from_bytes(data[byte : byte + 3], "little") >> (position & 7)) & zero_mask
                position += zero_bits
                z_new = zero_bits - ones.bit_count()
                zeros.counts.append(z_new)
                z_seen += z_new
            if w_enable:
                weights.second.append(position)
                w_new = in_chunk
                if unary:
                    length = unary.bit_count()
                    if not truncated:
                        byte = position >> 3
                        second = int.from_bytes(data[byte : byte + 3], "little") >> (position & 7)
                        w_new -= (second & ((1 << length) - 1)).bit_count()
                    position += length
                weights.counts.append(w_new)
                w_seen += w_new
            if w_pending:
                weights.remain.append(position)
                taken = min(w_symbols, w_left)
                w_left -= taken
                position += taken * weight_div
            if z_pending:
                zeros.remain.append(position)
                taken = min(z_symbols, z_left)
                z_left -= taken
                position += taken * zero_div
            if not (w_enable or z_enable):
                break
            w_pending, w_symbols, z_pending, z_symbols = w_enable, w_new, z_enable, z_new
        self.position = position
        return weights, zeros

    def walk_weights(self, count: int, weight_div: int, truncated: bool) -> _Chunks:
        """`walk_chunks` for the commonest kind of slice, compressed and without zero runs: one read for each chunk."""
        data, position, limit = self.data, self.position, self.size_bits
        unary_at: list[int] = []
        remain_at: list[int] = []
        counts: list[int] = []
        seen = previous = 0
        read, ones, masks = _WORD.unpack_from, _ONES, _MASKS
        while seen < count and position <= limit:
            bits = read(data, position >> 3)[0] >> (position & 7)
            unary_at.append(position)
            length = ones[bits & 0xFFF]
            found = 12 if truncated else 12 - ones[bits >> 12 & masks[length]]
            position += 12 + length
            remain_at.append(position)
            position += previous * weight_div
            counts.append(found)
            seen += found
            previous = found
        remain_at.append(position)
        # The last chunk's symbols beyond the slice have no remainder.
        self.position = position + (previous - max(seen - count, 0)) * weight_div
        return _Chunks(unary_at, [at + 12 for at in unary_at], remain_at[1:], counts)

    def bit_fields(self, starts: Int64, width: int) -> Int64:
        """`width`-bit numbers at bit positions `starts`."""
        value = np.zeros(len(starts), np.int64)
        for bit in range(width):
            value |= self.bits[starts + bit].astype(np.int64) << bit
        return value

    def decode_remainders(self, chunks: _Chunks, count: int, width: int) -> Int64:
        counts = np.array(chunks.counts, np.int64)
        first = np.cumsum(counts) - counts
        starts = np.repeat(np.array(chunks.remain, np.int64) - first * width, counts)[:count]
        return self.bit_fields(starts + np.arange(len(starts)) * width, width)

    def weight_symbols(self, chunks: _Chunks, count: int, width: int, uncompressed: bool, truncated: bool) -> Int64:
        remainders = self.decode_remainders(chunks, count, width)
        if uncompressed:
            return remainders
        codes = self.bits[np.array(chunks.unary, np.int64)[:, None] + np.arange(12)].astype(np.int64)
        ones = codes.sum(axis=1)
        first = np.cumsum(ones) - ones
        second = np.repeat(np.array(chunks.second, np.int64) - first, ones)
        codes = codes.ravel()
        codes[codes > 0] += self.bits[second + np.arange(len(second))]
        if truncated:
            quotients = codes[:count]
        else:  # code 2 means: two, and the symbol goes on
            ends = np.flatnonzero(codes < 2)[:count]
            quotients = np.diff(np.cumsum(codes)[ends], prepend=0)
        values: Int64 = (quotients << width) + remainders
        return values

    def zero_symbols(self, chunks: _Chunks, count: int, width: int) -> Int64:
        unary = 12 if width < 3 else 8
        ones = self.bits[np.array(chunks.unary, np.int64)[:, None] + np.arange(unary)].ravel()
        ends = np.flatnonzero(ones == 0)[:count]
        quotients = np.diff(ends, prepend=-1) - 1
        values: Int64 = (quotients << width) + self.decode_remainders(chunks, count, width)
        return values


_HEADER_BYTES = 32
_OFFSET_BIT, _PALETTE_BIT, _PALETTE_WIDTH, _PALETTE_SIZE = 104, 112, 9, 16


def decode_fast(stream: bytes, count: int) -> NDArray[np.int16]:
    """`count` weights of a stream: int16 values in -256..255, in stream order."""
    if len(stream) < _HEADER_BYTES:
        raise WeightStreamShortError(f"the weight stream of {len(stream)} bytes has no room for its header of 32")
    header = int.from_bytes(stream[:_HEADER_BYTES], "little")
    raw, small = header & 1, header >> 1 & 1
    if raw and small:
        raise WeightStreamError("weight stream: its header has raw values and a palette at once")
    width = 8 if raw else 2 if small else 4
    body = np.frombuffer(stream, np.uint8)[_HEADER_BYTES:]
    if len(body) * 8 < count * width:
        raise WeightStreamShortError(
            f"the weight stream of {len(stream)} bytes holds at most {len(body) * 8 // width} weights of {width} bits, "
            f"but the operation consumes {count}: it is too short or damaged; check WEIGHT_BASE and WEIGHT_LENGTH"
        )
    if raw:
        offset = header >> _OFFSET_BIT & 0xFF
        offset -= (offset & 0x80) << 1
        values: NDArray[np.int16] = body[:count].view(np.int8).astype(np.int16) - np.int16(offset)
        return values
    mask = (1 << width) - 1
    per_byte = 8 // width
    codes = (body[:, None] >> (np.arange(per_byte, dtype=np.uint8) * width) & mask).reshape(-1)[:count]
    folded = header >> _PALETTE_BIT
    entries = [folded >> (_PALETTE_WIDTH * i) & (1 << _PALETTE_WIDTH) - 1 for i in range(_PALETTE_SIZE)]
    palette = np.array([-(entry >> 1) if entry & 1 else entry >> 1 for entry in entries], np.int16)
    found: NDArray[np.int16] = palette[codes]
    return found


_IFM_UBLOCK = 8
_GROUP = 4  # output channels that one core takes in a row
SUBKERNEL = 8  # rows or columns, dilation included
SCALE_BYTES = 10
Element = tuple[int, int]  # row and column of a kernel element
FILLING: Element = (-1, -1)  # in place of one


@dataclass(frozen=True, slots=True)
class WeightOrder:
    """The features that determine the order of the weight streams of one operation, as it states them."""

    kernel_height: int  # without dilation
    kernel_width: int
    dilation_y: int
    dilation_x: int
    ifm_depth: int  # 1 for depthwise
    ofm_depth: int  # channels of these streams (of one core, where each has its own order)
    block_depth: int  # of the same
    ifm_bits: int
    part_kernel_first: bool
    depthwise: bool
    micro_depth: int  # output channels of a micro-block
    slice_depth: int  # input channels of one pass
    _: KW_ONLY
    cores: int = 1  # that share these weights, each with a stream of its own

    @property
    def _group_depth(self) -> int:
        """Input channels between two changes of the micro-block of output channels."""
        return 1 if self.depthwise else _IFM_UBLOCK if self.part_kernel_first else self.slice_depth

    @property
    def _inner_channels(self) -> int:
        """Input channels in a row."""
        return 1 if self.depthwise else _IFM_UBLOCK

    @property
    def _element_multiple(self) -> int:
        """Elements of a sub-kernel are filled up to a multiple of this."""
        if self.depthwise:
            return 4
        return (4 if self.ifm_bits == 8 else 2) if self.part_kernel_first else 1

    def _subkernel_elements(self, height: int, width: int) -> list[Element]:
        """Rows and columns of a sub-kernel's elements in order, `FILLING` included."""
        return [*product(range(height), range(width)), *[FILLING] * (-height * width % self._element_multiple)]

    def _slice_channels(self, block: int) -> Sequence[int]:
        """First input channels of the slices of output block number `block`, in order."""
        return range(0, self.ifm_depth, self.slice_depth)

    def _subkernel_origins(self) -> list[Element]:
        """Row and column of the first elements of all sub-kernels, in order."""
        rows = range(0, self.kernel_height, SUBKERNEL // self.dilation_y)
        return list(product(rows, range(0, self.kernel_width, SUBKERNEL // self.dilation_x)))

    def _weight_runs(self) -> Iterator[tuple[Element, slice, slice, tuple[int, ...], list[Element]]]:
        """(first element, input channels, output channels, padded shape, elements) of each run of weights."""
        step_y, step_x = SUBKERNEL // self.dilation_y, SUBKERNEL // self.dilation_x
        elements = {
            (y, x): self._subkernel_elements(min(step_y, self.kernel_height - y), min(step_x, self.kernel_width - x))
            for y, x in self._subkernel_origins()
        }
        groups = self._group_depth // self._inner_channels, self.micro_depth // (_GROUP * self.cores)
        for block, o in enumerate(range(0, self.ofm_depth, self.block_depth)):
            outputs = slice(o, min(o + self.block_depth, self.ofm_depth))
            blocks = -(-(outputs.stop - o) // self.micro_depth)
            for i in self._slice_channels(block):
                stop = 1 if self.depthwise else min(i + self.slice_depth, self.ifm_depth)
                for first, inner in elements.items():
                    shape = (blocks, len(inner), *groups, _GROUP, self._inner_channels)
                    for start in range(i, stop, self._group_depth):
                        inputs = slice(start, min(start + self._group_depth, self.ifm_depth))
                        yield first, inputs, outputs, shape, inner

    @property
    def weight_count(self) -> int:
        """Weights in each stream, padding included."""
        return sum(math.prod(shape) for *_, shape, _ in self._weight_runs())

    @property
    def interleaved_count(self) -> int:
        """Weights of one core in a row where one stream serves all cores."""
        return self.micro_depth * self._group_depth * self._element_multiple // self.cores

    def arrange_weights(self, streams: Sequence[NDArray[np.int16]], where: str) -> NDArray[np.int16]:
        """The weights as [height, width, input channels, output channels], of a stream for each core."""
        for stream in streams:
            self._check_count(len(stream), where)
        out = np.zeros((self.kernel_height, self.kernel_width, self.ifm_depth, self.ofm_depth), np.int16)
        position = 0
        for (y, x), inputs, outputs, shape, elements in self._weight_runs():
            size = math.prod(shape)
            parts = np.stack([stream[position : position + size].reshape(shape) for stream in streams])
            position += size
            # [core, block, element, input group, output group, output, input] -> [element, input, output]
            run = parts.transpose(2, 3, 6, 1, 4, 0, 5).reshape(len(elements), shape[2] * shape[5], -1)
            ins, outs = inputs.stop - inputs.start, outputs.stop - outputs.start
            real = [n for n, element in enumerate(elements) if element != FILLING]
            rows, columns = (np.array([elements[n][axis] for n in real]) for axis in (0, 1))
            out[y + rows, x + columns, inputs, outputs] = run[real, :ins, :outs]
        stray = sum(int(np.count_nonzero(stream)) for stream in streams) - int(np.count_nonzero(out))
        if stray:
            raise WeightStreamError(
                f"{where}: {stray} weights that stand outside the kernel are not zero: the stream was made "
                "for another shape, block depth or traversal"
            )
        return out

    def _check_count(self, found: int, where: str) -> None:
        """`WeightStreamShortError` or `WeightStreamLongError` when a stream has not as many weights as it must."""
        least = self.kernel_height * self.kernel_width * self.ifm_depth * self.ofm_depth // (4 * self.cores)
        bounded = least > found
        expected = least if bounded else self.weight_count
        if found == expected:
            return
        kind, error = ("short", WeightStreamShortError) if found < expected else ("long", WeightStreamLongError)
        raise error(
            f"{where}: the weight stream is too {kind}: it holds {found} weights, the operation consumes "
            f"{'at least ' if bounded else ''}{expected}; the block depth ({self.block_depth}), the kernel or the "
            "weights are wrong"
        )


@dataclass(frozen=True, slots=True)
class ScaleTable:
    """Per output channel: bias, multiplier (unsigned), right shift (6 bits); int64 arrays."""

    bias: NDArray[np.int64]
    scale: NDArray[np.int64]
    shift: NDArray[np.int64]

    @staticmethod
    def parse_records(
        data: NDArray[np.uint8], channels: int, where: str, bias_bytes: int = 5, scale_bits: int = 32
    ) -> ScaleTable:
        """The table in `data`, records of bias, scale and shift; `WeightStreamShortError` when it ends too early."""
        if data.size < channels * SCALE_BYTES:
            raise WeightStreamShortError(
                f"{where}: the scale table of {data.size} bytes is too short for {channels} channels, "
                f"which need {channels * SCALE_BYTES}"
            )
        table = data[: channels * SCALE_BYTES].reshape(channels, SCALE_BYTES).astype(np.int64)
        powers = np.int64(1) << (8 * np.arange(6, dtype=np.int64))
        end = bias_bytes + -(-scale_bits // 8)
        bias = table[:, :bias_bytes] @ powers[:bias_bytes]
        bias -= (bias >> (8 * bias_bytes - 1)) << (8 * bias_bytes)
        scale = table[:, bias_bytes:end] @ powers[: end - bias_bytes] & (1 << scale_bits) - 1
        return ScaleTable(bias, scale, table[:, end] & 0x3F)

    @staticmethod
    def interleave_cores(parts: list[ScaleTable]) -> ScaleTable:
        """Tables of cores 0 and 1, which hold even and odd channels, as one."""
        if len(parts) == 1:
            return parts[0]
        total = sum(len(p.bias) for p in parts)
        merged = [np.zeros(total, np.int64) for _ in range(3)]
        for core, part in enumerate(parts):
            for target, source in zip(merged, (part.bias, part.scale, part.shift), strict=True):
                target[core :: len(parts)] = source
        return ScaleTable(*merged)


@dataclass(frozen=True, slots=True)
class StreamOrder(WeightOrder):
    """The same on Ethos-U85."""

    stride_y: int
    stride_x: int
    sparse: bool
    macs: int

    @property
    def _element_multiple(self) -> int:
        if self.depthwise:
            return 10
        if not self.part_kernel_first:
            return 1
        return 10 if self.ifm_bits == 16 or self.sparse else 5

    @property
    def _group_depth(self) -> int:
        if self.depthwise:
            return 1
        return 8 if self.part_kernel_first and self.ifm_bits == 16 and not self.sparse else self.slice_depth

    @property
    def _inner_channels(self) -> int:
        return 1 if self.depthwise else 16 if self.sparse else 8

    @property
    def _leading_zeros(self) -> int:
        """Zeros a core's channel gets after each ten elements of a depthwise kernel."""
        if not self.depthwise or (self.ifm_bits != 16 and self.macs <= 256):
            return 0
        return 2 if self.macs <= 512 else 6

    def _subkernel_elements(self, height: int, width: int) -> list[Element]:
        strides = (self.stride_y, self.stride_x) if self.part_kernel_first or self.depthwise else (1, 1)
        found: list[Element] = []
        left = -(-height * width // self._element_multiple) * self._element_multiple
        for sy in range(strides[0]):
            rows = (height + strides[0] - 1 - sy) // strides[0]
            for sx in range(strides[1]):
                columns = (width + strides[1] - 1 - sx) // strides[1]
                for y in range(rows):
                    for x in range(columns) if y % 2 == 0 else reversed(range(columns)):
                        found.append((sy + y * strides[0], sx + x * strides[1]))
                        left -= 1
                        if self.depthwise and left % self._element_multiple == 0:
                            found += [FILLING] * self._leading_zeros
        return found + [FILLING] * (left + self._leading_zeros if left else 0)

    def _slice_channels(self, block: int) -> Sequence[int]:
        return range(0, self.ifm_depth, self.slice_depth)[:: -1 if block % 2 else 1]

    def _subkernel_origins(self) -> list[Element]:
        columns = range(0, self.kernel_width, SUBKERNEL // self.dilation_x)
        return [(y, x) for x in columns for y in range(0, self.kernel_height, SUBKERNEL // self.dilation_y)]
