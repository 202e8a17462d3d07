"""The NPU model against tflite-micro on single operators and real networks, and on streams that others ship."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner.npu_model.network import NetworkModel, NetworkRun
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.single_operators import all_cases
from tests.support.trial import ACCELERATORS, random_inputs, try_case, try_model

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")
from fvp_runner.references.interpreters import Reference
from tests.support.real_data import Models

CASES = tuple(all_cases())


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_single_operator_is_bit_exact(number: int) -> None:
    accelerator = ACCELERATORS[number % len(ACCELERATORS)]
    trial = try_case(CASES[number], accelerator, fuzz=2)
    assert trial.wrong == 0, f"{trial.wrong} of {trial.elements} elements differ on {accelerator}"


@pytest.mark.parametrize("number", range(5, len(CASES), 30), ids=[case.name for case in CASES[5::30]])
def test_single_operator_of_the_legacy_core_is_bit_exact(number: int) -> None:
    trial = try_case(CASES[number], ACCELERATORS[number // 30 % len(ACCELERATORS)], core="legacy")
    assert trial.wrong == 0


MODELS = (
    ("ad01_int8", "ethos-u55-128", "Shared_Sram"),
    ("hello_world_int8", "ethos-u55-32", "Shared_Sram"),
    ("keyword_scrambled_8bit", "ethos-u55-256", "Shared_Sram"),  # operators left on the CPU
    ("kws_ref_model", "ethos-u55-256", "Sram_Only"),
    ("kws_ref_model", "ethos-u65-512", "Dedicated_Sram"),
    ("micro_speech_quantized", "ethos-u55-64", "Sram_Only"),
    ("person_detect", "ethos-u65-256", "Dedicated_Sram"),
    ("pretrainedResnet_quant", "ethos-u65-512", "Dedicated_Sram"),
    ("str_ww_ref_model", "ethos-u55-32", "Sram_Only"),
    ("trained_lstm_int8", "ethos-u55-256", "Shared_Sram"),  # state tensors, tanh and sigmoid
    ("vww_96_int8", "ethos-u55-64", "Shared_Sram"),
)


@pytest.mark.parametrize(("name", "accelerator", "mode"), MODELS)
@pytest.mark.parametrize("optimise", ["Performance", "Size"])
def test_real_model_is_bit_exact(name: str, accelerator: str, mode: str, optimise: str, shared_model: Models) -> None:
    model = shared_model(name).read_bytes()
    reference = Reference(model, name)
    inputs = random_inputs(reference.network, 1)
    result = compile_tflite(model, VelaOptions(accelerator, memory_mode=mode, optimise=optimise), name)
    trial = try_model(result, reference, inputs, reference.run(inputs), fuzz=3 if optimise == "Size" else 0)
    assert trial.exact, trial


@pytest.mark.slow
def test_large_model_is_bit_exact(shared_model: Models) -> None:
    model = shared_model("tf2_mobilenet_v2_1.0_224_ptq").read_bytes()
    reference = Reference(model)
    inputs = random_inputs(reference.network, 1)
    result = compile_tflite(model, VelaOptions("ethos-u65-512", memory_mode="Dedicated_Sram"))
    assert try_model(result, reference, inputs, reference.run(inputs)).exact


def test_states_are_kept_between_inferences_and_reset_to_their_zero_points(shared_model: Models) -> None:
    model = shared_model("trained_lstm_int8").read_bytes()
    result = compile_tflite(model, VelaOptions())
    network = read_network(result.network)
    npu = NetworkModel(network, result.network)
    reference = Reference(model)
    inputs = random_inputs(reference.network, 3)
    initial = [npu.tensor_value(i) for i in network.states]
    assert initial
    assert all((value == network.tensors[i].zero_point).all() for i, value in zip(network.states, initial, strict=True))
    npu.run(inputs)
    assert any((npu.tensor_value(i) != before).any() for i, before in zip(network.states, initial, strict=True))
    npu.reset()
    for got, want in zip(npu.run(inputs).outputs, reference.run(inputs), strict=True):
        assert np.array_equal(got, want)


def run(path: Path) -> NetworkRun:
    data = path.read_bytes()
    network = read_network(data, path.name)
    generator = np.random.default_rng(3)
    inputs = [network.tensors[i] for i in network.inputs]
    given = [generator.integers(-128, 128, t.shape, np.int64).astype(t.dtype) for t in inputs]
    return NetworkModel(network, data).run(given, fuzz_schedules=1)


@pytest.mark.parametrize("name", ["ad_imu_u55_256_vela", "rnnoise_u55_256_vela"])
def test_no_false_alarm(name: str, foreign_stream: Models) -> None:
    """Part-kernel-first convolutions behind kernels of several blocks; DMA lengths rounded up behind an input."""
    (stats,) = run(foreign_stream(name)).stats
    assert stats.operations > 15
    assert stats.timing == ()


def test_a_kernel_that_only_a_transfer_from_flash_keeps_from_reading_too_early(
    foreign_stream: Models,
) -> None:
    (stats,) = run(foreign_stream("face_detect_u55_64_vela")).stats
    assert stats.operations == 611
    (message,) = stats.timing
    assert message.startswith("relies on timing: operation 526 (DEPTHWISE at stream offset 0x6208) has BLOCKDEP 3")
    assert "before operation 524 (POOL at stream offset 0x6154) has written it, unless that ends during" in message
    assert "the wait for operation 525 (DMA_START at stream offset 0x6174) between them (1,040 bytes)" in message
