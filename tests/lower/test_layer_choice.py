"""Layers that stand for others, exactly: a pool that pads, an enlargement, a transposed convolution with stride 1."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npu_memplan.ethosu.graph_rewrites import fold_pads
from npu_memplan.ethosu.layers.movement import Pad
from npu_memplan.ethosu.lowering import LoweringTarget
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.options import CompileOptions
from npu_memplan.vocabulary import is_npu
from tests.support.against_reference import equals_reference, host_reasons
from tests.support.on_model import npu_graph
from tests.support.operator_models import SAME, VALID, transpose_convolution
from tests.support.random_networks.branching import Branches, Map
from tests.support.random_networks.verdict import Trial, Verdict
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")


CASES = {  # type, zero point, padding value, rows and columns before and after, window, whether the pool takes it
    "zero point": ("int8", -128, None, (1, 1), 3, True),
    "value": ("int8", -3, -128, (1, 2), 3, True),
    "behind alone": ("int8", -128, None, (0, 1), 2, True),
    "above the lowest": ("int8", -3, None, (1, 1), 3, False),
    "window in the padding": ("int8", -128, None, (2, 1), 2, False),
    "uint8": ("uint8", 0, None, (1, 1), 3, True),
    "uint8 above": ("uint8", 128, None, (1, 1), 3, False),
}


def padded_pool(name: str) -> bytes:
    """A padded pool."""
    dtype, zero, value, (before, after), window, _ = CASES[name]
    b = ModelBuilder()
    x = b.tensor((1, 9, 11, 8), dtype, 0.05, zero)
    rows, columns = 9 + before + after, 11 + before + after
    padded = b.tensor((1, rows, columns, 8), dtype, 0.05, zero)
    made = b.tensor((1, (rows - window) // 2 + 1, (columns - window) // 2 + 1, 8), dtype, 0.05, zero)
    sides = b.constant(np.array([[0, 0], [before, after], [before, after], [0, 0]], "int32"))
    if value is None:
        b.operator("PAD", [x, sides], [padded], "PadOptions", 2)
    else:
        constant = b.constant(np.array([value], dtype), 0.05, zero_point=zero)
        b.operator("PADV2", [x, sides, constant], [padded], "PadV2Options", 2)
    fields = {"FilterHeight": window, "FilterWidth": window, "StrideH": 2, "StrideW": 2, "Padding": 1}
    b.operator("MAX_POOL_2D", [padded], [made], "Pool2DOptions", 2, FusedActivationFunction=0, **fields)
    return b.made([x], [made]).finish()


@pytest.mark.parametrize("name", CASES)
def test_a_pool_takes_the_padding_that_no_maximum_sees(name: str) -> None:
    graph = npu_graph(padded_pool(name))
    assert any(isinstance(layer, Pad) for layer in graph.layers)
    assert any(isinstance(layer, Pad) for layer in fold_pads(graph).layers) is not CASES[name][-1]


@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize("name", CASES)
def test_a_padded_pool_is_exact(name: str, npu: str) -> None:
    outcome = Trial(padded_pool(name), 1).try_unchecked(CompileOptions(npu, npu_compiler="tvm", effort="quick"))
    assert outcome.verdict is Verdict.EXACT, outcome.message


OPTIONS = CompileOptions(npu_compiler="tvm", objective="bytes")
ROWS_FIRST = (((1, 4, 1, 6, 8), 2), ((1, 8, 6, 1, 8), 3))
COLUMNS_FIRST = (((1, 4, 6, 1, 8), 3), ((1, 4, 1, 12, 8), 2))
CHANNELS = (((1, 4, 6, 8, 1), 4), ((1, 4, 1, 96), 2))


def enlargement(steps: tuple[tuple[tuple[int, ...], int], ...]) -> bytes:
    """A convolution, shapes in which an axis of length one is repeated twice, and another convolution."""
    d = Branches(1, 9)
    x = d.conv(Map(d.b.tensor((1, 4, 6, 3), "int8", 0.05, -3), 4, 6, 3), 8, 3)
    index, scale = x.index, d.b.tensors[x.index]
    for shape, axis in steps:
        repeated = tuple(2 * n if i == axis else n for i, n in enumerate(shape))
        for name, made, numbers, options in (
            ("RESHAPE", shape, shape, "ReshapeOptions"),
            ("TILE", repeated, [2 if i == axis else 1 for i in range(len(shape))], None),
        ):
            result = d.b.tensor(made, "int8", scale.scale, scale.zero_point)
            d.b.operator(name, [index, d.b.constant(np.array(numbers, "int32"))], [result], options)
            index = result
    made = d.b.tensor((1, 8, 12, 8), "int8", scale.scale, scale.zero_point)
    d.b.operator("RESHAPE", [index, d.b.constant(np.array([1, 8, 12, 8], "int32"))], [made], "ReshapeOptions")
    return d.b.made([0], [d.conv(Map(made, 8, 12, 8), 4, 3).index]).finish()


@pytest.mark.parametrize("steps", [ROWS_FIRST, COLUMNS_FIRST], ids=["rows first", "columns first"])
@pytest.mark.parametrize("stripes", [False, True], ids=["whole", "stripes"])
def test_an_enlargement_is_one_layer_of_the_npu(steps: tuple[tuple[tuple[int, ...], int], ...], stripes: bool) -> None:
    model = enlargement(steps)
    functions = build_module(model).module.functions.values()
    assert sum(is_npu(function) for function in functions) == 1
    assert len(functions) == 2
    options = CompileOptions(npu_compiler="tvm", objective="bytes", stripes=stripes)
    outcome = Trial(model, 1).try_unchecked(options)
    assert outcome.verdict is Verdict.EXACT, outcome.message


def test_what_the_user_keeps_on_the_host_stays_there() -> None:
    module = build_module(enlargement(ROWS_FIRST), host_ops=("TILE",)).module
    assert [str(gv.name_hint) for gv in module.functions if "tile" in gv.name_hint]


def test_repeated_channels_are_no_enlargement() -> None:
    outcome = Trial(enlargement(CHANNELS), 1).try_unchecked(OPTIONS)
    assert outcome.verdict is Verdict.EXACT, outcome.message


def test_what_picks_from_several_is_no_repetition() -> None:
    """A column beside its own copy, and a reshape behind it."""
    b = ModelBuilder()
    x, joined, made = (b.tensor(shape, "int8", 0.1, 3) for shape in ((1, 6, 1), (1, 6, 2), (4, 3, 1)))
    amounts = b.constant(np.array([[0, 0], [0, 0], [0, 1]], np.int32))
    b.operator("MIRROR_PAD", [x, amounts], [joined], "MirrorPadOptions", 2, Mode=1)
    b.operator("RESHAPE", [joined], [made], "ReshapeOptions", NewShape=[4, 3, 1])
    functions = build_module(b.made([x], [made]).finish()).module.functions.values()
    assert [is_npu(function) for function in functions].count(True) == 1


def case(kernel: int, padding: int = VALID, dtype: str = "int8") -> Case:
    made = partial(transpose_convolution, kernel=kernel, stride=1, padding=padding, dtype=dtype)
    return Case(f"transposed_{kernel}_{padding}_{dtype}", "transpose_conv", made)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize(("kernel", "dtype", "padding"), [(1, "int8", VALID), *(
    (kernel, dtype, padding) for kernel, dtype in ((2, "int8"), (3, "uint8"), (4, "int16"), (5, "int8"))
    for padding in (SAME, VALID)
)])  # fmt: skip
def test_stride_2_without_zeros_between(kernel: int, dtype: str, padding: int, npu: str) -> None:
    """Four convolutions have a quarter of the products; a kernel of one element leaves three of them without any. Where
    the network's output lies in DRAM, writing it in parts takes as long as all products of a small kernel.
    """
    made = partial(transpose_convolution, kernel=kernel, padding=padding, dtype=dtype, depth=32, size=19)
    wanted = Case(f"parts_{kernel}_{padding}_{dtype}", "transpose_conv", made)
    whole = kernel == 1 or (kernel < 4 and npu != "ethos-u55-256")
    for for_cycles, count in ((True, 1 if whole else 4), (False, 1)):
        operations = equals_reference(wanted, npu, 3, LoweringTarget(for_cycles=for_cycles)).operations
        assert operations.count(Op.CONV) == count


def test_more_padding_than_the_npu_has_stays_on_the_host() -> None:
    reason = "its padding (32, 32, 32, 32) is more than (31, 31, 32, 32) at the top, left, bottom and right"
    assert reason in host_reasons(case(33))
