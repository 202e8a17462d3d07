"""Ethos-U85's tables say their types and places another way than Ethos-U55's: none is loaded over one still read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U55_65, ETHOS_U85
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.access import Role, accesses
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.schedule.constants import loaded_early, may_lie_beside, read_table
from npu_memplan.ethosu.stream.isa import Op
from tests.support.on_model import only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax
from tests.support.tflite_builder import ModelBuilder


def _two_tables() -> bytes:
    """TANH of 16 bits, whose table fills the memory for tables on Ethos-U85, and LOGISTIC of 8 bits."""
    b = ModelBuilder()
    shape = (1, 8, 8, 16)
    x, y = b.tensor(shape, "int16", 8 / 32768, 0), b.tensor(shape, "int16", 1 / 32768, 0)
    p, z = b.tensor(shape, "int8", 1 / 128, 0), b.tensor(shape, "int8", 1 / 256, -128)
    b.operator("TANH", [x], [y], None, 2)
    b.operator("QUANTIZE", [y], [p], "QuantizeOptions", 2)
    b.operator("LOGISTIC", [p], [z], None, 2)
    return b.made([x], [y, z]).finish()


def _softmax() -> bytes:
    b = ModelBuilder()
    x, y = b.tensor((1, 10), "int8", 0.08, 3), b.tensor((1, 10), "int8", 1 / 256, -128)
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=1.0)
    return b.made([x], [y]).finish()


def _lowered(model: bytes, npu: str) -> tuple[Lowered, dict[str, np.ndarray]]:
    graph = only_graph(partition_for_ethosu(import_relax(model), npu))
    return lower(graph, accelerator(npu)), random_inputs(graph, 1)


@pytest.mark.parametrize("npu", [a.name for a in (*ETHOS_U55_65, *ETHOS_U85)])
def test_tables_lie_where_the_npu_reads_them(npu: str) -> None:
    found = 0
    for model in (_two_tables(), _softmax()):
        program = _lowered(model, npu)[0].program
        target = program.accelerator
        for index, operation in enumerate(program.operations):
            if operation.op is Op.DMA_START:
                continue
            parts = [a.parts[0][1][0] for a in accesses(program.at_zero(index), target) if a.role is Role.LUT]
            tables = [range(*(int(at) - target.lut_address for at in part)) for part in parts]
            assert [read_table(operation)] == (tables or [None])
            found += len(tables)
    assert found >= 2


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
def test_no_table_is_loaded_over_one_that_is_still_read(npu: str) -> None:
    lowered, inputs = _lowered(_two_tables(), npu)
    program = lowered.program
    assert [o.op is Op.DMA_START for o in program.operations].count(True) == 2
    early = replace(lowered, program=loaded_early(program))
    for ours, theirs in zip(run_program(early, inputs), run_program(lowered, inputs), strict=True):
        assert np.array_equal(ours, theirs)
    assert not may_lie_beside(program, range(1, len(program.operations)))  # from the first kernel on
