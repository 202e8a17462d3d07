"""A whole module, and the pass `VerifyMemoryPlan`: is its memory plan right, whatever made it?

Invariant: the module comes out as it went in, or `MemoryPlanError` is raised; nothing of the analysis that made
a plan is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from ...vocabulary import UPPER_BOUND
from ..typed_pass import TypedPass, deep_recursion, typed_pass
from .faults import Fault, MemoryPlanError
from .function import FunctionWalk
from .kernel import KernelText, State
from .numbers import symbols_of

SAMPLES = (1, 7, 32)
"""Values of shape symbols that were not given one, at most their bounds."""


def memory_plan_faults(
    module: Any, symbols: Sequence[Mapping[str, int]] | None = None
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """All faults of a module's plan, and what could not be decided, each once.

    Parameters
    ----------
    module : IRModule
        Planned by `PlanMemory`, or by TVM's `StaticPlanBlockMemory` after `CallTIRRewrite`.
    symbols : sequence of mapping of str to int, optional
        Values of shape symbols to look at, each as one point; when left out, a few up to their bounds.

    Returns
    -------
    tuple of Fault, tuple of str
        The faults; what could not be decided, as text.
    """
    faults: dict[Fault, None] = {}
    undecided: dict[str, None] = {}
    texts: dict[Any, KernelText] = {}
    for gv, function in module.functions.items():
        if not isinstance(function, relax.Function):
            continue
        for values in _points(function, symbols):
            state = State(texts=texts)
            with deep_recursion():
                FunctionWalk(module, gv.name_hint, values, state).run()
            faults.update(state.faults)
            undecided.update(state.undecided)
    return tuple(faults), tuple(undecided)


def _points(function: Any, given: Sequence[Mapping[str, int]] | None) -> list[dict[Any, int]]:
    """Values of the function's shape symbols to look at."""
    free = {symbol.name: symbol for symbol in sorted(symbols_of(function), key=lambda v: v.name)}
    if not free:
        return [{}]
    bounds = {str(k): int(v) for k, v in function.attrs.get(UPPER_BOUND, {}).items()}
    points = list(given or ({name: min(s, bounds.get(name, s)) for name in free} for s in SAMPLES))
    if bounds and not given:
        points.append({name: bounds.get(name, SAMPLES[-1]) for name in free})
    unique = {tuple(sorted(p.items())): p for p in points}
    return [{var: point.get(name, SAMPLES[-1]) for name, var in free.items()} for point in unique.values()]


@typed_pass
class VerifyMemoryPlan(TypedPass):
    """Checks the memory plan of every Relax function of a module; the module comes back unchanged.

    Takes modules planned by `PlanMemory`, and by TVM's `StaticPlanBlockMemory` after `CallTIRRewrite`. A module
    without a plan passes. Every byte has an owner, the storage that was written there last: a read of another's
    bytes, of bytes that were never written, of memory that is freed, too small, misaligned, or made on the other
    side of a branch is a fault. Where storages share bytes within one statement, its accesses are gone through one
    by one.

    Parameters
    ----------
    symbols : sequence of mapping of str to int, optional
        Values of shape symbols to look at, each as one point; when left out, a few up to their bounds.

    Raises
    ------
    MemoryPlanError
        With all faults found, `error.faults`. Inside a `Sequential` TVM turns it into its own error with the same text.
    """

    def __init__(self, symbols: Sequence[Mapping[str, int]] | None = None) -> None:
        self.symbols = symbols

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module as it is."""
        faults, _ = memory_plan_faults(module, self.symbols)
        if faults:
            raise MemoryPlanError(faults)
        return module
