"""The compressed weight stream of Ethos-U: bytes to the sequence of signed weights.

Invariant: decoding reads no bit outside the stream and always ends; a stream that is cut off or
that uses a reserved code is a `WeightStreamError`. Written so that the sequential part (where
each chunk starts) touches every chunk once and all symbols of a slice are extracted together.

A stream is a row of slices. A slice has up to 32768 weights as Golomb-Rice symbols (quotient in
unary, remainder in WDIV bits), which index a palette or are values themselves; between two weights
may stand a run of zeros, coded the same way with ZDIV bits. Weights and runs come in interleaved
chunks of at most 12 symbols, and the remainders of a chunk follow in the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import WeightStreamError, WeightStreamShortError
from .rescale import Int64

_END_OF_STREAM = 7  # as ZDIV
_NO_ZERO_RUNS = 6  # as ZDIV
_UNCOMPRESSED = 7  # as WDIV
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


def decode(stream: bytes) -> NDArray[np.int16]:
    """All weights of a stream, zero runs included: int16 values in -255..255, in stream order.

    Raises `WeightStreamShortError` when the stream ends inside a slice and `WeightStreamError`
    when it uses a code that is reserved.
    """
    return _Decoder(stream).run()


class _Decoder:
    def __init__(self, stream: bytes) -> None:
        self.size_bits = len(stream) * 8
        self.data = stream + bytes(16)
        self.bits = np.unpackbits(np.frombuffer(stream, np.uint8), bitorder="little")
        self.position = 0
        self.total = 0

    def take(self, count: int) -> int:
        start = self.position
        self.position = start + count
        if self.position > self.size_bits:
            raise self.short()
        return (int.from_bytes(self.data[start >> 3 : (start >> 3) + 4], "little") >> (start & 7)) & ((1 << count) - 1)

    def short(self) -> WeightStreamShortError:
        return WeightStreamShortError(
            f"the weight stream of {self.size_bits // 8} bytes ends inside a slice, after {self.total} weights: "
            "it is too short or damaged; check WEIGHT_BASE and WEIGHT_LENGTH"
        )

    def run(self) -> NDArray[np.int16]:
        parts: list[NDArray[np.int16]] = []
        palette: _Palette | None = None
        while self.position + 8 <= self.size_bits or self.position % 8:
            zero_div = self.take(3)
            if zero_div == _END_OF_STREAM:
                self.position = (self.position + 7) // 8 * 8
                palette = None
                continue
            if zero_div > 3 and zero_div != _NO_ZERO_RUNS:
                raise WeightStreamError(f"weight stream: ZDIV {zero_div} at bit {self.position - 3} is reserved")
            palette = self.slice(zero_div, palette, parts)
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    def slice(self, zero_div: int, palette: _Palette | None, parts: list[NDArray[np.int16]]) -> _Palette:
        at = self.position
        count, weight_div = self.take(15) + 1, self.take(3)
        truncated, new_palette = bool(self.take(1)), bool(self.take(1))
        zero_runs = zero_div != _NO_ZERO_RUNS
        if new_palette:
            direct_offset, size, bits = self.take(5), self.take(5), 0
            size += size > 0
            bits = self.take(3) + 2
            values = np.array([self.take(bits) for _ in range(size)], np.int64)
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
        weights, zeros = self.walk(count, runs, weight_div, zero_div, uncompressed, truncated)
        if self.position > self.size_bits:
            raise self.short()
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

    def walk(
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
        """`walk` for the commonest kind of slice, compressed and without zero runs: one read for each chunk."""
        data, position, limit = self.data, self.position, self.size_bits
        unary_at: list[int] = []
        remain_at: list[int] = []
        counts: list[int] = []
        seen = previous = 0
        while seen < count and position <= limit:
            byte = position >> 3
            bits = int.from_bytes(data[byte : byte + 4], "little") >> (position & 7)
            unary_at.append(position)
            length = (bits & 0xFFF).bit_count()
            found = 12 if truncated else 12 - (bits >> 12 & ((1 << length) - 1)).bit_count()
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

    def field(self, starts: Int64, width: int) -> Int64:
        """`width`-bit numbers at bit positions `starts`."""
        value = np.zeros(len(starts), np.int64)
        for bit in range(width):
            value |= self.bits[starts + bit].astype(np.int64) << bit
        return value

    def remainders(self, chunks: _Chunks, count: int, width: int) -> Int64:
        counts = np.array(chunks.counts, np.int64)
        first = np.cumsum(counts) - counts
        starts = np.repeat(np.array(chunks.remain, np.int64) - first * width, counts)[:count]
        return self.field(starts + np.arange(len(starts)) * width, width)

    def weight_symbols(self, chunks: _Chunks, count: int, width: int, uncompressed: bool, truncated: bool) -> Int64:
        remainders = self.remainders(chunks, count, width)
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
        values: Int64 = (quotients << width) + self.remainders(chunks, count, width)
        return values
