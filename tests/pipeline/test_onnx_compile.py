"""ONNX files on the command line: QDQ models for the NPU, float models for the host, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from fvp_runner import runner  # noqa: E402
from fvp_runner.references.base import ReferenceRunError  # noqa: E402
from fvp_runner.references.other_formats import OnnxReference  # noqa: E402
from npu_memplan.artifact import Artifact  # noqa: E402
from npu_memplan.compiler import compile_model  # noqa: E402
from npu_memplan.frontend.attributes import HostOpsError  # noqa: E402
from npu_memplan.frontend.errors import TvmFrontendError  # noqa: E402
from npu_memplan.frontend.load import FormatError  # noqa: E402
from npu_memplan.models.flatbuffer import UnsupportedModelError  # noqa: E402
from npu_memplan.models.frameworks import DynamicShapeError, OnnxError  # noqa: E402
from npu_memplan.options import CompileOptions  # noqa: E402
from npu_memplan.problem import Agent  # noqa: E402
from npu_memplan.report.facts.dearest import dearest_lines, operator_times  # noqa: E402
from tests.support.entry import invoke  # noqa: E402
from tests.support.inputs import load_inputs  # noqa: E402
from tests.support.onnx_graph import Graph  # noqa: E402

OUT_STEP = 0.02


def quantised(path: Path, dtype: type = np.int8) -> Path:
    """Convolutions, a residual addition and a classifier for the NPU around an Erf that only the host has."""
    g = Graph(dtype)
    x = g.stored("image", "x", 1 / 128, 0)
    a = g.stored(g.node("Relu", [g.conv(x, "c1", (8, 3, 3, 3), 1 / 128)], "r1"), "a", 0.02, -128)
    b = g.stored(g.conv(a, "c2", (8, 8, 1, 1), 0.02), "b", 0.03, 3)
    s = g.stored(g.node("Add", [a, b], "sum"), "s", 0.04, -20)
    e = g.stored(g.node("Erf", [s], "erf"), "e", 1 / 127, 0)
    d = g.conv(e, "c3", (8, 1, 3, 3), 1 / 127, strides=[2, 2], group=8)
    d = g.stored(g.node("Relu", [d], "r3"), "d", 0.02, -128)
    p = g.stored(g.node("GlobalAveragePool", [d], "pool"), "p", 0.01, -128)
    f = g.stored(g.node("Flatten", [p], "flat"), "f", 0.01, -128)
    w = g.weights("fc", g.rng.integers(-127, 128, (5, 8)).astype(np.int8), np.array(0.01, np.float32))
    g.stored(g.node("Gemm", [f, w], "logits", transB=1), "out", OUT_STEP, 0)
    return g.save(path)


def floating(path: Path, shape: tuple[Any, ...] = (1, 3, 8, 8)) -> Path:
    """Convolution, max pool, global pool, classifier; no exponentials, so two compilers agree to the bit."""
    g = Graph()
    normal = {n: g.rng.normal(0, 0.4, s).astype(np.float32) for n, s in (("w", (8, 3, 3, 3)), ("b", 8), ("fc", (5, 8)))}
    w, b, fc = (g.constant(name, values) for name, values in normal.items())
    r = g.node("Relu", [g.node("Conv", ["image", w, b], "y", pads=[1] * 4)], "r")
    p = g.node("GlobalAveragePool", [g.node("MaxPool", [r], "p", kernel_shape=[2, 2], strides=[2, 2])], "g")
    g.node("Gemm", [g.node("Flatten", [p], "f"), fc], "out", transB=1)
    return g.save(path, shape)


def ours(folder: Path, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    created = runner.create("local", folder)
    inputs = load_inputs(created.artifact, [f"random:{seed}"])
    return inputs, created.run(inputs).outputs[0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "ethos-u65-256"])
def test_a_quantised_model_runs_on_npu_and_host_within_one_step(dtype: type, accelerator: str, tmp_path: Path) -> None:
    model = quantised(tmp_path / "q.onnx", dtype)
    options = CompileOptions(accelerator=accelerator, npu_compiler="tvm", objective="bytes")
    artifact = compile_model(model, options, tmp_path / "out")
    kinds = {(o.kind, o.agent) for o in artifact.operators}
    assert {("Conv", Agent.NPU), ("Add", Agent.NPU), ("Gemm", Agent.NPU), ("Erf", Agent.HOST)} <= kinds
    assert "Erf" in artifact.notes[0]
    inputs, found = ours(tmp_path / "out", 1)
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": inputs[0]})
    assert len(np.unique(wanted)) > 2
    assert np.abs(found - wanted).max() <= OUT_STEP * 1.001


def test_operators_are_the_nodes_of_the_file(tmp_path: Path) -> None:
    model = onnx.load(quantised(tmp_path / "q.onnx"))
    model.graph.node[[n.op_type for n in model.graph.node].index("Erf")].name = "/body/Erf"
    onnx.save(model, tmp_path / "q.onnx")
    artifact = compile_model(
        tmp_path / "q.onnx", CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out"
    )
    border = "it converts what operators on the host read or write"
    assert [(o.name, o.kind, o.reason) for o in artifact.operators] == [
        ("x_q", "QuantizeLinear", border),
        ("c1", "Conv", ""),
        ("r1", "Relu", ""),
        ("c2", "Conv", ""),
        ("sum", "Add", ""),
        ("s", "DequantizeLinear", border),
        ("/body/Erf", "Erf", "no NPU pattern matches it"),
        ("e_q", "QuantizeLinear", border),
        ("c3", "Conv", ""),
        ("r3", "Relu", ""),
        ("pool", "GlobalAveragePool", ""),
        ("flat", "Flatten", ""),
        ("logits", "Gemm", ""),
        ("out", "DequantizeLinear", border),
    ]
    assert all((o.agent is Agent.HOST) == bool(o.reason) for o in artifact.operators)
    host = compile_model(tmp_path / "q.onnx", CompileOptions(accelerator="none"), tmp_path / "host")
    assert {o.reason for o in host.operators} == {"no NPU was requested"}
    assert "c1w" not in {o.name for o in host.operators}  # constants are folded


def test_times_are_of_the_nodes_of_the_file(tmp_path: Path) -> None:
    artifact = compile_model(
        quantised(tmp_path / "m.onnx"), CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out"
    )
    times = operator_times(artifact)
    assert sum(row.cycles for row in times if row.agent is Agent.NPU) == artifact.estimated_cycles
    assert sum(row.cycles for row in times if row.agent is Agent.HOST) == artifact.host_cycles
    agents = {row.name: row.agent for row in times if row.name in ("r1", "c2", "erf", "logits")}
    assert agents == {"r1": Agent.NPU, "c2": Agent.NPU, "erf": Agent.HOST, "logits": Agent.NPU}
    assert [row.name for row in times if row.operator < 0] == []
    for row in times:
        assert f"about {row.cycles:,} cycles" in invoke("explain", tmp_path / "out", row.name).output
    assert "c2" in [line.split()[0] for line in dearest_lines(artifact)]


def test_a_call_of_the_cpu_is_the_node_that_it_computes_whatever_its_function_is_called(tmp_path: Path) -> None:
    compile_model(floating(tmp_path / "f.onnx"), CompileOptions(accelerator="none"), tmp_path / "out")
    artifact = Artifact.load(tmp_path / "out")
    found = {row.function: artifact.operators[row.operator].kind for row in artifact.host_layers if row.operator >= 0}
    assert (found["conv2d"], found["add"], found["max_pool2d"], found["mean"]) == (
        "Conv", "Conv", "MaxPool", "GlobalAveragePool",
    )  # fmt: skip
    said = invoke("explain", tmp_path / "out", "conv").output
    (conv,) = (i for i, call in enumerate(artifact.calls) if call.function == "conv2d")
    assert f"call {conv} of main, on the host" in said


def test_advice_says_that_it_is_for_tflite(tmp_path: Path) -> None:
    compile_model(floating(tmp_path / "f.onnx"), CompileOptions(accelerator="none"), tmp_path / "out")
    done = invoke("explain", tmp_path / "out", "--advise", code=None)
    assert "was compiled from f.onnx, and advice changes TFLite files alone" in str(done.exception)


def test_host_ops_are_onnx_operators(tmp_path: Path) -> None:
    model = quantised(tmp_path / "q.onnx")
    artifact = compile_model(
        model, CompileOptions(npu_compiler="tvm", host_ops=("ADD", "GEMM"), objective="bytes"), tmp_path / "out"
    )
    agents = {o.name: (o.agent, o.reason) for o in artifact.operators}
    assert agents["sum"] == agents["logits"] == (Agent.HOST, "kept on the CPU by --host-ops")
    assert agents["c2"] == (Agent.NPU, "")
    inputs, found = ours(tmp_path / "out", 1)
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": inputs[0]})
    assert np.abs(found - wanted).max() <= OUT_STEP * 1.001
    with pytest.raises(HostOpsError, match=r"'SUB'.*it has: Add, Conv, Erf, Flatten, Gemm, GlobalAveragePool, Relu$"):
        compile_model(
            model, CompileOptions(npu_compiler="tvm", host_ops=("SUB",), objective="bytes"), tmp_path / "other"
        )


def test_a_float_model_becomes_plain_c(tmp_path: Path) -> None:
    model = floating(tmp_path / "f.onnx")
    out = str(tmp_path / "out")
    made = invoke("compile", model, "--accelerator", "none", "-o", out, "--json")
    assert json.loads(made.stdout)["npu_operations"] == 0
    ran = invoke("run", out, "--on", "local", "--reference", model, "--json")
    result = json.loads(ran.stdout)
    assert (result["bit_exact"], result["reference"]) == (True, "TVM's Relax VM, without a plan")
    inputs, found = ours(tmp_path / "out", 3)
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": inputs[0]})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_wrong_result_differs_from_the_reference(tmp_path: Path) -> None:
    compile_model(floating(tmp_path / "f.onnx"), CompileOptions(accelerator="none"), tmp_path / "out")
    g = Graph()
    w = g.constant("w", np.ones((5, 192), np.float32))
    g.node("Gemm", [g.node("Flatten", ["image"], "f"), w], "out", transB=1)
    other = str(g.save(tmp_path / "other.onnx"))
    ran = invoke("run", tmp_path / "out", "--on", "local", "--reference", other, code=1)
    assert ran.stdout.startswith("against TVM's Relax VM, without a plan: NOT bit-exact\n")


def test_the_reference_checks_its_inputs(tmp_path: Path) -> None:
    reference = OnnxReference(floating(tmp_path / "f.onnx"))
    with pytest.raises(ReferenceRunError, match="takes 1 input, but got 2"):
        reference.run([np.zeros(1), np.zeros(1)])
    with pytest.raises(ReferenceRunError, match=r"must be float32\[1, 3, 8, 8\], but is float64\[1\]"):
        reference.run([np.zeros(1)])


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:300])
    return path


def flipped(path: Path) -> Path:
    model = onnx.load(path)
    model.graph.node[0].input[0] = "nothing"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda p: cut(floating(p)), OnnxError, "m.onnx is no readable ONNX model: .*; export it again"),
        (lambda p: flipped(floating(p)), OnnxError, "m.onnx is no readable ONNX model"),
        (lambda p: [p.write_bytes(b""), p][1], OnnxError, "m.onnx is no readable ONNX model"),
        (lambda p: floating(p, ("N", 3, 8, 8)), DynamicShapeError, r"\[N, 3, 8, 8\]: dimension 0 \(N\) is not"),
    ],
)
def test_bad_files_get_one_message(make: Any, error: type, message: str, tmp_path: Path) -> None:
    model = make(tmp_path / "m.onnx")
    with pytest.raises(error, match=message) as caught:
        compile_model(model, CompileOptions(accelerator="none"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_operators_that_tvm_does_not_know(tmp_path: Path) -> None:
    g = Graph()
    g.node("Det", ["image"], "out")
    with pytest.raises(TvmFrontendError, match=r"cannot import m.onnx: .*Det"):
        compile_model(g.save(tmp_path / "m.onnx", classes=3), CompileOptions(accelerator="none"), tmp_path / "out")


def test_the_format_that_is_read_is_named_where_operators_are_quantised_themselves(tmp_path: Path) -> None:
    g = Graph()
    g.node("QLinearMatMul", ["image"] * 8, "out")
    with pytest.raises(TvmFrontendError, match=r"cannot import m.onnx: .*QLinearMatMul; quantise it in the QDQ format"):
        compile_model(g.save(tmp_path / "m.onnx", classes=3), CompileOptions(accelerator="none"), tmp_path / "out")


def test_results_of_unknown_shape_and_branches_are_named(tmp_path: Path) -> None:
    g = Graph()
    g.node("Cast", [g.node("NonZero", ["image"], "n")], "out", to=TensorProto.FLOAT)
    model = g.save(tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModelError, match=r"nonzero .*\n.*operators of static shapes"):
        compile_model(model, CompileOptions(accelerator="none"), tmp_path / "out")
    branches = Graph()
    parts = {}
    for which, kind in (("then_branch", "Relu"), ("else_branch", "Neg")):
        value = helper.make_tensor_value_info(which, TensorProto.FLOAT, None)
        parts[which] = helper.make_graph([helper.make_node(kind, ["image"], [which])], which, [], [value])
    branches.node("If", [branches.constant("c", np.array(True))], "out", **parts)
    with pytest.raises(UnsupportedModelError, match=r"m.onnx has If: a compiled model is one straight line"):
        compile_model(branches.save(tmp_path / "m.onnx"), CompileOptions(accelerator="none"), tmp_path / "out")


def test_vela_cannot_read_onnx(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"add --npu-compiler tvm .* or --accelerator none"):
        compile_model(
            floating(tmp_path / "m.onnx"), CompileOptions(npu_compiler="vela", objective="bytes"), tmp_path / "out"
        )


def test_onnx_is_lowered_by_us_where_nobody_is_asked_for(tmp_path: Path) -> None:
    model = floating(tmp_path / "m.onnx")
    artifact = compile_model(model, CompileOptions(objective="bytes", effort="quick"), tmp_path / "out")
    compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes", effort="quick"), tmp_path / "asked")
    assert artifact.target.npu_compiler == "tvm"
    assert (tmp_path / "out" / "plan.json").read_bytes() == (tmp_path / "asked" / "plan.json").read_bytes()
