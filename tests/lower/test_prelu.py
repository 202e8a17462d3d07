"""PRELU for few cycles: what is positive and what is negative side by side in one map, which a pool adds up."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.schedule.blocks import place_of
from npu_memplan.ethosu.schedule.stripes.rows import slice_rows
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.time import default_memory_map
from npu_memplan.ethosu.time.estimate import cycles_in_a_row
from tests.support.arithmetic_models import prelu
from tests.support.on_model import only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")

CASES = [
    Case(f"prelu_{depth}_{per_channel}", "prelu", partial(prelu, per_channel=per_channel, shape=(1, 5, 6, depth)))
    for depth, per_channel in ((16, True), (37, True), (24, False))
]
NPU = accelerator("ethos-u55-256")
SIDE_BY_SIDE = [Op.POOL, Op.ELEMENTWISE, Op.ELEMENTWISE, Op.POOL]


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_reference(case: Case, npu: str) -> None:
    model = case.build()
    graph = only_graph(partition_for_ethosu(import_relax(model), npu))
    lowered = lower(graph, accelerator(npu), LoweringTarget(for_cycles=True))
    assert [operation.op for operation in lowered.program.operations] == SIDE_BY_SIDE
    inputs = random_inputs(graph, 3)
    (found,) = run_program(lowered, inputs)
    (wanted,) = TFLiteReference(model, case.name).run(list(inputs.values()))
    assert np.array_equal(found.reshape(-1), wanted.reshape(-1))


def lowered(shape: tuple[int, ...], for_cycles: bool) -> Lowered:
    model = prelu(np.random.default_rng(5), shape=shape).finish()
    graph = only_graph(partition_for_ethosu(import_relax(model), NPU.name))
    return lower(graph, NPU, LoweringTarget(for_cycles=for_cycles))


def cycles(made: Lowered) -> int:
    memory_map, roles = default_memory_map(NPU), {buffer.name: buffer.role for buffer in made.program.buffers}
    placed = (operation.place(lambda name: place_of(roles[name], memory_map)) for operation in made.program.operations)
    return sum(cycles_in_a_row(operation, NPU, memory_map) for operation in placed)


def test_it_takes_fewer_cycles_than_a_sum_of_two_maps() -> None:
    few_bytes, few_cycles = (lowered((1, 24, 24, 16), for_cycles) for for_cycles in (False, True))
    assert few_bytes.program.operations[-1].op is Op.ELEMENTWISE
    assert cycles(few_cycles) < 0.9 * cycles(few_bytes)


def test_each_operation_can_be_cut_into_stripes() -> None:
    program = lowered((1, 8, 8, 16), True).program
    assert all(slice_rows(program, index) is not None for index in range(len(program.operations)))


@pytest.mark.parametrize("shape", [(1, 1, 40000, 16), (1, 24, 24, 10)])
def test_what_is_too_wide_for_pairs_or_has_few_channels_is_summed(shape: tuple[int, ...]) -> None:
    assert lowered(shape, True).program.operations[-1].op is Op.ELEMENTWISE
