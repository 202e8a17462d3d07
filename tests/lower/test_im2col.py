"""Convolutions of few channels in two: each form gives the sums of one operation, and what is taken takes less time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.graph_rewrites import gather_windows, split_forms
from npu_memplan.ethosu.layers.matrix import Conv
from npu_memplan.ethosu.lower.layer import LayerGraph
from npu_memplan.ethosu.lower.operands import LayerTensor, Padding
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.time import default_memory_map
from npu_memplan.ethosu.time.estimate import cycles_in_a_row
from tests.support.on_model import run_program

NPU = accelerator("ethos-u55-256")


def convolution(
    size: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    depth: int = 8,
    dtype: str = "int8",
) -> LayerGraph:
    rng = np.random.default_rng(sum(size) + sum(kernel) + sum(padding))
    top, left, bottom, right = padding
    made = [
        (s + b + e - k) // t + 1
        for s, b, e, k, t in zip(size[:2], (top, left), (bottom, right), kernel, stride, strict=True)
    ]
    weights = rng.integers(-127, 128, (depth, *kernel, size[2])).astype(np.int16)
    limits = np.iinfo(dtype)
    conv = Conv(
        "conv",
        ("x",),
        "y",
        weights=weights,
        bias=rng.integers(-900, 900, depth).astype(np.int64),
        weight_scales=(0.003,),
        clamp=(int(limits.min), int(limits.max)),
        stride=stride,
        padding=Padding(*padding),
    )
    zero = 3 if dtype == "int8" else 131
    tensors = [
        LayerTensor("x", (1, *size), dtype, 0.5, zero),
        LayerTensor("y", (1, *made, depth), dtype, 0.7, zero - 8),
    ]
    return LayerGraph("conv", {t.name: t for t in tensors}, ("x",), ("y",), (conv,))


def results(graph: LayerGraph) -> np.ndarray:
    x = graph.tensors["x"]
    values = np.random.default_rng(7).integers(0, 256, x.shape).astype(np.uint8).view(x.dtype)
    return run_program(lower(graph, NPU), {"x": values})[0]


def random_case(seed: int) -> LayerGraph:
    draw = random.Random(seed)
    kernel = draw.randint(1, 7), draw.randint(1, 5)
    stride = draw.choice((1, 1, 2, 3)), draw.choice((1, 2, 3))
    size = draw.randint(kernel[0], 17), draw.randint(kernel[1], 13), draw.randint(1, 4)
    top, bottom = (draw.randrange(kernel[0]) for _ in range(2))
    left, right = (draw.randrange(kernel[1]) for _ in range(2))
    return convolution(size, kernel, stride, (top, left, bottom, right), draw.choice((3, 8, 20)))


CASES = {
    "keywords": convolution((49, 10, 1), (10, 4), (2, 2), (4, 1, 5, 1), 64),
    "stride 1": convolution((20, 10, 1), (10, 4), (1, 1), (4, 1, 5, 2), 16),
    "three channels": convolution((12, 12, 3), (3, 3), (2, 2), (0, 0, 1, 1)),
    "rows left over": convolution((13, 11, 2), (3, 2), (3, 3), (0, 0, 0, 0)),
    "uint8": convolution((9, 8, 1), (5, 3), (2, 1), (2, 1, 2, 1), dtype="uint8"),
    **{f"random {seed}": random_case(seed) for seed in range(24)},
}


FORMS = {"keywords": 7, "stride 1": 7, "three channels": 8, "rows left over": 8, "uint8": 8}


@pytest.mark.parametrize("name", CASES)
def test_every_form_gives_the_same(name: str) -> None:
    graph = CASES[name]
    (conv,) = graph.layers
    assert isinstance(conv, Conv)
    expected = results(graph)
    found = list(split_forms(conv, graph.tensors))
    for layers, tensors in found:
        assert [layer.source for layer in layers] == ["y", "y"]
        again = results(replace(graph, layers=layers, tensors=tensors))
        assert np.array_equal(again, expected), [layer.weights.shape for layer in layers]
    assert len(found) == FORMS.get(name, len(found))


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("name", ["keywords", "stride 1", "three channels"])
def test_what_is_taken_gives_the_same_in_less_time(name: str, npu: str) -> None:
    graph = CASES[name]
    one, made = (lower(graph, accelerator(npu), LoweringTarget(for_cycles=fast)) for fast in (False, True))
    values = np.random.default_rng(1).integers(-128, 128, graph.tensors["x"].shape).astype(np.int8)
    assert np.array_equal(*(run_program(lowered, {"x": values})[0] for lowered in (one, made)))
    assert cycles(made) < 1.05 * cycles(one)  # it is selected with the weights in another memory than the maps
    if name == "keywords":
        assert kernels(made) == 2
        assert cycles(made) < (0.99 if npu == "ethos-u65-512" else 0.9) * cycles(one)  # its cores share the products


def kernels(lowered: Lowered) -> int:
    return len(lowered.program.operations)


def cycles(lowered: Lowered) -> int:
    """Of the kernels one after the other, with weights where the maps are."""
    program, memory_map = lowered.program, default_memory_map(lowered.program.accelerator)
    kernels = (operation.place(lambda _: (1, 0)) for operation in program.operations)
    return sum(cycles_in_a_row(kernel, program.accelerator, memory_map) for kernel in kernels)


def test_others_stay_as_they_are() -> None:
    graph = CASES["keywords"]
    (conv,) = graph.layers
    many = convolution((9, 9, 8), (3, 3), (1, 1), (1, 1, 1, 1))
    dilated = replace(graph, layers=(replace(conv, dilation=(2, 1), padding=Padding(9, 1, 9, 1)),))
    one = convolution((9, 9, 1), (1, 1), (2, 2), (0, 0, 0, 0))
    for other in (many, dilated, one):
        made = gather_windows(other, NPU, default_memory_map(NPU))
        assert made.layers == other.layers
