"""TFLite_Detection_PostProcess: boxes against anchors, decoded and thinned out where they overlap.

Invariant: real numbers, in the order of operations of the reference: corners in double precision rounded to float32,
overlaps in float32, equal scores in the order of their boxes. Quantised inputs are made real number by number as they
are read. What the reference leaves unwritten is zeros; where it stops because a box is empty, nothing is detected.
"""

from __future__ import annotations

import math

import numpy as np

from ...models.tensor import Tensor
from .operator import Lowering, lowering, require

_NAMES = ("max_detections", "max_classes_per_detection", "num_classes")
_REALS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")


def _shapes(work: Lowering) -> list[tuple[int, ...]]:
    most, each, _ = (int(value) for value in work.custom(*_NAMES))
    count = most * each
    return [(1, count, 4), (1, count), (1, count), (1,)]


@lowering("TFLite_Detection_PostProcess", shapes=_shapes)
def detection(work: Lowering) -> None:
    """Inputs: encoded boxes [1, N, 4 or more], scores [1, N, classes, one more with a background], anchors [N, 4]."""
    most, each, classes = (int(value) for value in work.custom(*_NAMES))
    require(min(most, each, classes) >= 1, f"it detects {most} boxes of {each} of {classes} classes")
    others = work.operator.custom_options()
    regular, of_class = others.get("use_regular_nms", False), max(int(others.get("detections_per_class", 100)), 1)
    encoded, scores, anchors = (work.tensor(i) for i in range(3))
    outputs = [work.output(i) for i in range(4)]
    forms = [list(tensor.shape) for tensor in (encoded, scores, anchors)]
    fits = len(encoded.shape) == len(scores.shape) == 3 and anchors.shape == (encoded.shape[1], 4)
    require(fits, f"boxes {forms[0]}, scores {forms[1]} and anchors {forms[2]} do not fit")
    count, pitch, columns = encoded.shape[1], encoded.shape[2], scores.shape[2]
    one_image = (encoded.shape[0], scores.shape[:2]) == (1, (1, count)) and pitch >= 4
    require(one_image, f"boxes {forms[0]} and scores {forms[1]} are not of one image")
    require(0 <= columns - classes <= 1, f"its scores have {columns} columns for {classes} classes")
    room = math.prod(outputs[1].shape)
    fits = [math.prod(t.shape) for t in outputs] == [4 * room, room, room, 1]
    fits = fits and all(t.dtype == "float32" for t in outputs)
    require(fits, "its outputs are not the boxes, classes, scores and number of one image")
    macros = _macros(work, encoded, scores, anchors)

    inputs = [work.read(i, name) for i, name in enumerate(("encoded", "scores", "anchors"))]
    areas: list[tuple[str, tuple[int, ...], str]] = [
        ("boxes", (count, 4), "float32"),
        ("best", (count,), "float32"),
        ("order", (count,), "int32"),
        ("spare", (count,), "int32"),
        ("free", (count,), "uint8"),
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


def _macros(work: Lowering, encoded: Tensor, scores: Tensor, anchors: Tensor) -> dict[str, str]:
    """What the C text has to know of types, quantisation and options; real numbers are float32."""
    names = ("THRESHOLD", "OVERLAP", "Y_SCALE", "X_SCALE", "H_SCALE", "W_SCALE")
    reals = [float(np.float32(value)) for value in work.custom(*_REALS)]
    sound = all(map(math.isfinite, reals)) and 0.0 not in reals[2:] and 0 < reals[1] <= 1
    require(sound, f"its thresholds and scales are {reals}")
    macros = {name: f"({value.hex()}f)" for name, value in zip(names, reals, strict=True)}
    for name, tensor, wide in (("BOX", encoded, True), ("SCORE", scores, False), ("ANCHOR", anchors, True)):
        plain, scale = tensor.dtype == "float32", float(np.float32(tensor.scale)).hex()
        known = plain or (tensor.dtype == "uint8" and tensor.scale)
        require(known, f"tensor {tensor.name!r} is {tensor.dtype}; the references take float32 or uint8")
        macros[f"{name}_TYPE"] = "float" if plain else "uint8_t"
        real = "(x)" if plain else f"(((float)(x) - {tensor.zero_point}) * {scale}f)"
        macros[f"{name}(x)"] = f"((double){real})" if wide else real
    return macros
