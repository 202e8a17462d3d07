"""Whole networks: operators left on the CPU, containers, comparison by layer, schedules, the reference."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.damage import damaged_streams, targets
from tests.support.operator_models import tile
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")

from fvp_runner.npu_model.checks.hazards import Schedule
from fvp_runner.npu_model.errors import ModelFaultError, NpuModelError, OutOfRegionError, UninitialisedReadError
from fvp_runner.npu_model.model import NpuModel
from fvp_runner.npu_model.network import LayerRecorder, NetworkInputError, NetworkModel, compare_layers
from fvp_runner.npu_model.spec.stream import DecodedStream
from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.interpreters import Reference
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.single_operators import case
from tests.support.trial import compiled, network, random_inputs


def chain() -> bytes:
    """CONV, MEAN over the depth (which Vela leaves on the CPU), ADD with the convolution's result."""
    rng = np.random.default_rng(7)
    b = ModelBuilder()
    x = b.tensor((1, 6, 7, 5), "int8", 0.05, 3)
    w = b.constant(rng.integers(-127, 128, (9, 3, 3, 5)).astype(np.int8), np.full(9, 0.004, np.float32))
    bias = b.constant(rng.integers(-500, 500, 9).astype(np.int32), np.full(9, 0.0002, np.float32))
    y = b.tensor((1, 6, 7, 9), "int8", 0.07, -5)
    b.operator(
        "CONV_2D",
        [x, w, bias],
        [y],
        "Conv2DOptions",
        3,
        Padding=0,
        StrideH=1,
        StrideW=1,
        DilationHFactor=1,
        DilationWFactor=1,
    )
    axes = b.constant(np.array([3], np.int32))
    m = b.tensor((1, 6, 7, 1), "int8", 0.05, -2)
    b.operator("MEAN", [y, axes], [m], "ReducerOptions", 2, KeepDims=True)
    z = b.tensor((1, 6, 7, 9), "int8", 0.1, 1)
    b.operator("ADD", [y, m], [z], "AddOptions", 2)
    return b.made([x], [z]).finish()


@pytest.fixture(scope="module")
def chain_model() -> bytes:
    return chain()


def test_cpu_operator_between_two_npu_calls(chain_model: bytes) -> None:
    result = compile_tflite(chain_model, VelaOptions())
    net = read_network(result.network)
    assert len(net.npu_calls) == 2
    assert [operator.name for operator in net.cpu_operators] == ["MEAN"]
    reference = Reference(chain_model)
    npu = NetworkModel(net, result.network)
    for seed in range(3):
        inputs = random_inputs(net, seed)
        (got,) = npu.run(inputs).outputs
        (want,) = reference.run(inputs)
        assert np.array_equal(got, want)


def vela(tmp_path: Path, model: bytes, *options: str) -> Path:
    """Vela's own command line, for containers that the package does not ask for."""
    (tmp_path / "model.tflite").write_bytes(model)
    start = "from ethosu.vela.vela import main; main()"
    command = [sys.executable, "-c", start, str(tmp_path / "model.tflite"), "--output-dir", str(tmp_path)]
    subprocess.run([*command, "--accelerator-config", "ethos-u55-128", *options], check=True, capture_output=True)
    return next(p for p in tmp_path.glob("model_vela.*") if p.suffix in (".tflite", ".npz"))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--cop-format", "COP2"),
        ("--cop-format", "COP2", "--separate-io-regions"),
        ("--output-format", "raw"),
        ("--output-format", "raw", "--cop-format", "COP2", "--separate-io-regions"),
    ],
    ids=["cop1", "cop2", "cop2_separate", "raw", "raw_separate"],
)
def test_all_containers_give_the_same_result(options: tuple[str, ...], tmp_path: Path) -> None:
    concatenation = case("concat_axis3")
    path = vela(tmp_path, concatenation.build(), *options)
    data = path.read_bytes()
    net = read_network(data, path.name)
    reference = Reference(concatenation.build())
    inputs = random_inputs(reference.network)
    (got,) = NetworkModel(net, data).run(inputs).outputs
    (want,) = reference.run(inputs)
    assert np.array_equal(got.reshape(-1), want.reshape(-1))


@pytest.mark.parametrize("times", [(1, 2, 1, 1), (1, 2, 3, 1), (1, 1, 1, 4)])
@pytest.mark.parametrize("accelerator", ["ethos-u55-64", "ethos-u65-512"])
def test_tile_copies_its_input_several_times(times: tuple[int, ...], accelerator: str) -> None:
    """Vela's newer core sets the rounding of an operand that is not scaled; tflite-micro has no TILE."""
    model = tile(np.random.default_rng(5), (1, 4, 3, 8), times).finish()
    data = compile_tflite(model, VelaOptions(accelerator), "tile").network
    net = read_network(data, "tile")
    assert net.npu_calls
    (given,) = random_inputs(net)
    (got,) = NetworkModel(net, data).run([given]).outputs
    assert np.array_equal(got, np.tile(given, times))


def rewired(changes: dict[Register, int], *offsets: int) -> tuple[Network, bytes]:
    """A compiled element-wise network with registers changed, and the arena offsets of its input and output."""
    data = compiled("abs_int8").network
    net = read_network(data)
    (call,) = net.npu_calls
    commands = [c.with_registers(changes) if isinstance(c, Operation) else c for c in decode(call.words)]
    places = dict(zip((net.inputs[0], net.outputs[0]), offsets, strict=True))
    tensors = tuple(replace(t, arena_offset=places.get(t.index, t.arena_offset)) for t in net.tensors)
    addresses = [(1, o) if o >= 0 else (3 + i, 0) for i, o in enumerate(offsets)]
    call = replace(
        call,
        payload=replace(call.payload, words=encode(commands)),
        input_addresses=(addresses[0],),
        output_addresses=(addresses[1],),
    )
    return replace(net, tensors=tensors, operators=(call,)), data


def test_an_input_that_the_runtime_places_is_read_through_its_own_base_pointer() -> None:
    ((_, offset),) = network("abs_int8").npu_calls[0].output_addresses
    net, data = rewired({Register.IFM_REGION: 3, Register.IFM_BASE0: 0}, -1, offset)
    (given,) = random_inputs(net)
    original = NetworkModel(network("abs_int8"), compiled("abs_int8").network)
    assert np.array_equal(NetworkModel(net, data).run([given]).outputs[0], original.run([given]).outputs[0])


def test_an_arena_that_no_machine_has_is_refused() -> None:
    """Of a damaged file, any number can be an offset."""
    ((_, offset),) = network("abs_int8").npu_calls[0].output_addresses
    net, data = rewired({}, 0x7F800000, offset)
    with pytest.raises(OutOfRegionError, match=r"takes 2,139,\d+,\d+ bytes; at most 1,073,741,824 are simulated"):
        NetworkModel(net, data)


def test_what_tflite_micro_has_no_kernel_for_runs_in_litert() -> None:
    pytest.importorskip("ai_edge_litert", reason="needs LiteRT (pip install npu_memplan[litert])")
    model = tile(np.random.default_rng(5), (1, 4, 3, 8), (1, 2, 1, 1)).finish()
    data = compile_tflite(model, VelaOptions(core="legacy"), "tile").network
    net = read_network(data, "tile")
    assert [o.name for o in net.cpu_operators] == ["TILE"]
    (given,) = random_inputs(net)
    run = NetworkModel(net, data).run([given])
    assert run.host_kernels == ("LiteRT's reference kernels",)
    assert np.array_equal(run.outputs[0], np.tile(given, (1, 2, 1, 1)))


def test_an_operator_of_the_host_with_a_scalar_input() -> None:
    x, s, y = TensorSpec((1, 6), "float32"), TensorSpec((), "float32"), TensorSpec((1, 6), "float32")
    b = single_operator("MUL", [x, s], [y], "MulOptions", 2)
    data = compile_tflite(b.finish(), VelaOptions(), "scalar").network
    values = np.arange(6, dtype=np.float32).reshape(1, 6)
    run = NetworkModel(read_network(data), data).run([values, np.float32(3).reshape(())])
    assert run.outputs[0].tolist() == (3 * values).tolist()
    assert run.host_kernels == ("tflite-micro",)


def test_an_input_without_a_place_that_nobody_reads_is_no_fault() -> None:
    b = ModelBuilder()
    x, y = b.tensor((1, 4, 4, 8), "int8", 0.1, 3), b.tensor((1, 4, 4, 8), "int8", 0.2, 3)
    unused = b.tensor((4,), "int32")
    b.operator("RELU", [x], [y])
    model = b.made([x, unused], [y]).finish()
    for core in ("regor", "legacy"):
        data = compile_tflite(model, VelaOptions(core=core), "unused").network
        net = read_network(data, "unused")
        assert net.tensors[net.inputs[1]].arena_offset == -1
        run = NetworkModel(net, data).run([np.zeros((1, 4, 4, 8), np.int8), np.zeros(4, np.int32)])
        assert run.outputs[0].shape == (1, 4, 4, 8)


def test_outputs_and_operators_of_the_host_use_what_they_take(chain_model: bytes) -> None:
    """A byte that was never written is found where it leaves the NPU."""
    result = compile_tflite(chain_model, VelaOptions())
    net = read_network(result.network)

    def narrower(change: int) -> Network:
        """The kernels of call `change` make one row less."""
        operators = []
        for o in net.operators:
            if o is net.npu_calls[change]:
                fewer = [
                    c.with_registers({Register.OFM_HEIGHT_M1: c[Register.OFM_HEIGHT_M1] - 1, Register.BLOCKDEP: 0})
                    if isinstance(c, Operation) and c.op is not Op.DMA_START
                    else c
                    for c in decode(o.words)
                ]
                o = replace(o, payload=replace(o.payload, words=encode(fewer)))
            operators.append(o)
        return replace(net, operators=tuple(operators))

    inputs = random_inputs(net)
    for call, user in ((0, r"CPU operator 1 \(MEAN\) reads"), (1, "the network's output is")):
        with pytest.raises(UninitialisedReadError, match=rf"{user} tensor \d .* 63 were never written"):
            NetworkModel(narrower(call), result.network).run(inputs)
    NetworkModel(narrower(1), result.network, checks=False).run(inputs)


def test_inputs_that_do_not_fit() -> None:
    net = network("conv_k3x3")
    npu = NetworkModel(net, compiled("conv_k3x3").network)
    with pytest.raises(NetworkInputError, match=r"takes 1 input \(t0 int8\[1, 14, 13, 5\]\), but got 0"):
        npu.run([])
    with pytest.raises(NetworkInputError, match=r"input 0 \(t0\) must be int8\[1, 14, 13, 5\], but is int8\[3\]"):
        npu.run([np.zeros(3, np.int8)])


def test_the_first_layer_that_differs_is_found(chain_model: bytes) -> None:
    result = compile_tflite(chain_model, VelaOptions())
    net = read_network(result.network)
    reference = Reference(chain_model)
    inputs = random_inputs(net)
    layers = reference.layer_values(inputs)
    recorder = LayerRecorder()
    NetworkModel(net, result.network).run(inputs, recorder)
    report = compare_layers(reference.network, layers, recorder.written)
    assert (report.equal, report.first) == (2, None)  # MEAN ran on the CPU

    call = net.npu_calls[0]
    conv = next(c for c in decode(call.words) if isinstance(c, Operation) and c.op is Op.CONV)
    constants = call.read_only.copy()
    constants[conv[Register.SCALE_BASE] + 4 * 10 + 1] ^= 0x20  # bias of channel 4
    damaged = replace(net, operators=tuple(replace(o, read_only=constants) if o is call else o for o in net.operators))
    recorder = LayerRecorder()
    (got,) = NetworkModel(damaged, result.network).run(inputs, recorder).outputs
    assert not np.array_equal(got, reference.run(inputs)[0])
    report = compare_layers(reference.network, layers, recorder.written)
    assert report.first is not None
    assert report.first.index == 3
    assert report.first.coordinates[3] == 4
    assert report.first.shape == (1, 6, 7, 9)
    assert report.first.where.startswith("operation 0 (CONV at stream offset")
    assert 0 < report.first.mismatches <= 42


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512"])
def test_every_schedule_is_a_legal_order_of_all_steps(accelerator: str) -> None:
    net = network("bilinear_half", accelerator)
    (call,) = net.npu_calls
    program = DecodedStream.decode_words(call.words, call.accelerator)
    orders = set()
    for schedule in Schedule.adversarial_schedules(12):
        order = [step.registers.index for step in schedule.ordered_steps(program, bool)]
        assert sorted(order) == list(range(len(program.steps)))
        kernels = [i for i in order if not program.steps[i].is_dma]
        assert kernels == sorted(kernels)
        transfers = [i for i in order if program.steps[i].is_dma]
        assert transfers == sorted(transfers) or accelerator == "ethos-u65-512"
        orders.add(tuple(order))
    assert len(orders) > 1


def test_damaged_streams_give_a_typed_error_or_finish() -> None:
    outcomes = set()
    for target, words in damaged_streams(targets(), 400, random.Random(11)):
        try:
            NpuModel(target.accelerator).run(words, target.memory())
            outcomes.add("finished")
        except ModelFaultError as error:
            pytest.fail(f"{target.name}, {target.difference(words)}: {error}")
        except NpuModelError as error:
            outcomes.add(type(error).__name__)
    assert {"finished", "MalformedStreamError", "OutOfRegionError", "IllegalValueError"} <= outcomes


def test_reference_refuses_what_it_cannot_run() -> None:
    reference = Reference(chain())
    with pytest.raises(ReferenceRunError, match="takes 1 input, but got 2"):
        reference.run([np.zeros(1, np.int8)] * 2)
    with pytest.raises(ReferenceRunError, match=r"must be int8\[1, 6, 7, 5\], but is int16\[1\]"):
        reference.run([np.zeros(1, np.int16)])
    uint8 = case("conv_uint8_k3")
    with pytest.raises(ReferenceRunError, match="tflite-micro cannot run twin"):
        Reference(uint8.build(), "twin").run([np.zeros((1, 9, 10, 7), np.uint8)])
