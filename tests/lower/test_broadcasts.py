"""Every broadcast of element-wise layers of two operands, ranks 0 to 4, either operand a constant: what the NPU takes
equals the reference, and what stands in the way of the others is said."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.layers.activation import Prelu
from npu_memplan.ethosu.layers.elementwise import Binary, SquaredDifference
from npu_memplan.ethosu.lower.layer import Layer, LayerGraph, problem
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.stream.isa import ElementwiseMode
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.in_steps import equals_reference
from tests.support.on_model import run_program
from tests.support.random_values import RANGE
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

pytest.importorskip("tflite_micro")

Shape = tuple[int, ...]
EXTENTS = (2, 3, 4, 5)
MODES = {
    "ADD": ElementwiseMode.ADD,
    "SUB": ElementwiseMode.SUB,
    "MUL": ElementwiseMode.MUL,
    "MAXIMUM": ElementwiseMode.MAX,
    "MINIMUM": ElementwiseMode.MIN,
}
OPTIONS = {
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
    "PRELU": None,
}
REASONS = ("would have to be broadcast", "cannot be broadcast", "broadcasts over a batch", "constant operand is larger")


def shapes() -> Iterator[tuple[Shape, Shape]]:
    """Pairs that NumPy broadcasts: each extent is of both, of one, or of none, leading ones are there or not."""
    for marks in itertools.product("ab=1", repeat=4):
        a, b = (tuple(n if m in (who, "=") else 1 for m, n in zip(marks, EXTENTS, strict=True)) for who in "ab")
        for first, second in itertools.product(range(5), repeat=2):
            if {*a[:first], *b[:second]} <= {1}:
                yield a[first:], b[second:]


def layer_of(kind: str, inputs: tuple[str, str], output: str, dtype: str) -> Layer:
    clamp = RANGE[dtype]
    if kind == "PRELU":
        return Prelu("prelu", inputs, output)
    if kind == "SQUARED_DIFFERENCE":
        return SquaredDifference("squared_difference", inputs, output, clamp)
    return Binary(kind.lower(), inputs, output, clamp, MODES[kind])


def quantisations(rng: np.random.Generator, kind: str, dtype: str) -> list[tuple[float, int]]:
    """Of both operands and the result."""
    step = 1 / 256 if dtype == "int16" else 1.0
    zeros = [0] * 3 if dtype == "int16" else rng.integers(RANGE[dtype][0], RANGE[dtype][1] + 1, 3).tolist()
    first, second = rng.uniform(0.01, 0.1, 2) * step
    result = max(first, second) * 1.3
    if kind in ("MUL", "SQUARED_DIFFERENCE"):
        result = first * second * 60 / step
    if kind in ("MAXIMUM", "MINIMUM"):
        return [(float(first), zeros[0])] * 3
    return [(float(s), z) for s, z in zip((first, second, result), zeros, strict=True)]


class Both:
    """The same operators as a graph of layers for the NPU and as a model for the reference."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.rng, self.dtype, self.model = np.random.default_rng(seed), dtype, ModelBuilder()
        self.tensors: dict[str, LayerTensor] = {}
        self.layers: list[Layer] = []
        self.refused: list[str] = []
        self.made: list[int] = []

    def add(self, kind: str, pair: tuple[Shape, Shape], constant: int) -> None:
        """An operator that the NPU takes; the reason is kept where it does not."""
        number = len(self.layers)
        names = [f"t{number}_{which}" for which in "abz"]
        all_shapes = (*pair, tuple(np.broadcast_shapes(*pair)))
        numbers = quantisations(self.rng, kind, self.dtype)
        low, high = RANGE[self.dtype]
        tensors = []
        for place, (name, shape, (scale, zero)) in enumerate(zip(names, all_shapes, numbers, strict=True)):
            data = self.rng.integers(low, high + 1, shape).astype(self.dtype) if place == constant else None
            stored = shape or (1,)  # as scalars are outside of TVM's converter
            values = None if data is None else data.reshape(stored)
            tensors.append(LayerTensor(name, stored, self.dtype, float(np.float32(scale)), zero, values))
        layer = layer_of(kind, (names[0], names[1]), names[2], self.dtype)
        reason = problem(layer, (tensors[0], tensors[1]), tensors[2])
        if reason is not None:
            self.refused.append(reason)
            return
        self.layers.append(layer)
        self.tensors |= {t.name: t for t in tensors}
        b = self.model
        *operands, result = (
            b.tensor(shape, self.dtype, t.scale, t.zero_point, data=t.data)
            for shape, t in zip(all_shapes, tensors, strict=True)
        )
        b.inputs += [i for i in operands if b.tensors[i].data is None]
        b.outputs.append(result)
        options = OPTIONS.get(kind, "MaximumMinimumOptions")
        b.operator(kind, operands, [result], options, 1 if kind == "PRELU" else 2)

    def differences(self, npu: str) -> list[str]:
        """Layers whose results are not the reference's."""
        inputs = {n: t for n, t in self.tensors.items() if n[-1] in "ab" and t.data is None}
        low, high = RANGE[self.dtype]
        given = {n: self.rng.integers(low, high + 1, t.shape).astype(self.dtype) for n, t in inputs.items()}
        outputs = tuple(layer.output for layer in self.layers)
        graph = LayerGraph("all", self.tensors, tuple(inputs), outputs, tuple(self.layers))
        found = run_program(lower(graph, accelerator(npu)), given)
        b = self.model
        shaped = [g.reshape(b.tensors[i].shape) for g, i in zip(given.values(), b.inputs, strict=True)]
        wanted = TFLiteReference(b.finish()).run(shaped)
        return [
            f"{layer.name} {[self.tensors[n].shape for n in layer.inputs]}"
            for layer, f, w in zip(self.layers, found, wanted, strict=True)
            if not np.array_equal(f.reshape(-1), w.reshape(-1))
        ]


def of_every(kind: str, dtype: str, constant: int, every: int, first: int = 0) -> Both:
    both = Both(dtype, 7)
    for pair in itertools.islice(shapes(), first, None, every):
        if kind != "PRELU" or np.broadcast_shapes(*pair) == pair[0]:
            both.add(kind, pair, constant)
    return both


def test_sums_of_all_shapes_equal_the_reference() -> None:
    both = of_every("ADD", "int8", -1, 1)
    assert both.differences("ethos-u55-256") == []
    assert len(both.layers) == 413
    assert all(any(text in reason for text in REASONS) for reason in both.refused)


@pytest.mark.parametrize("constant", [-1, 0, 1])
@pytest.mark.parametrize("kind", [*MODES, "SQUARED_DIFFERENCE"])
def test_others_equal_the_reference(kind: str, constant: int) -> None:
    both = of_every(kind, "int8", constant, 9, len(kind) % 9)
    assert both.differences("ethos-u65-512") == []
    assert len(both.layers) > 10


@pytest.mark.parametrize(
    ("kind", "dtype", "constant"),
    [("ADD", "int16", -1), ("SUB", "int16", 0), ("MUL", "int16", 1), ("PRELU", "int8", -1), ("PRELU", "int8", 1)],
)
def test_other_types_equal_the_reference(kind: str, dtype: str, constant: int) -> None:
    both = of_every(kind, dtype, constant, 4)
    assert both.differences("ethos-u55-128") == []
    assert len(both.layers) > 10


@pytest.mark.parametrize(
    "pair", [((1, 1), (1, 17)), ((1, 1), (17,)), ((17,), (1, 1)), ((), (2, 3)), ((1, 1, 1), (2, 3))]
)
def test_the_whole_way(pair: tuple[Shape, Shape], tmp_path: Path) -> None:
    x, y = (TensorSpec(shape, "int8", 0.03 + i / 100, 5 * i - 3) for i, shape in enumerate(pair))
    z = TensorSpec(np.broadcast_shapes(*pair), "int8", 0.06, 2)
    made = single_operator("SUB", [x, y], [z], "SubOptions", 2).finish()
    (operator,) = equals_reference(made, tmp_path, 2, CompileOptions(npu_compiler="tvm", objective="bytes")).operators
    assert operator.agent is Agent.NPU


def test_five_dimensions_are_refused_by_their_number() -> None:
    both = Both("int8", 7)
    both.add("ADD", ((2, 1, 3, 1, 5), (3, 4, 5)), -1)
    assert both.refused == ["its tensor has 5 dimensions; the NPU walks at most 4"]
