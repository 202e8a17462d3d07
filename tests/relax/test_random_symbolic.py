"""Random programs of two symbols compute on poisoned pools what they compute without a plan, empty tensors included."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory
from tests.support.random_symbolic import random_program


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_planned_equals_unplanned_at_every_size(seed, run):
    module = random_program(seed)
    pools = [Pool("ram")] if seed % 2 else [Pool("sram", 1024), Pool("dram")]
    generator = np.random.default_rng(seed)
    inputs = []
    for n, m in ((1, 1), (2, 7), (9, 3), (40, 33), (0, 3)):
        shapes = ((n, m, 8), (16, 8))
        inputs.append([(generator.standard_normal(shape) * 0.3).astype(np.float32) for shape in shapes])
    planned = PlanMemory(pools, poison=0xA5)(module)
    for want, got in zip(run(module, inputs), run(planned, inputs), strict=True):
        assert [a.tobytes() for a in want] == [b.tobytes() for b in got]
