"""What one NPU call leaves in the arena for another one, around operators that Vela left to the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.ethosu.program.hand_over import with_hand_overs
from npu_memplan.ethosu.vela import VelaOptions, compile_tflite
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import compile_model
from tests.support.in_steps import equals_reference, same
from tests.support.real_data import shared_folder
from tests.support.tflite_builder import ModelBuilder

R = np.random.default_rng(17)
NPU = CompileOptions()


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
    artifact = equals_reference(halves(16, parts), tmp_path, 2, CompileOptions(accelerator=accelerator))
    assert any("hand_over" in buffer.name for buffer in artifact.problem.buffers)
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
    found = with_hand_overs(network)
    (tensor,) = found.tensors[len(network.tensors) :]
    writer, reader = (call for call in found.npu_calls if tensor.index in call.parts)
    assert (writer.parts[tensor.index].before, writer.parts[tensor.index].updated) == ((), False)
    runs = reader.parts[tensor.index].before
    assert [stop - start for start, stop in runs] == [8] * 36  # one half of the channels of each element
    assert with_hand_overs(found).npu_calls == found.npu_calls


def test_a_call_without_a_hand_over_is_left_alone():
    network = compile_tflite(halves(8, 1), VelaOptions()).parsed
    assert with_hand_overs(network) is network
    alone = replace(network, operators=network.npu_calls[:1])
    assert with_hand_overs(alone) is alone


@pytest.mark.parametrize("name", ["shufflenetv2_person"])
def test_a_real_network(name, tmp_path):
    path: Path = shared_folder("zoo") / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"needs the real model {path}")
    data = path.read_bytes()
    assert sum(not call.outputs for call in read_network(compile_tflite(data, VelaOptions()).network).npu_calls) > 5
    equals_reference(data, tmp_path, 1, NPU)
