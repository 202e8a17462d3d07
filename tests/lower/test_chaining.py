"""Kernels of Ethos-U85 in chains: the same results from fewer maps in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.lowering import Lowered, lower
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.program import NpuProgram, chain_bounds
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from npu_memplan.ethosu.schedule import order
from npu_memplan.ethosu.schedule.order import chain_kernels
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.ethosu.time import default_memory_map, estimate
from tests.support.arithmetic_models import binary, prelu, random_weights, unary
from tests.support.on_model import only_graph, random_inputs, run_program
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
from fvp_runner.references.kernels import TFLiteReference


def residual(
    rng: np.random.Generator, size: int = 9, depth: int = 24, readers: int = 1, kernel: int = 3
) -> ModelBuilder:
    """A convolution, and sums of its input and its result."""
    b = ModelBuilder()
    shape = (1, size, size, depth)
    x, y = b.tensor(shape, "int8", 0.05, 3), b.tensor(shape, "int8", 0.05, -4)
    made = [b.tensor(shape, "int8", 0.08, number) for number in range(readers)]
    weights = b.constant(random_weights(rng, (depth, kernel, kernel, depth), "int8"), 0.002)
    bias = b.constant(rng.integers(-900, 900, depth).astype(np.int32), 0.0001)
    b.operator("CONV_2D", [x, weights, bias], [y], "Conv2DOptions", 1, Padding=0, StrideH=1, StrideW=1)
    for result in made:
        b.operator("ADD", [x, y], [result], "AddOptions", 2)
    return b.made([x], made)


_softmax = partial(unary, name="SOFTMAX", options="SoftmaxOptions", shape=(1, 5, 6, 17), Beta=1.0)
CASES = [
    Case("residual", "residual", residual),
    Case("softmax_int8", "softmax", partial(_softmax, out=(1 / 256, -128))),
    Case("softmax_int16", "softmax", partial(_softmax, out=(1 / 32768, 0), dtype="int16", in_scale=0.0004)),
    Case("prelu", "prelu", prelu),
    Case("squared_difference", "squared", partial(binary, name="SQUARED_DIFFERENCE", ratio=0.8)),
    Case("squared_difference_int16", "squared", partial(binary, name="SQUARED_DIFFERENCE", dtype="int16")),
]


@pytest.fixture
def wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if maps in memory were all that takes time."""

    def maps(_: object, operations: Sequence[object]) -> int:
        return sum(len(operation.addresses) for operation in operations)  # type: ignore[attr-defined]

    monkeypatch.setattr(order._Chaining, "_cycles", maps)


def lowered(model: bytes, npu: str) -> Lowered:
    return lower(only_graph(partition_for_ethosu(import_relax(model), npu)), accelerator(npu))


def with_chains(made: Lowered) -> Lowered:
    return replace(made, program=chain_kernels(made.program, default_memory_map(made.program.accelerator)))


def chains(program: NpuProgram) -> list[list[Op]]:
    bounds = dict.fromkeys(b for b in chain_bounds(program.operations) if b[0] != b[1])
    return [[operation.op for operation in program.operations[first : last + 1]] for first, last in bounds]


@pytest.mark.usefixtures("wherever_possible")
@pytest.mark.parametrize("npu", [target.name for target in ETHOS_U85])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_chains_compute_the_same(case: Case, npu: str) -> None:
    model = case.build()
    graph = only_graph(partition_for_ethosu(import_relax(model), npu))
    apart = lower(graph, accelerator(npu))
    made = with_chains(apart)
    assert chains(made.program)
    assert len(made.program.buffers) < len(apart.program.buffers)
    inputs = random_inputs(graph, 7)
    found = run_program(made, inputs, scheduled=True)
    for ours, theirs in zip(found, TFLiteReference(model, case.name).run(list(inputs.values())), strict=True):
        assert np.array_equal(ours.reshape(-1), theirs.reshape(-1))


@pytest.mark.usefixtures("wherever_possible")
def test_a_convolution_and_a_sum_are_one_chain() -> None:
    made = with_chains(lowered(residual(np.random.default_rng(3)).finish(), "ethos-u85-256"))
    assert chains(made.program) == [[Op.CONV, Op.ELEMENTWISE]]


@pytest.mark.usefixtures("wherever_possible")
def test_what_two_kernels_read_stays_in_memory() -> None:
    apart = lowered(residual(np.random.default_rng(3), readers=2).finish(), "ethos-u85-256")
    assert with_chains(apart).program is apart.program


def test_other_npus_have_none() -> None:
    apart = lowered(residual(np.random.default_rng(3)).finish(), "ethos-u55-256")
    assert with_chains(apart).program is apart.program


def test_a_chain_takes_fewer_cycles() -> None:
    apart = lowered(residual(np.random.default_rng(3), size=56, depth=24, kernel=1).finish(), "ethos-u85-1024")
    near = default_memory_map(apart.program.accelerator).with_constants_near()
    made = chain_kernels(apart.program, near)
    assert made is not apart.program
    cycles = []
    for program in (apart.program, made):
        places = {buffer.name: (1, place << 20) for place, buffer in enumerate(program.buffers)}
        placed = [program.place(index, places.__getitem__) for index in range(len(program.operations))]
        cycles.append(estimate(schedule(placed, program.accelerator), program.accelerator, near).total)
    assert cycles[1] < cycles[0]
