"""Heights no plan can go below, and a given layout with what they prove of it.

Invariant: every bound is sound: a valid plan of the same items in the same pool is at least as high. Three are taken
together: bytes live at one point, with the padding that alignment forces between them (less what allowed overlaps can
save there), the highest fixed end, and, for conflicts that are no intervals, the heaviest clique. All origins are
multiples of the grain, so live bytes map to blocks of that size by rounding up, which keeps what is disjoint disjoint:
a part at `[start, stop)` of its item takes the blocks from `align_up(start)` to `align_up(stop)`. What no two parts
share must fit below the top, and only the part on top may leave its last block incomplete. A given layout is not moved,
and over several pools it is never said to be optimal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from ..problem import Buffer, Plan, PlanStatus, PoolUsage, Problem, used_bytes
from .model import CHECK_EVERY, Item, Model, OutOfTime, events


def align_up(at: int, grain: int) -> int:
    """The least multiple of `grain` not below `at`."""
    return at + -at % grain


class _LivePartSweep:
    """The live parts of one item at ascending points: a look costs what changed, not all parts of the item."""

    def __init__(self, item: Item) -> None:
        self._live: dict[int, tuple[Buffer, int]] = {}
        self._parts = item.parts
        lives = [(life.first, life.last, n) for n, (b, _) in enumerate(item.parts) for life in b.lifetimes]
        self._begins = sorted(lives)
        self._ends = sorted((last, n) for _, last, n in lives)
        self._begun = self._ended = 0

    def live_parts(self, point: int) -> list[tuple[Buffer, int]]:
        """The parts that live at `point`, which is not below that of an earlier call."""
        while self._ended < len(self._ends) and self._ends[self._ended][0] <= point:
            self._live.pop(self._ends[self._ended][1], None)
            self._ended += 1
        while self._begun < len(self._begins) and self._begins[self._begun][0] <= point:
            _, last, number = self._begins[self._begun]
            if point < last:
                self._live[number] = self._parts[number]
            self._begun += 1
        return [self._live[number] for number in sorted(self._live)]


class _Live:
    """The live parts of one item, in blocks."""

    def __init__(self, parts: Iterable[tuple[Buffer, int]], grain: int) -> None:
        self.starts: dict[str, int] = {}  # name of a live buffer -> bytes from the origin to its first block
        self.sizes: dict[str, int] = {}  # and bytes of its blocks
        self.inner: dict[str, int] = {}  # and true bytes from the origin
        self.pad = 0
        spans = []
        for buffer, delta in parts:
            if buffer.size_bytes:
                start, end = delta, delta + buffer.size_bytes
                self.pad = max(self.pad, -end % grain)
                self.inner[buffer.name] = delta
                self.starts[buffer.name] = align_up(start, grain)
                self.sizes[buffer.name] = align_up(end, grain) - align_up(start, grain)
                spans.append((align_up(start, grain), align_up(end, grain)))
        self.bytes, reach = 0, -1
        for start, end in sorted(spans):
            self.bytes += max(0, end - max(start, reach))
            reach = max(reach, end)


def _live_blocks(model: Model, index: int, parts: Sequence[tuple[Buffer, int]], grain: int) -> _Live:
    """The live parts of an item; one with a single part has the same ones at all points of its life."""
    if len(model.items[index].parts) > 1:
        return _Live(parts, grain)
    key = (index, grain)
    if key not in model.whole:
        model.whole[key] = _Live(parts, grain)
    known = model.whole[key]
    assert isinstance(known, _Live)
    return known


def most_shared(size_a: int, size_b: int, lowest: int | None, highest: int | None) -> int:
    """Most bytes a and b share when offset(b) - offset(a) is in `[lowest, highest]`."""
    if lowest is not None and highest is not None and lowest > highest:
        return 0
    # sharing is greatest for distances in [min(0, a-b), max(0, a-b)] and falls off on both sides
    distance = min(0, size_a - size_b)
    distance = distance if lowest is None else max(distance, lowest)
    distance = distance if highest is None else min(distance, highest)
    return max(0, min(size_a, distance + size_b) - max(0, distance))


def _pair_shares(a: _Live, b: _Live, first: str, second: str, model: Model, grain: int) -> int:
    """Most bytes of blocks that an allowed overlap lets buffers `first` of a and `second` of b share."""
    most = 0
    # distances of the items' origins are multiples of the grain
    inner = b.inner[second] - a.inner[first]
    blocks = b.starts[second] - a.starts[first]
    for overlap in model.allowed[first, second]:
        lowest = None if overlap.lowest is None else align_up(overlap.lowest - inner, grain) + blocks
        highest = None if overlap.highest is None else -align_up(inner - overlap.highest, grain) + blocks
        most = max(most, most_shared(a.sizes[first], b.sizes[second], lowest, highest))
    return most


def least_bytes(
    model: Model, plain_items: set[int], special: Mapping[int, Sequence[tuple[Buffer, int]]], grain: int
) -> int:
    """Least height in bytes of items at one point: of `plain_items`, and of the live parts of the items in `special`,
    which have aliases or allowed overlaps.

    `grain` divides every item's modulus and residue. What overlaps may save is taken off.
    """
    plain = [model.items[i].size for i in plain_items]
    found = {i: _live_blocks(model, i, parts, grain) for i, parts in special.items()}
    total = sum(align_up(size, grain) for size in plain)
    most_pad = max([-size % grain for size in plain] + [f.pad for f in found.values()], default=0)
    covered = {i: f.bytes for i, f in found.items()}
    owner = {name: i for i, f in found.items() for name in f.sizes}
    shared: dict[tuple[int, int], int] = {}
    for name, i in owner.items():
        for other in model.partners.get(name, ()):
            j = owner.get(other, i)
            if i != j:
                most = _pair_shares(found[i], found[j], name, other, model, grain)
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
    total += sum(bytes_ for i, bytes_ in covered.items() if i not in saving or i in kept)
    total -= sum(s for i in kept for j, s in saving[i].items() if j in kept and i < j)
    return total - most_pad


CLIQUE_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Peak:
    """A proven least height in bytes, and the point that proves it (None: a clique or a fixed buffer does)."""

    bytes: int
    point: int | None
    members: tuple[int, ...] = ()  # items of the clique, when that is what proves it


def forced_pools(model: Model) -> list[int]:
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
    """A divisor of every distance between two origins and of every origin: bytes, at least 1."""
    grain = 0
    for item in items:
        grain = gcd(grain, item.modulus, item.residue)
    return max(grain, 1)


def live_peak(model: Model, inside: Sequence[Item]) -> Peak:
    """Most bytes live at one point, padding and overlaps considered."""
    peaks = [Peak(0, None)]
    known = _fullest_bytes(model, inside) if model.special else 0  # spares overlaps at points with fewer bytes
    above = _values_above(model, inside, lambda: max(peaks[-1].bytes, known - 1))
    peaks.extend(Peak(value, point) for point, value in above)
    return peaks[-1]


def _fullest_bytes(model: Model, inside: Sequence[Item]) -> int:
    """Bytes that are live at the point where they are most before overlaps are considered."""
    grain = grain_of(inside)
    load = most = fullest = 0
    for point, begins, index in events(inside):
        size = align_up(model.items[index].size, grain)
        load += size if begins else -size
        if load > most:
            most, fullest = load, point
    live = [item for item in inside if any(first <= fullest < last for first, last in item.lifetimes)]
    special = {item.index for item in live} & model.special
    parts = {i: [part for part in model.items[i].parts if part[0].lives_at(fullest)] for i in special}
    plain = {item.index for item in live} - special
    return max(least_bytes(model, plain, parts, g) for g in {1, grain})


def points_above(model: Model, pool: int, size_bytes: int) -> set[int]:
    """Points at which the items of `pool` that are live need more than `size_bytes`."""
    inside = [item for item in model.items if model.usual[item.index] == pool and item.size]
    return {point for point, _ in _values_above(model, inside, lambda: size_bytes)}


def _values_above(model: Model, inside: Sequence[Item], least: Callable[[], int]) -> Iterator[tuple[int, int]]:
    """Points, and the bytes that are live there, where these are more than `least` then says."""
    grain = grain_of(inside)
    items = model.items
    special = model.special
    load = 0  # of whole blocks of `grain` bytes
    plain = work = 0  # bytes that are not special; looks at special items
    live_special: set[int] = set()
    live: set[int] = set()
    sweeps = {item.index: _LivePartSweep(item) for item in inside if item.index in special}
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
        if following == point or load <= least():
            continue
        work += 20 * len(live_special)
        if live_special and work > CHECK_EVERY and model.late():
            value = plain  # less than could be shown, no less true
        elif live_special:
            parts = {i: sweeps[i].live_parts(point) for i in live_special}
            value = max(least_bytes(model, live - live_special, parts, g) for g in {1, grain})
        else:  # what is on top needs no padding: at best the one with most of it
            value = load - max((pad for pad, count in pads.items() if count), default=0)
        if value > least():
            yield point, value


def _clique(model: Model, inside: Sequence[Item], best: int) -> tuple[int, tuple[int, ...]]:
    """Heaviest set of items that pairwise may not share a byte, found by branch and bound within a node limit."""
    grain = grain_of(inside)
    members = {item.index for item in inside}
    size = [align_up(item.size, grain) for item in model.items]
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


def with_bounds(problem: Problem, plan: Plan) -> Plan:
    """`plan` with the heights of its placements, and the bounds of the buffers that only one pool may hold."""
    model = Model(problem)
    heights, only = used_bytes(problem, plan.placements), forced_pools(model)
    usage = tuple(
        PoolUsage(pool.name, heights[pool.name], min(heights[pool.name], load_peak(model, index, only).bytes))
        for index, pool in enumerate(problem.pools)
    )
    proven = len(usage) == 1 and usage[0].used_bytes == usage[0].lower_bound_bytes
    return replace(plan, usage=usage, status=PlanStatus.OPTIMAL if proven else PlanStatus.FEASIBLE)
