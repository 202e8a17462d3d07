"""A map that is long unused leaves a fast pool that is too small, where a slow pool for good takes more cycles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.tuning.cascades import CascadeCache
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")


def hourglass() -> ModelBuilder:
    """Convolutions in half the resolution between a map and its second reader."""
    rng, b = np.random.default_rng(5), ModelBuilder()
    x = b.tensor((1, 32, 32, 16), "int8", 0.05)

    def conv(source: int, depth: int, made: int, kernel: int, stride: int, extent: int) -> int:
        y = b.tensor((1, extent, extent, made), "int8", 0.05)
        scale = 0.02 / kernel / depth**0.5
        weights = b.constant(rng.integers(-40, 40, (made, kernel, kernel, depth)).astype(np.int8), scale)
        bias = b.constant(np.zeros(made, np.int32), 0.05 * scale)
        b.operator("CONV_2D", [source, weights, bias], [y], "Conv2DOptions", 3, Padding=0, StrideH=stride,
                   StrideW=stride, DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=0)  # fmt: skip
        return y

    early = conv(x, 16, 32, 3, 1, 32)
    inner = conv(early, 32, 128, 3, 2, 16)
    for _ in range(5):
        inner = conv(inner, 128, 128, 1, 1, 16)
    inner = conv(inner, 128, 32, 1, 1, 16)
    up, y = b.tensor((1, 32, 32, 32), "int8", 0.05), b.tensor((1, 32, 32, 32), "int8", 0.1)
    size = b.constant(np.array([32, 32], np.int32))
    b.operator("RESIZE_NEAREST_NEIGHBOR", [inner, size], [up], "ResizeNearestNeighborOptions", 3)
    b.operator("ADD", [up, early], [y], "AddOptions", 2, FusedActivationFunction=0)
    return b.made([x], [y])


def test_a_long_unused_map_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CascadeCache, "cut_forms", lambda *_: iter(()))  # stripes take fewer cycles here
    model = tmp_path / "hourglass.tflite"
    model.write_bytes(hourglass().finish())
    options = CompileOptions("ethos-u85-1024", effort="quick", pools={"sram": 84_000})
    artifact = compile_model(model, options, tmp_path / "out")
    pools = {p.buffer: p.pool for p in artifact.plan.placements}
    (away,) = (name for name in pools if name.endswith("_away"))
    assert pools[away] == "dram"
    assert pools[away.removesuffix("away") + "again"] == pools[away.removesuffix("_away")] == "sram"
    inputs = [np.random.default_rng(1).integers(-128, 128, (1, 32, 32, 16)).astype(np.int8)]
    (found,) = runner.create("local", tmp_path / "out").run(inputs).outputs
    (wanted,) = TFLiteReference(model.read_bytes()).run(inputs)
    assert np.array_equal(found, wanted)
