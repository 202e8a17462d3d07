"""Networks of the structures that real ones have: attention, pyramids, recurrent cells, causal and dilated layers.

Invariant: as `drawing`; a structure is a function of a network and a value that adds its operators and says whether
the value fits. Scales are often those at which one bit decides a result: a limit of a fused activation near the half of
a step, multipliers that are powers of two or one bit beside, scales that are equal or nearly so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.support.random_networks import pointwise, shaping, weighted
from tests.support.random_networks.drawing import Drawing, Value
from tests.support.random_networks.weighted import Stored, connect, convolve, convolve_depthwise, window
from tests.support.random_values import RANGE
from tests.support.tflite_builder import ModelBuilder

Structure = Callable[[Drawing, Value], bool]
_SAME, _VALID = 0, 1
_MOST_STRUCTURES, _MOST_OPERATORS, _TRIES = 3, 30, 60
_TYPES = ("int8",) * 9 + ("int16",) * 3 + ("uint8",) * 2 + ("float32",)
_FUSED = (0, 0, 1, 1, 2, 2, 3, 3, 3)


class StructureDrawing(Drawing):
    """A network of structures, whose scales are those that the module's docstring names."""

    without_bias, wide_bias = 0.03, 0.95

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 0x5354)
        self.most = _MOST_OPERATORS
        self.most_elements = 6000
        self.initial: dict[str, Value] = {}  # what a variable starts with

    def fused(self) -> int:
        return int(self.choice(*_FUSED))

    def extent(self) -> int:
        return 1 if self.chance(0.2) else super().extent()

    def scale(self, dtype: str) -> float | None:
        value = super().scale(dtype)
        return None if value is None else self.near(value, dtype, 1.0)

    def near(self, scale: float, dtype: str, of: float) -> float:
        kind = self.number(0, 5)
        if kind > 3:
            return scale
        found = scale
        if kind == 0:  # a limit of a fused activation lies near the half of a step
            limit = self.choice(6, 6, 1)
            found = limit / (max(0, round(limit / scale - 0.5)) + 0.5)
        elif kind == 1:
            found = 2.0 ** round(math.log2(scale))
        elif kind == 2:  # the multiplier is a power of two
            found = of * 2.0 ** round(math.log2(scale / of))
        else:
            others = [float(v.scale) for v in self.values[-6:] if v.quantised and v.dtype == dtype]
            found = self.choice(*others) if others else scale
        if not scale / 8 < found < scale * 8:
            return scale
        exact = np.float32(found)
        for _ in range(int(self.choice(0, 0, 1, 1, 2))):
            exact = np.nextafter(exact, np.float32(self.choice(0, 1e6)))
        return float(exact)

    def finished(self) -> ModelBuilder:
        """As `Drawing.finished`; inputs are outputs too now and then, and variables start with numbers of their own."""
        b = super().finished()
        b.outputs += [i for i in b.inputs if self.chance(0.05)]
        if self.initial and self.chance(0.6):
            first = ModelBuilder()
            for name, value in self.initial.items():
                held = first.constant(self.stored(value.shape, value.dtype), value.scale, value.zero)
                first.operator("ASSIGN_VARIABLE", [_handle(first, name), held], [])
            b.subgraphs = [first]
            b.operators.insert(0, ("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}, 1))
        return b


def draw(seed: int) -> ModelBuilder:
    """The network of a seed: up to three structures, and single operators between them."""
    d = StructureDrawing(seed)
    dtype = d.choice(*_TYPES)
    names = list(STRUCTURES)
    d.values.append(d.any_input(_first_shape(d), dtype))
    if d.chance(0.1):
        d.values.append(d.any_input(d.values[0].shape, dtype))
    many = d.number(1, _MOST_STRUCTURES)
    for _ in range(_TRIES):
        if many < 1 or d.room < 1:
            break
        x = d.choice(*d.values[-3:]) if d.chance(0.7) else d.choice(*d.values)
        added = d.choice(*names)(d, x)
        many -= int(added)
        if added and d.chance(0.4):
            d.choice(*_SINGLE)(d, d.values[-1])
    b = d.finished()
    return b if b.outputs else draw(seed + (1 << 40))


def _first_shape(d: StructureDrawing) -> tuple[int, ...]:
    """A map, a sequence, a row, something deep, or something wide."""
    kind = d.number(0, 9)
    if kind < 5:
        size = d.choice(1, 4, 5, 8, 9, 12, 16)
        shape = (d.batch if d.chance(0.5) else 1, size, size if d.chance(0.6) else d.extent(), d.depth())
    elif kind < 7:
        shape = (d.batch if d.chance(0.5) else 1, d.number(1, 9), d.choice(1, 4, 6, 8, 16, 24))
    elif kind == 7:
        shape = (d.batch, d.depth())
    elif kind == 8:
        d.most_elements = 24000
        deep = d.number(4097, 5200)
        return d.choice((1, deep), (1, 1, 1, deep), (1, 1, 2, deep), (1, 2, 1, deep), (2, deep))
    else:
        d.most_elements = 24000
        wide = d.number(2001, 3000)
        return d.choice(
            (1, 1, wide, 1), (1, 1, wide, d.number(2, 4)), (1, wide, 1, d.number(1, 4)), (1, wide, 2), (1, 2, wide, 1)
        )
    while not d.fits(shape):
        largest = shape.index(max(shape))
        shape = tuple(n // 2 if i == largest else n for i, n in enumerate(shape))
    return shape


# -- single operators that structures are made of --------------------------------------------------


def _made(d: Drawing, added: bool) -> Value | None:
    return d.values[-1] if added else None


def _conv(
    d: Drawing,
    x: Value | None,
    channels: int,
    kernel: Sequence[int],
    stride: int = 1,
    padding: int = _SAME,
    dilation: Sequence[int] = (1, 1),
    stored: Stored | None = None,
) -> Value | None:
    if x is None or len(x.shape) != 4:
        return None
    w = window(x.shape[1:3], kernel, (stride, stride), dilation, padding)
    return _made(d, w is not None and convolve(d, x, w, channels, stored=stored))


def _depthwise(
    d: Drawing,
    x: Value | None,
    kernel: Sequence[int],
    stride: int = 1,
    padding: int = _SAME,
    dilation: Sequence[int] = (1, 1),
    multiplier: int = 1,
) -> Value | None:
    if x is None:
        return None
    w = window(x.shape[1:3], kernel, (stride, stride), dilation, padding)
    return _made(d, w is not None and convolve_depthwise(d, x, w, multiplier))


def _combined(d: Drawing, name: str, x: Value | None, other: Value | None) -> Value | None:
    """A binary operator; None where shapes or types do not go together."""
    if x is None or other is None or x.dtype != other.dtype:
        return None
    try:
        shape = tuple(int(n) for n in np.broadcast_shapes(x.shape, other.shape))
    except ValueError:
        return None
    return _made(d, d.fits(shape) and pointwise.combine(d, name, x, other, shape, 0.2))


def _curved(d: Drawing, name: str, x: Value | None) -> Value | None:
    return None if x is None else _made(d, pointwise.curve(name)(d, x))


def _reshaped(d: Drawing, x: Value | None, shape: Sequence[int]) -> Value | None:
    if x is None:
        return None
    added = d.operator("RESHAPE", [x, d.numbers(shape)], d.like(x, shape), "ReshapeOptions", 1, NewShape=list(shape))
    return _made(d, added)


def _transposed(d: Drawing, x: Value | None, order: Sequence[int]) -> Value | None:
    if x is None:
        return None
    y = d.like(x, [x.shape[i] for i in order])
    return _made(d, d.operator("TRANSPOSE", [x, d.numbers(order)], y, "TransposeOptions", 2))


def _dense(d: Drawing, x: Value | None, units: int, keep: bool = False, stored: Stored | None = None) -> Value | None:
    return None if x is None else _made(d, connect(d, x, units, x.shape[-1], keep, stored))


def _mean(d: Drawing, x: Value, axes: Sequence[int], stored: Stored | None = None) -> Value:
    shape = tuple(1 if i in [a % len(x.shape) for a in axes] else n for i, n in enumerate(x.shape))
    scale, zero = stored or (x.scale, x.zero)
    if x.quantised and stored is None and d.chance(0.7):
        scale, zero = d.near(float(x.scale * 10 ** d.rng.uniform(-0.6, 0.2)), x.dtype, float(x.scale)), d.zero(x.dtype)
    y = d.tensor(shape, x.dtype, scale if x.quantised else None, zero if x.quantised else 0, x.bound)
    d.operator("MEAN", [x, d.numbers(list(axes))], y, "ReducerOptions", 2, KeepDims=True)
    return y


def _quantised(d: Drawing, x: Value | None, scale: float, zero: int, dtype: str = "") -> Value | None:
    if x is None:
        return None
    y = d.tensor(x.shape, dtype or x.dtype, scale, zero)
    return _made(d, d.operator("QUANTIZE", [x], y, "QuantizeOptions", 2))


def _joined(d: Drawing, parts: Sequence[Value | None], axis: int) -> Value | None:
    """CONCATENATION; quantisations that are not the first one's are made so before."""
    first = parts[0]
    if first is None:
        return None
    alike: list[Value] = []
    for part in parts:
        if part is None or part.shape[:axis] != first.shape[:axis] or part.shape[axis + 1 :] != first.shape[axis + 1 :]:
            return None
        same = (part.scale, part.zero) == (first.scale, first.zero)
        one = part if same else _quantised(d, part, first.scale, first.zero)
        if one is None or part.dtype != first.dtype:
            return None
        alike.append(one)
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in alike)
    if not d.fits(shape):
        return None
    fields = {"Axis": axis, "FusedActivationFunction": 0}
    return _made(d, d.operator("CONCATENATION", alike, d.like(first, shape), "ConcatenationOptions", 2, **fields))


def _padded(d: Drawing, x: Value, amounts: Sequence[Sequence[int]]) -> Value | None:
    shape = [n + lo + hi for n, (lo, hi) in zip(x.shape, amounts, strict=True)]
    if not d.fits(shape):
        return None
    return _made(d, d.operator("PAD", [x, d.numbers(amounts)], d.like(x, shape), "PadOptions", 2))


def _resized(d: Drawing, x: Value | None, size: Sequence[int]) -> Value | None:
    if x is None or not d.fits((x.shape[0], *size, x.shape[3])):
        return None
    kind = d.choice("RESIZE_NEAREST_NEIGHBOR", "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR")
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    align, half = d.choice((False, False), (True, False), (False, True))
    y = d.like(x, (x.shape[0], *size, x.shape[3]))
    return _made(d, d.operator(kind, [x, d.numbers(size)], y, table, 3, AlignCorners=align, HalfPixelCenters=half))


def _split(d: Drawing, x: Value | None, count: int) -> list[Value]:
    """Equal parts along the last dimension."""
    if x is None:
        return []
    parts = [d.like(x, (*x.shape[:-1], x.shape[-1] // count)) for _ in range(count)]
    d.operator("SPLIT", [d.numbers(len(x.shape) - 1), x], parts, "SplitOptions", 2, NumSplits=count)
    return parts


# -- structures of maps ----------------------------------------------------------------------------


def squeeze_excite(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    channels = x.shape[3]
    narrow = max(1, channels // int(d.choice(1, 2, 4)))
    kind = d.number(0, 2)
    if kind == 0:
        y: Value | None = _mean(d, x, [1, 2])
    else:
        y = d.like(x, (x.shape[0], 1, 1, channels))
        fields = {"FilterHeight": x.shape[1], "FilterWidth": x.shape[2], "StrideH": 1, "StrideW": 1, "Padding": _VALID}
        d.operator(
            d.choice("AVERAGE_POOL_2D", "MAX_POOL_2D") if kind == 2 else "AVERAGE_POOL_2D",
            [x],
            y,
            "Pool2DOptions",
            2,
            **fields,
        )
    if d.chance(0.5):
        y = _conv(d, _conv(d, y, narrow, (1, 1)), channels, (1, 1))
    else:
        y = _reshaped(d, y, (x.shape[0], channels))
        y = _reshaped(d, _dense(d, _dense(d, y, narrow), channels), (x.shape[0], 1, 1, channels))
    gate = _curved(d, "LOGISTIC", y) if d.chance(0.7) else _hard_sigmoid(d, y)
    return _combined(d, "MUL", x, gate) is not None


def _hard_sigmoid(d: Drawing, x: Value | None) -> Value | None:
    """ReLU6 of x + 3, by 1/6: of separate operators."""
    if x is None or not x.quantised:
        return x
    three = d.constant((1,), x.dtype, 3 / 127, 0)
    y = d.tensor(
        x.shape, x.dtype, d.near(6 / 255, x.dtype, float(x.scale)), min(RANGE[x.dtype]) if x.dtype != "int16" else 0
    )
    d.operator("ADD", [x, three], y, "AddOptions", 2, FusedActivationFunction=3)
    return _combined(d, "MUL", y, d.constant((1,), x.dtype, 1 / 6 / 127, 0))


def swish(d: Drawing, x: Value) -> bool:
    """x times its sigmoid, of two operators as exporters write it."""
    return x.dtype in (*RANGE, "float32") and _combined(d, "MUL", x, _curved(d, "LOGISTIC", x)) is not None


def pyramid(d: Drawing, x: Value) -> bool:
    """Maps at two or three sizes, joined from the smallest to the largest (FPN), and heads at each."""
    if len(x.shape) != 4 or min(x.shape[1:3]) < 4 or x.dtype not in (*RANGE, "float32"):
        return False
    channels, levels = int(d.choice(4, 8, 16)), [x]
    for _ in range(d.number(1, 2)):
        y = _conv(d, levels[-1], int(d.choice(4, 8, 13)), (3, 3), 2)
        if y is None:
            return False
        levels.append(y)
    top = _conv(d, levels.pop(), channels, (1, 1))
    while levels and top is not None:
        if d.chance(0.5):
            _conv(d, top, int(d.choice(3, 6)), (3, 3))
        level = levels.pop()
        up = _resized(d, top, level.shape[1:3])
        side = _conv(d, level, channels, (1, 1))
        top = _combined(d, "ADD", side, up) if d.chance(0.7) else _joined(d, [side, up], 3)
    return _conv(d, top, channels, (3, 3)) is not None


def inception(d: Drawing, x: Value) -> bool:
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    stored = (
        (d.near(float(d.scale(x.dtype)), x.dtype, float(x.scale)), d.zero(x.dtype))
        if x.quantised and d.chance(0.5)
        else None
    )
    branches: list[Value | None] = [_conv(d, x, d.number(1, 9), (1, 1), stored=stored)]
    if d.chance(0.7):
        branches.append(_conv(d, _conv(d, x, d.number(1, 9), (1, 1)), d.number(1, 9), (3, 3), stored=stored))
    if d.chance(0.5):
        branches.append(_conv(d, _conv(d, x, d.number(1, 9), (1, 7)), d.number(1, 9), (7, 1), stored=stored))
    pooled = d.like(x, x.shape)
    fields = {"FilterHeight": 3, "FilterWidth": 3, "StrideH": 1, "StrideW": 1, "Padding": _SAME}
    d.operator(
        d.choice("AVERAGE_POOL_2D", "MAX_POOL_2D"),
        [x],
        pooled,
        "Pool2DOptions",
        2,
        FusedActivationFunction=d.fused(),
        **fields,
    )
    branches.append(_conv(d, pooled, d.number(1, 9), (1, 1), stored=stored) if d.chance(0.6) else pooled)
    return _joined(d, branches, 3) is not None


def residual(d: Drawing, x: Value) -> bool:
    """A residual, inverted residual or densely joined block."""
    if len(x.shape) != 4 or x.dtype not in (*RANGE, "float32"):
        return False
    kind, channels = d.number(0, 2), x.shape[3]
    if kind == 0:
        y = _conv(d, _conv(d, x, d.number(1, 16), (3, 3)), channels, (3, 3))
    elif kind == 1:
        y = _conv(d, _depthwise(d, _conv(d, x, channels * d.number(1, 3), (1, 1)), (3, 3)), channels, (1, 1))
    else:
        parts: list[Value | None] = [x]
        for _ in range(d.number(1, 3)):
            joined = _joined(d, parts, 3)
            parts = [joined, _conv(d, joined, d.number(1, 8), (3, 3))]
        return _joined(d, parts, 3) is not None
    return _combined(d, "ADD", x, y) is not None


def shuffle(d: Drawing, x: Value) -> bool:
    """Two halves of the channels, one of them changed, joined and shuffled (ShuffleNet)."""
    if len(x.shape) != 4 or x.shape[3] % 2 or x.dtype not in (*RANGE, "float32"):
        return False
    left, right = _split(d, x, 2)
    y = _joined(d, [left, _conv(d, _depthwise(d, right, (3, 3)), right.shape[3], (1, 1))], 3)
    if y is None:
        return False
    n, height, width, depth = y.shape
    return (
        _reshaped(d, _transposed(d, _reshaped(d, y, (n, height, width, 2, depth // 2)), (0, 1, 2, 4, 3)), y.shape)
        is not None
    )


def patches(d: Drawing, x: Value) -> bool:
    """Patches as a sequence, with a position added and a token in front (ViT)."""
    if len(x.shape) != 4 or min(x.shape[1:3]) < 2 or x.dtype not in (*RANGE, "float32"):
        return False
    size = int(d.choice(2, 3, 4))
    y = _conv(d, x, int(d.choice(4, 8, 16)), (size, size), size, _VALID)
    if y is None:
        return False
    n, height, width, depth = y.shape
    y = _reshaped(d, y, (n, height * width, depth))
    if y is not None and d.chance(0.5):
        y = _joined(d, [d.constant((n, 1, depth), y.dtype, y.scale, y.zero), y], 1)
    if y is not None and d.chance(0.7):
        y = _combined(d, "ADD", y, d.constant((1, *y.shape[1:]), y.dtype, d.scale(y.dtype), d.zero(y.dtype)))
    if y is not None and d.chance(0.7):
        attention(d, y)
    return y is not None


def temporal(d: Drawing, x: Value) -> bool:
    """Causal layers of growing dilation (TCN), padded in front, as they are or between SPACE_TO_BATCH and back."""
    if len(x.shape) == 3:
        y = _reshaped(d, x, (x.shape[0], 1, *x.shape[1:]) if d.chance(0.5) else (*x.shape[:2], 1, x.shape[2]))
    else:
        y = x if len(x.shape) == 4 else None
    if y is None or x.dtype not in (*RANGE, "float32"):
        return False
    axis = 1 if y.shape[1] >= y.shape[2] else 2
    for layer in range(d.number(1, 3)):
        gap, taps = 2**layer * int(d.choice(1, 1, 3)), int(d.choice(2, 3, 3, 5))
        kernel, dilation = [1, 1], [1, 1]
        kernel[axis - 1], dilation[axis - 1] = taps, gap
        amounts = [[0, 0] for _ in range(4)]
        amounts[axis] = [(taps - 1) * gap, 0] if d.chance(0.8) else [d.number(0, 3), d.number(0, 3)]
        if d.chance(0.2):
            found = _batched(d, y, axis, gap, taps)
        elif d.chance(0.4):
            multiplier = int(d.choice(1, 1, 2, 3))
            found = _depthwise(d, _padded(d, y, amounts), kernel, 1, _VALID, dilation, multiplier)
        else:
            channels = y.shape[3] if d.chance(0.6) else d.number(1, 12)
            found = _conv(d, _padded(d, y, amounts), channels, kernel, 1, _VALID, dilation)
        if found is None:
            return layer > 0
        y = (_combined(d, "ADD", y, found) if d.chance(0.6) else None) or found
    return True


def _batched(d: Drawing, x: Value, axis: int, gap: int, taps: int) -> Value | None:
    """A dilated layer as TensorFlow writes it: SPACE_TO_BATCH_ND, a layer without gaps, BATCH_TO_SPACE_ND."""
    front = (taps - 1) * gap
    behind = -(x.shape[axis] + front) % gap
    if d.chance(0.8):  # padded by an operator of its own: TFLite Micro's kernel leaves open with what it pads
        amounts = [[front, behind] if i == axis else [0, 0] for i in range(4)]
        found = _padded(d, x, amounts)
        if found is None:
            return None
        x, front, behind, rest = found, 0, 0, behind
    else:
        rest = behind
    shape = [x.shape[0] * gap, *x.shape[1:]]
    shape[axis] = (x.shape[axis] + front + behind) // gap
    if not d.fits(shape):
        return None
    sizes = [gap if i == axis else 1 for i in (1, 2)]
    around = [[front, behind] if i == axis else [0, 0] for i in (1, 2)]
    y = d.like(x, shape)
    d.operator("SPACE_TO_BATCH_ND", [x, d.numbers(sizes), d.numbers(around)], y, "SpaceToBatchNDOptions", 2)
    made = _conv(d, y, d.number(1, 9), (taps, 1) if axis == 1 else (1, taps), 1, _VALID)
    if made is None:
        return None
    crops = [[0, rest] if i == axis else [0, 0] for i in (1, 2)]
    whole = [made.shape[0] // gap, *made.shape[1:]]
    whole[axis] = made.shape[axis] * gap - rest
    if min(whole) < 1:
        return None
    z = d.like(made, whole)
    d.operator("BATCH_TO_SPACE_ND", [made, d.numbers(sizes), d.numbers(crops)], z, "BatchToSpaceNDOptions", 2)
    return z


# -- structures of sequences -----------------------------------------------------------------------


def _sequence(d: Drawing, x: Value) -> Value | None:
    """`x` as (batch, steps, numbers)."""
    if x.dtype not in (*RANGE, "float32"):
        return None
    if len(x.shape) == 3:
        return x
    if len(x.shape) == 4 and x.shape[1] * x.shape[2] <= 32:
        return _reshaped(d, x, (x.shape[0], x.shape[1] * x.shape[2], x.shape[3]))
    if len(x.shape) == 2:
        steps = int(d.choice(*(n for n in (1, 2, 3, 4) if x.shape[1] % n == 0)))
        return _reshaped(d, x, (x.shape[0], steps, x.shape[1] // steps))
    return None


def attention(d: Drawing, x: Value) -> bool:
    """Queries, keys and values; a product, its SOFTMAX, a product; what came in is added, and the sum normalised."""
    y = _sequence(d, x) if x.dtype != "uint8" else None
    if y is None or y.shape[1] > 32 or y.shape[2] > 64:
        return False
    n, steps, depth = y.shape
    heads = int(d.choice(*(h for h in (1, 2, 4) if depth % h == 0)))
    three: list[Value | None] = [_dense(d, y, depth, True) for _ in range(3)]
    if heads > 1 or d.chance(0.5):
        three = [_transposed(d, _reshaped(d, v, (n, steps, heads, depth // heads)), (0, 2, 1, 3)) for v in three]
    query, key, value = three
    if query is None or key is None or value is None:
        return False
    scores = _made(d, weighted.multiply(d, query, key, (False, True)))
    if d.chance(0.5):
        scores = _combined(d, "MUL", scores, d.constant((1,), y.dtype, d.scale(y.dtype), d.zero(y.dtype)))
    if scores is not None and d.chance(0.3):
        mask = d.constant(
            (1,) * (len(scores.shape) - 2) + scores.shape[-2:], y.dtype, d.scale(y.dtype), d.zero(y.dtype)
        )
        scores = _combined(d, "ADD", scores, mask)
    chances = _curved(d, "SOFTMAX", scores)
    if chances is None or not weighted.multiply(d, chances, value, (False, False)):
        return False
    made: Value | None = d.values[-1]
    if made is not None and len(made.shape) == 4:
        made = _reshaped(d, _transposed(d, made, (0, 2, 1, 3)), y.shape)
    total = _combined(d, "ADD", y, _dense(d, made, depth, True))
    if total is not None and d.chance(0.5):
        normalise(d, total)
    return total is not None


def normalise(d: Drawing, x: Value) -> bool:
    """A layer norm of separate operators."""
    if x.dtype not in (*RANGE, "float32") or len(x.shape) < 2:
        return False
    last = [len(x.shape) - 1]
    centred = _combined(d, "SUB", x, _mean(d, x, last))
    if centred is None:
        return False
    square = _combined(d, "MUL", centred, centred)
    if square is None or x.dtype not in ("int8", "float32"):
        return square is not None
    stored = (float(square.scale * 10 ** d.rng.uniform(-0.5, 0)), -128) if square.quantised else None
    spread = _mean(d, square, last, stored)
    if x.quantised:
        inverse = d.tensor(spread.shape, "int8", float(spread.scale) ** -0.5 / 200, -128)
        d.operator("RSQRT", [spread], inverse, None, 2)
        scaled = _combined(d, "MUL", centred, inverse)
        return _combined(d, "MUL", scaled, d.constant(x.shape[-1:], "int8", d.scale("int8"), 0)) is not None
    return True


def _steps(d: Drawing, x: Value) -> list[Value]:
    """Each step of a sequence as (batch, numbers)."""
    n, many, depth = x.shape
    if many <= 4 and d.chance(0.5):
        parts = [d.like(x, (n, depth)) for _ in range(many)]
        d.operator("UNPACK", [x], parts, "UnpackOptions", 2, Num=many, Axis=1)
        return parts
    found = []
    for i in range(min(many, 3)):
        y = d.like(x, (n, depth))
        reads = [x, *(d.numbers(v) for v in ([0, i, 0], [n, i + 1, depth], [1, 1, 1]))]
        d.operator("STRIDED_SLICE", reads, y, "StridedSliceOptions", 2, BeginMask=5, EndMask=5, ShrinkAxisMask=2)
        found.append(y)
    return found


def _start(d: Drawing, shape: Sequence[int], dtype: str, stored: Stored | None) -> Value:
    """What a state starts with: a constant, or an input."""
    scale, zero = stored or (None, 0)
    return d.constant(shape, dtype, scale, zero) if d.chance(0.6) else d.input(shape, dtype, scale, zero)


def recurrent(d: Drawing, x: Value) -> bool:
    """An LSTM or a GRU, unrolled over up to three steps."""
    sequence = _sequence(d, x) if d.room > 12 else None
    if sequence is None or sequence.shape[2] > 64:
        return False
    units = int(d.choice(1, 3, 4, 8))
    halves = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}.get(x.dtype)
    shape = (sequence.shape[0], units)
    hidden: Value | None = _start(d, shape, x.dtype, halves)
    wide = None if halves is None else (halves[0] * float(d.choice(2, 4, 8)), halves[1])
    cell: Value | None = _start(d, shape, x.dtype, wide)
    gated = d.chance(0.5)
    made: list[Value | None] = []
    for step in _steps(d, sequence):
        if d.room < 10 or hidden is None:
            break
        if gated:
            cell, hidden = _lstm_step(d, step, hidden, cell, units)
        else:
            hidden = _gru_step(d, step, hidden, units)
        made.append(hidden)
    parts = [v for v in made if v is not None]
    if len(parts) > 1 and len({(v.scale, v.zero) for v in parts}) == 1 and d.chance(0.7):
        y = d.like(parts[0], (shape[0], len(parts), units))
        d.operator("PACK", parts, y, "PackOptions", 2, ValuesCount=len(parts), Axis=1)
    return bool(parts)


def _gates(d: Drawing, step: Value, hidden: Value, units: int) -> Value | None:
    """What the gates are computed of: one layer of both joined, or the sum of two layers."""
    if d.chance(0.5):
        return _dense(d, _joined(d, [step, hidden], 1), units)
    return _combined(d, "ADD", _dense(d, step, units), _dense(d, hidden, units))


def _lstm_step(
    d: Drawing, step: Value, hidden: Value, cell: Value | None, units: int
) -> tuple[Value | None, Value | None]:
    gates = _split(d, _gates(d, step, hidden, 4 * units), 4)
    if not gates or cell is None:
        return None, None
    entry, forget, out = (_curved(d, "LOGISTIC", gates[i]) for i in (0, 1, 3))
    kept, new = _combined(d, "MUL", forget, cell), _combined(d, "MUL", entry, _curved(d, "TANH", gates[2]))
    cell = _combined(d, "ADD", kept, new)
    return cell, _combined(d, "MUL", out, _curved(d, "TANH", cell))


def _gru_step(d: Drawing, step: Value, hidden: Value, units: int) -> Value | None:
    gates = _split(d, _gates(d, step, hidden, 2 * units), 2)
    if not gates:
        return None
    update, reset = (_curved(d, "LOGISTIC", gate) for gate in gates)
    new = _curved(
        d, "TANH", _combined(d, "ADD", _dense(d, step, units), _combined(d, "MUL", reset, _dense(d, hidden, units)))
    )
    if update is None:
        return None
    one = d.constant((1,), update.dtype, None if update.scale is None else 1 / 127, 0)
    old = _combined(d, "MUL", _combined(d, "SUB", one, update), hidden)
    return _combined(d, "ADD", old, _combined(d, "MUL", update, new))


# -- states, folded constants ----------------------------------------------------------------------


def _handle(b: ModelBuilder, name: str) -> int:
    made = b.tensor((), "resource")
    b.operator("VAR_HANDLE", [], [made], "VarHandleOptions", Container="", SharedName=name)
    return made


def stream(d: Drawing, x: Value) -> bool:
    """The last rows of what came before, in front of what comes now, and a layer over both (a streamed model)."""
    if not isinstance(d, StructureDrawing) or not x.quantised or x.dtype == "uint8" or len(x.shape) not in (2, 3, 4):
        return False
    axis = 1 if len(x.shape) > 2 else 0
    rows = d.number(1, 3)
    name, shape = f"v{len(d.initial)}", (*x.shape[:axis], rows, *x.shape[axis + 1 :])
    before = d.like(x, shape)
    d.b.operator("READ_VARIABLE", [_handle(d.b, name)], [before.index])
    d.values.append(before)
    d.initial[name] = before
    if d.chance(0.15):  # one is no more than kept
        return d.operator("ASSIGN_VARIABLE", [_handle(d.b, name), before], [])
    both = _joined(d, [before, x], axis)
    if both is None:
        return d.operator("ASSIGN_VARIABLE", [_handle(d.b, name), before], [])
    begin = [0] * len(shape)
    begin[axis] = both.shape[axis] - rows
    kept = d.like(x, shape)
    d.operator("SLICE", [both, d.numbers(begin), d.numbers(shape)], kept, "SliceOptions", 2)
    if d.chance(0.3):
        kept = _combined(d, "MAXIMUM", kept, d.constant((1,), x.dtype, x.scale, x.zero)) or kept
    d.operator("ASSIGN_VARIABLE", [_handle(d.b, name), kept], [])
    if len(shape) == 4:
        _conv(d, both, d.number(1, 9), (min(3, both.shape[1]), 1), 1, _VALID)
    return True


def folded(d: Drawing, x: Value) -> bool:
    """What operators make of constants, QUANTIZE above all, as another operand of `x`."""
    if not x.quantised or not x.shape:
        return False
    shape = x.shape if d.chance(0.5) else (*(1,) * (len(x.shape) - 1), x.shape[-1])
    sources = {"int8": ("int8", "int16", "uint8", "float32"), "uint8": ("int8", "uint8", "float32"),
               "int16": ("int8", "int16", "float32")}  # fmt: skip
    kind = d.choice(*sources[x.dtype])
    made: Value | None = d.constant(shape, kind, d.scale(kind), d.zero(kind))
    if d.chance(0.3):
        made = _reshaped(d, _reshaped(d, made, (math.prod(shape),)), shape)
    if made is not None and made.quantised and d.chance(0.4):
        d.choice(*_ON_CONSTANTS)(d, made)
        made = d.values[-1] if d.values[-1].shape == shape else made
    if made is None:
        return False
    if not made.quantised or made.dtype != x.dtype or d.chance(0.7):
        scale = float(x.scale) if d.chance(0.3) else d.near(float(d.scale(x.dtype)), x.dtype, float(made.scale or 1))
        made = _quantised(d, made, scale, x.zero if d.chance(0.3) else d.zero(x.dtype), x.dtype)
    name = d.choice("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "CONCATENATION")
    if name == "CONCATENATION":
        return (
            made is not None
            and made.shape == x.shape
            and _joined(d, [x, made], d.number(0, len(shape) - 1)) is not None
        )
    if name in ("MAXIMUM", "MINIMUM") and made is not None and (made.scale, made.zero) != (x.scale, x.zero):
        made = _quantised(d, made, x.scale, x.zero)
    return _combined(d, name, x, made) is not None


_REAL = "int8 uint8 int16 float32"
_ON_CONSTANTS = (
    *(pointwise.unary(name, _REAL) for name in ("RELU", "RELU6")),
    *(pointwise.curve(name) for name in ("TANH", "LOGISTIC", "SOFTMAX")),
    pointwise.unary("LEAKY_RELU", _REAL, "LeakyReluOptions", version=2),
    pointwise.unary("HARD_SWISH", "int8 uint8 float32", "HardSwishOptions"),
    pointwise.quantize,
    shaping.transpose,
    shaping.pad,
)
_SINGLE = [
    adder
    for adder, weight in {**weighted.OPERATORS, **pointwise.OPERATORS, **shaping.OPERATORS}.items()
    for _ in range(weight)
]


def chain(d: Drawing, x: Value) -> bool:
    """Up to four single operators behind each other."""
    added = False
    for _ in range(d.number(1, 4) * 3):
        added |= d.room > 0 and d.choice(*_SINGLE)(d, d.values[-1] if added else x)
    return added


STRUCTURES: tuple[Structure, ...] = (
    squeeze_excite, swish, pyramid, inception, residual, shuffle, patches, temporal, temporal, attention, normalise,
    recurrent, recurrent, stream, folded, folded, chain, chain,
)  # fmt: skip
