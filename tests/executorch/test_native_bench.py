"""Delegates of attention by native lowering, and Vela's, in ExecuTorch's own runtime; TOSA's reference model judges.

Needs the package executorch (an environment of its own), tosa-tools and a C++ compiler; skipped elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("executorch.runtime")

from fvp_runner.executorch.commands import compile_program
from fvp_runner.references.other_formats import TosaReference, find_tool
from npu_memplan.executorch.replanning import ScratchGoal
from npu_memplan.executorch_lowering.partitioner import plan_blocks
from tests.executorch.test_native import vela_blocks
from tests.support.executorch_bench.runtime import BenchMemory, RuntimeBench
from tests.support.pte_file import Calls, Tensor, pte_file

GRAPH = (Path(__file__).resolve().parents[1] / "models" / "attention.tosa").read_bytes()
SHAPE = (1, 16, 32)  # of its input and of its output
MODES = {"ethos-u55-256": "Shared_Sram", "ethos-u65-256": "Dedicated_Sram_384KB", "ethos-u85-256": "Sram_Only"}

pytestmark = pytest.mark.skipif(find_tool("tosa_reference_model") is None, reason="tosa-tools is not installed")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RuntimeBench:
    return RuntimeBench(tmp_path_factory.mktemp("bench"))


def program(delegate: bytes) -> bytes:
    """One call of a delegate, whose input and output are the program's."""
    values = [Tensor("int8", SHAPE, (1, 0)), Tensor("int8", SHAPE, (1, 512))]
    return pte_file([Calls(values, [0], [1], [("delegate", 0, [0, 1])], [0, 1024], [("EthosUBackend", 0)])], [delegate])


@pytest.mark.parametrize("npu", MODES)
def test_attention(bench: RuntimeBench, tmp_path: Path, npu: str) -> None:
    specs = {"compile_flags": f"--accelerator-config={npu} --memory-mode={MODES[npu]}".encode()}
    vela = vela_blocks(GRAPH, npu)
    native = plan_blocks(vela, specs, ScratchGoal(), "tvm", GRAPH)
    assert native != vela
    values = np.random.default_rng(6).integers(-128, 128, SHAPE).astype(np.int8)
    (expected,) = TosaReference(GRAPH, "attention").run([values])
    assert len(np.unique(expected)) > 100
    for blocks in (vela, native):
        assert np.array_equal(bench.run(program(blocks), [values]).outputs[0], expected)
    source, made = tmp_path / "model.pte", tmp_path / "planned.pte"
    source.write_bytes(program(native))
    size = compile_program(source, made, one_arena=True).arenas[0].arena_bytes
    ran = bench.run(made.read_bytes(), [values], memory=BenchMemory(planned_bytes=(size,), temp_at=0))
    assert np.array_equal(ran.outputs[0], expected)
    assert (ran.copied_in_bytes, ran.copied_out_bytes) == (0, 0)
