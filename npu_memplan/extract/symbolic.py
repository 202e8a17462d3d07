"""Sizes that are known only when a function is called: which is never the smaller one, and offsets as formulas.

Invariant: what holds here holds for every value that the shape symbols may have. Sizes are rounded up to one
`alignment`, so that sums of sizes are offsets for any buffer. "a >= b" is accepted only when it is proven for all
values of the symbols, 0 included: by expanding the difference into monomials and seeing no negative coefficient, or by
TVM's analyser under the promised bounds. Values at samples only refute. Of two buffers that may not share bytes, one is
below the other, always: its offset plus its size is a term of the other's offset, which is the greatest of its terms.
So no comparison has to be proven for a plan to be right; what is proven only keeps formulas short. A storage of unknown
size is planned where its symbols are known on entry and a pool without a size, free of constants, serves its device;
otherwise it stays a run-time allocation, and `RelaxTensor.external` says why.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.tirx.analysis import undefined_vars

from ..problem import BufferKind, Plan, Pool, Problem
from .liveness import Storage, labels, serves
from .program import Program, RelaxTensor, Unknown, element_bytes, entry_symbols, extent_key, number, static_extent
from .tir import nodes_of, operator_of

MOST_SYMBOLS = 8
"""Proofs look at every subset of the symbols; above this many nothing is proven."""

Polynomial = dict[tuple[Any, ...], int]  # monomial (sorted variables) -> coefficient
Values = Mapping[Any, int]

_REFUTING = (0, 1, 2, 3, 5, 64, 1000)


class Extents:
    """Distinct sizes by number, multiples of `alignment`, of `shapes` whose symbols are at most `bounds`."""

    def __init__(self, shapes: Iterable[Sequence[Any]], bounds: Mapping[Any, int], alignment: int = 64) -> None:
        self.alignment = alignment
        self.exprs: list[Any] = []  # int, or an expression
        self._before: list[Any] = []  # the same before they were rounded up, which keeps their order
        self._exact: list[Polynomial | None] = []
        self._known: dict[Any, int] = {}
        self._larger: dict[tuple[int, int], bool] = {}
        self._analyzer = sym.Analyzer()
        for symbol, bound in bounds.items():
            self._analyzer.bind(symbol, ir.Range(0, bound + 1))
        self._split = _divisors(e for shape in shapes for e in shape)
        self._gaps: dict[Any, int] = {}
        self._unrounded: dict[int, int] = {}
        self._met: dict[Any, int] = {}  # symbols in the order in which monomials had them: two may have one name
        self._bounds = bounds
        self._values: dict[tuple[Any, ...], int | None] = {}  # size, numbers of the symbols -> its value there

    def constant(self, value: int) -> int:
        """The number of a constant, which is taken as it is."""
        return self._intern(value, value, {(): value} if value else {})

    def size(self, shape: Sequence[Any], dtype: str) -> int:
        """The number of the size of a tensor."""
        total: Any = tirx.IntImm("int64", element_bytes(dtype))
        for extent in shape:
            total = total * (tirx.IntImm("int64", extent) if isinstance(extent, int) else extent)
        total = self._analyzer.simplify(_selecting(total))
        if static_extent(total) is not None:
            return self.constant(self.round_size(int(total)))
        exact = self.polynomial(total)
        key = frozenset(exact.items()) if exact is not None else str(total)
        aligned = total
        if exact is None or any(c % self.alignment for c in exact.values()):
            aligned = self._analyzer.simplify((total + (self.alignment - 1)) // self.alignment * self.alignment)
        rounded = self._intern(key, aligned, exact, total)
        if aligned is not total and rounded not in self._unrounded:
            self._unrounded[rounded] = self._intern(("unrounded", key), total, exact)
        return rounded

    def exact_size(self, size: int) -> int:
        """The number of a size before it was rounded up: a pool need not go on behind its highest buffer."""
        return self._unrounded.get(size, size)

    def gap(self, distance: Any) -> int:
        """The number of what keeps a buffer `-distance` bytes (an int or an expression) or more below another."""
        unit = self.alignment
        if isinstance(distance, int):
            return self.constant(-(min(distance, 0) // unit) * unit)
        if distance not in self._gaps:
            expr = self._analyzer.simplify(tirx.max(0 - distance + (unit - 1), 0) // unit * unit)
            self._gaps[distance] = self._intern(str(expr), expr, None)
        return self._gaps[distance]

    def round_size(self, size_bytes: int) -> int:
        """`size_bytes` rounded up to the alignment."""
        return -(-size_bytes // self.alignment) * self.alignment

    def _intern(self, key: Any, expr: Any, exact: Polynomial | None, before: Any = None) -> int:
        if key not in self._known:
            self._known[key] = len(self.exprs)
            self.exprs.append(expr)
            self._before.append(expr if before is None else before)
            self._exact.append(exact)
        return self._known[key]

    def value(self, size: int, values: Values) -> int:
        """A size in bytes for values of the symbols, which are the same ones in the same order at every point."""
        key = (size, *values.values())
        if key not in self._values:
            try:
                self._values[key] = number(self.exprs[size], values)
            except Unknown:
                self._values[key] = None
        found = self._values[key]
        if found is None:
            raise Unknown(str(self.exprs[size]))
        return found

    def has_values(self, size: int, points: Iterable[Values]) -> bool:
        """Whether a size has a value at all `points`."""
        try:
            return all(self.value(size, values) >= 0 for values in points)
        except Unknown:
            return False

    def at_least(self, a: int, b: int) -> bool:
        """Whether size `a` is proven to be no smaller than size `b`, whatever the symbols are."""
        if a == b:
            return True
        if (a, b) not in self._larger:
            self._larger[a, b] = self._prove(a, b)
        return self._larger[a, b]

    def _prove(self, a: int, b: int) -> bool:
        left, right = self.exprs[a], self.exprs[b]
        if isinstance(left, int) and isinstance(right, int):
            return left >= right
        if right == 0:  # as sizes and gaps are
            return True
        if any(_smaller(left, right, values) for values in self._refuting(left, right)):
            return False
        p, q = self._exact[a], self._exact[b]
        if p is not None and q is not None and not_negative(p, q):
            return True
        return bool(self._analyzer.can_prove(tirx.GE(as_expr(self._before[a]), as_expr(self._before[b]))))

    def _refuting(self, *exprs: Any) -> Iterable[Values]:
        symbols = sorted(
            {v for e in exprs if not isinstance(e, int) for v in nodes_of(e, ir.Var)}, key=lambda v: v.name
        )
        for most in _REFUTING:
            for turn in range(min(len(symbols), 3)):  # all alike, then each of the first symbols small
                values = {v: 1 if turn and i == turn else most for i, v in enumerate(symbols)}
                yield {v: min(n, self._bounds.get(v, n)) for v, n in values.items()}

    def polynomial(self, expr: Any) -> Polynomial | None:
        """`expr` as a sum of monomials; None when it is not one. Symbols that are divided are quotient and rest."""
        if isinstance(expr, tirx.IntImm):
            return {(): int(expr.value)} if int(expr.value) else {}
        if isinstance(expr, ir.Var):
            return self._whole(expr)
        if isinstance(expr, tirx.Cast):
            return self.polynomial(expr.value)
        if isinstance(expr, tirx.FloorDiv | tirx.FloorMod):
            split = self._split.get(expr.a) if isinstance(expr.a, ir.Var) else None
            if split is None or static_extent(expr.b) != split[0]:
                return None
            return {(split[1] if isinstance(expr, tirx.FloorDiv) else split[2],): 1}
        if not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
            return None
        left, right = self.polynomial(expr.a), self.polynomial(expr.b)
        if left is None or right is None:
            return None
        total: Polynomial = {}
        if isinstance(expr, tirx.Mul):
            for (m, c), (n, d) in itertools.product(left.items(), right.items()):
                key = tuple(sorted((*m, *n), key=lambda v: (v.name, self._met.setdefault(v, len(self._met)))))
                total[key] = total.get(key, 0) + c * d
        else:
            sign = 1 if isinstance(expr, tirx.Add) else -1
            for m in {**left, **right}:
                total[m] = left.get(m, 0) + sign * right.get(m, 0)
        return {m: c for m, c in total.items() if c}

    def _whole(self, symbol: Any) -> Polynomial:
        if symbol not in self._split:
            return {(symbol,): 1}
        divisor, quotient, rest = self._split[symbol]
        return {(quotient,): divisor, (rest,): 1}


def as_expr(value: Any) -> Any:
    """A number or an expression as an expression."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def _smaller(left: Any, right: Any, values: Values) -> bool:
    """Whether `left` is smaller at these values; where one of them has none, nothing is refuted."""
    try:
        return number(left, values) < number(right, values)
    except Unknown:
        return False


def _selecting(expr: Any) -> Any:
    """`expr` without calls, which Relax does not take in shapes everywhere."""

    def select(call: Any) -> Any:
        return tirx.Select(*call.args) if operator_of(call) == "prim.if_then_else" else call

    return tvm_ffi.structural_map(expr, (ir.Call, select))


def _divisors(exprs: Iterable[Any]) -> dict[Any, tuple[int, Any, Any]]:
    """Symbol -> (divisor, its quotient, its rest), where all that divide the symbol agree on the divisor."""
    found: dict[Any, set[int]] = {}
    for expr in exprs:
        for node in () if isinstance(expr, int | ir.Var) else nodes_of(expr, tirx.FloorDiv, tirx.FloorMod):
            divisor = static_extent(node.b)
            if isinstance(node.a, ir.Var) and divisor is not None and divisor > 1:
                found.setdefault(node.a, set()).add(divisor)
    return {
        v: (min(numbers), tirx.Var(f"{v.name}_quotient", "int64"), tirx.Var(f"{v.name}_rest", "int64"))
        for v, numbers in found.items()
        if len(numbers) == 1
    }


def not_negative(a: Polynomial, b: Polynomial) -> bool:
    """Whether a - b >= 0 for all values >= 0 of the symbols, by the coefficients' signs."""
    difference = {m: a.get(m, 0) - b.get(m, 0) for m in {**a, **b}}
    symbols = list(dict.fromkeys(v for m in difference for v in m))
    if len(symbols) > MOST_SYMBOLS:
        return False
    for count in range(len(symbols) + 1):
        for zero in itertools.combinations(symbols, count):
            shifted: Polynomial = {}
            for monomial, coefficient in difference.items():
                if any(v in zero for v in monomial):
                    continue
                for chosen in range(1 << len(monomial)):
                    key = tuple(v for i, v in enumerate(monomial) if chosen >> i & 1)
                    shifted[key] = shifted.get(key, 0) + coefficient
            if any(c < 0 for c in shifted.values()):
                return False
    return True


Term = tuple[int, int]  # formula, size: their sum
ZERO = 0  # the formula 0


class Formulas:
    """Formulas by number; equal ones are one. Formula `i` is the greatest of the sums `terms[i]`, and at least 0.

    `at[i]` are its values at `points`, where every size has one; `within[i]` has a bit for each formula that it is made
    of, itself included.
    """

    def __init__(self, extents: Extents, points: Sequence[Values] = ()) -> None:
        self.extents = extents
        self.points = points
        self.terms: list[tuple[Term, ...]] = [()]
        self.at: list[Sequence[int]] = [(0,) * len(points)]
        self.within = [1 << ZERO]
        self._known: dict[tuple[Term, ...], int] = {(): ZERO}
        self._highest: dict[frozenset[Term], int] = {}
        self._covers: dict[tuple[Term, Term], bool] = {}
        self._sizes: dict[int, Sequence[int]] = {}
        self._sums: dict[Term, Sequence[int]] = {}
        self.nothing = extents.constant(0)

    def highest(self, terms: Iterable[Term]) -> int:
        """The formula for the greatest of `terms`; those that another one always covers are left out."""
        given = frozenset(terms)
        if given not in self._highest:
            self._highest[given] = self._greatest(given)
        return self._highest[given]

    def _greatest(self, terms: Iterable[Term]) -> int:
        """`highest` of terms that it was not asked for before."""
        kept: list[Term] = []
        for term in sorted(terms):
            if any(self.covers(k, term) for k in kept):
                continue
            left = [not self.covers(term, k) for k in kept]
            kept = [*itertools.compress(kept, left), term]
        if kept == [(ZERO, self.nothing)]:
            return ZERO
        if len(kept) == 1 and kept[0][1] == self.nothing:
            return kept[0][0]
        key = tuple(sorted(kept))
        if key not in self._known:
            self._known[key] = len(self.terms)
            self.terms.append(key)
            self.at.append(tuple(map(max, self.at[ZERO], *map(self.sum_at, key))))
            parts = (self.within[formula] for formula, _ in key)
            self.within.append(functools.reduce(operator.or_, parts, 1 << self._known[key]))
        return self._known[key]

    def sum_at(self, term: Term) -> Sequence[int]:
        """The values of a sum at the points."""
        if term not in self._sums:
            formula, size = term
            if size not in self._sizes:
                self._sizes[size] = tuple(self.extents.value(size, values) for values in self.points)
            self._sums[term] = tuple(map(operator.add, self.at[formula], self._sizes[size]))
        return self._sums[term]

    def covers(self, a: Term, b: Term) -> bool:
        """Whether the sum `a` is known to be at least the sum `b` for all values."""
        if b[0] != ZERO and not self.within[a[0]] >> b[0] & 1:
            return False
        key = (a, b)
        found = self._covers.get(key)
        if found is None:
            found = all(map(operator.ge, self.sum_at(a), self.sum_at(b))) and self._prove(a, b)
            self._covers[key] = found
        return found

    def _prove(self, a: Term, b: Term) -> bool:
        """Whether `a` is proven to be at least `b`: some term of its formula is, or its size is that of `b`."""
        below = self.extents.at_least(a[1], self.nothing) and any(self.covers(t, b) for t in self.terms[a[0]])
        return below or (b[0] in (a[0], ZERO) and self.extents.at_least(a[1], b[1]))


def orient(
    formulas: Formulas,
    problem: Problem,
    plan: Plan,
    sizes: Mapping[str, int],
    distances: Mapping[tuple[str, str], int],
    tops: Mapping[str, int],
    pools: Sequence[str],
    pairs: Sequence[tuple[str, str]],
) -> tuple[dict[str, int], dict[str, int]]:
    """Formulas of the offsets of all buffers that `plan` puts into `pools`, and of those pools' heights.

    `sizes` are numbers of the buffers' sizes, `tops` of what a pool must have of them, `distances` of how far below the
    first the second buffer of an allowed overlap must be; `pairs` are the `conflicts` of the problem. Raises
    `CycleError` for overlaps of the plan that no order of its buffers expresses.
    """
    at = {p.buffer: p.offset_bytes for p in plan.placements if p.pool in pools}
    home = {p.buffer: p.pool for p in plan.placements if p.pool in pools}
    group = {name: g.name for g in problem.aliases for name, _ in g.members}
    ends = {b.name: at[b.name] + b.size_bytes for b in problem.buffers if b.name in at}
    leader = {name: group.get(name, name) for name in ends}
    below: dict[str, set[tuple[str, int]]] = {a: set() for a in leader.values()}  # what must be below, by how much
    for low, high in pairs:
        if low in home and home[low] == home.get(high) and leader[low] != leader[high]:
            if ends[low] <= at[high]:
                distance = sizes[low]
            elif ends[high] <= at[low]:
                low, high, distance = high, low, sizes[high]
            else:  # they overlap: the second one is below
                low, high = (high, low) if (low, high) in distances else (low, high)
                distance = distances[high, low]
            below[leader[high]].add((leader[low], distance))
    offsets: dict[str, int] = {}
    start = {leader[n]: at[n] for n in sorted(at)}
    for name in _sort_names(below, start):
        others = below[name].difference(*(below[other] for other, _ in below[name]))  # the rest is below one of these
        offsets[name] = formulas.highest((offsets[other], distance) for other, distance in others)
    placed = {n: offsets[leader[n]] for n in ends}
    under = {pair for others in below.values() for pair in others}
    top = [n for n in sorted(ends) if (leader[n], sizes[n]) not in under]  # nothing begins behind their end
    heights = {pool: formulas.highest((placed[n], tops[n]) for n in top if home[n] == pool) for pool in pools}
    return placed, heights


def conflicts(problem: Problem) -> Iterator[tuple[str, str]]:
    """Pairs of buffers that live together or must not share bytes, whatever their sizes are."""
    yield from problem.conflicts
    starts = sorted((life.first, life.last, b.name) for b in problem.buffers for life in b.lifetimes)
    active: list[tuple[int, str]] = []
    for first, last, name in starts:
        active = [(end, other) for end, other in active if end > first]
        yield from ((other, name) for _, other in active if other != name)
        active.append((last, name))


def _sort_names(below: Mapping[str, set[tuple[str, int]]], at: Mapping[str, int]) -> list[str]:
    """Names so that what is below another comes before it, the lowest first; `CycleError` where that is impossible."""
    ordered = sorted(below, key=lambda name: (at[name], name))
    place = {name: i for i, name in enumerate(ordered)}
    if all(place[other] < place[name] for name, others in below.items() for other, _ in others):
        return ordered
    left: dict[str, int] = {}  # how many are below each and not yet found
    above: dict[str, list[str]] = {}
    for name, others in below.items():
        names = {other for other, _ in others}
        left[name] = len(names)
        for other in names:
            above.setdefault(other, []).append(name)
    ready = [place[name] for name, count in left.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        found.append(ordered[heapq.heappop(ready)])
        for name in above.get(found[-1], ()):
            left[name] -= 1
            if not left[name]:
                heapq.heappush(ready, place[name])
    if len(found) < len(below):
        raise CycleError
    return found


GREATEST = 4096
"""Samples of symbols without a bound go up to this."""

MANY = 500
"""Storages from which on there are fewer samples: each costs what there is of them."""


@dataclass(slots=True)
class Sample:
    """The storages whose sizes depend on symbols (`numbers` of `extents`), at certain values of these.

    `distances` are found meanwhile: buffers that may overlap -> the number of how far below the first the second
    must be, where that depends on symbols too.
    """

    extents: Extents
    numbers: Mapping[Storage, int]
    values: Values
    points: Sequence[Values] = ()  # further values that a plan should be good at
    distances: dict[tuple[str, str], int] = field(default_factory=dict)
    _usable: dict[int, bool] = field(default_factory=dict)  # number of a distance -> whether it has values everywhere

    def sizes_bytes(self) -> dict[Storage, int]:
        """The sizes at the sample."""
        return {storage: self.extents.value(size, self.values) for storage, size in self.numbers.items()}

    def distance(self, first: str, second: str, found: Any) -> int | None:
        """A proven distance at the sample, no more than 0; None for one that has no value somewhere."""
        number = self.extents.gap(found)
        if number not in self._usable:
            self._usable[number] = self.extents.has_values(number, (self.values, *self.points))
        if not self._usable[number]:
            return None
        self.distances[first, second] = number
        return -self.extents.value(number, self.values)


def samples(symbols: Sequence[Any], bounds: Mapping[Any, int], storages: int = 0) -> list[dict[Any, int]]:
    """Values of the symbols to look at: small and large ones, alike and not; so many `storages` have these sizes."""
    steps: tuple[int, ...] = (1, 2, 7, 32, 64, 128, 256, 512, 1024, 2048, GREATEST)
    if len(symbols) == 2:
        steps = (1, 8, 32, 128, 512, 1024, GREATEST) if storages < MANY else (1, 32, 512, GREATEST)
    elif len(symbols) > 2:
        steps = (1, 128, GREATEST)
    lists = [sorted({min(n, max(1, bounds.get(v, GREATEST))) for n in steps}) for v in symbols]
    if len(symbols) <= 3:
        return [dict(zip(symbols, numbers, strict=True)) for numbers in itertools.product(*lists)]
    alike = [
        {v: numbers[min(k, len(numbers) - 1)] for v, numbers in zip(symbols, lists, strict=True)} for k in range(3)
    ]
    one = [{**alike[1], v: number} for v, numbers in zip(symbols, lists, strict=True) for number in numbers]
    return [*alike, *one]


def middle_sample(
    program: Program, pools: Sequence[Pool], constant_pools: Sequence[Pool] = (), alignment: int = 1
) -> Sample | None:
    """The sample in the middle of all; None where no size that can be planned depends on symbols."""
    count = len(program.tensors) + sum(len(call.internals) for call in program.calls)
    points = samples(sorted(entry_symbols(program.function), key=lambda v: v.name), program.bounds, count)
    extents, sizes = dynamic_sizes(program, pools, constant_pools, points, alignment)
    if not sizes:
        return None
    return Sample(extents, sizes, points[len(points) // 2], points)


def dynamic_sizes(
    program: Program,
    pools: Sequence[Pool],
    constant_pools: Sequence[Pool] = (),
    points: Sequence[Values] = (),
    alignment: int = 1,
) -> tuple[Extents, dict[Storage, int]]:
    """The storages of unknown size that can be planned, and their sizes at all `points` as extents' numbers."""
    devices = labels(program.vdevices)
    constants = any(t.kind is BufferKind.CONSTANT for t in program.tensors)
    filled = {p.name for p in constant_pools} if constants else set()
    free = [p for p in pools if p.size_bytes is None and p.name not in filled]
    known = entry_symbols(program.function)
    storages: list[Storage] = [t for t in program.tensors if t.size_bytes is None and not t.external]
    storages += [i for call in program.calls for i in call.internals if i.size_bytes is None]
    alignment = max(alignment, *(s.least_alignment for s in _inner(program)), 1)
    extents = Extents([s.shape for s in storages], program.bounds, alignment)
    found = {}
    seen: dict[Any, tuple[list[str], int | None, bool]] = {}  # symbols that are not known, size, whether it has values

    def look(shape: Sequence[Any], dtype: str) -> tuple[list[str], int | None, bool]:
        unknown = {v.name for e in shape if not isinstance(e, int) for v in undefined_vars(e) if v not in known}
        size = None if unknown else extents.size(shape, dtype)
        return sorted(unknown), size, size is not None and extents.has_values(size, points)

    for storage in storages:
        served = any(not devices or serves(p, devices[storage.device]) for p in free)
        key = (storage.dtype, *(e if isinstance(e, ir.Var) else extent_key(e) for e in storage.shape))
        if key not in seen:
            seen[key] = look(storage.shape, storage.dtype)
        unknown, size, has_values = seen[key]
        size = size if served else None
        if size is not None and has_values:
            found[storage] = size
        elif isinstance(storage, RelaxTensor):
            storage.external = "its size has no upper bound, and no pool without a size is free for it"
            if size is not None:
                storage.external = "its size is an expression that is not understood"
            elif unknown:
                storage.external = f"its size depends on {', '.join(unknown)}, which the inputs do not tell"
    return extents, found


def _inner(program: Program) -> Iterator[Storage]:
    """The storages that lie in pools whatever the caller wants: neither inputs nor results."""
    boundary = {*program.inputs, *(view.tensor for view in program.results)}
    yield from (t for t in program.tensors if t not in boundary and not t.external)
    yield from (i for call in program.calls for i in call.internals)
