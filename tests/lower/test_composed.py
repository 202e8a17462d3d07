"""Layers of several NPU operations equal tflite-micro: PReLU, squared differences, roots by table, softmax."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.emit import LoweringError
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.against_reference import host_reasons
from tests.support.on_model import npu_graph, random_inputs, run_program
from tests.support.operator_models import binary
from tests.support.operator_models import lstm_layer as layer
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, write_model

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

NPU = "ethos-u55-256"


# ---------------------------------------------------------------------- PReLU


# ---------------------------------------------------------------------- squared difference


def test_unsigned_squared_differences_stay_on_the_host() -> None:
    case = Case("unsigned", "binary", lambda rng: binary(rng, name="SQUARED_DIFFERENCE", dtype="uint8"))
    assert {*host_reasons(case)} == {"its tensors are uint8; squares of differences need int8 or int16"}


# ---------------------------------------------------------------------- reductions


@pytest.mark.parametrize("shape", [(1, 9, 10, 7), (9, 10, 7), (1, 40, 3, 16), (1, 256, 2, 3)])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["MEAN", "SUM", "REDUCE_MAX"])
def test_reductions(kind: str, shape: tuple[int, ...], kept: bool) -> None:
    rank = len(shape)
    for reduced in ([rank - 3], [rank - 2], [rank - 1], [rank - 3, rank - 2]):
        equals_reference(reduction(kind, shape, reduced, kept), NPU)


def reduction(kind: str, shape: tuple[int, ...], axes: list[int], kept: bool = True) -> bytes:
    out = [1 if i in axes else n for i, n in enumerate(shape) if kept or i not in axes]
    y = TensorSpec(out, "int8", *((0.05, 4) if kind == "REDUCE_MAX" else (0.02, -5)))
    inputs = [TensorSpec(shape, "int8", 0.05, 4), constant(axes)]
    return write_model(kind, inputs, [y], ("ReducerOptions", {"KeepDims": kept}), 2)


def test_means_of_more_rows_than_a_window_has_stay_on_the_host() -> None:
    (reason,) = host_reasons(reduction("MEAN", (1, 257, 2, 3), [1]))
    assert reason.startswith("it adds 257x1 elements; the NPU adds at most 256 rows")


# ---------------------------------------------------------------------- 1 / sqrt(x)


@pytest.mark.parametrize("scales", [(0.05, 0.02), (0.003, 0.1), (1.7, 0.004), (0.02, 0.03), (0.0117, 0.5)])
def test_inverse_square_roots_of_every_value(scales: tuple[float, float]) -> None:
    x, y = (TensorSpec((1, 1, 256), "int8", scale, -128) for scale in scales)
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)
    equals_reference(write_model("RSQRT", [x], [y]), NPU, given=[every])


# ---------------------------------------------------------------------- slices without steps


def test_slices_to_the_end_of_an_axis() -> None:
    b = ModelBuilder()
    x, p, y = b.tensor((1, 6, 7, 9), "int8", 0.1, 3), *(b.tensor((1, 4, 5, 6), "int8", 0.1, 3) for _ in range(2))
    begin, size = (b.constant(np.array(v, np.int32)) for v in ([0, 2, 0, 3], [1, -1, 5, -1]))
    b.operator("SLICE", [x, begin, size], [p], "SliceOptions", 2)
    b.operator("LEAKY_RELU", [p], [y], "LeakyReluOptions", 2, Alpha=0.1)
    equals_reference(b.made([x], [y]).finish(), NPU)


# ---------------------------------------------------------------------- softmax of pixels and beside concatenations


def softmax(shape: Sequence[int], scale: float, zero: int) -> bytes:
    x, y = TensorSpec(shape, "int8", scale, zero), TensorSpec(shape, "int8", 1 / 256, -128)
    return write_model("SOFTMAX", [x], [y], ("SoftmaxOptions", {"Beta": 1.0}), 2)


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 7, 5, 3), 7), ((1, 12, 12, 2), 12), ((1, 40, 2), 1), ((40, 3), 1), ((1, 40, 1, 3), 40)]
)
def test_softmax_of_pixels_has_the_rows_of_its_map(shape: tuple[int, ...], rows: int) -> None:
    """But for the maximum; a row for each pixel would cost a request each, 31 times."""
    program = equals_reference(softmax(shape, 0.1, 3), NPU).lowered.program
    kernels = [operation for operation in program.operations if operation.op is not Op.DMA_START]
    assert {o.registers[Register.OFM_HEIGHT_M1] + 1 for o in kernels[1:]} == {rows}


@pytest.mark.parametrize(("columns", "joined"), [(32, (2, 16)), (40, (1, 40))])
def test_operations_on_one_value_a_row_of_classes_join_the_columns_into_channels(
    columns: int, joined: tuple[int, int]
) -> None:
    """A core puts out whole depths of micro-blocks, of which one channel leaves seven eighths empty."""
    program = equals_reference(softmax((1, columns, 2), 0.1, 3), NPU).lowered.program
    kernels = [operation.registers for operation in program.operations if operation.op is not Op.DMA_START]
    seen = Counter((o[Register.OFM_WIDTH_M1] + 1, o[Register.OFM_DEPTH_M1] + 1) for o in kernels[2:])
    assert seen[joined] > 15
    assert seen[columns, 1] == 1  # the sum
    whole = lower(npu_graph(softmax((1, columns, 2), 0.1, 3), "ethos-u85-256"), accelerator("ethos-u85-256"))
    assert {o.registers[Register.OFM_WIDTH_M1] + 1 for o in whole.program.operations if o.op is Op.ELEMENTWISE} == {
        columns
    }  # whose cores put out single elements


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("inside", [False, True])
def test_softmax_of_and_into_a_part_of_a_concatenation(axis: int, inside: bool) -> None:
    b = ModelBuilder()
    whole = [1, 6, 8, 10]
    whole[axis] *= 2
    x, p, q = (b.tensor((1, 6, 8, 10), "int8", 1 / 256, -128) for _ in range(3))
    y, z = (b.tensor(whole, "int8", 1 / 256, -128) for _ in range(2))
    b.operator("LEAKY_RELU", [x], [p], "LeakyReluOptions", 2, Alpha=0.1)
    b.operator("SOFTMAX", [p], [q], "SoftmaxOptions", 2, Beta=1.0)
    b.operator("CONCATENATION", [q, q] if inside else [p, x], [y], "ConcatenationOptions", 2, Axis=axis)
    b.operator("LEAKY_RELU", [y], [z], "LeakyReluOptions", 2, Alpha=0.2)
    equals_reference(b.made([x], [z] if inside else [q, z]).finish(), NPU)


# ---------------------------------------------------------------------- softmax of ends


@pytest.mark.parametrize(
    ("npu", "classes", "operations"), [("ethos-u55-256", 32, 27), ("ethos-u85-512", 10, 29), ("ethos-u85-2048", 10, 29)]
)
def test_softmax_of_one_class_up_to_all_of_them(npu: str, classes: int, operations: int) -> None:
    """Equal maxima beside values whose exponentials are 0: reciprocals of sums that are powers of two saturate."""
    draw = np.random.default_rng(0)
    counts = np.arange(1, classes + 1)[:, None]
    first = np.arange(classes) < counts
    rows = [
        np.where(first, 127, -128),
        np.where(first, 127, 127 - counts),
        draw.integers(-128, 128, (classes, classes)),
    ]
    values = np.concatenate(rows).astype(np.int8)
    made = equals_reference(softmax(values.shape, 0.5, 0), npu, given=[values]).operations
    assert len(made) - made.count(Op.DMA_START) == operations


def test_a_layer_whose_scale_cannot_be_applied_is_named() -> None:
    x, z = TensorSpec((1, 4, 4, 8), "int8", 0.5, 3), TensorSpec((1, 4, 4, 8), "int8", 1e-30)
    graph = npu_graph(write_model("ADD", [x, x], [z], ("AddOptions", {})))
    with pytest.raises(LoweringError, match=r"^layer add\S* of \S+ cannot be lowered: the scale 9\.\S+ is above"):
        lower(graph, accelerator("ethos-u55-256"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_any_scale_saturate(dtype: str) -> None:
    """What is not zero is a limit, as in real numbers; LiteRT shifts by 101 bits, of which C says nothing."""
    info = np.iinfo(dtype)
    x, z = TensorSpec((1, 16, 16, 1), dtype, 0.5, info.min + 3), TensorSpec((1, 16, 16, 1), dtype, 1e-31, info.max)
    graph = npu_graph(write_model("MUL", [x, x], [z], ("MulOptions", {})))
    every = np.arange(256).reshape(1, 16, 16, 1) + info.min
    inputs = {"x": every.astype(dtype), "y": every[:, ::-1].astype(dtype)}
    (found,) = run_program(lower(graph, accelerator("ethos-u55-256")), inputs)
    real = (every - info.min - 3) * (every[:, ::-1] - info.min - 3)
    assert np.array_equal(found, np.where(real < 0, info.min, info.max).astype(dtype))


# -- LSTMs on the NPU equal tflite-micro, output by output and over several runs; the others say why they stay


STEPS, DEPTH = 3, 7
RUNS = 3


def lstm(time_major: bool = False, batches: int = 1, **options: float) -> bytes:
    """A model of one LSTM."""
    b = ModelBuilder()
    shape = (STEPS, batches) if time_major else (batches, STEPS)
    x = b.tensor((*shape, DEPTH), "int8", 0.03, 4)
    return b.made([x], [layer(b, x, time_major, batches, **options)]).finish()


def _check(model: bytes, npu: str = "ethos-u55-256") -> None:
    graph = npu_graph(model, npu)
    lowered = lower(graph, accelerator(npu))
    inputs = random_inputs(graph)
    data = graph.inputs[0]
    reference = Reference(model)
    for seed in range(RUNS):
        inputs[data] = random_inputs(graph, seed)[data]
        (found,) = run_program(lowered, inputs)
        assert np.array_equal(found, reference.step([inputs[data]])[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"units": 20},
        {"time_major": True, "batches": 2},
        {"batches": 3, "units": 16},
        {"clip": 1.5},
        {"cell_scale": 2.0**-11},
        {"cell_scale": 2.0**-15},
        {"cell_scale": 2.0**-13, "batches": 2, "clip": 0.7},
    ],
    ids=str,
)
def test_equals_the_reference(options: dict[str, float]) -> None:
    _check(lstm(**options))


def test_what_stays_on_the_host_says_why() -> None:
    assert host_reasons(lstm(hidden_scale=0.009)) == ["its hidden state and its output have different scales"]


def test_the_hidden_state_is_copied_once() -> None:
    """Steps read the hidden state where the step before wrote it: in the output."""
    graph = npu_graph(lstm())
    program = lower(graph, accelerator("ethos-u55-256")).program
    hidden = [b.name for b in program.buffers if b.dtype == "int8" and b.role.value == "state"]
    touched = [i for i in range(len(program.operations)) if any(n in hidden for n, _ in program.buffers_of(i))]
    assert len(touched) == 2  # the product of the first step, and the copy at the end


def test_one_after_the_other_and_only_the_last_step() -> None:
    b = ModelBuilder()
    x = b.tensor((1, STEPS, DEPTH), "int8", 0.03, 4)
    y = layer(b, layer(b, x, units=8), units=6)
    last = b.tensor((1, 1, 6), "int8", 0.008, -6)
    begin, end, step = (b.constant(np.array(v, np.int32)) for v in ([0, STEPS - 1, 0], [1, STEPS, 6], [1, 1, 1]))
    b.operator("STRIDED_SLICE", [y, begin, end, step], [last], "StridedSliceOptions")
    _check(b.made([x], [last]).finish())
