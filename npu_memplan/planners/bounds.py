"""Heights no plan can go below.

Invariant: every bound is sound: a valid plan of the same items in the same pool is at
least as high. Three are taken together: bytes live at one point, with the padding that
alignment forces between them (less what allowed overlaps can save there), the highest
fixed end, and, for conflicts that are no intervals, the heaviest clique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from .errors import OutOfTime
from .live_bytes import least_bytes, up
from .model import CHECK_EVERY, Item, Model, events

CLIQUE_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Peak:
    """A proven least height in bytes, and the point that proves it (None: a clique or a fixed buffer does)."""

    bytes: int
    point: int | None
    members: tuple[int, ...] = ()  # items of the clique, when that is what proves it


def forced(model: Model) -> list[int]:
    """The pool of items that have only one candidate, -1 for the others."""
    return [item.pools[0] if len(item.pools) == 1 else -1 for item in model.items]


def load_peak(model: Model, pool: int, pools: Sequence[int] | None = None) -> Peak:
    """The best bound for `pool` when `pools[i]` holds item i (-1: elsewhere); by default everyone's first choice."""
    if pools is None or tuple(pools) == model.usual:
        if pool not in model.peaks:
            model.peaks[pool] = _load_peak(model, pool, model.usual)
        known = model.peaks[pool]
        assert isinstance(known, Peak)
        return known
    return _load_peak(model, pool, pools)


def _load_peak(model: Model, pool: int, pools: Sequence[int]) -> Peak:
    inside = [item for item in model.items if pools[item.index] == pool and item.size]
    best = live_peak(model, inside)
    top = max(
        (item.fixed + item.size for item in model.items if item.fixed is not None and pools[item.index] == pool),
        default=0,
    )
    if top > best.bytes:
        best = Peak(top, None)
    if model.extra and any(item.index in model.extra for item in inside):
        try:
            weight, clique = _clique(model, inside, best.bytes)
        except OutOfTime:  # less than could be shown, no less true
            return max(best, Peak(max(item.size for item in inside), None), key=lambda peak: peak.bytes)
        if weight > best.bytes:
            best = Peak(weight, None, clique)
    return best


def grain_of(items: Iterable[Item]) -> int:
    """What divides every distance between two origins and every origin: bytes, at least 1."""
    grain = 0
    for item in items:
        grain = gcd(grain, item.modulus, item.residue)
    return max(grain, 1)


def live_peak(model: Model, inside: Sequence[Item]) -> Peak:
    """Most bytes live at one point, padding and overlaps considered."""
    grain = grain_of(inside)
    items = model.items
    special = model.special
    load = best = 0  # of whole blocks of `grain` bytes
    plain = work = 0  # bytes that are not special; looks at special items
    at: int | None = None
    live_special: set[int] = set()
    live: set[int] = set()
    pads: Counter[int] = Counter()  # padding -> how many live items have it
    ordered = events(inside)
    for position, (point, begins, index) in enumerate(ordered):
        size = items[index].size
        pad = -size % grain
        sign = 1 if begins else -1
        load += sign * (size + pad)
        if pad:
            pads[pad] += sign
        (live.add if begins else live.discard)(index)
        if index in special:
            (live_special.add if begins else live_special.discard)(index)
        else:
            plain += sign * size
        following = ordered[position + 1][0] if position + 1 < len(ordered) else None
        if following == point or load <= best:
            continue
        work += 20 * len(live_special)
        if live_special and work > CHECK_EVERY and model.late():
            value = plain  # less than could be shown, no less true
        elif live_special:
            value = max(least_bytes(model, live, live_special, point, g) for g in {1, grain})
        else:  # what is on top needs no padding: at best the one with most of it
            value = load - max((pad for pad, count in pads.items() if count), default=0)
        if value > best:
            best, at = value, point
    return Peak(best, at)


def _clique(model: Model, inside: Sequence[Item], best: int) -> tuple[int, tuple[int, ...]]:
    """Heaviest set of items that pairwise may not share a byte, found by branch and bound within a node limit."""
    grain = grain_of(inside)
    members = {item.index for item in inside}
    size = [up(item.size, grain) for item in model.items]
    full: dict[int, set[int]] = {}
    for i in members:
        model.look(10 * len(model.neighbours[i]))
        whole = -model.items[i].size
        full[i] = {
            j for j in model.neighbours[i] if j in members and model.zones(i, j) == ((whole, model.items[j].size),)
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
    most = best + max(-item.size % grain for item in inside)  # what a heavier clique surely exceeds, its top padded

    def grow(chosen: tuple[int, ...], value: int, among: set[int]) -> None:
        nonlocal most, clique, nodes
        if value > most:
            most, clique = value, chosen
        left = sum(size[i] for i in among)
        for v in sorted(among, key=lambda i: (-size[i], i)):
            nodes -= 1
            if value + left <= most or nodes <= 0 or (nodes % 100 == 0 and model.late()):
                return
            grow((*chosen, v), value + size[v], among & full[v])
            among = among - {v}
            left -= size[v]

    for v, among in earlier:
        if size[v] + sum(size[i] for i in among) > most:
            grow((v,), size[v], among)
    return most - max((-model.items[i].size % grain for i in clique), default=0) if clique else best, clique
