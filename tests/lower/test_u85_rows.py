"""Sums over channels and products of many rows on Ethos-U85, in the form that fills its micro-blocks."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import LoweringTarget, lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op, PoolMode
from npu_memplan.ethosu.time import cycles_in_a_row, default_memory_map
from tests.support.arithmetic_models import fully_connected, mean
from tests.support.on_model import only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax

pytest.importorskip("tflite_micro")
from fvp_runner.references.kernels import TFLiteReference

NPU = accelerator("ethos-u85-256")


@pytest.mark.parametrize(("rows", "fewer"), [(32, True), (7, False)])
def test_products_of_rows_take_fewer_cycles_where_time_counts(rows: int, fewer: bool) -> None:
    made = fully_connected(np.random.default_rng(3), inputs=64, outputs=200, batch=rows)
    model = made.finish()
    graph = only_graph(partition_for_ethosu(import_relax(model), NPU.name))
    (values,) = random_inputs(graph, 1).values()
    (expected,) = TFLiteReference(model).run([values])
    cycles = []
    for target in (LoweringTarget(), LoweringTarget(for_cycles=True)):
        lowered = lower(graph, NPU, target)
        (found,) = run_program(lowered, {graph.inputs[0]: values}, scheduled=True)
        assert np.array_equal(found.reshape(expected.shape), expected)
        (kernel,) = (i for i, o in enumerate(lowered.program.operations) if o.op is Op.CONV)
        placed = lowered.program.place(kernel, lambda name: (int(name != "constants"), 0))
        cycles.append(cycles_in_a_row(placed, NPU, default_memory_map(NPU)))
    assert cycles[1] <= cycles[0]
    assert (cycles[1] < cycles[0]) == fewer


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_means_of_channels_are_sums_of_channels(dtype: str) -> None:
    model = mean(np.random.default_rng(4), axes=(3,), dtype=dtype).finish()
    graph = only_graph(partition_for_ethosu(import_relax(model), NPU.name))
    lowered = lower(graph, NPU)
    inputs = random_inputs(graph, 2)
    (expected,) = TFLiteReference(model).run(list(inputs.values()))
    (found,) = run_program(lowered, inputs, scheduled=True)
    assert np.array_equal(found.reshape(expected.shape), expected)
    assert [(o.op, o.parameter) for o in lowered.program.operations] == [(Op.POOL, PoolMode.REDUCE_SUM)]
