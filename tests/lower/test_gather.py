"""Moves that take channels of each pixel together: one operation, or none where a convolution reads what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference, host_reasons
from tests.support.random_values import random_scale, random_zero
from tests.support.single_operators import Case
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")

Move = tuple[str, Sequence[int] | int]


def chain(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    moves: Sequence[Move],
    dtype: str = "int8",
    kernel: int = 0,
    channels: int = 4,
) -> ModelBuilder:
    """`moves` of one input, and behind them a convolution with a `kernel` (0: none)."""
    b = ModelBuilder()
    quantised: Any = (random_scale(rng, dtype), random_zero(rng, dtype))
    x = last = b.tensor(shape, dtype, *quantised)
    for kind, argument in moves:
        places = b.constant(np.array(argument, np.int32))
        if kind == "TRANSPOSE":
            shape, options = tuple(shape[i] for i in np.atleast_1d(argument)), {}
        elif kind == "RESHAPE":
            shape, options = tuple(np.atleast_1d(argument)), {"NewShape": list(np.atleast_1d(argument))}
        else:
            axis = 0 if np.ndim(argument) == 0 else len(shape) - 1
            shape, options = (*shape[:axis], *np.shape(argument), *shape[axis + 1 :]), {"Axis": axis}
        made = b.tensor(shape, dtype, *quantised)
        b.operator(kind, [last, places], [made], f"{kind.title()}Options", 1 if kind == "RESHAPE" else 2, **options)
        last = made
    if kernel:
        w = b.constant(rng.integers(-127, 128, (channels, kernel, kernel, shape[3]), np.int8), 0.01)
        made = b.tensor((*shape[:3], channels), dtype, 0.9, 5)
        b.operator("CONV_2D", [last, w], [made], "Conv2DOptions", 3, StrideH=1, StrideW=1)
        last = made
    return b.made([x], [last])


def shuffle(groups: int, height: int, width: int, depth: int) -> list[Move]:
    """Channels of groups between one another, as TensorFlow writes it."""
    whole, apart = (1, height, width, depth), (1, height, width, groups, depth // groups)
    return [("RESHAPE", apart), ("TRANSPOSE", (0, 1, 2, 4, 3)), ("RESHAPE", whole)]


def half(which: int, height: int, width: int, depth: int) -> list[Move]:
    """Every other channel, as PyTorch's shuffle in planes, of which one half is picked, is converted."""
    planes = (2, 1, depth // 2, height, width)
    return [
        ("TRANSPOSE", (0, 3, 1, 2)),
        ("RESHAPE", (depth // 2, 2, height * width)),
        ("TRANSPOSE", (1, 0, 2)),
        ("RESHAPE", planes),
        ("GATHER", which),
        ("TRANSPOSE", (0, 2, 3, 1)),
    ]


SHAPE = (1, 5, 6, 24)
CASES: dict[str, tuple[dict[str, Any], list[Op]]] = {
    "some channels": ({"moves": [("GATHER", (7, 0, 3, 3, 23))]}, [Op.CONV]),
    "some channels, uint8": ({"moves": [("GATHER", (7, 0, 3, 3, 23))], "dtype": "uint8"}, [Op.CONV]),
    "groups": ({"moves": shuffle(3, 5, 6, 24)}, [Op.CONV]),
    "groups, uint8": ({"moves": shuffle(2, 5, 6, 24), "dtype": "uint8"}, [Op.CONV]),
    "even": ({"moves": half(0, 5, 6, 24)}, [Op.CONV]),
    "odd": ({"moves": half(1, 5, 6, 24)}, [Op.CONV]),
    "more channels": ({"shape": (1, 3, 3, 130), "moves": half(1, 3, 3, 130)}, [Op.CONV]),
    "channels that lie together": ({"moves": [("GATHER", (4, 5, 6)), ("GATHER", (1, 2))]}, [Op.POOL]),
    "there and back": ({"moves": [*shuffle(3, 5, 6, 24), *shuffle(8, 5, 6, 24)], "kernel": 1}, [Op.CONV]),
    "read by a convolution": ({"moves": half(1, 5, 6, 24), "kernel": 1}, [Op.CONV]),
    "groups read by a convolution": ({"moves": shuffle(3, 5, 6, 24), "kernel": 3}, [Op.CONV]),
    "more products than it saves": ({"moves": half(1, 5, 6, 24), "kernel": 3, "channels": 9}, [Op.CONV, Op.CONV]),
    "one channel twice": ({"moves": [("GATHER", (3, 3))], "kernel": 1}, [Op.CONV, Op.CONV]),
}


def case(label: str) -> Case:
    return Case(f"gather_{label}", "gather", lambda rng: chain(rng, **({"shape": SHAPE} | CASES[label][0])))


@pytest.mark.parametrize("npu", ["ethos-u55-64", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("label", CASES)
def test_moves_of_channels_become_one_operation_that_equals_the_reference(label: str, npu: str) -> None:
    made = equals_reference(case(label), npu, 3)
    assert npu != "ethos-u55-256" or made.operations == CASES[label][1]


STAY = {
    "pixels": ([("GATHER", 0)], (1, 5, 6, 24), "int8"),
    "pixels and channels": ([("RESHAPE", (1, 5, 6, 2, 12)), ("TRANSPOSE", (0, 2, 1, 4, 3))], (1, 5, 6, 24), "int8"),
}


@pytest.mark.parametrize("label", STAY)
def test_other_moves_stay_on_the_host(label: str) -> None:
    moves, shape, dtype = STAY[label]
    host_reasons(chain(np.random.default_rng(3), shape, moves, dtype))  # asserts that none is on the NPU
