"""General: searches over distances, for aliases, overlaps, fixed places, alignments and any conflicts alike.

The idea. Whatever a problem says about two items comes down to *zones*: open intervals that the distance between their
origins must not be in (`Model.zones`). Two plain buffers live together have one zone; an allowed overlap cuts a piece
out of it; views of an alias group make several. So a placement is a set of origins that breaks no zone, and a pair that
does is branched on: one branch for every range of distances between its zones.

Two searches share this idea.

`small.c`, for some dozens of items: a state is a set of difference constraints and its least solution; a pair that is
in its own way there is put into one of its ranges, the pair with fewest ranges first. It proves the plans of most real
models in milliseconds.

`distances.c`, for hundreds, keeps an interval of origins for every item and a range of distances for every pair, and
narrows both until nothing moves (`narrow.c`). The pair with least room is decided first, pairs that failed often before
others. It runs: complete runs, half of them at the bound, alternate with local ones that keep the order of
all but a few items: those that carry what stands too high, and their neighbours. Runs mostly try the order of the best
placement first, so they repair it. It also takes over plain problems whose alignment leaves padding, after a share of
the budget: sections (`exact/`) do not see the padding that is still to come.

Invariant: `low` is a proven bound and `origins` a placement of height `best`; every call of `distances.c` narrows one
of them or spends its share of nodes. The order of calls is fixed by the seed, so only a time limit can make two runs
differ. `small.c` is complete within its budget of choices and work, and looks at no clock.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, islice
from random import Random

from ...clock import clock_s
from ...compiled import (
    FOUND,
    INFEASIBLE,
    Struct,
    c_library,
    check_verdict,
    float_array,
    header_structure,
    int32s,
    int64s,
    random_state,
)
from ..bounds import live_peak
from ..first_fit import first_fit, fixed_first
from ..model import Item, Model, Zones
from ..registry import Context, irreducible

LARGEST_END = 1 << 59  # bytes; C counts in 64 bits

_Network = header_structure("planners/general/distances.h", "Network")


def fits_c(items: Sequence[Item], end: int) -> bool:
    """Whether C can count with items that end at `end` bytes."""
    return end < LARGEST_END and all(item.modulus < LARGEST_END for item in items)


def network_of(items: Sequence[Item], pairs: Sequence[tuple[int, int, Zones]]) -> Struct:
    """`pairs`: positions of two items, and zones of origin[a] - origin[b]."""
    near: list[list[int]] = [[] for _ in items]
    for p, (a, b, _) in enumerate(pairs):
        near[a].append(p)
        near[b].append(p)
    return _Network(
        items=len(items),
        pairs=len(pairs),
        first=int32s(a for a, _, _ in pairs),
        second=int32s(b for _, b, _ in pairs),
        zone_at=int32s(accumulate((len(zones) for _, _, zones in pairs), initial=0)),
        zone_low=int64s(low for _, _, zones in pairs for low, _ in zones),
        zone_high=int64s(high for _, _, zones in pairs for _, high in zones),
        near_at=int32s(accumulate(map(len, near), initial=0)),
        near=int32s(chain.from_iterable(near)),
        modulus=int64s(item.modulus for item in items),
        residue=int64s(item.residue for item in items),
        size=int64s(item.size for item in items),
        home=int64s(item.home for item in items),
        fixed=array("b", [item.fixed is not None for item in items]),
        weight=float_array([1.0]) * len(pairs),
    )


MOST_PAIRS = 200_000
SLICE_S = 0.25  # of one call, under a time limit
FREE_ITEMS = (6, 10, 16, 24, 40, 64)  # whose order a local search gives up
LOCAL_NODES = 150
FULL_NODES = 500
PAIRS_A_UNIT = 1000  # a choice looks at every pair: that many cost a unit of work


_SearchTask = header_structure("planners/general/distances.h", "Task")


@dataclass
class General:
    """The search over `items` of one pool. `origins` are those of `best`, by position in `items`."""

    items: list[Item]
    pairs: list[tuple[int, int, tuple[tuple[int, int], ...]]]  # positions and zones of origin[a] - origin[b]
    low: int
    best: int
    origins: list[int]
    nodes: int = 0

    @staticmethod
    def over(model: Model, items: Sequence[Item], low: int, origins: Sequence[int]) -> General | None:
        """The search that starts from the placement `origins`; None where there are too many pairs or bytes."""
        best = max((at + item.size for at, item in zip(origins, items, strict=True)), default=0)
        if not fits_c(items, best):
            return None
        pairs = list(islice(model.pairs(items), MOST_PAIRS + 1))
        if len(pairs) > MOST_PAIRS:
            return None
        return General(list(items), pairs, low, best, list(origins))

    @cached_property
    def near(self) -> list[list[int]]:
        """The pairs that each item is in."""
        near: list[list[int]] = [[] for _ in self.items]
        for p, (a, b, _) in enumerate(self.pairs):
            near[a].append(p)
            near[b].append(p)
        return near

    @cached_property
    def network(self) -> Struct:
        """The items and pairs as the compiled search sees them."""
        return network_of(self.items, self.pairs)

    def call(self, ceiling: int, nodes: int, trust: float, seed: int, free: Sequence[int] | None = None) -> bool:
        """One call of the compiled search; takes over what it found or proved, and says whether it found a placement.

        With `free`, only the order of these items among each other and to the rest is open; the others keep theirs.
        `trust` is how likely the order of the best placement is tried first.
        """
        is_free = array("b", [free is None]) * len(self.items)
        for k in free or ():
            is_free[k] = True
        origin = int64s(self.origins)
        task = _SearchTask(
            ceiling=ceiling, nodes=nodes, trust=trust, free=is_free, chance=random_state(seed), origin=origin
        )
        result = check_verdict(
            c_library().functions.npu_memplan_distances(ctypes.byref(self.network), ctypes.byref(task))
        )
        self.nodes += task.spent
        if result == FOUND:
            self.origins = list(origin)
            self.best = max(at + item.size for at, item in zip(origin, self.items, strict=True))
        elif result == INFEASIBLE and free is None:
            self.low = max(self.low, self.above(ceiling))
        return result == FOUND

    def above(self, height: int) -> int:
        """The least height above `height` that some item's end can have."""
        ends = [item.size + item.align(max(0, height + 1 - item.size)) for item in self.items if item.fixed is None]
        ends += [item.size + item.fixed for item in self.items if item.fixed is not None]
        return min(end for end in ends if end > height)

    def choose_items(self, ceiling: int, random: Random) -> list[int]:
        """Items whose order may be worth changing: some that together carry one above `ceiling`, and neighbours."""
        at = random.choice([k for k, item in enumerate(self.items) if self.origins[k] + item.size > ceiling])
        tower = []
        while at >= 0:
            tower.append(at)
            below = [j for j in self.touching(at) if self.origins[j] < self.origins[at]]
            at = random.choice(below) if below else -1
        free = [random.choice(tower)]
        seen = set(free)
        wanted = random.choice(FREE_ITEMS)
        for _ in range(4 * wanted):
            k = random.choice(free)
            if len(free) >= wanted or not self.near[k]:
                break
            a, b, _ = self.pairs[random.choice(self.near[k])]
            if a + b - k not in seen:
                seen.add(a + b - k)
                free.append(a + b - k)
        return free

    def touching(self, k: int) -> list[int]:
        """Items that keep item `k` from lying one step lower."""
        step, at = self.items[k].modulus, self.origins
        found = []
        for p in self.near[k]:
            a, b, zones = self.pairs[p]
            distance, first = at[a] - at[b], a == k
            for low, high in zones:  # many: a generator would take longer
                if distance - step < high <= distance if first else distance <= low < distance + step:
                    found.append(b if first else a)
                    break
        return found


def run(search: General, context: Context, enough: int | None = None) -> None:
    """Narrow `search` until bound and best meet, `best <= enough`, or the budget is spent."""
    random = Random(context.seed)
    started = clock_s()
    price = 1 + len(search.pairs) // PAIRS_A_UNIT
    attempt = 0
    while not context.is_exhausted():
        goal = search.low if enough is None else max(search.low, enough)
        if search.best <= goal or (enough is not None and search.low > enough):
            break
        full = attempt % 8 == 0
        nodes = FULL_NODES * (1 + attempt // 64) if full else LOCAL_NODES
        if full and attempt // 8 % 4 == 3:
            nodes *= 8
        elapsed = clock_s() - started
        if context.deadline is not None and search.nodes:
            # a call looks at no clock: keep each to a fraction of a second
            nodes = min(nodes, max(50, int(search.nodes / max(elapsed, 1e-3) * SLICE_S)))
        if context.nodes is not None:
            nodes = min(nodes, max(1, context.nodes // price))
        before = search.nodes
        ceiling = search.best - 1
        seed = random.getrandbits(32)
        if full:
            search.call(goal if attempt % 16 == 0 else ceiling, nodes, random.choice((0.0, 0.9, 0.98)), seed)
        else:
            search.call(ceiling, nodes, random.choice((0.0, 0.8, 0.95)), seed, search.choose_items(ceiling, random))
        context.spend(price * max(1, search.nodes - before))
        attempt += 1


def search_within(context: Context, items: Sequence[Item], pool: int, low: int, capacity: int) -> General | None:
    """A search for a placement of `items` in `pool` within `capacity`, from a layout that is too high; it has run."""
    model = context.model
    members = {item.index for item in items}
    order = [i for i in fixed_first(model, range(len(model.items))) if i in members]
    loose = first_fit(model, order, [None] * len(model.capacity), [pool] * len(model.items))
    assert not isinstance(loose, int), "first fit always succeeds in an unbounded pool"
    search = General.over(model, items, low, [loose.origins[item.index] for item in items])
    if search is not None:
        run(search, context, capacity)
    return search


def infeasible_subset(search: General, model: Model, ceiling: int, context: Context, nodes: int = 1000) -> list[int]:
    """Positions of items that cannot be together under `ceiling`; call it when that is proven of all of them."""

    def infeasible(trial: Sequence[int]) -> bool:
        items, origins = [search.items[k] for k in trial], [search.origins[k] for k in trial]
        if not items or live_peak(model, items).bytes > ceiling:
            return bool(items)
        part = General.over(model, items, 0, origins)
        if part is None:
            return False
        part.call(ceiling, nodes, 0.0, 1)
        context.spend(part.nodes)
        return part.low > ceiling

    return irreducible(range(len(search.items)), infeasible, context.is_exhausted)


_SmallTask = header_structure("planners/general/distances.h", "SmallTask")


@dataclass(slots=True)
class SmallSearch:
    """Branch and bound over the items of one pool."""

    items: list[Item]
    pairs: list[tuple[int, int, Zones]]  # positions a and b, and what `origin[a] - origin[b]` must not be in
    nodes: int  # choices left to make
    work: int = 3_000_000  # looks at pairs left, some milliseconds
    origins: list[int] = field(default_factory=list)  # of the last placement found

    @staticmethod
    def over(model: Model, items: Sequence[Item], nodes: int) -> SmallSearch:
        """The search over `items` (zero-size ones left out by the caller) with a budget of choices."""
        inside = list(items)
        pairs = sorted(model.pairs(inside), key=lambda p: (-min(inside[p[0]].size, inside[p[1]].size), p[0], p[1]))
        return SmallSearch(inside, pairs, nodes)

    def below(self, ceiling: int) -> bool | None:
        """True: placed with every end <= `ceiling`; False: impossible; None: no budget, compiler, or small numbers."""
        if any(item.home + item.size > ceiling for item in self.items):
            return False
        functions = c_library().functions
        if functions is None or not fits_c(self.items, ceiling):
            return None
        origin = int64s([0]) * len(self.items)
        task = _SmallTask(ceiling=ceiling, nodes=self.nodes, work=self.work, origin=origin)
        network = network_of(self.items, self.pairs)
        answer = check_verdict(functions.npu_memplan_small(ctypes.byref(network), ctypes.byref(task)))
        self.nodes, self.work = task.nodes, task.work
        if answer == FOUND:
            self.origins = list(origin)
        return {FOUND: True, INFEASIBLE: False}.get(answer)


def small_subset(context: Context, items: Sequence[Item], capacity: int, nodes: int) -> list[Item]:
    """Some of `items` that cannot be together in `capacity` bytes, each proof within `nodes`; none can be left out."""

    def infeasible(trial: Sequence[Item]) -> bool:
        return SmallSearch.over(context.model, trial, nodes).below(capacity) is False

    return irreducible(items, infeasible, context.is_exhausted)
