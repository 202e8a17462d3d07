"""Ethos-U85 alone: chains of kernels, tables of functions, sparse weights, scalars in registers, products of maps."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from fvp_runner.npu_model.arithmetic import rescale
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.lower.languages import function_table_u85
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.program.access import is_sparse
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.program import BufferRole, NpuProgram, chain_bounds
from npu_memplan.ethosu.schedule import order
from npu_memplan.ethosu.schedule.order import chain_kernels
from npu_memplan.ethosu.schedule.stripes.group import deep
from npu_memplan.ethosu.schedule.stripes.rows import slice_rows
from npu_memplan.ethosu.stream.isa import ActivationFunction, Op, PoolMode, TableKind
from npu_memplan.ethosu.time import cycles_in_a_row, default_memory_map, estimate
from tests.support.on_model import npu_graph, random_inputs, run_program
from tests.support.operator_models import (
    batch_matmul,
    binary,
    convolution,
    fully_connected,
    mean,
    prelu,
    random_weights,
    transpose,
    unary,
)
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
from fvp_runner.references.kernels import TFLiteReference
from tests.support.against_reference import equals_reference, operations_of

_REACH = 1 << 18  # both functions are at their limits beyond half of this


@pytest.mark.parametrize(
    ("function", "kind", "built_in"),
    [
        (ActivationFunction.SIGMOID, TableKind.SIGMOID, rescale.sigmoid),
        (ActivationFunction.TANH, TableKind.TANH, rescale.tanh),
    ],
)
def test_every_value(function: ActivationFunction, kind: TableKind, built_in: object) -> None:
    words = function_table_u85(function)
    assert words.shape == (512,)
    values = np.arange(-_REACH, _REACH)
    found = rescale.look_up(kind, words.astype(np.uint32).view(np.uint8), values)
    assert callable(built_in)
    assert np.array_equal(found, built_in(values))


KINDS = {
    "3x3": {"shape": (9, 10, 64), "channels": 40},
    "1x1": {"shape": (16, 16, 130), "channels": 64, "kernel": (1, 1)},
    "int16": {"shape": (9, 10, 32), "channels": 24, "dtype": "int16"},
}


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
@pytest.mark.parametrize("kind", KINDS)
def test_pruned_convolutions_are_exact_and_sparse(kind: str, npu: str) -> None:
    case = Case(f"pruned_{kind}", "conv", lambda rng: convolution(rng, pruned=True, **KINDS[kind]))
    (operation,) = equals_reference(case, npu, 3).lowered.program.operations
    assert is_sparse(operation.place(lambda _: (0, 0))) or kind == "1x1"  # whose maps take longer on a large NPU


NPU = accelerator("ethos-u85-256")


@pytest.mark.parametrize(("rows", "fewer"), [(32, True), (7, False)])
def test_products_of_rows_take_fewer_cycles_where_time_counts(rows: int, fewer: bool) -> None:
    made = fully_connected(np.random.default_rng(3), inputs=64, outputs=200, batch=rows)
    cycles = []
    for target in (LoweringTarget(), LoweringTarget(for_cycles=True)):
        lowered = equals_reference(made, NPU.name, 1, target, scheduled=True).lowered
        (kernel,) = (i for i, o in enumerate(lowered.program.operations) if o.op is Op.CONV)
        placed = lowered.program.place(kernel, lambda name: (int(name != "constants"), 0))
        cycles.append(cycles_in_a_row(placed, NPU, default_memory_map(NPU)))
    assert cycles[1] <= cycles[0]
    assert (cycles[1] < cycles[0]) == fewer


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_means_of_channels_are_sums_of_channels(dtype: str) -> None:
    made = equals_reference(mean(np.random.default_rng(4), axes=(3,), dtype=dtype), NPU.name, 2, scheduled=True)
    assert [(o.op, o.parameter) for o in made.lowered.program.operations] == [(Op.POOL, PoolMode.REDUCE_SUM)]


_with_one = partial(binary, first=(1, 6, 7, 32), second=(1, 1, 1, 1), is_constant=True, ratio=0.7)
SCALARS = [
    Case(f"{name}_{dtype}_{reverse}", name, partial(_with_one, name=name, dtype=dtype, reverse=reverse))
    for name in ("ADD", "SUB", "MUL")
    for dtype in ("int8", "uint8", "int16")
    for reverse in (False, True)
]


@pytest.mark.parametrize("npu", ["ethos-u85-128", "ethos-u85-512"])
@pytest.mark.parametrize("case", SCALARS, ids=lambda case: case.name)
def test_a_constant_is_in_no_memory(case: Case, npu: str) -> None:
    program = equals_reference(case, npu, 5).lowered.program
    assert all(buffer.role is not BufferRole.CONSTANTS for buffer in program.buffers)
    assert slice_rows(program, 0) is not None
    assert deep(program, 0) is not None


def test_of_a_softmax_only_its_table_is_in_memory() -> None:
    softmax = partial(unary, name="SOFTMAX", out=(1 / 256, -128), options="SoftmaxOptions", shape=(1, 10), Beta=1.0)
    graph = npu_graph(Case("softmax", "softmax", softmax).build(), "ethos-u85-256")
    assert len(lower(graph, accelerator("ethos-u85-256")).constants) == 256 * 4


NPUS = tuple(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048))
PRODUCTS: dict[str, dict[str, Any]] = {
    "two stacks": {},
    "second transposed": {"adjoint": (False, True)},
    "first transposed": {"adjoint": (True, False)},
    "both transposed": {"adjoint": (True, True)},
    "several blocks": {"extents": (70, 130, 300), "first": (), "second": ()},
    "tokens and heads": {"extents": (50, 64, 50), "first": (1, 3), "second": (1, 3), "adjoint": (False, True)},
    "second repeated": {"first": (1, 3), "second": (1, 1)},
    "first repeated": {"first": (1, 1), "second": (2, 3)},
    "one row": {"first": (4,), "second": (4,), "extents": (1, 300, 17)},
    "long sums": {"first": (), "second": (), "extents": (3, 3000, 40)},
    "constant": {"is_constant": True},
    "constant transposed": {"is_constant": True, "adjoint": (True, True)},
}
ORDERS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "height and width": ((0, 2, 1, 3), (1, 5, 6, 7)),
    "width and channels": ((0, 1, 3, 2), (1, 3, 200, 150)),
    "height and channels": ((2, 1, 0), (40, 7, 130)),
    "channels first": ((0, 3, 1, 2), (1, 20, 33, 90)),
    "channels last": ((0, 2, 3, 1), (1, 90, 20, 33)),
    "a matrix": ((1, 0), (130, 70)),
    "four dimensions": ((3, 1, 0, 2), (3, 5, 6, 7)),
    "backwards": ((3, 2, 1, 0), (4, 5, 6, 7)),
}


def product_case(label: str, dtype: str) -> Case:
    return Case(f"batch_matmul_{label}_{dtype}", "matmul", lambda rng: batch_matmul(rng, dtype, **PRODUCTS[label]))


def dealt(labels: Iterable[str], whole: str, *dtypes: str) -> list[tuple[str, str, str]]:
    """Every label and type on one of the NPUs in turn, `whole` of int8 on all."""
    pairs = [(label, dtype) for label in labels for dtype in dtypes]
    dealt = [(*pair, NPUS[i % len(NPUS)]) for i, pair in enumerate(pairs)]
    return dealt + [(whole, "int8", npu) for npu in NPUS if (whole, "int8", npu) not in dealt]


@pytest.mark.parametrize(("label", "dtype", "npu"), dealt(PRODUCTS, "several blocks", "int8", "int16"))
def test_products_equal_the_reference(label: str, dtype: str, npu: str) -> None:
    equals_reference(product_case(label, dtype), npu, zlib.crc32(label.encode()) % 100)


def test_only_what_is_stored_otherwise_is_transposed_first() -> None:
    assert operations_of(product_case("two stacks", "int8"), NPUS[1]) == [Op.POOL, Op.CONV, Op.CONV]
    assert operations_of(product_case("second transposed", "int8"), NPUS[1]) == [Op.CONV, Op.CONV]
    assert operations_of(product_case("constant", "int8"), NPUS[1]) == [Op.CONV, Op.CONV]


@pytest.mark.parametrize("label", ORDERS)
def test_three_dimensions_take_one_operation(label: str) -> None:
    expected = {"four dimensions": 3, "backwards": 5}.get(label, 1)
    axes, shape = ORDERS[label]
    case = Case(f"transpose_{label}", "transpose", lambda rng: transpose(rng, axes, "int8", shape))
    assert equals_reference(case, NPUS[1]).operations == [Op.POOL] * expected


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
    return lower(npu_graph(model, npu), accelerator(npu))


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
    graph = npu_graph(model, npu)
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
    apart = lowered(residual(np.random.default_rng(3), size=56, depth=16, kernel=1).finish(), "ethos-u85-1024")
    near = default_memory_map(apart.program.accelerator).with_constants_near()
    made = chain_kernels(apart.program, near)
    assert made is not apart.program
    cycles = []
    for program in (apart.program, made):
        places = {buffer.name: (1, place << 20) for place, buffer in enumerate(program.buffers)}
        placed = [program.place(index, places.__getitem__) for index in range(len(program.operations))]
        cycles.append(estimate(schedule(placed, program.accelerator), program.accelerator, near).total)
    assert cycles[1] < cycles[0]
