"""Sizes in bytes that depend on shape symbols: their values, and which of them is never the smaller one.

Invariant: sizes are rounded up to one `alignment`, so that sums of sizes are offsets for any buffer. "a >= b" is
accepted only when it is proven for all values of the symbols, 0 included: by expanding the difference into monomials
and seeing no negative coefficient, or by TVM's analyser under the promised bounds. Values at samples only refute.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from ..sizes import Unknown, element_bytes, number, static_extent
from ..tir import nodes_of, operator_of

MOST_SYMBOLS = 8
"""Proofs look at every subset of the symbols; above this many nothing is proven."""

Polynomial = dict[tuple[Any, ...], int]  # monomial (sorted variables) -> coefficient
Values = Mapping[Any, int]

_REFUTING = (0, 1, 2, 3, 5, 64, 1000)


class Extents:
    """Distinct sizes by number. `shapes` are all that will be requested; `bounds` are promised greatest values.

    `alignment` is that of every size and offset, in bytes.
    """

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
            return self.constant(self.rounded(int(total)))
        exact = self.polynomial(total)
        key = frozenset(exact.items()) if exact is not None else str(total)
        aligned = total
        if exact is None or any(c % self.alignment for c in exact.values()):
            aligned = self._analyzer.simplify((total + (self.alignment - 1)) // self.alignment * self.alignment)
        rounded = self._intern(key, aligned, exact, total)
        if aligned is not total and rounded not in self._unrounded:
            self._unrounded[rounded] = self._intern(("unrounded", key), total, exact)
        return rounded

    def unrounded(self, size: int) -> int:
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

    def rounded(self, size_bytes: int) -> int:
        """`size_bytes` rounded up to the alignment; at least one unit, so that every buffer has an address."""
        return max(1, -(-size_bytes // self.alignment)) * self.alignment

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
        for node in () if isinstance(expr, int) else nodes_of(expr, tirx.FloorDiv, tirx.FloorMod):
            divisor = static_extent(node.b)
            if isinstance(node.a, ir.Var) and divisor is not None and divisor > 1:
                found.setdefault(node.a, set()).add(divisor)
    return {
        v: (min(numbers), tirx.Var(f"{v.name}_quotient", "int64"), tirx.Var(f"{v.name}_rest", "int64"))
        for v, numbers in found.items()
        if len(numbers) == 1
    }


def not_negative(a: Polynomial, b: Polynomial) -> bool:
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
