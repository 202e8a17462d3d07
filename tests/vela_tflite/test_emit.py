"""Files for TFLite Micro: its own interpreter takes them, gives tensors the planned places, and computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.checking.judge import CheckMode
from npu_memplan.checking.other_outputs import emit_checked
from npu_memplan.models.flatbuffer import UnsupportedModelError
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.tuning.ranking import Ranking
from npu_memplan.vela_tflite.emit import EmitError, Emitted, emit
from npu_memplan.vela_tflite.parts import in_order
from tests.support.contrary_models import read_record, write_record
from tests.support.needs import need_data
from tests.support.real_data import Models, real_model, shared_folder
from tests.support.real_data import network as network_file
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder
from tests.support.tflm_npu import MicroWithNpu

pytest.importorskip("tflite_micro")
OWN = CompileOptions(npu_compiler="tvm", objective="bytes")
WAYS = {
    "vela": CompileOptions(npu_compiler="vela", objective="bytes"),
    "tvm": OWN,
    "stripes": replace(OWN, stripes=True),
    "own memory": CompileOptions(
        "ethos-u65-512", memory_mode="Dedicated_Sram_256KB", objective="bytes", effort="quick"
    ),
    "default": CompileOptions(),
    "cpu": CompileOptions("none"),
}
# arena in bytes by way, at most; with CPU operators their kernels' scratch comes on top in TFLite Micro
ARENAS = {
    "vww_96_int8": {"cpu": 55296},
    "kws_ref_model": {"vela": 20752, "tvm": 16000, "stripes": 10880, "default": 22192},
    "micro_speech_quantized": {"vela": 5968, "tvm": 5968, "stripes": 4368},
    "trained_lstm_int8": {"vela": 1072, "tvm": 1184, "cpu": 1344},
    "keyword_scrambled_8bit": {"vela": 288, "tvm": 288, "default": 320},
}
CASES = [(name, way) for name, ways in ARENAS.items() for way in ways]


@cache
def emitted(name: str, way: str) -> Emitted:
    return emit(network_file(name), WAYS[way])


def random_inputs(network: Network, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    tensors = [network.tensors[i] for i in network.inputs]
    limits = [np.iinfo(t.dtype) for t in tensors]
    return [rng.integers(i.min, i.max + 1, t.shape).astype(t.dtype) for t, i in zip(tensors, limits, strict=True)]


def end_of_plan(network: Network) -> int:
    return max(t.arena_offset + t.size_bytes for t in network.tensors if t.arena_offset >= 0)


@pytest.mark.parametrize("name, way", CASES)
def test_the_interpreter_takes_the_plan_and_computes_the_same(name: str, way: str) -> None:
    made = emitted(name, way)
    assert 0 < made.arena_bytes <= ARENAS[name][way]
    assert not made.vela_arena_bytes or made.arena_bytes <= made.vela_arena_bytes
    network = read_network(made.content, name)
    assert end_of_plan(network) == made.arena_bytes
    interpreter = MicroWithNpu(made.content)
    source = network_file(name).read_bytes()
    for seed in (1, 2) if not network.states and name != "keyword_scrambled_8bit" else (1,):
        inputs = random_inputs(network, seed)
        found = interpreter.run(inputs, len(network.outputs))
        for ours, theirs in zip(found, TFLiteReference(source, name).run(inputs), strict=True):
            assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))
    if not network.cpu_operators or name == "vww_96_int8":  # whose kernels' scratch has room beside the tensors
        assert interpreter.head_bytes == made.arena_bytes
    offsets = {i: network.tensors[i].arena_offset for i in network.inputs}
    assert all(offset % 16 == 0 and offset >= 0 for offset in offsets.values())


@pytest.mark.parametrize("way", ["vela", "tvm"])
def test_in_a_pool_of_a_size_weights_travel(way: str) -> None:
    name, arena = "kws_ref_model", 22192
    slow, made = emitted(name, way), emit(real_model(name), replace(WAYS[way], pools={"sram": arena}, objective="auto"))
    assert made.arena_bytes <= arena
    assert made.payload_bytes > slow.payload_bytes  # of the transfers
    memory_map = WAYS[way].memory_map()
    assert memory_map is not None
    rank = Ranking(memory_map)
    assert rank(made.planned)[0] < 0.8 * rank(slow.planned)[0]
    network = read_network(made.content, name)
    interpreter = MicroWithNpu(made.content)
    for seed in (1, 2):
        inputs = random_inputs(network, seed)
        (found,) = interpreter.run(inputs, 1)
        (theirs,) = TFLiteReference(real_model(name).read_bytes(), name).run(inputs)
        assert np.array_equal(found.reshape(-1), theirs.reshape(-1))


def lifetimes(network: Network) -> Iterator[tuple[int, int, int]]:
    """(tensor, first operator, last operator) as TFLite Micro sees them, of what the plan places for CPU operators."""
    end = len(network.operators) - 1
    for tensor in network.tensors:
        makes = [o.index for o in network.operators if tensor.index in o.outputs]
        reads = [o.index for o in network.operators if tensor.index in o.inputs]
        touched = [*makes, *reads, *([0] if tensor.index in network.inputs else [])]
        if tensor.arena_offset >= 0 and touched:
            yield tensor.index, min(touched), end if tensor.index in network.outputs else max(touched)


@pytest.mark.parametrize("way", ["vela", "tvm"])
def test_what_a_cpu_operator_writes_lies_on_nothing_that_is_needed(way: str) -> None:
    """TFLite Micro's kernels store before they have read everything; an oracle of our own over all pairs."""
    network = read_network(emitted("keyword_scrambled_8bit", way).content, "x")
    lives = list(lifetimes(network))
    pairs = 0
    for operator in network.cpu_operators:
        for written in operator.outputs:
            out = network.tensors[written]
            for other, first, last in lives:
                tensor = network.tensors[other]
                if other != written and first <= operator.index <= last:
                    pairs += 1
                    assert (
                        out.arena_offset + out.size_bytes <= tensor.arena_offset
                        or tensor.arena_offset + tensor.size_bytes <= out.arena_offset
                    )
    assert pairs


@pytest.mark.parametrize("way", ["vela", "tvm"])
def test_cpu_operators_keep_their_form(way: str) -> None:
    made = read_network(emitted("keyword_scrambled_8bit", way).content, "x")
    source = read_network(real_model("keyword_scrambled_8bit").read_bytes(), "y")
    assert ("ethos-u", *sorted({o.name for o in made.cpu_operators})) == emitted(
        "keyword_scrambled_8bit", way
    ).operators
    kept, originals = ([o for o in n.cpu_operators if o.name == "SVDF"] for n in (made, source))
    assert len(kept) == len(originals) > 3
    for operator, original in zip(kept, originals, strict=True):
        assert _options(operator) == _options(original)
        for ours, theirs in zip(operator.inputs, original.inputs, strict=True):
            one, other = made.tensors[ours], source.tensors[theirs]
            assert (one.scales, one.zero_points, one.is_variable) == (
                other.scales,
                other.zero_points,
                other.is_variable,
            )
            assert one.data is None or np.array_equal(one.data, other.data)


def _options(operator: CpuOperator) -> tuple[int, int, bool]:

    options = operator.options("SVDFOptions")
    assert options is not None
    return options.Rank(), options.FusedActivationFunction(), options.AsymmetricQuantizeInputs()


def test_a_memory_of_the_npus_own_is_not_in_the_arena() -> None:
    made = emitted("kws_ref_model", "own memory")
    network = read_network(made.content, "x")
    (call,) = network.npu_calls
    others = tuple(t for t in network.tensors if t.index != call.scratch_fast_tensor)
    assert made.arena_bytes == call.scratch_bytes == end_of_plan(replace(network, tensors=others))
    assert call.scratch_fast_bytes == made.fast_bytes > 0
    inputs = random_inputs(network, 3)
    expected = TFLiteReference(real_model("kws_ref_model").read_bytes(), "kws").run(inputs)
    for ours in (NetworkModel(network, made.content).run(inputs).outputs, MicroWithNpu(made.content).run(inputs, 1)):
        assert np.array_equal(ours[0].reshape(-1), expected[0].reshape(-1))


@pytest.mark.parametrize("name", ["rnnoise_u55_256_vela", "face_detect_u55_64_vela"])
def test_a_file_of_velas_is_planned_anew(foreign_stream: Models, name: str) -> None:
    path = foreign_stream(name)
    before = read_network(path.read_bytes(), name)
    made = emit(
        path, CompileOptions(accelerator=before.npu_calls[0].accelerator.name, objective="bytes", effort="quick")
    )
    after = read_network(made.content, name)
    assert made.arena_bytes <= made.vela_arena_bytes == max(c.scratch_bytes for c in before.npu_calls)
    assert [after.tensors[i].name for i in after.inputs] == [before.tensors[i].name for i in before.inputs]
    inputs = random_inputs(before, 5)
    ours = NetworkModel(after, made.content, checks=False).run(inputs).outputs
    theirs = NetworkModel(before, path.read_bytes(), checks=False).run(inputs).outputs
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    micro = MicroWithNpu(made.content)
    assert all(np.array_equal(a, b) for a, b in zip(micro.run(inputs, len(theirs)), theirs, strict=True))
    assert micro.head_bytes == made.arena_bytes


def test_parts_come_in_an_order_in_which_each_has_what_it_reads() -> None:
    """CPU operators between the NPU's cut it into groups: none waits for what waits for it."""
    network = chain_with_side_paths()
    steps = [
        tuple(o.index for o in group) for group in in_order(network, [o.name != "TANH" for o in network.cpu_operators])
    ]
    assert steps == [(0, 1), (4,), (2,), (3, 5)]


def chain_with_side_paths() -> Network:
    """ADD 0 -> ADD 1 -> TANH 2 -> ADD 3 -> ADD 5, ADD 5 also of ADD 4, which nothing feeds but the input."""
    wiring = [((0,), 1), ((1,), 2), ((2,), 3), ((3,), 4), ((0,), 5), ((4, 5), 6)]
    kinds = ["ADD", "ADD", "TANH", "ADD", "ADD", "ADD"]
    operators = tuple(
        CpuOperator(i, kind, 0, reads, (made,))
        for i, (kind, (reads, made)) in enumerate(zip(kinds, wiring, strict=True))
    )
    tensors = tuple(Tensor(i, f"t{i}", (4,), "int8") for i in range(7))
    return Network("paths", tensors, operators, (0,), (6,))


def test_what_parts_pass_in_the_arena_alone_is_a_tensor_of_the_file() -> None:
    """Vela's file does not say so; TFLite Micro and whoever reads the plan then know of it."""
    path = need_data(shared_folder("zoo") / "hand_landmark_3d_256.tflite")
    made = emit(path, CompileOptions(objective="bytes", effort="quick"))
    network = read_network(made.content, "x")
    handed = [t for t in network.tensors if t.name.startswith("cross_call")]
    assert handed
    assert all(t.arena_offset >= 0 for t in handed)
    inputs = random_inputs_of_floats(network)
    expected = TFLiteReference(path.read_bytes(), "x").run(inputs)
    found = MicroWithNpu(made.content).run(inputs, len(network.outputs))
    assert all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in zip(found, expected, strict=True))
    assert made.vela_arena_bytes == 0  # operators are kept from Vela, so its user has no such file


def random_inputs_of_floats(network: Network) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(network.tensors[i].shape).astype(network.tensors[i].dtype) for i in network.inputs]


@pytest.mark.parametrize("way", ["vela", "tvm"])
@pytest.mark.parametrize("added", ["constant first", "constants", "input", "inside", "all"])
def test_outputs_may_be_constants_inputs_and_tensors_inside(way: str, added: str, tmp_path: Path) -> None:
    model = read_record(real_model("hello_world_int8").read_bytes())
    (graph,) = model.values["Subgraphs"]
    first, weights = graph.values["Operators"][0], [1, 2]
    given, inside, made = graph.numbers("Inputs", "i"), first.numbers("Outputs", "i"), graph.numbers("Outputs", "i")
    outputs = {
        "constant first": weights[:1] + made,
        "constants": made + weights,
        "input": made + given,
        "inside": inside + made,
        "all": weights + given + made + inside,
    }[added]
    graph.put("Outputs", "i", outputs)
    path = save(tmp_path / "m.tflite", write_record(model))
    content = emit(path, replace(WAYS[way], effort="quick")).content
    inputs = random_inputs(read_network(content, "x"), 1)
    expected = TFLiteReference(path.read_bytes(), "m").run(inputs)
    found = MicroWithNpu(content).run(inputs, len(outputs))
    for ours, theirs in zip(found, expected, strict=True):
        steps = np.abs(ours.reshape(-1).astype(int) - theirs.reshape(-1))
        assert steps.max(initial=0) <= (way == "vela")  # which claims one for FULLY_CONNECTED


@pytest.mark.parametrize("way", ["vela", "tvm"])
def test_operators_of_constants_are_folded_and_scalars_are_outputs(way: str, tmp_path: Path) -> None:
    """Operators behind one that is folded keep their parts, and a result without axes is one element."""
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 4, 4, 8), "int8", 0.05, -3) for _ in range(3))
    stored, mean = b.tensor((1, 4, 4, 8), "int8", 0.1, 4), b.tensor((), "int8", 0.05, -3)
    b.operator("QUANTIZE", [b.constant(np.arange(128, dtype=np.uint8).reshape(1, 4, 4, 8), 0.1, 132)], [stored])
    b.operator("ADD", [x, stored], [y], "AddOptions")
    b.operator("MAXIMUM", [y, x], [z], "MaximumMinimumOptions")
    b.operator("MEAN", [z, b.constant(np.arange(4, dtype=np.int32))], [mean], "ReducerOptions", KeepDims=False)
    path = save(tmp_path / "m.tflite", b.made([x], [z, mean]).finish())
    made = emit_checked(path, replace(WAYS[way], effort="quick"), CheckMode.ALWAYS)
    assert made.check.verdict is CheckVerdict.EQUAL


def test_an_output_has_the_rank_of_the_models(tmp_path: Path) -> None:
    """Vela's legacy core gives ARG_MAX a dimension more; its compiled core refuses the strides of this convolution."""
    b = ModelBuilder()
    x, y, z = (
        b.tensor((1, 16, 4, 3), "int8", 0.05, 3),
        b.tensor((1, 4, 1, 8), "int8", 1.0, 3),
        b.tensor((1, 4, 1), "int32"),
    )
    weights = b.constant(np.random.default_rng(1).integers(-127, 128, (8, 7, 3, 3)).astype(np.int8), 0.05)
    strides = {"Padding": 0, "StrideH": 4, "StrideW": 4, "DilationHFactor": 1, "DilationWFactor": 1}
    b.operator("CONV_2D", [x, weights], [y], "Conv2DOptions", 3, **strides, FusedActivationFunction=3)
    b.operator("ARG_MAX", [y, b.constant(np.array([3], np.int32))], [z], "ArgMaxOptions", 2, OutputType=2)
    path = save(tmp_path / "m.tflite", b.made([x], [y, z]).finish())
    options = replace(WAYS["vela"], effort="quick")
    made = emit_checked(path, options, CheckMode.ALWAYS)
    assert made.check.verdict is CheckVerdict.EQUAL
    file = read_network(made.content, "file")
    assert [file.tensors[i].shape for i in file.outputs] == [(1, 4, 1, 8), (1, 4, 1)]
    artifact = compile_checked(path, options, tmp_path / "out", mode=CheckMode.ALWAYS)
    assert [slot.shape for slot in artifact.outputs] == [(1, 4, 1, 8), (1, 4, 1)]


def test_a_tensor_whose_rank_vela_loses_for_the_cpu_is_not_velas(tmp_path: Path) -> None:
    """Vela lets CAST read what RESHAPE makes of its input."""
    b = ModelBuilder()
    x, y, z = b.tensor((4,), "int32"), b.tensor((4, 1, 1, 1, 1), "int32"), b.tensor((4,), "float32")
    given, cut, made = (
        b.tensor((1, 8), "int8", 0.1, 3),
        b.tensor((2, 1, 1, 1, 1), "int32"),
        b.tensor((1, 8), "int8", 0.2),
    )
    ends = [b.constant(np.array(values, np.int32)) for values in ([0] * 5, [2, 1, 1, 1, 1], [1] * 5)]
    b.operator("RESHAPE", [x], [y], "ReshapeOptions", NewShape=[4, 1, 1, 1, 1])
    b.operator("STRIDED_SLICE", [y, *ends], [cut], "StridedSliceOptions", 2)
    b.operator("CAST", [x], [z], "CastOptions")
    b.operator("ADD", [given, given], [made], "AddOptions")
    path = save(tmp_path / "m.tflite", b.made([x, given], [cut, z, made]).finish())
    with pytest.raises(UnsupportedModelError, match=r"CAST .*--npu-compiler tvm"):
        emit(path, replace(WAYS["vela"], effort="quick"))
    emitted = emit_checked(path, CompileOptions(effort="quick"), CheckMode.ALWAYS)
    assert (emitted.check.verdict, emitted.check.given_up) == (CheckVerdict.EQUAL, ())


@pytest.mark.parametrize("twice", ["result", "input", "constant"])
def test_the_same_tensor_may_be_several_outputs(twice: str, tmp_path: Path) -> None:
    model = read_record(real_model("hello_world_int8").read_bytes())
    (graph,) = model.values["Subgraphs"]
    given, made = graph.numbers("Inputs", "i"), graph.numbers("Outputs", "i")
    outputs = made + {"result": made, "input": given * 2, "constant": [1, 1]}[twice]
    graph.put("Outputs", "i", outputs)
    path = save(tmp_path / "m.tflite", write_record(model))
    content = emit(path, replace(OWN, effort="quick")).content
    inputs = random_inputs(read_network(content, "x"), 1)
    expected = TFLiteReference(path.read_bytes(), "m").run(inputs)
    found = MicroWithNpu(content).run(inputs, len(outputs))
    assert all(np.array_equal(a.reshape(-1), b.reshape(-1)) for a, b in zip(found, expected, strict=True))


def test_a_tensor_at_a_wrong_place_is_noticed() -> None:
    """The interpreter's result depends on the plan: the same file with one offset moved is not right."""
    made = emitted("kws_ref_model", "vela")
    network = read_network(made.content, "x")
    (given,) = network.inputs
    start = made.content.index(_plan_words(network)) + 4 * (3 + given)
    place = network.tensors[given].arena_offset
    other = place + 16 if place + 16 + network.tensors[given].size_bytes <= made.arena_bytes else place - 16
    wrong = made.content[:start] + other.to_bytes(4, "little") + made.content[start + 4 :]
    inputs = random_inputs(network, 1)
    right, broken = (MicroWithNpu(content).run(inputs, 1) for content in (made.content, wrong))
    assert not np.array_equal(right[0], broken[0])


def _plan_words(network: Network) -> bytes:
    offsets = [tensor.arena_offset for tensor in network.tensors]
    return np.array([0, 1, len(offsets), *offsets], np.int32).tobytes()


@pytest.mark.parametrize(
    "options, said",
    [
        (
            CompileOptions(constant_pools={"flash": None}, objective="bytes", effort="quick"),
            "keeps constants in the file",
        ),
        (
            CompileOptions(host_ops=("FULLY_CONNECTED",), objective="bytes", effort="quick"),
            "nothing of hello_world_int8.tflite runs on the NPU",
        ),
    ],
)
def test_what_has_no_such_form_is_refused(options: CompileOptions, said: str) -> None:
    with pytest.raises(EmitError, match=said):
        emit(real_model("hello_world_int8"), options)


def test_the_default_is_as_fast_as_the_path_to_c() -> None:
    from npu_memplan.compiler import plan_model

    made, in_c = (
        emitted("kws_ref_model", "default"),
        plan_model(real_model("kws_ref_model"), CompileOptions()).artifact,
    )
    assert made.cycles <= 1.02 * (in_c.estimated_cycles or 0)
    assert made.cycles < made.vela_stream_cycles
    assert made.arena_bytes <= made.vela_arena_bytes
