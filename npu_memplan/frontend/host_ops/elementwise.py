"""ADD, SUB, MUL, MINIMUM and MAXIMUM, with broadcasting.

Invariant: ADD and SUB bring both operands to twice the larger scale, shifted left so that no
bit is lost, before they meet; MUL multiplies first and rescales once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...fixed_point.multiplier import quantise_multiplier
from ...models.tensor import Tensor
from .common import ACTIVATION_TYPES, clamp_to_activation, require_same_type
from .fixed_tir import multiply_by_quantised
from .operator import Lowering, UnsupportedOperatorError, lowering
from .tir import Buffer, Expr, const, largest, load, select, smallest


@lowering("ADD", "SUB")
def add(work: Lowering) -> None:
    """input 0 +- input 1."""
    import tflite

    subtract = work.operator.name == "SUB"
    options = work.options(tflite.SubOptions if subtract else tflite.AddOptions)
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((a, b, output), ACTIVATION_TYPES)
    left_shift = 15 if output.dtype == "int16" else 20
    twice = 2 * max(a.scale, b.scale)
    factors = [a.scale / twice, b.scale / twice, twice / ((1 << left_shift) * output.scale)]
    if not factors[2] < 1.0:
        raise UnsupportedOperatorError(f"output scale {output.scale} is too small for its inputs' scales")
    scales = [quantise_multiplier(f) for f in factors]

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        operands = rescaled(work, (first, second), place, left_shift, scales[:2])
        total = operands[0] - operands[1] if subtract else operands[0] + operands[1]
        result = multiply_by_quantised(function, total, *scales[2])
        function.store(target, clamp_to_activation(result, options.FusedActivationFunction(), output), *place)


@lowering("MUL")
def multiply(work: Lowering) -> None:
    """input 0 x input 1."""
    import tflite

    options = work.options(tflite.MulOptions)
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((a, b, output), ACTIVATION_TYPES)
    scale = quantise_multiplier(a.scale * b.scale / output.scale)

    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        x = load(first, *broadcast(place, a, output)) - const(a.zero_point)
        y = load(second, *broadcast(place, b, output)) - const(b.zero_point)
        result = multiply_by_quantised(function, x * y, *scale)
        function.store(target, clamp_to_activation(result, options.FusedActivationFunction(), output), *place)


@lowering("SQUARED_DIFFERENCE")
def squared_difference(work: Lowering) -> None:
    """(input 0 - input 1) squared."""
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    left_shift = 0 if require_same_type((a, b, output), ("int8", "int16")) == "int16" else 7
    twice = 2 * max(a.scale, b.scale)
    scales = [quantise_multiplier(tensor.scale / twice) for tensor in (a, b)]
    result_scale = quantise_multiplier(twice * twice / ((1 << (2 * left_shift)) * output.scale))
    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        operands = rescaled(work, (first, second), place, left_shift, scales)
        difference = function.bind(operands[0] - operands[1], "difference")
        value = multiply_by_quantised(function, difference * difference, *result_scale)
        function.store(target, clamp_to_activation(value, 0, output), *place)


@lowering("PRELU")
def prelu(work: Lowering) -> None:
    """x for x >= 0, alpha x below, with an alpha for each element or channel."""
    data, alpha, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((data, output), ACTIVATION_TYPES)
    slopes_type = "int8" if data.dtype == "int16" else data.dtype
    require_same_type((alpha,), (slopes_type,))
    if data.dtype != "int16":
        work.describe("prelu")
    above = quantise_multiplier(data.scale / output.scale)
    below = quantise_multiplier(data.scale * alpha.scale / output.scale)
    function = work.function
    source, slopes, target = work.read(0, "input"), work.read(1, "alpha"), work.write()
    with function.grid(output.shape) as place:
        x = function.bind(load(source, *broadcast(place, data, output)) - const(data.zero_point), "x")
        slope = load(slopes, *broadcast(place, alpha, output)) - const(alpha.zero_point)
        yes = multiply_by_quantised(function, x, *above)
        no = multiply_by_quantised(function, x * slope, *below)
        function.store(target, clamp_to_activation(select(x >= 0, yes, no), 0, output), *place)


@lowering("MINIMUM", "MAXIMUM")
def extremum(work: Lowering) -> None:
    """The smaller or larger element; the reference compares the stored numbers as they are."""
    a, b, output = work.tensor(0), work.tensor(1), work.output()
    require_same_type((a, b, output), (*ACTIVATION_TYPES, "int32"), scaled=False)
    choose = smallest if work.operator.name == "MINIMUM" else largest
    function = work.function
    first, second, target = work.read(0, "first"), work.read(1, "second"), work.write()
    with function.grid(output.shape) as place:
        x, y = load(first, *broadcast(place, a, output)), load(second, *broadcast(place, b, output))
        function.store(target, choose(x, y), *place)


def rescaled(
    work: Lowering,
    buffers: Sequence[Buffer],
    place: list[Expr],
    left_shift: int,
    scales: Sequence[tuple[int, int]],
) -> list[Expr]:
    """The inputs in `buffers` for an element of the output: stored values less the zero point,
    times 2 ** `left_shift` and their scale (multiplier, shift)."""
    operands = []
    for index, (buffer, scale) in enumerate(zip(buffers, scales, strict=True)):
        tensor = work.tensor(index)
        value = load(buffer, *broadcast(place, tensor, work.output())) - const(tensor.zero_point)
        operands.append(multiply_by_quantised(work.function, value * const(1 << left_shift), *scale))
    return operands


def broadcast(place: list[Expr], tensor: Tensor, output: Tensor) -> list[Expr]:
    """Indices into `tensor` for an element of `output`; axes are aligned from the last."""
    missing = len(output.shape) - len(tensor.shape)
    if missing < 0:
        raise UnsupportedOperatorError(f"input {tensor.name!r} has more dimensions than the output")
    indices = []
    for axis, extent in enumerate(tensor.shape):
        if extent not in (1, output.shape[axis + missing]):
            raise UnsupportedOperatorError(
                f"shape {list(tensor.shape)} of {tensor.name!r} does not broadcast to {list(output.shape)}"
            )
        indices.append(const(0) if extent == 1 else place[axis + missing])
    return indices
