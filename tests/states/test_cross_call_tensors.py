"""What one NPU call leaves in the arena for another one, around operators that Vela left to the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.compiler import compile_model
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.cross_call import with_cross_call_tensors
from npu_memplan.vela.lift import LiftError
from tests.support.in_steps import equals_reference, same
from tests.support.needs import need_data
from tests.support.real_data import shared_folder
from tests.support.tflite_builder import ModelBuilder

R = np.random.default_rng(17)
NPU = CompileOptions(objective="bytes", effort="quick")


def halves(depth: int = 8, parts: int = 2) -> bytes:
    """Images of a batch, picked apart by GATHER on the CPU, each convolved, joined again by their channels."""
    graph = ModelBuilder()
    data = graph.tensor((parts, 6, 6, depth), "int8", 0.05, 3)
    first = conv(graph, data, (parts, 6, 6, depth))
    picked = []
    for number in range(parts):
        image = graph.tensor((6, 6, depth), "int8", 0.05, 3)
        graph.operator("GATHER", [first, graph.constant(np.array(number, np.int32))], [image], "GatherOptions", Axis=0)
        whole = graph.tensor((1, 6, 6, depth), "int8", 0.05, 3)
        shape = graph.constant(np.array([1, 6, 6, depth], np.int32))
        graph.operator("RESHAPE", [image, shape], [whole], "ReshapeOptions", NewShape=[1, 6, 6, depth])
        picked.append(conv(graph, whole, (1, 6, 6, depth)))
    joined = graph.tensor((1, 6, 6, parts * depth), "int8", 0.05, 3)
    graph.operator("CONCATENATION", picked, [joined], "ConcatenationOptions", Axis=3)
    return graph.made([data], [conv(graph, joined, (1, 6, 6, parts * depth))]).finish()


def conv(graph: ModelBuilder, data: int, shape: tuple[int, ...]) -> int:
    depth = shape[-1]
    weights = graph.constant(R.integers(-127, 128, (depth, 1, 1, depth)).astype(np.int8), 0.01)
    bias = graph.constant(R.integers(-500, 500, depth).astype(np.int32), 0.0005)
    made = graph.tensor(shape, "int8", 0.05, 3)
    graph.operator("CONV_2D", [data, weights, bias], [made], "Conv2DOptions", StrideH=1, StrideW=1)
    return made


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("accelerator", ["ethos-u55-256", "ethos-u65-512"])
def test_parts_of_a_tensor_reach_it_from_several_calls(parts, accelerator, tmp_path):
    artifact = equals_reference(
        halves(16, parts), tmp_path, 2, CompileOptions(accelerator=accelerator, objective="bytes", effort="quick")
    )
    assert any("cross_call" in buffer.name for buffer in artifact.problem.buffers)
    assert artifact.host_operations >= parts


def test_a_file_that_others_compiled_is_the_same(tmp_path):
    """The file that Vela makes is imported as it is, and equals its source's reference."""
    source = halves()
    path = tmp_path / "foreign.tflite"
    path.write_bytes(compile_tflite(source, VelaOptions()).network)
    artifact = compile_model(path, NPU, tmp_path / "artifact")
    inputs = [R.integers(-128, 128, slot.shape).astype(np.int8) for slot in artifact.inputs]
    same(source, tmp_path / "artifact", artifact, [inputs])


def test_what_is_handed_over_is_no_more_than_what_is_missing():
    network = compile_tflite(halves(), VelaOptions()).parsed
    found = with_cross_call_tensors(network)
    (tensor,) = found.tensors[len(network.tensors) :]
    writer, reader = (call for call in found.npu_calls if tensor.index in call.parts)
    assert (writer.parts[tensor.index].before, writer.parts[tensor.index].updated) == ((), False)
    runs = reader.parts[tensor.index].before
    assert [stop - start for start, stop in runs] == [8] * 36  # one half of the channels of each element
    assert with_cross_call_tensors(found).npu_calls == found.npu_calls


def test_a_call_without_a_cross_call_tensor_is_left_alone():
    network = compile_tflite(halves(8, 1), VelaOptions()).parsed
    assert with_cross_call_tensors(network) is network
    alone = replace(network, operators=network.npu_calls[:1])
    assert with_cross_call_tensors(alone) is alone


def test_a_tensor_of_the_host_that_a_call_does_not_list_becomes_its_input():
    network = compile_tflite(halves(), VelaOptions()).parsed
    call = network.npu_calls[1]
    forgetful = replace(call, inputs=(), input_addresses=())
    operators = tuple(forgetful if o is call else o for o in network.operators)
    found = with_cross_call_tensors(replace(network, operators=operators)).npu_calls[1]
    assert (found.inputs[:1], found.input_addresses[:1]) == (call.inputs, call.input_addresses)
    size = network.tensors[call.inputs[0]].size_bytes
    start = call.input_addresses[0][1]
    assert found.parts[call.inputs[0]].before == ((start, start + size),)


def test_a_tensor_of_parts_that_nobody_joins_is_refused():
    network = compile_tflite(halves(), VelaOptions()).parsed
    tensors = list(network.tensors)
    picked, given = (network.tensors[network.cpu_operators[n].outputs[0]] for n in (0, 1))
    result = tensors[network.outputs[0]]
    tensors[given.index] = replace(given, arena_offset=result.arena_offset + 16)
    operators = (*network.operators, replace(network.cpu_operators[1], inputs=(picked.index,)))
    with pytest.raises(LiftError, match=f"tensor {result.index} .* needs an operator that joins them"):
        with_cross_call_tensors(replace(network, tensors=tuple(tensors), operators=operators))


def test_a_result_that_no_call_writes_whole_is_refused():
    """What other calls have left in some of its bytes makes it no tensor of parts."""
    network = compile_tflite(halves(), VelaOptions()).parsed
    tensors = list(network.tensors)
    result = tensors[network.outputs[0]]
    tensors[result.index] = replace(result, shape=(1, 6, 6, 1024))
    longer = replace(network, tensors=tuple(tensors), operators=network.npu_calls, inputs=())
    with pytest.raises(LiftError, match=rf"leaves bytes of its result, tensor {result.index} .*36864 bytes.*unwritten"):
        with_cross_call_tensors(longer)


@pytest.mark.parametrize("name", ["shufflenetv2_person"])
def test_a_real_network(name, tmp_path):
    path = need_data(shared_folder("zoo") / f"{name}.tflite")
    data = path.read_bytes()
    assert sum(not call.outputs for call in read_network(compile_tflite(data, VelaOptions()).network).npu_calls) > 5
    equals_reference(data, tmp_path, 1, NPU)


# -- a tensor that several calls write in parts ------------------------------------------------------------------


def in_parts(parts: int, axis: int = 3, reader: str = "") -> bytes:
    """A concatenation: its first part is the NPU's, before each other one the host shuffles that part's pixels.

    `reader` looks at the whole: "host" (a graph output then is what it makes), "npu", "both", "": it is the output.
    """
    graph = ModelBuilder()
    sizes = [(1, 3, 17, n + 1) if axis == 3 else (1, n + 1, 17, 3) for n in range(parts)]
    inputs = [graph.tensor(size, "int8", 0.05, 3) for size in sizes]
    made = []
    for number, (given, size) in enumerate(zip(inputs, sizes, strict=True)):
        one = graph.constant(np.array([[[[7]]]], np.int8), 0.03, 2)
        part = graph.tensor(size, "int8", 0.07, -5)
        graph.operator("ADD", [given, one], [part], "AddOptions")
        made.append(shuffled(graph, part, size) if number else part)
    whole = (1, 3, 17, sum(s[3] for s in sizes)) if axis == 3 else (1, sum(s[1] for s in sizes), 17, 3)
    joined = graph.tensor(whole, "int8", 0.07, -5)
    graph.operator("CONCATENATION", made, [joined], "ConcatenationOptions", Axis=axis)
    results = []
    if reader in ("npu", "both"):
        more = graph.constant(np.array([[[[9]]]], np.int8), 0.03, 2)
        results.append(graph.tensor(whole, "int8", 0.09, 1))
        graph.operator("ADD", [joined, more], [results[0]], "AddOptions")
    if reader in ("host", "both"):
        results.append(shuffled(graph, joined, whole))
    return graph.made(inputs, results or [joined]).finish()


def shuffled(graph: ModelBuilder, source: int, shape: tuple[int, ...]) -> int:
    """Pixels in another order, by an operator that no NPU runs."""
    height, width = shape[1:3]
    places = R.permutation(np.array([(0, y, x) for y in range(height) for x in range(width)], np.int32))
    target = graph.tensor(shape, "int8", 0.07, -5)
    indices = graph.constant(places.reshape(1, height, width, 3).astype(np.int32))
    graph.operator("GATHER_ND", [source, indices], [target], "GatherNdOptions")
    return target


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize(
    "parts, axis, reader", [(2, 3, ""), (3, 3, "host"), (2, 1, "both"), (4, 1, ""), (3, 3, "npu"), (2, 3, "both")]
)
def test_parts_of_a_tensor_that_calls_write_before_and_after_a_host_operator(
    accelerator, parts, axis, reader, tmp_path
):
    model = in_parts(parts, axis, reader)
    artifact = equals_reference(
        model, tmp_path, 1, CompileOptions(accelerator=accelerator, objective="bytes", effort="quick")
    )
    assert [call.agent.value for call in artifact.calls][:3] == ["npu", "host", "npu"]
