"""The writer of a micro-stream: kernels and copies of one program, and what they compute.

Invariant: maps are [H, W, C] of int8; a convolution's result is `(sum + 2**(SHIFT - 1)) >> SHIFT`, clamped, so that
numpy's integers say all of them. A copy brings the bytes of one kernel's weights, padded to a size requested;
kernels whose equal weights come first share a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...ethosu.arch import Architecture
from ...ethosu.lower.emit import CONSTANTS, Builder
from ...ethosu.lower.operands import Operand, Output, Window
from ...ethosu.lower.scaling import UNITY, Scale
from ...ethosu.lower.tensors import Padding
from ...ethosu.lower.views import TensorView
from ...ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...ethosu.stream.groups import SCALES, WEIGHTS
from ...ethosu.stream.isa import ElementwiseMode, Op, Rounding
from ...ethosu.stream.isa import Register as R
from ...ethosu.time import MemoryMap

_FEW = 4  # maps of a stream whose maps are alike and small
_SMALL = 16  # elements
SHIFT = 7  # of a convolution's sums
_CLAMP = (-128, 127)
_HALVING = Scale(1 << 30, 30 + SHIFT)
Values = NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class MicroStream:
    """A program with its constants, an input and the output that it must make of it."""

    name: str
    program: NpuProgram
    constants: bytes
    given: Values
    expected: Values


class StreamWriter:
    """Writes one stream; `maps` are the values of its feature maps so far."""

    def __init__(
        self, name: str, accelerator: Architecture, memory_map: MemoryMap, given: tuple[int, int, int]
    ) -> None:
        self._name, self._accelerator = name, accelerator
        self._builder = Builder(accelerator, memory_map)
        self._random = np.random.default_rng(20261123)
        self._operands: dict[str, Operand] = {}
        self.maps: dict[str, Values] = {}
        self._copies: list[_Copy] = []
        self._kernels = 0
        self._few: list[str] = []  # maps that results take in turn
        self._given = self._map("given", given, BufferRole.INPUT)
        self.maps[self._given] = self._random.integers(-128, 128, given, np.int8)
        self._output = ""

    def _map(self, name: str, shape: tuple[int, int, int], role: BufferRole) -> str:
        size = int(np.prod(shape))
        buffer = self._builder.buffer(name, size, role, (1, *shape), "int8")
        self._operands[buffer] = Operand(TensorView.dense(buffer, shape, 1), "int8")
        return buffer

    def _result(self, shape: tuple[int, int, int], last: bool, few: bool = False) -> str:
        """A map for a result; one of a `few` in turn, so that a long stream needs no more."""
        if not last and few:
            if len(self._few) < _FEW:
                self._few.append(self._map("map", shape, BufferRole.FEATURE_MAP))
                return self._few[-1]
            self._few.append(self._few.pop(0))
            return self._few[-1]
        if not last:
            return self._map("map", shape, BufferRole.FEATURE_MAP)
        self._output = self._map("made", shape, BufferRole.OUTPUT)
        return self._output

    def convolve(
        self,
        source: str,
        depth: int,
        *,
        kernel: tuple[int, int] = (1, 1),
        last: bool = False,
        slices: int = 1,
        early: int | None = None,
        copy_bytes: int = 0,
        weights: NDArray[np.int16] | None = None,
    ) -> str:
        """A convolution without padding, in `slices` by output channels.

        Its weights stay where the constants are, or come in a copy that starts `early` operations before it.
        """
        height, width, channels = self.maps[source].shape
        window = Window(kernel, padding=Padding(0, 0, 0, 0))
        rows, columns = height - kernel[0] + 1, width - kernel[1] + 1
        shape = (rows, columns, depth)
        if weights is None:
            weights = self.weights(depth, *kernel, channels)
        few = self.maps[source].size <= _SMALL
        target, values = self._result(shape, last, few), np.empty(shape, np.int8)
        each = depth // slices
        for first in range(0, depth, each):
            part = weights[first : first + each]
            ofm = self._channels(target, first, each)
            output = Output(_CLAMP, None, Rounding.NATURAL)
            bias = np.zeros(each, np.int64)
            ifm = self._operands[source]
            self._builder.weighted(ifm, ofm, window, output, part, bias, [_HALVING], depthwise=False)
            if early is not None:
                self._copies.append(_Copy(self._kernels, copy_bytes, early))
            self._kernels += 1
            values[:, :, first : first + each] = _convolved(self.maps[source], part, window)
        self.maps[target] = values
        return target

    def weights(self, *shape: int) -> NDArray[np.int16]:
        """Weights [O, H, W, I]."""
        return self._random.integers(-64, 65, shape).astype(np.int16)

    def _channels(self, name: str, first: int, depth: int) -> Operand:
        whole = self._operands[name]
        height, width, _ = whole.view.shape
        view = whole.view.box((0, 0, first), (height, width, depth))
        assert view is not None
        return replace(whole, view=view)

    def add(self, first: str, second: str, *, last: bool = False) -> str:
        """The saturated sum of two maps."""
        shape = self.maps[first].shape
        target = self._result((shape[0], shape[1], shape[2]), last, True)
        left, right, made = (self._operands[name] for name in (first, second, target))
        self._builder.elementwise(
            ElementwiseMode.ADD, left, right, made, Output(_CLAMP, UNITY, Rounding.NATURAL), operand_scales=(1, 1)
        )
        self._kernels += 1
        total = self.maps[first].astype(np.int64) + self.maps[second]
        self.maps[target] = np.clip(total, *_CLAMP).astype(np.int8)
        return target

    def finish(self) -> MicroStream:
        program, constants = self._builder.finish("npu", [self._output])
        program, constants = _with_copies(program, constants, self._copies)
        return MicroStream(self._name, program, constants, self.maps[self._given], self.maps[self._output])


@dataclass(frozen=True, slots=True)
class _Copy:
    """DMA of the weights and scales of kernel `kernel` to a buffer, in a transfer of at least `least_bytes`."""

    kernel: int
    least_bytes: int
    early: int  # kernels between the transfer and this one, as far as there are any


def _with_copies(program: NpuProgram, constants: bytes, copies: list[_Copy]) -> tuple[NpuProgram, bytes]:
    """The program with the transfers in it, each of bytes that stand together in the constants."""
    if not copies:
        return program, constants
    operations: list[NpuOperation] = list(program.operations)
    content, buffers, names = bytearray(constants), list[NpuBuffer](), list[str]()
    starts: dict[int, list[NpuOperation]] = {}
    shared: dict[object, dict[R, tuple[str, int]]] = {}  # where the weights of copies that come first are
    parts = [part for core in range(program.accelerator.cores) for part in (SCALES[core], WEIGHTS[core])]
    for copy in copies:
        kernel = operations[copy.kernel]
        spans = tuple((kernel.addresses[part.base][1], kernel.registers[part.length]) for part in parts)
        at, begin, name = max(0, copy.kernel - copy.early), len(content), f"copied_{len(names)}"
        key = spans if at == 0 and not copy.least_bytes else copy
        if key not in shared:
            shared[key] = {}
            for part, (offset, length) in zip(parts, spans, strict=True):
                shared[key][part.base] = (name, len(content) - begin)
                content += constants[offset : offset + length]
            content += bytes(max(0, begin + copy.least_bytes - len(content)))
            content += bytes(-len(content) % 16)
            size = len(content) - begin
            if not copy.early:  # awaited at once: two buffers do for all
                name = f"awaited_{len(names) % 2}"
                shared[key] = {base: (name, offset) for base, (_, offset) in shared[key].items()}
            names.append(name)
            if name not in (buffer.name for buffer in buffers):
                buffers.append(NpuBuffer(name, size, BufferRole.WEIGHTS))
            ends = {R.DMA0_SRC: (CONSTANTS, begin), R.DMA0_DST: (name, 0)}
            starts.setdefault(at, []).append(NpuOperation(Op.DMA_START, 0, {R.DMA0_LEN: size}, ends))
        operations[copy.kernel] = replace(kernel, addresses={**kernel.addresses, **shared[key]})
    ordered = [made for i, kernel in enumerate(operations) for made in (*starts.get(i, ()), kernel)]
    size = len(content)
    wider = [replace(b, size_bytes=size, shape=(size,)) if b.name == CONSTANTS else b for b in program.buffers]
    return NpuProgram(program.accelerator, (*wider, *buffers), tuple(ordered), program.name), bytes(content)


def _convolved(values: Values, weights: NDArray[np.int16], window: Window) -> Values:
    """What numpy's integers say: patches times weights [O, H, W, I], halved and clamped."""
    patches = np.lib.stride_tricks.sliding_window_view(values.astype(np.int64), window.kernel, (0, 1))
    patches = patches[:: window.stride[0], :: window.stride[1]]  # [rows, columns, channels, H, W]
    sums = np.einsum("rcihw,ohwi->rco", patches, weights.astype(np.int64), optimize=True)
    halved: NDArray[np.int64] = (sums + (1 << SHIFT - 1)) >> SHIFT
    return np.clip(halved, *_CLAMP).astype(np.int8)
