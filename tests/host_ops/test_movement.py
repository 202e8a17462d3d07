"""Operators that move elements, transposed convolution and SVDF against TFLite Micro."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.single_op import TensorSpec, constant, write_model

R = np.random.default_rng(3)


def _quantized(shape, kind="int8"):
    return TensorSpec(shape, kind, 0.1, 4 if kind == "int8" else 0)


MOVES = [
    ("RESHAPE", [_quantized((2, 3, 4)), constant([4, 6])], [_quantized((4, 6))], ("ReshapeOptions", {})),
    ("SQUEEZE", [_quantized((1, 3, 1, 4))], [_quantized((3, 4))], ("SqueezeOptions", {"SqueezeDims": [0, 2]})),
    ("EXPAND_DIMS", [_quantized((3, 4)), constant(1)], [_quantized((3, 1, 4))], ("ExpandDimsOptions", {})),
    (
        "PAD",
        [_quantized((1, 3, 4, 2)), constant([[0, 0], [1, 2], [2, 0], [0, 0]])],
        [_quantized((1, 6, 6, 2))],
        ("PadOptions", {}),
    ),
    ("PAD", [_quantized((3, 2), "int16"), constant([[1, 1], [0, 3]])], [_quantized((5, 5), "int16")], None),
    (
        "PADV2",
        [_quantized((2, 3)), constant([[1, 0], [0, 2]]), constant(-7, "int8", 0.1, 4)],
        [_quantized((3, 5))],
        ("PadV2Options", {}),
    ),
    (
        "CONCATENATION",
        [_quantized((2, 3, 2)), _quantized((2, 1, 2)), _quantized((2, 4, 2))],
        [_quantized((2, 8, 2))],
        ("ConcatenationOptions", {"Axis": 1}),
    ),
    ("CONCATENATION", [_quantized((2, 3))] * 2, [_quantized((2, 6))], ("ConcatenationOptions", {"Axis": -1})),
    ("SPLIT", [constant(1), _quantized((2, 6))], [_quantized((2, 2))] * 3, ("SplitOptions", {"NumSplits": 3})),
    (
        "SPLIT_V",
        [_quantized((5, 3)), constant([1, 4]), constant(0)],
        [_quantized((1, 3)), _quantized((4, 3))],
        ("SplitVOptions", {"NumSplits": 2}),
    ),
    ("SLICE", [_quantized((4, 5, 3)), constant([1, 0, 2]), constant([2, 5, 1])], [_quantized((2, 5, 1))], None),
    (
        "STRIDED_SLICE",
        [_quantized((1, 6, 5, 2)), constant([0, 1, 4, 0]), constant([1, 6, 0, 2]), constant([1, 2, -2, 1])],
        [_quantized((1, 3, 2, 2))],
        ("StridedSliceOptions", {}),
    ),
    (
        "STRIDED_SLICE",
        [_quantized((3, 5)), constant([-1, 0]), constant([0, 0]), constant([1, 1])],
        [_quantized((5,))],
        ("StridedSliceOptions", {"ShrinkAxisMask": 1, "EndMask": 2}),
    ),
    ("TRANSPOSE", [_quantized((2, 3, 4)), constant([2, 0, 1])], [_quantized((4, 2, 3))], ("TransposeOptions", {})),
    ("PACK", [_quantized((2, 3))] * 3, [_quantized((2, 3, 3))], ("PackOptions", {"Axis": 1, "ValuesCount": 3})),
    (
        "MIRROR_PAD",
        [_quantized((2, 3, 4)), constant([[0, 0], [2, 1], [1, 3]])],
        [_quantized((2, 6, 8))],
        ("MirrorPadOptions", {"Mode": 0}),
    ),
    (
        "MIRROR_PAD",
        [_quantized((2, 3)), constant([[2, 1], [1, 3]])],
        [_quantized((5, 7))],
        ("MirrorPadOptions", {"Mode": 1}),
    ),
    ("BROADCAST_TO", [_quantized((3, 1)), constant([2, 3, 4])], [_quantized((2, 3, 4))], ("BroadcastToOptions", {})),
    (
        "GATHER",
        [_quantized((2, 5, 3)), constant([4, 0, 0, 2])],
        [_quantized((2, 4, 3))],
        ("GatherOptions", {"Axis": 1}),
    ),
    (
        "GATHER",
        [_quantized((5, 3)), constant([[4, 1], [0, 2]])],
        [_quantized((2, 2, 3))],
        ("GatherOptions", {"Axis": 0}),
    ),
    (
        "DEPTH_TO_SPACE",
        [_quantized((1, 2, 3, 8))],
        [_quantized((1, 4, 6, 2))],
        ("DepthToSpaceOptions", {"BlockSize": 2}),
    ),
    (
        "SPACE_TO_DEPTH",
        [_quantized((1, 4, 6, 3))],
        [_quantized((1, 2, 3, 12))],
        ("SpaceToDepthOptions", {"BlockSize": 2}),
    ),
    (
        "SPACE_TO_BATCH_ND",
        [_quantized((2, 4, 6, 2)), constant([2, 3]), constant([[0, 0], [0, 0]])],
        [_quantized((12, 2, 2, 2))],
        ("SpaceToBatchNDOptions", {}),
    ),
    (
        "BATCH_TO_SPACE_ND",
        [_quantized((6, 3, 3, 2)), constant([2, 3]), constant([[1, 0], [0, 3]])],
        [_quantized((1, 5, 6, 2))],
        ("BatchToSpaceNDOptions", {}),
    ),
    ("UNPACK", [_quantized((2, 3, 2))], [_quantized((2, 2))] * 3, ("UnpackOptions", {"Axis": 1, "Num": 3})),
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "options"), MOVES, ids=lambda v: v if isinstance(v, str) else "")
def test_movement(bit_exact, name, inputs, outputs, options):
    bit_exact(write_model(name, inputs, outputs, options), runs=2)


@pytest.mark.parametrize(
    ("out", "align", "centers"), [((6, 8), False, False), ((7, 5), True, False), ((5, 9), False, True)]
)
def test_resize_nearest_neighbor(bit_exact, out, align, centers):
    model = write_model(
        "RESIZE_NEAREST_NEIGHBOR",
        [_quantized((1, 3, 4, 2)), constant(out)],
        [_quantized((1, *out, 2))],
        ("ResizeNearestNeighborOptions", {"AlignCorners": align, "HalfPixelCenters": centers}),
    )
    bit_exact(model, runs=2)


@pytest.mark.parametrize(
    ("out", "align", "centers"),
    [
        ((6, 8), False, False),
        ((7, 5), True, False),
        ((5, 9), False, True),
        ((2, 2), False, True),
        ((1, 1), True, False),
    ],
)
def test_resize_bilinear(bit_exact, out, align, centers):
    model = write_model(
        "RESIZE_BILINEAR",
        [_quantized((2, 3, 4, 2)), constant(out)],
        [_quantized((2, *out, 2))],
        ("ResizeBilinearOptions", {"AlignCorners": align, "HalfPixelCenters": centers}),
    )
    bit_exact(model, runs=2)


@pytest.mark.parametrize(("axes", "kind"), [((1,), "int8"), ((-1, 1), "int16"), ((0, 2, 1), "int32")])
def test_reverse(bit_exact, axes, kind):
    spec = TensorSpec((2, 3, 4), kind, 0.1 if kind == "int8" else 0.0)
    bit_exact(write_model("REVERSE_V2", [spec, constant(axes)], [spec]))


@pytest.mark.parametrize(
    ("kernel", "stride", "same", "bias"),
    [(3, 2, True, True), (2, 2, False, True), (4, 2, True, False), (3, 1, True, True)],
)
def test_transpose_conv(bit_exact, kernel, stride, same, bias):
    size, depth, out = 4, 3, 5
    result = size * stride if same else (size - 1) * stride + kernel
    inputs = [
        constant([1, result, result, out]),
        constant(R.integers(-127, 128, (out, kernel, kernel, depth)), "int8", list(R.uniform(0.002, 0.02, out))),
        TensorSpec((1, size, size, depth), "int8", 0.03, -4),
    ]
    if bias:
        inputs.append(constant(R.integers(-3000, 3000, out), "int32", 0.0005))
    model = write_model(
        "TRANSPOSE_CONV", inputs, [TensorSpec((1, result, result, out), "int8", 0.1, 2)],
        ("TransposeConvOptions", {"Padding": 0 if same else 1, "StrideH": stride, "StrideW": stride}),
    )  # fmt: skip
    bit_exact(model, runs=2)


@pytest.mark.parametrize(("rank", "kind"), [(1, "int8"), (2, "int16"), (4, "int8")])
def test_svdf_keeps_its_state(bit_exact, rank, kind):
    batches, depth, filters, memory = 1, 6, 8, 5
    zero = -11 if kind == "int8" else 0
    state_scale, time_scale = (0.2, 0.01) if kind == "int8" else (0.001, 0.0001)
    model = write_model(
        "SVDF",
        [
            TensorSpec((batches, depth), "int8", 0.05, -20),
            constant(R.integers(-127, 128, (filters, depth)), "int8", 0.02),
            constant(R.integers(-127, 128, (filters, memory)), kind, time_scale),
            constant(R.integers(-500, 500, filters // rank), "int32", state_scale * time_scale),
            TensorSpec((batches, filters * memory), kind, state_scale, zero, is_variable=True),
        ],
        [TensorSpec((batches, filters // rank), "int8", 0.1 if kind == "int8" else 1e-5, 7)],
        ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1}),
    )
    operator = bit_exact(model, runs=memory + 3)
    assert [slot.name for slot in operator.states] == ["t4"]
    assert not any("over_time" in b.name for b in operator.problem.buffers)  # sums have no bytes of the plan
