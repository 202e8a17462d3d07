"""The map of last writers against an array with one entry a byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.ethosu.program import overlap
from npu_memplan.ethosu.program.access import merge_ranges, strided_ranges
from npu_memplan.ethosu.program.overlap import NOBODY, Writers

_SIZE = 400


@st.composite
def _ranges(draw: Any) -> Any:
    if draw(st.booleans()):
        count, stride = draw(st.integers(1, 90)), draw(st.integers(1, 4))
        return strided_ranges(draw(st.integers(0, 20)), draw(st.integers(1, 3)), [(count, stride)])
    spans = draw(st.lists(st.tuples(st.integers(0, 380), st.integers(1, 15)), min_size=1, max_size=6))
    return merge_ranges([np.array([[a, a + n]], np.int64) for a, n in spans])


@pytest.mark.parametrize("many", [0, 3, 64])
@settings(max_examples=80)
@given(steps=st.lists(st.tuples(st.booleans(), _ranges()), max_size=12))
def test_last_writers_are_those_of_every_byte(many: int, steps: list[tuple[bool, Any]]) -> None:
    """`many` is where the implementation changes over to arrays: both ways must agree with the oracle."""
    before, overlap._MANY = overlap._MANY, many
    try:
        memory = np.full(_SIZE, NOBODY)
        writers = Writers()
        for number, (writes, ranges) in enumerate(steps):
            touched = np.concatenate([np.arange(a, b) for a, b in ranges.tolist()])
            if writes:
                writers.write(ranges, number)
                memory[touched] = number
            else:
                assert writers.readers_see(ranges) == set(memory[touched].tolist())
    finally:
        overlap._MANY = before
