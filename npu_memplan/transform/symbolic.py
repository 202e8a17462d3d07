"""Plans for all values of the shape symbols: a few formulas, the best of which is taken when the function is called.

Invariant: every formula (`extract.symbolic`) is right for every value; samples only decide how good. Each comes from a
plan of the problem at one sample, made by the same planner as any plan, on the same pools: buffers of known size lie
between those of unknown size. Only pools without a size hold the latter. Small buffers of a kernel are one block of the
problem: it costs at most the bytes of its buffers, and saves a formula, and a parameter of the kernel, for all but one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError
from typing import Any

import numpy as np
from tvm import tirx

from .. import planners
from ..extract.symbolic import ZERO, Formulas, Sample, as_expr, conflicts, orient
from ..planners.bounds import load_peak
from ..planners.model import Model
from ..problem import AllowedOverlap, Buffer, Lifetime, Plan, Problem
from ..rewrite.pools import Selection

SMALL, SEVERAL = 1024, 4
"""Bytes of a buffer that a kernel has on its stack when nothing is planned, at most; so many of them are a block."""


@dataclass(frozen=True, slots=True)
class JoinedBuffers:
    """A problem with blocks; `inner` has the buffers in them: name -> (name of the block, first byte in it)."""

    problem: Problem
    inner: Mapping[str, tuple[str, int]]

    def share(self, first: str, second: str) -> bool:
        """Whether two buffers lie side by side in one block."""
        there = first != second and first in self.inner and second in self.inner
        return there and self.block_of(first) == self.block_of(second)

    def block_of(self, name: str) -> str:
        """The block of a buffer, or the buffer itself."""
        return self.inner.get(name, (name, 0))[0]

    def split(self, plan: Plan, problem: Problem) -> Plan:
        """A plan of `problem`, the one without blocks."""
        if not self.inner:
            return plan
        homes = {p.buffer: p for p in plan.placements}
        placements = []
        for buffer in problem.buffers:
            block, start = self.inner.get(buffer.name, (buffer.name, 0))
            placements.append(replace(homes[block], buffer=buffer.name, offset_bytes=homes[block].offset_bytes + start))
        return replace(plan, placements=tuple(placements))


def join_small_buffers(
    problem: Problem, kernels: Iterable[Sequence[str]], changing: Collection[str], unit: int
) -> JoinedBuffers:
    """`problem` with one buffer for the small ones of each of `kernels`, from multiples of `unit`."""
    buffers = {b.name: b for b in problem.buffers}
    related = {name for pair in problem.conflicts for name in pair}
    related.update(name for group in problem.aliases for name, _ in group.members)
    inner: dict[str, tuple[str, int]] = {}
    for names in kernels if all(pool.size_bytes is None for pool in problem.pools) else ():
        own = [buffers[n] for n in names if n in buffers and n not in changing and n not in related]
        small = [b for b in own if b.size_bytes <= SMALL and b.pools == own[0].pools and b.fixed is None]
        if len(small) >= SEVERAL:
            inner |= _put_side_by_side(buffers, small, unit)
    found = JoinedBuffers(problem, inner)
    kept = tuple(b for name, b in buffers.items() if found.block_of(name) == name)
    overlaps = tuple(o for o in problem.overlaps if o.first not in inner and o.second not in inner)
    return replace(found, problem=replace(problem, buffers=kept, overlaps=overlaps, accesses=()))


def _put_side_by_side(buffers: dict[str, Buffer], members: Sequence[Buffer], unit: int) -> dict[str, tuple[str, int]]:
    """Makes the first of `members` a block of all; where each begins in it."""
    starts, size = {}, 0
    for member in members:
        starts[member.name] = (members[0].name, size)
        size += -(-member.size_bytes // unit) * unit
    lives = [life for member in members for life in member.lifetimes]
    life = Lifetime(min(life.first for life in lives), max(life.last for life in lives))
    alignment = max(member.alignment for member in members)
    buffers[members[0].name] = replace(members[0], size_bytes=size, lifetimes=(life,), alignment=alignment)
    return starts


MOST_PLANS, MOST_FAILURES, MOST_FORMULAS = 8, 2, 4
"""Plans that are made, plans in a row that are no better than what was known, and formulas that are kept."""

GOOD = 1.01
"""A sample whose best formula needs at most so many times the proven least bytes is not looked at further."""

NODES = 20_000
"""Of search for each plan."""

ROUNDING = 1e-9
"""More than sums of sizes as floating-point numbers may be wrong by."""


Levels = list[list[tuple[Any, Any]]]
Bytes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SymbolicPlan:
    """The computations of `main` before it makes its pools, and the places of all buffers.

    `definitions` are computed level by level: (variable, expression of symbols and of variables of earlier levels).
    `offsets` and `sizes` (of the pools without a size that hold sizes not known before) are ints or such variables;
    offsets are multiples of `unit`. What is in other pools is where `plan` has it.
    """

    plan: Plan
    offsets: Mapping[str, Any]
    sizes: Mapping[str, Any]
    definitions: Sequence[Sequence[tuple[Any, Any]]]
    unit: int
    apart: Callable[[str, str], bool]  # whether two buffers of one pool share no byte, whatever the symbols are


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A plan at a sample as formulas, with the height of all pools at every sample."""

    plan: Plan
    offsets: Mapping[str, int]
    heights: Mapping[str, int]
    bytes_at: list[int]


def plan_symbolic(
    problem: Problem, sample: Sample, planner: str, seed: int, kernels: Iterable[Sequence[str]] = ()
) -> SymbolicPlan:
    """The plan of a problem, built at the `sample`, for all values; `kernels`: names of each one's buffers."""
    unit = sample.extents.alignment  # sizes and offsets are multiples of it
    blocks = join_small_buffers(problem, kernels, {storage.name for storage in sample.numbers}, unit)
    search = _Search(blocks.problem, sample, planner, seed)
    candidates = search.run()
    chosen = _choose(candidates)
    changing = {p.pool for p in candidates[0].plan.placements if p.buffer in search.dynamic}
    offsets, sizes, levels = _Writer(search.formulas).write(chosen, [p for p in search.pools if p in changing])
    for name, (block, start) in blocks.inner.items():
        if block in offsets:
            offsets[name] = offsets[block] + start if start else offsets[block]
    plan = blocks.split(candidates[0].plan, problem)
    apart = functools.partial(_apart, search, chosen, blocks)
    return SymbolicPlan(plan, offsets, sizes, levels, unit, apart)


class _Search:
    """Plan at one sample after the other; the next is the one at which the formulas so far are worst."""

    def __init__(self, problem: Problem, sample: Sample, planner: str, seed: int) -> None:
        self.problem = replace(problem, overlaps=tuple(o for o in problem.overlaps if o.lowest is None))
        self.planner, self.seed, self.points = planner, seed, sample.points
        self.extents, self.distances = sample.extents, sample.distances
        self.formulas = Formulas(sample.extents, sample.points)
        known = {s.name: n for s, n in sample.numbers.items()}
        self.dynamic = {b.name: known[b.name] for b in problem.buffers if b.name in known}
        self.sizes = {b.name: self.dynamic.get(b.name, -1) for b in problem.buffers}
        for buffer in problem.buffers:
            if buffer.name not in self.dynamic:
                self.sizes[buffer.name] = self.extents.constant(self.extents.round_size(buffer.size_bytes))
        self.tops = {
            b.name: self.extents.exact_size(self.sizes[b.name])
            if b.name in self.dynamic
            else self.extents.constant(b.size_bytes)
            for b in problem.buffers
        }
        numbers = {*self.sizes.values(), *self.tops.values(), *self.distances.values()}
        self.values = [{n: self.extents.value(n, p) for n in numbers} for p in self.points]
        self.pools = [p.name for p in problem.pools if p.size_bytes is None and not p.read_only]
        self.conflicts = tuple(conflicts(self.problem))
        self.bounds: dict[int, int] = {}  # of samples, where they were computed
        self.models: dict[int, Model] = {}  # at these
        self.quick: list[float] = []

    def problem_at(self, sample: int) -> Problem:
        """The problem at a sample."""
        values = self.values[sample]
        buffers = tuple(
            b.with_size(values[self.dynamic[b.name]]) if b.name in self.dynamic else b for b in self.problem.buffers
        )
        overlaps = tuple(
            AllowedOverlap(o.first, o.second, o.lowest, -values[self.distances[o.first, o.second]], o.reason)
            if (o.first, o.second) in self.distances
            else o
            for o in self.problem.overlaps
        )
        return replace(self.problem, buffers=buffers, overlaps=overlaps)

    def bound(self, sample: int) -> int:
        """Bytes that no plan at a sample goes below, in the pools that have no size."""
        if sample not in self.bounds:
            model = self.models[sample] = Model(self.problem_at(sample))
            self.bounds[sample] = sum(load_peak(model, model.pool_names.index(p)).bytes for p in self.pools)
        return max(1, self.bounds[sample])

    def worst(self, best: Sequence[int], samples: Iterable[int]) -> tuple[float, int]:
        """The greatest ratio of the `best` plans to the bound, and its sample; (0, -1) of none."""
        found = (0.0, -1)
        for ratio, sample in sorted(((best[k] / self.quick[k], k) for k in samples), reverse=True):
            if ratio < found[0] or ratio <= GOOD:
                break
            found = max(found, (best[sample] / self.bound(sample), sample))
        return found

    def run(self) -> list[_Candidate]:
        """Candidates; the first is that of the sample in the middle."""
        sample = len(self.points) // 2
        found = [self.candidate(Model(self.problem_at(sample)))]
        self.fix(found[0].plan)
        done = {sample}
        failures = 0
        while len(found) < MOST_PLANS and failures < MOST_FAILURES:
            best = [min(c.bytes_at[k] for c in found) for k in range(len(self.points))]
            ratio, sample = self.worst(best, set(range(len(self.points))) - done)
            if ratio <= GOOD:
                break
            done.add(sample)
            found.append(self.candidate(self.models.pop(sample)))
            failures = failures + 1 if found[-1].bytes_at[sample] * GOOD > best[sample] else 0
        return found

    def fix(self, plan: Plan) -> None:
        """Keep what is in a pool with a size there in all later plans; pools are chosen once."""
        homes = {p.buffer: p for p in plan.placements}
        buffers = []
        for b in self.problem.buffers:
            home = homes[b.name]
            place = None if home.pool in self.pools else (home.pool, home.offset_bytes)
            same = b.fixed == place and (b.pools == (home.pool,) or len(self.problem.pools) == 1)
            buffers.append(b if same else replace(b, pools=(home.pool,), fixed=place))
        self.problem = replace(self.problem, buffers=tuple(buffers))
        self.quick = self.quick_bounds({name: home.pool for name, home in homes.items()})

    def quick_bounds(self, homes: Mapping[str, str]) -> list[float]:
        """Of buffers in the pools `homes`, no more than `bound` at each sample: bytes live at one point, less what
        every overlap there can share.
        """
        problem = self.problem
        if problem.aliases or problem.conflicts:  # these count otherwise
            return [1.0] * len(self.points)
        end = 1 + max((life.last for b in problem.buffers for life in b.lifetimes), default=0)
        changes = {pool: np.zeros((len(self.points), end)) for pool in self.pools}
        arrays: dict[int, Any] = {}  # of numbers of sizes
        sizes: dict[str, Any] = {}

        def count(pool: str, first: int, last: int, amount: Any) -> None:
            changes[pool][:, first] += amount
            changes[pool][:, last] -= amount

        for b in problem.buffers:
            known = self.dynamic.get(b.name)
            if known is not None and known not in arrays:
                arrays[known] = np.array([v[known] for v in self.values], float)
            sizes[b.name] = np.full(len(self.values), float(b.size_bytes)) if known is None else arrays[known]
            for life in b.lifetimes if homes[b.name] in changes else ():
                count(homes[b.name], life.first, life.last, sizes[b.name])
        buffers = {b.name: b for b in problem.buffers}
        for o in problem.overlaps:
            one, other = buffers[o.first], buffers[o.second]
            if homes[o.first] == homes[o.second] and homes[o.first] in changes:
                least = np.minimum(sizes[o.first], sizes[o.second])  # of what they can share: no less than they do
                if (o.first, o.second) in self.distances or o.highest is not None:
                    known = self.distances.get((o.first, o.second))
                    behind = np.array([-(o.highest or 0) if known is None else v[known] for v in self.values], float)
                    least = np.clip(sizes[o.second] - behind, 0, least)
                for x, y in itertools.product(one.lifetimes, other.lifetimes):
                    if x.meets(y):
                        count(homes[o.first], max(x.first, y.first), min(x.last, y.last), -least)
        peaks = sum(np.cumsum(changed, axis=1).max(axis=1) for changed in changes.values())
        return [max(1.0, float(peak) * (1 - ROUNDING)) for peak in np.broadcast_to(peaks, len(self.points))]

    def candidate(self, model: Model) -> _Candidate:
        problem = model.problem
        plan = planners.plan(problem, self.planner, seed=self.seed, node_budget=NODES, model=model)
        try:
            offsets, heights = orient(
                self.formulas, problem, plan, self.sizes, self.distances, self.tops, self.pools, self.conflicts
            )
        except CycleError:
            return self.candidate(Model(replace(problem, overlaps=())))
        totals = map(sum, zip(*(self.formulas.at[height] for height in heights.values()), strict=True))
        return _Candidate(plan, offsets, heights, list(totals))


def _apart(search: _Search, chosen: Sequence[_Candidate], blocks: JoinedBuffers, first: str, second: str) -> bool:
    """Whether each candidate has one of two buffers behind the last byte of the other by its formulas."""
    if blocks.share(first, second):
        return True
    formulas = search.formulas
    first, second = blocks.block_of(first), blocks.block_of(second)

    def behind(candidate: _Candidate, low: str, high: str) -> bool:
        if low not in candidate.offsets or high not in candidate.offsets:
            return False
        begins = (candidate.offsets[high], formulas.nothing)
        return formulas.covers(begins, (candidate.offsets[low], search.sizes[low]))

    return all(behind(c, first, second) or behind(c, second, first) for c in chosen)


def _choose(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The fewest candidates that are nearly as good as all, one at a time the most useful."""
    count = range(len(candidates[0].bytes_at))
    best = [min(c.bytes_at[k] for c in candidates) for k in count]

    def loss(chosen: Sequence[_Candidate]) -> tuple[float, float]:
        ratios = [min(c.bytes_at[k] for c in chosen) / max(1, best[k]) for k in count]
        return max(ratios), sum(ratios)

    chosen: list[_Candidate] = []
    rest = list(candidates)
    while rest and len(chosen) < MOST_FORMULAS and (not chosen or loss(chosen)[0] > GOOD):
        useful = min(rest, key=lambda c: loss([*chosen, c]))
        chosen.append(useful)
        rest.remove(useful)
    return chosen


class _Writer:
    """Formulas as definitions of variables: sizes, then formulas level by level, heights, the choice, offsets.

    What stands for a number of bytes is an int or an expression of symbols and variables; a variable is defined one
    level after those that it needs.
    """

    def __init__(self, formulas: Formulas) -> None:
        self.formulas = formulas
        self.exprs = formulas.extents.exprs
        self.levels: Levels = []
        self.level_of: dict[Any, int] = {}  # variable -> the first level that may use it
        self.known: dict[Any, Any] = {}
        self.taken: list[Any] = []

    def write(self, chosen: Sequence[_Candidate], pools: Sequence[str]) -> tuple[Bytes, Bytes, Levels]:
        """Offsets, sizes of `pools`, which hold sizes not known before, and definitions: those of `chosen`."""
        heights = [[self.formula(c.heights[p]) for p in pools] for c in chosen]
        self.decide([(_sum(own), *own) for own in heights])
        sizes = {p: self.choice(f"{p}_bytes", [c.heights[p] for c in chosen]) for p in pools}
        homes = {p.buffer: p.pool for p in chosen[0].plan.placements}
        offsets = {
            name: self.choice("offset", [c.offsets[name] for c in chosen])
            for name in chosen[0].offsets
            if homes[name] in pools
        }
        return offsets, sizes, self.levels

    def decide(self, totals: Sequence[tuple[Any, ...]]) -> None:
        """Makes `taken`: 1 for the first of `totals` that needs the least bytes, 0 for the others."""
        if len(totals) == 1:
            return
        totals = [self.define(f"total_{i}", t, *parts) for i, (t, *parts) in enumerate(totals)]
        least = self.define("least", _fold(totals, min, tirx.min), *totals)
        before: Any = 0
        for i, total in enumerate(totals):
            is_least = 1 - tirx.min(as_expr(total) - as_expr(least), tirx.IntImm("int64", 1))
            needed = (total, least, *self.taken)
            self.taken.append(self.define(f"taken_{i}", is_least * (1 - before) if i else is_least, *needed))
            before = before + self.taken[-1]

    def size(self, number: int) -> Any:
        """A size: a constant, or a variable."""
        if isinstance(self.exprs[number], int):
            return self.exprs[number]
        if ("size", number) not in self.known:
            self.known["size", number] = self.define(f"size_{number}", self.exprs[number])
        return self.known["size", number]

    def formula(self, number: int) -> Any:
        """The value of a formula: a constant, or a variable."""
        if number == ZERO:
            return 0
        if ("formula", number) not in self.known:
            terms = self.formulas.terms[number]
            pairs = [(self.formula(f), self.size(s)) for f, s in terms]
            values = [_sum(pair) for pair in pairs]
            if not all(self.formulas.extents.at_least(s, self.formulas.nothing) for _, s in terms):
                values.append(0)
            self.known["formula", number] = self.define(
                f"at_{number}", _fold(values, max, tirx.max), *itertools.chain.from_iterable(pairs)
            )
        return self.known["formula", number]

    def choice(self, name: str, numbers: Sequence[int]) -> Any:
        """The formula of the candidate that is taken, of one number for each candidate."""
        if len(set(numbers)) == 1:
            return self.formula(numbers[0])
        key = ("choice", *numbers)
        if key not in self.known:
            values = [self.formula(number) for number in numbers]
            name = f"{name}_{'_'.join(map(str, numbers))}"
            self.known[key] = self.define(name, Selection(self.taken, values), *self.taken, *values)
        return self.known[key]

    def define(self, name: str, expr: Any, *needed: Any) -> Any:
        """A variable for an expression over `needed` variables or symbols; numbers and variables are themselves."""
        if isinstance(expr, int | tirx.Var):
            return expr
        level = max((self.level_of.get(v, 0) for v in needed), default=0)
        while len(self.levels) <= level:
            self.levels.append([])
        var = tirx.Var(name, "int64")
        self.levels[level].append((var, expr))
        self.level_of[var] = level + 1
        return var


def _sum(values: Sequence[Any]) -> Any:
    expressions = [v for v in values if not isinstance(v, int)]
    constant = sum(v for v in values if isinstance(v, int))
    if constant or not expressions:
        expressions.append(constant)
    return functools.reduce(lambda a, b: a + as_expr(b), expressions)


def _fold(values: Sequence[Any], number: Any, expression: Any) -> Any:
    """The greatest or least of `values`."""
    constants = [v for v in values if isinstance(v, int)]
    expressions = [v for v in values if not isinstance(v, int)]
    result = number(constants) if constants else expressions.pop(0)
    for other in expressions:
        result = expression(as_expr(result), other)
    return result
