"""The search for anything, compiled: bounds of origins, and for each pair the distances that are left.

Invariant: `search` is complete: `INFEASIBLE` is a proof that no placement respects the given bounds and ranges.
A state is an interval of origins for every item and a range of distances for every pair; forbidden zones are
cut off the ends of the ranges, and both are narrowed until nothing moves. When the least origins break no zone they
are a placement; else a pair that is in each other's way is put below or above the zone it is in.

This module imports numba; nobody imports it before a cheap planner has missed the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .kernel_parts import chance

FOUND, INFEASIBLE, LIMIT = 1, 0, -1
FAR = 1 << 61  # no limit on a distance

# what the trail remembers
LEAST, MOST, LOWEST, HIGHEST = range(4)
# columns of a choice on the stack
PAIR, ZONE, SIDE, TRIED, TRAIL, ACTIVE = range(6)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _undo(until: int, trail: Any, least: Any, most: Any, lowest: Any, highest: Any) -> None:
    kinds, places, values, top = trail
    while top[0] > until:
        top[0] -= 1
        k = top[0]
        if kinds[k] == LEAST:
            least[places[k]] = values[k]
        elif kinds[k] == MOST:
            most[places[k]] = values[k]
        elif kinds[k] == LOWEST:
            lowest[places[k]] = values[k]
        else:
            highest[places[k]] = values[k]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _record(trail: Any, kind: int, place: int, value: int) -> None:
    kinds, places, values, top = trail
    k = top[0]
    kinds[k], places[k], values[k] = kind, place, value
    top[0] = k + 1


@njit(cache=True)  # type: ignore[untyped-decorator]
def _narrow(graph: Any, state: Any, trail: Any, queue: Any, queued: Any, waiting: int) -> int:
    """Narrow all bounds until nothing moves; -1, or the pair that has no distance left."""
    first, second, zone_at, zone_low, zone_high, near_at, near, modulus, residue = graph
    least, most, lowest, highest = state
    room = trail[0].shape[0] - 8
    head = 0
    count = queue.shape[0]
    failed = -1
    while waiting > 0:
        i = queue[head]
        head = head + 1 if head + 1 < count else 0
        waiting -= 1
        queued[i] = False
        if failed >= 0:
            continue
        for q in range(near_at[i], near_at[i + 1]):
            p = near[q]
            a, b = first[p], second[p]
            low = max(lowest[p], least[a] - most[b])
            high = min(highest[p], most[a] - least[b])
            for z in range(zone_at[p], zone_at[p + 1]):
                if zone_low[z] < low < zone_high[z]:
                    low = zone_high[z]
            for z in range(zone_at[p + 1] - 1, zone_at[p] - 1, -1):
                if zone_low[z] < high < zone_high[z]:
                    high = zone_low[z]
            if low > high or trail[3][0] > room:
                failed = p
                break
            for side in range(2):
                j = a if side == 0 else b
                new_least = least[b] + low if side == 0 else least[a] - high
                new_most = most[b] + high if side == 0 else most[a] - low
                new_least += (residue[j] - new_least) % modulus[j]
                new_most -= (new_most - residue[j]) % modulus[j]
                moved = False
                if new_least > least[j]:
                    _record(trail, LEAST, j, least[j])
                    least[j] = new_least
                    moved = True
                if new_most < most[j]:
                    _record(trail, MOST, j, most[j])
                    most[j] = new_most
                    moved = True
                if moved:
                    if least[j] > most[j]:
                        failed = p
                        break
                    if not queued[j]:
                        queued[j] = True
                        tail = head + waiting
                        queue[tail if tail < count else tail - count] = j
                        waiting += 1
            if failed >= 0:
                break
    return failed


@njit(cache=True)  # type: ignore[untyped-decorator]
def search(
    graph: Any,  # first, second: int64[m], zone_at: int64[m + 1], zone_low, zone_high, near_at, near, modulus, residue
    least: Any,  # int64[n]: the least origin of every item; the answer when FOUND
    most: Any,  # int64[n]
    lowest: Any,  # int64[m]: the least distance of every pair, -FAR for none
    highest: Any,  # int64[m]
    undecided: Any,  # int64[k]: pairs that the given ranges do not keep apart; reordered
    likely: Any,  # int64[n]: origins whose order is tried first
    trust: float,  # probability of doing so
    nodes: int,  # choices allowed
    weight: Any,  # float64[m]: how often a pair failed; kept between calls
    chances: Any,  # uint64[1]: random numbers
    trail: Any,  # int8[k], int64[k], int64[k], int64[1]
    spent: Any,  # int64[1]: choices made, added to
) -> int:
    """FOUND (`least` is a placement), INFEASIBLE (proven) or LIMIT (nodes spent)."""
    first, second, zone_at, zone_low, zone_high = graph[0], graph[1], graph[2], graph[3], graph[4]
    count, pairs = least.shape[0], first.shape[0]
    state = (least, most, lowest, highest)
    queue = np.zeros(count, np.int64)
    queued = np.ones(count, np.bool_)
    for i in range(count):
        queue[i] = i
    waiting = count
    trail[3][0] = 0
    room = trail[0].shape[0] - 8
    frame = np.zeros((pairs + 1, 6), np.int64)
    depth = 0
    left = nodes
    active = undecided.shape[0]
    while True:
        failed = _narrow(graph, state, trail, queue, queued, waiting)
        chosen = -1
        if failed < 0:
            best = 1e300
            k = 0
            while k < active:
                p = undecided[k]
                a, b = first[p], second[p]
                distance = least[a] - least[b]
                low = max(lowest[p], distance + least[b] - most[b])
                high = min(highest[p], distance + most[a] - least[a])
                apart = True
                for z in range(zone_at[p], zone_at[p + 1]):
                    if zone_low[z] < high and low < zone_high[z]:
                        apart = False
                        if zone_low[z] < distance < zone_high[z]:
                            below, above = float(zone_low[z] - low), float(high - zone_high[z])
                            tight, wide = min(below, above), max(below, above)
                            key = -1.0 if tight < 0.0 else (tight + 0.25 * wide + 1.0) / weight[p]
                            if key < best:
                                best, chosen = key, p
                                frame[depth, ZONE] = z
                if apart:  # whatever is decided from here on; swapped back when the choice is taken back
                    active -= 1
                    undecided[k], undecided[active] = undecided[active], p
                else:
                    k += 1
            if chosen < 0:
                spent[0] += nodes - left
                return FOUND
            if left <= 0 or trail[3][0] > room or depth == pairs:
                spent[0] += nodes - left
                _undo(0, trail, least, most, lowest, highest)
                return LIMIT
            z = frame[depth, ZONE]
            a, b = first[chosen], second[chosen]
            room_below = zone_low[z] - max(lowest[chosen], least[a] - most[b])
            room_above = min(highest[chosen], most[a] - least[b]) - zone_high[z]
            if chance(chances) < trust:
                side = 1 if 2 * (likely[a] - likely[b]) > zone_low[z] + zone_high[z] else 0
            elif room_below == room_above:
                side = 1 if chance(chances) < 0.5 else 0
            else:
                side = 1 if room_above > room_below else 0
            frame[depth, PAIR], frame[depth, SIDE] = chosen, side
            frame[depth, TRIED], frame[depth, TRAIL], frame[depth, ACTIVE] = 0, trail[3][0], active
            depth += 1
        else:
            weight[failed] += 1.0
            if trail[3][0] > room:
                spent[0] += nodes - left
                _undo(0, trail, least, most, lowest, highest)
                return LIMIT
        while depth > 0:
            _undo(frame[depth - 1, TRAIL], trail, least, most, lowest, highest)
            active = frame[depth - 1, ACTIVE]
            if frame[depth - 1, TRIED] < 2:
                break
            depth -= 1
        if depth == 0:
            spent[0] += nodes - left
            return INFEASIBLE
        top = depth - 1
        p, z = frame[top, PAIR], frame[top, ZONE]
        side = frame[top, SIDE] if frame[top, TRIED] == 0 else 1 - frame[top, SIDE]
        frame[top, TRIED] += 1
        left -= 1
        if side == 1:
            _record(trail, LOWEST, p, lowest[p])
            lowest[p] = zone_high[z]
        else:
            _record(trail, HIGHEST, p, highest[p])
            highest[p] = zone_low[z]
        queue[0], waiting = first[p], 1
        queued[first[p]] = True


@njit(cache=True)  # type: ignore[untyped-decorator]
def kept_ranges(graph: Any, origins: Any, is_free: Any, lowest: Any, highest: Any) -> None:
    """For pairs of items that are not free: the range of distances between zones that `origins` lie in."""
    first, second, zone_at, zone_low, zone_high = graph[0], graph[1], graph[2], graph[3], graph[4]
    for p in range(first.shape[0]):
        lowest[p], highest[p] = -FAR, FAR
        if is_free[first[p]] or is_free[second[p]]:
            continue
        distance = origins[first[p]] - origins[second[p]]
        for z in range(zone_at[p], zone_at[p + 1]):
            if zone_high[z] <= distance:
                lowest[p] = max(lowest[p], zone_high[z])
            elif distance <= zone_low[z]:
                highest[p] = min(highest[p], zone_low[z])
