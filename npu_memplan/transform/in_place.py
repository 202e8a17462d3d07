"""Calls in place, and what else looks at the bytes that they change.

Invariant: a reshape gives a tensor of its own: writing its result in place does not change its argument, nor the
other way round. Names of the same bytes (renamings, `memory.view`) are changed together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, relax

from ..extract.tir import nodes_of, operator_of
from ..vocabulary import RELAX_VIEWS, RESHAPING

IN_PLACE = ("relax.call_tir_inplace", "relax.call_inplace_packed")

_RESHAPING = frozenset(f"relax.{name}" for name in RESHAPING)


class _Classes:
    """Variables in classes that are joined one by one."""

    def __init__(self) -> None:
        self.parents: dict[Any, Any] = {}

    def of(self, var: Any) -> Any:
        """The representative of the class of `var`."""
        while var in self.parents:
            var = self.parents[var]
        return var

    def join(self, var: Any, others: Iterable[Any]) -> None:
        for other in others:
            first, second = self.of(var), self.of(other)
            if first != second:
                self.parents[first] = second


def writes_in_place(function: Any) -> bool:
    """Whether a Relax function has calls in place."""
    return any(operator_of(call) in IN_PLACE for call in nodes_of(function.body, ir.Call))


def _changed(call: Any) -> set[Any]:
    """The variables whose bytes a call in place changes, and whose they stay."""
    arguments = call.args[1].fields if operator_of(call) == IN_PLACE[0] else call.args[1:]
    given = (arguments[int(i)] for i in call.attrs.inplace_indices if int(i) >= 0)
    return {var for argument in given for var in nodes_of(argument, ir.Var)}


def reshapes_need_copies(function: Any) -> bool:
    """Whether bytes are changed in place that are still needed in another shape."""
    if not writes_in_place(function):
        return False
    bindings = nodes_of(function.body, relax.VarBinding, relax.MatchCast)
    same, seen = _Classes(), _Classes()  # without and with reshapes
    uses: list[set[Any]] = []
    for binding in bindings:
        value = binding.value
        used = set(nodes_of(value, ir.Var))
        uses.append(used)
        operator = operator_of(value)
        if isinstance(value, ir.Call) and operator not in RELAX_VIEWS:
            used = _changed(value) if operator in IN_PLACE else set()  # otherwise a tensor of its own
        seen.join(binding.var, used)
        if operator not in _RESHAPING:
            same.join(binding.var, used)
    for part in nodes_of(function.body, relax.SeqExpr):
        uses.append(set(nodes_of(part.body, ir.Var)))
    for index, binding in enumerate(bindings):
        if operator_of(binding.value) not in IN_PLACE:
            continue
        # what is seen after the change is what was meant to be seen
        later = set().union(*uses[index + 1 :]).difference(b.var for b in bindings[index:])
        for var in _changed(binding.value):
            if any(seen.of(w) == seen.of(var) and same.of(w) != same.of(var) for w in later):
                return True
    return False
