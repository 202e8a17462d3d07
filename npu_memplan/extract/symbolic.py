"""Offsets as expressions, for storages whose sizes have symbols without an upper bound.

Invariant: two storages that live together are apart for every value of the symbols, 0 included. An
offset is a sum of storage sizes; "a >= b" is accepted only when the sizes in b can be matched one
to one with sizes in a that are at least as large, which is proven by expanding their difference
into monomials and seeing no negative coefficient.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx
from tvm.tirx.analysis import undefined_vars

from ..problem import Lifetime
from .liveness import Storage
from .program import Internal, Program, Tensor
from .sizes import element_bytes, entry_symbols

ALIGNMENT = 64
SAMPLE = 48
"""Value of every symbol when two valid offsets are compared for the better one."""

MOST_SYMBOLS = 6
"""Proofs look at every subset of the symbols; above this many nothing is proven."""

Polynomial = dict[tuple[Any, ...], int]  # monomial (sorted variables) -> coefficient


@dataclass(frozen=True, slots=True)
class SymbolicPlan:
    """Offsets in bytes of one pool, and its size in bytes, as expressions of the symbols."""

    offsets: Mapping[str, Any]
    size: Any


@dataclass(frozen=True, slots=True)
class _Size:
    """An aligned size: its expression, and what is known about it."""

    expr: Any
    bytes: Polynomial | None
    sample: int


Sum = Counter[int]  # how often each size is added


def plan_symbolic(program: Program, lives: Mapping[Storage, tuple[Lifetime, ...]]) -> SymbolicPlan:
    """Places every storage of unknown size whose symbols are known when the function starts.

    What this cannot do stays a run-time allocation: `Tensor.external` then says why.
    """
    return _Planner(program, lives).run()


class _Planner:
    def __init__(self, program: Program, lives: Mapping[Storage, tuple[Lifetime, ...]]) -> None:
        self.lives = lives
        self.known = entry_symbols(program.function)
        self.sizes: list[_Size] = []
        self.larger: dict[tuple[int, int], bool] = {}
        self.analyzer = sym.Analyzer()
        self.storages = [s for s in lives if s.size_bytes is None and self.may_place(s)]

    def may_place(self, storage: Storage) -> bool:
        """Whether the size can be computed on entry; otherwise the reason is written down."""
        shape, _ = _shape_of(storage)
        unknown = sorted({v.name for e in shape for v in undefined_vars(_expr(e)) if v not in self.known})
        if isinstance(storage, Tensor):
            if storage.external:
                return False
            if storage.device:
                storage.external = "its size has no upper bound, and it is not on the first device"
                return False
            if unknown:
                storage.external = f"its size depends on {', '.join(unknown)}, which the inputs do not tell"
                return False
            return True
        return not unknown and not storage.device

    def run(self) -> SymbolicPlan:
        of = {s: self.size(s) for s in self.storages}
        order = sorted(self.storages, key=lambda s: (-self.sizes[of[s]].sample, s.name))
        placed: dict[Storage, Sum] = {}
        for storage in order:
            others = [o for o in placed if _meet(self.lives[storage], self.lives[o])]
            placed[storage] = self.best(of[storage], [(placed[o], of[o]) for o in others])
        ends = [placed[s] + Counter([of[s]]) for s in self.storages]
        return SymbolicPlan(
            {s.name: self.analyzer.simplify(self.expr(offset)) for s, offset in placed.items()},
            self.analyzer.simplify(self.highest(ends)),
        )

    # -- sizes -------------------------------------------------------------------------------

    def size(self, storage: Storage) -> int:
        """The index of the aligned size of `storage`; equal sizes share one."""
        shape, dtype = _shape_of(storage)
        total: Any = tirx.IntImm("int64", element_bytes(dtype))
        for extent in shape:
            total = total * _expr(extent)
        exact = _polynomial(total)
        divisible = exact is not None and all(c % ALIGNMENT == 0 for c in exact.values())
        total = self.analyzer.simplify(total)
        aligned = total if divisible else (total + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
        sample = _evaluate(aligned, self.analyzer)
        for index, known in enumerate(self.sizes):
            same = exact is not None and known.bytes == exact
            if same or (known.sample == sample and self.analyzer.can_prove_equal(known.expr, aligned)):
                return index
        self.sizes.append(_Size(aligned, exact, sample))
        return len(self.sizes) - 1

    def at_least(self, a: int, b: int) -> bool:
        """Whether size a is proven to be no smaller than size b (aligned sizes keep that order)."""
        if a == b:
            return True
        if (a, b) not in self.larger:
            left, right = self.sizes[a].bytes, self.sizes[b].bytes
            self.larger[a, b] = left is not None and right is not None and _not_negative(left, right)
        return self.larger[a, b]

    # -- offsets -----------------------------------------------------------------------------

    def best(self, size: int, others: Sequence[tuple[Sum, int]]) -> Sum:
        """The lowest proven offset among 0, the ends of `others`, and above all of them."""
        ends = [offset + Counter([s]) for offset, s in others]
        above: Sum = Counter()
        for end in ends:
            above |= end
        choices = [c for c in (Counter(), *ends) if self.apart(c, size, others)]
        return min([*choices, above], key=self.value)

    def apart(self, offset: Sum, size: int, others: Sequence[tuple[Sum, int]]) -> bool:
        end = offset + Counter([size])
        return all(self.covers(offset, o + Counter([s])) or self.covers(o, end) for o, s in others)

    def covers(self, a: Sum, b: Sum) -> bool:
        """Whether the sum `a` is proven to be at least the sum `b`."""
        rest_a, rest_b = a - b, b - a
        spare = sorted(rest_a.elements(), key=lambda i: self.sizes[i].sample)
        for wanted in sorted(rest_b.elements(), key=lambda i: -self.sizes[i].sample):
            match = next((i for i in spare if self.at_least(i, wanted)), None)
            if match is None:
                return False
            spare.remove(match)
        return True

    def value(self, total: Sum) -> int:
        return sum(self.sizes[i].sample * n for i, n in total.items())

    def expr(self, total: Sum) -> Any:
        result: Any = tirx.IntImm("int64", 0)
        for index, count in sorted(total.items()):
            result = result + self.sizes[index].expr * count
        return result

    def highest(self, ends: Sequence[Sum]) -> Any:
        """The largest of the sums: those that another one covers are left out."""
        kept: list[Sum] = []
        for end in sorted(ends, key=self.value, reverse=True):
            if not any(self.covers(k, end) for k in kept):
                kept.append(end)
        result: Any = tirx.IntImm("int64", 0)
        for index, end in enumerate(kept):
            result = self.expr(end) if index == 0 else tirx.max(result, self.expr(end))
        return result


def _shape_of(storage: Storage) -> tuple[Sequence[Any], str]:
    if isinstance(storage, Internal):
        return storage.shape, str(storage.allocation.buffer.dtype)
    return storage.shape, storage.dtype


def _expr(extent: Any) -> Any:
    return tirx.IntImm("int64", extent) if isinstance(extent, int) else extent


def _meet(a: Sequence[Lifetime], b: Sequence[Lifetime]) -> bool:
    return any(x.meets(y) for x in a for y in b)


def _evaluate(expr: Any, analyzer: Any) -> int:
    from tvm_ffi import structural_map

    def sample(v: Any) -> Any:
        return tirx.IntImm(str(v.ty.dtype), SAMPLE)

    return int(analyzer.simplify(structural_map(expr, (ir.Var, sample))))


def _polynomial(expr: Any) -> Polynomial | None:
    """`expr` as a sum of monomials; None when it is not one."""
    if isinstance(expr, tirx.IntImm):
        return {(): int(expr.value)}
    if isinstance(expr, ir.Var):
        return {(expr,): 1}
    if isinstance(expr, tirx.Cast):
        return _polynomial(expr.value)
    if not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
        return None
    left, right = _polynomial(expr.a), _polynomial(expr.b)
    if left is None or right is None:
        return None
    total: Polynomial = {}
    if isinstance(expr, tirx.Mul):
        for m, c in left.items():
            for n, d in right.items():
                key = tuple(sorted((*m, *n), key=lambda v: (v.name, hash(v))))
                total[key] = total.get(key, 0) + c * d
    else:
        sign = 1 if isinstance(expr, tirx.Add) else -1
        for m in {**left, **right}:
            total[m] = left.get(m, 0) + sign * right.get(m, 0)
    return {m: c for m, c in total.items() if c}


def _not_negative(a: Polynomial, b: Polynomial) -> bool:
    """Whether a - b >= 0 for all values >= 0 of the symbols.

    For each choice of symbols that are 0, the others are at least 1: with v = v' + 1 no coefficient
    may be negative.
    """
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
