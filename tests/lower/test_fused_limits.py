"""Limits of fused activations whose quotient by the scale is near a half, where roundings differ.

Invariant: every element is compared with the reference; scales are drawn so that rounding to even, or division in
double precision, gives another limit for some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.fixed_point import activation_range
from tests.support.against_reference import equals_reference
from tests.support.arithmetic_models import binary, convolution, fully_connected, pool
from tests.support.operator_table import row
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

_LIMIT = {2: 1.0, 3: 6.0}  # of RELU_N1_TO_1 and RELU6
_MAKERS: dict[str, Callable[..., ModelBuilder]] = {
    "conv": lambda rng, **more: convolution(rng, shape=(5, 5, 4), **more),
    "depthwise": lambda rng, **more: convolution(rng, depthwise=True, shape=(5, 5, 4), channels=4, **more),
    "dense": fully_connected,
    "max": lambda rng, **more: pool(rng, kind="MAX", **more),
    "average": lambda rng, **more: pool(rng, kind="AVERAGE", **more),
    "transposed": lambda rng, **more: _transposed(rng, **more),
    "add": lambda rng, **more: binary(rng, name="ADD", **more),
    "mul": lambda rng, **more: binary(rng, name="MUL", **more),
}


def _transposed(rng: np.random.Generator, activation: int, dtype: str) -> ModelBuilder:
    """TRANSPOSE_CONV, which has had activations since version 4; TVM 0.27's importer forgets them."""
    builder = row("TRANSPOSE_CONV", dtype).make(rng)
    ((kind, inputs, outputs, options, fields, _),) = builder.operators
    builder.operators = [(kind, inputs, outputs, options, fields | {"FusedActivationFunction": activation}, 4)]
    return builder


def limited(rng: np.random.Generator, kind: str, activation: int, dtype: str) -> ModelBuilder:
    """An operator whose output scale divides the limit of its activation into about a whole number and a half."""
    builder = _MAKERS[kind](rng, activation=activation, dtype=dtype)
    scale = np.float32(_LIMIT[activation] / (int(rng.integers(8, 90)) + 0.5))
    for _ in range(int(rng.integers(0, 3))):
        scale = np.nextafter(scale, np.float32(rng.choice([0.0, 1.0])))
    zero = int(rng.integers(-100, 20)) + (128 if dtype == "uint8" else 0)
    changed = [*builder.outputs, *(builder.inputs if kind in ("max", "average") else ())]
    for index in changed:
        builder.tensors[index] = replace(builder.tensors[index], scale=float(scale), zero_point=zero)
    return builder


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", _LIMIT)
@pytest.mark.parametrize("kind", _MAKERS)
def test_fused_limits_near_a_half(kind: str, activation: int, dtype: str) -> None:
    for seed in range(3):
        case = Case(
            f"limits_{kind}_{activation}_{dtype}_{seed}", "limits", lambda rng: limited(rng, kind, activation, dtype)
        )
        equals_reference(case, "ethos-u85-256" if seed % 2 else "ethos-u55-128", seed)


def test_scales_are_drawn_where_roundings_differ() -> None:
    """So that the test above can fail: half to even, in double precision, is another limit for a good part."""
    rng = np.random.default_rng(1)
    differing = 0
    for _ in range(200):
        builder = limited(rng, "max", 3, "int8")
        tensor = builder.tensors[builder.outputs[0]]
        _, high = activation_range(3, tensor.scale, tensor.zero_point, "int8")
        differing += high != min(127, round(6.0 / tensor.scale) + tensor.zero_point)
    assert differing > 40
