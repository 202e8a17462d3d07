"""Products of two feature maps and results in another order, on every Ethos-U85, equal tflite-micro."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from npu_memplan.ethosu.stream.isa import Op
from tests.support.arithmetic_models import batch_matmul
from tests.support.movement_models import transpose
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference, operations_of

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
    "constant": {"constant": True},
    "constant transposed": {"constant": True, "adjoint": (True, True)},
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


def order_case(label: str, dtype: str) -> Case:
    axes, shape = ORDERS[label]
    return Case(f"transpose_{label}_{dtype}", "transpose", lambda rng: transpose(rng, axes, dtype, shape))


def dealt(labels: Iterable[str], whole: str, *dtypes: str) -> list[tuple[str, str, str]]:
    """Every label and type on one of the NPUs in turn, `whole` of int8 on all."""
    pairs = [(label, dtype) for label in labels for dtype in dtypes]
    dealt = [(*pair, NPUS[i % len(NPUS)]) for i, pair in enumerate(pairs)]
    return dealt + [(whole, "int8", npu) for npu in NPUS if (whole, "int8", npu) not in dealt]


@pytest.mark.parametrize(("label", "dtype", "npu"), dealt(PRODUCTS, "several blocks", "int8", "int16"))
def test_products_equal_the_reference(label: str, dtype: str, npu: str) -> None:
    equals_reference(product_case(label, dtype), npu, zlib.crc32(label.encode()) % 100)


@pytest.mark.parametrize(("label", "dtype", "npu"), dealt(ORDERS, "width and channels", "int8", "uint8", "int16"))
def test_orders_equal_the_reference(label: str, dtype: str, npu: str) -> None:
    equals_reference(order_case(label, dtype), npu, 3)


def test_only_what_is_stored_otherwise_is_transposed_first() -> None:
    assert operations_of(product_case("two stacks", "int8"), NPUS[1]) == [Op.POOL, Op.CONV, Op.CONV]
    assert operations_of(product_case("second transposed", "int8"), NPUS[1]) == [Op.CONV, Op.CONV]
    assert operations_of(product_case("constant", "int8"), NPUS[1]) == [Op.CONV, Op.CONV]


@pytest.mark.parametrize("label", ORDERS)
def test_three_dimensions_take_one_operation(label: str) -> None:
    expected = {"four dimensions": 3, "backwards": 5}.get(label, 1)
    assert operations_of(order_case(label, "int8"), NPUS[1]) == [Op.POOL] * expected
