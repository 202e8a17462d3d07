"""In-place permissions: given exactly where every element is read at the place it is written to."""

from __future__ import annotations

from typing import Any

import pytest

from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.stream.isa import PoolMode
from npu_memplan.vela.lift import lift_program
from tests.support.hand_made import conv, elementwise, network, pool, view

S = (4, 4, 16)


def _overlaps(operations: list[Any], inputs: list[Any], outputs: list[Any]) -> list[tuple[str, str, int, int, int]]:
    net = network(operations, inputs, outputs)
    found = [(o.allowed, o.operation) for o in find_overlaps(lift_program(net, net.npu_calls[0]))]
    return [(o.first, o.second, o.lowest, o.highest, at) for o, at in found if o.lowest == o.highest]


def _add(a: int, b: int, out: int, **more: Any) -> Any:
    return elementwise(view("IFM", a, S), view("OFM", out, S), view("IFM2", b, S), **more)


def test_both_operands_of_an_addition_may_be_overwritten() -> None:
    assert _overlaps([_add(0, 256, 512)], [(S, 0), (S, 256)], [(S, 512)]) == [
        ("input0", "output0", 0, 0, 0), ("input1", "output0", 0, 0, 0)]  # fmt: skip


def test_an_operand_that_is_used_later_may_not() -> None:
    operations = [_add(0, 256, 512), _add(512, 0, 768)]
    assert _overlaps(operations, [(S, 0), (S, 256)], [(S, 768)]) == [
        ("input1", "feature_map0", 0, 0, 0),
        ("feature_map0", "output0", 0, 0, 1),
        ("input0", "output0", 0, 0, 1),
    ]


def test_a_broadcast_operand_may_not_be_overwritten() -> None:
    op = elementwise(view("IFM", 0, S), view("OFM", 512, S), view("IFM2", 256, (1, 1, 16)), broadcast=3)
    assert _overlaps([op], [(S, 0), ((1, 1, 16), 256)], [(S, 512)]) == [("input0", "output0", 0, 0, 0)]


@pytest.mark.parametrize("change", ["brick", "bits", "strides"])
def test_another_address_map_may_not(change: str) -> None:
    more: dict[str, Any] = {"brick": True} if change == "brick" else {}
    if change == "bits":
        more = {"bits": 16}
    if change == "strides":
        more = {"strides": (16, 64, 1)}  # transposed
    op = elementwise(view("IFM", 0, S, **more), view("OFM", 1024, S))
    size = (4, 4, 32) if change == "bits" else S
    assert _overlaps([op], [(size, 0)], [(S, 1024)]) == []


def test_one_row_needs_no_equal_row_stride() -> None:
    row = (1, 4, 16)
    op = elementwise(view("IFM", 0, row, strides=(999, 16, 1)), view("OFM", 512, row))
    assert _overlaps([op], [(row, 0)], [(row, 512)]) == [("input0", "output0", 0, 0, 0)]


def test_the_distance_is_that_of_the_elements_not_of_the_buffers() -> None:
    """Only the second half of a buffer is read: the output may lie over that half alone."""
    op = elementwise(view("IFM", 256, S), view("OFM", 1024, S))
    use = elementwise(view("IFM", 0, (8, 4, 16)), view("OFM", 2048, (8, 4, 16)))
    assert _overlaps([use, op], [((8, 4, 16), 0)], [((8, 4, 16), 2048), (S, 1024)]) == [
        ("input0", "output1", 256, 256, 1)]  # fmt: skip


def test_an_operand_read_twice_at_different_places_may_not() -> None:
    """x[0:256] + x[64:320] written over x[0:256] would overwrite what is still to be read."""
    op = elementwise(view("IFM", 0, S), view("OFM", 1024, S), view("IFM2", 64, S))
    assert _overlaps([op], [((8, 4, 16), 0)], [(S, 1024)]) == []


def test_an_operand_read_twice_at_one_place_may() -> None:
    op = _add(0, 0, 512)
    assert _overlaps([op], [(S, 0)], [(S, 512)]) == [("input0", "output0", 0, 0, 0)]


@pytest.mark.parametrize(
    ("mode", "kernel", "stride", "allowed"),
    [
        (PoolMode.AVERAGE, (1, 1), 1, True),
        (PoolMode.MAX, (1, 1), 1, False),
        (PoolMode.AVERAGE, (2, 1), 1, False),
        (PoolMode.AVERAGE, (1, 1), 2, False),
    ],
)
def test_only_the_one_by_one_average_pool_is_pointwise(
    mode: PoolMode, kernel: tuple[int, int], stride: int, allowed: bool
) -> None:
    op = pool(view("IFM", 0, (8, 8, 16)), view("OFM", 2048, S), mode=mode, kernel=kernel, stride=stride)
    size = (8, 8, 16) if stride > 1 or kernel != (1, 1) else S
    if size == S:
        op = pool(view("IFM", 0, S), view("OFM", 2048, S), mode=mode)
    assert bool(_overlaps([op], [(size, 0)], [(S, 2048)])) == allowed


def test_a_convolution_never_runs_in_place() -> None:
    op = conv(view("IFM", 0, S), view("OFM", 512, S), depth=16)
    assert _overlaps([op], [(S, 0)], [(S, 512)]) == []


def test_neither_outputs_nor_states_die_and_states_are_never_born() -> None:
    chain = [elementwise(view("IFM", 0, S), view("OFM", 256, S)), elementwise(view("IFM", 256, S), view("OFM", 512, S))]
    assert _overlaps(chain, [(S, 0)], [(S, 256), (S, 512)]) == [("input0", "output0", 0, 0, 0)]
    net = network([_add(512, 0, 512)], [(S, 0)], [], states=[(S, 512)])
    assert find_overlaps(lift_program(net, net.npu_calls[0])) == ()
