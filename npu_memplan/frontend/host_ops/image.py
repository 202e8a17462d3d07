"""Images: RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR, and TFLite_Detection_PostProcess.

Invariant: source positions and weights are tables, computed here by the reference's own arithmetic (float32 for nearest
and for bilinear of uint8 and float32, 10 fraction bits for bilinear of int8, and of uint8 where these give the same
results). Detection computes real numbers in the reference's order of operations: corners in double precision rounded to
float32, overlaps in float32, equal scores in the order of their boxes. Quantised inputs are made real number by number
as they are read. What the reference leaves unwritten is zeros; where it stops because a box is empty, nothing is
detected.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ...fixed_point import LIMITS, bilinear_place
from ...models.tensor import Tensor
from .common import EIGHT_BITS, ends, nhwc_shape
from .movement import pair
from .operator import Lowering, lowering, require_supported
from .tir import Expr, cast, clamp, int_constant, load, raw_load, select


@lowering("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(work: Lowering) -> None:
    """Each output element is one input element; the positions are computed in float32, here."""
    options = work.options("ResizeNearestNeighborOptions")
    data, output = pair(work)
    nhwc_shape(data), nhwc_shape(output)
    align, centers = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    require_places(data, output)
    rows = _nearest_places(data.shape[1], output.shape[1], align, centers)
    columns = _nearest_places(data.shape[2], output.shape[2], align, centers)
    function, source = work.function, work.read(0, "input")
    row_table, column_table = work.table("rows", rows), work.table("columns", columns)
    target = work.write()
    with function.grid(output.shape, "nyxc") as (n, y, x, c):
        value = raw_load(source, [n, raw_load(row_table, [y]), raw_load(column_table, [x]), c])
        function.store(target, value, n, y, x, c)


def require_places(data: Tensor, output: Tensor) -> None:
    """Refuses images without a place, and what changes batches or channels."""
    source, target = nhwc_shape(data), nhwc_shape(output)
    fits = all((*source, *target)) and (source[0], source[3]) == (target[0], target[3])
    require_supported(fits, f"{list(data.shape)} is not resized to {list(output.shape)}")


def _nearest_places(size: int, out_size: int, align: bool, centers: bool) -> npt.NDArray[np.int32]:
    f = np.float32
    corner = align and out_size > 1
    scale = f(size - 1) / f(out_size - 1) if corner else f(size) / f(out_size)
    positions = []
    for i in range(out_size):
        exact = (f(i) + f(0.5 if centers else 0.0)) * scale
        place = math.floor(float(exact) + 0.5) if align else math.floor(float(exact))
        positions.append(max(0, min(place, size - 1)))
    return np.array(positions, np.int32)


@lowering("RESIZE_BILINEAR", both=True)
def resize_bilinear(work: Lowering) -> None:
    """Each output element mixes four input elements."""
    options = work.options("ResizeBilinearOptions")
    data, output = ends(work, ("float32",) if work.plain else (*EIGHT_BITS, "int16"), scaled=False)
    require_places(data, output)
    batches, in_h, in_w, depth = nhwc_shape(data)
    _, out_h, out_w, _ = nhwc_shape(output)
    how = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    shape, down, across = (batches, out_h, out_w, depth), (in_h, out_h, *how), (in_w, out_w, *how)
    make = _in_few_bits if data.dtype == "uint8" else _in_fixed_point
    rows, columns = (None, None) if work.plain else (make(*down), make(*across))
    if rows is None or columns is None:
        _mixed_in_float(work, shape, down, across)
    else:
        _mix_rows(work, shape, (in_h, in_w), rows, columns)


# sizes of input and output along an axis, whether corners are aligned, whether places are half pixels
_Axis = tuple[int, int, bool, bool]


def _mix_rows(
    work: Lowering, shape: tuple[int, ...], sizes: tuple[int, int], downs: npt.NDArray[Any], acrosses: npt.NDArray[Any]
) -> None:
    """Mix rows of 8 or 16 bits, with 10 fraction bits; the sums of 16 bits have 64."""
    function, source = work.function, work.read(0, "input")
    rows, columns = work.table("rows", downs), work.table("columns", acrosses)
    target, one, dtype = work.write(), int_constant(1 << 10), work.output().dtype
    sums = "int64" if dtype == "int16" else "int32"
    with function.grid(shape, "nyxc") as (n, y, x, c):
        top, bottom, down = (load(rows, y, i) for i in range(3))
        left, right, across = (load(columns, x, i) for i in range(3))
        up, back, down, across = (cast(weight, sums) for weight in (one - down, one - across, down, across))
        total = function.bind(
            cast(load(source, n, top, left, c), sums) * up * back
            + cast(load(source, n, bottom, left, c), sums) * down * back
            + cast(load(source, n, top, right, c), sums) * up * across
            + cast(load(source, n, bottom, right, c), sums) * down * across,
            "sum",
            sums,
        )
        half, zero = int_constant(1 << 19, sums), int_constant(0, sums)
        rounded = tirx.truncdiv(total + select(total > zero, half, zero - half), int_constant(1 << 20, sums))
        function.store(target, clamp(cast(rounded, "int32"), *LIMITS[dtype]), n, y, x, c)
    if dtype == "int16":
        return
    numbers = shape[0], *sizes, *shape[1:], _bits_used(downs), _bits_used(acrosses), int(dtype == "int8")
    work.kernel("kernel_forms kernel_resize", source, rows, columns, target, *numbers)


def _bits_used(table: npt.NDArray[Any]) -> int:
    """How many of the 10 fraction bits the weights need, 1 at least."""
    return max(1, *(10 - shift for shift in range(10) if np.any(table[:, 2] >> shift & 1)), 1)


def _mixed_in_float(work: Lowering, shape: tuple[int, ...], down: _Axis, across: _Axis) -> None:
    """Mix uint8 and float32: the reference computes both in float32, whose products are summed in this order."""
    function, source = work.function, work.read(0, "input")
    (rows, downs), (columns, acrosses) = (
        (work.table(f"{name}s", places), work.table(f"{name}_weights", weights))
        for name, (places, weights) in (("row", _in_float(*down)), ("column", _in_float(*across)))
    )
    target = work.write()
    with function.grid(shape, "nyxc") as (n, y, x, c):
        total: Expr = None
        for bottom, right in ((0, 0), (1, 0), (0, 1), (1, 1)):
            value = cast(raw_load(source, [n, load(rows, y, bottom), load(columns, x, right), c]), "float32")
            product = value * raw_load(downs, [y, int_constant(bottom)]) * raw_load(acrosses, [x, int_constant(right)])
            total = product if total is None else total + product
        if not work.plain:
            total = cast(total + tirx.FloatImm("float32", 0.5), "int32")
        function.store(target, total, n, y, x, c)
    if not work.plain:
        (images, out_h, out_w, depth), buffers = shape, (source, rows, downs, columns, acrosses, target)
        sizes = images, down[0], across[0], out_h, out_w, depth
        work.kernel("kernel_forms kernel_bilinear", *buffers, *sizes)


def _in_float(size: int, out_size: int, align: bool, centers: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """(first, second position) and the weights of the two, of each output place; [out_size, 2] each."""
    f = np.float32
    corner = align and out_size > 1
    scale = f(size - 1) / f(out_size - 1) if corner else f(size) / f(out_size)
    places = [(f(i) + f(0.5)) * scale - f(0.5) if centers else f(i) * scale for i in range(out_size)]
    bounds = [(max(math.floor(p), 0), min(math.ceil(p), size - 1)) for p in places]
    weights = [(f(1) - (p - f(first)), p - f(first)) for p, (first, _) in zip(places, bounds, strict=True)]
    return np.array(bounds, np.int32), np.array(weights, np.float32)


_MOST_BITS = 4  # of a weight, so that 8 bits times two weights have 16


def _in_few_bits(size: int, out_size: int, align: bool, centers: bool) -> npt.NDArray[Any] | None:
    """The same as `_in_fixed_point` has it, where so few bits say it that float32 computes exactly; else None."""
    places, weights = _in_float(size, out_size, align, centers)
    scaled = weights[:, 1] * np.float32(1 << _MOST_BITS)
    if np.any(scaled != np.round(scaled)):
        return None
    return np.column_stack([places, scaled.astype(np.int32) << (10 - _MOST_BITS)]).astype(np.int32)


def _in_fixed_point(size: int, out_size: int, align: bool, centers: bool) -> npt.NDArray[Any]:
    """(first position, second position, weight of the second with 10 fraction bits) of each output place."""
    rows = []
    for i in range(out_size):
        place = bilinear_place(i, size, out_size, align=align, centers=centers)
        place = min(place, (size - 1) << 10)
        first = max(int(place / (1 << 10)), 0)  # towards zero
        second = min(int((place + (1 << 10) - 1) / (1 << 10)), size - 1)
        rows.append((first, second, place - (first << 10)))
    return np.array(rows, np.int32)


_NAMES = ("max_detections", "max_classes_per_detection", "num_classes")
_VALUES = 256
_REALS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")


def _shapes(work: Lowering) -> list[tuple[int, ...]]:
    most, each, _ = (int(value) for value in work.custom_options(*_NAMES))
    count = most * each
    return [(1, count, 4), (1, count), (1, count), (1,)]


@lowering("TFLite_Detection_PostProcess", shapes=_shapes)
def lower_detection(work: Lowering) -> None:
    """Inputs: encoded boxes [1, N, 4 or more], scores [1, N, classes, one more with a background], anchors [N, 4]."""
    most, each, classes = (int(value) for value in work.custom_options(*_NAMES))
    require_supported(min(most, each, classes) >= 1, f"it detects {most} boxes of {each} of {classes} classes")
    others = work.operator.custom_options()
    regular, of_class = others.get("use_regular_nms", False), max(int(others.get("detections_per_class", 100)), 1)
    encoded, scores, anchors = (work.tensor(i) for i in range(3))
    outputs = [work.output(i) for i in range(4)]
    forms = [list(tensor.shape) for tensor in (encoded, scores, anchors)]
    fits = len(encoded.shape) == len(scores.shape) == 3 and anchors.shape == (encoded.shape[1], 4)
    require_supported(fits, f"boxes {forms[0]}, scores {forms[1]} and anchors {forms[2]} do not fit")
    count, pitch, columns = encoded.shape[1], encoded.shape[2], scores.shape[2]
    one_image = (encoded.shape[0], scores.shape[:2]) == (1, (1, count)) and pitch >= 4
    require_supported(one_image, f"boxes {forms[0]} and scores {forms[1]} are not of one image")
    require_supported(0 <= columns - classes <= 1, f"its scores have {columns} columns for {classes} classes")
    room = math.prod(outputs[1].shape)
    fits = [math.prod(t.shape) for t in outputs] == [4 * room, room, room, 1]
    fits = fits and all(t.dtype == "float32" for t in outputs)
    require_supported(fits, "its outputs are not the boxes, classes, scores and number of one image")
    macros = _c_macros(work, encoded, scores, anchors)

    inputs = [work.read(i, name) for i, name in enumerate(("encoded", "scores", "anchors"))]
    few = encoded.dtype == "uint8" and count >= _VALUES  # values, for which exponentials are computed once
    macros["BOX_VALUES"] = str(_VALUES if few else 0)
    areas: list[tuple[str, tuple[int, ...], str]] = [
        ("halves", (2, _VALUES) if few else (1,), "float64"),
        ("boxes", (count, 4), "float32"),
        ("best", (count,), "float32"),
        ("order", (count,), "int32"),
        ("chosen", (min(count, of_class if regular else most),), "int32"),
    ]
    if regular:
        kept = most + of_class
        areas += [("kept_scores", (kept,), "float32"), ("kept", (kept,), "int32")]
        areas += [("next_scores", (kept,), "float32"), ("next", (2, kept), "int32")]
    buffers = [*inputs, *(work.function.scratch(*area) for area in areas)]
    buffers += [work.write(i, name) for i, name in enumerate(("boxes_out", "classes", "scores_out", "number"))]
    numbers = count, pitch, classes, columns, most, of_class if regular else min(each, classes), room
    how = "regular" if regular else "fast"
    work.run_c(f"detection detection_{how}", *buffers, *numbers, suffix=f"{work.operator.index}", macros=macros)


def _c_macros(work: Lowering, encoded: Tensor, scores: Tensor, anchors: Tensor) -> dict[str, str]:
    """The macros that the C text has to know of types, quantisation and options; real numbers are float32."""
    names = ("THRESHOLD", "OVERLAP", "Y_SCALE", "X_SCALE", "H_SCALE", "W_SCALE")
    reals = [float(np.float32(value)) for value in work.custom_options(*_REALS)]
    sound = all(map(math.isfinite, reals)) and 0.0 not in reals[2:] and 0 < reals[1] <= 1
    require_supported(sound, f"its thresholds and scales are {reals}")
    macros = {name: f"({value.hex()}f)" for name, value in zip(names, reals, strict=True)}
    for name, tensor, wide in (("BOX", encoded, True), ("SCORE", scores, False), ("ANCHOR", anchors, True)):
        plain, scale = tensor.dtype == "float32", float(np.float32(tensor.scale)).hex()
        known = plain or (tensor.dtype == "uint8" and tensor.scale)
        require_supported(known, f"tensor {tensor.name!r} is {tensor.dtype}; the references take float32 or uint8")
        macros[f"{name}_TYPE"] = "float" if plain else "uint8_t"
        real = "(x)" if plain else f"(((float)(x) - {tensor.zero_point}) * {scale}f)"
        macros[f"{name}(x)"] = f"((double){real})" if wide else real
    return macros
