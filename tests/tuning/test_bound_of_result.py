"""The bound that is printed beside a result is not above it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npu_memplan import compiler
from npu_memplan.options import CompileOptions
from tests.support.random_networks import network
from tests.support.random_networks.verdict import ways


def least_and_taken(model: Path, options: CompileOptions) -> tuple[int, int]:
    """Cycles that are printed: the bound, and those of the program."""
    (note,) = (n for n in compiler.plan_model(model, options).artifact.notes if n.startswith("selected: "))
    found = re.search(r"([\d,]+) cycles (?:\([\d,]+ on the CPU\) )?in [\d,]+ bytes, ([\d,]+) at least", note)
    assert found is not None, note
    taken, least = (int(text.replace(",", "")) for text in found.groups())
    return least, taken


@pytest.mark.parametrize("seed", [2123, 2, 7000000, 7000001])
def test_no_bound_is_above_the_result(seed: int, tmp_path: Path) -> None:
    """Seed 2123: 432 bytes of weights have room in Vela's 2,042 bytes, of which 2,032 were counted. The others load the
    table of an operation while commands are read from the same memory.
    """
    model = tmp_path / "network.tflite"
    model.write_bytes(network(seed))
    least, taken = least_and_taken(model, ways(seed)["default"])
    assert least <= taken
