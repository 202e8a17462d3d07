"""Local search under a ceiling, compiled: place what is left out, and leave out what is then in its way.

Invariant: the placed items form a partial order (who lies below whom); `low` is the least offset that it leaves each
of them, `high` the greatest one under the ceiling, and `low <= high`. So `low` is a valid placement, and item b can go
to offset y if every placed item that it conflicts with can end by y or can begin at y + size of b; those that can do
neither are *ejected*.

Of the offsets on which b would rest, one with the least sum of penalties of what it ejects is taken. An item that found
no free place becomes dearer: what is hard to place stays, what is easy makes way. The answer is a placement of
all items, or none within the budget; it is never a proof.

This module imports numba; nobody imports it before a cheap planner has missed the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .kernel_parts import chance, grown

FADE_EVERY, FADE = 100, 50  # every so many choices, what was learned fades by 1/50
_NEVER = 1 << 62


@njit(cache=True)  # type: ignore[untyped-decorator]
def conflicts(cover_at: Any, cover: Any, member_at: Any, member: Any) -> tuple[Any, Any]:
    """`near_at` and `near` of the items of sections: as `cover_at` and `cover`, but items that share a section."""
    count = cover_at.shape[0] - 1
    near_at, near = np.zeros(count + 1, np.uint32), np.zeros(count, np.uint32)
    seen = np.full(count, -1, np.int64)
    found = 0
    for b in range(count):
        seen[b] = b
        while found + count > near.shape[0]:
            near = grown(near)
        for q in range(cover_at[b], cover_at[b + 1]):
            for k in range(member_at[cover[q]], member_at[cover[q] + 1]):
                c = member[k]
                if seen[c] != b:
                    seen[c] = b
                    near[found] = c
                    found += 1
        near_at[b + 1] = found
    return near_at, near[:found]


@njit(cache=True)  # type: ignore[untyped-decorator]
def eject(
    size: Any,  # int64[n], bytes
    align: Any,  # int64[n], bytes
    cover_at: Any,  # uint32[n + 1]: entries of item b are cover_at[b]:cover_at[b + 1], one a section
    cover: Any,  # uint32[e]: the section of an entry
    near_at: Any,  # uint32[n + 1]: item b conflicts with near[near_at[b]:near_at[b + 1]]
    near: Any,
    value: Any,  # int64[n], at least 1: penalty for leaving the item out, before anything is learned
    penalty: Any,  # int64[n]: the same, learned; kept between calls
    ceiling: int,  # bytes
    choices: int,  # items that may be placed
    state: Any,  # uint64[1]: random numbers
    low: Any,  # int64[n]: offsets of a placement, -1 for what is left out; at the end those of the last one
) -> int:
    """Choices left (0 or more) when all items lie under the ceiling, -1 when the choices were not enough."""
    count, entries = size.shape[0], cover.shape[0]
    # item `count`, with the entry `entries`, is nobody: below the lowest, above the highest
    top, high = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)  # least end, greatest offset
    high[count] = ceiling
    owner = np.full(entries + 1, count, np.uint32)
    for b in range(count):
        owner[cover_at[b] : cover_at[b + 1]] = b
    below, above = np.full(entries + 1, entries, np.uint32), np.full(entries + 1, entries, np.uint32)
    bottom = np.full(cover.max() + 1, entries, np.int64)  # lowest entry of each section
    links = (cover_at, cover, owner, below, above, bottom)
    rises, sinks = np.zeros(count + 1, np.bool_), np.zeros(count + 1, np.bool_)  # whose low, whose high may change
    out, outs = np.zeros(count, np.int64), 0
    mark = np.zeros(count, np.int64)
    rising, placed = np.zeros(count, np.uint32), 0  # placed items by `top`: who is below comes first
    for b in np.argsort(low + size):
        if low[b] < 0:
            out[outs] = b
            outs += 1
            continue
        rising[placed] = b
        placed += 1
        _link(b, low[b], links, top)
        top[b] = low[b] + size[b]
    ends, begins = np.zeros(count, np.uint32), np.zeros(count, np.uint32)  # of those, what b conflicts with
    latest = rising.copy()  # placed items by `high`
    # what has no place under this ceiling is left out, from the top down
    for i in range(placed - 1, -1, -1):
        b = rising[i]
        high[b] = _highest(b, size, align, links, high)
        if high[b] < low[b]:
            low[b] = -1
            _unlink(b, links, rises, sinks)
            out[outs] = b
            outs += 1
    _settle(placed, size, align, links, rising, rises, sinks, low, top, high)
    _sort(latest, placed, low, high)
    placed = _sort(rising, placed, low, top)
    for step in range(1, choices + 1):
        if outs == 0:
            return choices - step + 1
        if step % FADE_EVERY == 0:
            for b in range(count):
                penalty[b] -= (penalty[b] - value[b]) // FADE
        # -- one of those left out, to where it does least harm ------------
        i = int(chance(state) * outs)
        b = out[i]
        outs -= 1
        out[i] = out[outs]
        for k in range(near_at[b], near_at[b + 1]):
            mark[near[k]] = step
        met = other = 0
        for i in range(placed):
            ends[met], begins[other] = rising[i], latest[i]
            met += mark[rising[i]] == step
            other += mark[latest[i]] == step
        best, at, ties = np.int64(_NEVER), np.int64(-1), 0
        cost, y = np.int64(0), np.int64(0)
        i = j = 0
        while y + size[b] <= ceiling:
            while j < met and high[begins[j]] < y + size[b]:
                c = begins[j]  # can no longer begin above b
                cost += penalty[c] if high[c] - size[b] + 1 < top[c] else 0
                j += 1
            while i < met and top[ends[i]] <= y:
                c = ends[i]  # can end below b
                cost -= penalty[c] if high[c] - size[b] + 1 < top[c] else 0
                i += 1
            if cost < best:
                best, at, ties = cost, y, 1
            elif cost == best:
                ties += 1
                if chance(state) * ties < 1.0:
                    at = y
            if i == met:
                break
            y = top[ends[i]]
            if align[b] > 1:
                y = (y + align[b] - 1) // align[b] * align[b]
        if at < 0:
            return -1  # higher than the ceiling
        # -- leave out what is in its way, and place it --------------------
        if best > 0:
            penalty[b] += value[b]
            for k in range(near_at[b], near_at[b + 1]):
                c = near[k]
                if low[c] >= 0 and top[c] > at and high[c] < at + size[b]:
                    low[c] = -1
                    _unlink(c, links, rises, sinks)
                    out[outs] = c
                    outs += 1
        i = placed
        while i > 0 and top[rising[i - 1]] > at:
            rising[i] = rising[i - 1]
            i -= 1
        rising[i], latest[placed] = b, b
        placed += 1
        _link(b, at, links, top)
        low[b], top[b], high[b] = at, -1, -1  # to be settled
        rises[b] = sinks[b] = True
        _settle(placed, size, align, links, rising, rises, sinks, low, top, high)
        _sort(latest, placed, low, high)
        placed = _sort(rising, placed, low, top)
    return 0 if outs == 0 else -1


@njit(cache=True)  # type: ignore[untyped-decorator]
def _link(b: int, at: int, links: Any, top: Any) -> None:
    """Put item b above all that end by `at`, in each of its sections."""
    cover_at, cover, owner, below, above, bottom = links
    nobody = cover.shape[0]
    under = nobody
    for q in range(cover_at[b], cover_at[b + 1]):
        s = cover[q]
        over = bottom[s]
        if under + 1 < nobody and owner[under + 1] == owner[under] and cover[under + 1] == s:
            under += 1  # what lies below in the section before mostly does here
            over = above[under]
        else:
            under = nobody
        while over != nobody and top[owner[over]] <= at:
            under, over = over, above[over]
        below[q], above[q] = under, over
        if under == nobody:
            bottom[s] = q
        else:
            above[under] = q
        if over != nobody:
            below[over] = q


@njit(cache=True)  # type: ignore[untyped-decorator]
def _unlink(b: int, links: Any, rises: Any, sinks: Any) -> None:
    """Take item b out of its sections; those next to it may move."""
    cover_at, cover, owner, below, above, bottom = links
    nobody = cover.shape[0]
    for q in range(cover_at[b], cover_at[b + 1]):
        under, over = below[q], above[q]
        if under == nobody:
            bottom[cover[q]] = over
        else:
            above[under] = over
        if over != nobody:
            below[over] = under
        rises[owner[over]] = sinks[owner[under]] = True


@njit(cache=True)  # type: ignore[untyped-decorator]
def _highest(b: int, size: Any, align: Any, links: Any, high: Any) -> int:
    """Greatest offset of item b below what is above it."""
    cover_at, _, owner, _, above, _ = links
    roof = np.int64(_NEVER)
    for q in range(cover_at[b], cover_at[b + 1]):
        roof = min(roof, high[owner[above[q]]])
    at: int = roof - size[b]
    return at if align[b] == 1 else at // align[b] * align[b]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _settle(
    placed: int,
    size: Any,
    align: Any,
    links: Any,
    rising: Any,
    rises: Any,
    sinks: Any,
    low: Any,
    top: Any,
    high: Any,
) -> None:
    """Least and greatest offsets of all that may move, and of those next to what moved."""
    cover_at, _, owner, below, above, _ = links
    for i in range(placed):
        b = rising[i]
        if rises[b] and low[b] >= 0:
            floor = np.int64(0)
            for q in range(cover_at[b], cover_at[b + 1]):
                floor = max(floor, top[owner[below[q]]])
            low[b] = floor if align[b] == 1 else (floor + align[b] - 1) // align[b] * align[b]
            if low[b] + size[b] != top[b]:
                top[b] = low[b] + size[b]
                for q in range(cover_at[b], cover_at[b + 1]):
                    rises[owner[above[q]]] = True
        rises[b] = False
    for i in range(placed - 1, -1, -1):
        b = rising[i]
        if sinks[b] and low[b] >= 0:
            at = _highest(b, size, align, links, high)
            if at != high[b]:
                high[b] = at
                for q in range(cover_at[b], cover_at[b + 1]):
                    sinks[owner[below[q]]] = True
        sinks[b] = False


@njit(cache=True)  # type: ignore[untyped-decorator]
def _sort(order: Any, count: int, low: Any, key: Any) -> int:
    """Sort the first `count` of `order` by `key` (they nearly are), without what is left out; how many stay."""
    kept = 0
    for i in range(count):
        b = order[i]
        if low[b] < 0:
            continue
        j = kept
        while j > 0 and key[order[j - 1]] > key[b]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = b
        kept += 1
    return kept
