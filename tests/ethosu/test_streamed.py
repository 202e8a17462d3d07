"""When rows of a streamed input have to be there: against a search of all ways to feed them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.program import overlap
from npu_memplan.ethosu.program.access import merge_ranges, strided_ranges
from npu_memplan.ethosu.program.overlap import NOBODY, Writers
from npu_memplan.ethosu.program.program import BufferRole, Feed, NpuBuffer, NpuOperation, NpuProgram, input_feeds, parts
from npu_memplan.ethosu.schedule.constants import loaded_early
from npu_memplan.ethosu.stream.isa import Op, Register


def operations(rows: list[tuple[int, int]]) -> list[NpuOperation]:
    return [NpuOperation(Op.POOL, 0, {}, {}, input_rows=pair) for pair in rows]


def fewest(rows: list[tuple[int, int]], kept: int) -> int:
    """How few feeds there can be: the rows that are there before each operation, all possibilities side by side."""
    possible = {0: 0}  # rows that are there -> feeds so far
    for place, (first, stop) in enumerate(rows):
        if not stop:
            continue
        most = kept + min(f for f, s in rows[place:] if s)
        after: dict[int, int] = {}
        for there, count in possible.items():
            for more in range(max(there, stop), max(there, most) + 1):
                cost = count + (more > there)
                if first >= more - kept:
                    after[more] = min(cost, after.get(more, cost))
        possible = after
    return min(possible.values())


def test_no_row_is_late_or_lost_and_feeds_are_few() -> None:
    rng = random.Random(5)
    for _ in range(200):
        step, height = rng.randint(1, 3), rng.randint(1, 4)
        rows = []
        for turn in range(rng.randint(1, 6)):
            rows.append((turn * step, turn * step + height))
            rows += [(0, 0)] * rng.randint(0, 2)
            if rng.random() < 0.3:  # another reader, which lags behind
                rows.append((max(0, (turn - 1) * step), turn * step + 1))
        last = 0
        kept = 0
        for place, (_, stop) in enumerate(rows):
            last = max(last, stop)
            unread = [first for first, stop in rows[place:] if stop]
            kept = max(kept, last - min(unread)) if unread else kept
        kept += rng.randint(0, 3)
        found = input_feeds(operations(rows), kept)
        assert len(found) == fewest(rows, kept)
        there = {feed.operation: feed.rows for feed in found}
        now = 0
        for place, (first, stop) in enumerate(rows):
            now = there.get(place, now)
            if stop:
                assert stop <= now
                assert first >= now - kept
        assert found[-1].rows == max(stop for _, stop in rows)
        ranges = parts(operations(rows), kept)
        assert [i for part in ranges for i in part] == list(range(len(rows)))
        assert [part.start for part in ranges[1:]] == [feed.operation for feed in found[1:]]


def test_a_program_without_such_an_input_is_one_part() -> None:
    assert input_feeds(operations([(0, 0)] * 3), 4) == ()
    assert parts(operations([(0, 0)] * 3), 4) == (range(3),)
    assert input_feeds(operations([(0, 0), (0, 3), (2, 5)]), 3) == (Feed(1, 3), Feed(2, 5))


def test_tables_are_not_loaded_before_rows_come() -> None:
    table = {Register.DMA0_SRC: ("constants", 0), Register.DMA0_DST: ("lut", 0)}
    load = NpuOperation(Op.DMA_START, 0, {Register.DMA0_LEN: 256}, table)
    buffers = (NpuBuffer("constants", 256, BufferRole.CONSTANTS), NpuBuffer("lut", 2048, BufferRole.LUT))
    for rows, place in (((2, 5), 2), ((0, 0), 1)):
        first, reader, other = operations([(0, 3), rows, (0, 0)])
        program = NpuProgram(accelerator("ethos-u55-256"), buffers, (first, reader, other, load))
        made = loaded_early(program).operations
        assert made.index(load) == place
        assert [o for o in made if o is not load] == [first, reader, other]


# -- The map of last writers against an array with one entry a byte


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


class _Counting(Writers):
    """Counts the segments that were looked at together."""

    __slots__ = ("looked_at",)

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = 0

    def _segment_columns(self, first: int, end: int) -> tuple[Any, Any]:
        self.looked_at += end - first
        return super()._segment_columns(first, end)


def test_a_write_looks_at_its_own_bytes_only() -> None:
    """A damaged stream: 100 kernels, each with 2,000 runs of its own. The work is theirs, not its square."""
    writers, runs, kernels = _Counting(), 2_000, 100
    maps = [strided_ranges(10 * runs * k, 2, [(runs, 10)]) for k in range(kernels)]
    for number, ranges in enumerate(maps):
        writers.write(ranges, number)
    assert writers.looked_at == kernels  # each found one segment, the open end of the memory
    for number, ranges in enumerate(maps):
        assert writers.readers_see(ranges) == {number}
    assert writers.looked_at <= kernels + 2 * runs * kernels
