"""TFLite_Detection_PostProcess against tflite-micro (float inputs) and LiteRT (quantised ones)."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.frontend.host_ops import complete_operators, unsupported_reason
from npu_memplan.models.tflite import read_network
from tests.support.in_steps import equals_reference
from tests.support.tflite_builder import ModelBuilder

R = np.random.default_rng(5)


def model(boxes=40, classes=3, background=1, most=10, each=1, kind="float32", shapes=True, pitch=4, **options) -> bytes:
    graph = ModelBuilder()
    scale = {} if kind == "float32" else {"boxes": (0.04, 117), "scores": (1 / 256, 0), "anchors": (0.004, 3)}
    encoded = graph.tensor((1, boxes, pitch), kind, *scale.get("boxes", ()))
    scores = graph.tensor((1, boxes, classes + background), kind, *scale.get("scores", ()))
    anchors = R.uniform(0.1, 0.9, (boxes, 4)).astype(np.float32)
    if kind == "uint8":
        anchors = np.round(anchors / 0.004).astype(np.uint8)
    table = graph.constant(anchors, *scale.get("anchors", ()))
    count = most * each
    sizes = ((1, count, 4), (1, count), (1, count), (1,)) if shapes else ((), (), (), ())
    outputs = [graph.tensor(shape, "float32") for shape in sizes]
    numbers = {
        "max_detections": most, "max_classes_per_detection": each, "num_classes": classes, "nms_score_threshold": -9.0,
        "nms_iou_threshold": 0.6, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, **options,
    }  # fmt: skip
    graph.operator("custom:TFLite_Detection_PostProcess", [encoded, scores, table], outputs, **numbers)
    return graph.made([encoded, scores], outputs).finish()


def draw(generator, slot):
    """Scores with ties, boxes of ordinary size."""
    if slot.dtype == "uint8":
        return generator.integers(90, 150, slot.shape).astype(np.uint8)
    values = generator.standard_normal(slot.shape)
    return (np.round(values * 4) / 8 + 0.5 if slot.shape[2] != 4 else values).astype(np.float32)


CASES = {
    "fast": {},
    "fast, many": {"boxes": 300, "classes": 7, "most": 20, "nms_iou_threshold": 0.2},
    "fast, no background": {"background": 0, "classes": 5, "pitch": 6},
    "regular": {"use_regular_nms": True, "detections_per_class": 5},
    "regular, few": {"use_regular_nms": True, "nms_score_threshold": 0.9, "most": 40},
    "regular, many": {"use_regular_nms": True, "boxes": 300, "classes": 7, "most": 20, "nms_iou_threshold": 0.3},
    "fast, uint8": {"kind": "uint8"},
    "fast, uint8, unsized": {"kind": "uint8", "shapes": False, "boxes": 200, "classes": 4, "most": 15},
    "fast, uint8, many": {"kind": "uint8", "boxes": 300, "most": 20, "nms_iou_threshold": 0.2, "w_scale": 3.0},
    "regular, uint8, many": {"kind": "uint8", "use_regular_nms": True, "shapes": False, "boxes": 300, "most": 30},
    "regular, uint8": {"kind": "uint8", "use_regular_nms": True, "shapes": False, "most": 30},
}


@pytest.mark.parametrize("case", CASES)
def test_detections_are_the_references(case, tmp_path):
    artifact = equals_reference(model(**CASES[case]), tmp_path, 3, draw=draw)
    (operator,) = artifact.operators
    assert operator.claim.reference == ("LiteRT" if "uint8" in case else "tflite-micro")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "int8"}, "is int8; the references take float32 or uint8"),
        ({"nms_iou_threshold": 0.0}, "its thresholds and scales are"),
        ({"classes": 2, "num_classes": 4}, "its scores have 3 columns for 4 classes"),
        ({"max_detections": 0}, "it detects 0 boxes"),
    ],
)
def test_what_the_references_refuse_is_refused(changes, reason):
    network = complete_operators(read_network(model(**changes)))
    assert reason in (unsupported_reason(network, network.cpu_operators[0]) or "")
