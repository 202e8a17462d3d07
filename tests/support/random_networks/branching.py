"""Networks with many branches, as architecture search and detectors have them, of about as many operators as asked for.

Invariant: kind, size and seed are a network, byte for byte; all maps are int8, and those that are added or joined have
one scale, so nothing but the branches is random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.support.random_values import random_bias
from tests.support.tflite_builder import ModelBuilder

_SAME, _NONE, _RELU = 0, 0, 1
_SCALE, _ZERO = 0.05, -3
_LEAST_MAP = 4  # rows and columns


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor of the network; one image."""

    index: int
    height: int
    width: int
    depth: int


class Branches:
    """A network in the making."""

    def __init__(self, seed: int, most: int) -> None:
        self.rng = np.random.default_rng([seed, 0x4252])
        self.b, self.most = ModelBuilder(), most
        self._read: set[int] = set()
        self._made: list[int] = []

    @property
    def has_room(self) -> bool:
        return len(self.b.operators) < self.most

    def number(self, low: int, high: int) -> int:
        """A whole number of low..high."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, maps: Sequence[Map]) -> Map:
        return maps[self.number(0, len(maps) - 1)]

    def image(self, size: int, depth: int) -> Map:
        made = self._map(size, size, depth)
        self.b.inputs.append(made.index)
        return made

    def finished(self) -> ModelBuilder:
        """The network; what nobody reads is an output."""
        return self.b.made(self.b.inputs, [index for index in self._made if index not in self._read])

    def classify(self) -> None:
        """Ten classes by the mean of each map that nobody reads."""
        for index in [index for index in self._made if index not in self._read]:
            depth = self.b.tensors[index].shape[3]
            mean = self.b.tensor((1, depth), "int8", _SCALE / 2, _ZERO)
            axes = self.b.constant(np.array([1, 2], "int32"))
            self.b.operator("MEAN", [index, axes], [mean], "ReducerOptions", 2, KeepDims=False)
            classes = self.b.tensor((1, 10), "int8", 2 * _SCALE)
            weights = self.b.constant(self.rng.integers(-127, 128, (10, depth)).astype(np.int8), np.float32(0.01))
            bias = self.b.constant(random_bias(self.rng, 10, "int8", False), np.float32(_SCALE / 2 * 0.01))
            fields = {"FusedActivationFunction": _NONE, "KeepNumDims": False}
            reads = [mean, weights, bias]
            self.b.operator("FULLY_CONNECTED", reads, [classes], "FullyConnectedOptions", 4, **fields)
            self._read.add(index)
            self._made.append(classes)

    def _map(self, height: int, width: int, depth: int) -> Map:
        return Map(self.b.tensor((1, height, width, depth), "int8", _SCALE, _ZERO), height, width, depth)

    def _operator(self, name: str, maps: Sequence[Map], reads: Sequence[int], made: Map, options: str, version: int = 2,
                  **fields: object) -> Map:  # fmt: skip
        self.b.operator(name, reads, [made.index], options, version, **fields)
        self._read.update(m.index for m in maps)
        self._made.append(made.index)
        return made

    def _weights(self, shape: tuple[int, ...], channels: int, axis: int) -> list[int]:
        """Weights and bias."""
        scales = self.rng.uniform(0.002, 0.01, channels).astype(np.float32)
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        bias = self.b.constant(random_bias(self.rng, channels, "int8", False), np.float32(_SCALE) * scales)
        return [self.b.constant(values, scales, axis=axis), bias]

    def conv(self, x: Map, depth: int, kernel: int = 1, stride: int = 1, fused: int = _RELU) -> Map:
        made = self._map(-(-x.height // stride), -(-x.width // stride), depth)
        reads = [x.index, *self._weights((depth, kernel, kernel, x.depth), depth, 0)]
        fields = {"Padding": _SAME, "StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
        return self._operator("CONV_2D", [x], reads, made, "Conv2DOptions", 3, FusedActivationFunction=fused, **fields)

    def depthwise(self, x: Map, kernel: int = 3, stride: int = 1) -> Map:
        made = self._map(-(-x.height // stride), -(-x.width // stride), x.depth)
        reads = [x.index, *self._weights((1, kernel, kernel, x.depth), x.depth, 3)]
        fields = {"Padding": _SAME, "StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
        fields |= {"DepthMultiplier": 1, "FusedActivationFunction": _NONE}
        return self._operator("DEPTHWISE_CONV_2D", [x], reads, made, "DepthwiseConv2DOptions", 3, **fields)

    def separable(self, x: Map, depth: int, stride: int = 1) -> Map:
        return self.conv(self.depthwise(x, self.pick_kernel(), stride), depth)

    def pick_kernel(self) -> int:
        return 3 if self.rng.random() < 0.7 else 5

    def pool(self, x: Map, stride: int = 1, average: bool = False) -> Map:
        made = self._map(-(-x.height // stride), -(-x.width // stride), x.depth)
        fields = {"FilterHeight": 3, "FilterWidth": 3, "StrideH": stride, "StrideW": stride, "Padding": _SAME}
        name = "AVERAGE_POOL_2D" if average else "MAX_POOL_2D"
        return self._operator(name, [x], [x.index], made, "Pool2DOptions", **fields)

    def add(self, x: Map, y: Map, fused: int = _NONE) -> Map:
        made = self._map(x.height, x.width, x.depth)
        reads = [x.index, y.index]
        return self._operator("ADD", [x, y], reads, made, "AddOptions", FusedActivationFunction=fused)

    def total(self, maps: Sequence[Map]) -> Map:
        """The sum of maps, one after the other."""
        made = maps[0]
        for other in maps[1:]:
            made = self.add(made, other)
        return made

    def join(self, maps: Sequence[Map]) -> Map:
        made = self._map(maps[0].height, maps[0].width, sum(m.depth for m in maps))
        reads, fields = [m.index for m in maps], {"Axis": 3, "FusedActivationFunction": 0}
        return self._operator("CONCATENATION", maps, reads, made, "ConcatenationOptions", **fields)

    def enlarge(self, x: Map, like: Map) -> Map:
        made = self._map(like.height, like.width, x.depth)
        size = self.b.constant(np.array([like.height, like.width], "int32"))
        fields = {"AlignCorners": False, "HalfPixelCenters": False}
        table = "ResizeNearestNeighborOptions"
        return self._operator("RESIZE_NEAREST_NEIGHBOR", [x], [x.index, size], made, table, **fields)

    def transposed(self, x: Map, depth: int, like: Map) -> Map:
        made, shape = self._map(like.height, like.width, depth), np.array([1, like.height, like.width, depth], "int32")
        weights, bias = self._weights((depth, 2, 2, x.depth), depth, 0)
        reads = [self.b.constant(shape), weights, x.index, bias]
        fields = {"Padding": _SAME, "StrideH": 2, "StrideW": 2}
        return self._operator("TRANSPOSE_CONV", [x], reads, made, "TransposeConvOptions", 3, **fields)


def randwire(d: Branches, x: Map) -> None:
    """A random graph, of which a node is a sum, and a separable convolution; the sum of what no node reads comes last
    (Xie et al., 2019).
    """
    nodes, read = [d.conv(x, d.number(2, 4) * 4, 3)], set[int]()
    while d.has_room:
        chosen = sorted({d.number(max(0, len(nodes) - 6), len(nodes) - 1) for _ in range(d.number(1, 3))})
        read.update(chosen)
        nodes.append(d.separable(d.total([nodes[i] for i in chosen]), nodes[0].depth))
    d.total([node for i, node in enumerate(nodes) if i not in read])


def darts(d: Branches, x: Map) -> None:
    """Cells of four nodes, each the sum of two operations of what is before, all of them joined (Liu et al., 2019)."""
    depth = d.number(1, 3) * 4
    old = new = d.conv(x, depth, 3)
    while d.has_room:
        states = [d.conv(old, depth), d.conv(new, depth)]
        for _ in range(4):
            pair = [
                d.separable(s, depth) if d.rng.random() < 0.7 else d.pool(s) for s in (d.pick(states), d.pick(states))
            ]
            states.append(d.total(pair))
        old, new = new, d.join(states[2:])


def nasnet(d: Branches, x: Map) -> None:
    """Cells of five sums of separable convolutions and pools; what no sum reads is joined (Zoph et al., 2018)."""
    depth = d.number(1, 3) * 4
    old = new = d.conv(x, depth, 3)
    while d.has_room:
        states, read = [d.conv(old, depth), d.conv(new, depth)], set[int]()
        for _ in range(5):
            pair = [d.number(0, len(states) - 1) for _ in range(2)]
            read.update(pair)
            states.append(d.add(*(_of_nasnet(d, states[i]) for i in pair)))
        old, new = new, d.join([s for i, s in enumerate(states) if i > 1 and i not in read])


def _of_nasnet(d: Branches, x: Map) -> Map:
    kind = d.rng.random()
    if kind < 0.5:
        return d.separable(x, x.depth)
    return d.pool(x, average=kind < 0.75) if kind < 0.9 else x


def inception(d: Branches, x: Map) -> None:
    """Blocks of four branches that are joined (Szegedy et al., 2015)."""
    y = d.conv(x, 16, 3)
    while d.has_room:
        depth = d.number(1, 3) * 4
        deep = d.conv(d.conv(d.conv(y, depth), depth, 3), depth, 3)
        y = d.join([d.conv(y, depth), d.conv(d.conv(y, depth), depth, 3), deep, d.conv(d.pool(y, average=True), depth)])


def densenet(d: Branches, x: Map) -> None:
    """Blocks in which each layer reads all before it (Huang et al., 2017)."""
    y = d.conv(x, 8, 3)
    while d.has_room:
        for _ in range(4):
            y = d.join([y, d.conv(d.conv(y, 16), 4, 3)])
        y = d.conv(y, 8)


def levels(d: Branches, x: Map, depth: int, most: int) -> list[Map]:
    """Maps of ever fewer rows, the largest first."""
    found = [d.conv(x, depth, 3)]
    while len(found) < most and found[-1].height // 2 >= _LEAST_MAP and found[-1].height % 2 == 0:
        found.append(d.conv(found[-1], depth, 3, 2))
    return found


def bifpn(d: Branches, x: Map) -> None:
    """Layers of sums down and up the levels of a pyramid (Tan et al., 2020)."""
    maps = levels(d, x, 8, 4)
    while d.has_room:
        down = [maps[-1]]
        for level in reversed(maps[:-1]):
            down.append(d.separable(d.add(level, d.enlarge(down[-1], level)), 8))
        down.reverse()
        up = [down[0]]
        for level, middle in zip(maps[1:], down[1:], strict=True):
            smaller = d.pool(up[-1], 2)
            up.append(d.separable(d.total([level, middle, smaller] if middle is not level else [level, smaller]), 8))
        maps = up


def unet(d: Branches, x: Map) -> None:
    """Down and up again, with the map of each level joined on the way up (Ronneberger et al., 2015)."""
    while True:
        waiting, depth = [d.conv(x, 8, 3)], 8
        while waiting[-1].height // 2 >= _LEAST_MAP and waiting[-1].height % 2 == 0 and len(waiting) < 4:
            depth += 4
            waiting.append(d.conv(d.conv(waiting[-1], depth, 3, 2), depth, 3))
        y = waiting.pop()
        while waiting:
            level = waiting.pop()
            y = d.conv(d.join([level, d.transposed(y, level.depth, level)]), level.depth, 3)
        if not d.has_room:
            return
        x = y


def yolo(d: Branches, x: Map) -> None:
    """A path down and one up between levels, blocks of split branches, a head at each level (a YOLO neck)."""

    def block(y: Map, depth: int) -> Map:
        first, other = d.conv(y, depth // 2), d.conv(y, depth // 2)
        for _ in range(d.number(1, 2)):
            other = d.add(other, d.conv(d.conv(other, depth // 2), depth // 2, 3))
        return d.conv(d.join([first, other]), depth)

    maps = [block(level, 8) for level in levels(d, x, 8, 3)]
    while d.has_room:
        for i in range(len(maps) - 2, -1, -1):
            maps[i] = block(d.join([maps[i], d.enlarge(maps[i + 1], maps[i])]), 8)
        for i in range(1, len(maps)):
            maps[i] = block(d.join([maps[i], d.conv(maps[i - 1], 8, 3, 2)]), 8)
    for level in maps:
        d.conv(level, 6, fused=_NONE)


KINDS: dict[str, Callable[[Branches, Map], None]] = {
    kind.__name__: kind for kind in (randwire, darts, nasnet, inception, densenet, bifpn, unet, yolo)
}


CLASSIFIERS = ("randwire", "darts", "nasnet", "inception", "densenet")


def branching(kind: str, most: int, seed: int, size: int = 16, heads: bool = False) -> ModelBuilder:
    """A network of a kind, on maps of `size` rows and columns; its last part begins before it has `most` operators.

    `heads`: one of `CLASSIFIERS` ends in classes, not in maps.
    """
    d = Branches(seed, most)
    KINDS[kind](d, d.image(size, 3))
    if heads and kind in CLASSIFIERS:
        d.classify()
    return d.finished()


def draw(seed: int) -> ModelBuilder:
    """The small network of a seed."""
    kinds = list(KINDS)
    rng = np.random.default_rng([seed, 0x4253])
    return branching(kinds[seed % len(kinds)], int(rng.integers(10, 30)), seed, int(rng.choice((8, 12, 16))))
