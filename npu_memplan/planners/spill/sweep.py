"""Assignments to pools in order of cost, by a sweep over time.

Invariant: unless the sweep was too wide, every assignment that costs less than the one in hand and whose loads fit
comes up, cheapest first; so once one packs, or none is left, that is a proof (as far as packings were settled). A state
is the pools of the items that are live; of all pasts that end in the same state only the costs matter, so the work
grows with what is live at once and not with the number of items. Where that is too much, the likeliest states are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from ..first_fit.layout import Layout
from ..general.small import small_subset
from .assignment import Assigner
from .branch import NEVER, cheaper
from .prices import Relaxation

STEPS = 300_000  # states kept on the way before some are left out
CHOICES_A_STATE = 4  # what is left of the way then costs a fraction more
CANDIDATES = 2_000  # assignments that are packed
EXPANSIONS = 50_000  # states visited on the way back before the sweep gives up
SHRINK_NODES = 300

State = tuple[int, ...]  # pools of the live items, in the order in which they began
START: dict[State, tuple[float, float]] = {(): (0.0, 0.0)}  # its cost, and what that is above the prices' bound


class Sweep:
    """The layers of states, forwards in time; `wide` when some had to be left out."""

    def __init__(self, assigner: Assigner, relaxation: Relaxation, flexible: Sequence[int], best: Layout | None):
        self.assigner = assigner
        self.model = model = assigner.model
        self.relaxation = relaxation
        self.best = best
        self.wide = False
        begins: list[list[int]] = [[] for _ in range(assigner.width)]
        for i in flexible:
            begins[assigner.ranks[i][0]].append(i)
        self.size = assigner.sure
        self.base = assigner.loads(model.usual, self.size, set(flexible))
        # (items live, whether the last of them is new, state -> (cost, extra), what is left of the states before)
        self.layers: list[tuple[list[int], bool, dict[State, tuple[float, float]], dict[State, list[State]]]] = []
        self.steps = 0
        self.narrow = STEPS // (CHOICES_A_STATE * (assigner.width + len(flexible))) + 1
        live: list[int] = []
        states = START
        for k in range(assigner.width):
            if assigner.context.exhausted():
                self.wide = True
                return
            stay = [p for p, i in enumerate(live) if assigner.ranks[i][-1] >= k]
            live = [live[p] for p in stay]
            left: dict[State, list[State]] = {}
            for state in states:
                left.setdefault(tuple(state[p] for p in stay), []).append(state)
            merged = {
                rest: (min(states[s][0] for s in pasts), min(states[s][1] for s in pasts))
                for rest, pasts in left.items()
            }
            states = {rest: costs for rest, costs in merged.items() if min(self.room(k, live, rest)) >= 0}
            self.keep(live, False, states, left)
            for i in begins[k]:
                before, states = self.layers[-1][2], {}
                for rest, (cost, extra) in before.items():
                    room = self.room(k, live, rest)
                    for pool, growth in zip(model.items[i].pools, relaxation.extra[i], strict=True):
                        more = extra + growth
                        if room[pool] >= self.size[i] and cheaper(relaxation.bound + more, best):
                            grown = (*rest, pool)
                            states[grown] = (cost + model.spill_cost(i, pool), more)
                live = [*live, i]
                self.keep(live, True, states, {rest: [rest] for rest in before})
            states = self.layers[-1][2]

    def keep(
        self, live: list[int], new: bool, states: dict[State, tuple[float, float]], left: dict[State, list[State]]
    ) -> None:
        """Add a layer; of too many states those of least extra cost."""
        self.steps += len(states)
        if len(states) > self.narrow and self.steps > STEPS:
            self.wide = True
            states = dict(sorted(states.items(), key=lambda entry: (entry[1][1], entry[0]))[: self.narrow])
        self.layers.append((live, new, states, left))

    def room(self, k: int, live: Sequence[int], state: State) -> list[float]:
        """Bytes left in every pool at rank `k`."""
        room = [
            float("inf") if capacity is None else capacity - base[k]
            for capacity, base in zip(self.model.capacity, self.base, strict=True)
        ]
        for i, pool in zip(live, state, strict=True):
            if k in self.assigner.rank_sets[i]:
                room[pool] -= self.size[i]
        return room

    def cheapest_first(self, refuted: list[tuple[int, frozenset[int]]]) -> Iterator[tuple[float, dict[int, int]]]:
        """(cost, pool of each flexible item) in order of cost; what contains a refuted set in its pool is left out.

        Ends early, and is `wide` then, after `EXPANSIONS` states: refuted sets may leave nothing of a great many.
        """
        if not self.layers:
            yield 0.0, {}
            return
        tie = count()
        # of assignments that cost the same the one that is furthest first: there may be very many
        grain = NEVER * max(1.0, self.best.cost if self.best else 1.0)
        heap: list[tuple[int, int, int, float, float, State, dict[int, int]]] = []

        def push(k: int, cost: float, later: float, state: State, chosen: dict[int, int]) -> None:
            heappush(heap, (round(cost / grain), k, next(tie), cost, later, state, chosen))

        for state, (cost, _) in self.layers[-1][2].items():
            push(len(self.layers) - 1, cost, 0.0, state, {})
        left_over = EXPANSIONS
        while heap:
            _, k, _, total, later, state, chosen = heappop(heap)
            if k < 0:
                yield total, chosen
                continue
            left_over -= 1
            if left_over < 0 or (left_over % 256 == 0 and self.assigner.context.exhausted()):
                self.wide = True
                return
            live, new, _, left = self.layers[k]
            chosen = {**chosen, **dict(zip(live, state, strict=True))}
            if any(all(chosen.get(i, -1) == pool for i in items) for pool, items in refuted):
                continue
            if new:
                later += self.model.spill_cost(live[-1], state[-1])
                state = state[:-1]
            before = self.layers[k - 1][2] if k else START
            for past in left[state]:
                push(k - 1, later + before[past][0], later, past, chosen)


def sweep(
    assigner: Assigner, relaxation: Relaxation, flexible: Sequence[int], best: Layout | None
) -> tuple[Layout | None, bool]:
    """The cheapest layout, and whether it is proven that none costs less."""
    model, context = assigner.model, assigner.context
    if any(not assigner.ranks[i] for i in flexible):
        return best, False  # no point in time at which to decide
    layers = Sweep(assigner, relaxation, flexible, best)
    context.spend(layers.steps // 20)
    if context.exhausted():
        return best, False
    refuted: list[tuple[int, frozenset[int]]] = []
    doubtful = float("inf")
    for seen, (cost, chosen) in enumerate(layers.cheapest_first(refuted)):
        if not cheaper(cost, best):
            break
        if seen >= CANDIDATES or context.exhausted():
            return best, False
        context.spend(1)
        pools = [chosen.get(item.index, item.pools[0]) for item in model.items]
        layout = assigner.layout(pools)
        if layout is not None:
            return layout, doubtful >= cost and not layers.wide
        if assigner.settled(pools):
            refuted += _refute(assigner, pools, set(flexible))
        else:
            doubtful = min(doubtful, cost)
    return best, best is not None and not cheaper(doubtful, best) and not layers.wide


def _refute(assigner: Assigner, pools: Sequence[int], flexible: set[int]) -> Iterator[tuple[int, frozenset[int]]]:
    """For each pool that does not pack: flexible items that can not all be in it."""
    model = assigner.model
    for pool, capacity in enumerate(model.capacity):
        if capacity is not None and assigner.pack(pool, pools) is None:
            inside = [item for item in model.items if pools[item.index] == pool and item.size]
            kept = small_subset(assigner.context, inside, capacity, SHRINK_NODES)
            yield pool, frozenset(item.index for item in kept) & flexible
