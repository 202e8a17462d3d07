"""Operations in stripes: the same result in fewer bytes, and nothing closer than what was proven."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fvp_runner.npu_model.errors import SelfOverwriteError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lower.lower import Lowered, lower
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.schedule.stripes.apply import apply
from npu_memplan.ethosu.schedule.stripes.groups import Group, Groups
from npu_memplan.planners import plan
from npu_memplan.problem import Placement, used_bytes
from npu_memplan.transform.stripes import best_choice
from npu_memplan.verify import Law, verify
from tests.support.chains import Chain, problem_of, random_chain, run_at
from tests.support.on_model import random_inputs, run_program

NPUS = ("ethos-u55-256", "ethos-u55-128", "ethos-u55-32", "ethos-u65-512")


def _random_groups(groups: Groups, rng: random.Random) -> tuple[Group, ...]:
    """Disjoint groups of random lengths, cuts and directions, some of which keep weights near."""
    found, index = [], 0
    while index < len(groups.layers):
        layers = None
        for last in range(min(index + rng.randint(0, 6), len(groups.layers) - 1), index - 1, -1):
            layers = layers or groups.chain(index, last)
        if layers is None:
            index += 1
            continue
        height = layers[-1].output.height
        edges = sorted(rng.sample(range(1, height), rng.randint(0, height - 1)))
        cuts = tuple(zip([0, *edges], [*edges, height], strict=True))
        group = groups.group(layers, cuts, upwards=rng.random() < 0.5)
        found.append(groups.keeping(group, rng.choice((0, 1 << 10, 1 << 20))))
        index = layers[-1].index + 1
    return tuple(found)


def _planned(program: NpuProgram) -> tuple[dict[str, int], int]:
    problem = problem_of(program)
    made = plan(problem)
    assert verify(problem, made) == ()
    return {p.buffer: p.offset_bytes for p in made.placements}, made.usage[0].used_bytes


@pytest.mark.parametrize("seed", range(16))
def test_random_stripes_of_random_networks_compute_the_same(seed: int) -> None:
    graph = random_chain(seed)
    lowered = lower(graph, accelerator(NPUS[seed % len(NPUS)]))
    inputs = random_inputs(graph, seed)
    groups = Groups(lowered.program)
    program = apply(lowered.program, _random_groups(groups, random.Random(seed)))
    offsets, _ = _planned(program)
    expected = run_program(lowered, inputs)
    for ours, theirs in zip(run_at(program, lowered.constants, offsets, inputs), expected, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_choice_needs_the_bytes_it_says(seed: int) -> None:
    graph = random_chain(100 + seed)
    lowered = lower(graph, accelerator("ethos-u55-256"))
    chosen = best_choice(Groups(lowered.program))
    _, whole = _planned(lowered.program)
    offsets, size = _planned(apply(lowered.program, chosen.groups))
    assert size <= chosen.size_bytes <= whole + 16
    inputs = random_inputs(graph, seed)
    expected = run_program(lowered, inputs)
    found = run_at(apply(lowered.program, chosen.groups), lowered.constants, offsets, inputs)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def _one_convolution() -> tuple[Chain, tuple[int, ...]]:
    chain = Chain(1, (16, 8, 16))
    chain.conv(16, 3, 1)
    return chain, (0,)


def _cascade() -> tuple[Chain, tuple[int, ...]]:
    chain = Chain(2, (16, 8, 16))
    for depth, kernel in ((32, 1), (0, 3), (16, 1)):
        chain.conv(depth, kernel, 1, depthwise=not depth)
    return chain, (0, 2)


def _striped(chain: Chain, ends: tuple[int, ...], upwards: bool) -> tuple[Lowered, NpuProgram]:
    lowered = lower(chain.graph(), accelerator("ethos-u55-256"))
    groups = Groups(lowered.program)
    layers = groups.chain(ends[0], ends[-1])
    assert layers is not None
    cuts = tuple((row, row + 2) for row in range(0, 16, 2))
    return lowered, apply(lowered.program, [groups.group(layers, cuts, upwards)])


@pytest.mark.parametrize("upwards", [False, True], ids=["down", "up"])
@pytest.mark.parametrize("make", [_one_convolution, _cascade])
def test_a_row_closer_than_proven_is_caught(make: Callable[[], tuple[Chain, tuple[int, ...]]], upwards: bool) -> None:
    chain, ends = make()
    lowered, program = _striped(chain, ends, upwards)
    output = next(b.name for b in program.buffers if b.role is BufferRole.OUTPUT)
    (overlap,) = (o for o in program.overlaps() if (o.first, o.second) == ("x", output))
    limit = overlap.lowest if upwards else overlap.highest
    assert limit is not None
    inputs = random_inputs(chain.graph(), 3)
    (expected,) = run_program(lowered, inputs)
    assert _caught(lowered, program, output, limit, inputs, expected) == (set(), False)
    row = 8 * 16
    closer = limit - row if upwards else limit + row
    assert _caught(lowered, program, output, closer, inputs, expected) == ({Law.OVERLAP}, True)


def _caught(
    lowered: Lowered,
    program: NpuProgram,
    output: str,
    distance: int,
    inputs: dict[str, np.ndarray],
    expected: np.ndarray,
) -> tuple[set[Law], bool]:
    """What the verifier and the NPU model say of the output at `distance` from the input."""
    rings = [b.name for b in program.buffers if b.role is BufferRole.ROLLING]
    offsets = {"x": 4096, output: 4096 + distance} | {name: 16384 + 8192 * n for n, name in enumerate(rings)}
    problem = problem_of(program)
    placed = tuple(Placement(b.name, "arena", offsets[b.name]) for b in problem.buffers)
    made = plan(problem)
    usage = (replace(made.usage[0], used_bytes=used_bytes(problem, placed)["arena"]),)
    laws = {v.law for v in verify(problem, replace(made, placements=placed, usage=usage))}
    try:
        (found,) = run_at(program, lowered.constants, offsets, inputs)
    except SelfOverwriteError:
        return laws, True
    return laws, not np.array_equal(found, expected)
