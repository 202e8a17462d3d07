"""Real models, compiled and planned, as firmware on the emulated board.

Each must be bit-exact with TFLite Micro, and leave every pool exactly as the local runner leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import FirmwareError, RunOptions
from fvp_runner.references.interpreters import Reference
from fvp_runner.runner import create
from npu_memplan import planners
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, read
from npu_memplan.problem import BufferKind, used_bytes
from npu_memplan.report.files import write_artifact
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.verify import verify
from tests.support.inputs import load_inputs
from tests.support.real_data import Models

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("qemu", "unicorn_engine")]

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = {
    "kws": "kws_ref_model",
    "resnet": "pretrainedResnet_quant",
    "vww": "vww_96_int8",
    "ad01": "ad01_int8",
    "str_ww": "str_ww_ref_model",
    "person_detect": "person_detect",
    "digits": "examples/digits/digits.tflite",
    "keyword_scrambled": "keyword_scrambled_8bit",  # eight operators on the host
}


@pytest.fixture(scope="module")
def model_file(shared_model: Models) -> Callable[[str], Path]:
    return lambda name: REPOSITORY / MODELS[name] if "/" in MODELS[name] else shared_model(MODELS[name])


def all_agree(
    model: Path, directory: Path, runners: tuple[str, ...], board: Path | None = None, interrupt: bool = False
) -> dict[str, Any]:
    """Run on the host and on `runners`; compare outputs with TFLite Micro and pools with the host's."""
    options = RunOptions(timeout_s=120, board=board, interrupt=interrupt)
    host = create("local", directory, RunOptions(timeout_s=120))
    inputs = load_inputs(host.artifact, ["random:11"])  # type: ignore[attr-defined]
    expected = Reference(model.read_bytes()).run(inputs)
    on_host = host.run(inputs)
    results: dict[str, Any] = {}
    for name in runners:
        result = create(name, directory, options).run(inputs)
        for actual, wanted in zip(result.outputs, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted, err_msg=f"{name} against TFLite Micro")
        assert result.pools_after is not None
        assert on_host.pools_after is not None
        for actual, wanted in zip(result.pools_after, on_host.pools_after, strict=True):
            np.testing.assert_array_equal(actual, wanted, err_msg=f"pools of {name} against the host's")
        results[name] = result
    return results


@pytest.mark.parametrize("name", MODELS)
def test_exact_on_the_cortex_m55_and_on_the_cortex_m33(name: str, model_file: Any, tmp_path: Path) -> None:
    artifact = compile_model(model_file(name), CompileOptions(objective="bytes", effort="quick"), tmp_path / name)
    results = all_agree(model_file(name), tmp_path / name, ("qemu", "unicorn"))
    assert (artifact.host_operations > 0) == (name == "keyword_scrambled")
    assert results["qemu"].npu_cycles == results["unicorn"].npu_cycles > 0


def test_an_lstm_without_vela_is_wholly_on_the_npu(shared_model: Models, tmp_path: Path) -> None:
    model = shared_model("trained_lstm_int8")
    artifact = compile_model(model, CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out")
    all_agree(model, tmp_path / "out", ("qemu",))
    assert artifact.host_operations == 0
    assert [slot.dtype for slot in artifact.states] == ["int8", "int16"]
    assert sum(u.used_bytes for u in artifact.plan.usage) <= 1744  # Vela 5.2's own arena


@pytest.mark.parametrize("accelerator, mode, places", [
    ("ethos-u65-512", "Dedicated_Sram", ["DDR", "ISRAM"]),
    ("ethos-u55-32", "Sram_Only", ["ISRAM"]),
])  # fmt: skip
def test_every_memory_mode_lands_where_the_board_says(
    accelerator: str, mode: str, places: list[str], model_file: Any, tmp_path: Path
) -> None:
    from fvp_runner.emulators.device import pool_spans

    options = CompileOptions(accelerator=accelerator, memory_mode=mode, objective="bytes", effort="quick")
    compile_model(model_file("kws"), options, tmp_path / "kws")
    all_agree(model_file("kws"), tmp_path / "kws", ("qemu",))
    firmware = create("qemu", tmp_path / "kws").firmware  # type: ignore[attr-defined]
    for (address, size), place in zip(pool_spans(firmware), places, strict=True):
        memory = firmware.board.memory(place)
        assert memory.base <= address
        assert address + size <= memory.base + memory.size_bytes


def test_a_model_without_an_npu_runs_too(model_file: Any, tmp_path: Path) -> None:
    compile_model(model_file("ad01"), CompileOptions(accelerator="none"), tmp_path / "ad01")
    result = all_agree(model_file("ad01"), tmp_path / "ad01", ("qemu",))["qemu"]
    assert result.npu_cycles is None


def test_a_broken_plan_gives_wrong_results_as_firmware_too(model_file: Any, tmp_path: Path) -> None:
    """Two live feature maps at one offset: nothing between plan and pools hides it."""
    extracted = extract_problem(
        lower(read(model_file("kws"), request(CompileOptions(objective="bytes", effort="quick"))))
    )
    problem = extracted.problem
    plan = planners.plan(problem, "first-fit")
    maps = [b for b in problem.buffers if b.kind is BufferKind.NPU_INTERNAL]
    tolerated = {frozenset((o.first, o.second)) for o in problem.overlaps}
    moved, victim = max(
        ((a, b) for a in maps for b in maps if a is not b and a.meets(b) and {a.name, b.name} not in tolerated),
        key=lambda pair: min(pair[0].size_bytes, pair[1].size_bytes),
    )
    target = plan.placement(victim.name)
    placements = tuple(replace(target, buffer=moved.name) if p.buffer == moved.name else p for p in plan.placements)
    heights = used_bytes(problem, placements)
    usage = tuple(replace(u, used_bytes=heights[u.pool]) for u in plan.usage)
    broken = replace(plan, placements=placements, usage=usage)
    assert verify(problem, broken), "the plan was meant to be wrong"
    (tmp_path / "kws").mkdir()
    artifact = write_artifact(build(Planned(extracted, broken)), tmp_path / "kws")
    inputs = load_inputs(artifact, ["random:11"])
    (expected,) = Reference(model_file("kws").read_bytes()).run(inputs)
    with pytest.raises(FirmwareError, match=r"(?s)npu 7 .*NPU model: .*writes its OFM over its own IFM"):
        create("qemu", tmp_path / "kws", RunOptions(verify=False)).run(inputs)
    (actual,) = create("qemu", tmp_path / "kws", RunOptions(verify=False, checks=False)).run(inputs).outputs
    assert not np.array_equal(actual, expected), "without the checks the NPU does what it is told"


@pytest.mark.parametrize(("npu", "interrupt"), [("ethos-u85-128", True), ("ethos-u85-2048", False)])
def test_ethos_u85_is_exact_on_the_memory_map_of_corstone_320(
    npu: str, interrupt: bool, model_file: Any, tmp_path: Path
) -> None:
    """Unicorn takes the map of any board; a plugin gives QEMU's machine what it lacks."""
    compile_model(model_file("kws"), CompileOptions(npu, objective="bytes", effort="quick"), tmp_path / "kws")
    results = all_agree(model_file("kws"), tmp_path / "kws", ("unicorn", "qemu"), interrupt=interrupt)
    assert results["qemu"].npu_cycles == results["unicorn"].npu_cycles > 15_000
