"""Resource variables: states of the plan, filled by another subgraph, read and assigned in the first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.cli import cli
from npu_memplan.exactness import Exactness
from npu_memplan.frontend.tflite.lifted import import_host_only, import_tflite
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela_tflite.emit import emit
from npu_memplan.vocabulary import STATE_STARTS
from tests.support.entry import invoke
from tests.support.in_steps import HOST, any_value, equals_reference
from tests.support.needs import need_data
from tests.support.real_data import shared_folder
from tests.support.tflite_builder import ModelBuilder

SHAPE, SCALE, ZERO = (1, 4, 1, 8), 0.05, -3
PRODUCERS = [
    HOST,
    CompileOptions(npu_compiler="vela", objective="bytes"),
    CompileOptions(npu_compiler="tvm", objective="bytes"),
    CompileOptions(accelerator="ethos-u65-512", npu_compiler="tvm", objective="bytes"),
    CompileOptions(accelerator="ethos-u65-512", npu_compiler="vela", objective="bytes"),
    CompileOptions(accelerator="ethos-u85-256", npu_compiler="vela", objective="bytes"),
]


def initialiser(**values: np.ndarray) -> ModelBuilder:
    """A subgraph that assigns `values` to the variables of those names."""
    graph = ModelBuilder()
    for name, value in values.items():
        assign(graph, name, graph.constant(value, SCALE, ZERO))
    return graph


def handle(graph: ModelBuilder, name: str) -> int:
    made = graph.tensor((), "resource")
    graph.operator("VAR_HANDLE", [], [made], "VarHandleOptions", Container="", SharedName=name)
    return made


def assign(graph: ModelBuilder, name: str, value: int) -> None:
    graph.operator("ASSIGN_VARIABLE", [handle(graph, name), value], [])


def read(graph: ModelBuilder, name: str) -> int:
    value = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("READ_VARIABLE", [handle(graph, name)], [value])
    return value


def add(graph: ModelBuilder, left: int, right: int) -> int:
    total = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("ADD", [left, right], [total], "AddOptions")
    return total


def running_sum(called: bool = True) -> bytes:
    """What came in, added up; the sum starts with numbers of its own."""
    start = np.arange(32, dtype=np.int8).reshape(SHAPE)
    graph = ModelBuilder([initialiser(total=start)] if called else [])
    data = graph.tensor(SHAPE, "int8", 0.01, 5)
    if called:
        graph.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    total = add(graph, read(graph, "total"), data)
    assign(graph, "total", total)
    return graph.made([data], [total]).finish()


def two_at_a_time() -> bytes:
    """Both variables are read, then assigned each other's value, then read again, and all are used at the end."""
    graph = ModelBuilder([initialiser(a=np.full(SHAPE, 7, np.int8), b=np.full(SHAPE, -9, np.int8))])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    a, b = read(graph, "a"), read(graph, "b")
    assign(graph, "a", b)
    assign(graph, "b", add(graph, a, data))
    again = add(graph, read(graph, "a"), read(graph, "b"))
    before = add(graph, a, b)
    return graph.made([data], [again, before, a]).finish()


def assigned_early() -> bytes:
    """The variable is assigned while what was read of it is still needed."""
    graph = ModelBuilder([])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    old = read(graph, "last")
    assign(graph, "last", data)
    return graph.made([data], [add(graph, old, data)]).finish()


def assigned_back() -> bytes:
    """What was read is assigned again after the variable had another content."""
    graph = ModelBuilder([])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    old = read(graph, "v")
    assign(graph, "v", data)
    total = add(graph, old, data)
    assign(graph, "v", total)
    assign(graph, "v", old)
    return graph.made([data], [total]).finish()


@pytest.mark.parametrize("options", [HOST, PRODUCERS[2]], ids=lambda o: f"{o.accelerator}-{o.npu_compiler}")
def test_a_variable_that_gets_its_old_content_back(options, tmp_path):
    equals_reference(assigned_back(), tmp_path, 5, options)


@pytest.mark.parametrize("options", PRODUCERS, ids=lambda o: f"{o.accelerator}-{o.npu_compiler}")
@pytest.mark.parametrize("model", [running_sum, two_at_a_time, assigned_early], ids=lambda m: m.__name__)
def test_variables_are_states(model, options, tmp_path):
    refused = {
        (two_at_a_time, "ethos-u85-256"): "takes the old content of variable 'a', and Vela, which keeps one copy",
        (assigned_early, "ethos-u85-256"): "takes the old content of variable 'last', and Vela, which keeps",
        (two_at_a_time, "ethos-u55-256"): "Vela takes no notice of: it would read the old content",
        (two_at_a_time, "ethos-u65-512"): "Vela takes no notice of: it would read the old content",
    }
    reason = refused.get((model, options.accelerator)) if options.npu_compiler == "vela" else None
    if reason is not None:
        with pytest.raises(UnsupportedModelError, match=reason):
            equals_reference(model(), tmp_path, 5, options)
        return
    artifact = equals_reference(model(), tmp_path, 5, options)
    assert {slot.dtype for slot in artifact.states} == {"int8"}
    source = (tmp_path / "artifact" / "src" / "model.h").read_text()
    assert "void model_reset(uint8_t *const pools[]);" in source


def test_who_asks_for_no_compiler_gets_the_one_that_takes_the_network(tmp_path):
    """Vela refuses it; native lowering does not, and every operator of it is known to be exact."""
    artifact = equals_reference(two_at_a_time(), tmp_path, 5, CompileOptions(objective="bytes", effort="quick"))
    assert (artifact.target.npu_compiler, {o.claim.exactness for o in artifact.operators}) == ("tvm", {Exactness.EXACT})
    (note,) = artifact.notes
    assert note.startswith("native lowering was taken: --npu-compiler vela says: model.tflite reads variable 'a' after")


def test_a_variable_that_nobody_fills_starts_at_its_zero_point(tmp_path):
    artifact = equals_reference(running_sum(called=False), tmp_path)
    assert (tmp_path / "artifact" / "src" / "model.c").read_text().count("memset(pools") == len(artifact.states) == 1


def test_what_it_starts_with_is_in_the_module():
    module = import_host_only(running_sum()).module
    assert [bytes.fromhex(str(text)) for text in module["main"].attrs[STATE_STARTS]] == [bytes(range(32))]


def test_an_update_waits_for_those_who_look_at_the_old_content():
    calls = [b.value for block in import_host_only(assigned_early()).module["main"].body.blocks for b in block.bindings]
    names = [c.args[0].name_hint for c in calls if hasattr(c, "args") and hasattr(c.args[0], "name_hint")]
    assert names.index("add") < names.index("assign_variable")


def test_an_initialisation_that_computes_is_refused():
    start = initialiser()
    zeros = start.constant(np.zeros(SHAPE, np.int8), SCALE, ZERO)
    assign(start, "total", add(start, zeros, zeros))
    graph = ModelBuilder([start])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    graph.made([data], [add(graph, data, read(graph, "total"))])
    with pytest.raises(UnsupportedModelError, match=r"does more than assign constants: its operator 0 is ADD"):
        read_network(graph.finish())


@pytest.mark.parametrize("assigns", [False, True])
def test_an_initialisation_behind_a_use_is_refused(assigns):
    """It was done before the first inference, and called exact."""
    graph = ModelBuilder([initialiser(total=np.arange(32, dtype=np.int8).reshape(SHAPE))])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    if assigns:
        assign(graph, "total", data)
    total = add(graph, read(graph, "total"), data)
    graph.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    with pytest.raises(UnsupportedModelError, match=r"CALL_ONCE assigns variable 'total' after the first inference"):
        read_network(graph.made([data], [total]).finish())


def test_a_variable_needs_its_handle():
    graph = ModelBuilder()
    stray = graph.tensor((), "resource")
    value = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("READ_VARIABLE", [stray], [value])
    with pytest.raises(UnsupportedModelError, match="its variable is not named by a VAR_HANDLE of the same subgraph"):
        read_network(graph.made([], [value]).finish())


def test_a_variable_that_is_never_assigned_has_no_content():
    """LiteRT refuses to read it, tflite-micro leaves the result as it was."""
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    with pytest.raises(UnsupportedModelError, match="variable 'v' is read and never assigned"):
        read_network(graph.made([data], [add(graph, data, read(graph, "v"))]).finish())


def test_a_variable_has_one_size():
    graph = ModelBuilder()
    data = graph.tensor((1, 3), "int8", SCALE, ZERO)
    assign(graph, "v", data)
    with pytest.raises(NetworkError, match=r"variable 'v' is int8\[1, 3\] and int8\[1, 4, 1, 8\]"):
        read_network(graph.made([data], [read(graph, "v")]).finish())


@pytest.mark.parametrize("options", [*PRODUCERS[:4], PRODUCERS[-1]], ids=lambda o: f"{o.accelerator}-{o.npu_compiler}")
def test_a_real_wake_word_is_exact_over_fifty_steps(options, tmp_path):
    path = need_data(shared_folder("zoo") / "wakeword_vad_2subgraphs.tflite")
    artifact = equals_reference(path.read_bytes(), tmp_path, 50, options)
    assert len(artifact.states) == 4


def test_run_feeds_a_sequence(tmp_path):
    (tmp_path / "sum.tflite").write_bytes(running_sum())
    model, folder = str(tmp_path / "sum.tflite"), str(tmp_path / "sum")
    kept = tmp_path / "out.npy"

    def say(*words: str) -> str:
        done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    say("compile", model, "-o", folder, "--accelerator", "none")
    run = ["run", folder, "--on", "local", "--reference", model, "--steps", "6"]
    assert "against tflite-micro: bit-exact" in say(*run, "--input", "random:3", "--output", str(kept))
    assert np.load(kept).shape == (6, *SHAPE)
    np.save(tmp_path / "in.npy", np.ones((6, *SHAPE), np.int8))
    assert '"elements": 192, "mismatches": 0' in say(*run, "--json", "--input", str(tmp_path / "in.npy"))


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u85-256"])
def test_the_npu_model_keeps_variables_too(npu):
    """A file that Vela made, run operator by operator on the NPU model, step by step as its source's reference."""
    source = running_sum()
    data = compile_tflite(source, VelaOptions(npu)).network
    ours, theirs = NetworkModel(read_network(data, "v"), data), TFLiteReference(source, "v")
    theirs.reset()
    for value in (1, -7, 100, 3):
        inputs = [np.full(SHAPE, value, np.int8)]
        np.testing.assert_array_equal(ours.run(inputs).outputs[0], theirs.step(inputs)[0])


def partly_kept(reads: bool) -> bytes:
    """A variable that is read and never assigned in an inference, or assigned and never read."""
    graph = ModelBuilder([initialiser(total=np.arange(32, dtype=np.int8).reshape(SHAPE))])
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    total = add(graph, read(graph, "total") if reads else data, data)
    if not reads:
        assign(graph, "total", total)
        total = add(graph, total, data)
    return graph.made([data], [total]).finish()


@pytest.mark.parametrize("reads", [True, False])
def test_a_variable_that_vela_takes_into_one_side_of_a_stream(reads: bool, tmp_path: Path) -> None:
    options = CompileOptions(accelerator="ethos-u85-256", npu_compiler="vela", objective="bytes")
    equals_reference(partly_kept(reads), tmp_path, 5, options)


def kept_in_the_arena() -> bytes:
    """Without CALL_ONCE: a file of one subgraph."""
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    total = add(graph, read(graph, "total"), data)
    assign(graph, "total", total)
    return graph.made([data], [total]).finish()


def test_tflite_micro_keeps_no_variable_in_its_arena(tmp_path: Path) -> None:
    model, made = tmp_path / "kept.tflite", tmp_path / "made.tflite"
    model.write_bytes(kept_in_the_arena())
    command = ["compile", str(model), "--emit", "vela-tflite", "--accelerator", "ethos-u85-256", "--effort", "quick"]
    with pytest.raises(UnsupportedModelError, match="Vela keeps variable 'total' in the arena"):
        CliRunner().invoke(cli, [*command, "--npu-compiler", "vela", "-o", str(made)], catch_exceptions=False)
    assert not made.exists()
    invoke(*command, "-o", made)


def assigned_early_in_one_file() -> bytes:
    """The variable is assigned what comes in, which is there from the beginning, after its old content was read."""
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    made = add(graph, read(graph, "last"), data)
    assign(graph, "last", data)
    return graph.made([data], [made]).finish()


def read_after_it_was_assigned() -> bytes:
    """The variable is read at once where only what was assigned before is waited for; the CPU has a turn between."""
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    first = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    graph.operator("RELU", [data], [first])
    assign(graph, "total", add(graph, first, first))
    return graph.made([data], [add(graph, read(graph, "total"), data)]).finish()


def test_a_variable_that_is_returned_and_then_assigned_is_not_velas():
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    old = read(graph, "last")
    assign(graph, "last", add(graph, old, data))
    model = graph.made([data], [old]).finish()
    with pytest.raises(UnsupportedModelError, match="it returns the old content of variable 'last'"):
        import_tflite(model, VelaOptions("ethos-u85-256"), (), "returned")


@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("model", [assigned_early_in_one_file, read_after_it_was_assigned, kept_in_the_arena])
def test_a_file_for_tflite_micro_keeps_the_order_of_variables(
    model: Callable[[], bytes], npu: str, tmp_path: Path
) -> None:
    """No tensor shows that an operator has to come after an assignment, or before it."""
    source = tmp_path / "source.tflite"
    source.write_bytes(model())
    host = ("RELU",) if model is read_after_it_was_assigned else ()
    options = CompileOptions(npu, npu_compiler="tvm", host_ops=host, effort="quick", objective="bytes")
    data = emit(source, options).content
    network = read_network(data, "v")
    assert not [t.name for t in network.tensors if "order" in t.name]
    ours, theirs = NetworkModel(network, data), TFLiteReference(source.read_bytes(), "v")
    theirs.reset()
    for value in (1, -7, 100, 3):
        inputs = [np.arange(value, value + 32).astype(np.int8).reshape(SHAPE)]
        np.testing.assert_array_equal(ours.run(inputs).outputs[0], theirs.step(inputs)[0])


@pytest.mark.parametrize("npu", ["ethos-u55-128", "ethos-u85-256"])
def test_a_variable_that_is_assigned_twice_is_not_velas(npu: str) -> None:
    """Where the CPU assigns it, Vela's file has the assignments in another order."""
    graph = ModelBuilder()
    data = graph.tensor(SHAPE, "int8", SCALE, ZERO)
    assign(graph, "total", data)
    total = add(graph, data, data)
    assign(graph, "total", total)
    model = graph.made([data], [total]).finish()
    with pytest.raises(UnsupportedModelError, match="operator 4 assigns variable 'total' again"):
        import_tflite(model, VelaOptions(npu), (), "twice")


POSITIONS, WIDTH = 8, 16


def attention_head(by_index: bool) -> bytes:
    """One step of an attention head whose keys and values are kept: as a window, or written at a position."""
    graph = ModelBuilder()
    token = graph.tensor((1, WIDTH), "int8", SCALE)
    place = graph.tensor((3,), "int32")
    whole = np.array([1, 1, WIDTH], np.int32)

    def project(seed: int) -> int:
        weights = np.random.default_rng(seed).integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8)
        bias = graph.constant(np.zeros(WIDTH, np.int32), SCALE * 0.02)
        made, row = graph.tensor((1, WIDTH), "int8", SCALE), graph.tensor((1, 1, WIDTH), "int8", SCALE)
        graph.operator("FULLY_CONNECTED", [token, graph.constant(weights, 0.02), bias], [made], "FullyConnectedOptions")
        graph.operator("RESHAPE", [made, graph.constant(whole)], [row], "ReshapeOptions", NewShape=whole.tolist())
        return row

    def keep(name: str, row: int) -> int:
        old, new = (graph.tensor((1, POSITIONS, WIDTH), "int8", SCALE) for _ in range(2))
        graph.operator("READ_VARIABLE", [handle(graph, name)], [old])
        if by_index:
            graph.operator("DYNAMIC_UPDATE_SLICE", [old, row, place], [new])
        else:
            kept = graph.tensor((1, POSITIONS - 1, WIDTH), "int8", SCALE)
            cut = [graph.constant(np.array(v, np.int32)) for v in ([0, 1, 0], [1, POSITIONS, WIDTH], [1, 1, 1])]
            graph.operator("STRIDED_SLICE", [old, *cut], [kept], "StridedSliceOptions")
            graph.operator("CONCATENATION", [kept, row], [new], "ConcatenationOptions", Axis=1)
        assign(graph, name, new)
        return new

    keys, values = keep("keys", project(1)), keep("values", project(2))
    scores = graph.tensor((1, 1, POSITIONS), "int8", 0.1)
    graph.operator("BATCH_MATMUL", [project(3), keys], [scores], "BatchMatMulOptions", AdjY=True)
    shares = graph.tensor((1, 1, POSITIONS), "int8", 1 / 256, -128)
    graph.operator("SOFTMAX", [scores], [shares], "SoftmaxOptions", Beta=1.0)
    out = graph.tensor((1, 1, WIDTH), "int8", SCALE)
    graph.operator("BATCH_MATMUL", [shares, values], [out], "BatchMatMulOptions")
    return graph.made([token, place] if by_index else [token], [out]).finish()


@pytest.mark.parametrize("compiler", ["vela", "tvm"])
@pytest.mark.parametrize("by_index", [False, True], ids=["window", "index"])
def test_a_kv_cache_is_a_state(by_index, compiler, tmp_path):
    """What docs/states.md says of such models on Ethos-U85."""
    options = CompileOptions(accelerator="ethos-u85-256", npu_compiler=compiler, objective="bytes", effort="quick")

    def draw(generator: np.random.Generator, slot: TensorSlot) -> np.ndarray:
        place = np.array([0, generator.integers(POSITIONS), 0], np.int32)
        return place if slot.dtype == "int32" else any_value(generator, slot)

    artifact = equals_reference(attention_head(by_index), tmp_path, 24, options, draw)
    assert [slot.size_bytes for slot in artifact.states] == [POSITIONS * WIDTH] * 2
    claims = {o.claim.exactness for o in artifact.operators if o.kind.endswith(("HANDLE", "VARIABLE"))}
    assert compiler == "vela" or claims == {Exactness.EXACT}
    launches = [call.agent for call in artifact.calls].count(Agent.NPU)
    assert launches > 1 if by_index else launches == 1
