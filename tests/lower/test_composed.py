"""Layers of several NPU operations equal tflite-micro: PReLU, squared differences, roots by table, resizes."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.emit import LoweringError
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import host_operators, partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op, Register
from tests.support.arithmetic_models import binary
from tests.support.on_model import npu_graph, only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

Reference = pytest.importorskip("fvp_runner.references.interpreters").Reference
pytest.importorskip("tflite_micro")


def check(model: bytes, npu: str = "ethos-u55-256", seed: int = 5) -> None:
    """All of `model` is on the NPU, and its outputs are the reference's."""
    module = partition_for_ethosu(import_relax(model), npu)
    assert host_operators(module) == ()
    graph = only_graph(module)
    inputs = random_inputs(graph, seed)
    found = run_program(lower(graph, accelerator(npu)), inputs)
    wanted = Reference(model).run([inputs[str(p.name)] for p in module["main"].params])
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))


def rejection(model: bytes) -> str:
    """Why the operator of `model` is not on the NPU."""
    (operator,) = host_operators(partition_for_ethosu(import_relax(model)))
    return operator.reason


# ---------------------------------------------------------------------- PReLU


def prelu(slopes: tuple[int, ...] = (1, 1, 10), scales: tuple[float, float] = (0.05, 0.06), zero: int = 3) -> bytes:
    b = ModelBuilder()
    rng = np.random.default_rng(len(slopes) + zero + 128)
    x = b.tensor((1, 5, 6, 10), "int8", scales[0], -7)
    a = b.constant(rng.integers(-128, 128, slopes).astype(np.int8), 0.01, zero)
    y = b.tensor((1, 5, 6, 10), "int8", scales[1], 11)
    b.operator("PRELU", [x, a], [y])
    return b.made([x], [y]).finish()


@pytest.mark.parametrize("slopes", [(1, 1, 10), (1, 1, 1), (5, 6, 10), (1, 6, 1)])
def test_prelu_with_a_slope_for_each_channel_or_element(slopes: tuple[int, ...]) -> None:
    check(prelu(slopes))


@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.2, 0.001), (0.001, 0.9), (0.03, 0.02)])
def test_prelu_at_scales_that_saturate_and_vanish(scales: tuple[float, float]) -> None:
    check(prelu(scales=scales, zero=-128))


def test_prelu_with_computed_slopes() -> None:
    b = ModelBuilder()
    x, a, y = (b.tensor((1, 5, 6, 10), "int8", 0.05, z) for z in (3, -4, 5))
    b.operator("PRELU", [x, a], [y])
    check(b.made([x, a], [y]).finish())


def test_prelu_on_other_npus() -> None:
    for npu in ("ethos-u55-32", "ethos-u55-128", "ethos-u65-512"):
        check(prelu(), npu)


# ---------------------------------------------------------------------- squared difference


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": 0.8},
        {"ratio": 17.3},
        {"ratio": 0.4, "second": (1, 1, 1, 9)},
        {"ratio": 1.7, "second": (1, 6, 1, 9), "reverse": True},
        {"ratio": 0.7, "second": (1, 1, 1, 9), "constant": True},
        {"ratio": 2.9, "constant": True, "reverse": True},
        {"same": True},
    ],
    ids=str,
)
def test_squared_difference(options: dict[str, object]) -> None:
    case = Case(str(options), "binary", lambda rng: binary(rng, name="SQUARED_DIFFERENCE", **options))  # type: ignore[arg-type]
    check(case.build())


def test_unsigned_squared_differences_stay_on_the_host() -> None:
    case = Case("unsigned", "binary", lambda rng: binary(rng, name="SQUARED_DIFFERENCE", dtype="uint8"))
    reasons = {o.reason for o in host_operators(partition_for_ethosu(import_relax(case.build())))}
    assert reasons == {"its tensors are uint8; squares of differences need int8 or int16"}


# ---------------------------------------------------------------------- reductions


@pytest.mark.parametrize("shape", [(1, 9, 10, 7), (9, 10, 7), (1, 40, 3, 16), (1, 256, 2, 3)])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["MEAN", "SUM", "REDUCE_MAX"])
def test_reductions(kind: str, shape: tuple[int, ...], kept: bool) -> None:
    rank = len(shape)
    for reduced in ([rank - 3], [rank - 2], [rank - 1], [rank - 3, rank - 2]):
        b = ModelBuilder()
        x, axes = b.tensor(shape, "int8", 0.05, 4), b.constant(np.array(reduced, np.int32))
        out = tuple(1 if i in reduced else n for i, n in enumerate(shape) if kept or i not in reduced)
        scale, zero = (0.05, 4) if kind == "REDUCE_MAX" else (0.02, -5)
        y = b.tensor(out, "int8", scale, zero)
        b.operator(kind, [x, axes], [y], "ReducerOptions", 2, KeepDims=kept)
        check(b.made([x], [y]).finish())


def test_means_of_more_rows_than_a_window_has_stay_on_the_host() -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 257, 2, 3), "int8", 0.05, 4), b.tensor((1, 1, 2, 3), "int8", 0.02, -5)
    b.operator("MEAN", [x, b.constant(np.array([1], np.int32))], [y], "ReducerOptions", 2, KeepDims=True)
    assert rejection(b.made([x], [y]).finish()).startswith("it adds 257x1 elements; the NPU adds at most 256 rows")


# ---------------------------------------------------------------------- 1 / sqrt(x)


@pytest.mark.parametrize("scales", [(0.05, 0.02), (0.003, 0.1), (1.7, 0.004), (0.02, 0.03), (0.0117, 0.5)])
def test_inverse_square_roots_of_every_value(scales: tuple[float, float]) -> None:
    b = ModelBuilder()
    x = b.tensor((1, 1, 256), "int8", scales[0], -128)
    y = b.tensor((1, 1, 256), "int8", scales[1], -128)
    b.operator("RSQRT", [x], [y], None, 1)
    model = b.made([x], [y]).finish()
    graph = npu_graph(model)
    values = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)
    found = run_program(lower(graph, accelerator("ethos-u55-256")), {"t0": values})[0]
    assert np.array_equal(found, Reference(model).run([values])[0])


# ---------------------------------------------------------------------- resizes


def resize(
    kind: str,
    size: tuple[int, int],
    out: tuple[int, int],
    align: bool = False,
    half: bool = False,
    depth: int = 7,
    dtype: str = "int8",
) -> bytes:
    b = ModelBuilder()
    zero = 0 if dtype == "int16" else 4
    x = b.tensor((1, *size, depth), dtype, 0.05, zero)
    s = b.constant(np.array(out, np.int32))
    y = b.tensor((1, *out, depth), dtype, 0.05, zero)
    table = "ResizeBilinearOptions" if kind == "BILINEAR" else "ResizeNearestNeighborOptions"
    name = "RESIZE_BILINEAR" if kind == "BILINEAR" else "RESIZE_NEAREST_NEIGHBOR"
    b.operator(name, [x, s], [y], table, 3, AlignCorners=align, HalfPixelCenters=half)
    return b.made([x], [y]).finish()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("out", [(10, 12), (20, 24), (5, 12), (15, 6), (35, 24), (40, 48)])
def test_nearest_by_whole_numbers(out: tuple[int, int], half: bool) -> None:
    check(resize("NEAREST", (5, 6), out, half=half))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("out", [(10, 12), (20, 24), (5, 12), (20, 6), (40, 12)])
def test_bilinear_by_powers_of_two(out: tuple[int, int], half: bool) -> None:
    check(resize("BILINEAR", (5, 6), out, half=half, depth=17))


@pytest.mark.parametrize("kind", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("out", [(9, 11), (17, 21), (5, 11), (33, 6)])
def test_corners_on_corners(kind: str, out: tuple[int, int]) -> None:
    check(resize(kind, (5, 6), out, align=True))


def test_one_row_and_one_column() -> None:
    for size, out in (((1, 6), (4, 24)), ((5, 1), (20, 4)), ((1, 1), (2, 2))):
        check(resize("BILINEAR", size, out, half=True))
        check(resize("BILINEAR", size, out))


def test_bilinear_on_other_npus() -> None:
    for npu in ("ethos-u55-32", "ethos-u55-128", "ethos-u65-512"):
        check(resize("BILINEAR", (5, 6), (20, 24), half=True, depth=20), npu)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (resize("NEAREST", (5, 6), (11, 12)), "5 positions to 11 the asymmetric way; the NPU makes up to 16"),
        (resize("BILINEAR", (5, 6), (3, 6)), "5 positions to 3 the asymmetric way; the NPU makes up to 16"),
        (
            resize("BILINEAR", (5, 6), (10, 12), align=True),
            "to 10 the align_corners way; the NPU makes up to 16 of each, ",
        ),
        (resize("BILINEAR", (5, 6), (15, 18)), "it mixes neighbours by parts of 3; only powers of two are exact"),
        (resize("BILINEAR", (5, 6), (10, 12), dtype="int16", half=True), "its tensors are int16"),
    ],
)
def test_resizes_that_stay_on_the_host_say_why(model: bytes, reason: str) -> None:
    assert reason in rejection(model)


# ---------------------------------------------------------------------- slices without steps


def test_slices_to_the_end_of_an_axis() -> None:
    b = ModelBuilder()
    x, p, y = b.tensor((1, 6, 7, 9), "int8", 0.1, 3), *(b.tensor((1, 4, 5, 6), "int8", 0.1, 3) for _ in range(2))
    begin, size = (b.constant(np.array(v, np.int32)) for v in ([0, 2, 0, 3], [1, -1, 5, -1]))
    b.operator("SLICE", [x, begin, size], [p], "SliceOptions", 2)
    b.operator("LEAKY_RELU", [p], [y], "LeakyReluOptions", 2, Alpha=0.1)
    check(b.made([x], [y]).finish())


# ---------------------------------------------------------------------- softmax of pixels and beside concatenations


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 7, 5, 3), 7), ((1, 12, 12, 2), 12), ((1, 40, 2), 1), ((40, 3), 1), ((1, 40, 1, 3), 40)]
)
def test_softmax_of_pixels_has_the_rows_of_its_map(shape: tuple[int, ...], rows: int) -> None:
    """But for the maximum; a row for each pixel would cost a request each, 31 times."""
    b = ModelBuilder()
    x, y = b.tensor(shape, "int8", 0.1, 3), b.tensor(shape, "int8", 1 / 256, -128)
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=1.0)
    model = b.made([x], [y]).finish()
    check(model)
    program = lower(npu_graph(model), accelerator("ethos-u55-256")).program
    kernels = [operation for operation in program.operations if operation.op is not Op.DMA_START]
    assert {o.registers[Register.OFM_HEIGHT_M1] + 1 for o in kernels[1:]} == {rows}


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
    check(b.made([x], [z] if inside else [q, z]).finish())


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
    b = ModelBuilder()
    x, y = b.tensor(values.shape, "int8", 0.5, 0), b.tensor(values.shape, "int8", 1 / 256, -128)
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=1.0)
    model = b.made([x], [y]).finish()
    lowered = lower(npu_graph(model, npu), accelerator(npu))
    assert sum(operation.op is not Op.DMA_START for operation in lowered.program.operations) == operations
    (found,) = run_program(lowered, {"x": values})
    (wanted,) = Reference(model).run([values])
    assert np.array_equal(found.reshape(-1), wanted.reshape(-1))


def test_a_layer_whose_scale_cannot_be_applied_is_named() -> None:
    b = ModelBuilder()
    x, y = (b.tensor((1, 4, 4, 8), "int8", 0.5, 3) for _ in range(2))
    z = b.tensor((1, 4, 4, 8), "int8", 1e-30)
    b.operator("ADD", [x, y], [z], "AddOptions")
    graph = npu_graph(b.made([x, y], [z]).finish())
    with pytest.raises(LoweringError, match=r"^layer add\S* of \S+ cannot be lowered: the scale 9\.\S+ is above"):
        lower(graph, accelerator("ethos-u55-256"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_products_of_any_scale_saturate(dtype: str) -> None:
    """What is not zero is a limit, as in real numbers; LiteRT shifts by 101 bits, of which C says nothing."""
    info, b = np.iinfo(dtype), ModelBuilder()
    x, y = (b.tensor((1, 16, 16, 1), dtype, 0.5, info.min + 3) for _ in range(2))
    z = b.tensor((1, 16, 16, 1), dtype, 1e-31, info.max)
    b.operator("MUL", [x, y], [z], "MulOptions")
    graph = npu_graph(b.made([x, y], [z]).finish())
    every = np.arange(256).reshape(1, 16, 16, 1) + info.min
    inputs = {"x": every.astype(dtype), "y": every[:, ::-1].astype(dtype)}
    (found,) = run_program(lower(graph, accelerator("ethos-u55-256")), inputs)
    real = (every - info.min - 3) * (every[:, ::-1] - info.min - 3)
    assert np.array_equal(found, np.where(real < 0, info.min, info.max).astype(dtype))
