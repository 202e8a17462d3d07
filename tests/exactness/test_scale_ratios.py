"""Ratios of scales that are nearly fractions of small numbers: where they are rounded to float32, ties go elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.exactness import Exactness
from tests.support.scale_pairs import KINDS, WAYS, Pair, compare, false_claims
from tests.support.tflite_builder import ModelBuilder


def near_fractions(kind: str, dtype: str, count: int) -> list[Pair]:
    """Pairs whose ratio differs from a fraction of numbers up to 40 by what float32 rounds, where a tie shows it."""
    rng, limits = np.random.default_rng(7), np.iinfo(dtype)
    found: list[Pair] = []
    while len(found) < count:
        scale = np.float32(rng.uniform(0.001, 0.1))
        above, below = rng.integers(1, 41, 2)
        made = np.float32(scale * np.float32(above) / np.float32(below))
        zeros = [int(z) for z in rng.integers(limits.min, limits.max, 2)]
        pair = Pair((float(scale), zeros[0]), (float(made), zeros[1]), KINDS[kind].fields(rng))
        results = [rescaled(pair, limits, ratio) for ratio in (float(scale) / float(made), float(scale / made))]
        found += [pair] if (results[0] != results[1]).any() else []
    return found


def rescaled(pair: Pair, limits: np.iinfo, ratio: float) -> np.ndarray:
    """What each value of the type is in the other scale, ties away from zero."""
    values = (np.arange(limits.min, limits.max + 1) - pair.source[1]) * ratio
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values) + pair.made[1], limits.min, limits.max)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "QUANTIZE"])
def test_ties_are_those_of_the_reference(kind: str, dtype: str, way: str) -> None:
    """tflite-micro divides scales in double precision, LiteRT, which has uint8 and other limits, in float32."""
    found = compare(kind, dtype, way, near_fractions(kind, dtype, 10))
    assert found
    assert false_claims(found) == []


def of_two(kind: str, dtype: str, count: int) -> tuple[ModelBuilder, list[np.ndarray]]:
    """MUL of two tensors, PRELU with slopes, or DIV whose ratio of scales is large enough for its reference."""
    b, rng, limits, given = ModelBuilder(), np.random.default_rng(3), np.iinfo(dtype), []
    shape = (1, 4, 8, 32)

    def drawn(nonzero: int | None = None) -> np.ndarray:
        values = rng.integers(limits.min, limits.max + 1, shape)
        return np.where(values == nonzero, 1 + (nonzero or 0) % 100, values).astype(dtype)

    for _ in range(count):
        first, second = np.float32(rng.uniform(0.001, 0.1, 2))
        fraction = np.float32(rng.integers(1, 41)) / np.float32(rng.integers(1, 41))
        zeros = [int(z) for z in rng.integers(limits.min, limits.max, 3)]
        made = {"MUL": first * second * 40, "PRELU": first, "DIV": first / second / 8192}[kind] * fraction
        x = b.tensor(shape, dtype, float(first), zeros[0])
        y = b.tensor(shape, dtype, float(np.float32(made)), zeros[2])
        b.inputs.append(x)
        given.append(drawn())
        if kind == "PRELU":
            other = b.constant(drawn()[:, 0, 0].reshape(1, 1, 32), float(second), zeros[1])
        else:
            other = b.tensor(shape, dtype, float(second), zeros[1])
            b.inputs.append(other)
            given.append(drawn(zeros[1] if kind == "DIV" else None))
        options = {"MUL": "MulOptions", "DIV": "DivOptions"}.get(kind)
        b.operator(kind, [x, other], [y], options, 2 if kind == "MUL" else 1)
        b.outputs.append(y)
    return b, given


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["MUL", "PRELU", "DIV"])
def test_ties_of_two_operands_are_those_of_the_reference(kind: str, dtype: str, way: str, tmp_path: Path) -> None:
    b, given = of_two(kind, dtype, 10)
    path = tmp_path / "model.tflite"
    path.write_bytes(b.finish())
    wanted = TFLiteReference(path.read_bytes()).run(given)
    artifact = compile_model(path, WAYS[way], tmp_path / "out")
    made = LocalRunner(tmp_path / "out").run(given).outputs
    steps = {Exactness.EXACT: 0, Exactness.STEP: 1}
    for operator, ours, theirs in zip(artifact.operators, made, wanted, strict=True):
        apart = np.abs(ours.astype(int).reshape(-1) - theirs.astype(int).reshape(-1)).max()
        assert apart <= steps[operator.claim.exactness], operator
