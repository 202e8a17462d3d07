"""Resizes by whole numbers: every phase of the output is a copy or a small convolution of the input; on Ethos-U85, all
of them are one RESIZE, and so are resizes by any ratio as TFLite computes them.

Invariant: a result is the sum of at most four stored values with weights that are binary fractions, rounded once: half
away from zero, what TFLite's reference computes with ten fraction bits, or half up, as TOSA does. Positions outside of
the input are its edge, which is copied around it where a phase needs it. Positions are computed in exact fractions, as
Relax's attributes define them; what does not repeat with a whole number of output positions, or needs weights that are
no binary fractions, has the positions of TFLite's reference (`Spaced`), or is rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np

from ..arch import Architecture, Language
from ..lower import emit_u85
from ..lower.emit import Builder, EmitContext
from ..lower.layer import Layer, Limits, StorageTraits
from ..lower.operands import Arithmetic, LayerTensor, Operand, Output, Padding, Positions, Window
from ..lower.scaling import UNITY, Scale
from ..reading import patterns as p
from ..reading.reader import Composite, Match, Reader, Record, RejectedError
from ..schedule.rams import ceil_div
from ..stream.isa import PoolMode, ResizeKind, Rounding, ScaleRounding, Upscale

_MAX_PHASES = 256
_MAX_WEIGHT = 255


@dataclass(frozen=True, slots=True)
class Phase:
    """Every n-th output position of one axis: the mean of source k + first and the next, weighed by `second`."""

    first: int = 0
    second: int = 0
    of: int = 1  # a power of two


_NEAREST_BY_2 = (Phase(), Phase())
_BILINEAR_BY_2 = (Phase(), Phase(0, 1, 2))  # positions counted from the corner


@dataclass(frozen=True, slots=True, eq=False)
class Resize(Layer):
    """Enlarge height and width by whole numbers; the phases of each axis."""

    rows: tuple[Phase, ...]
    columns: tuple[Phase, ...]
    halves_up: bool = False  # of mixed values; or away from zero

    limits: ClassVar[Limits] = Limits(one_image=True)
    traits: ClassVar[StorageTraits] = StorageTraits(keeps_scale=True)

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        """The reason to leave it to the host: too many phases, each of which takes an operation."""
        if target.language is Language.U85 and self._even() is not None:
            return None
        if self.mixes_values and inputs[0].dtype == "int16":
            return "its tensors are int16, which only one RESIZE of Ethos-U85 mixes"
        phases = len(self.rows) * len(self.columns)
        if phases > _MAX_PHASES:
            return f"it makes {phases} elements of one; at most {_MAX_PHASES} are made on the NPU"
        heaviest = max(max(_weights(row)) for row in self.rows) * max(max(_weights(column)) for column in self.columns)
        if heaviest > _MAX_WEIGHT:
            return f"it weighs a neighbour by {heaviest}; weights of at most {_MAX_WEIGHT} fit the NPU"
        return None

    def emit(self, context: EmitContext) -> None:
        """One operation, or one for each phase, of stored values."""
        ifm, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        builder, limits = context.builder, context.tensors[self.output].limits
        if self.rows == self.columns == _NEAREST_BY_2:
            builder.pool(PoolMode.MAX, ifm, ofm, Window(upscale=Upscale.NEAREST), Output(limits, UNITY))
        elif builder.accelerator.language is Language.U85 and (axes := self._even()) is not None:
            rounding = ScaleRounding.NATURAL if self.halves_up else ScaleRounding.SYMMETRIC
            kind = ResizeKind.BILINEAR if self.mixes_values else ResizeKind.REPLICATE
            emit_u85.resize(builder, kind, ifm, ofm, axes, rounding)
        elif self.rows == self.columns == _BILINEAR_BY_2 and not self.halves_up:
            # after the last row and column there is nothing: the NPU averages what is there
            window = Window((2, 2), padding=Padding(bottom=1, right=1), upscale=Upscale.NEAREST)
            builder.pool(PoolMode.AVERAGE, ifm, ofm, window, Output(limits, UNITY))
        else:
            _by_phases(builder, self, ifm, ofm, limits)

    @property
    def mixes_values(self) -> bool:
        """Whether a result is of more than one value."""
        return any(phase.second for phase in (*self.rows, *self.columns))

    def _even(self) -> tuple[Positions, Positions] | None:
        """Positions along height and width as one RESIZE has them; None where they are not evenly apart."""
        found = [(_mix_positions if self.mixes_values else _pick_positions)(axis) for axis in (self.rows, self.columns)]
        axes = [positions for positions in found if positions is not None and positions.fit]
        return (axes[0], axes[1]) if len(axes) == len(found) else None


def _mix_positions(phases: tuple[Phase, ...]) -> Positions | None:
    """The positions of mixed values, in parts of a power of two; None where they are not evenly apart."""
    places = [phase.first + Fraction(phase.second, phase.of) for phase in phases]
    numerator = max(len(phases), *(place.denominator for place in places))
    step = Fraction(numerator, len(phases))
    even = all(place == places[0] + Fraction(i, len(phases)) for i, place in enumerate(places))
    if not even or numerator & (numerator - 1) or step.denominator > 1:
        return None
    return Positions(numerator, int(step), int(places[0] * numerator))


def _pick_positions(phases: tuple[Phase, ...]) -> Positions | None:
    """Positions, rounded down, of values that are picked: in half steps of the phases; None where there are none."""
    count = len(phases)
    for offset in range(-2 * count, 2 * count + 1):
        if all((2 * i + offset) // (2 * count) == phase.first for i, phase in enumerate(phases)):
            return Positions(2 * count, 2, offset)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Spread(Layer):
    """One pixel on a whole map: each operation makes up to twice as many rows and columns of those before."""

    limits: ClassVar[Limits] = Limits(one_image=True)
    traits: ClassVar[StorageTraits] = StorageTraits(keeps_scale=True)

    def emit(self, context: EmitContext) -> None:
        source, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        axes = Positions(ofm.shape.height, 1, 0), Positions(ofm.shape.width, 1, 0)
        if context.builder.accelerator.language is Language.U85 and all(positions.fit for positions in axes):
            emit_u85.resize(context.builder, ResizeKind.REPLICATE, source, ofm, axes, ScaleRounding.SYMMETRIC)
            return
        output = Output(context.tensors[self.output].limits, UNITY)
        height, width, depth = ofm.view.shape
        for step in reversed(range((max(height, width) - 1).bit_length())):
            shape = (ceil_div(height, 1 << step), ceil_div(width, 1 << step), depth)
            name = f"{self.output}_{shape[0]}x{shape[1]}"
            target = context.builder.temporary(name, shape, ofm.dtype) if step else ofm
            context.builder.pool(PoolMode.MAX, source, target, Window(upscale=Upscale.NEAREST), output)
            source = target


@dataclass(frozen=True, slots=True, eq=False)
class Spaced(Layer):
    """Values that are picked, or mixed, at positions evenly apart along each axis: one RESIZE of Ethos-U85."""

    axes: tuple[Positions, Positions]
    mixes: bool
    reason: str  # why no other NPU does it

    limits: ClassVar[Limits] = Limits(one_image=True)
    traits: ClassVar[StorageTraits] = StorageTraits(keeps_scale=True)

    def unsupported_by(self, target: Architecture, inputs: tuple[LayerTensor, ...]) -> str | None:
        return None if target.language is Language.U85 else self.reason

    def emit(self, context: EmitContext) -> None:
        ifm, ofm = context.operand(self.inputs[0], raw=True), context.operand(self.output, raw=True)
        kind = ResizeKind.BILINEAR if self.mixes else ResizeKind.REPLICATE
        emit_u85.resize(context.builder, kind, ifm, ofm, self.axes, ScaleRounding.SYMMETRIC)


def _by_phases(builder: Builder, layer: Resize, ifm: Operand, ofm: Operand, limits: tuple[int, int]) -> None:
    phases = (layer.rows, layer.columns)
    counts = tuple(
        [-(-(whole - r) // len(axis)) for r in range(len(axis))]
        for axis, whole in zip(phases, ofm.view.shape[:2], strict=True)
    )
    before = tuple(max(0, *(-p.first for p in axis)) for axis in phases)
    after = tuple(
        max(0, *(p.first + n - 1 + bool(p.second) - (size - 1) for p, n in zip(axis, count, strict=True)))
        for axis, count, size in zip(phases, counts, ifm.view.shape[:2], strict=True)
    )
    source = _with_edges(builder, f"{layer.output}_edges", ifm, before, after)
    for (y, row), (x, column) in product(enumerate(layer.rows), enumerate(layer.columns)):
        kernel = (1 + bool(row.second), 1 + bool(column.second))
        extent = (counts[0][y], counts[1][x], ofm.shape.depth)
        begin = (before[0] + row.first, before[1] + column.first, 0)
        wanted = (extent[0] + kernel[0] - 1, extent[1] + kernel[1] - 1, extent[2])
        target = ofm.view.box((y, x, 0), extent, (len(layer.rows), len(layer.columns), 1))
        read = source.view.box(begin, wanted)
        assert target is not None  # neither is in bricks
        assert read is not None
        a, b = replace(source, view=read), replace(ofm, view=target)
        if kernel == (1, 1):
            builder.pool(PoolMode.MAX, a, b, Window(), Output(limits, UNITY))
        else:
            output = Output(limits, rounding=Rounding.NATURAL) if layer.halves_up else Output(limits)
            _append_mix(builder, a, b, row, column, output)


def _append_mix(builder: Builder, ifm: Operand, ofm: Operand, row: Phase, column: Phase, output: Output) -> None:
    """Depthwise convolution of up to 2x2 elements."""
    weights = np.outer(_weights(row), _weights(column)).astype(np.int16)
    depth = ofm.shape.depth
    # the first of two roundings leaves the sum as it is, the second rounds half away from zero
    scale = Scale(1 << 31, 31 + int(weights.sum()).bit_length() - 1)
    builder.convolve(
        ifm,
        ofm,
        Window((weights.shape[0], weights.shape[1])),
        output,
        np.broadcast_to(weights[None, :, :, None], (depth, *weights.shape, 1)),
        np.zeros(depth, np.int64),
        [scale],
        depthwise=True,
    )


def _weights(phase: Phase) -> list[int]:
    return [phase.of - phase.second, phase.second] if phase.second else [1]


def _with_edges(builder: Builder, name: str, ifm: Operand, before: tuple[int, ...], after: tuple[int, ...]) -> Operand:
    """`ifm` with its outer rows and columns repeated: at most one on each side."""
    if not any((*before, *after)):
        return ifm
    height, width, depth = ifm.view.shape
    info = np.iinfo(ifm.dtype)
    output = Output((int(info.min), int(info.max)), UNITY)
    shape = (before[0] + height + after[0], before[1] + width + after[1], depth)
    whole = builder.temporary(name, shape, ifm.dtype)
    for (y, from_y, rows), (x, from_x, columns) in product(
        _pieces(before[0], height, after[0]), _pieces(before[1], width, after[1])
    ):
        read = ifm.view.box((from_y, from_x, 0), (rows, columns, depth))
        written = whole.view.box((y, x, 0), (rows, columns, depth))
        assert read is not None  # neither is in bricks
        assert written is not None
        builder.pool(PoolMode.MAX, replace(ifm, view=read), replace(whole, view=written), Window(), output)
    return whole


def _pieces(before: int, size: int, after: int) -> list[tuple[int, int, int]]:
    """(position in the extended axis, position in the source, length) of the edges and of what is between."""
    pieces = [(before, 0, size)]
    if before:
        pieces.append((0, 0, 1))
    if after:
        pieces.append((before + size, size - 1, 1))
    return pieces


# ---------------------------------------------------------------------- in Relax

_MOST = 16  # output positions for one of the input
_FRACTION_BITS = 10  # of positions in TFLite
_CORNER, _CENTRES = "align_corners", ("half_pixel", "pytorch_half_pixel")
_TFLITES = {"asymmetric": ("", "floor"), "half_pixel": ("round_prefer_ceil",), _CORNER: ("", "round")}  # of nearest


def _layer(call: Any, tensor: LayerTensor, out: LayerTensor, arithmetic: Arithmetic) -> Resize | Spread | Spaced:
    """The layer of an `image.resize2d` of NHWC tensors."""
    attributes = call.attrs
    if str(attributes.layout) != "NHWC":
        raise RejectedError(f"its layout is {attributes.layout}; only NHWC fits the NPU")
    rounding = None if str(attributes.method) == "linear" else str(attributes.rounding_method)
    return resize(tensor, out, str(attributes.coordinate_transformation_mode), rounding, arithmetic)


def resize(
    tensor: LayerTensor, out: LayerTensor, way: str, rounding: str | None, arithmetic: Arithmetic = Arithmetic.TFLITE
) -> Resize | Spread | Spaced:
    """The layer of a resize of NHWC tensors, whose positions are mapped in one of Relax's ways; `rounding` is that of
    the nearest one ("" as the way has it), None mixes neighbours.
    """
    if tensor.shape[1:3] == (1, 1) and out.shape[1:3] != (1, 1):
        return Spread("resize", ("0",), "out")
    bilinear = rounding is None
    sizes = list(zip(tensor.shape[1:3], out.shape[1:3], strict=True))
    try:
        rows, columns = (_axis_phases(*axis, way, rounding) for axis in sizes)
    except RejectedError as error:
        make = _fixed_point if rounding is None else partial(_nearest_in_float32, rounding=rounding)
        axes = [positions for axis in sizes if (positions := make(*axis, way)) is not None and positions.fit]
        if len(axes) < len(sizes) or arithmetic is Arithmetic.REAL or (bilinear and tensor.dtype == "uint8"):
            raise
        return Spaced("resize", ("0",), "out", (axes[0], axes[1]), bilinear, str(error))
    return Resize("resize", ("0",), "out", rows, columns)


def _fixed_point(size: int, wanted: int, way: str) -> Positions | None:
    """Positions of TFLite's bilinear resize of integers, with ten fraction bits."""
    if way not in _TFLITES:
        return None
    one, corner = 1 << _FRACTION_BITS, way == _CORNER and wanted > 1
    first, last = (size - 1, wanted - 1) if corner else (size, wanted)
    step = (one * first + last // 2) // last if first else 1  # within the one pixel
    return Positions(one, step, step // 2 - one // 2 if way == "half_pixel" else 0)


def _nearest_in_float32(size: int, wanted: int, way: str, rounding: str) -> Positions | None:
    """Positions of TFLite's nearest places, which it computes in float32; None where those are not evenly apart."""
    if rounding not in _TFLITES.get(way, ()):
        return None
    if size == 1:
        return Positions(wanted, 1, 0)
    f, corner = np.float32, way == _CORNER and wanted > 1
    first, last = (size - 1, wanted - 1) if corner else (size, wanted)
    half, more = f(0.5 if way == "half_pixel" else 0), 0.5 if way == _CORNER else 0
    exact = (np.arange(wanted, dtype=f) + half) * (f(first) / f(last))
    places = np.clip(np.floor(exact.astype(float) + more), 0, size - 1)
    offset = first if way == "half_pixel" else last if way == _CORNER else 0
    shared = math.gcd(2 * first, 2 * last)
    made = Positions(2 * last // shared, 2 * first // shared, offset // shared)
    evenly = (np.arange(wanted) * made.step + made.offset) // made.numerator
    return made if np.array_equal(np.clip(evenly, 0, size - 1), places) else None


def _axis_phases(size: int, wanted: int, way: str, rounding: str | None) -> tuple[Phase, ...]:
    """Phases of one axis; `rounding` is that of nearest, None for bilinear."""
    inner = 1 if way == _CORNER and size > 1 else 0  # between corners there is one position less
    factor, rest = divmod(wanted - inner, size - inner)
    if rest or not 1 <= factor <= _MOST:
        raise RejectedError(
            f"it resizes {size} positions to {wanted} the {way} way; the NPU makes up to {_MOST} of each"
            + (", and one more at the end" if inner else "")
        )
    return tuple(_phase(_source_position(way, r, factor), rounding, way) for r in range(factor))


def _source_position(way: str, index: int, factor: int) -> Fraction:
    """The place of output position `index` between the input's positions."""
    if way in _CENTRES:
        return Fraction(2 * index + 1, 2 * factor) - Fraction(1, 2)
    if way in ("asymmetric", _CORNER):
        return Fraction(index, factor)
    raise RejectedError(f"it maps positions the {way} way, which no NPU operation does")


def _phase(position: Fraction, rounding: str | None, way: str) -> Phase:
    if rounding is None:
        first = math.floor(position)
        weight = position - first
        if weight.denominator & (weight.denominator - 1):
            raise RejectedError(f"it mixes neighbours by parts of {weight.denominator}; only powers of two are exact")
        return Phase(first, weight.numerator, weight.denominator)
    if rounding == "":
        rounding = "round" if way == _CORNER else "floor"
    half = Fraction(1, 2)
    nearest = {
        "floor": math.floor(position),
        "ceil": math.ceil(position),
        "round": math.floor(position + half),  # TFLite's, half away from zero
        "round_prefer_ceil": math.floor(position + half),
        "round_prefer_floor": math.ceil(position - half),
    }
    if rounding not in nearest:
        raise RejectedError(f"it rounds positions by {rounding}, which no NPU operation does")
    return Phase(nearest[rounding])


def _parse_nearest(reader: Reader, root: Any) -> Match:
    call, tensor, out = reader.read_move(root, "image.resize2d")
    if str(call.attrs.method) != "nearest_neighbor":
        raise RejectedError(f"it resizes stored values by method {call.attrs.method}")
    return Match(_layer(call, tensor, out, reader.arithmetic), {"0": tensor, "out": out}, (call.args[0],))


def _parse_bilinear(reader: Reader, root: Any) -> Match:
    call, out, _, (source,) = reader.of_real(root, "image.resize2d")
    tensor = source[0]
    if (tensor.scale, tensor.zero_point) != (out.scale, out.zero_point):
        raise RejectedError("its input and output have different scales")
    return Match.for_layer(_layer(call, tensor, out, reader.arithmetic), out, source)


RECORD = Record(
    (Resize, Spread, Spaced),
    (
        Composite("resize_nearest", partial(p.alone, "image.resize2d", 2), _parse_nearest),
        Composite("resize_bilinear", partial(p.of_real, "image.resize2d", others=1), _parse_bilinear),
    ),
)
