"""Compiled placement of very many buffers, never building the list of conflicting pairs.

Invariant: every function returns valid offsets for items with one interval of time each;
`first` and `last` are ranks of points. This module imports numba; nobody imports it for
small problems.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)  # type: ignore[untyped-decorator]
def stack(order: Any, first: Any, last: Any, size: Any, align: Any, points: int, offset: Any) -> int:
    """Put items, in `order`, on top of the highest item already there in their time; returns the height.

    O(n log points): a tree over time holds the height of every range. No holes are filled.
    """
    width = 1
    while width < points:
        width *= 2
    top = np.zeros(2 * width, np.int64)  # highest within the node's range
    whole = np.zeros(2 * width, np.int64)  # height that all of the range was raised to
    height = np.int64(0)
    for i in order:
        left, right = first[i] + width, last[i] + width
        at = np.int64(0)
        a, b = left, right
        while a < b:
            if a & 1:
                at = max(at, top[a])
                a += 1
            if b & 1:
                b -= 1
                at = max(at, top[b])
            a >>= 1
            b >>= 1
        x, y = left >> 1, (right - 1) >> 1
        while x > 0:
            at = max(at, whole[x], whole[y])
            x >>= 1
            y >>= 1
        m = align[i]
        if m > 1:
            at = (at + m - 1) // m * m
        offset[i] = at
        end = at + size[i]
        height = max(height, end)
        a, b = left, right
        while a < b:
            if a & 1:
                top[a] = max(top[a], end)
                whole[a] = max(whole[a], end)
                a += 1
            if b & 1:
                b -= 1
                top[b] = max(top[b], end)
                whole[b] = max(whole[b], end)
            a >>= 1
            b >>= 1
        x, y = left >> 1, (right - 1) >> 1
        while x > 0:
            top[x] = max(top[2 * x], top[2 * x + 1], whole[x])
            top[y] = max(top[2 * y], top[2 * y + 1], whole[y])
            x >>= 1
            y >>= 1
    return int(height)


@njit(cache=True)  # type: ignore[untyped-decorator]
def count_earlier(first: Any, last: Any, limit: int) -> int:
    """Pairs that meet, counted over items sorted by `first`; stops above `limit`."""
    n = first.shape[0]
    ends = np.sort(last)
    total = 0
    ended = 0
    for i in range(n):
        while ended < n and ends[ended] <= first[i]:
            ended += 1
        total += i - ended
        if total > limit:
            return int(total)
    return int(total)


@njit(cache=True)  # type: ignore[untyped-decorator]
def list_earlier(first: Any, last: Any, total: int) -> Any:
    """(starts, items): for each item those begun earlier that still live when it begins. Items sorted by `first`."""
    n = first.shape[0]
    starts = np.zeros(n + 1, np.int64)
    found = np.zeros(total, np.int32)
    live = np.zeros(n, np.int32)
    lives = 0
    k = 0
    for i in range(n):
        kept = 0
        for j in range(lives):
            if last[live[j]] > first[i]:
                live[kept] = live[j]
                kept += 1
        lives = kept
        for j in range(lives):
            found[k] = live[j]
            k += 1
        starts[i + 1] = k
        live[lives] = i
        lives += 1
    return starts, found


_FEW = 48  # up to here sorting by insertion is faster


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sort_by_low(lows: Any, highs: Any, k: int) -> None:
    """The first `k` ranges in order of their start, in place."""
    if k > _FEW:
        by_low = np.argsort(lows[:k])
        lows[:k] = lows[:k][by_low]
        highs[:k] = highs[:k][by_low]
        return
    for q in range(1, k):
        low, high = lows[q], highs[q]
        hole = q
        while hole > 0 and lows[hole - 1] > low:
            lows[hole], highs[hole] = lows[hole - 1], highs[hole - 1]
            hole -= 1
        lows[hole], highs[hole] = low, high


@njit(cache=True)  # type: ignore[untyped-decorator]
def first_fit_sparse(
    order: Any, first: Any, last: Any, size: Any, align: Any, starts: Any, earlier: Any, preset: Any, offset: Any
) -> int:
    """First fit with the lists of `list_earlier`, around items that have a `preset` offset >= 0; the height."""
    n = first.shape[0]
    for i in range(n):
        offset[i] = preset[i]
    lows = np.zeros(1024, np.int64)
    highs = np.zeros(1024, np.int64)
    height = np.int64(0)
    for i in order:
        if preset[i] >= 0:
            height = max(height, preset[i] + size[i])
            continue
        k = 0
        later = i + 1
        while later < n and first[later] < last[i]:
            later += 1
        room = starts[i + 1] - starts[i] + later - i
        if room > lows.shape[0]:
            lows, highs = np.zeros(2 * room, np.int64), np.zeros(2 * room, np.int64)
        for q in range(starts[i], starts[i + 1]):
            j = earlier[q]
            if offset[j] >= 0:
                lows[k], highs[k] = offset[j], offset[j] + size[j]
                k += 1
        for j in range(i + 1, later):
            if offset[j] >= 0:
                lows[k], highs[k] = offset[j], offset[j] + size[j]
                k += 1
        at = np.int64(0)
        m = align[i]
        _sort_by_low(lows, highs, k)
        for q in range(k):
            if lows[q] >= at + size[i]:
                break
            if highs[q] > at:
                at = highs[q] if m == 1 else (highs[q] + m - 1) // m * m
        offset[i] = at
        height = max(height, at + size[i])
    return int(height)


_BLOCK = 128


@njit(cache=True)  # type: ignore[untyped-decorator]
def first_fit_scan(
    order: Any, first: Any, last: Any, size: Any, align: Any, preset: Any, offset: Any, steps: int
) -> int:
    """First fit by scanning what is placed in order of offset; the height, or -1 past `steps`.

    Items with a `preset` offset >= 0 must come first in `order` and keep it. Placed items stand in
    linked blocks, so that putting one in moves few others, and blocks that are of another time are
    skipped whole.
    """
    n = first.shape[0]
    blocks = 4 * (n // _BLOCK + 2)
    lows, highs = np.zeros((blocks, _BLOCK), np.int64), np.zeros((blocks, _BLOCK), np.int64)
    begins, ends = np.zeros((blocks, _BLOCK), np.int32), np.zeros((blocks, _BLOCK), np.int32)
    count = np.zeros(blocks, np.int64)
    following = np.full(blocks, -1, np.int64)
    earliest, latest = np.full(blocks, n + n, np.int64), np.full(blocks, -1, np.int64)
    used = 1
    height = np.int64(0)
    left = steps
    for i in order:
        at = max(preset[i], np.int64(0))
        m, s, a, b = align[i], size[i], first[i], last[i]
        block = np.int64(0) if preset[i] < 0 else np.int64(-1)
        while block >= 0:
            c = count[block]
            if c > 0 and lows[block, 0] >= at + s:
                break
            left -= 1
            if earliest[block] < b and a < latest[block]:
                left -= c
                for k in range(c):
                    if begins[block, k] < b and a < ends[block, k] and highs[block, k] > at:
                        if lows[block, k] >= at + s:
                            break
                        at = highs[block, k] if m == 1 else (highs[block, k] + m - 1) // m * m
            block = following[block]
        offset[i] = at
        height = max(height, at + s)
        if left < 0:
            return -1
        block = 0
        while following[block] >= 0 and lows[following[block], 0] < at:
            block = following[block]
        c = count[block]
        if c == _BLOCK:
            half = _BLOCK // 2
            new = used
            used += 1
            following[new], following[block] = following[block], new
            lows[new, :half], highs[new, :half] = lows[block, half:], highs[block, half:]
            begins[new, :half], ends[new, :half] = begins[block, half:], ends[block, half:]
            count[new], count[block] = half, half
            for x in (block, new):
                earliest[x], latest[x] = begins[x, :half].min(), ends[x, :half].max()
            if lows[new, 0] < at:
                block = new
            c = half
        k = c
        while k > 0 and lows[block, k - 1] > at:
            lows[block, k], highs[block, k] = lows[block, k - 1], highs[block, k - 1]
            begins[block, k], ends[block, k] = begins[block, k - 1], ends[block, k - 1]
            k -= 1
        lows[block, k], highs[block, k], begins[block, k], ends[block, k] = at, at + s, a, b
        count[block] += 1
        earliest[block], latest[block] = min(earliest[block], a), max(latest[block], b)
    return int(height)
