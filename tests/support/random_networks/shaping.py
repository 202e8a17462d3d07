"""Operators that move, repeat, cut, join or reduce.

Invariant: as `drawing`; operators that hand on stored values keep the quantisation, but for CONCATENATION now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.support.random_networks.drawing import Drawing, Value
from tests.support.random_values import RANGE

Operator = Callable[[Drawing, Value], bool]


def _divisors(n: int) -> list[int]:
    return [i for i in range(1, n + 1) if n % i == 0]


def _refactored(d: Drawing, elements: int, rank: int) -> tuple[int, ...]:
    """A shape of `rank` dimensions with so many elements."""
    shape = []
    for _ in range(rank - 1):
        shape.append(int(d.choice(*_divisors(elements))))
        elements //= shape[-1]
    return (*shape, elements)


def reshape(d: Drawing, x: Value) -> bool:
    rank = int(d.choice(1, 2, 2, 3, 3, 4, 4, 4, 5))
    shape = _refactored(d, x.elements, rank)
    if rank > 1 and x.shape and x.elements % x.shape[0] == 0 and d.chance(0.5):  # the batch stays
        shape = (x.shape[0], *_refactored(d, x.elements // x.shape[0], rank - 1))
    return d.operator("RESHAPE", [x, d.numbers(shape)], d.like(x, shape), "ReshapeOptions", 1, NewShape=list(shape))


def squeeze(d: Drawing, x: Value) -> bool:
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    if not ones or len(x.shape) < 2:
        return False
    axes = [int(d.choice(*ones))]
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return d.operator("SQUEEZE", [x], d.like(x, shape), "SqueezeOptions", 1, SqueezeDims=axes)


def expand(d: Drawing, x: Value) -> bool:
    if len(x.shape) > 3:
        return False
    axis = d.number(0, len(x.shape))
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return d.operator("EXPAND_DIMS", [x, d.numbers(axis)], d.like(x, shape), "ExpandDimsOptions", 1)


def transpose(d: Drawing, x: Value) -> bool:
    if not 2 <= len(x.shape) <= 5:
        return False
    order = [int(i) for i in d.rng.permutation(len(x.shape))]
    y = d.like(x, [x.shape[i] for i in order])
    return d.operator("TRANSPOSE", [x, d.numbers(order)], y, "TransposeOptions", 2)


def concatenate(d: Drawing, x: Value) -> bool:
    """Of two to four tensors along any axis; the same tensor may come twice, a constant may be one."""
    if not 1 <= len(x.shape) <= 4:
        return False
    axis = d.number(0, len(x.shape) - 1)
    around = (*x.shape[:axis], *x.shape[axis + 1 :])
    fitting = [
        v
        for v in d.values
        if len(v.shape) == len(x.shape) and v.dtype == x.dtype and (*v.shape[:axis], *v.shape[axis + 1 :]) == around
        and (v.scale, v.zero) == (x.scale, x.zero)
    ]  # fmt: skip
    parts = [x]
    for _ in range(d.number(1, 3)):
        if fitting and d.chance(0.7):
            parts.append(d.choice(*fitting))
        else:
            shape = [*x.shape]
            shape[axis] = d.extent() if d.chance(0.5) else shape[axis]
            parts.append(d.partner(x, shape, same=True))
    if d.chance(0.5):
        parts.reverse()
    shape = [*x.shape]
    shape[axis] = sum(p.shape[axis] for p in parts)
    if not d.fits(shape):
        return False
    fields = {"Axis": axis - (len(x.shape) if d.chance(0.3) else 0), "FusedActivationFunction": 0}
    return d.operator("CONCATENATION", parts, d.like(x, shape), "ConcatenationOptions", 2, **fields)


def split(d: Drawing, x: Value) -> bool:
    if not 1 <= len(x.shape) <= 4 or x.dtype in ("bool", "int64"):  # which TFLite does not split
        return False
    axis = d.number(0, len(x.shape) - 1)
    size = x.shape[axis]
    if size < 2:
        return False

    def part(length: int) -> Value:
        return d.like(x, (*x.shape[:axis], length, *x.shape[axis + 1 :]))

    if d.chance(0.4):
        first = d.number(1, size - 1)
        reads: list[Value | int] = [x, d.numbers([first, size - first]), d.numbers(axis)]
        return d.operator("SPLIT_V", reads, [part(first), part(size - first)], "SplitVOptions", 2, NumSplits=2)
    counts = [n for n in (2, 3, 4) if size % n == 0]
    if not counts:
        return False
    count = int(d.choice(*counts))
    parts = [part(size // count) for _ in range(count)]
    return d.operator("SPLIT", [d.numbers(axis), x], parts, "SplitOptions", 2, NumSplits=count)


def rejoin(d: Drawing, x: Value) -> bool:
    """CONCATENATION of a part that an operator changed, and of others: x itself, or what is made of it in parallel."""
    if not 1 <= len(x.shape) <= 4 or not x.quantised or d.room < 3:
        return False
    axis = d.number(0, len(x.shape) - 1)
    parts = [x]
    for _ in range(d.number(1, 2)):
        kind, order = d.number(0, 3), d.rng.permutation(x.shape[axis])
        y = d.like(x, x.shape)
        if kind == 0:
            d.operator("REVERSE_V2", [x, d.numbers([axis])], y, "ReverseV2Options", 2)
        elif kind == 1:
            d.operator("GATHER", [x, d.numbers(order)], y, "GatherOptions", 2, Axis=axis)
        elif kind == 2:
            places = np.stack(np.indices(x.shape), -1)
            d.operator("GATHER_ND", [x, d.numbers(places)], y, "GatherNdOptions", 1)
        else:
            other = d.constant((1,), x.dtype, x.scale, x.zero)
            d.operator("MAXIMUM", [x, other], y, "MaximumMinimumOptions", 2)
        parts.append(y)
    if d.chance(0.5):
        parts.reverse()
    shape = [*x.shape]
    shape[axis] *= len(parts)
    if not d.fits(shape):
        return True  # without the concatenation
    fields = {"Axis": axis, "FusedActivationFunction": 0}
    return d.operator("CONCATENATION", parts, d.like(x, shape), "ConcatenationOptions", 2, **fields)


def pack(d: Drawing, x: Value) -> bool:
    if not 0 <= len(x.shape) <= 3 or x.dtype == "bool":  # which TFLite does not pack
        return False
    axis = d.number(0, len(x.shape))
    parts = [x, *(d.partner(x, x.shape, same=True) for _ in range(d.number(1, 2)))]
    shape = (*x.shape[:axis], len(parts), *x.shape[axis:])
    if not d.fits(shape):
        return False
    return d.operator("PACK", parts, d.like(x, shape), "PackOptions", 2, ValuesCount=len(parts), Axis=axis)


def unpack(d: Drawing, x: Value) -> bool:
    axes = [i for i, n in enumerate(x.shape) if 1 <= n <= 4]
    if not axes or len(x.shape) < 2 or x.dtype == "int64":  # which TFLite does not unpack
        return False
    axis = int(d.choice(*axes))
    parts = [d.like(x, (*x.shape[:axis], *x.shape[axis + 1 :])) for _ in range(x.shape[axis])]
    return d.operator("UNPACK", [x], parts, "UnpackOptions", 2, Num=len(parts), Axis=axis)


def cut(d: Drawing, x: Value) -> bool:
    """SLICE, or STRIDED_SLICE with steps, masks and dimensions that go."""
    if not 1 <= len(x.shape) <= 4:
        return False
    begin = [d.number(0, n - 1) for n in x.shape]
    size = [d.number(1, n - b) for n, b in zip(x.shape, begin, strict=True)]
    if d.chance(0.4):
        said = [-1 if b + s == n and d.chance(0.3) else s for n, b, s in zip(x.shape, begin, size, strict=True)]
        return d.operator("SLICE", [x, d.numbers(begin), d.numbers(said)], d.like(x, size), "SliceOptions", 2)
    strides = [int(d.choice(1, 1, 1, 2, 3)) for _ in x.shape]
    end = [b + s for b, s in zip(begin, size, strict=True)]
    begins = sum(1 << i for i in range(len(begin)) if begin[i] == 0 and d.chance(0.3))
    ends = sum(1 << i for i in range(len(begin)) if end[i] == x.shape[i] and d.chance(0.3))
    shape = [-(-s // st) for s, st in zip(size, strides, strict=True)]
    dropped = 0
    if len(shape) > 1 and d.chance(0.3):
        axis = d.number(0, len(shape) - 1)
        dropped, end[axis], strides[axis] = 1 << axis, begin[axis] + 1, 1
        ends &= ~dropped
        begins &= ~dropped
        del shape[axis]
    fields = {"BeginMask": begins, "EndMask": ends, "ShrinkAxisMask": dropped}
    reads: list[Value | int] = [x, *(d.numbers(v) for v in (begin, end, strides))]
    return d.operator("STRIDED_SLICE", reads, d.like(x, shape), "StridedSliceOptions", 2, **fields)


def pad(d: Drawing, x: Value) -> bool:
    if not 1 <= len(x.shape) <= 4:
        return False
    amounts = [[0, 0] if d.chance(0.4) else [d.number(0, 3), d.number(0, 3)] for _ in x.shape]
    kind = d.choice("PAD", "PAD", "PADV2", "MIRROR_PAD")
    mode = d.number(0, 1)
    if kind == "MIRROR_PAD":
        amounts = [[min(a, n - 1 + mode) for a in two] for two, n in zip(amounts, x.shape, strict=True)]
    shape = [n + lo + hi for n, (lo, hi) in zip(x.shape, amounts, strict=True)]
    if not d.fits(shape):
        return False
    reads: list[Value | int] = [x, d.numbers(amounts)]
    if kind == "PADV2":
        reads.append(d.constant((1,), x.dtype, x.scale, x.zero))
    table = {"PAD": "PadOptions", "PADV2": "PadV2Options", "MIRROR_PAD": "MirrorPadOptions"}[kind]
    fields = {"Mode": mode} if kind == "MIRROR_PAD" else {}
    return d.operator(kind, reads, d.like(x, shape), table, 2, **fields)


def gather(d: Drawing, x: Value) -> bool:
    """By constant indices, or by those that ARG_MAX made."""
    if not 1 <= len(x.shape) <= 4:
        return False
    axis = d.number(0, len(x.shape) - 1)
    made = [v for v in d.values if v.dtype == "int32" and 0 < v.bound <= x.shape[axis] and v.index not in d.inputs]
    if made and d.chance(0.7):
        indices: Value | int = d.choice(*made)
        many = indices.shape  # type: ignore[union-attr]
    else:
        many = (d.extent(),)
        indices = d.numbers(d.rng.integers(0, x.shape[axis], many))
    shape = (*x.shape[:axis], *many, *x.shape[axis + 1 :])
    if not d.fits(shape) or len(shape) > 5:
        return False
    return d.operator("GATHER", [x, indices], d.like(x, shape), "GatherOptions", 2, Axis=axis)


def gather_nd(d: Drawing, x: Value) -> bool:
    if not 1 <= len(x.shape) <= 4:
        return False
    depth, many = d.number(1, len(x.shape)), (d.number(1, 4), d.number(1, 5))
    places = np.stack([d.rng.integers(0, n, many) for n in x.shape[:depth]], -1)
    shape = (*many, *x.shape[depth:])
    if not d.fits(shape):
        return False
    return d.operator("GATHER_ND", [x, d.numbers(places)], d.like(x, shape), "GatherNdOptions", 1)


def reverse(d: Drawing, x: Value) -> bool:
    if not 1 <= len(x.shape) <= 4:
        return False
    axis = d.number(0, len(x.shape) - 1)
    return d.operator("REVERSE_V2", [x, d.numbers([axis])], d.like(x, x.shape), "ReverseV2Options", 2)


def repeat(d: Drawing, x: Value) -> bool:
    """BROADCAST_TO or TILE."""
    if not 1 <= len(x.shape) <= 4:
        return False
    if d.chance(0.5):
        shape = tuple(d.number(1, 4) if n == 1 else n for n in x.shape)
        if not d.fits(shape):
            return False
        return d.operator("BROADCAST_TO", [x, d.numbers(shape)], d.like(x, shape), "BroadcastToOptions", 2)
    times = [int(d.choice(1, 1, 2, 3)) for _ in x.shape]
    shape = tuple(n * t for n, t in zip(x.shape, times, strict=True))
    if not d.fits(shape):
        return False
    return d.operator("TILE", [x, d.numbers(times)], d.like(x, shape), "TileOptions", 2)


def block(d: Drawing, x: Value) -> bool:
    """DEPTH_TO_SPACE, SPACE_TO_DEPTH, SPACE_TO_BATCH_ND or BATCH_TO_SPACE_ND."""
    if len(x.shape) != 4:
        return False
    n, height, width, depth = x.shape
    size = d.number(2, 3)
    ways = []
    if depth % (size * size) == 0:
        ways.append(("DEPTH_TO_SPACE", (n, height * size, width * size, depth // size**2)))
    if height % size == 0 and width % size == 0:
        ways.append(("SPACE_TO_DEPTH", (n, height // size, width // size, depth * size**2)))
        ways.append(("SPACE_TO_BATCH_ND", (n * size**2, height // size, width // size, depth)))
    if n % (size * size) == 0:
        ways.append(("BATCH_TO_SPACE_ND", (n // size**2, height * size, width * size, depth)))
    if not ways:
        return False
    name, shape = ways[d.number(0, len(ways) - 1)]
    if name.endswith("_ND"):
        table = "SpaceToBatchNDOptions" if name.startswith("SPACE") else "BatchToSpaceNDOptions"
        reads: list[Value | int] = [x, d.numbers([size, size]), d.numbers([[0, 0], [0, 0]])]
        return d.operator(name, reads, d.like(x, shape), table, 2)
    table = "DepthToSpaceOptions" if name.startswith("DEPTH") else "SpaceToDepthOptions"
    return d.operator(name, [x], d.like(x, shape), table, 1, BlockSize=size)


def resize(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4:
        return False
    height, width = x.shape[1:3]
    if d.chance(0.6):
        factor = int(d.choice(2, 2, 4))
        out = (height * factor, width * factor)
    else:
        out = (d.number(1, 14), d.number(1, 14))
    align, half = d.choice((False, False), (True, False), (False, True))
    shape = (x.shape[0], *out, x.shape[3])
    if not d.fits(shape):
        return False
    kind = d.choice("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    fields = {"AlignCorners": align, "HalfPixelCenters": half}
    return d.operator(kind, [x, d.numbers(out)], d.like(x, shape), table, 3, **fields)


def _axes(d: Drawing, rank: int) -> list[int]:
    if rank == 4 and d.chance(0.5):
        return [1, 2]
    chosen = sorted(int(i) for i in d.rng.permutation(rank)[: d.number(1, rank)])
    return [a - rank if d.chance(0.2) else a for a in chosen]


def _without(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    gone = {a % len(shape) for a in axes}
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone)


def reduce(d: Drawing, x: Value) -> bool:
    if not 1 <= len(x.shape) <= 4 or x.dtype == "bool":
        return False
    names = ["SUM", "REDUCE_MAX", "REDUCE_MIN"]
    if x.dtype not in ("int32", "int64"):
        names += ["MEAN"] * 4
    name = d.choice(*names)
    axes, keep = _axes(d, len(x.shape)), d.chance(0.6)
    shape = _without(x.shape, axes, keep)
    count = x.elements // max(1, math.prod(shape))
    scale, zero, bound = x.scale, x.zero, x.bound * (count if name == "SUM" else 1)
    if x.quantised and name in ("MEAN", "SUM") and d.chance(0.8):
        spread = count**-0.5 if name == "MEAN" else count**0.5
        wide = float(x.scale * max(spread, 0.1) * 10 ** d.rng.uniform(-0.2, 0.4))
        scale, zero = d.near(wide, x.dtype, x.scale), d.zero(x.dtype)
    if bound > 1e8:
        return False
    y = d.tensor(shape, x.dtype, scale, zero, bound)
    return d.operator(name, [x, d.numbers(axes)], y, "ReducerOptions", 2, KeepDims=keep)


def choose(d: Drawing, x: Value) -> bool:
    """ARG_MAX or ARG_MIN."""
    if not 1 <= len(x.shape) <= 4 or x.dtype not in (*RANGE, "float32", "int32"):
        return False
    axis = len(x.shape) - 1 if d.chance(0.6) else d.number(0, len(x.shape) - 1)
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    name, table = d.choice(("ARG_MAX", "ArgMaxOptions"), ("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions"))
    y = d.tensor(shape, "int32", bound=x.shape[axis])
    return d.operator(name, [x, d.numbers([axis])], y, table, 2, OutputType=2)


OPERATORS: dict[Operator, int] = {
    reshape: 4, squeeze: 1, expand: 1, transpose: 3, concatenate: 5, rejoin: 3, split: 4, pack: 2, unpack: 2, cut: 3,
    pad: 3, gather: 1, gather_nd: 1, reverse: 1, repeat: 2, block: 2, resize: 3, reduce: 4, choose: 1,
}  # fmt: skip
