"""Operations cut by channels: the same result from weights that are read once, in the bytes that were said."""

from __future__ import annotations

import random

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.lower import Lowered, lower
from npu_memplan.ethosu.program.program import NpuProgram
from npu_memplan.ethosu.schedule.copies.slices import Slicer, Slices
from npu_memplan.ethosu.schedule.stripes.apply import apply
from npu_memplan.ethosu.schedule.stripes.group import ChannelGroup
from npu_memplan.ethosu.schedule.stripes.groups import Groups
from npu_memplan.planners import plan
from npu_memplan.verify import verify
from tests.support.chains import deep_chain, problem_of, run_at
from tests.support.on_model import random_inputs, run_program

NPUS = ("ethos-u55-256", "ethos-u55-128", "ethos-u55-32", "ethos-u65-512")


def _cuttable(lowered: Lowered) -> tuple[Groups, Slicer]:
    slicer = Slicer(lowered.program, Slices(lowered.constants))
    return Groups(lowered.program, slicer=slicer), slicer


def _random_groups(groups: Groups, rng: random.Random) -> tuple[ChannelGroup, ...]:
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


def _planned(program: NpuProgram) -> tuple[dict[str, int], int]:
    problem = problem_of(program)
    made = plan(problem)
    assert verify(problem, made) == ()
    return {p.buffer: p.offset_bytes for p in made.placements}, made.usage[0].used_bytes


@pytest.mark.parametrize("seed", range(16))
def test_random_slices_of_random_networks_compute_the_same(seed: int) -> None:
    graph = deep_chain(seed, ("int8", "uint8", "int8", "int16")[seed // 4])
    lowered = lower(graph, accelerator(NPUS[seed % len(NPUS)]))
    groups, slicer = _cuttable(lowered)
    chosen = _random_groups(groups, random.Random(seed))
    assert chosen
    program = apply(lowered.program, chosen, slicer=slicer)
    inputs = random_inputs(graph, seed)
    found = run_at(program, slicer.slices.all, _planned(program)[0], inputs, fuzz=4)
    for ours, theirs in zip(found, run_program(lowered, inputs), strict=True):
        assert np.array_equal(ours, theirs)
