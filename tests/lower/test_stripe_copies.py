"""The estimate of copies beside stripes, against what it can be at least and at most."""

from __future__ import annotations

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace, choose, cycles_with_copies, least_bytes
from npu_memplan.ethosu.time import default_memory_map
from npu_memplan.tuning.cascades import beside_copies
from tests.support.chains import random_chain

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
    assert max(kernels, copies) <= cycles_with_copies(near, far, (), ENDLESS) <= kernels + copies
    assert cycles_with_copies(near, far, (), 0) == sum(map(far.whole_cycles, operations))


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_best_estimate_that_fits(seed: int) -> None:
    near, far = _spaces(seed)
    most = max(near.chains.whole_bytes)
    for limit in (least_bytes(near), most * 3 // 4, most, 2 * most):
        found = beside_copies(near, far, limit, 20_000)
        assert found.cycles == cycles_with_copies(near, far, found.groups, limit)
        if found.size_bytes <= limit:
            assert found.cycles <= cycles_with_copies(near, far, choose(near, limit), limit)
