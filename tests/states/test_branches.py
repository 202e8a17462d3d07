"""IF: one of two subgraphs; WHILE: one again and again. On the host."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.compiler import compile_model
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.options import CompileOptions
from tests.support.in_steps import HOST, any_value, equals_reference
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


def nested() -> bytes:
    """An IF in one of the branches."""
    shapes = ((), "bool"), (SHAPE, "int8", 0.05, 3)
    inner, other = ModelBuilder(), ModelBuilder()
    for graph in (inner, other):
        made = [graph.tensor(*s) for s in (*shapes, shapes[1])]
        if graph is inner:
            graph.operator("IF", made[:2], made[2:], "IfOptions", ThenSubgraphIndex=3, ElseSubgraphIndex=4)
        else:
            graph.operator("RELU", made[1:2], made[2:])
        graph.made(made[:2], made[2:])
    outer = ModelBuilder([inner, other, branch("ADD MUL"), branch("SUB")])
    given, y = [outer.tensor(*s) for s in (shapes[0], *shapes)], outer.tensor(*shapes[1])
    outer.operator("IF", given, [y], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    return outer.made(given, [y]).finish()


def inside_itself() -> bytes:
    graph = ModelBuilder()
    made = [graph.tensor((), "bool"), graph.tensor(SHAPE, "int8", 0.05, 3), graph.tensor(SHAPE, "int8", 0.05, 3)]
    graph.operator("IF", made[:2], made[2:], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=1)
    outer = ModelBuilder([graph.made(made[:2], made[2:])])
    given, y = [outer.tensor((), "bool"), outer.tensor((), "bool"), outer.tensor(SHAPE, "int8", 0.05, 3)], 3
    outer.tensor(SHAPE, "int8", 0.05, 3)
    outer.operator("IF", given, [y], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=1)
    return outer.made(given, [y]).finish()


def turning(limit: int, swaps: bool = False) -> ModelBuilder:
    """A loop over a counter and two maps: their sum, and the second one or (`swaps`) the first as it was."""
    state = (((), "int32"), (SHAPE, "int8", 0.05, 3), (SHAPE, "int8", 0.05, 3))
    condition, body = ModelBuilder(), ModelBuilder()
    given, go = [condition.tensor(*s) for s in state], condition.tensor((), "bool")
    condition.operator("LESS", [given[0], condition.constant(np.array(limit, np.int32))], [go], "LessOptions")
    condition.made(given, [go])
    i, x, y = (body.tensor(*s) for s in state)
    j, z = (body.tensor(*s) for s in state[:2])
    body.operator("ADD", [i, body.constant(np.array(1, np.int32))], [j], "AddOptions")
    body.operator("ADD", [x, y], [z], "AddOptions")
    body.made([i, x, y], [j, z, x] if swaps else [j, z, y])
    outer = ModelBuilder([condition, body])
    first, last = ([outer.tensor(*s) for s in state] for _ in range(2))
    outer.operator("WHILE", first, last, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    limited = outer.tensor(*state[1])
    outer.operator("RELU", last[1:2], [limited])
    return outer.made(first, [limited, *last])


def assigning() -> bytes:
    """A loop whose body assigns a variable."""
    loop = turning(2)
    body = loop.subgraphs[1]
    handle = body.tensor((), "resource")
    body.operators[:0] = [("VAR_HANDLE", [], [handle], "VarHandleOptions", {"SharedName": "v"}, 1),
                          ("ASSIGN_VARIABLE", [handle, 1], [], "AssignVariableOptions", {}, 1)]  # fmt: skip
    return loop.finish()


def at_its_limit() -> bytes:
    """A branch of two operators whose sums nothing reads: their results have one value."""
    form = (SHAPE, "int8", 0.05, 127)
    inner, other = ModelBuilder(), ModelBuilder()
    for graph in (inner, other):
        made = [graph.tensor((), "bool"), *(graph.tensor(*form) for _ in range(3))]
        if graph is inner:
            graph.operator("MUL", [1, 1], [2], "MulOptions", FusedActivationFunction=3)
            graph.operator("MUL", [1, 2], [3], "MulOptions", FusedActivationFunction=3)
        else:
            graph.operator("IF", made[:2], made[3:], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=1)
        graph.made(made[:2], made[3:])
    inner.inputs = inner.inputs[1:]
    outer = ModelBuilder([inner, other])
    given, y = [outer.tensor((), "bool"), outer.tensor((), "bool"), outer.tensor(*form)], outer.tensor(*form)
    outer.operator("IF", given, [y], "IfOptions", ThenSubgraphIndex=2, ElseSubgraphIndex=2)
    return outer.made(given, [y]).finish()


def small(generator: np.random.Generator, slot: TensorSlot) -> np.ndarray:
    """Counters that are below, at and above what loops compare them with."""
    if slot.dtype == "int32":
        return generator.integers(-2, 5, slot.shape).astype(np.int32)
    return any_value(generator, slot)


TVM = CompileOptions(npu_compiler="tvm", objective="bytes")


@pytest.mark.parametrize(
    ("case", "options"),
    [(nested(), HOST), (nested(), TVM), (CASES["two results"], TVM), *((turning(3, s).finish(), HOST) for s in (0, 1)),
     (turning(2).finish(), CompileOptions(objective="bytes", effort="quick")), (turning(2, True).finish(), TVM)],
)  # fmt: skip
def test_loops_and_branches_in_one_function(case, options, tmp_path):
    artifact = equals_reference(case, tmp_path, 8, options, small)
    assert {o.claim.exactness.value for o in artifact.operators} == {"exact"}


@pytest.mark.parametrize("options", [HOST, TVM], ids=lambda o: o.accelerator)
@pytest.mark.parametrize("condition", [True, False])
def test_a_constant_condition_takes_one_branch(condition, options, tmp_path):
    """The branch that is not taken returns what it is given, the other one computes."""
    graph = ModelBuilder([branch("ADD MUL"), branch("")])
    data, given = graph.tensor(SHAPE, "int8", 0.05, 3), graph.constant(np.array([condition]))
    chosen, limited = (graph.tensor(SHAPE, "int8", 0.05, 3) for _ in range(2))
    graph.operator("IF", [given, data], [chosen], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    graph.operator("RELU", [chosen], [limited])
    artifact = equals_reference(graph.made([data], [limited, chosen]).finish(), tmp_path, 2, options)
    assert not any(call.conditional for call in artifact.calls)


def test_a_branch_keeps_no_sum_that_nothing_reads(tmp_path):
    """Names that clash in one function have numbers behind them; compilers warn of what is set and not read."""
    equals_reference(at_its_limit(), tmp_path)


def test_what_a_loop_needs_between_its_operators_is_planned(tmp_path):
    artifact = equals_reference(turning(4).finish(), tmp_path, 4, HOST, small)
    names = {buffer.name for buffer in artifact.problem.buffers}
    assert {"loop.again", "loop.g2_t3", "loop.g2_t4"} <= names


@pytest.mark.parametrize(
    "options", [HOST, CompileOptions(objective="bytes", effort="quick")], ids=lambda o: o.accelerator
)
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
        (model(branch("ADD"), branch("SUB"), kind="WHILE"), HOST, "its condition, subgraph 1, does not give one bool"),
        (model(branch("ADD", 2), branch("SUB")), HOST, "subgraph 1 has other inputs or outputs than the operator"),
        (inside_itself(), HOST, "subgraph 1 has other inputs or outputs than the operator"),
        (assigning(), HOST, "operator 0 VAR_HANDLE of subgraph 2: it stands in a branch or a loop"),
    ],
)
def test_what_cannot_be_expressed_is_refused(made, options, message, tmp_path):
    (tmp_path / "m.tflite").write_bytes(made)
    with pytest.raises(UnsupportedModelError, match=message):
        compile_model(tmp_path / "m.tflite", options, tmp_path / "artifact")
