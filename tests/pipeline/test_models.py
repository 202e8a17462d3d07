"""Real models: bit-exact against tflite-micro, in no more memory than Vela itself uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.host import runner as host
from fvp_runner.references.interpreters import Reference
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.problem import BufferKind
from npu_memplan.verify import verify
from tests.support.real_data import Models

SMALL = (
    "ad01_int8",
    "hello_world_int8",
    "kws_ref_model",
    "micro_speech_quantized",
    "person_detect",
    "pretrainedResnet_quant",
    "str_ww_ref_model",
    "trained_lstm_int8",
    "vww_96_int8",
)
LARGE = ("mobilenet_v2_pt2tflite_int8", "tf2_mobilenet_v2_1.0_224_ptq")
ACCELERATORS = ("ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u85-256")


def compile_and_compare(model: Path, options: CompileOptions, folder: Path, seeds: int) -> Artifact:
    """Compile, run on `seeds` random inputs, and require equality with the reference on each."""
    artifact = compile_model(model, options, folder / "out")
    runner = host.create(folder / "out", RunOptions())
    reference = Reference(model.read_bytes())
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        limits = [np.iinfo(slot.dtype) for slot in artifact.inputs]
        inputs = [
            rng.integers(limit.min, limit.max, slot.shape, slot.dtype, endpoint=True)
            for slot, limit in zip(artifact.inputs, limits, strict=True)
        ]
        ran, theirs = runner.run(inputs), reference.run(inputs)
        assert ran.npu_cycles == artifact.estimated_cycles
        for slot, a, b in zip(artifact.outputs, ran.outputs, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{model.stem} {options.accelerator} {slot.name} seed {seed}")
    assert verify(artifact.problem, artifact.plan) == ()
    return artifact


def at_most_vela(artifact: Artifact) -> None:
    for usage in artifact.plan.usage:
        assert usage.lower_bound_bytes <= usage.used_bytes <= artifact.vela_arena_bytes[usage.pool]


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("name", SMALL)
def test_exact_in_at_most_velas_arena(shared_model: Models, tmp_path: Path, name: str, accelerator: str) -> None:
    at_most_vela(
        compile_and_compare(
            shared_model(name), CompileOptions(accelerator, objective="bytes", effort="quick"), tmp_path, seeds=3
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, "keyword_scrambled_8bit"])
def test_exact_on_the_host_alone(shared_model: Models, tmp_path: Path, name: str) -> None:
    artifact = compile_and_compare(shared_model(name), CompileOptions("none"), tmp_path, seeds=3)
    assert artifact.npu_operations == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_exact_in_at_most_velas_arena_at_224(shared_model: Models, tmp_path: Path, name: str) -> None:
    at_most_vela(
        compile_and_compare(shared_model(name), CompileOptions(objective="bytes", effort="quick"), tmp_path, seeds=1)
    )


@pytest.mark.parametrize("host_ops", [("SOFTMAX",), ("FULLY_CONNECTED", "SOFTMAX")], ids="+".join)
@pytest.mark.parametrize("name", ["kws_ref_model", "pretrainedResnet_quant"])
def test_forced_host_operators_share_one_arena(
    shared_model: Models, tmp_path: Path, name: str, host_ops: tuple[str, ...]
) -> None:
    artifact = compile_and_compare(
        shared_model(name), CompileOptions(host_ops=host_ops, objective="bytes", effort="quick"), tmp_path, seeds=3
    )
    kinds = {b.kind for b in artifact.problem.buffers}
    assert {BufferKind.HOST_SCRATCH, BufferKind.TENSOR, BufferKind.NPU_INTERNAL} <= kinds
    assert len(artifact.problem.pools) == 1
    assert artifact.host_operations == len(host_ops)


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256"])
def test_a_model_with_operators_that_no_npu_runs(shared_model: Models, tmp_path: Path, accelerator: str) -> None:
    model = shared_model("keyword_scrambled_8bit")
    artifact = compile_and_compare(
        model, CompileOptions(accelerator, objective="bytes", effort="quick"), tmp_path, seeds=3
    )
    reasons = {o.kind: o.reason for o in artifact.operators if o.agent.value == "host"}
    assert "SVDF" in reasons
    assert reasons["SVDF"] == "Unsupported opType"
    assert artifact.states


@pytest.mark.parametrize("optimise", ["Performance", "Size"])
@pytest.mark.parametrize("mode", ["Sram_Only", "Shared_Sram"])
def test_memory_modes_and_vela_for_size(shared_model: Models, tmp_path: Path, mode: str, optimise: str) -> None:
    options = CompileOptions("ethos-u55-64", memory_mode=mode, optimise=optimise, objective="bytes", effort="quick")
    at_most_vela(compile_and_compare(shared_model("vww_96_int8"), options, tmp_path, seeds=1))


def test_npu_cache_with_a_hard_limit(shared_model: Models, tmp_path: Path) -> None:
    options = CompileOptions("ethos-u65-256", arena_cache_size_bytes=40960, pools={"sram": 40960})
    artifact = compile_and_compare(shared_model("vww_96_int8"), options, tmp_path, seeds=1)
    assert artifact.pool_bytes("sram") <= 40960 < artifact.pool_bytes("dram") + artifact.pool_bytes("sram")
