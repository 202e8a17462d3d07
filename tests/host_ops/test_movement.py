"""Operators that move elements, transposed convolution and SVDF against TFLite Micro."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.tflite_builder import TensorSpec, constant, write_model

R = np.random.default_rng(3)


def q(*shape, kind="int8"):
    return TensorSpec(shape, kind, 0.1, 4 if kind == "int8" else 0)


MOVES = [
    ("RESHAPE", [q(2, 3, 4), constant([4, 6])], [q(4, 6)], ("ReshapeOptions", {})),
    ("SQUEEZE", [q(1, 3, 1, 4)], [q(3, 4)], ("SqueezeOptions", {"SqueezeDims": [0, 2]})),
    ("EXPAND_DIMS", [q(3, 4), constant(1)], [q(3, 1, 4)], ("ExpandDimsOptions", {})),
    ("PAD", [q(1, 3, 4, 2), constant([[0, 0], [1, 2], [2, 0], [0, 0]])], [q(1, 6, 6, 2)], ("PadOptions", {})),
    ("PAD", [q(3, 2, kind="int16"), constant([[1, 1], [0, 3]])], [q(5, 5, kind="int16")], None),
    ("PADV2", [q(2, 3), constant([[1, 0], [0, 2]]), constant(-7, "int8", 0.1, 4)], [q(3, 5)], ("PadV2Options", {})),
    ("CONCATENATION", [q(2, 3, 2), q(2, 1, 2), q(2, 4, 2)], [q(2, 8, 2)], ("ConcatenationOptions", {"Axis": 1})),
    ("CONCATENATION", [q(2, 3)] * 2, [q(2, 6)], ("ConcatenationOptions", {"Axis": -1})),
    ("SPLIT", [constant(1), q(2, 6)], [q(2, 2)] * 3, ("SplitOptions", {"NumSplits": 3})),
    ("SPLIT_V", [q(5, 3), constant([1, 4]), constant(0)], [q(1, 3), q(4, 3)], ("SplitVOptions", {"NumSplits": 2})),
    ("SLICE", [q(4, 5, 3), constant([1, 0, 2]), constant([2, 5, 1])], [q(2, 5, 1)], None),
    (
        "STRIDED_SLICE",
        [q(1, 6, 5, 2), constant([0, 1, 4, 0]), constant([1, 6, 0, 2]), constant([1, 2, -2, 1])],
        [q(1, 3, 2, 2)],
        ("StridedSliceOptions", {}),
    ),
    (
        "STRIDED_SLICE",
        [q(3, 5), constant([-1, 0]), constant([0, 0]), constant([1, 1])],
        [q(5)],
        ("StridedSliceOptions", {"ShrinkAxisMask": 1, "EndMask": 2}),
    ),
    ("TRANSPOSE", [q(2, 3, 4), constant([2, 0, 1])], [q(4, 2, 3)], ("TransposeOptions", {})),
    ("PACK", [q(2, 3)] * 3, [q(2, 3, 3)], ("PackOptions", {"Axis": 1, "ValuesCount": 3})),
    ("MIRROR_PAD", [q(2, 3, 4), constant([[0, 0], [2, 1], [1, 3]])], [q(2, 6, 8)], ("MirrorPadOptions", {"Mode": 0})),
    ("MIRROR_PAD", [q(2, 3), constant([[2, 1], [1, 3]])], [q(5, 7)], ("MirrorPadOptions", {"Mode": 1})),
    ("BROADCAST_TO", [q(3, 1), constant([2, 3, 4])], [q(2, 3, 4)], ("BroadcastToOptions", {})),
    ("GATHER", [q(2, 5, 3), constant([4, 0, 0, 2])], [q(2, 4, 3)], ("GatherOptions", {"Axis": 1})),
    ("GATHER", [q(5, 3), constant([[4, 1], [0, 2]])], [q(2, 2, 3)], ("GatherOptions", {"Axis": 0})),
    ("DEPTH_TO_SPACE", [q(1, 2, 3, 8)], [q(1, 4, 6, 2)], ("DepthToSpaceOptions", {"BlockSize": 2})),
    ("SPACE_TO_DEPTH", [q(1, 4, 6, 3)], [q(1, 2, 3, 12)], ("SpaceToDepthOptions", {"BlockSize": 2})),
    (
        "SPACE_TO_BATCH_ND",
        [q(2, 4, 6, 2), constant([2, 3]), constant([[0, 0], [0, 0]])],
        [q(12, 2, 2, 2)],
        ("SpaceToBatchNDOptions", {}),
    ),
    (
        "BATCH_TO_SPACE_ND",
        [q(6, 3, 3, 2), constant([2, 3]), constant([[1, 0], [0, 3]])],
        [q(1, 5, 6, 2)],
        ("BatchToSpaceNDOptions", {}),
    ),
    ("UNPACK", [q(2, 3, 2)], [q(2, 2)] * 3, ("UnpackOptions", {"Axis": 1, "Num": 3})),
]


def resizes() -> Iterator[bytes]:
    ways = ((6, 8), False, False), ((7, 5), True, False), ((5, 9), False, True)
    for out, align, centers in ways:
        options = ("ResizeNearestNeighborOptions", {"AlignCorners": align, "HalfPixelCenters": centers})
        yield write_model("RESIZE_NEAREST_NEIGHBOR", [q(1, 3, 4, 2), constant(out)], [q(1, *out, 2)], options)
    for out, align, centers in (*ways, ((2, 2), False, True), ((1, 1), True, False)):
        options = ("ResizeBilinearOptions", {"AlignCorners": align, "HalfPixelCenters": centers})
        yield write_model("RESIZE_BILINEAR", [q(2, 3, 4, 2), constant(out)], [q(2, *out, 2)], options)


def reversals() -> Iterator[bytes]:
    for axes, kind in (((1,), "int8"), ((-1, 1), "int16"), ((0, 2, 1), "int32")):
        spec = TensorSpec((2, 3, 4), kind, 0.1 if kind == "int8" else None)
        yield write_model("REVERSE_V2", [spec, constant(axes)], [spec])


def transposed_convolutions() -> Iterator[bytes]:
    for kernel, stride, same, bias in (
        (3, 2, True, True), (2, 2, False, True), (4, 2, True, False), (3, 1, True, True)
    ):  # fmt: skip
        size, depth, out = 4, 3, 5
        result = size * stride if same else (size - 1) * stride + kernel
        inputs = [
            constant([1, result, result, out]),
            constant(R.integers(-127, 128, (out, kernel, kernel, depth)), "int8", list(R.uniform(0.002, 0.02, out))),
            TensorSpec((1, size, size, depth), "int8", 0.03, -4),
        ]
        if bias:
            inputs.append(constant(R.integers(-3000, 3000, out), "int32", 0.0005))
        options = ("TransposeConvOptions", {"Padding": 0 if same else 1, "StrideH": stride, "StrideW": stride})
        yield write_model("TRANSPOSE_CONV", inputs, [TensorSpec((1, result, result, out), "int8", 0.1, 2)], options)


def moves() -> Iterator[bytes]:
    yield from (write_model(*move) for move in MOVES)


@pytest.mark.parametrize("form", [moves, resizes, reversals, transposed_convolutions])
def test_operators(bit_exact, form):
    bit_exact(form(), runs=2)


def test_an_svdf_keeps_its_state(bit_exact):
    models, batches, depth, filters, memory = [], 1, 6, 8, 5
    for rank, kind in ((1, "int8"), (2, "int16"), (4, "int8")):
        zero = -11 if kind == "int8" else 0
        state_scale, time_scale = (0.2, 0.01) if kind == "int8" else (0.001, 0.0001)
        inputs = [
            TensorSpec((batches, depth), "int8", 0.05, -20),
            constant(R.integers(-127, 128, (filters, depth)), "int8", 0.02),
            constant(R.integers(-127, 128, (filters, memory)), kind, time_scale),
            constant(R.integers(-500, 500, filters // rank), "int32", state_scale * time_scale),
            TensorSpec((batches, filters * memory), kind, state_scale, zero, is_variable=True),
        ]
        output = TensorSpec((batches, filters // rank), "int8", 0.1 if kind == "int8" else 1e-5, 7)
        models.append(
            write_model("SVDF", inputs, [output], ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1}))
        )
    problem = bit_exact(models, runs=memory + 3)
    assert not any("over_time" in b.name for b in problem.buffers)  # sums have no bytes of the plan
