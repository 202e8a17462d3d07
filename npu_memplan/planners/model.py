"""A problem restated for planners: items with origins, and the distances they forbid each other.

Invariant: an item is one buffer or one alias group. Choosing a pool and an origin for every item says where every
buffer is. Items `i` and `j` of one pool are in each other's way exactly when `origin[i] - origin[j]` is inside one of
the open intervals `zones(i, j)`; alias offsets, in-place and partial overlaps are all folded into these. Items are
sorted canonically, so nothing depends on the order of the problem's buffers. An error says `required - available ==
excess > 0`, and names the peak, the largest buffers there and what would make it fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import gcd

from ..clock import clock_s
from ..errors import NpuMemplanError, RefusalError
from ..problem import AllowedOverlap, Buffer, Placement, Problem, ProblemError, validate
from ..problem.spans import merge_spans


class PlannerUseError(NpuMemplanError):
    """A planner was requested by an unknown name, or with an unusable budget."""


class OutOfTime(Exception):
    """A time limit is over in the middle of something that is of no use unless it is finished.

    Never seen by callers of `plan`: it answers with the best layout in hand, or a quick one.
    """


@dataclass(eq=False, repr=False)
class PlanningError(RefusalError):
    """No plan fits the pools.

    `required_bytes` is what pool `pool` would need (a proven bound when `proven`, else the height of a plan that was
    found: `source` says which), `available_bytes` its hard size. `point` and `point_label` say when
    memory is fullest; `largest` are up to five (buffer name, bytes) live there, largest first;
    `subset` names buffers that cannot be together in the pool (all needed for it), when known;
    `problem` is the one that needs the fewest bytes, where several were planned; `by_backend` is what a program of each
    backend needs of the pool.
    """

    message: str
    _: KW_ONLY
    pool: str = ""
    required_bytes: int = 0
    available_bytes: int = 0
    point: int | None = None
    point_label: str = ""
    largest: tuple[tuple[str, int], ...] = ()
    proven: bool = False
    source: str = ""
    subset: tuple[str, ...] = ()
    problem: Problem | None = None
    by_backend: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def excess_bytes(self) -> int:
        """The bytes that the pool lacks."""
        return self.required_bytes - self.available_bytes


CHECK_EVERY = 100_000  # looks at pairs, some 10 ms, between two looks at the clock
LOOKS_AN_ITEM = 40  # what an item costs before its first pair, so that thousands begin nothing when the time is over

Zone = tuple[int, int]  # open interval of distances
Zones = tuple[Zone, ...]


@dataclass(slots=True)
class Item:
    """One thing to place: `parts` are (buffer, bytes from the item's origin), the least 0."""

    index: int
    name: str  # of its first buffer
    parts: tuple[tuple[Buffer, int], ...]
    size: int  # bytes from the origin to the last end
    first: int  # least point of a lifetime
    last: int  # greatest end of a lifetime
    lifetimes: tuple[tuple[int, int], ...]  # of all parts, ascending, merged
    modulus: int  # origin must be `residue` modulo this
    residue: int
    pools: tuple[int, ...]  # candidates, best first
    fixed: int | None  # the origin to keep (in pools[0])

    @property
    def home(self) -> int:
        """Its fixed origin, else the lowest there is."""
        return self.align(0) if self.fixed is None else self.fixed

    def align(self, at: int) -> int:
        """The least allowed origin not below `at`."""
        return at + (self.residue - at) % self.modulus


def _item(
    parts: tuple[tuple[Buffer, int], ...],
    spans: tuple[tuple[int, int], ...],
    modulus: int,
    residue: int,
    pools: tuple[int, ...],
    fixed: int | None,
) -> Item:
    """The item of `parts`, which live in `spans`; its index is given when all are known."""
    size = max([delta + buffer.size_bytes for buffer, delta in parts])
    first, last = (spans[0][0], spans[-1][1]) if spans else (0, 0)
    return Item(-1, parts[0][0].name, parts, size, first, last, spans, modulus, residue, pools, fixed)


def _align_parts(name: str, parts: Sequence[tuple[Buffer, int]]) -> tuple[int, int]:
    """(residue, modulus) of origins that put every part on its alignment; by the Chinese remainder theorem."""
    residue, modulus = 0, 1
    for buffer, delta in parts:
        a, m = -delta % buffer.alignment, buffer.alignment
        g = gcd(modulus, m)
        if (a - residue) % g:
            raise ProblemError(
                f"alias group with {name!r} cannot be aligned: {buffer.name!r} at inner offset {delta} "
                f"needs a multiple of {buffer.alignment}, which the other members' alignments rule out"
            )
        step = m // g
        factor = ((a - residue) // g) * pow(modulus // g, -1, step) % step if step > 1 else 0
        residue, modulus = residue + modulus * factor, modulus * step
        residue %= modulus
    return residue, modulus


def _subtract(low: int, high: int, permits: Sequence[tuple[int | None, int | None]]) -> list[Zone]:
    """Open interval `(low, high)` without the closed ranges, as open intervals that hold an integer."""
    pieces = [(low, high)]
    for least, most in permits:
        halves: list[Zone] = []
        for a, b in pieces:
            if least is not None:
                halves.append((a, min(b, least)))
            if most is not None:
                halves.append((max(a, most), b))
        pieces = [(a, b) for a, b in halves if b - a >= 2]
    return pieces


def union_zones(zones: Iterable[Zone]) -> Zones:
    """Union of open integer intervals, ascending; touching ones stay apart (their shared end is allowed)."""
    out: list[Zone] = []
    for low, high in sorted(zones):
        if out and low < out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def events(items: Iterable[Item]) -> list[tuple[int, int, int]]:
    """(point, 0 ends / 1 begins, index of the item) in order of time."""
    found: list[tuple[int, int, int]] = []
    for item in items:
        for first, last in item.lifetimes:
            found += (first, 1, item.index), (last, 0, item.index)
    return sorted(found)


class Model:
    """The problem compiled once and shared by all planners of one `plan()` call."""

    def __init__(self, problem: Problem) -> None:
        validate(problem)
        self.problem = problem
        self.pool_names = tuple(p.name for p in problem.pools)
        self.timed = all(
            p.read_bandwidth_bytes_per_cycle is not None and p.write_bandwidth_bytes_per_cycle is not None
            for p in problem.pools
        )
        self.capacity: tuple[int | None, ...] = tuple(p.size_bytes for p in problem.pools)
        by_name: dict[str, Buffer] = {}
        if problem.aliases or problem.conflicts or problem.overlaps:
            by_name = {b.name: b for b in problem.buffers}
        items = self._make_items(by_name)
        items.sort(key=lambda it: (-it.size, it.first, it.last, it.name))
        for index, item in enumerate(items):
            item.index = index
        self.items = tuple(items)
        self.sizes = tuple(item.size for item in items)
        self.usual = tuple(item.pools[0] for item in items)  # everyone's first choice
        self.item_of: dict[str, tuple[int, int]] = {}
        if by_name:
            self.item_of = {b.name: (item.index, delta) for item in items for b, delta in item.parts}
        # buffer-level ranges of offset(second) - offset(first), per unordered item pair
        self.allowed: dict[tuple[str, str], list[AllowedOverlap]] = {}
        for overlap in problem.overlaps:
            self.allowed.setdefault((overlap.first, overlap.second), []).append(overlap)
        self.partners: dict[str, list[str]] = {}
        for first, second in self.allowed:
            self.partners.setdefault(first, []).append(second)
        self.extra: dict[int, set[int]] = {}
        self._extra_parts: set[tuple[str, str]] = set()
        for first, second in problem.conflicts:
            i, j = self.item_of[first][0], self.item_of[second][0]
            if i != j:
                self._extra_parts.add((min(first, second), max(first, second)))
                self.extra.setdefault(i, set()).add(j)
                self.extra.setdefault(j, set()).add(i)
        # items whose zones are more than "do not share a byte while live"
        self.special = {self.item_of[name][0] for pair in self.allowed for name in pair}
        self.in_parts = {
            item.index for item in items if any(delta or buffer.size_bytes != item.size for buffer, delta in item.parts)
        }
        self.special |= self.in_parts
        self.allowing: dict[int, set[int]] = {}  # items that an item may share bytes with in some ways
        for pair in self.allowed:
            i, j = (self.item_of[name][0] for name in pair)
            self.allowing.setdefault(i, set()).add(j)
            self.allowing.setdefault(j, set()).add(i)
        self.peaks: dict[int, object] = {}  # bounds of pools under everyone's first choice, kept by `bounds`
        self.whole: dict[tuple[int, int], object] = {}  # items of one part, in blocks of a size, kept by `bounds`
        self._zones: dict[tuple[int, int], Zones] = {}
        self.deadline: float | None = None  # of `clock.now`; looked at during long work
        self._looks = 0  # at pairs, since the clock was read
        self._check_fixed()

    def _make_items(self, by_name: Mapping[str, Buffer]) -> list[Item]:
        """An item for every alias group and every other buffer, not yet in order."""
        problem = self.problem
        pool_index = {name: k for k, name in enumerate(self.pool_names)}
        candidates: dict[tuple[tuple[str, ...], frozenset[object]], tuple[int, ...]] = {}

        def pools_of(buffer: Buffer) -> tuple[int, ...]:
            if buffer.fixed is not None:
                return (pool_index[buffer.fixed[0]],)
            key = (buffer.pools, buffer.agents)
            if key not in candidates:
                candidates[key] = tuple(pool_index[p.name] for p in problem.candidates(buffer))
            return candidates[key]

        grouped: set[str] = set()
        items: list[Item] = []
        for group in problem.aliases:
            grouped.update(name for name, _ in group.members)
            if group.members:
                items.append(self._group_item([(by_name[n], d) for n, d in group.members], pools_of))
        for buffer in problem.buffers:
            if buffer.name in grouped:
                continue
            spans = tuple((life.first, life.last) for life in buffer.lifetimes)
            fixed = None if buffer.fixed is None else buffer.fixed[1]
            items.append(_item(((buffer, 0),), spans, buffer.alignment, 0, pools_of(buffer), fixed))
        return items

    def _check_fixed(self) -> None:
        """Fixed items that are in each other's way contradict themselves: no planner can help."""
        fixed = sorted(
            (item for item in self.items if item.fixed is not None and item.size),
            key=lambda item: (item.pools[0], item.fixed or 0, item.index),
        )
        for k, item in enumerate(fixed):
            start = item.fixed or 0
            for other in fixed[k + 1 :]:
                at = other.fixed or 0
                if other.pools[0] != item.pools[0] or at >= start + item.size:
                    break
                meet = any(a < d and c < b for a, b in item.lifetimes for c, d in other.lifetimes)
                if not meet and other.index not in self.extra.get(item.index, ()):
                    continue
                if any(low < start - at < high for low, high in self.zones(item.index, other.index)):
                    raise ProblemError(
                        f"{item.name!r} and {other.name!r} conflict but are fixed on the same bytes of pool "
                        f"{self.pool_names[item.pools[0]]!r}, at offsets {start} and {at}; move one of them"
                    )

    @staticmethod
    def _group_item(parts: list[tuple[Buffer, int]], pools_of: Callable[[Buffer], tuple[int, ...]]) -> Item:
        base = min(delta for _, delta in parts)
        parts = [(buffer, delta - base) for buffer, delta in parts]
        leader = parts[0][0].name
        residue, modulus = _align_parts(leader, parts)
        fixed = {(b.fixed[0], b.fixed[1] - d) for b, d in parts if b.fixed is not None}
        if len(fixed) > 1:
            raise ProblemError(f"alias group with {leader!r} is fixed at two places that do not agree")
        common = list(pools_of(next((b for b, _ in parts if b.fixed is not None), parts[0][0])))
        for buffer, _ in parts:
            common = [p for p in common if p in pools_of(buffer)]
        if not common:
            raise ProblemError(f"alias group with {leader!r} has no pool that all of its members may live in")
        spans = merge_spans((life.first, life.last) for b, _ in parts for life in b.lifetimes)
        origin = next(iter(fixed))[1] if fixed else None
        if origin is not None and (origin < 0 or (origin - residue) % modulus):
            raise ProblemError(f"alias group with {leader!r} is fixed where another member would be misplaced")
        return _item(tuple(parts), spans, modulus, residue, tuple(common), origin)

    # -- conflicts ---------------------------------------------------------

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """The items that each item may not freely share bytes with; quadratic in the number that live together."""
        sets: list[set[int]] = [set() for _ in self.items]
        live: set[int] = set()
        self.look(LOOKS_AN_ITEM * len(self.items))
        for _, begins, index in events(item for item in self.items if item.size):
            if begins:
                sets[index] |= live
                live.add(index)
                self.look(len(live))
            else:
                live.discard(index)
        for i, found in enumerate(sets):
            self.look(len(found))
            for j in tuple(found):
                sets[j].add(i)
        for i, others in self.extra.items():
            sets[i] |= others
        for i, found in enumerate(sets):
            found.discard(i)
        if self.special:
            for i in self.special:
                self.look(10 * len(sets[i]))
                for j in tuple(sets[i]) if i in self.in_parts else self.allowing.get(i, set()) & sets[i]:
                    if not self.zones(i, j):
                        sets[i].discard(j)
                        sets[j].discard(i)
        return [sorted(found) for found in sets]

    def look(self, pairs: int) -> None:
        """Counts looks at pairs; `OutOfTime` when there is no time for more, which is checked now and then."""
        looks = self._looks = self._looks + pairs
        if looks >= CHECK_EVERY:
            self._looks = 0
            if self.late():
                raise OutOfTime

    def late(self) -> bool:
        """Whether a time limit is over."""
        return self.deadline is not None and clock_s() >= self.deadline

    def is_special(self, i: int, j: int) -> bool:
        """Whether the zones of a neighbouring pair may be more than those of two whole items."""
        return i in self.in_parts or j in self.in_parts or j in self.allowing.get(i, ())

    def zones(self, i: int, j: int) -> Zones:
        """Open intervals of `origin[i] - origin[j]` that are forbidden in one pool, for a neighbouring pair."""
        if not self.is_special(i, j):
            size_i, size_j = self.items[i].size, self.items[j].size
            return ((-size_i, size_j),) if size_i and size_j else ()
        known = self._zones.get((i, j))
        if known is None:
            known = self._make_zones(i, j)
            self._zones[i, j] = known
            self._zones[j, i] = tuple((-b, -a) for a, b in reversed(known))
        return known

    def pairs(self, items: Sequence[Item]) -> Iterator[tuple[int, int, Zones]]:
        """(a, b, zones) of all pairs of `items`, by position, that may be in each other's way in one pool."""
        position = {item.index: k for k, item in enumerate(items)}
        for a, item in enumerate(items):
            for j in self.neighbours[item.index]:
                b = position.get(j, -1)
                if b > a and (zones := self.zones(item.index, j)):
                    yield a, b, zones

    def _make_zones(self, i: int, j: int) -> Zones:
        zones: list[Zone] = []
        for a, da in self.items[i].parts:
            for b, db in self.items[j].parts:
                if not a.size_bytes or not b.size_bytes:
                    continue
                if not a.meets(b) and (min(a.name, b.name), max(a.name, b.name)) not in self._extra_parts:
                    continue
                # offset(a) - offset(b) = d + da - db must not be in (-size a, size b), unless allowed
                permits: list[tuple[int | None, int | None]] = []
                for o in self.allowed.get((b.name, a.name), ()):
                    permits.append((o.lowest, o.highest))
                for o in self.allowed.get((a.name, b.name), ()):
                    permits.append((None if o.highest is None else -o.highest, None if o.lowest is None else -o.lowest))
                for low, high in _subtract(-a.size_bytes, b.size_bytes, permits):
                    zones.append((low + db - da, high + db - da))
        return union_zones(zones)

    # -- cost of a pool ----------------------------------------------------

    def access_cost(self, i: int, pool: int) -> float:
        """Cost of item `i` in candidate `pool`: cycles to move its bytes, or bytes times the pool's place."""
        cost = 0.0
        for rank, candidate in enumerate(self.items[i].pools):
            cost = max(cost, self._cycles(self.items[i], candidate, rank))
            if candidate == pool:
                break
        return cost

    def spill_cost(self, i: int, pool: int) -> float:
        """The cost of `pool` for item `i` beyond that of its first candidate."""
        return self.access_cost(i, pool) - self.access_cost(i, self.items[i].pools[0])

    def cost_of(self, pools: Sequence[int]) -> float:
        """Cost of an assignment of all items above everyone's first choice."""
        return sum(self.spill_cost(i, pool) for i, pool in enumerate(pools))

    def _cycles(self, item: Item, pool: int, rank: int) -> float:
        memory = self.problem.pools[pool]
        total = 0.0
        for buffer, _ in item.parts:
            reads = buffer.read_bytes or (0 if buffer.write_bytes else buffer.size_bytes)
            writes = buffer.write_bytes or (0 if buffer.read_bytes else buffer.size_bytes)
            read_rate, write_rate = memory.read_bandwidth_bytes_per_cycle, memory.write_bandwidth_bytes_per_cycle
            if self.timed and read_rate is not None and write_rate is not None:
                cycles = reads / read_rate + writes / write_rate
                cycles += memory.read_latency_cycles * (reads > 0) + memory.write_latency_cycles * (writes > 0)
                # pools may run at different clocks: count in cycles of a 1 GHz one
                total += cycles if memory.clock_hz is None else cycles * 1e9 / memory.clock_hz
            else:
                total += float((reads + writes) * rank)
        return total

    # -- answers -----------------------------------------------------------

    def placements(self, pools: Sequence[int], origins: Sequence[int]) -> tuple[Placement, ...]:
        """The buffers' placements for the items' pools and origins, in the problem's buffer order."""
        names = self.pool_names
        at: dict[str, Placement] = {}
        for item, pool, origin in zip(self.items, pools, origins, strict=True):
            for buffer, delta in item.parts:
                at[buffer.name] = Placement(buffer.name, names[pool], origin + delta)
        return tuple(at[buffer.name] for buffer in self.problem.buffers)

    def layout(self, placements: Iterable[Placement]) -> tuple[list[int], list[int]]:
        """Pools and origins of the items under `placements` (the inverse of `placements()`)."""
        pool_index = {name: k for k, name in enumerate(self.pool_names)}
        at = {p.buffer: p for p in placements}
        pools, origins = [], []
        for item in self.items:
            buffer, delta = item.parts[0]
            placed = at[buffer.name]
            pools.append(pool_index[placed.pool])
            origins.append(placed.offset_bytes - delta)
        return pools, origins
