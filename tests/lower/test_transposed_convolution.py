"""Transposed convolutions with stride 1 are convolutions with the mirrored kernel and what its padding leaves; with
stride 2 they are four small ones where that takes fewer cycles.
"""

from __future__ import annotations

from functools import partial

import pytest

from npu_memplan.ethosu.lowering import LoweringTarget
from npu_memplan.ethosu.relax.partition import host_operators, partition_for_ethosu
from npu_memplan.ethosu.stream.isa import Op
from tests.support.against_reference import equals_reference
from tests.support.arithmetic_models import SAME, VALID, transpose_convolution
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")


def case(kernel: int, padding: int = VALID, dtype: str = "int8") -> Case:
    made = partial(transpose_convolution, kernel=kernel, stride=1, padding=padding, dtype=dtype)
    return Case(f"transposed_{kernel}_{padding}_{dtype}", "transpose_conv", made)


@pytest.mark.parametrize("npu", ["ethos-u55-32", "ethos-u55-256", "ethos-u65-512"])
@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("kernel", "dtype"), [(1, "int8"), (2, "uint8"), (3, "int16"), (4, "int8"), (32, "int8")])
def test_equals_the_reference(kernel: int, dtype: str, padding: int, npu: str) -> None:
    equals_reference(case(kernel, padding, dtype), npu, 3)


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
@pytest.mark.parametrize(("kernel", "dtype", "padding"), [(1, "int8", VALID), *(
    (kernel, dtype, padding) for kernel, dtype in ((2, "int8"), (3, "uint8"), (4, "int16"), (5, "int8"))
    for padding in (SAME, VALID)
)])  # fmt: skip
def test_stride_2_without_zeros_between(kernel: int, dtype: str, padding: int, npu: str) -> None:
    """Four convolutions have a quarter of the products; a kernel of one element leaves three of them without any. Two
    cores put out the nine channels like 16, which takes as long as all products of a kernel of 2x2.
    """
    made = partial(transpose_convolution, kernel=kernel, padding=padding, dtype=dtype, depth=32, size=19)
    wanted = Case(f"parts_{kernel}_{padding}_{dtype}", "transpose_conv", made)
    whole = kernel == 1 or (kernel == 2 and npu == "ethos-u65-512")
    for for_cycles, count in ((True, 1 if whole else 4), (False, 1)):
        operations = equals_reference(wanted, npu, 3, LoweringTarget(for_cycles=for_cycles))
        assert operations.count(Op.CONV) == count


def test_more_padding_than_the_npu_has_stays_on_the_host() -> None:
    module = partition_for_ethosu(import_relax(case(33).build()))
    reasons = [operator.reason for operator in host_operators(module)]
    assert "its padding (32, 32, 32, 32) is more than (31, 31, 32, 32) at the top, left, bottom and right" in reasons
