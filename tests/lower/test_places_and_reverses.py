"""Places of maxima and elements backwards, one pool of Ethos-U85 each, equal the reference; elsewhere on the host."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npu_memplan.ethosu.relax.partition import host_operators, npu_functions, partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
from tests.support.against_reference import equals_reference, operations_of

MACS = (128, 256, 512, 1024, 2048)
PLACES = (((1, 5, 6, 10), 3), ((1, 5, 60, 10), 2), ((1, 50, 6, 33), 1), ((4, 1000), -1), ((7, 3), 0))
REVERSES = (
    *(((1, 5, 6, 10), [3]), ((1, 5, 60, 10), [2]), ((1, 50, 6, 33), [1]), ((4, 1000), [1])),
    *(((2, 16, 16, 21), [1, 2]), ((7, 3), [0]), ((300,), [0]), ((8, 6, 1), [2])),
)


def places(rng: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    x, a = b.tensor(shape, dtype, 0.1, 3), b.constant(np.array([axis], np.int32))
    y = b.tensor(tuple(np.delete(shape, axis)), "int32")
    b.operator("ARG_MAX", [x, a], [y], "ArgMaxOptions", 2, OutputType=2)
    return b.made([x], [y])


def backwards(rng: np.random.Generator, shape: tuple[int, ...], axes: list[int], dtype: str) -> ModelBuilder:
    b = ModelBuilder()
    zero = 0 if dtype == "int16" else 3
    x, y = (b.tensor(shape, dtype, 0.1, zero) for _ in range(2))
    b.operator("REVERSE_V2", [x, b.constant(np.array(axes, np.int32))], [y], "ReverseV2Options", 1)
    return b.made([x], [y])


@pytest.mark.parametrize("macs", MACS)
@pytest.mark.parametrize(("shape", "axis"), PLACES)
def test_places_equal_the_reference(shape: tuple[int, ...], axis: int, macs: int) -> None:
    case = Case(f"places {shape} {axis}", "arg_max", partial(places, shape=shape, axis=axis, dtype="int8"))
    equals_reference(case, f"ethos-u85-{macs}", macs)
    assert operations_of(case, f"ethos-u85-{macs}") == [Op.POOL]


@pytest.mark.parametrize("number", range(3 * len(REVERSES)))
def test_reverses_equal_the_reference(number: int) -> None:
    (shape, axes), dtype = REVERSES[number // 3], ("int8", "uint8", "int16")[number % 3]
    case = Case(f"reverse {shape} {axes}", "reverse", partial(backwards, shape=shape, axes=axes, dtype=dtype))
    npu = f"ethos-u85-{MACS[number % len(MACS)]}"
    equals_reference(case, npu, number)
    assert operations_of(case, npu) == [Op.POOL]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (places(np.random.default_rng(0), (4, 9), 1, "int8"), "places of maxima, which only Ethos-U85 does"),
        (backwards(np.random.default_rng(0), (4, 9), [1], "int8"), "values backwards, which only Ethos-U85 does"),
    ],
)
def test_others_leave_them_to_the_host(model: ModelBuilder, reason: str) -> None:
    module = partition_for_ethosu(import_relax(model.finish()), "ethos-u65-512")
    assert not npu_functions(module)
    assert any(reason in operator.reason for operator in host_operators(module))
