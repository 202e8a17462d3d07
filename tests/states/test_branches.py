"""IF: one of two subgraphs, on the host; loops are refused."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.models.file import UnsupportedModelError
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import compile_model
from tests.support.in_steps import HOST, equals_reference
from tests.support.tflite_builder import ModelBuilder

SHAPE = (1, 8)


def branch(kinds: str, outputs: int = 1) -> ModelBuilder:
    """A subgraph of operators one after another; the first outputs are the last results."""
    graph = ModelBuilder()
    made = [graph.tensor(SHAPE, "int8", 0.05, 3)]
    for kind in kinds.split():
        other = graph.constant(np.arange(-4, 4, dtype=np.int8).reshape(SHAPE), 0.1, 1)
        made.append(graph.tensor(SHAPE, "int8", 0.05, 3))
        graph.operator(kind, [made[-2], other], [made[-1]], f"{kind.capitalize()}Options")
    return graph.made(made[:1], made[::-1][:outputs])


def model(then: ModelBuilder, other: ModelBuilder, outputs: int = 1, kind: str = "IF") -> bytes:
    """The branch's outputs, and a RELU of the first."""
    graph = ModelBuilder([then, other])
    condition, data = graph.tensor((), "bool"), graph.tensor(SHAPE, "int8", 0.05, 3)
    chosen = [graph.tensor(SHAPE, "int8", 0.05, 3) for _ in range(outputs)]
    if kind == "IF":
        graph.operator(kind, [condition, data], chosen, "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    else:
        graph.operator(kind, [data], chosen, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    limited = graph.tensor(SHAPE, "int8", 0.05, 3)
    graph.operator("RELU", chosen[:1], [limited])
    return graph.made([condition, data], [limited, *chosen]).finish()


CASES = {
    "one": model(branch("ADD"), branch("SUB")),
    "one longer": model(branch("MUL SUB ADD"), branch("ADD")),
    "nothing to do": model(branch("ADD MUL"), branch("")),
    "two results": model(branch("ADD MUL", 2), branch("SUB MUL SUB", 2), 2),
}


@pytest.mark.parametrize("options", [HOST, CompileOptions()], ids=lambda o: o.accelerator)
@pytest.mark.parametrize("case", CASES)
def test_either_branch_runs(case, options, tmp_path):
    artifact = equals_reference(CASES[case], tmp_path, 8, options)
    assert {o.claim.exactness.value for o in artifact.operators} == {"exact"}
    assert any(call.conditional for call in Artifact.load(tmp_path / "artifact").calls)
    text = (tmp_path / "artifact" / "src" / "model.c").read_text()
    assert text.count("} else {") == 1


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (model(branch("ADD"), branch("SUB"), kind="WHILE"), HOST, "how often it goes round is known only when it runs"),
        (model(branch("ADD", 2), branch("SUB")), HOST, "subgraph 1 has other inputs or outputs than the operator"),
        (
            CASES["one"],
            CompileOptions(npu_compiler="tvm"),
            "has an IF, which the passes of --npu-compiler tvm do not take",
        ),
    ],
)
def test_what_cannot_be_said_is_refused(made, options, message, tmp_path):
    (tmp_path / "m.tflite").write_bytes(made)
    with pytest.raises(UnsupportedModelError, match=message):
        compile_model(tmp_path / "m.tflite", options, tmp_path / "artifact")
