"""Elements in other places: transposes, pads of channels, places of maxima, reversals, copies of strided boxes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npu_memplan.ethosu.layers.movement import pick_moves
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference, host_reasons
from tests.support.on_model import npu_graph
from tests.support.operator_models import pad, tile, transpose
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


TRANSPOSES = {
    "three planes": (((0, 2, 3, 1), (1, 3, 5, 48), "int8"), [Op.CONV]),
    "three planes uint8": (((0, 2, 3, 1), (1, 3, 5, 32), "uint8"), [Op.CONV]),
    "without a batch": (((1, 2, 0), (1, 8, 5, 16), "int8"), [Op.CONV]),
    "three channels": (((0, 3, 1, 2), (1, 6, 32, 3), "int8"), [Op.CONV]),
    "one row": (((0, 2, 3, 1), (1, 2, 1, 64), "int8"), [Op.CONV]),
    "other columns": (((0, 2, 3, 1), (1, 3, 5, 40), "int8"), [Op.POOL] * 3),
    "other types": (((0, 2, 3, 1), (1, 3, 5, 16), "int16"), [Op.POOL] * 3),
    "more planes": (((0, 2, 3, 1), (1, 9, 5, 16), "int8"), [Op.POOL] * 9),
    "other axes": (((0, 3, 2, 1), (1, 16, 16, 3), "int8"), [Op.POOL] * 3),
}


def transposed(label: str) -> Case:
    order, shape, dtype = TRANSPOSES[label][0]
    return Case(f"transpose_{label}", "transpose", lambda rng: transpose(rng, order, dtype, shape))


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("label", TRANSPOSES)
def test_transposes_equal_the_reference_and_few_planes_take_one_operation(label: str, npu: str) -> None:
    made = equals_reference(transposed(label), npu, 3)
    assert npu != "ethos-u55-256" or made.operations == TRANSPOSES[label][1]


NONE = (0, 0)
PADS = {  # of [1, 5, 6, 10]: amounts, type, operations
    "behind": ((NONE, NONE, NONE, (0, 5)), "int8", 2),
    "in front": ((NONE, NONE, NONE, (3, 0)), "uint8", 2),
    "on both sides": ((NONE, NONE, NONE, (2, 5)), "int16", 3),
    "more than there are": ((NONE, NONE, NONE, (0, 35)), "int8", 5),
    "every side": ((NONE, (1, 2), (3, 1), (20, 2)), "int8", 8),
}


def padded(label: str) -> Case:
    amounts, dtype, _ = PADS[label]
    return Case(f"pad_{label}", "pad", lambda rng: pad(rng, amounts, dtype))


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("label", PADS)
def test_pads_equal_the_reference_and_are_made_of_what_is_there(label: str, npu: str) -> None:
    made = equals_reference(padded(label), npu, 3)
    if npu == "ethos-u55-256":
        assert len(made.operations) == PADS[label][2]
        assert bool(made.lowered.constants) == (label == "every side")  # rows and columns are copied


MACS = (128, 256, 512, 1024, 2048)
PLACES = (((1, 5, 6, 10), 3), ((1, 5, 60, 10), 2), ((1, 50, 6, 33), 1), ((4, 1000), -1), ((7, 3), 0))
REVERSES = (
    *(((1, 5, 6, 10), [3]), ((1, 5, 60, 10), [2]), ((1, 50, 6, 33), [1]), ((4, 1000), [1])),
    *(((2, 16, 16, 21), [1, 2]), ((7, 3), [0]), ((300,), [0]), ((8, 6, 1), [2])),
)


def places(rng: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: str) -> ModelBuilder:
    inputs, y = [TensorSpec(shape, dtype, 0.1, 3), constant([axis])], TensorSpec(np.delete(shape, axis), "int32")
    return single_operator("ARG_MAX", inputs, [y], "ArgMaxOptions", 2, OutputType=2)


def backwards(rng: np.random.Generator, shape: tuple[int, ...], axes: list[int], dtype: str) -> ModelBuilder:
    x = TensorSpec(shape, dtype, 0.1, 0 if dtype == "int16" else 3)
    return single_operator("REVERSE_V2", [x, constant(axes)], [x], "ReverseV2Options")


@pytest.mark.parametrize("macs", MACS)
@pytest.mark.parametrize(("shape", "axis"), PLACES)
def test_places_equal_the_reference(shape: tuple[int, ...], axis: int, macs: int) -> None:
    case = Case(f"places {shape} {axis}", "arg_max", partial(places, shape=shape, axis=axis, dtype="int8"))
    assert equals_reference(case, f"ethos-u85-{macs}", macs).operations == [Op.POOL]


@pytest.mark.parametrize("number", range(3 * len(REVERSES)))
def test_reverses_equal_the_reference(number: int) -> None:
    (shape, axes), dtype = REVERSES[number // 3], ("int8", "uint8", "int16")[number % 3]
    case = Case(f"reverse {shape} {axes}", "reverse", partial(backwards, shape=shape, axes=axes, dtype=dtype))
    assert equals_reference(case, f"ethos-u85-{MACS[number % len(MACS)]}", number).operations == [Op.POOL]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (places(np.random.default_rng(0), (4, 9), 1, "int8"), "places of maxima, which only Ethos-U85 does"),
        (backwards(np.random.default_rng(0), (4, 9), [1], "int8"), "values backwards, which only Ethos-U85 does"),
    ],
)
def test_others_leave_them_to_the_host(model: ModelBuilder, reason: str) -> None:
    assert any(reason in said for said in host_reasons(model, "ethos-u65-512"))


def test_runs_are_as_few_as_tiles_and_mirrors_need() -> None:
    assert len(list(pick_moves([[0], [*range(5)] * 3, [*range(4)] * 2, [*range(9)]]))) == 6
    assert len(list(pick_moves([[0], [1, 0, 1, 2, 3, 2], [*range(4)], [*range(9)]]))) == 3
    assert len(list(pick_moves([[0], [0, 2, 4, 6], [*range(4)], [*range(9)]]))) == 1
    assert len(list(pick_moves([[0], [*range(4)], [*range(4)], [0, 2, 4, 6]]))) == 4  # nothing steps through channels


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u65-512", "ethos-u85-1024"])
@pytest.mark.parametrize(("count", "fits"), [(64, True), (65, False)])
def test_many_copies_stay_on_the_host(count: int, fits: bool, npu: str) -> None:
    made = tile(np.random.default_rng(0), (1, 3, 5, 8), (1, count, 1, 1))
    if fits:
        assert npu_graph(made.finish(), npu)
    else:
        assert host_reasons(made, npu) == ["it takes 65 copies; at most 64 pay on the NPU"]
