"""Feature maps in memory: the pieces of a layout against the address formula, element by element."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fvp_runner.npu_model.bound.memory import FeatureMapAccess, RegionMemory
from fvp_runner.npu_model.checks.footprint import Access, Grid, of_pieces
from fvp_runner.npu_model.spec.feature_maps import MapLayout, Registers
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.ethosu.stream.isa import Op

REGS = Registers(Operation(Op.POOL, 0, {}, 0), 0)


def address(layout: MapLayout, y: int, x: int, c: int) -> int:
    """The address of one element, from the architecture's description."""
    right = x >= layout.width0
    split = layout.height1 if right else layout.height0
    below = y >= split
    base = layout.bases[2 * below + right]
    y, x = y - split * below, x - layout.width0 * right
    size = layout.dtype.itemsize
    if layout.brick:
        return base + y * layout.stride_y + c // 16 * layout.stride_c + x * 16 * size + c % 16 * size
    return base + y * layout.stride_y + x * layout.stride_x + c * size


@st.composite
def layouts(draw: st.DrawFn) -> tuple[MapLayout, tuple[int, int, int]]:
    height, width, depth = draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(1, 40))
    brick = draw(st.booleans())
    dtype = np.dtype(draw(st.sampled_from(["i1", "u1", "<i2", "<i4"])))
    size = dtype.itemsize
    gap = draw(st.sampled_from([0, 16, 64]))
    if brick:
        stride_c = width * 16 * size + gap
        stride_y, stride_x = stride_c * -(-depth // 16) + gap, 0
        tile = stride_y * height
    else:
        stride_c, stride_x = 0, depth * size + gap
        stride_y = stride_x * width + gap
        tile = stride_y * height
    tile = -(-tile // 16) * 16
    order = draw(st.permutations(range(4)))
    bases = tuple(16 + place * tile for place in order)
    layout = MapLayout(
        name="IFM",
        region=0,
        bases=(bases[0], bases[1], bases[2], bases[3]),
        height0=draw(st.integers(1, 8)),
        height1=draw(st.integers(1, 8)),
        width0=draw(st.integers(1, 8)),
        stride_y=stride_y,
        stride_x=stride_x,
        stride_c=stride_c,
        dtype=dtype,
        brick=brick,
        zero_point=0,
    )
    return layout, (height, width, depth)


@settings(max_examples=150, deadline=None)
@given(layouts())
def test_reading_and_writing_follow_the_address_formula(drawn: tuple[MapLayout, tuple[int, int, int]]) -> None:
    layout, shape = drawn
    size = layout.dtype.itemsize
    count = 16 + 4 * (-(-layout.stride_y * shape[0] // 16) * 16)
    memory = np.random.default_rng(0).integers(0, 256, count, np.uint8)
    where = np.array(
        [[[address(layout, y, x, c) for c in range(shape[2])] for x in range(shape[1])] for y in range(shape[0])]
    )
    expected = memory[where[..., None] + np.arange(size)].reshape(-1).view(layout.dtype).reshape(shape)

    shadow = np.zeros(count, np.bool_)
    npu = RegionMemory(accelerator("ethos-u55-256"), [memory], [shadow])
    access = FeatureMapAccess(npu, REGS, layout, shape, is_write=False)
    access.load_values()
    assert np.array_equal(access.array, expected)

    other = np.random.default_rng(1).integers(-100, 100, shape).astype(layout.dtype)
    before = memory.copy()
    access = FeatureMapAccess(npu, REGS, layout, shape, is_write=True)
    access.load_values()
    access.array[...] = other
    access.store_values()
    access.mark_defined()
    touched = np.unique(where[..., None] + np.arange(size))
    assert np.array_equal(
        memory[where[..., None] + np.arange(size)].reshape(-1).view(layout.dtype).reshape(shape), other
    )
    untouched = np.setdiff1d(np.arange(count), touched)
    assert np.array_equal(memory[untouched], before[untouched])
    assert np.array_equal(np.flatnonzero(shadow), touched)


@settings(max_examples=60, deadline=None)
@given(layouts(), st.data())
def test_footprints_of_boxes_are_exact(drawn: tuple[MapLayout, tuple[int, int, int]], data: st.DataObject) -> None:
    layout, shape = drawn
    spans = []
    for n in shape:
        first = data.draw(st.integers(0, n - 1))
        spans.append((first, data.draw(st.integers(first + 1, n))))
    access = of_pieces("IFM", 0, layout.box_pieces(spans[0], spans[1], spans[2]), layout.dtype.itemsize)
    found = {a + i for grid in access.grids for a in grid.starts().tolist() for i in range(grid.run)}
    (y0, y1), (x0, x1), (c0, c1) = spans
    size = layout.dtype.itemsize
    assert found == {
        address(layout, y, x, c) + i
        for y in range(y0, y1)
        for x in range(x0, x1)
        for c in range(c0, c1)
        for i in range(size)
    }


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9)), min_size=2, max_size=2
    )
)
def test_first_common_byte(grids: list[tuple[int, int, int, int]]) -> None:
    accesses = [Access("X", 1, (Grid(start, run, ((count, stride),)),)) for start, run, count, stride in grids]
    sets = [{s + i * st_ + j for i in range(n) for j in range(r)} for s, r, n, st_ in grids]
    common = sets[0] & sets[1]
    assert accesses[0].first_common(accesses[1]) == (min(common) if common else None)
    assert accesses[0].first_common(Access("Y", 2, accesses[1].grids)) is None
