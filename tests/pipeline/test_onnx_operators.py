"""ONNX operators that TVM's frontend expands are on the NPU, by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_graph import Graph  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

from fvp_runner import runner  # noqa: E402
from npu_memplan.commands.run import load_inputs  # noqa: E402
from npu_memplan.options import CompileOptions  # noqa: E402
from npu_memplan.pipeline import compile_model  # noqa: E402
from npu_memplan.problem import Agent  # noqa: E402

STEP = 0.05


def relu6(g: Graph, x: str) -> str:
    bounds = [g.constant("low", np.array(0, np.float32)), g.constant("high", np.array(6, np.float32))]
    return g.node("Clip", [g.conv(x, "c", (4, 3, 3, 3), STEP), *bounds], "/net/6/Clip:0")


def padded(g: Graph, x: str) -> str:
    pads = g.constant("pads", np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    return g.conv(g.stored(g.node("Pad", [x, pads], "p"), "q", STEP, 3), "c", (4, 3, 3, 3), STEP)


def hard_swish(g: Graph, x: str) -> str:
    return g.node("HardSwish", [x], "h")


def compiled(build: Callable[[Graph, str], str], folder: Path) -> tuple[Path, list[tuple[str, str, Agent]]]:
    g = Graph()
    result = g.stored(build(g, g.stored("image", "x", STEP, 3)), "y", STEP, 3)
    g.node("Identity", [result], "out")
    shapes = {relu6: (1, 4, 8, 8), padded: (1, 4, 9, 11), hard_swish: (1, 3, 8, 8)}
    model = g.save(folder / "m.onnx", result=shapes[build])
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm"), folder / "out")
    return model, [(o.name, o.kind, o.agent) for o in artifact.operators]


@pytest.mark.parametrize(
    "build, expected",
    [
        (relu6, [("c", "Conv", Agent.NPU), ("/net/6/Clip:0", "Clip", Agent.NPU)]),
        (padded, [("p", "Pad", Agent.NPU), ("c", "Conv", Agent.NPU)]),
        (hard_swish, [("h", "HardSwish", Agent.NPU)]),
    ],
)
def test_on_the_npu_within_one_step(
    build: Callable[[Graph, str], str], expected: list[tuple[str, str, Agent]], tmp_path: Path
) -> None:
    model, operators = compiled(build, tmp_path)
    assert [o for o in operators if o[1] not in ("QuantizeLinear", "DequantizeLinear")] == expected
    npu = runner.create("host", tmp_path / "out")
    inputs = load_inputs(npu.artifact, ["random:2"])
    inputs = [np.float32(3) * i for i in inputs]
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": inputs[0]})
    assert len(np.unique(wanted)) > 20
    assert np.abs(npu.run(inputs).outputs[0] - wanted).max() <= STEP * 1.001


@pytest.mark.parametrize("build, operator", [(relu6, "relax.clip"), (padded, "relax.nn.pad")])
def test_tvm_still_expands_what_is_repaired(build: Callable[[Graph, str], str], operator: str, tmp_path: Path) -> None:
    """When this fails, the repair in frontend/onnx_repairs.py is unnecessary."""
    model, _ = compiled(build, tmp_path)
    assert operator not in from_onnx(onnx.load(model)).script().replace("R.", "relax.")
