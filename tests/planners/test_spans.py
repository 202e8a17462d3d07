"""Sets of integers as spans, against Python's sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from npu_memplan.problem.spans import Spans, count_covered, merge_spans, subtract_spans, unite_spans

PIECES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def integers(spans: Spans) -> set[int]:
    """The set; spans that touch, are empty or not in order are none."""
    assert all(start < stop for start, stop in spans)
    assert all(a[1] < b[0] for a, b in pairwise(spans))
    return {i for start, stop in spans for i in range(start, stop)}


@given(PIECES, PIECES)
def test_spans_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = merge_spans(one), merge_spans(other)
    assert integers(a) == {i for start, stop in one for i in range(start, stop)}
    assert integers(unite_spans(a, b)) == integers(a) | integers(b)
    assert integers(subtract_spans(a, b)) == integers(a) - integers(b)
    assert count_covered(a) == len(integers(a))
