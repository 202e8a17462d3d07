"""Operations in stripes: the same result in fewer bytes, and nothing closer than what was proven."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fvp_runner.npu_model.errors import SelfOverwriteError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.layers.pool import PoolKind
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram
from npu_memplan.ethosu.schedule.blocks import places
from npu_memplan.ethosu.schedule.stripes.cascade_space import (
    CascadeSpace,
    apply,
    choose,
    cycles_with_copies,
    least_bytes,
)
from npu_memplan.ethosu.schedule.stripes.group import Group
from npu_memplan.ethosu.schedule.stripes.rows import slice_rows
from npu_memplan.ethosu.time import default_memory_map, estimate
from npu_memplan.planners import plan
from npu_memplan.problem import Placement, used_bytes
from npu_memplan.tuning.cascades import beside_copies, best_choice, pareto_front
from npu_memplan.verify import Constraint, verify
from tests.support.chains import Chain, planned_alone, problem_of, random_chain, run_at
from tests.support.on_model import npu_graph, random_inputs, run_program
from tests.support.operator_models import binary

NPUS = ("ethos-u55-256", "ethos-u55-128", "ethos-u55-32", "ethos-u65-512")
U85 = tuple(a.name for a in ETHOS_U85)


def _random_groups(groups: CascadeSpace, rng: random.Random) -> tuple[Group, ...]:
    """Disjoint groups of random lengths, cuts and directions, some of which keep weights near."""
    found, index = [], 0
    while index < len(groups.chains.layers):
        layers = None
        for last in range(min(index + rng.randint(0, 6), len(groups.chains.layers) - 1), index - 1, -1):
            layers = layers or groups.chains.chain(index, last)
        if layers is None:
            index += 1
            continue
        height = layers[-1].output.height
        edges = sorted(rng.sample(range(1, height), rng.randint(0, height - 1)))
        cuts = tuple(zip([0, *edges], [*edges, height], strict=True))
        turns = cuts if rng.random() < 0.7 else rng.choice((1, 2, 3))
        group = groups.group(layers, turns, upwards=rng.random() < 0.5)
        found.append(groups.keeping(group, rng.choice((0, 1 << 10, 1 << 20))))
        index = layers[-1].index + 1
    return tuple(found)


@pytest.mark.parametrize(
    ("seed", "npu"),
    [*((seed, NPUS[seed % len(NPUS)]) for seed in range(16)), *enumerate(U85)],
)
def test_random_stripes_of_random_networks_compute_the_same(seed: int, npu: str) -> None:
    graph = random_chain(seed)
    lowered = lower(graph, accelerator(npu))
    inputs = random_inputs(graph, seed)
    groups = CascadeSpace(lowered.program)
    program = apply(lowered.program, _random_groups(groups, random.Random(seed)))
    offsets, _ = planned_alone(program)
    expected = run_program(lowered, inputs)
    for ours, theirs in zip(run_at(program, lowered.constants, offsets, inputs), expected, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_choice_needs_the_bytes_it_says(seed: int) -> None:
    graph = random_chain(100 + seed)
    lowered = lower(graph, accelerator("ethos-u55-256"))
    chosen = best_choice(CascadeSpace(lowered.program))
    _, whole = planned_alone(lowered.program)
    offsets, size = planned_alone(apply(lowered.program, chosen.groups))
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
    groups = CascadeSpace(lowered.program)
    layers = groups.chains.chain(ends[0], ends[-1])
    assert layers is not None
    cuts = tuple((row, row + 2) for row in range(0, 16, 2))
    return lowered, apply(lowered.program, [groups.group(layers, cuts, upwards)])


@pytest.mark.parametrize("upwards", [False, True], ids=["down", "up"])
@pytest.mark.parametrize("make", [_one_convolution, _cascade])
def test_a_row_closer_than_proven_is_caught(make: Callable[[], tuple[Chain, tuple[int, ...]]], upwards: bool) -> None:
    chain, ends = make()
    lowered, program = _striped(chain, ends, upwards)
    output = next(b.name for b in program.buffers if b.role is BufferRole.OUTPUT)
    (overlap,) = (o.allowed for o in find_overlaps(program) if (o.allowed.first, o.allowed.second) == ("x", output))
    limit = overlap.lowest if upwards else overlap.highest
    assert limit is not None
    inputs = random_inputs(chain.graph(), 3)
    (expected,) = run_program(lowered, inputs)
    assert _caught(lowered, program, output, limit, inputs, expected) == (set(), False)
    row = 8 * 16
    closer = limit - row if upwards else limit + row
    assert _caught(lowered, program, output, closer, inputs, expected) == ({Constraint.OVERLAP}, True)


def _caught(
    lowered: Lowered,
    program: NpuProgram,
    output: str,
    distance: int,
    inputs: dict[str, np.ndarray],
    expected: np.ndarray,
) -> tuple[set[Constraint], bool]:
    """What the verifier and the NPU model say of the output at `distance` from the input."""
    rolling_buffers = [b.name for b in program.buffers if b.role is BufferRole.ROLLING]
    offsets = {"x": 4096, output: 4096 + distance} | {name: 16384 + 8192 * n for n, name in enumerate(rolling_buffers)}
    problem = problem_of(program)
    placed = tuple(Placement(b.name, "arena", offsets[b.name]) for b in problem.buffers)
    made = plan(problem)
    usage = (replace(made.usage[0], used_bytes=used_bytes(problem, placed)["arena"]),)
    constraints = {v.constraint for v in verify(problem, replace(made, placements=placed, usage=usage))}
    try:
        (found,) = run_at(program, lowered.constants, offsets, inputs)
    except SelfOverwriteError:
        return constraints, True
    return constraints, not np.array_equal(found, expected)


@pytest.mark.parametrize("seed", range(3))
def test_every_point_of_a_front_is_what_a_pool_of_its_bytes_gets(seed: int) -> None:
    lowered = lower(random_chain(200 + seed), accelerator("ethos-u55-256"))
    groups = CascadeSpace(lowered.program)
    points = pareto_front(groups)
    assert [p.size_bytes for p in points] == sorted({p.size_bytes for p in points})
    assert [p.cycles for p in points] == sorted({p.cycles for p in points}, reverse=True)
    for point in points:
        chosen = best_choice(groups, point.size_bytes)
        assert chosen.size_bytes <= point.size_bytes
        assert chosen.cycles <= point.cycles
        program = apply(lowered.program, point.groups)
        total = _estimated(program, planned_alone(program)[0])
        assert point.cycles == pytest.approx(total, rel=0.02), "but for waits at other places"
    assert best_choice(groups, 1).size_bytes == points[0].size_bytes, "the least where nothing fits"


def _estimated(program: NpuProgram, offsets: dict[str, int]) -> int:
    """Cycles of the stream with buffers at `offsets`."""
    memory_map, fixed = default_memory_map(program.accelerator), (BufferRole.CONSTANTS, BufferRole.LUT)
    at = {b.name: (1, offsets[b.name]) for b in program.buffers if b.role not in fixed}
    at |= {b.name: (b.original_region, b.original_offset) for b in program.buffers if b.role is BufferRole.LUT}
    at |= {b.name: (0, 0) for b in program.buffers if b.role is BufferRole.CONSTANTS}
    operations = [program.place(index, at.__getitem__) for index in range(len(program.operations))]
    return estimate(schedule(operations, program.accelerator), program.accelerator, memory_map).total


def test_kept_weights_are_read_from_afar_once() -> None:
    chain = Chain(4, (32, 8, 32))
    for _ in range(3):
        chain.conv(32, 3, 1)
    lowered = lower(chain.graph(), accelerator("ethos-u55-256"))
    groups, target = CascadeSpace(lowered.program), lowered.program.accelerator
    layers = groups.chains.chain(0, 2)
    assert layers is not None
    plain = groups.even(layers, 2)
    kept = groups.keeping(plain, 1 << 20)
    assert len(kept.kept) == 3
    copied = sum(k.size_bytes for k in kept.kept.values())
    assert kept.size_bytes == plain.size_bytes + copied
    assert groups.keeping(plain, copied // 2).kept.keys() < kept.kept.keys(), "as many as there is room for"
    memory_map, found = default_memory_map(target), []
    for group in (plain, kept):
        program = apply(lowered.program, [group])
        commands = schedule(
            [program.place(i, places(program, memory_map)) for i in range(len(program.operations))], target
        )
        found.append(estimate(commands, target, memory_map))
    far = [sum(s.traffic.get(("flash", False), (0, 0, 0))[0] for s in e.shares) for e in found]
    assert far[1] == copied
    assert far[0] > 15 * copied, "a part after the other"
    assert found[1].total < 0.5 * found[0].total
    assert kept.cycles < 0.5 * plain.cycles


@pytest.mark.parametrize(("npu", "interleaved"), [("ethos-u55-256", True), ("ethos-u55-32", False)])
def test_layers_with_tables_take_turns_where_tables_have_a_memory(npu: str, interleaved: bool) -> None:
    chain = Chain(5, (16, 8, 8))
    for _ in range(9):
        chain.conv(8, 3, 1)
        chain.lookup()
    lowered = lower(chain.graph(), accelerator(npu))
    groups = CascadeSpace(lowered.program)
    assert len(lowered.program.operations) == 18, "a convolution looks its results up itself"
    kernels = [i for i, layer in enumerate(groups.chains.layers) if layer is not None]
    assert (groups.chains.chain(kernels[0], kernels[7]) is not None) == interleaved
    assert groups.chains.chain(kernels[0], kernels[8]) is None, "there are eight slots"
    if interleaved:
        layers = groups.chains.chain(kernels[0], kernels[5])
        assert layers is not None
        program = apply(lowered.program, [groups.even(layers, 3)])
        offsets, _ = planned_alone(program)
        inputs = random_inputs(chain.graph(), 6)
        (found,), (expected,) = run_at(program, lowered.constants, offsets, inputs), run_program(lowered, inputs)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("npu", ["ethos-u55-256", *U85])
@pytest.mark.parametrize(("name", "second"), [("SUB", (1, 1, 1, 9)), ("SUB", (1, 1, 1, 1)), ("MINIMUM", (1, 1, 7, 9))])
def test_constants_may_be_the_first_operand(name: str, second: tuple[int, ...], npu: str) -> None:
    """Ethos-U85 has the operands in their order, so that the rows are those of the second."""
    model = binary(
        np.random.default_rng(1), name, second=second, is_constant=True, reverse=True, same=name == "MINIMUM"
    )
    graph = npu_graph(model.finish(), npu)
    lowered = lower(graph, accelerator(npu))
    inputs = random_inputs(graph, 2)
    (layer,) = (slice_rows(lowered.program, i) for i in range(len(lowered.program.operations)))
    assert layer is not None
    parts = tuple(layer.part(rows, {}) for rows in ((0, 1), (1, 4), (4, 6)))
    in_parts = replace(lowered, program=replace(lowered.program, operations=parts))
    for ours, theirs in zip(run_program(in_parts, inputs), run_program(lowered, inputs), strict=True):
        assert np.array_equal(ours, theirs)


def test_rows_that_nobody_reads_keep_layers_together() -> None:
    """A pool of 3 rows in steps of 3 leaves two of 17 alone."""
    chain = Chain(7, (17, 6, 16))
    chain.conv(32, 3, 1)
    chain.pool(PoolKind.AVERAGE, 3, 3)
    lowered = lower(chain.graph(), accelerator("ethos-u55-256"))
    groups = CascadeSpace(lowered.program)
    layers = groups.chains.chain(0, 1)
    assert layers is not None
    for upwards in (False, True):
        group = groups.group(layers, ((0, 2), (2, 4), (4, 5)), upwards)
        assert next(iter(group.rolling_buffers.values())) < 9
        program = apply(lowered.program, [group])
        inputs = random_inputs(chain.graph(), 8)
        (found,) = run_at(program, lowered.constants, planned_alone(program)[0], inputs)
        assert np.array_equal(found, run_program(lowered, inputs)[0])


ENDLESS = 1 << 40


def _spaces(seed: int) -> tuple[CascadeSpace, CascadeSpace]:
    """The constants beside the maps, and in flash."""
    program = lower(random_chain(seed), accelerator("ethos-u55-256")).program
    far = CascadeSpace(program)
    return far.among(default_memory_map(program.accelerator).with_constants_near()), far


@pytest.mark.parametrize("seed", range(12))
def test_copies_hide_no_more_than_they_can(seed: int) -> None:
    near, far = _spaces(seed)
    operations = range(len(near.program.operations))
    kernels = sum(map(near.whole_cycles, operations))
    copies = sum(far.costs.copy(kept) for kept in map(far.costs.constant_block, operations) if kept)
    in_place = sum(map(far.whole_cycles, operations))
    assert kernels <= cycles_with_copies(near, far, (), ENDLESS) <= min(kernels + copies, in_place)
    assert cycles_with_copies(near, far, (), 0) == in_place


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_best_estimate_that_fits(seed: int) -> None:
    near, far = _spaces(seed)
    most = max(near.chains.whole_bytes)
    for limit in (least_bytes(near), most * 3 // 4, most, 2 * most):
        found = beside_copies(near, far, limit, 20_000)
        assert found.cycles == cycles_with_copies(near, far, found.groups, limit)
        if found.size_bytes <= limit:
            assert found.cycles <= cycles_with_copies(near, far, choose(near, limit), limit)
