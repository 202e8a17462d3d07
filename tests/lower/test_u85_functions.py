"""Ethos-U85's tables of sigmoid and tanh give what is built into Ethos-U55, for every value that can reach them."""

from __future__ import annotations

import numpy as np
import pytest

from fvp_runner.npu_model.arithmetic import rescale
from npu_memplan.ethosu.lower.languages import function_table_u85
from npu_memplan.ethosu.stream.isa import ActivationFunction, TableKind

_REACH = 1 << 18  # both functions are at their limits beyond half of this


@pytest.mark.parametrize(
    ("function", "kind", "built_in"),
    [
        (ActivationFunction.SIGMOID, TableKind.SIGMOID, rescale.sigmoid),
        (ActivationFunction.TANH, TableKind.TANH, rescale.tanh),
    ],
)
def test_every_value(function: ActivationFunction, kind: TableKind, built_in: object) -> None:
    words = function_table_u85(function)
    assert words.shape == (512,)
    values = np.arange(-_REACH, _REACH)
    found = rescale.look_up(kind, words.astype(np.uint32).view(np.uint8), values)
    assert callable(built_in)
    assert np.array_equal(found, built_in(values))
