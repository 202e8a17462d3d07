"""Tables of int8 LOGISTIC and TANH equal tflite-micro's results for all 256 inputs, at 1,000 input scales each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.lower import tables
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.exactness import Exactness
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.in_steps import equals_reference
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")

USUAL = [(1 / 128, 0), (1 / 256, -128), (1 / 256, 0), (1 / 128, -128), (0.05, 3), (1.0, -128), (8.0, 127)]
STANDARD = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
TABLES: dict[str, Callable[[LayerTensor, LayerTensor], tuple[int, ...]]] = {
    "LOGISTIC": tables.sigmoid,
    "TANH": tables.tanh,
}


def model(kind: str, scales: list[tuple[float, int]], out: tuple[float, int]) -> ModelBuilder:
    """One operator on all 256 values for each input scale and zero point."""
    b = ModelBuilder()
    for scale, zero in scales:
        x, y = b.tensor((256,), "int8", scale, zero), b.tensor((256,), "int8", *out)
        b.operator(kind, [x], [y], None, 2)
        b.inputs.append(x)
        b.outputs.append(y)
    return b


@pytest.mark.parametrize("kind", STANDARD)
def test_all_inputs_equal_the_reference(kind: str) -> None:
    rng = np.random.default_rng(1)
    drawn = [(float(np.float32(10 ** rng.uniform(-5, 1))), int(rng.integers(-128, 128))) for _ in range(993)]
    scales = [*USUAL, *drawn]
    for first in range(0, len(scales), 100):
        some = scales[first : first + 100]
        given = [np.arange(-128, 128).astype(np.int8)] * len(some)
        results = TFLiteReference(model(kind, some, STANDARD[kind]).finish()).run(given)
        for (scale, zero), wanted in zip(some, results, strict=True):
            ifm = LayerTensor("x", (1,), "int8", float(np.float32(scale)), zero)
            found = TABLES[kind](ifm, LayerTensor("y", (1,), "int8", *STANDARD[kind]))
            assert np.array_equal(found, wanted), (scale, zero)


@pytest.mark.parametrize("kind", STANDARD)
def test_native_lowering_runs_it_exactly(kind: str, tmp_path: Path) -> None:
    made = model(kind, [(1 / 128, 0)], STANDARD[kind]).finish()
    (operator,) = equals_reference(made, tmp_path, 1, CompileOptions(npu_compiler="tvm", objective="bytes")).operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.EXACT)


@pytest.mark.parametrize("kind", STANDARD)
def test_velas_tables_are_not_called_exact(kind: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(model(kind, [(1 / 128, 0)], STANDARD[kind]).finish())
    options = CompileOptions(npu_compiler="vela", objective="bytes")
    (operator,) = compile_model(tmp_path / "m.tflite", options, tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.STEP)


def test_other_output_scales_are_kept_from_vela(tmp_path: Path) -> None:
    made = model("TANH", [(1 / 16, 0)], (1 / 100, 4)).finish()
    (operator,) = equals_reference(made, tmp_path, 1, CompileOptions(npu_compiler="vela", objective="bytes")).operators
    assert operator.agent is Agent.HOST
