"""Activations: LEAKY_RELU and PRELU, tables of LOGISTIC and TANH, limits of fused ones; each equals its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import Lowered, LoweringTarget, lower
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.schedule.blocks import place_of
from npu_memplan.ethosu.schedule.stripes.rows import slice_rows
from npu_memplan.ethosu.stream.isa import ElementwiseMode, Op
from npu_memplan.ethosu.time import default_memory_map
from npu_memplan.ethosu.time.estimate import cycles_in_a_row
from npu_memplan.exactness import Exactness
from npu_memplan.fixed_point import activation_range
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support import in_steps
from tests.support.against_reference import equals_reference
from tests.support.on_model import npu_graph
from tests.support.operator_models import binary, convolution, fully_connected, pool, prelu, unary
from tests.support.operator_table import row
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")


def leaky_relu(slope: float, ratio: float) -> Case:
    """`ratio`: the input's scale to the output's."""
    fields = {"dtype": "int16", "options": "LeakyReluOptions", "shape": (1, 16, 64, 32), "Alpha": slope}
    out = (1e-4 / ratio, 0)
    return Case(
        f"leaky_relu_{slope}_{ratio}", "leaky_relu", partial(unary, name="LEAKY_RELU", in_scale=1e-4, out=out, **fields)
    )


@pytest.mark.parametrize(("slope", "last"), [(0.1, ElementwiseMode.MAX), (1.3, ElementwiseMode.ADD)])
def test_the_larger_product_is_the_result_where_the_slope_is_small(slope: float, last: ElementwiseMode) -> None:
    npu = "ethos-u55-256"
    graph = npu_graph(leaky_relu(slope, 0.93).build(), npu)
    program = lower(graph, accelerator(npu)).program
    assert [o.parameter for o in program.operations] == [ElementwiseMode.MUL, ElementwiseMode.MUL, last]
    assert all(buffer.role is not BufferRole.CONSTANTS for buffer in program.buffers)


NPU = accelerator("ethos-u55-256")


def lowered(shape: tuple[int, ...], for_cycles: bool) -> Lowered:
    model = prelu(np.random.default_rng(5), shape=shape).finish()
    graph = npu_graph(model, NPU.name)
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


STANDARD = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}


def model(kind: str, scales: list[tuple[float, int]], out: tuple[float, int]) -> ModelBuilder:
    """One operator on all 256 values for each input scale and zero point."""
    b = ModelBuilder()
    for scale, zero in scales:
        x, y = b.tensor((256,), "int8", scale, zero), b.tensor((256,), "int8", *out)
        b.operator(kind, [x], [y], None, 2)
        b.inputs.append(x)
        b.outputs.append(y)
    return b


@pytest.mark.parametrize("kind", STANDARD)
def test_velas_tables_are_not_called_exact(kind: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(model(kind, [(1 / 128, 0)], STANDARD[kind]).finish())
    options = CompileOptions(npu_compiler="vela", objective="bytes")
    (operator,) = compile_model(tmp_path / "m.tflite", options, tmp_path / "out").operators
    assert (operator.agent, operator.claim.exactness) == (Agent.NPU, Exactness.STEP)


def test_other_output_scales_are_kept_from_vela(tmp_path: Path) -> None:
    made = model("TANH", [(1 / 16, 0)], (1 / 100, 4)).finish()
    (operator,) = in_steps.equals_reference(
        made, tmp_path, 1, CompileOptions(npu_compiler="vela", objective="bytes")
    ).operators
    assert operator.agent is Agent.HOST


_LIMIT = {2: 1.0, 3: 6.0}  # of RELU_N1_TO_1 and RELU6
_MAKERS: dict[str, Callable[..., ModelBuilder]] = {
    "conv": lambda rng, **more: convolution(rng, shape=(5, 5, 4), **more),
    "depthwise": lambda rng, **more: convolution(rng, depthwise=True, shape=(5, 5, 4), channels=4, **more),
    "dense": fully_connected,
    "max": lambda rng, **more: pool(rng, kind="MAX", **more),
    "average": lambda rng, **more: pool(rng, kind="AVERAGE", **more),
    "transposed": lambda rng, **more: _transposed(rng, **more),
    "add": lambda rng, **more: binary(rng, name="ADD", **more),
    "mul": lambda rng, **more: binary(rng, name="MUL", **more),
}


def _transposed(rng: np.random.Generator, activation: int, dtype: str) -> ModelBuilder:
    """TRANSPOSE_CONV, which has had activations since version 4; TVM 0.27's importer forgets them."""
    builder = row("TRANSPOSE_CONV", dtype).make(rng)
    ((kind, inputs, outputs, options, fields, _),) = builder.operators
    builder.operators = [(kind, inputs, outputs, options, fields | {"FusedActivationFunction": activation}, 4)]
    return builder


def limited(rng: np.random.Generator, kind: str, activation: int, dtype: str) -> ModelBuilder:
    """An operator whose output scale divides the limit of its activation into about a whole number and a half."""
    builder = _MAKERS[kind](rng, activation=activation, dtype=dtype)
    scale = np.float32(_LIMIT[activation] / (int(rng.integers(8, 90)) + 0.5))
    for _ in range(int(rng.integers(0, 3))):
        scale = np.nextafter(scale, np.float32(rng.choice([0.0, 1.0])))
    zero = int(rng.integers(-100, 20)) + (128 if dtype == "uint8" else 0)
    changed = [*builder.outputs, *(builder.inputs if kind in ("max", "average") else ())]
    for index in changed:
        builder.tensors[index] = replace(builder.tensors[index], scale=float(scale), zero_point=zero)
    return builder


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("activation", _LIMIT)
@pytest.mark.parametrize("kind", _MAKERS)
def test_fused_limits_near_a_half(kind: str, activation: int, dtype: str) -> None:
    for seed in range(3):
        case = Case(
            f"limits_{kind}_{activation}_{dtype}_{seed}", "limits", lambda rng: limited(rng, kind, activation, dtype)
        )
        equals_reference(case, "ethos-u85-256" if seed % 2 else "ethos-u55-128", seed)


def test_scales_are_drawn_where_roundings_differ() -> None:
    """So that the test above can fail: half to even, in double precision, is another limit for a good part."""
    rng = np.random.default_rng(1)
    differing = 0
    for _ in range(200):
        builder = limited(rng, "max", 3, "int8")
        tensor = builder.tensors[builder.outputs[0]]
        _, high = activation_range(3, tensor.scale, tensor.zero_point, "int8")
        differing += high != min(127, round(6.0 / tensor.scale) + tensor.zero_point)
    assert differing > 40
