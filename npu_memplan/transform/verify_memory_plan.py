"""`VerifyMemoryPlan`: is the memory plan of a module right, whoever made it?

Invariant: the module comes out as it went in, or `MemoryPlanError` is raised; nothing of the analysis that made
a plan is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from ..errors import NpuMemplanError
from .verification.faults import Fault, MemoryPlanError
from .verification.function import FunctionWalk
from .verification.kernel import State

UPPER_BOUND = "tir_var_upper_bound"
SAMPLES = (1, 7, 32)
"""Values of shape symbols that nobody gave one, at most their bounds."""


def memory_plan_faults(
    module: Any, symbols: Sequence[Mapping[str, int]] | None = None
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """All faults of a module's plan, and what could not be decided (as text), each once."""
    faults: dict[Fault, None] = {}
    undecided: dict[str, None] = {}
    for gv, function in module.functions.items():
        if not isinstance(function, relax.Function):
            continue
        for values in _points(function, symbols):
            state = State()
            FunctionWalk(module, gv.name_hint, values, state).run()
            faults.update(state.faults)
            undecided.update(state.undecided)
    return tuple(faults), tuple(undecided)


def _points(function: Any, given: Sequence[Mapping[str, int]] | None) -> list[dict[Any, int]]:
    """Values of the function's shape symbols to look at."""
    free: dict[str, Any] = {}
    for parameter in function.params:
        _symbols(parameter.ty, free)
    if not free:
        return [{}]
    bounds: Mapping[str, int] = {}
    if function.attrs is not None and UPPER_BOUND in function.attrs:
        bounds = {str(k): int(v) for k, v in function.attrs[UPPER_BOUND].items()}
    points = (
        [dict(p) for p in given] if given else [{name: min(s, bounds.get(name, s)) for name in free} for s in SAMPLES]
    )
    if not given:
        points += [{name: bounds.get(name, SAMPLES[-1]) for name in free}] if bounds else []
    unique = {tuple(sorted(p.items())): p for p in points}
    return [{var: point.get(name, SAMPLES[-1]) for name, var in free.items()} for point in unique.values()]


def _symbols(ty: Any, into: dict[str, Any]) -> None:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            _symbols(field, into)
    shape = ty.shape.values if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) else ()
    values = ty.values if isinstance(ty, relax.ShapeType) and ty.values is not None else ()
    for extent in (*shape, *values):
        if isinstance(extent, tvm.ir.Var):
            into.setdefault(extent.name, extent)


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.VerifyMemoryPlan")
class _VerifyMemoryPlan:
    error: NpuMemplanError | None = None

    def __init__(self, symbols: Sequence[Mapping[str, int]] | None = None) -> None:
        self.symbols = symbols

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module as it is."""
        faults, _ = memory_plan_faults(module, self.symbols)
        if faults:
            self.error = MemoryPlanError(faults)
            raise self.error
        return module


_Pass: Any = _VerifyMemoryPlan


class VerifyMemoryPlan(_Pass):  # type: ignore[misc]
    """Checks the memory plan of every Relax function of a module; the module comes back unchanged.

    Takes modules planned by `PlanMemory`, and by TVM's `StaticPlanBlockMemory` after `CallTIRRewrite`. A module
    without a plan passes. Every byte has an owner, the storage that was written there last: a read of somebody
    else's bytes, of bytes that nobody wrote, of memory that is freed, too small, misaligned, or made on the other
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

    def __call__(self, module: Any) -> Any:
        """The module; `MemoryPlanError` when its plan is wrong."""
        try:
            return super().__call__(module)
        except Exception:
            error, self._inst.error = self._inst.error, None
            if error is not None:
                raise error from None
            raise
