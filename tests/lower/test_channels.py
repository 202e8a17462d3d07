"""Operations cut by channels: the same result from weights that are read once, in the bytes that were said."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.schedule.constants import Slicer, Slices
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace, apply
from npu_memplan.ethosu.schedule.stripes.group import ChannelGroup
from npu_memplan.ethosu.stream.fields import WEIGHTS
from npu_memplan.tuning.cascades import best_choice
from tests.support.chains import Chain, deep_chain, planned_alone, run_at
from tests.support.on_model import random_inputs, run_program

NPUS = ("ethos-u55-256", "ethos-u55-128", "ethos-u55-32", "ethos-u65-512")


def _cuttable(lowered: Lowered) -> tuple[CascadeSpace, Slicer]:
    slicer = Slicer(lowered.program, Slices(lowered.constants))
    return CascadeSpace(lowered.program, slicer=slicer), slicer


def _random_groups(groups: CascadeSpace, rng: random.Random) -> tuple[ChannelGroup, ...]:
    """Disjoint groups of random lengths in slices of random depths."""
    by_channels = groups.by_channels
    assert by_channels
    found, index, count = [], 0, len(groups.program.operations)
    while index < count:
        ends = [last for last in range(index + 1, min(index + 6, count)) if by_channels.chain(index, last)]
        layers = by_channels.chain(index, rng.choice(ends)) if ends else None
        steps = by_channels.steps(layers) if layers else []
        if layers and steps:
            found.append(by_channels.group(layers, rng.choice(steps)))
        index = found[-1].last + 1 if found and found[-1].first == index else index + 1
    return tuple(found)


@pytest.mark.parametrize("seed", range(16))
def test_random_slices_of_random_networks_compute_the_same(seed: int) -> None:
    graph = deep_chain(seed, ("int8", "uint8", "int8", "int16")[seed // 4])
    lowered = lower(graph, accelerator(NPUS[seed % len(NPUS)]))
    groups, slicer = _cuttable(lowered)
    chosen = _random_groups(groups, random.Random(seed))
    assert chosen
    program = apply(lowered.program, chosen, slicer=slicer)
    inputs = random_inputs(graph, seed)
    found = run_at(program, slicer.slices.all, planned_alone(program)[0], inputs, fuzz=4)
    for ours, theirs in zip(found, run_program(lowered, inputs), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_weights_are_read_once_and_the_stated_bytes_suffice(dtype: str) -> None:
    chain = Chain(3, (12, 12, 16), dtype)
    chain.conv(96, 1, 1)
    chain.conv(0, 3, 2, depthwise=True)
    lowered = lower(chain.graph(), accelerator("ethos-u55-256"))
    groups, slicer = _cuttable(lowered)
    limit = planned_alone(lowered.program)[1] * 6 // 10
    chosen = best_choice(groups, limit)
    (group,) = chosen.groups
    assert isinstance(group, ChannelGroup)
    program = apply(lowered.program, chosen.groups, slicer=slicer)
    assert planned_alone(program)[1] <= chosen.size_bytes <= limit
    (rolling_buffer,) = (b for b in program.buffers if b.role is BufferRole.ROLLING)
    assert rolling_buffer.size_bytes * 96 == lowered.program.buffer(rolling_buffer.name).size_bytes * group.step
    read = [
        sum(o.registers.get(s.length, 0) for o in p.operations for s in WEIGHTS) for p in (lowered.program, program)
    ]
    assert read[1] < 1.1 * read[0]
    kernels = len(program.operations)
    assert kernels == 2 * -(-96 // group.step)


def test_slices_that_read_others_weights_are_caught() -> None:
    """Each of the operations reads the slice that belongs to its channels, and no other."""
    chain = Chain(6, (6, 5, 16))
    chain.conv(48, 1, 1)
    chain.conv(0, 3, 1, depthwise=True)
    lowered = lower(chain.graph(), accelerator("ethos-u55-256"))
    groups, slicer = _cuttable(lowered)
    assert groups.by_channels
    layers = groups.by_channels.chain(0, 1)
    assert layers
    program = apply(lowered.program, [groups.by_channels.group(layers, 16)], slicer=slicer)
    inputs, offsets = random_inputs(chain.graph(), 2), planned_alone(program)[0]
    (expected,) = run_program(lowered, inputs)
    for index in range(6):
        operations = list(program.operations)
        other = operations[(index + 2) % 6]
        moved = {s.base: other.addresses[s.base] for s in WEIGHTS if s.base in other.addresses}
        lengths = {s.length: other.registers[s.length] for s in WEIGHTS if s.length in other.registers}
        broken = operations[index]
        operations[index] = replace(
            broken, registers={**broken.registers, **lengths}, addresses={**broken.addresses, **moved}
        )
        wrong = replace(program, operations=tuple(operations))
        assert not np.array_equal(run_at(wrong, slicer.slices.all, offsets, inputs)[0], expected)


@pytest.mark.parametrize("case", ["read later", "summed", "two makers"])
def test_what_is_needed_in_full_is_not_cut(case: str) -> None:
    chain = Chain(8, (6, 5, 16))
    first = chain.conv(48, 1, 1)
    chain.conv(0, 3, 1, depthwise=True)
    if case == "read later":
        chain.conv(0, 3, 1, depthwise=True)
        chain.conv(0, 3, 1, depthwise=True)
        chain.add(first)
    elif case == "summed":
        chain.conv(48, 1, 1)
    else:
        chain.branches()
        chain.conv(0, 3, 1, depthwise=True)
    groups, _ = _cuttable(lower(chain.graph(), accelerator("ethos-u55-256")))
    by_channels, count = groups.by_channels, len(groups.program.operations)
    assert by_channels
    found = {(a, b) for a in range(count) for b in range(a + 1, count) if by_channels.chain(a, b)}
    later = {(0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)}
    assert found == {"read later": later, "summed": {(0, 1)}, "two makers": {(0, 1)}}[case]


def test_a_core_without_channels_has_no_weights_to_cut() -> None:
    """Of one channel, the second core of ethos-u65-512 makes none."""
    chain = Chain(9, (6, 5, 16))
    chain.conv(1, 1, 1)
    lowered = lower(chain.graph(), accelerator("ethos-u65-512"))
    _, slicer = _cuttable(lowered)
    (operation,) = lowered.program.operations
    assert operation.registers[WEIGHTS[1].length] == 0
    assert not slicer.may_cut(operation)
    assert slicer.slice_convolutions(1) is None
