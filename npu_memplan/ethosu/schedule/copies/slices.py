"""Convolutions with much weight in slices of their output channels, each with weights of its own.

Invariant: the slices compute what the operation computed, channel by channel; a slice is whole blocks deep, so the
weights keep their order and nothing is read more often than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ... import vela
from ...arch import Architecture
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...stream.fields import OutputPrecision
from ...stream.groups import OFM, SCALES, WEIGHTS
from ...stream.isa import BRICK_CHANNELS, Op, Register
from ..shram import round_up

_SCALE_BYTES = 10  # of a channel
_GRAIN = 16


@dataclass(frozen=True, slots=True)
class _Core:
    """What one core reads for an operation: its weights by block, and its channels."""

    weights: NDArray[np.int16]
    padded: int  # values of one channel of a block, padding of the block included
    scale: int  # byte of its scales in the constants


class Slicer:
    """Slices of one program's convolutions. `data` are the bytes of its constants, `extended` those behind them."""

    def __init__(self, program: NpuProgram, data: bytes) -> None:
        self.program, self.data = program, data
        (self.constants,) = (b.name for b in program.buffers if b.role is BufferRole.CONSTANTS)
        self.extended = bytearray()
        # stripes of a convolution read the same weights: they are looked at, and cut, once
        self._cores: dict[object, tuple[_Core, ...] | None] = {}
        self._encoded: dict[object, tuple[int, int]] = {}

    def sliced(self, most_bytes: int) -> NpuProgram | None:
        """The program with convolutions whose weights take more in slices of at most so many, where that can be."""
        operations: list[NpuOperation] = []
        for operation in self.program.operations:
            operations += self._slices(operation, most_bytes)
        if len(operations) == len(self.program.operations):
            return None
        size = len(self.data) + len(self.extended)
        buffers = tuple(self._larger(b, size) if b.name == self.constants else b for b in self.program.buffers)
        return replace(self.program, buffers=buffers, operations=tuple(operations))

    @staticmethod
    def _larger(constants: NpuBuffer, size_bytes: int) -> NpuBuffer:
        return replace(constants, size_bytes=size_bytes, shape=(size_bytes,))

    def _slices(self, operation: NpuOperation, most_bytes: int) -> list[NpuOperation]:
        registers = operation.registers
        total = sum(registers.get(stream.length, 0) for stream in WEIGHTS)
        if operation.op is not Op.CONV or total <= most_bytes:
            return [operation]
        depth, block = registers[Register.OFM_DEPTH_M1] + 1, registers[Register.OFM_BLK_DEPTH_M1] + 1
        cores = self._read(operation)
        # scales of a slice start at a multiple of 16 bytes, for each core
        step = int(np.lcm(block, BRICK_CHANNELS * max(1, len(cores or ()))))
        parts = -(-total // most_bytes)
        step *= max(1, depth // parts // step)
        if cores is None or step >= depth:
            return [operation]
        return [
            self._slice(operation, cores, (start, min(start + step, depth)), block) for start in range(0, depth, step)
        ]

    def _read(self, operation: NpuOperation) -> tuple[_Core, ...] | None:
        """The weights of an operation by core; None where they are not what is expected."""
        key = _weights_of(operation)
        if key not in self._cores:
            self._cores[key] = self._decoded(operation)
        return self._cores[key]

    def _decoded(self, operation: NpuOperation) -> tuple[_Core, ...] | None:
        npu, registers = self.program.accelerator, operation.registers
        count = npu.cores if registers.get(Register.PARALLEL_MODE) else 1
        depth, block = registers[Register.OFM_DEPTH_M1] + 1, registers[Register.OFM_BLK_DEPTH_M1] + 1
        found = []
        for core in range(count):
            places = [operation.addresses.get(stream.base) for stream in (WEIGHTS[core], SCALES[core])]
            if block % count or any(place is None or place[0] != self.constants for place in places):
                return None
            (_, start), (_, scale) = (place for place in places if place is not None)
            weights = vela.decode_weights(self.data[start : start + registers[WEIGHTS[core].length]])
            channels = _padded(len(range(core, depth, count)), block // count, npu)
            if not channels or len(weights) % channels:
                return None
            found.append(_Core(weights, len(weights) // channels, scale))
        return tuple(found)

    def _slice(
        self, operation: NpuOperation, cores: tuple[_Core, ...], part: tuple[int, int], block: int
    ) -> NpuOperation:
        start, stop = part
        whole = _weights_of(operation)
        registers, addresses = dict(operation.registers), dict(operation.addresses)
        registers[Register.OFM_DEPTH_M1] = stop - start - 1
        for base in OFM.bases:
            if base in addresses:
                name, at = addresses[base]
                addresses[base] = (name, at + _channel_bytes(registers) * start)
        for core, known in enumerate(cores):
            first, last = start // len(cores), _count(stop, core, len(cores))
            at, length = self._weights(whole, core, known, (first, last), block // len(cores))
            addresses[WEIGHTS[core].base] = (self.constants, at)
            registers[WEIGHTS[core].length] = length
            addresses[SCALES[core].base] = (self.constants, known.scale + _SCALE_BYTES * first)
            registers[SCALES[core].length] = round_up(_SCALE_BYTES * (last - first), _GRAIN)
        return replace(operation, registers=registers, addresses=addresses)

    def _weights(self, whole: object, core: int, known: _Core, part: tuple[int, int], block: int) -> tuple[int, int]:
        """Where the encoded weights of some channels of a core lie in the constants, and their bytes."""
        key = (whole, core, part)
        if key not in self._encoded:
            npu = self.program.accelerator
            first, last = (_padded(channel, block, npu) * known.padded for channel in part)
            data = vela.encode_stream(known.weights[first:last])
            self._encoded[key] = (len(self.data) + len(self.extended), len(data))
            self.extended += data
        return self._encoded[key]


def _weights_of(operation: NpuOperation) -> object:
    """Which weights and scales an operation reads, and what their order follows from: the depth of its blocks."""
    registers = operation.registers
    streams = [(operation.addresses.get(stream.base), registers.get(stream.length)) for stream in (*WEIGHTS, *SCALES)]
    depths = (registers[Register.OFM_DEPTH_M1], registers[Register.OFM_BLK_DEPTH_M1])
    return (*streams, *depths, registers.get(Register.PARALLEL_MODE))


def _count(stop: int, core: int, cores: int) -> int:
    """Channels of one core below channel `stop`."""
    return len(range(core, stop, cores))


def _padded(channels: int, block: int, accelerator: Architecture) -> int:
    """Channels that the weights of so many have in the stream: each block is filled up to whole micro-blocks."""
    whole, rest = divmod(channels, block)
    depth = accelerator.ofm_micro.depth
    return whole * round_up(block, depth) + round_up(rest, depth)


def _channel_bytes(registers: Mapping[Register, int]) -> int:
    """Bytes from one output channel to the next; of bricks, on average over whole ones."""
    precision = registers[Register.OFM_PRECISION]
    if OutputPrecision.BRICK.of(precision):
        return registers[Register.OFM_STRIDE_C] // BRICK_CHANNELS
    return 1 << OutputPrecision.SIZE.of(precision)
