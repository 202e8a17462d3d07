"""ONNX operators that TVM's frontend expands are on the NPU, by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from onnx.reference import ReferenceEvaluator  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

from fvp_runner import runner  # noqa: E402
from npu_memplan.compiler import compile_model  # noqa: E402
from npu_memplan.frontend.errors import TvmFrontendError  # noqa: E402
from npu_memplan.options import CompileOptions  # noqa: E402
from npu_memplan.problem import Agent  # noqa: E402
from tests.support.inputs import load_inputs  # noqa: E402
from tests.support.onnx_graph import Graph  # noqa: E402

STEP = 0.05


def relu6(g: Graph, x: str) -> str:
    bounds = [g.constant("low", np.array(0, np.float32)), g.constant("high", np.array(6, np.float32))]
    return g.node("Clip", [g.conv(x, "c", (4, 3, 3, 3), STEP), *bounds], "/net/6/Clip:0")


def padded(g: Graph, x: str) -> str:
    pads = g.constant("pads", np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    return g.conv(g.stored(g.node("Pad", [x, pads], "p"), "q", STEP, 3), "c", (4, 3, 3, 3), STEP)


def convolve_same(g: Graph, x: str, mode: str) -> str:
    """A convolution that pads by itself, an odd number of columns."""
    w = g.weights("w", g.rng.integers(-127, 128, (4, 3, 3, 2)).astype(np.int8), np.full(4, 0.004, np.float32))
    return g.node("Conv", [x, w], "c", auto_pad=mode, strides=[2, 1], kernel_shape=[3, 2])


def same_upper(g: Graph, x: str) -> str:
    return convolve_same(g, x, "SAME_UPPER")


def same_lower(g: Graph, x: str) -> str:
    return convolve_same(g, x, "SAME_LOWER")


def hard_swish(g: Graph, x: str) -> str:
    return g.node("HardSwish", [x], "h")


def concatenated(g: Graph, x: str) -> str:
    parts = [g.stored(g.conv(x, name, (n, 3, 3, 3), STEP), f"{name}s", STEP, 3) for name, n in (("a", 4), ("b", 8))]
    return g.conv(g.stored(g.node("Concat", parts, "p", axis=1), "q", STEP, 3), "c", (4, 12, 1, 1), STEP)


def split(g: Graph, x: str) -> str:
    a = g.stored(g.conv(x, "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    g.nodes.append(onnx.helper.make_node("Split", [a, g.constant("n", np.array([2, 6]))], ["p", "r"], axis=1))
    return g.conv(g.stored("r", "rs", STEP, 3), "c", (4, 6, 1, 1), STEP)


def sliced(g: Graph, x: str) -> str:
    a = g.stored(g.conv(x, "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    box = [g.constant(n, np.array(v)) for n, v in (("begin", [1, 2]), ("end", [7, 7]), ("axes", [2, 3]))]
    return g.conv(g.stored(g.node("Slice", [a, *box], "p"), "ps", STEP, 3), "c", (4, 8, 1, 1), STEP)


def resized(g: Graph, x: str) -> str:
    a = g.stored(g.conv(x, "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    sizes = g.constant("sizes", np.array([1, 1, 2, 2], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.conv(g.stored(g.node("Resize", [a, "", sizes], "p", **how), "ps", STEP, 3), "c", (4, 8, 1, 1), STEP)


def enlarged(g: Graph, x: str) -> str:
    a = g.stored(g.conv(x, "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    values, scales = g.rng.integers(-127, 128, (8, 4, 2, 2)).astype(np.int8), np.full(4, 0.004, np.float32)
    w = g.weights("w", values, scales)
    g.nodes[-1].attribute[0].i = 1  # its output channels are the second dimension
    return g.node("ConvTranspose", [a, w], "p", strides=[2, 2])


def averaged(g: Graph, x: str) -> str:
    a = g.stored(g.conv(x, "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    return g.node("ReduceMean", [a, g.constant("axes", np.array([2, 3]))], "p", keepdims=0)


def trained(g: Graph, x: str) -> str:
    """Weights in float in front of their quantisation, as quantisation-aware training exports them; a float bias."""
    numbers = (g.rng.normal(0, 0.3, (4, 3, 3, 3)), np.full(4, 0.01), g.rng.normal(0, 1, 4))
    w, s, b = (g.constant(n, v.astype(np.float32)) for n, v in zip("wsb", numbers, strict=True))
    z = g.constant("z", np.zeros(4, np.int8))
    stored = g.node("QuantizeLinear", [w, s, z], "wq", axis=0)
    return g.node("Conv", [x, g.node("DequantizeLinear", [stored, s, z], "wd", axis=0), b], "c")


def narrowed(g: Graph, x: str) -> str:
    return g.conv(x, "c", (1, 3, 3, 3), STEP)


def likely(g: Graph, x: str) -> str:
    return g.node("Softmax", [g.stored(g.conv(x, "c", (4, 3, 1, 1), STEP), "cs", STEP, 3)], "p", axis=1)


RESULTS = {averaged: (STEP / 8, 3), likely: (1 / 256, -128)}  # scale and zero point; STEP and 3 without


def compiled(
    build: Callable[[Graph, str], str], folder: Path, shape: tuple[int, ...]
) -> tuple[Path, list[tuple[str, str, Agent]]]:
    g = Graph()
    result = g.stored(build(g, g.stored("image", "x", STEP, 3)), "y", *RESULTS.get(build, (STEP, 3)))
    g.node("Identity", [result], "out")
    model = g.save(folder / "m.onnx", result=shape)
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), folder / "out")
    return model, [(o.name, o.kind, o.agent) for o in artifact.operators]


@pytest.mark.parametrize(
    "build, shape, expected",
    [
        (relu6, (1, 4, 8, 8), {"c": "Conv", "/net/6/Clip:0": "Clip"}),
        (padded, (1, 4, 9, 11), {"p": "Pad", "c": "Conv"}),
        (same_upper, (1, 4, 4, 8), {"c": "Conv"}),
        (same_lower, (1, 4, 4, 8), {"c": "Conv"}),
        (hard_swish, (1, 3, 8, 8), {"h": "HardSwish"}),
        (concatenated, (1, 4, 8, 8), {"a": "Conv", "b": "Conv", "p": "Concat", "c": "Conv"}),
        (split, (1, 4, 8, 8), {"a": "Conv", "p": "Split", "c": "Conv"}),
        (sliced, (1, 4, 6, 5), {"a": "Conv", "p": "Slice", "c": "Conv"}),
        (resized, (1, 4, 16, 16), {"a": "Conv", "p": "Resize", "c": "Conv"}),
        (enlarged, (1, 4, 16, 16), {"a": "Conv", "p": "ConvTranspose"}),
        (averaged, (1, 8), {"a": "Conv", "p": "ReduceMean"}),
        (trained, (1, 4, 6, 6), {"c": "Conv"}),
        (narrowed, (1, 1, 8, 8), {"c": "Conv"}),
        (likely, (1, 4, 8, 8), {"c": "Conv", "p": "Softmax"}),
    ],
)
def test_on_the_npu_within_one_step(
    build: Callable[[Graph, str], str], shape: tuple[int, ...], expected: dict[str, str], tmp_path: Path
) -> None:
    model, operators = compiled(build, tmp_path, shape)
    done = {name: kind for name, kind, agent in operators if agent is Agent.NPU}
    assert done == expected
    npu = runner.create("local", tmp_path / "out")
    assert [call.agent for call in npu.artifact.calls] == [Agent.HOST, Agent.NPU, Agent.HOST]
    inputs = [np.float32(3) * i for i in load_inputs(npu.artifact, ["random:2"])]
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": inputs[0]})
    assert len(np.unique(wanted)) > 5
    assert np.abs(npu.run(inputs).outputs[0] - wanted).max() <= RESULTS.get(build, (STEP, 3))[0] * 1.001


def test_a_kernel_of_tvms_importer_stays_on_the_host_between_convolutions(tmp_path: Path) -> None:
    g = Graph()
    a = g.stored(g.conv(g.stored("image", "x", STEP, 3), "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    tiled = g.stored(g.node("Tile", [a, g.constant("n", np.array([1, 2, 1, 1]))], "t"), "ts", STEP, 3)
    g.node("Identity", [g.stored(g.conv(tiled, "c", (4, 16, 3, 3), STEP), "y", STEP, 3)], "out")
    model = g.save(tmp_path / "m.onnx", result=(1, 4, 8, 8))
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    assert {o.kind: o.agent for o in artifact.operators if o.kind in ("Conv", "Tile")} == {
        "Conv": Agent.NPU, "Tile": Agent.HOST
    }  # fmt: skip
    npu = runner.create("local", tmp_path / "out")
    (image,) = (np.float32(3) * i for i in load_inputs(npu.artifact, ["random:2"]))
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": image})
    assert np.abs(npu.run([image]).outputs[0] - wanted).max() <= STEP * 1.001


def test_a_pool_has_the_size_that_onnx_says(tmp_path: Path) -> None:
    """TVM's importer, and the evaluator of the package onnx, take a row and a column less."""
    g = Graph()
    windows = {"auto_pad": "SAME_LOWER", "strides": [2, 2], "kernel_shape": [2, 2]}
    pool = g.node("MaxPool", [g.stored("image", "x", STEP, 3)], "p", **windows)
    g.node("Identity", [g.stored(pool, "y", STEP, 3)], "out")
    model = g.save(tmp_path / "m.onnx", (1, 3, 7, 9), result=(1, 3, 4, 5))
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    assert {o.kind: o.agent for o in artifact.operators}["MaxPool"] is Agent.NPU
    image = np.random.default_rng(3).integers(-100, 100, (1, 3, 7, 9)).astype(np.float32) * np.float32(STEP)
    (found,) = runner.create("local", tmp_path / "out").run([image]).outputs
    padded = np.pad(image, [(0, 0), (0, 0), (1, 0), (1, 0)], constant_values=-np.inf)
    wanted = padded.reshape(1, 3, 4, 2, 5, 2).max(axis=(3, 5))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_results_of_other_shapes_than_the_file_says_are_refused(tmp_path: Path) -> None:
    g = Graph()
    g.node("Identity", [g.stored(g.conv("image", "c", (4, 3, 3, 3), STEP), "y", STEP, 3)], "out")
    model = g.save(tmp_path / "m.onnx", result=(1, 4, 7, 8))
    with pytest.raises(TvmFrontendError, match=r"gives out the shape \[1, 4, 8, 8\], the file says \[1, 4, 7, 8\]"):
        compile_model(model, CompileOptions(), tmp_path / "out")


def test_a_pool_that_is_not_quantised_stays_on_the_host(tmp_path: Path) -> None:
    g = Graph()
    a = g.stored(g.conv(g.stored("image", "x", STEP, 3), "a", (8, 3, 3, 3), STEP), "as", STEP, 3)
    g.node("MaxPool", [a], "out", kernel_shape=[2, 2], strides=[2, 2])
    model = g.save(tmp_path / "m.onnx", result=(1, 8, 4, 4))
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    (pool,) = (o for o in artifact.operators if o.kind == "MaxPool")
    assert (pool.agent, pool.reason) == (Agent.HOST, "its tensor of type float32 is not quantised")


@pytest.mark.parametrize("build, operator", [(relu6, "relax.clip"), (padded, "relax.nn.pad")])
def test_tvm_still_expands_what_is_repaired(build: Callable[[Graph, str], str], operator: str, tmp_path: Path) -> None:
    """When this fails, the repair in frontend/onnx.py is unnecessary."""
    g = Graph()
    g.node("Identity", [build(g, g.stored("image", "x", STEP, 3))], "out")
    shape = (1, 4, 8, 8) if build is relu6 else (1, 4, 9, 11)
    script = from_onnx(onnx.load(g.save(tmp_path / "m.onnx", result=shape))).script()
    assert operator not in script.replace("R.", "relax.")
