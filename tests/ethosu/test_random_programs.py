"""Random programs on a tiny arena, lifted, planned anew and compared byte origin by byte origin."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.stream.decode import Operation
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.vela.lift import arguments, lift_program
from npu_memplan.verify import verify
from tests.support.hand_made import conv, dma, elementwise, network, view
from tests.support.provenance import Memory, execute, same

_SLOT = 64  # bytes; every map covers one or two slots
_SLOTS = 8
_INPUTS = (0, 1, 2)


@st.composite
def _programs(draw: Any) -> tuple[list[Operation], list[int]]:
    """Operations that read only what has been written, on maps that overlap wholly or not at all; output slots."""
    defined = set(_INPUTS)
    found: list[Operation] = []
    for number in range(draw(st.integers(2, 10))):
        rows = draw(st.integers(1, 2))
        shape = (rows, 4, 16)
        ready = [s for s in range(_SLOTS - rows + 1) if set(range(s, s + rows)) <= defined]
        if not ready:
            continue
        a, b = draw(st.sampled_from(ready)), draw(st.sampled_from(ready))
        target = draw(st.integers(0, _SLOTS - rows))
        apart = all(abs(target - s) >= rows for s in (a, b))
        kind = draw(st.sampled_from(("elementwise", "conv", "dma")))
        ifm, ofm = view("IFM", a * _SLOT, shape), view("OFM", target * _SLOT, shape)
        if kind == "elementwise" and all(target == s or abs(target - s) >= rows for s in (a, b)):
            found.append(elementwise(ifm, ofm, view("IFM2", b * _SLOT, shape)))
        elif kind == "conv" and apart:
            found.append(conv(ifm, ofm, depth=16, weights=(0, number * 32, 32), scales=(0, 512, 16)))
        elif apart:
            found.append(dma((1, a * _SLOT), (1, target * _SLOT), rows * _SLOT))
        else:
            continue
        defined |= set(range(target, target + rows))
    assume(found)
    return found, draw(st.lists(st.sampled_from(sorted(defined)), min_size=1, max_size=2, unique=True))


@settings(max_examples=150, deadline=None)
@given(_programs())
def test_random_programs_compute_the_same_when_planned_anew(made_up: tuple[list[Operation], list[int]]) -> None:
    """Webs of several parameters are among them: their copies are seen through."""
    operations, outputs = made_up
    tensors = [((1, 4, 16), s * _SLOT) for s in range(_SLOTS)]
    net = network(operations, [tensors[s] for s in _INPUTS], [tensors[s] for s in outputs], scratch=_SLOTS * _SLOT)
    call = net.npu_calls[0]
    program = lift_program(net, call)
    named = arguments(net, call)
    original = Memory({0: 1024, 1: _SLOTS * _SLOT})
    for number, argument in enumerate(named):
        if argument.role is BufferRole.INPUT:
            original.define(1, argument.address, argument.size_bytes, number)
    expected = execute(operations, original, call.accelerator, see_through_copies=True)

    live = program.live_ranges()
    end = len(program.operations) + 1
    buffers = []
    for buffer in program.buffers:
        if buffer.role is not BufferRole.CONSTANTS:
            first, last = (t + 1 for t in live.get(buffer.name, (0, 0)))
            first = 0 if buffer.role is BufferRole.INPUT else first
            last = end if buffer.role is BufferRole.OUTPUT else last
            buffers.append(Buffer(buffer.name, buffer.size_bytes, (Lifetime(first, last + 1),)))
    overlaps = tuple(o.allowed for o in find_overlaps(program))
    problem = Problem(tuple(buffers), (Pool("sram"),), overlaps=overlaps)
    made = plan(problem, planner="first-fit")
    assert verify(problem, made) == ()
    places = {p.buffer: (1, p.offset_bytes) for p in made.placements} | {"constants": (0, 0)}

    size = max(p.offset_bytes for p in made.placements) + _SLOTS * _SLOT
    moved = Memory({0: 1024, 1: size})
    for number, argument in enumerate(named):
        if argument.role is BufferRole.INPUT:
            moved.define(*places[argument.name], argument.size_bytes, number)
    placed = [program.place(i, places.__getitem__) for i in range(len(program.operations))]
    trace = execute(placed, moved, call.accelerator, see_through_copies=True)
    assert same(expected, trace)
    for argument in named:
        if argument.role is BufferRole.OUTPUT:
            at = places[argument.name][1]
            ours = moved.bytes[1][at : at + argument.size_bytes]
            assert np.array_equal(ours, original.bytes[1][argument.address : argument.address + argument.size_bytes])
