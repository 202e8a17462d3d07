"""Functions for the NPU become PrimFuncs; the rest of main stays Relax.

Invariant: afterwards no function has a `Codegen` attribute; each NPU function is one PrimFunc in the same
form as a lifted stream, called with its constants as one Relax constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..arch import accelerator as find_accelerator
from ..lower.lower import FEW_BYTES, LoweringTarget, OperatorOf, lower
from ..program.primfunc import to_primfunc
from .graphs import build_graph
from .partition import offloaded


@relax.expr_functor.mutator
class _CallNpu(relax.PyExprMutator):  # type: ignore[misc]
    """Calls of lowered functions become call_tir."""

    def __init__(self, mod: Any, lowered: dict[str, tuple[Any, bytes]]) -> None:
        super().__init__(mod)
        self.lowered = lowered

    def visit_call_(self, call: Any) -> Any:
        if not isinstance(call.op, ir.GlobalVar) or call.op.name_hint not in self.lowered:
            return super().visit_call_(call)
        primfunc, constants = self.lowered[call.op.name_hint]
        arguments = [self.visit_expr(a) for a in call.args]
        if constants:
            arguments.append(relax.const(np.frombuffer(constants, np.uint8)))
        variable = self.builder_.add_func(primfunc, str(primfunc.attrs["global_symbol"]))
        made = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else call.ty
        return relax.call_tir(variable, relax.Tuple(arguments), made)


def lower_for_ethosu(
    mod: Any,
    accelerator: str = "ethos-u55-256",
    lowering_target: LoweringTarget = FEW_BYTES,
    operators: OperatorOf | None = None,
) -> Any:
    """Lower every `Codegen = "ethos-u"` function of a partitioned module to NPU operations.

    `operators` says which operator of the source model a layer is (see `lower`).
    """
    target = find_accelerator(accelerator)
    lowered: dict[str, tuple[Any, bytes]] = {}
    for number, (variable, function) in enumerate(sorted(offloaded(mod).items(), key=lambda item: item[0].name_hint)):
        name = f"ethosu_{number}"
        result = lower(build_graph(function, name), target, lowering_target, operators)
        primfunc = to_primfunc(result.program)
        lowered[variable.name_hint] = (primfunc.with_attr("global_symbol", name), result.constants)
    mutator = _CallNpu(mod, lowered)
    mutator.builder_.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    result_mod = mutator.builder_.finalize()
    functions = {gv: f for gv, f in result_mod.functions.items() if gv.name_hint not in lowered}
    return tvm.IRModule(functions, result_mod.attrs)
