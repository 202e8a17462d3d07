"""Errors of the estimate on a network that had no part in choosing its constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.time_left_out import MARK, families, inside, range_of, rounded, table
from npu_memplan.ethosu.arch import Product
from npu_memplan.ethosu.time.assumptions import LEFT_OUT
from tests.support.needs import need_data
from tests.support.real_data import REPOSITORY, shared_folder


def test_a_range_has_all_counts_and_the_estimate() -> None:
    assert range_of([0.5] + [1.0] * 9) == (1.0, 2.0)
    assert range_of([1.25] * 5) == (0.8, 1.0)
    assert range_of([0.8, 1.25]) == (0.8, 1.25)


def test_a_range_is_rounded_outwards() -> None:
    assert rounded((0.951, 1.041)) == (0.95, 1.05)
    assert rounded((0.95, 1.04)) == (0.95, 1.04)


@pytest.mark.slow
def test_the_page_says_what_each_network_left_out_comes_to() -> None:
    found = families(Path(need_data(shared_folder("fvp"))))
    page = (REPOSITORY / "docs" / "time_validation.md").read_text(encoding="utf-8")
    lines = table(found)
    assert page.partition(MARK)[2].strip().splitlines()[: len(lines)] == lines
    ranges = {family: rounded(range_of([one.ratio for one in predicted])) for family, predicted in found.items()}
    assert ranges == LEFT_OUT, "what is printed"
    held = [
        inside(predicted, name) for predicted in found.values() for name in {one.count.network for one in predicted}
    ]
    every = sum(map(len, found.values()))
    assert 10 * sum(held) >= 9 * every, "nine of ten counts lie in a range that was made without their network"
    off = {family: max(abs(one.ratio - 1) for one in predicted) for family, predicted in found.items()}
    assert max(off[Product.U55], off[Product.U65]) < 0.05
    assert off[Product.U85] < 0.084
