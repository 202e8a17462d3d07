"""Bytes that an operation touches, as arrays.

Invariant: byte ranges are int64 arrays of shape [n, 2]: ascending, disjoint, half-open, never adjacent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ...errors import NpuMemplanError

Ranges = NDArray[np.int64]
NO_RANGES: Ranges = np.empty((0, 2), np.int64)


class FeatureMapError(NpuMemplanError):
    """The registers of a feature map make no sense."""


def run(start: int, length: int) -> Ranges:
    """Bytes one after the other."""
    return np.array([[start, start + length]], np.int64)


_MOST_RUNS = 1 << 22  # of one feature map: 4 million separate runs fill the largest arena


def merge_ranges(parts: Iterable[Ranges]) -> Ranges:
    """Union of ranges, each part of which is ascending, disjoint and never adjacent already. Shape [n, 2]."""
    stacked = [p for p in parts if len(p)]
    if not stacked:
        return NO_RANGES
    return stacked[0] if len(stacked) == 1 else _merged(np.concatenate(stacked))


def _merged(ranges: Ranges) -> Ranges:
    """Any non-empty ranges, sorted and with touching ones joined."""
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ranges[:, 1])
    starts_new = np.concatenate(([True], ranges[1:, 0] > ends[:-1]))
    first = np.flatnonzero(starts_new)
    last = np.append(first[1:], len(ranges)) - 1
    return np.stack((ranges[first, 0], ends[last]), axis=1)


def strided_ranges(base: int, run_bytes: int, dimensions: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges of `run_bytes` at base + sum(i_d * stride_d) for every index; dimensions are (count, stride)."""
    loops: list[tuple[int, int]] = []
    if run_bytes <= 0:
        return NO_RANGES
    for count, stride in sorted(dimensions, key=lambda d: abs(d[1])):
        if count <= 0:
            return NO_RANGES
        if count == 1:
            continue
        if not loops and 0 <= stride <= run_bytes:
            run_bytes += (count - 1) * stride
        else:
            loops.append((count, stride))
    if math.prod(count for count, _ in loops) > _MOST_RUNS:
        extents = " x ".join(str(count) for count, _ in loops)
        raise FeatureMapError(f"a feature map of {extents} separate runs fits no memory: the stream is damaged")
    starts, extent, apart = np.array([base], np.int64), run_bytes, True
    for count, stride in loops:  # ascending strides: runs stay in order while each loop clears the one inside it
        apart &= stride > extent
        extent += (count - 1) * stride
        starts = (np.arange(count, dtype=np.int64)[:, None] * stride + starts).ravel()
    ranges = np.empty((len(starts), 2), np.int64)
    ranges[:, 0] = starts
    ranges[:, 1] = starts + run_bytes
    return ranges if apart else _merged(ranges)


def share_byte(first: Ranges, second: Ranges) -> bool:
    """Whether two ascending lists of disjoint half-open ranges [n, 2] share a byte."""
    if not len(first) or not len(second):
        return False
    if first[-1, 1] <= second[0, 0] or second[-1, 1] <= first[0, 0]:
        return False
    if len(first) == 1 and len(second) == 1:
        return True
    if len(first) > len(second):
        first, second = second, first
    # For each range of `first`: the last range of `second` that starts before it ends must end before it starts.
    index = np.searchsorted(second[:, 0], first[:, 1], side="left") - 1
    return bool(np.any((index >= 0) & (second[np.maximum(index, 0), 1] > first[:, 0])))
