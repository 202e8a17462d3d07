"""Real and random streams on other addresses compute the same: the origin of every byte read is compared.

The oracle in `provenance` shares no code with lifting; it knows registers and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.models.network import Network
from npu_memplan.models.vela import NpuCall
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Lifetime, Placement, Plan, PlanStatus, Pool, Problem
from npu_memplan.vela.lift import arguments, lift_program
from npu_memplan.verify import verify
from tests.support.hand_made import conv, dma, elementwise, network, view
from tests.support.provenance import Memory, execute, same

_MODELS = [
    ("digits", {"accelerator": "ethos-u55-256"}),
    ("kws_ref_model", {"accelerator": "ethos-u55-256"}),
    ("kws_ref_model", {"accelerator": "ethos-u65-512", "memory_mode": "Dedicated_Sram", "optimise": "Size"}),
    ("pretrainedResnet_quant", {"accelerator": "ethos-u55-128", "optimise": "Size"}),  # cascades
    ("str_ww_ref_model", {"accelerator": "ethos-u65-256", "memory_mode": "Dedicated_Sram"}),
    ("micro_speech_quantized", {"accelerator": "ethos-u55-64", "core": "legacy"}),
    ("ad01_int8", {"accelerator": "ethos-u65-256", "memory_mode": "Shared_Sram"}),
]


def _operations(call: NpuCall) -> list[Operation]:
    return [c for c in decode(call.words) if isinstance(c, Operation)]


def _original(network: Network, call: NpuCall) -> tuple[list[Any], dict[int, Any]]:
    memory = Memory({0: call.read_only.nbytes, 1: call.scratch_bytes, 2: max(call.scratch_fast_bytes, 1)})
    for number, argument in enumerate(arguments(network, call)):
        if argument.role is not BufferRole.OUTPUT:
            memory.define(argument.region, argument.address, argument.size_bytes, number)
    trace = execute(_operations(call), memory, call.accelerator)
    outputs = {
        a.name: memory.bytes[a.region][a.address : a.address + a.size_bytes]
        for a in arguments(network, call)
        if a.role is not BufferRole.INPUT
    }
    return trace, outputs


def _moved(
    network: Network, call: NpuCall, program: NpuProgram, places: dict[str, tuple[int, int]]
) -> tuple[list[Any], dict[int, Any]]:
    sizes = {0: call.read_only.nbytes, 1: 1, 2: 1}
    for buffer in program.buffers:
        region, base = places[buffer.name]
        if region in (1, 2):
            sizes[region] = max(sizes[region], base + buffer.size_bytes + 16)
    memory = Memory(sizes)
    named = list(arguments(network, call))
    for number, argument in enumerate(named):
        if argument.role is not BufferRole.OUTPUT:
            memory.define(*places[argument.name], argument.size_bytes, number)
    operations = [program.place(i, places.__getitem__) for i in range(len(program.operations))]
    trace = execute(operations, memory, call.accelerator)
    outputs = {}
    for argument in named:
        if argument.role is not BufferRole.INPUT:
            region, base = places[argument.name]
            outputs[argument.name] = memory.bytes[region][base : base + argument.size_bytes]
    return trace, outputs


def _fixed(program: NpuProgram) -> dict[str, tuple[int, int]]:
    """Where unplanned buffers lie."""
    return {
        b.name: (b.original_region, b.original_offset)
        for b in program.buffers
        if b.role in (BufferRole.CONSTANTS, BufferRole.LUT)
    }


def _problem(program: NpuProgram) -> Problem:
    """A planning problem straight from the program: inclusive operation ranges become half-open points."""
    live = program.live_ranges()
    end = len(program.operations) + 1
    buffers = []
    for buffer in program.buffers:
        if buffer.role in (BufferRole.CONSTANTS, BufferRole.LUT):
            continue
        first, last = (t + 1 for t in live.get(buffer.name, (0, 0)))
        if buffer.role in (BufferRole.INPUT, BufferRole.STATE):
            first = 0
        if buffer.role in (BufferRole.OUTPUT, BufferRole.STATE):
            last = end
        pool = f"region{buffer.original_region}"
        buffers.append(Buffer(buffer.name, buffer.size_bytes, (Lifetime(first, last + 1),), pools=(pool,)))
    overlaps = tuple(o.allowed for o in find_overlaps(program))
    regions = sorted({b.pools[0] for b in buffers})
    return Problem(
        tuple(buffers), tuple(Pool(r, agents=frozenset(buffers[0].agents)) for r in regions), overlaps=overlaps
    )


def _heights(problem: Problem, placements: Any) -> dict[str, int]:
    heights: dict[str, int] = {}
    for p in placements:
        heights[p.pool] = max(heights.get(p.pool, 0), p.offset_bytes + problem.buffer(p.buffer).size_bytes)
    return heights


@pytest.mark.parametrize(("model", "options"), _MODELS, ids=lambda v: v if isinstance(v, str) else "-".join(v.values()))
def test_real_streams_compute_the_same_at_other_addresses(
    compiled: Callable[..., Network], model: str, options: dict[str, str]
) -> None:
    network = compiled(model, **options)
    for call in network.npu_calls:
        program = lift_program(network, call)
        expected, outputs = _original(network, call)
        # 1. everything apart, in a random order: no buffer may lean on another's place
        order = [b for b in program.buffers if b.role not in (BufferRole.CONSTANTS, BufferRole.LUT)]
        random.Random(7).shuffle(order)
        places, tops = _fixed(program), {1: 0, 2: 0}
        for buffer in order:
            region = buffer.original_region
            places[buffer.name] = (region, tops[region])
            tops[region] += -(-buffer.size_bytes // 16) * 16 + 16
        # 2. a real plan: buffers share bytes over time, and in place
        problem = _problem(program)
        made = plan(problem, planner="first-fit")
        assert verify(problem, made) == ()
        planned = _fixed(program) | {p.buffer: (int(p.pool[-1]), p.offset_bytes) for p in made.placements}
        for where in (places, planned):
            trace, results = _moved(network, call, program, where)
            assert same(expected, trace)
            assert same([list(outputs.values())], [list(results.values())])


_PLACED = [
    *("ad01_int8", "hello_world_int8", "kws_ref_model", "micro_speech_quantized", "person_detect"),
    *("pretrainedResnet_quant", "str_ww_ref_model", "trained_lstm_int8", "vww_96_int8"),
]


@pytest.mark.parametrize(
    ("model", "npu", "core"),
    [
        *((m, npu, "regor") for m in _PLACED for npu in ("ethos-u55-128", "ethos-u55-256", "ethos-u65-256")),
        *((m, "ethos-u55-256", "legacy") for m in _PLACED[:6]),  # the legacy core is slow
    ],
)
def test_velas_own_placement_is_a_valid_plan(compiled: Callable[..., Network], model: str, npu: str, core: str) -> None:
    """So no re-planning ever needs more than Vela's arena."""
    network = compiled(model, accelerator=npu, core=core, memory_mode="Shared_Sram")
    for call in network.npu_calls:
        program = lift_program(network, call)
        problem = _problem(program)
        placements = tuple(
            Placement(b.name, f"region{b.original_region}", b.original_offset)
            for b in program.buffers
            if b.role not in (BufferRole.CONSTANTS, BufferRole.LUT)
        )
        assert verify(problem, Plan(placements, (), PlanStatus.FEASIBLE, "vela")) == ()
        assert max(_heights(problem, placements).values()) <= call.scratch_bytes


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


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_mutated_streams_never_raise_anything_else(compiled: Callable[..., Network], data: Any) -> None:
    network = compiled("digits")
    call = network.npu_calls[0]
    words = list(call.words)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(words) - 2))
        words[position] ^= 1 << data.draw(st.integers(0, 31))
    damaged = replace(call, payload=replace(call.payload, words=tuple(words)))
    for work in (
        lambda: find_overlaps(lift_program(network, damaged)),
        lambda: list(describe(words, call.accelerator)),
        lambda: schedule([c for c in decode(words) if isinstance(c, Operation)], call.accelerator),
    ):
        try:
            work()
        except NpuMemplanError as error:
            assert str(error)  # noqa: PT017
