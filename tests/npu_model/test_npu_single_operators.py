"""Single-operator models against tflite-micro, each on one configuration in turn; and the coverage table."""

from __future__ import annotations

import pytest

from tests.support.compiled_cases import ACCELERATORS
from tests.support.single_operators import all_cases
from tests.support.trial import try_case

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")

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
