"""Operators of float32 with int8 weights, as LiteRT's reference kernels have them.

Invariant: activations become int8 when the operator runs, an image or a row at a time: symmetric where the weights have
one scale (unless the file asks for a zero point), with a zero point where each channel has its own. Sums are
int32; scales, biases and states are float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...models.tensor import Tensor
from .common import bias_of
from .matrix import ConvolutionGeometry, DenseGeometry, matrix_layout
from .movement import row_lookup
from .operator import Lowering, lowering, require_supported
from .recurrent import CELL, GATES, HIDDEN, SvdfGeometry, require_whole_lstm
from .tir import cast, float_constant

_TANH = 4  # in TFLite's numbers of activations
_LIMITS = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}  # of fused activations


@lowering("CONV_2D", hybrid=True)
def conv_2d(work: Lowering) -> None:
    """Weights are [out channels, kernel height, kernel width, in channels of one group]."""
    _lower_hybrid_convolution(work, "Conv2DOptions", depthwise=False)


@lowering("DEPTHWISE_CONV_2D", hybrid=True)
def depthwise_conv_2d(work: Lowering) -> None:
    """Weights are [1, kernel height, kernel width, out channels]."""
    _lower_hybrid_convolution(work, "DepthwiseConv2DOptions", depthwise=True)


def _lower_hybrid_convolution(work: Lowering, kind: str, *, depthwise: bool) -> None:
    options = work.options(kind)
    g = ConvolutionGeometry.from_work(work, options)
    several = len(work.tensor(1).scales) > 1
    require_supported(
        not depthwise or several or g.out_c == 1, "its weights have one scale; the reference wants one a channel"
    )
    require_supported(
        several or g.depth == g.in_c, "its weights have one scale and several groups, which the reference has not"
    )
    shape = work.tensor(0).shape
    extents = (*shape, g.down.windows, g.across.windows, g.out_c, *g.kernel, 1 if depthwise else g.depth)
    steps = g.down.stride, g.across.stride, g.down.dilation, g.across.dilation, g.down.before, g.across.before
    _run(work, options, (*extents, *steps), g.out_c, depthwise=depthwise, shifted=several or depthwise)


@lowering("FULLY_CONNECTED", hybrid=True)
def fully_connected(work: Lowering) -> None:
    """Output row = weights x input row + bias; weights are [units, depth]."""
    options = work.options("FullyConnectedOptions")
    g = DenseGeometry.from_tensors(work.tensor(0), work.tensor(1), work.output(), options)
    rows, units, depth = g.rows, g.units, g.depth
    require_supported(g.columns == units, f"weights {list(work.tensor(1).shape)} do not fit")
    require_supported(
        len(work.tensor(1).scales) == 1,
        "its weights have a scale a channel and its inputs are floats: convert "
        "the model with a representative dataset, to int8",
    )
    numbers = (rows, 1, 1, depth, 1, 1, units, 1, 1, depth, 1, 1, 1, 1, 0, 0)
    _run(work, options, numbers, units, shifted=bool(options.AsymmetricQuantizeInputs()))


def _run(
    work: Lowering, options: Any, numbers: tuple[int, ...], channels: int, *, shifted: bool, depthwise: bool = False
) -> None:
    data, weights, output, bias = work.tensor(0), work.tensor(1), work.output(), bias_of(work, 2, channels)
    _require_floats(data, output, bias)
    _require_weights(weights)
    several = len(weights.scales) > 1
    require_supported(
        len(weights.scales) in (1, channels), f"weights {weights.name!r} have {len(weights.scales)} scales"
    )
    low, high = _limits(options)
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    scales = work.table("scales", np.array(weights.scales, np.float32))
    added = work.read(2, "bias") if bias is not None else work.table("bias", np.zeros(channels, np.float32))
    image = math.prod(numbers[1:4])
    stored = work.function.scratch("stored", (image,), "int8")
    flags = int(depthwise), int(shifted), int(several or depthwise)
    target = work.write()
    files = "kernel_forms kernel_window kernel_dot hybrid_stored hybrid_convolution"
    work.run_c(files, source, matrix, scales, added, stored, target, *numbers, *flags, low, high)


@lowering("BATCH_MATMUL", hybrid=True)
def batch_matmul(work: Lowering) -> None:
    """Input 0 x input 1, which is constant and of which either there is one matrix, or one for each of input 0."""
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    depth, turned_data, turned = matrix_layout(work)
    _require_floats(data, output)
    _require_weights(weights)
    require_supported(not turned_data, "its float input is transposed")
    require_supported(len(weights.scales) == 1, f"weights {weights.name!r} have {len(weights.scales)} scales, not 1")
    values = work.constant(1, "its second input")
    values = values if turned else np.swapaxes(values, -1, -2)
    stack, units = output.shape[:-2], output.shape[-1]
    require_supported(data.shape[:-2] == stack, f"{list(data.shape)} is repeated for {list(weights.shape)}")
    one = math.prod(values.shape[:-2]) == 1
    values = values.reshape(values.shape[-2:]) if one else np.broadcast_to(values, (*stack, units, depth))
    rows = math.prod(output.shape[:-1])
    shifted = bool(work.options("BatchMatMulOptions").AsymmetricQuantizeInputs())
    source, matrix = work.read(0, "input"), work.table("weights", values)
    quantised = work.function.scratch("stored", (depth,), "int8")
    numbers = (rows, depth, units, rows if one else output.shape[-2], int(shifted), float(weights.scale))
    work.run_c("hybrid_stored hybrid_matmul", source, matrix, quantised, work.write(), *numbers)


@lowering("SVDF", hybrid=True)
def lower_hybrid_svdf(work: Lowering) -> None:
    """Inputs: data, feature weights [filters, depth], time weights [filters, memory], bias, state."""
    options, g = work.options("SVDFOptions"), SvdfGeometry.from_work(work)
    data, features, times, state, output = (*(work.tensor(i) for i in (0, 1, 2, 4)), work.output())
    bias = bias_of(work, 3, g.units)
    _require_floats(data, state, output, bias)
    for weights in (features, times):
        _require_weights(weights)
        require_supported(
            len(weights.scales) == 1, f"weights {weights.name!r} have {len(weights.scales)} scales, not 1"
        )
    source, kept, matrix = work.read(0, "input"), work.state_buffer(4, "state"), work.read(1, "feature_weights")
    over_time = work.table("time_weights", times.array().astype(np.float32) * np.float32(times.scale))
    added = work.read(3, "bias") if bias is not None else work.table("bias", np.zeros(g.units, np.float32))
    quantised = work.function.scratch("stored", (g.depth,), "int8")
    numbers = g.batches, g.depth, g.filters, g.memory, options.Rank(), int(options.AsymmetricQuantizeInputs())
    scale, (low, high) = float(features.scale), _limits(options)
    target = work.write()
    work.run_c(
        "hybrid_stored hybrid_svdf",
        source,
        matrix,
        over_time,
        added,
        quantised,
        kept,
        target,
        *numbers,
        scale,
        low,
        high,
    )


@lowering("UNIDIRECTIONAL_SEQUENCE_LSTM", hybrid=True)
def lower_hybrid_lstm(work: Lowering) -> None:
    """Input and output are [batch, time, depth], or [time, batch, depth] when time major."""
    options, data, output = work.options("UnidirectionalSequenceLSTMOptions"), work.tensor(0), work.output()
    hidden, cell = work.tensor(HIDDEN), work.tensor(CELL)
    require_whole_lstm(work, data, hidden, cell, output)
    gates = [[work.tensor(position) for position in places] for places in GATES.values()]
    _require_floats(data, hidden, cell, output, *(bias for _, _, bias in gates))
    for weights in (tensor for into, recurrent, _ in gates for tensor in (into, recurrent)):
        _require_weights(weights)
        require_supported(
            len(weights.scales) == 1, f"weights {weights.name!r} have {len(weights.scales)} scales, not 1"
        )
    require_supported(options.FusedActivationFunction() == _TANH, "its fused activation is not TANH")
    batch_axis, time_axis = (1, 0) if options.TimeMajor() else (0, 1)
    numbers = data.shape[batch_axis], data.shape[time_axis], data.shape[2], output.shape[2]
    into, recurrent, bias = (np.stack([gate[i].array() for gate in gates]) for i in range(3))
    scales = np.array([gate[i].scale for i in range(2) for gate in gates], np.float32)
    source, memory, cells = work.read(0, "input"), work.state_buffer(HIDDEN, "hidden"), work.state_buffer(CELL, "cell")
    named = {"input_weights": into, "recurrent_weights": recurrent, "scales": scales, "bias": bias}
    tables = [work.table(name, values) for name, values in named.items()]
    stored = work.function.scratch("stored", (numbers[2] + numbers[3],), "int8")
    made = work.function.scratch("gates", (len(GATES), numbers[3]), "float32")
    flags = int(options.TimeMajor()), int(options.AsymmetricQuantizeInputs()), float(options.CellClip())
    target = work.write()
    arguments = (source, *tables, stored, made, memory, cells, target)
    work.run_c("hybrid_stored hybrid_lstm", *arguments, *numbers, *flags)


@lowering("EMBEDDING_LOOKUP", hybrid=True)
def look_up(work: Lowering) -> None:
    """Rows of input 1 by the indices of input 0, as floats."""
    data, output = work.tensor(1), work.output()
    _require_floats(output)
    _require_weights(data)
    require_supported(len(data.scales) == 1, f"weights {data.name!r} have {len(data.scales)} scales, not 1")
    row = row_lookup(work)
    work.fill(lambda place: cast(row(place), "float32") * float_constant(data.scale))


def _require_floats(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        require_supported(
            tensor is None or tensor.dtype == "float32", f"tensor {tensor and tensor.name!r} must be float32"
        )


def _require_weights(weights: Tensor) -> None:
    require_supported(
        weights.dtype == "int8" and weights.data is not None, f"weights {weights.name!r} must be constant int8"
    )
    require_supported(weights.scales and not any(weights.zero_points), f"weights {weights.name!r} are not symmetric")


def _limits(options: Any) -> tuple[float, float]:
    """(least, largest) float32 after the fused activation."""
    activation = int(options.FusedActivationFunction())
    require_supported(activation in _LIMITS, f"fused activation number {activation} is not supported")
    largest = float(np.finfo(np.float32).max)
    low, high = (max(-largest, min(largest, v)) for v in _LIMITS[activation])
    return low, high
