"""Heights no plan can go below.

Invariant: every bound is sound: a valid plan of the same items in the same pool is at
least as high. Four are taken together: bytes live at one point (less what allowed
overlaps can save there), the same with alignment padding, the highest fixed end, and,
for conflicts that are no intervals, the heaviest clique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from .model import Item, Model

CLIQUE_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Peak:
    """A proven least height in bytes, and the point that proves it (None: a clique or a fixed buffer does)."""

    bytes: int
    point: int | None
    members: tuple[int, ...] = ()  # items of the clique, when that is what proves it


def first_choice(model: Model) -> list[int]:
    """Every item in its first candidate pool: the least cost there is."""
    return [item.pools[0] for item in model.items]


def forced(model: Model) -> list[int]:
    """The pool of items that have only one candidate, -1 for the others."""
    return [item.pools[0] if len(item.pools) == 1 else -1 for item in model.items]


def load_peak(model: Model, pool: int, pools: Sequence[int] | None = None) -> Peak:
    """The best bound for `pool` when `pools[i]` holds item i (-1: elsewhere); by default everyone's first choice."""
    usual = first_choice(model)
    if pools is None or pools == usual:
        if pool not in model.peaks:
            model.peaks[pool] = _load_peak(model, pool, usual)
        known = model.peaks[pool]
        assert isinstance(known, Peak)
        return known
    return _load_peak(model, pool, pools)


def _load_peak(model: Model, pool: int, pools: Sequence[int]) -> Peak:
    inside = [item for item in model.items if pools[item.index] == pool and item.size]
    best = _live_peak(model, inside)
    top = max(
        (item.fixed + item.size for item in model.items if item.fixed is not None and pools[item.index] == pool),
        default=0,
    )
    if top > best.bytes:
        best = Peak(top, None)
    if model.extra and any(item.index in model.extra for item in inside):
        weight, clique = _clique(model, inside, best.bytes)
        if weight > best.bytes:
            best = Peak(weight, None, clique)
    return best


def _events(items: Sequence[Item]) -> list[tuple[int, int, int]]:
    """(point, 0 ends / 1 begins, item) in order of time."""
    events: list[tuple[int, int, int]] = []
    for item in items:
        for first, last in item.lifetimes:
            events.append((first, 1, item.index))
            events.append((last, 0, item.index))
    events.sort()
    return events


def _live_peak(model: Model, inside: Sequence[Item]) -> Peak:
    """Most bytes live at one point, padding and overlaps considered."""
    grain = 0
    for item in inside:
        grain = gcd(grain, gcd(item.modulus, item.residue))
    items = model.items
    special = model.special
    load = rounded = best = 0
    at: int | None = None
    live_special: set[int] = set()
    live: set[int] = set()
    events = _events(inside)
    slack = max((-item.size % grain for item in inside), default=0) if grain > 1 else 0
    pad = slack > 0
    pads: dict[int, int] = {}  # padding -> how many live items have it
    for position, (point, begins, index) in enumerate(events):
        size = items[index].size
        if begins:
            load += size
            if pad:
                rounded += size + -size % grain
                pads[-size % grain] = pads.get(-size % grain, 0) + 1
            live.add(index)
            if index in special:
                live_special.add(index)
        else:
            load -= size
            if pad:
                rounded -= size + -size % grain
                pads[-size % grain] -= 1
                if not pads[-size % grain]:
                    del pads[-size % grain]
            live.discard(index)
            live_special.discard(index)
        following = events[position + 1][0] if position + 1 < len(events) else None
        if following == point or (load <= best and rounded <= best):
            continue
        value = load
        if live_special:
            value = _special_live(model, live, live_special, point)
        elif pad and rounded > best:
            # the item on top needs no padding: at best the one with most of it
            value = max(load, rounded - max(pads))
        if value > best:
            best, at = value, point
    return Peak(best, at)


def _live_parts(item: Item, point: int) -> tuple[int, dict[str, int]]:
    """Bytes of the union of the item's parts live at `point`, and the names of those parts with their sizes."""
    spans: list[tuple[int, int]] = []
    names: dict[str, int] = {}
    for buffer, delta in item.parts:
        if buffer.size_bytes and any(life.first <= point < life.last for life in buffer.lifetimes):
            spans.append((delta, delta + buffer.size_bytes))
            names[buffer.name] = buffer.size_bytes
    total, reach = 0, -1
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, reach))
        reach = max(reach, stop)
    return total, names


def _most_shared(size_a: int, size_b: int, lowest: int | None, highest: int | None) -> int:
    """Most bytes a and b share when offset(b) - offset(a) is in `[lowest, highest]`."""
    # sharing is greatest for distances in [min(0, a-b), max(0, a-b)] and falls off on both sides
    low, high = min(0, size_a - size_b), max(0, size_a - size_b)
    distance = low
    if lowest is not None and lowest > high:
        distance = lowest
    elif highest is not None and highest < low:
        distance = highest
    elif lowest is not None and lowest > distance:
        distance = lowest
    return max(0, min(size_a, distance + size_b) - max(0, distance))


def _special_live(model: Model, live: set[int], special: set[int], point: int) -> int:
    """Least bytes the live items can cover: each counted by its live parts, less what overlaps may save."""
    total = sum(model.items[i].size for i in live if i not in special)
    covered: dict[int, int] = {}
    owner: dict[str, tuple[int, int]] = {}
    for i in special:
        covered[i], names = _live_parts(model.items[i], point)
        for name, size in names.items():
            owner[name] = (i, size)
    shared: dict[tuple[int, int], int] = {}
    for name, (i, size_a) in owner.items():
        for other in model.partners.get(name, ()):
            if other not in owner:
                continue
            j, size_b = owner[other]
            if i == j:
                continue
            most = max(_most_shared(size_a, size_b, o.lowest, o.highest) for o in model.allowed[name, other])
            pair = (min(i, j), max(i, j))
            shared[pair] = shared.get(pair, 0) + most
    saving: dict[int, dict[int, int]] = {}
    for (i, j), most in shared.items():
        most = min(most, covered[i], covered[j])
        if most:
            saving.setdefault(i, {})[j] = most
            saving.setdefault(j, {})[i] = most
    # |union| >= sum of sizes - sum of pairwise shares, for any subset: drop members that only cost
    kept = set(saving)
    while kept:
        worst = max(kept, key=lambda i: (sum(s for j, s in saving[i].items() if j in kept) - covered[i], i))
        if sum(s for j, s in saving[worst].items() if j in kept) <= covered[worst]:
            break
        kept.discard(worst)
    total += sum(size for i, size in covered.items() if i not in saving or i in kept)
    return total - sum(s for i in kept for j, s in saving[i].items() if j in kept and i < j)


def _clique(model: Model, inside: Sequence[Item], best: int) -> tuple[int, tuple[int, ...]]:
    """Heaviest set of items that pairwise may not share a byte, found by branch and bound within a node limit."""
    members = {item.index for item in inside}
    size = [item.size for item in model.items]
    full: dict[int, set[int]] = {}
    for i in members:
        full[i] = {
            j
            for j in model.neighbours[i]
            if j in members and (i not in model.special or model.zones(i, j) == ((-size[i], size[j]),))
        }
    # maximum cardinality search: on chordal graphs the earlier neighbours of each vertex are a clique
    weight = dict.fromkeys(members, 0)
    earlier: list[tuple[int, set[int]]] = []
    done: set[int] = set()
    while weight:
        v = max(weight, key=lambda i: (weight[i], size[i], -i))
        del weight[v]
        earlier.append((v, full[v] & done))
        done.add(v)
        for j in full[v]:
            if j in weight:
                weight[j] += 1
    clique: tuple[int, ...] = ()
    nodes = CLIQUE_NODES

    def grow(chosen: tuple[int, ...], value: int, among: set[int]) -> None:
        nonlocal best, clique, nodes
        if value > best:
            best, clique = value, chosen
        left = sum(size[i] for i in among)
        for v in sorted(among, key=lambda i: (-size[i], i)):
            nodes -= 1
            if value + left <= best or nodes <= 0:
                return
            grow((*chosen, v), value + size[v], among & full[v])
            among = among - {v}
            left -= size[v]

    for v, among in earlier:
        if size[v] + sum(size[i] for i in among) > best:
            grow((v,), size[v], among)
    return best, clique
