"""Ethos-U85: a constant of one element is in a register, so nothing of it is in memory."""

from __future__ import annotations

from functools import partial

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.schedule.stripes.group import deep
from npu_memplan.ethosu.schedule.stripes.rows import slice_rows
from tests.support.arithmetic_models import binary, unary
from tests.support.on_model import only_graph
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

_with_one = partial(binary, first=(1, 6, 7, 32), second=(1, 1, 1, 1), constant=True, ratio=0.7)
CASES = [
    Case(f"{name}_{dtype}_{reverse}", name, partial(_with_one, name=name, dtype=dtype, reverse=reverse))
    for name in ("ADD", "SUB", "MUL")
    for dtype in ("int8", "uint8", "int16")
    for reverse in (False, True)
]


@pytest.mark.parametrize("npu", ["ethos-u85-128", "ethos-u85-512"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_constant_is_in_no_memory(case: Case, npu: str) -> None:
    equals_reference(case, npu, 5)
    program = lower(only_graph(partition_for_ethosu(import_relax(case.build()), npu)), accelerator(npu)).program
    assert all(buffer.role is not BufferRole.CONSTANTS for buffer in program.buffers)
    assert slice_rows(program, 0) is not None
    assert deep(program, 0) is not None


def test_of_a_softmax_only_its_table_is_in_memory() -> None:
    softmax = partial(unary, name="SOFTMAX", out=(1 / 256, -128), options="SoftmaxOptions", shape=(1, 10), Beta=1.0)
    graph = only_graph(partition_for_ethosu(import_relax(Case("softmax", "softmax", softmax).build()), "ethos-u85-256"))
    assert len(lower(graph, accelerator("ethos-u85-256")).constants) == 256 * 4
