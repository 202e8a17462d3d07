"""Searches over assignments to pools: complete for some dozens of items, by exchanges for more.

Invariant: a layout that is returned packs into every hard pool and costs no more than the one given. `branch` says
whether it has seen every assignment that could cost less.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..first_fit.layout import Layout
from .assignment import Assigner
from .prices import Relaxation

CHOICES = 60_000
NEVER = 1e-9  # relative: what floats may be wrong by


def cheaper(cost: float, best: Layout | None) -> bool:
    """Whether `cost` is less than that of `best`, rounding aside."""
    return best is None or cost < best.cost - NEVER * max(1.0, best.cost)


def branch(
    assigner: Assigner, relaxation: Relaxation, flexible: Sequence[int], best: Layout | None
) -> tuple[Layout | None, bool]:
    """The cheapest layout, and whether none costs less; the bound of `relaxation` cuts the tree."""
    model, context = assigner.model, assigner.context
    # the item with the highest rent decides most about the rest
    order = sorted(flexible, key=lambda i: (-max(relaxation.rent[i]), i))
    pools = list(model.usual)
    size = assigner.sure
    loads = assigner.loads(pools, size, set(order))
    left = CHOICES
    complete = True
    doubtful = float("inf")  # cost of the cheapest assignment that could neither be packed nor ruled out

    def descend(depth: int, lower: float, cost: float) -> None:
        nonlocal best, left, complete, doubtful
        left -= 1
        if left < 0 or context.exhausted():
            complete = False
            return
        context.spend(1)
        if depth == len(order):
            layout = assigner.layout(pools) if cheaper(cost, best) else None
            if layout is not None:
                best = layout
            elif not assigner.settled(pools):
                doubtful = min(doubtful, cost)
            return
        i = order[depth]
        options = sorted(zip(relaxation.extra[i], model.items[i].pools, strict=True))
        for extra, pool in options:
            total = cost + model.spill_cost(i, pool)
            if not cheaper(max(lower + extra, total), best):
                continue
            capacity, load = model.capacity[pool], loads[pool]
            if capacity is not None and any(load[k] + size[i] > capacity for k in assigner.ranks[i]):
                continue
            pools[i] = pool
            for k in assigner.ranks[i]:
                load[k] += size[i]
            descend(depth + 1, lower + extra, total)
            for k in assigner.ranks[i]:
                load[k] -= size[i]
        pools[i] = model.items[i].pools[0]

    descend(0, relaxation.bound, 0.0)
    return best, complete and best is not None and not cheaper(doubtful, best)


class Exchange:
    """Bring an item back into a better pool, and let others leave for it."""

    def __init__(self, assigner: Assigner, start: Layout, seed: int) -> None:
        self.assigner = assigner
        self.model = assigner.model
        self.random = Random(seed)
        self.pools = list(start.pools)
        self.loads = assigner.loads(self.pools)
        self.cost = start.cost
        self.moves: list[tuple[int, int]] = []  # (item, the pool it left), to take back

    def search(self, best: Layout, bound: float, attempts: int) -> Layout:
        """The best layout after `attempts` exchanges, or until `bound` is met."""
        context = self.assigner.context
        for _ in range(attempts):
            if context.exhausted() or not cheaper(bound, best):
                break
            context.spend(1 + len(self.pools) // 2)
            before = self.cost
            self.moves.clear()
            if not self.attempt() or self.cost > before + NEVER * max(1.0, before):
                self.take_back(before)
            elif cheaper(self.cost, best):
                layout = self.assigner.layout(self.pools)
                if layout is None:
                    self.take_back(before)
                else:
                    best = layout
        return best

    def attempt(self) -> bool:
        """One exchange; False when it leads nowhere."""
        model, random = self.model, self.random
        away = [i for i, pool in enumerate(self.pools) if pool != model.items[i].pools[0] and model.items[i].size]
        if not away:
            return False
        i = random.choice(away)
        candidates = model.items[i].pools
        pool = random.choice(candidates[: candidates.index(self.pools[i])])
        self.move(i, pool)
        kept = {i}
        while True:
            capacity = model.capacity[pool]
            load = self.loads[pool]
            over = [k for k in self.assigner.ranks[i] if capacity is not None and load[k] > capacity]
            if not over:
                break
            leaver = self.leaver(pool, random.choice(over), kept)
            if leaver is None:
                return False
            kept.add(leaver[0])
            self.move(*leaver)
        self.fill()
        return True

    def leaver(self, pool: int, at: int, kept: set[int]) -> tuple[int, int] | None:
        """(item, other pool): that leaves `pool` for the least cost by what it gives free at overfull points."""
        model, assigner = self.model, self.assigner
        capacity = model.capacity[pool] or 0
        load = self.loads[pool]
        best: tuple[float, int, int] | None = None
        for item in model.items:
            i = item.index
            if self.pools[i] != pool or i in kept or len(item.pools) == 1 or at not in assigner.rank_sets[i]:
                continue
            relief = sum(min(item.size, load[k] - capacity) for k in assigner.ranks[i] if load[k] > capacity)
            for other in item.pools:
                if other != pool and assigner.fits(self.loads, i, other):
                    harm = model.spill_cost(i, other) - model.spill_cost(i, pool)
                    key = (harm / max(1, relief) * self.random.uniform(0.6, 1.4), i, other)
                    if best is None or key < best:
                        best = key
        return None if best is None else best[1:]

    def fill(self) -> None:
        """Bring back what fits, dearest first."""
        model = self.model
        away = [i for i, pool in enumerate(self.pools) if pool != model.items[i].pools[0] and model.items[i].size]
        for i in sorted(away, key=lambda i: (-model.spill_cost(i, self.pools[i]), i)):
            for pool in model.items[i].pools:
                if pool == self.pools[i]:
                    break
                if self.assigner.fits(self.loads, i, pool):
                    self.move(i, pool)
                    break

    def move(self, i: int, pool: int) -> None:
        self.moves.append((i, self.pools[i]))
        self.cost += self.model.spill_cost(i, pool) - self.model.spill_cost(i, self.pools[i])
        self.assigner.move(self.pools, self.loads, i, pool)

    def take_back(self, cost: float) -> None:
        for i, pool in reversed(self.moves):
            self.assigner.move(self.pools, self.loads, i, pool)
        self.cost = cost
