"""TFLite_Detection_PostProcess: boxes against anchors, decoded and thinned out where they overlap.

Invariant: real numbers, in the order of operations of the reference: corners in double precision rounded to float32,
overlaps in float32, equal scores in the order of their boxes. Quantised inputs are made real number by number as they
are read. What the reference leaves unwritten is zeros; where it stops because a box is empty, nothing is detected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...models.tensor import Tensor
from .c_text import c_text
from .operator import Lowering, UnsupportedOperatorError, lowering

_NAMES = ("max_detections", "max_classes_per_detection", "num_classes")
_REALS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")


@dataclass(frozen=True, slots=True)
class _Options:
    most: int
    each: int  # classes of a detection
    classes: int
    most_of_class: int
    regular: bool

    @classmethod
    def of(cls, work: Lowering) -> _Options:
        most, each, classes = (int(value) for value in work.custom(*_NAMES))
        others = work.operator.custom_options()
        if min(most, each, classes) < 1:
            raise UnsupportedOperatorError(f"it detects {most} boxes of {each} of {classes} classes")
        of_class = int(others.get("detections_per_class", 100))
        return cls(most, min(each, classes), classes, max(of_class, 1), bool(others.get("use_regular_nms", False)))


def _shapes(work: Lowering) -> list[tuple[int, ...]]:
    most, each, _ = (int(value) for value in work.custom(*_NAMES))
    count = most * each
    return [(1, count, 4), (1, count), (1, count), (1,)]


@lowering("TFLite_Detection_PostProcess", shapes=_shapes)
def detection(work: Lowering) -> None:
    """Inputs: encoded boxes [1, N, 4 or more], scores [1, N, classes, one more with a background], anchors [N, 4]."""
    options = _Options.of(work)
    encoded, scores, anchors = (work.tensor(i) for i in range(3))
    outputs = [work.output(i) for i in range(4)]
    if len(encoded.shape) != 3 or len(scores.shape) != 3 or anchors.shape != (encoded.shape[1], 4):
        raise UnsupportedOperatorError(
            f"boxes {list(encoded.shape)}, scores {list(scores.shape)} and anchors {list(anchors.shape)} do not fit"
        )
    count, pitch, columns = encoded.shape[1], encoded.shape[2], scores.shape[2]
    if (encoded.shape[0], scores.shape[:2]) != (1, (1, count)) or pitch < 4:
        raise UnsupportedOperatorError(
            f"boxes {list(encoded.shape)} and scores {list(scores.shape)} are not of one image"
        )
    if not 0 <= columns - options.classes <= 1:
        raise UnsupportedOperatorError(f"its scores have {columns} columns for {options.classes} classes")
    room = math.prod(outputs[1].shape)
    if any(t.dtype != "float32" for t in outputs) or [math.prod(t.shape) for t in outputs] != [4 * room, room, room, 1]:
        raise UnsupportedOperatorError("its outputs are not the boxes, classes, scores and number of one image")
    suffix = f"{work.operator.index}"
    macros = _macros(work, encoded, scores, anchors)
    _call(work, options, suffix, macros, (count, pitch, options.classes, columns), room)


def _call(
    work: Lowering, options: _Options, suffix: str, macros: dict[str, str], sizes: tuple[int, int, int, int], room: int
) -> None:
    count, most = sizes[0], options.most_of_class if options.regular else options.most
    inputs = [work.read(i, name) for i, name in enumerate(("encoded", "scores", "anchors"))]
    scratch = work.function.scratch
    areas = [
        scratch("boxes", (count, 4), "float32"),
        scratch("best", (count,), "float32"),
        scratch("order", (count,), "int32"),
        scratch("spare", (count,), "int32"),
        scratch("free", (count,), "uint8"),
        scratch("chosen", (min(count, most),), "int32"),
    ]
    if options.regular:
        kept = options.most + options.most_of_class
        areas += [scratch("kept_scores", (kept,), "float32"), scratch("kept", (kept,), "int32")]
        areas += [scratch("next_scores", (kept,), "float32"), scratch("next", (2, kept), "int32")]
    targets = [work.write(i, name) for i, name in enumerate(("boxes_out", "classes", "scores_out", "number"))]
    how = "regular" if options.regular else "fast"
    limits = (options.most, options.most_of_class if options.regular else options.each, room)
    sources = [c_text(name, suffix, macros) for name in ("detection", f"detection_{how}")]
    arguments = [*inputs, *areas, *targets, *sizes, *limits]
    work.c_function(f"npu_memplan_detection_{how}_{suffix}", sources, arguments, (*areas, *targets))


def _macros(work: Lowering, encoded: Tensor, scores: Tensor, anchors: Tensor) -> dict[str, str]:
    """What the C text has to know of types, quantisation and options; real numbers are float32."""
    names = ("THRESHOLD", "OVERLAP", "Y_SCALE", "X_SCALE", "H_SCALE", "W_SCALE")
    reals = [float(np.float32(value)) for value in work.custom(*_REALS)]
    if not all(map(math.isfinite, reals)) or 0.0 in reals[2:] or not 0 < reals[1] <= 1:
        raise UnsupportedOperatorError(f"its thresholds and scales are {reals}")
    macros = {name: f"({value.hex()}f)" for name, value in zip(names, reals, strict=True)}
    for name, tensor, wide in (("BOX", encoded, True), ("SCORE", scores, False), ("ANCHOR", anchors, True)):
        if tensor.dtype not in ("float32", "uint8") or (tensor.dtype == "uint8" and not tensor.scale):
            raise UnsupportedOperatorError(
                f"tensor {tensor.name!r} is {tensor.dtype}; the references take float32 or uint8"
            )
        macros[f"{name}_TYPE"] = "float" if tensor.dtype == "float32" else "uint8_t"
        real = (
            "(x)"
            if tensor.dtype == "float32"
            else f"(((float)(x) - {tensor.zero_point}) * {float(np.float32(tensor.scale)).hex()}f)"
        )
        macros[f"{name}(x)"] = f"((double){real})" if wide else real
    return macros
