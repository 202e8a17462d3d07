"""Interleaved rows against their definition, row by row: in which order parts are made, how many rows must be kept,
what each part reads and writes. Planning them asks no question twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace
from npu_memplan.ethosu.schedule.stripes.rows import Rows, Sliced, interleave, parts
from tests.support.chains import Chain, random_chain


def chains_of(groups: CascadeSpace) -> Iterator[tuple[Sliced, ...]]:
    """Up to six layers that can be made in turn."""
    count = len(groups.chains.layers)
    found = (groups.chains.chain(i, j) for i in range(count) for j in range(i, min(i + 6, count)))
    return (layers for layers in found if layers is not None)


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
