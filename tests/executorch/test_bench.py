"""ExecuTorch's own runtime with the host backend: real programs on poisoned memory, against PyTorch's reference.

Needs the package executorch (an environment of its own) and a C++ compiler; skipped elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("executorch.runtime")

from fvp_runner.executorch.commands import compile_program
from fvp_runner.executorch.model import ExecutorchModel
from npu_memplan.models.executorch.program import read_program
from tests.executorch.test_one_arena import twice
from tests.executorch.test_running import REFERENCE, ramp
from tests.support.executorch_bench.building import BenchError
from tests.support.executorch_bench.runtime import BenchMemory, RuntimeBench

MODELS = Path(__file__).resolve().parents[1] / "models"
REAL = ("three_convolutions_u55", "three_convolutions_u65", "three_convolutions_u85")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RuntimeBench:
    return RuntimeBench(tmp_path_factory.mktemp("bench") / "made")


@pytest.mark.parametrize("name", REAL)
def test_real_programs_give_what_pytorchs_reference_gives(bench: RuntimeBench, name: str) -> None:
    ran = bench.run((MODELS / f"{name}.pte").read_bytes(), [ramp()])
    assert ran.outputs[0].ravel().tolist() == list(REFERENCE)
    assert (ran.copied_in_bytes, ran.copied_out_bytes) == (12288, 10)
    assert ran.method_bytes > 0


@pytest.mark.parametrize("name", REAL)
def test_our_own_model_of_the_runtime_agrees(bench: RuntimeBench, name: str) -> None:
    data = (MODELS / f"{name}.pte").read_bytes()
    program = read_program(data)
    values = np.random.default_rng(4).standard_normal((1, 3, 64, 64)).astype(np.float32)
    ran, modelled = bench.run(data, [values]), ExecutorchModel(program, program.methods[0]).run([values])
    assert np.array_equal(ran.outputs[0], modelled.outputs[0])
    assert ran.stats == modelled.stats


def test_pools_that_are_too_small_are_the_runtimes_error(bench: RuntimeBench) -> None:
    data = (MODELS / "three_convolutions_u85.pte").read_bytes()
    assert bench.run(data, [ramp()], memory=BenchMemory(temp_bytes=81920)).scratch_bytes == 81920
    with pytest.raises(BenchError, match=r"the method does not run \(ExecuTorch's error 0x"):
        bench.run(data, [ramp()], memory=BenchMemory(temp_bytes=81904))
    with pytest.raises(BenchError, match="the method cannot be loaded"):
        bench.run(data, [ramp()], memory=BenchMemory(planned_bytes=(61424,)))


def test_the_scratch_may_lie_in_the_planned_buffer(bench: RuntimeBench) -> None:
    """As a firmware with one arena has it: behind the tensors, or over what is dead while the delegate runs."""
    data = (MODELS / "three_convolutions_u65.pte").read_bytes()
    for at, size in ((61440, 61440 + 12288), (16384, 61440)):
        one = BenchMemory(planned_bytes=(size,), temp_bytes=12288, temp_at=at)
        assert bench.run(data, [ramp()], memory=one).outputs[0].ravel().tolist() == list(REFERENCE)


def test_compiled_programs_run_in_less_scratch(bench: RuntimeBench, tmp_path: Path) -> None:
    out = tmp_path / "o.pte"
    compile_program(MODELS / "three_convolutions_u55.pte", out, objective="bytes")
    ran = bench.run(out.read_bytes(), [ramp()], memory=BenchMemory(temp_bytes=30256))
    assert ran.outputs[0].ravel().tolist() == list(REFERENCE)
    assert ran.scratch_bytes == 30256


@pytest.mark.parametrize("name", REAL)
def test_programs_in_one_arena_run_without_copies(bench: RuntimeBench, tmp_path: Path, name: str) -> None:
    """In the runtime, with the header that a firmware includes."""
    out = tmp_path / "o.pte"
    size = compile_program(MODELS / f"{name}.pte", out, one_arena=True).arenas[0].arena_bytes
    ran = bench.run(out.read_bytes(), [ramp()], memory=BenchMemory(planned_bytes=(size,), temp_at=0))
    assert ran.outputs[0].ravel().tolist() == list(REFERENCE)
    assert (ran.copied_in_bytes, ran.copied_out_bytes) == (0, 0)


def test_programs_in_one_arena_run_on_unchanged_firmware(bench: RuntimeBench, tmp_path: Path) -> None:
    out = tmp_path / "o.pte"
    compile_program(MODELS / "three_convolutions_u55.pte", out, one_arena=True)
    assert bench.run(out.read_bytes(), [ramp()]).outputs[0].ravel().tolist() == list(REFERENCE)


def test_other_programs_fail_in_one_arena(bench: RuntimeBench) -> None:
    """The control: one arena is one memory, and what lies in the scratch spoils tensors that are needed later."""
    spoilt = bench.run(twice(True, 0, 73856), [ramp()], memory=BenchMemory(temp_at=0)).outputs
    assert not np.array_equal(spoilt[2], bench.run(twice(True, 0, 73856), [ramp()]).outputs[2])
