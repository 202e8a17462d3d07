"""Single-operator models against tflite-micro, each on one configuration in turn; and the coverage table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.compiled_cases import ACCELERATORS
from tests.support.single_operators import all_cases
from tests.support.trial import try_case

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")

CASES = tuple(all_cases())
TABLE = Path(__file__).resolve().parents[2] / "docs" / "npu_model_coverage.md"


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_single_operator_is_bit_exact(number: int) -> None:
    accelerator = ACCELERATORS[number % len(ACCELERATORS)]
    trial = try_case(CASES[number], accelerator, fuzz=2)
    assert trial.wrong == 0, f"{trial.wrong} of {trial.elements} elements differ on {accelerator}"


@pytest.mark.parametrize("number", range(5, len(CASES), 30), ids=[case.name for case in CASES[5::30]])
def test_single_operator_of_the_legacy_core_is_bit_exact(number: int) -> None:
    trial = try_case(CASES[number], ACCELERATORS[number // 30 % len(ACCELERATORS)], core="legacy")
    assert trial.wrong == 0


def table_rows() -> dict[str, list[str]]:
    """Case name -> its cells in the table of single operators."""
    rows = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 4 and re.fullmatch(r"`\w+`", cells[0]):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


def test_the_coverage_table_lists_exactly_the_cases_there_are() -> None:
    assert set(table_rows()) == {case.name for case in CASES}, "run benchmarks/npu_model_sweep.py to renew the table"


def test_at_least_100_models_are_exact_on_at_least_4_configurations() -> None:
    covered = [name for name, cells in table_rows().items() if sum(cell.startswith("exact") for cell in cells) >= 4]
    assert len(covered) >= 100
