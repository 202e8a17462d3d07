"""The network that is being drawn: its builder, the values that operators may read, and the random choices.

Invariant: every choice comes from one generator, so a seed is a network; no tensor has more than `most_elements`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.random_values import PLAIN, RANGE
from tests.support.tflite_builder import ModelBuilder

MOST_OPERATORS = 8
MOST_ELEMENTS = 4096
_EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17)
_DEPTHS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 48, 65, 67, 96)
_FUSED = (0, 0, 0, 1, 2, 3)  # NONE, RELU, RELU_N1_TO_1, RELU6
_EDGES = {"int8": (-128, 127, 0), "uint8": (0, 255, 128)}


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that operators may read; `bound` is about the largest magnitude of a plain number."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    scale: Any = None
    zero: int = 0
    bound: float = 3.0

    @property
    def quantised(self) -> bool:
        return self.scale is not None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Drawing:
    """A network in the making; operators are added by the functions of the modules beside this one."""

    most_elements = MOST_ELEMENTS
    without_bias, wide_bias = 0.15, 0.6  # probabilities; a wide bias is that of int16 with 64 bits

    def __init__(self, seed: int, stream: int = 0x4E4E) -> None:
        self.rng = np.random.default_rng([seed, stream])
        self.b = ModelBuilder()
        self.values: list[Value] = []
        self.inputs: list[int] = []
        self.read: set[int] = set()
        self.batch = int(self.choice(1, 1, 1, 1, 2, 3, 4))
        self.most = self.number(1, MOST_OPERATORS)

    @property
    def room(self) -> int:
        """How many operators may still come."""
        return self.most - len(self.b.operators)

    # -- choices ---------------------------------------------------------------------------------

    def choice(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """A whole number of low..high."""
        return int(self.rng.integers(low, high + 1))

    def extent(self) -> int:
        return int(self.choice(*_EXTENTS))

    def depth(self) -> int:
        return int(self.choice(*_DEPTHS))

    def fused(self) -> int:
        return int(self.choice(*_FUSED))

    def scale(self, dtype: str) -> float | None:
        """Of a quantised type: TFLite's standard scales now and then."""
        if dtype in PLAIN:
            return None
        if self.chance(0.2):
            return 1 / 32768 if dtype == "int16" else float(self.choice(1 / 128, 1 / 256, 1 / 16))
        value = float(10 ** self.rng.uniform(-3, -0.3))
        return value / 256 if dtype == "int16" else value

    def zero(self, dtype: str) -> int:
        """A zero point: an extreme one in one case of two."""
        if dtype not in _EDGES:
            return 0
        if self.chance(0.5):
            return int(self.choice(*_EDGES[dtype]))
        return self.number(*RANGE[dtype])

    def near(self, scale: float, dtype: str, of: float) -> float:
        """The scale of a result that is to be about `scale`, made of numbers whose scale is `of`."""
        return scale

    def fits(self, shape: Sequence[int]) -> bool:
        return 0 < math.prod(shape) <= self.most_elements

    # -- tensors ---------------------------------------------------------------------------------

    def tensor(self, shape: Sequence[int], dtype: str, scale: Any = None, zero: int = 0, bound: float = 3.0) -> Value:
        """A tensor that the next operator makes."""
        index = self.b.tensor(shape, dtype, scale, zero)
        return Value(index, tuple(int(n) for n in shape), dtype, scale, zero, bound)

    def like(self, value: Value, shape: Sequence[int]) -> Value:
        """A tensor of another shape and the same elements' type."""
        return self.tensor(shape, value.dtype, value.scale, value.zero, value.bound)

    def input(self, shape: Sequence[int], dtype: str, scale: Any = None, zero: int = 0) -> Value:
        """An input of the network."""
        value = self.tensor(shape, dtype, scale, zero, 40 if dtype.startswith("int") and scale is None else 4)
        self.inputs.append(value.index)
        return value

    def any_input(self, shape: Sequence[int], dtype: str) -> Value:
        """An input of the network with a quantisation of its own."""
        return self.input(shape, dtype, self.scale(dtype), self.zero(dtype))

    def numbers(self, values: Any, dtype: str = "int32") -> int:
        """A constant of plain numbers: axes, shapes, paddings."""
        return self.b.constant(np.asarray(values, dtype))

    def stored(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Stored values of a constant: over the whole range, or few of them, or one."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype == "float32":
            return (self.rng.standard_normal(shape) * 2).astype(np.float32)
        low, high = RANGE.get(dtype, (-40, 40))
        if self.chance(0.15):
            low, high = self.choice((low, low), (high, high), (low // 8, high // 8))
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def constant(self, shape: Sequence[int], dtype: str, scale: Any = None, zero: int = 0) -> Value:
        """A constant operand."""
        values = self.stored(shape, dtype)
        bound = 1.0 if dtype == "bool" else float(np.abs(values.astype(np.float64)).max(initial=0))
        return Value(self.b.constant(values, scale, zero), tuple(shape), dtype, scale, zero, bound)

    # -- operators -------------------------------------------------------------------------------

    def operator(
        self,
        name: str,
        reads: Sequence[Value | int],
        makes: Value | Sequence[Value],
        options: str | None = None,
        version: int = 1,
        **fields: Any,
    ) -> bool:
        """Add an operator; what it makes may be read from now on. True, for those who return it."""
        made = [makes] if isinstance(makes, Value) else list(makes)
        indices = [r.index if isinstance(r, Value) else r for r in reads]
        self.b.operator(name, indices, [m.index for m in made], options, version, **fields)
        self.read.update(i for i in indices if i >= 0)
        self.values += made
        return True

    def partner(self, value: Value, shape: Sequence[int], same: bool = False) -> Value:
        """Another operand of `shape`: a value there is, a constant or an input; `same`: with the same quantisation."""
        shape = tuple(shape)
        fitting = [
            v
            for v in self.values
            if v.shape == shape
            and v.dtype == value.dtype
            and (not same or (v.scale, v.zero) == (value.scale, value.zero))
        ]
        if fitting and self.chance(0.6):
            return self.choice(*fitting)
        scale, zero = (value.scale, value.zero) if same else (self.scale(value.dtype), self.zero(value.dtype))
        if self.chance(0.5):
            return self.constant(shape, value.dtype, scale, zero)
        return self.input(shape, value.dtype, scale, zero)

    def finished(self) -> ModelBuilder:
        """The network; what nobody reads is an output, and now and then what somebody reads."""
        made = [v.index for v in self.values if v.index not in self.inputs]
        outputs = [i for i in made if i not in self.read or self.chance(0.1)]
        return self.b.made([i for i in self.inputs if i in self.read], outputs)
