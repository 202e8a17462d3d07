"""Comparison by layer: what the NPU wrote against the reference's tensors.

Invariant: a layer is called equal only when every element of it was seen and equal, and called different
only when an operation wrote a tensor of its shape, type and zero point that is closest to it and not equal.
Tensors that compilation fused away are counted as not visible and never blamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from npu_memplan.models.network import Network
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.vela import NpuCall

from ...result import Array
from ..bound.dma import Dma
from ..bound.operation import Bound, Kernel
from ..spec.stream import DecodedStep

_MAX_PLACES = 64  # candidate positions looked at for one written part


@dataclass(frozen=True, slots=True)
class Written:
    """The output of one kernel operation, copied when it was written."""

    where: str
    values: Array  # [height, width, depth]
    zero_point: int


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The first tensor that differs."""

    tensor: str
    index: int
    shape: tuple[int, ...]
    where: str  # the operation
    coordinates: tuple[int, ...]  # of the first wrong element, in the tensor's shape
    got: int
    expected: int
    mismatches: int  # in what the operation wrote
    elements: int
    max_abs_diff: int  # of these elements


@dataclass(frozen=True, slots=True)
class LayerReport:
    """How many of the reference's tensors were visible and equal, and the first that was not."""

    tensors: int
    equal: int
    first: LayerDifference | None


class LayerRecorder:
    """An observer for `NetworkModel.run` that keeps what every kernel wrote."""

    def __init__(self) -> None:
        self.written: list[Written] = []

    def __call__(self, call: NpuCall, step: DecodedStep, bound: Bound) -> None:
        if isinstance(bound, Dma):
            return
        self.written.append(Written(*seen(step, bound, call.index)))


def seen(step: DecodedStep, bound: Kernel, call: int) -> tuple[str, Array, int]:
    """Name, output and zero point of a kernel of NPU call number `call` that has ended, for `Written`."""
    where = step.registers.where + (f" of NPU call {call}" if call else "")
    return where, np.array(bound.output.map.array), bound.output.spec.layout.zero_point


def compare_layers(
    network: Network, layers: Mapping[int, Array], written: Sequence[Written], blame: bool = True
) -> LayerReport:
    """Compare the tensors `layers` (by index in the reference `network`) with what was written.

    With `blame` False (outputs that are right anyway) only the equal ones are counted.
    """
    wholes = {index: as_map(values) for index, values in layers.items()}
    seen = {index: np.zeros(whole.shape, np.bool_) for index, whole in wholes.items()}
    claims: dict[int, tuple[float, int, Any]] = {}  # position -> best (share of equal elements, tensor, box)
    for position, part in enumerate(written):
        matched = False
        for index, whole in wholes.items():
            if part.values.dtype != whole.dtype:
                continue
            if part.values.size == whole.size and np.array_equal(part.values.reshape(-1), whole.reshape(-1)):
                seen[index][...] = matched = True
                continue
            box = _place(part.values, whole)
            if box is not None:
                seen[index][box] = matched = True
        if matched or not blame:
            continue
        for index, whole in wholes.items():
            if not same_form(part.values, part.zero_point, whole, network.tensors[index]):
                continue
            share, box = closest(part.values, whole)
            if share == 1.0:
                seen[index][box if box is not None else ...] = True
                claims.pop(position, None)
                break
            if position not in claims or share > claims[position][0]:
                claims[position] = (share, index, box)
    equal = {index for index, mask in seen.items() if mask.all()}
    first = None
    blamed = {index: position for position, (_, index, _) in reversed(claims.items())}
    for index, values in layers.items():
        if index in blamed and index not in equal:
            first = _difference(network.tensors[index], values, written[blamed[index]], claims[blamed[index]][2])
            break
    return LayerReport(len(layers), len(equal), first)


def as_map(values: Array) -> Array:
    """`values` as [height, width, depth]; leading axes count as height."""
    shape = (1, 1, 1, *values.shape)
    return values.reshape(-1, shape[-2], shape[-1])


def same_form(values: Array, zero_point: int, whole: Array, tensor: Tensor) -> bool:
    """Whether `values` may be (a part of) the tensor, which is `whole` as a map: by type, zero point, extents."""
    if values.dtype != whole.dtype or zero_point != tensor.zero_point:
        return False
    return values.size == whole.size or (
        values.shape[1] == whole.shape[1] and values.shape[0] <= whole.shape[0] and values.shape[2] <= whole.shape[2]
    )


def _place(part: Array, whole: Array) -> tuple[slice, slice, slice] | None:
    """Where `part` occurs in `whole`; None when nowhere."""
    room = [n - m + 1 for n, m in zip(whole.shape, part.shape, strict=True)]
    if min(room) < 1 or part.size < 2:
        return None
    y, x, c = room
    candidates = whole[:y, :x, :c] == part[0, 0, 0]
    h, w, d = (n - 1 for n in part.shape)
    for dy, dx, dc in ((h, w, d), (0, w, 0), (0, 0, d), (h // 2, w // 2, d // 2), (h, 0, 0)):
        candidates &= whole[dy : dy + y, dx : dx + x, dc : dc + c] == part[dy, dx, dc]
    for at in islice(zip(*np.nonzero(candidates), strict=True), _MAX_PLACES):
        box = tuple(slice(int(a), int(a) + n) for a, n in zip(at, part.shape, strict=True))
        if np.array_equal(whole[box], part):
            return box[0], box[1], box[2]
    return None


def closest(part: Array, whole: Array) -> tuple[float, tuple[slice, slice, slice] | None]:
    """(largest share of equal elements of `part` in `whole`, where); None: element by element in memory order."""
    if part.size == whole.size:
        return float(np.mean(part.reshape(-1) == whole.reshape(-1))), None
    best: tuple[float, tuple[slice, slice, slice] | None] = (-1.0, None)
    height, _, depth = part.shape
    for y in _aligned(whole.shape[0], height):
        for c in _aligned(whole.shape[2], depth):
            box = slice(y, y + height), slice(0, whole.shape[1]), slice(c, c + depth)
            share = float(np.mean(whole[box] == part))
            if share > best[0]:
                best = share, box
    return best


def _aligned(total: int, size: int) -> list[int]:
    return sorted({*range(0, total - size + 1, size), total - size})


def _difference(tensor: Tensor, values: Array, part: Written, box: Any) -> LayerDifference:
    whole = as_map(values)
    got = part.values.reshape(whole.shape) if box is None else part.values
    expected = whole if box is None else whole[box]
    wrong = got != expected
    inner = tuple(int(i) for i in np.argwhere(wrong)[0])
    offsets = (0, 0, 0) if box is None else tuple(s.start for s in box)
    flat = np.ravel_multi_index(tuple(i + o for i, o in zip(inner, offsets, strict=True)), whole.shape)
    return LayerDifference(
        tensor=tensor.name,
        index=tensor.index,
        shape=tuple(values.shape),
        where=part.where,
        coordinates=tuple(int(i) for i in np.unravel_index(int(flat), values.shape)),
        got=int(got[inner]),
        expected=int(expected[inner]),
        mismatches=int(np.count_nonzero(wrong)),
        elements=int(wrong.size),
        max_abs_diff=int(np.abs(got.astype(np.int64) - expected.astype(np.int64)).max()),
    )
