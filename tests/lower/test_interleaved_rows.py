"""Interleaved rows against their definition, row by row: in which order parts are made, how many rows must be kept,
what each part reads and writes. Planning them asks no question twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from npu_memplan import planners
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.overlap import NOTHING
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace
from npu_memplan.ethosu.schedule.stripes.rows import KeptRows, Part, Rows, Sliced, interleave, kept_rows, parts, spans
from npu_memplan.problem import Problem
from npu_memplan.tuning.cascades import best_choice
from tests.support.chains import Chain, random_chain


def chains_of(groups: CascadeSpace) -> Iterator[tuple[Sliced, ...]]:
    """Up to six layers that can be made in turn."""
    count = len(groups.chains.layers)
    found = (groups.chains.chain(i, j) for i in range(count) for j in range(i, min(i + 6, count)))
    return (layers for layers in found if layers is not None)


def made_late(layers: Sequence[Sliced], cuts: Sequence[Rows], whole: frozenset[str]) -> list[Part]:
    """The definition: a layer makes the rows that the stripe needs and that are not there yet; one that no layer reads
    keeps step with the last one.
    """
    read = {i for layer in layers for i, maker in enumerate(layers) for s in layer.inputs if s.meets(maker.output)}
    done = [0] * len(layers)
    found = []
    for stripe in cuts:
        need = [x.output.height if stripe is cuts[-1] and x.output.buffer in whole else n
                for x, n in zip(layers, done, strict=True)]  # fmt: skip
        need[-1] = stripe[1]
        for position, layer in enumerate(layers[:-1]):
            if layer.output.buffer in whole and position not in read:
                part = stripe[1] * layer.output.height // layers[-1].output.height
                need[position] = max(need[position], part)
        for position in reversed(range(len(layers))):
            if need[position] > done[position]:
                for source in layers[position].inputs:
                    stop = layers[position].needs(source, (done[position], need[position]))[1]
                    for producer, layer in enumerate(layers):
                        if source.meets(layer.output):
                            need[producer] = max(need[producer], stop)
        found += [Part(i, (a, b)) for i, (a, b) in enumerate(zip(done, need, strict=True)) if a < b]
        done = need
    return found


def search_kept_rows(layers: Sequence[Sliced], turns: Sequence[Sequence[Part]], buffer: str) -> KeptRows:
    """From the first row that this or a later part reads to the last one written, at its most; whether a turn reads
    rows of an earlier one.
    """
    order = [part for turn in turns for part in turn]
    reads = [[layers[p.member].needs(s, p.rows) for s in layers[p.member].inputs if s.buffer == buffer] for p in order]
    most = 0
    for at, part in enumerate(order):
        if layers[part.member].output.buffer == buffer:
            later = [rows[0] for found in reads[at:] for rows in found]
            most = max(most, part.rows[1] - min([*later, part.rows[0]]))
    turn_of = [index for index, turn in enumerate(turns) for _ in turn]
    written: dict[int, int] = {}  # when each row was
    for part, turn in zip(order, turn_of, strict=True):
        if layers[part.member].output.buffer == buffer:
            written |= {row: turn for row in range(*part.rows) if row not in written}
    lasts = any(written[row] < turn for found, turn in zip(reads, turn_of, strict=True) for rows in found
                for row in range(*rows))  # fmt: skip
    touching = [i for i, x in enumerate(layers) if buffer in (x.output.buffer, *(s.buffer for s in x.inputs))]
    return KeptRows(most, (touching[0], touching[-1] + 1), lasts)


@pytest.mark.parametrize("seed", range(40))
def test_interleaved_rows_are_the_rows_that_are_needed(seed: int) -> None:
    rng = random.Random(seed)
    groups = CascadeSpace(lower(random_chain(seed), accelerator("ethos-u55-128")).program)
    for layers in chains_of(groups):
        if rng.random() < 0.5:
            layers = tuple(x.upside_down({b.name: b.size_bytes for b in groups.program.buffers}) for x in layers)
        height = layers[-1].output.height
        edges = sorted(rng.sample(range(1, height), rng.randint(0, height - 1)))
        cuts = tuple(zip([0, *edges], [*edges, height], strict=True))
        inner = sorted({x.output.buffer for x in layers[:-1]})
        whole = frozenset(name for name in inner if rng.random() < 0.3)
        done = interleave(layers, cuts, whole)
        order = list(parts(done))
        assert order == made_late(layers, cuts, whole)
        turns = [list(parts(done[turn : turn + 2])) for turn in range(len(done) - 1)]
        assert kept_rows(layers, done, inner) == {name: search_kept_rows(layers, turns, name) for name in inner}
        source, target = rng.choice(layers[0].inputs).buffer, layers[-1].output.buffer
        reads, writes, _ = spans(layers, done, source, target)
        uses = []
        for part in order:
            layer = layers[part.member]
            read = [s.span(layer.needs(s, part.rows)) for s in layer.inputs if s.buffer == source]
            write = layer.output.span(part.rows) if layer.output.buffer == target else NOTHING
            low, high = min((r[0] for r in read), default=NOTHING[0]), max((r[1] for r in read), default=NOTHING[1])
            if read or write != NOTHING:
                uses.append(((low, high), write))
        begin = next(i for i, (_, write) in enumerate(uses) if write != NOTHING)
        assert list(zip(map(tuple, reads.tolist()), map(tuple, writes.tolist()), strict=True)) == uses[begin:]


def ready(layer: Sliced, rows: Rows, layers: Sequence[Sliced], done: Sequence[int]) -> bool:
    """Whether the rows that `rows` of `layer` need are there."""
    return all(
        done[i] >= layer.needs(source, rows)[1]
        for source in layer.inputs
        for i, producer in enumerate(layers)
        if producer.output.buffer == source.buffer
    )


@pytest.mark.parametrize("seed", range(40))
def test_layers_in_step_make_a_few_rows_each(seed: int) -> None:
    """Every row once, after what it needs, and those of the last layer as early as they can be."""
    rng = random.Random(seed)
    groups = CascadeSpace(lower(random_chain(seed), accelerator("ethos-u55-128")).program)
    for layers in chains_of(groups):
        rows = rng.choice((1, 2, 3))
        whole = frozenset(x.output.buffer for x in layers[:-1] if rng.random() < 0.3)
        done = interleave(layers, rows, whole)
        assert not done[0].any()
        assert done[-1].tolist() == interleave(layers, ((0, layers[-1].output.height),), whole)[-1].tolist()
        assert (np.diff(done, axis=0) <= rows).all()
        there = [0] * len(layers)
        for part in parts(done):
            assert part.rows[0] == there[part.member]
            assert ready(layers[part.member], part.rows, layers, there)
            there[part.member] = part.rows[1]
        earliest = [0] * len(layers)
        for turn in done[1:, -1].tolist():
            for i, layer in enumerate(layers):
                step = (earliest[i], min(earliest[i] + rows, int(done[-1, i])))
                if step[0] < step[1] and ready(layer, step, layers, earliest):
                    earliest[i] = step[1]
            assert turn == earliest[-1]


def test_in_step_no_map_has_more_rows_than_windows_read() -> None:
    """Stripes of the last layer make five rows of the first for its first row."""
    chain = Chain(3, (40, 6, 16))
    for _ in range(4):
        chain.conv(16, 3, 1)
    chain.conv(16, 3, 3)
    groups = CascadeSpace(lower(chain.graph(), accelerator("ethos-u55-128")).program)
    layers = groups.chains.chain(0, 4)
    assert layers is not None
    assert set(groups.group(layers, 1).rolling_buffers.values()) == {3}
    assert max(groups.even(layers, 1).rolling_buffers.values()) > 3


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_is_made_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Problem] = []
    real = planners.plan
    monkeypatch.setattr(
        planners, "plan", lambda problem, **options: requested.append(problem) or real(problem, **options)
    )
    best_choice(CascadeSpace(lower(random_chain(seed), accelerator("ethos-u55-256")).program))
    assert requested
    assert all(problem not in requested[:i] for i, problem in enumerate(requested))
