"""Random small networks of layers that can be cut by rows or channels, and planned programs on the NPU model."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.layers.activation import Lookup
from npu_memplan.ethosu.layers.elementwise import Binary
from npu_memplan.ethosu.layers.matrix import Conv
from npu_memplan.ethosu.layers.movement import Concat
from npu_memplan.ethosu.layers.pool import PoolKind, PoolLayer
from npu_memplan.ethosu.lower.layer import Layer, LayerGraph
from npu_memplan.ethosu.lower.operands import LayerTensor, Padding
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import ElementwiseMode
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.verify import verify

_FIXED = (BufferRole.CONSTANTS, BufferRole.LUT)


class Chain:
    """Builds one graph, layer after layer, of tensors of one `dtype`."""

    def __init__(self, seed: int, shape: tuple[int, int, int], dtype: str = "int8") -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype, info = dtype, np.iinfo(dtype)
        self.clamp = int(info.min), int(info.max)
        self.zero_points = {"int8": (3, -5), "uint8": (131, 120), "int16": (0, 0)}[dtype]
        self.tensors = {"x": LayerTensor("x", (1, *shape), dtype, 0.05, self.zero_points[0])}
        self.layers: list[Layer] = []
        self.last = "x"

    def _new(self, height: int, width: int, depth: int) -> str:
        name = f"t{len(self.layers)}"
        self.tensors[name] = LayerTensor(
            name, (1, height, width, depth), self.dtype, self.rng.choice((0.04, 0.06)), self.zero_points[1]
        )
        return name

    def _window(self, kernel: int, stride: int) -> tuple[Padding, int, int]:
        """SAME padding and the output's extents."""
        _, height, width, _ = self.tensors[self.last].shape
        sides = []
        for extent in (height, width):
            whole = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
            sides.append((whole // 2, whole - whole // 2))
        (top, bottom), (left, right) = sides
        return Padding(top, left, bottom, right), -(-height // stride), -(-width // stride)

    def conv(self, depth: int, kernel: int, stride: int, *, depthwise: bool = False) -> str:
        """A convolution; depthwise keeps the depth."""
        source = self.tensors[self.last].shape[3]
        depth = source if depthwise else depth
        padding, height, width = self._window(kernel, stride)
        output = self._new(height, width, depth)
        weights = self.numbers.integers(-127, 128, (depth, kernel, kernel, 1 if depthwise else source)).astype(np.int16)
        bias = self.numbers.integers(-500, 500, depth).astype(np.int64)
        self._add(Conv(output, (self.last,), output, weights, bias, (0.004,), self.clamp, (stride, stride),
                       padding=padding, depthwise=depthwise))  # fmt: skip
        return output

    def pool(self, kind: PoolKind, kernel: int, stride: int) -> str:
        """A maximum with SAME padding, or an average without any."""
        padding, height, width = self._window(kernel, stride)
        _, rows, columns, depth = self.tensors[self.last].shape
        if kind is PoolKind.AVERAGE:
            padding, height, width = Padding(), (rows - kernel) // stride + 1, (columns - kernel) // stride + 1
        output = self._new(height, width, depth)
        source = self.tensors[self.last]
        self.tensors[output] = LayerTensor(
            output, (1, height, width, depth), self.dtype, source.scale, source.zero_point
        )
        self._add(
            PoolLayer(output, (self.last,), output, kind, (kernel, kernel), self.clamp, (stride, stride), padding)
        )
        return output

    def add(self, other: str, kind: ElementwiseMode = ElementwiseMode.ADD) -> str:
        """The sum of the last tensor and `other`."""
        output = self._new(*self.tensors[self.last].shape[1:])
        self._add(Binary(output, (other, self.last), output, self.clamp, kind))
        return output

    def constant(self, shape: tuple[int, int, int]) -> str:
        """Numbers, for `add`."""
        name = f"c{len(self.layers)}"
        values = self.numbers.integers(*self.clamp, (1, *shape)).astype(self.dtype)
        self.tensors[name] = LayerTensor(name, (1, *shape), self.dtype, 0.05, self.zero_points[0], values)
        return name

    def branches(self) -> str:
        """Two convolutions of one tensor, side by side in the channels of another."""
        start = self.last
        parts = []
        for depth in (8, 16):
            self.last = start
            name = self.conv(depth, self.rng.choice((1, 3)), 1)
            self.tensors[name] = replace(self.tensors[name], scale=0.05)
            parts.append(name)
        _, height, width, _ = self.tensors[start].shape
        output = self._new(height, width, 24)
        self.tensors[output] = replace(self.tensors[output], scale=0.05)
        self._add(Concat(output, tuple(parts), output, -1))
        return output

    def lookup(self) -> str:
        """A table."""
        output = self._new(*self.tensors[self.last].shape[1:])
        self._add(Lookup(output, (self.last,), output, tuple(int(v) for v in self.numbers.integers(-128, 128, 256))))
        return output

    def _add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.last = layer.output

    def graph(self) -> LayerGraph:
        """What was built; the last tensor is the output."""
        return LayerGraph("chain", self.tensors, ("x",), (self.last,), tuple(self.layers))


def random_chain(seed: int) -> LayerGraph:
    """Three to eight layers of every kind that can be cut."""
    rng = random.Random(seed)
    chain = Chain(seed, (rng.randint(5, 17), rng.randint(3, 9), rng.choice((3, 8, 16, 32))))
    for _ in range(rng.randint(3, 8)):
        _, height, width, _ = chain.tensors[chain.last].shape
        kind = rng.choice(("conv", "conv", "depthwise", "max", "average", "block", "branches", "lookup"))
        stride = rng.choice((1, 1, 2)) if min(height, width) > 4 else 1
        if kind == "conv":
            chain.conv(rng.choice((8, 16, 24, 32)), rng.choice((1, 3, 5)), stride)
        elif kind == "depthwise":
            chain.conv(0, rng.choice((3, 5)), stride, depthwise=True)
        elif kind == "max":
            chain.pool(PoolKind.MAX, rng.choice((2, 3)), stride)
        elif kind == "average" and min(height, width) > 3:
            chain.pool(PoolKind.AVERAGE, 2, rng.choice((1, 3)))
        elif kind == "block":
            start, depth = chain.last, chain.tensors[chain.last].shape[3]
            chain.conv(32, 1, 1)
            chain.conv(0, 3, 1, depthwise=True)
            chain.conv(depth, 1, 1)
            chain.add(start)
        elif kind == "branches":
            chain.branches()
        else:
            chain.lookup()
    return chain.graph()


def deep_chain(seed: int, dtype: str) -> LayerGraph:
    """Convolutions over all channels, each with layers behind it that keep channels apart."""
    rng = random.Random(seed)
    chain = Chain(seed, (rng.randint(4, 9), rng.randint(2, 7), rng.choice((3, 16, 24))), dtype)
    for _ in range(2):
        chain.conv(rng.choice((24, 33, 40, 48, 64, 80)), rng.choice((1, 3)), 1)
        for _ in range(rng.randint(1, 4)):
            _, height, width, depth = chain.tensors[chain.last].shape
            kind = rng.choice(
                ("depthwise", "depthwise", "max", "average", "add", "channels", "plane", "scalar", "lookup")
            )
            stride = rng.choice((1, 1, 2)) if min(height, width) > 3 else 1
            if kind == "depthwise":
                chain.conv(0, rng.choice((1, 3, 9)), stride, depthwise=True)
            elif kind == "max":
                chain.pool(PoolKind.MAX, rng.choice((2, 3)), stride)
            elif kind == "average" and min(height, width) > 3:
                chain.pool(PoolKind.AVERAGE, 2, rng.choice((1, 3)))
            elif kind == "add":
                start = chain.last
                chain.conv(0, 3, 1, depthwise=True)
                chain.add(start)
            elif kind == "lookup" and dtype == "int8":
                chain.lookup()
            else:
                shapes = {"channels": (1, 1, depth), "plane": (height, width, 1), "scalar": (1, 1, 1)}
                chain.add(
                    chain.constant(shapes.get(kind, (1, 1, depth))),
                    rng.choice((ElementwiseMode.ADD, ElementwiseMode.MUL)),
                )
    return chain.graph()


def problem_of(program: NpuProgram) -> Problem:
    """The buffers of a program, a point for each operation, with every overlap that it proves."""
    live, end = program.live_ranges(), len(program.operations)
    buffers = []
    for buffer in program.buffers:
        if buffer.role not in _FIXED:
            first, last = live[buffer.name]
            first = 0 if buffer.role is BufferRole.INPUT else first
            last = end if buffer.role is BufferRole.OUTPUT else last + 1
            buffers.append(Buffer(buffer.name, buffer.size_bytes, (Lifetime(first, last),)))
    overlaps = tuple(o.allowed for o in find_overlaps(program))
    return Problem(tuple(buffers), (Pool("arena"),), overlaps=overlaps)


def planned_alone(program: NpuProgram) -> tuple[dict[str, int], int]:
    """Where the buffers of `program` lie, in a verified plan of its own, and the bytes of its pool."""
    problem = problem_of(program)
    made = plan(problem)
    assert verify(problem, made) == ()
    return {p.buffer: p.offset_bytes for p in made.placements}, made.usage[0].used_bytes


def run_at(
    program: NpuProgram, constants: bytes, offsets: Mapping[str, int], inputs: Mapping[str, np.ndarray], fuzz: int = 0
) -> list[np.ndarray]:
    """Outputs with buffers at `offsets` of one arena, in the order and with the waits of a real stream; in `fuzz` other
    orders of completion, too.
    """
    places = {
        b.name: (b.original_region, b.original_offset)
        if b.role is BufferRole.LUT
        else ((0, 0) if b.role is BufferRole.CONSTANTS else (1, offsets[b.name]))
        for b in program.buffers
    }
    size = max(offsets[b.name] + b.size_bytes for b in program.buffers if b.role not in _FIXED)
    operations = [program.place(index, places.__getitem__) for index in range(len(program.operations))]
    words = encode(schedule(operations, program.accelerator))
    arena, defined = np.full(size, 0xAA, np.uint8), np.zeros(size, bool)
    for name, values in inputs.items():
        start = offsets[name]
        arena[start : start + values.nbytes] = np.frombuffer(values.tobytes(), np.uint8)
        defined[start : start + values.nbytes] = True
    read_only = np.frombuffer(constants, np.uint8).copy()
    regions, known = [read_only, arena], [np.ones(len(read_only), bool), defined]
    NpuModel(program.accelerator).fuzz_schedule(words, regions, fuzz, known)
    outputs = [b for b in program.buffers if b.role is BufferRole.OUTPUT]
    return [
        arena[offsets[b.name] : offsets[b.name] + b.size_bytes].copy().view(b.dtype).reshape(b.shape) for b in outputs
    ]
