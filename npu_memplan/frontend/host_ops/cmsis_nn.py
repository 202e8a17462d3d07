"""Operators that CMSIS-NN's functions run: `--host-ops cmsis-nn=DIR`.

Invariant: a function is called only where it computes what the reference kernel does, bit for bit; other operators run
our C. The extents that CMSIS-NN would refuse with a status are refused here, so no status is lost. Requantisation
rounds twice, as TFLite's does: the header of the generated C stops a build that asks for once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...cmsis_nn import CmsisNN, open_cmsis_nn
from ...fixed_point import activation_range, quantise_multiplier
from ...models.tensor import Tensor
from ...vocabulary import BY_LIBRARY
from .common import ImageAxis, bias_of, channel_scales, nhwc_shape, require_quantisation, require_rows
from .matrix import ConvolutionGeometry, DenseGeometry
from .operator import Lowering, UnsupportedOperatorError, by_library, require_supported
from .softmax import Differences

Call = Callable[[Lowering, CmsisNN], None]
_MOST_SHIFT = 30  # to the left, which C defines for an int32


@by_library
def lower_to_cmsis_nn(work: Lowering) -> bool:
    """Lower the operator to a function of CMSIS-NN; False where none computes the same, and `work` is spent."""
    library, call = open_cmsis_nn(work.network.host_kernels), _CALLS.get(work.operator.name)
    if call is None:
        return False
    try:
        require_supported(
            all(t.dtype in ("int8", "int32") for t in work.network.tensors_of(work.operator)), "it is not int8"
        )
        call(work, library)
    except UnsupportedOperatorError:
        return False
    work.name = f"{BY_LIBRARY}{work.name}"
    return True


def call_convolution(work: Lowering, library: CmsisNN) -> None:
    """CONV_2D with groups and dilation, and DEPTHWISE_CONV_2D of one image."""
    depthwise = work.operator.name == "DEPTHWISE_CONV_2D"
    options = work.options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
    g = ConvolutionGeometry.from_work(work, options)
    images = work.output().shape[0]
    require_supported(images == 1 or not depthwise, "it has several images")
    extents = images, g.down.size, g.across.size, g.in_c
    windows = images, g.down.windows, g.across.windows, g.out_c
    filters = (1 if depthwise else g.out_c), g.down.kernel, g.across.kernel, g.depth
    offset = -work.tensor(0).zero_point
    axes = g.across, g.down  # widths come first
    steps = tuple(getattr(axis, name) for name in ("stride", "before", "dilation") for axis in axes)
    kind = "depthwise" if depthwise else "convolution"
    size = library.scratch_bytes(kind, (*extents, *filters, *windows, offset, *steps))
    kernel = filters[1:3] if depthwise else filters[1:]
    _call_weighted(work, kind, g.out_c, size, (*extents, *kernel, *windows[1:], offset, *steps), options)


def call_dense(work: Lowering, library: CmsisNN) -> None:
    """FULLY_CONNECTED, with one scale or one a unit."""
    options = work.options("FullyConnectedOptions")
    g = DenseGeometry.from_tensors(work.tensor(0), work.tensor(1), work.output(), options)
    require_supported(g.columns == g.units, "it has more weights than outputs")
    require_supported(not work.tensor(1).is_packed_by_channel, "its weights have 4 bits and a scale for each unit")
    size = library.scratch_bytes("dense", (g.depth, g.units))
    several = int(len(work.tensor(1).scales) > 1)
    _call_weighted(
        work, "dense", g.units, size, (g.rows, g.depth, g.units, several, -work.tensor(0).zero_point), options
    )


def _call_weighted(
    work: Lowering, kind: str, channels: int, scratch_bytes: int, numbers: tuple[int, ...], options: object
) -> None:
    """The call of a function that takes input, weights, bias and scales."""
    data, weights, output = work.tensor(0), work.tensor(1), work.output()
    require_supported(
        all(t.scale > 0.0 and t.dtype == "int8" for t in (data, weights, output)), "it is not quantised to int8"
    )
    bias = bias_of(work, 2, channels)
    require_supported(bias is None or bias.dtype == "int32", "its bias is not int32")
    scales = channel_scales(data, weights, output, channels)
    require_supported(max(scales.shifts) <= _MOST_SHIFT, "a scale is too large")
    source, matrix = work.read(0, "input"), work.read(1, "weights")
    added = work.read(2, "bias") if bias is not None else work.table("bias", np.zeros(channels, np.int32))
    multipliers = work.table("multipliers", np.array(scales.multipliers, np.int32))
    shifts = work.table("shifts", np.array(scales.shifts, np.int32))
    scratch = _scratch(work, scratch_bytes)
    ends = output.zero_point, *_limits(work, options)
    work.run_c(
        f"cmsis_nn_{kind}", source, matrix, added, multipliers, shifts, scratch, work.write(), *numbers, *ends,
        scratch_bytes,
    )  # fmt: skip


def _scratch(work: Lowering, size_bytes: int) -> object:
    return work.function.scratch("scratch", (max(1, -(-size_bytes // 4)),), "int32")


def _limits(work: Lowering, options: object) -> tuple[int, int]:
    activation, output = options.FusedActivationFunction(), work.output()  # type: ignore[attr-defined]
    require_supported(activation in (0, 1, 2, 3), f"fused activation number {activation} is not supported")
    return activation_range(activation, output.scale, output.zero_point, output.dtype)


def call_pool(work: Lowering, library: CmsisNN) -> None:
    """AVERAGE_POOL_2D and MAX_POOL_2D of one image."""
    options, average = work.options("Pool2DOptions"), work.operator.name == "AVERAGE_POOL_2D"
    data, output = work.tensor(0), work.output()
    alike = abs(data.scale - output.scale) <= 1e-6 and data.zero_point == output.zero_point
    require_supported(alike and data.scale > 0.0, "its output has another scale or zero point than its input")
    (images, in_h, in_w, depth), (_, out_h, out_w, out_depth) = nhwc_shape(data), nhwc_shape(output)
    require_supported(images == output.shape[0] == 1 and depth == out_depth, "it has several images, or other channels")
    same = options.Padding() == 0
    down = ImageAxis.with_padding(same, in_h, out_h, options.FilterHeight(), options.StrideH())
    across = ImageAxis.with_padding(same, in_w, out_w, options.FilterWidth(), options.StrideW())
    size = library.scratch_bytes("average", (out_w, depth)) if average else 0
    source, scratch, target = work.read(0, "input"), _scratch(work, size), work.write()
    steps = across.stride, down.stride, across.before, down.before
    extents = in_h, in_w, depth, down.kernel, across.kernel, out_h, out_w
    name = "cmsis_nn_average" if average else "cmsis_nn_max"
    work.run_c(name, source, scratch, target, *extents, *steps, *_limits(work, options), size)


def call_softmax(work: Lowering, _: CmsisNN) -> None:
    """Over the last axis, int8 to int8."""
    data, output = work.tensor(0), work.output()
    require_supported(data.dtype == output.dtype == "int8" and data.scale > 0.0, "it is not int8")
    require_rows(data, output)
    require_quantisation(output, 1 / 256, -128)
    d = Differences.with_scale(float(work.options("SoftmaxOptions").Beta()), data.scale)
    require_supported(d.shift <= _MOST_SHIFT, "its input scale is too large")
    columns = data.shape[-1]
    numbers = math.prod(data.shape) // columns, columns, d.multiplier, d.shift, d.lowest
    work.run_c("cmsis_nn_softmax", work.read(0, "input"), work.write(), *numbers)


def call_add(work: Lowering, _: CmsisNN) -> None:
    """Two tensors of one shape."""
    a, b, output = _alike(work)
    twice, left_shift = 2 * max(a.scale, b.scale), 20
    factors = a.scale / twice, b.scale / twice, twice / ((1 << left_shift) * output.scale)
    require_supported(factors[2] < 1.0, "its output scale is too small")
    first, second, result = (quantise_multiplier(factor) for factor in factors)
    numbers = (-a.zero_point, *first, -b.zero_point, *second, left_shift, output.zero_point, *result)
    limits = _limits(work, work.options("AddOptions"))
    sources = work.read(0, "first"), work.read(1, "second")
    work.run_c("cmsis_nn_add", *sources, work.write(), *numbers, *limits, math.prod(output.shape))


def call_multiply(work: Lowering, _: CmsisNN) -> None:
    """Two tensors of one shape."""
    a, b, output = _alike(work)
    scale = quantise_multiplier(a.scale * b.scale / output.scale)
    require_supported(scale[1] <= _MOST_SHIFT, "a scale is too large")
    limits = _limits(work, work.options("MulOptions"))
    sources = work.read(0, "first"), work.read(1, "second")
    numbers = -a.zero_point, -b.zero_point, output.zero_point, *scale, *limits, math.prod(output.shape)
    work.run_c("cmsis_nn_multiply", *sources, work.write(), *numbers)


def _alike(work: Lowering) -> tuple[Tensor, Tensor, Tensor]:
    tensors = work.tensor(0), work.tensor(1), work.output()
    require_supported(all(t.dtype == "int8" and t.scale > 0.0 for t in tensors), "it is not int8")
    require_supported(len({t.shape for t in tensors}) == 1, "one input is repeated")
    return tensors


_CALLS: dict[str, Call] = {
    "CONV_2D": call_convolution,
    "DEPTHWISE_CONV_2D": call_convolution,
    "FULLY_CONNECTED": call_dense,
    "AVERAGE_POOL_2D": call_pool,
    "MAX_POOL_2D": call_pool,
    "SOFTMAX": call_softmax,
    "ADD": call_add,
    "MUL": call_multiply,
}
