"""Workspaces for packed functions: what a library allocates becomes an allocation of the program, and is planned.

Invariant: a call that gets a workspace is the same call with one more argument, a uint8 tensor behind the others, as
TVM's own `AllocateWorkspace` passes it; the module runs with a plan and without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax

from ..extract.tir import operator_of

Size = int | str | Callable[..., Any]


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.AllocateWorkspaces")
class AllocateWorkspaces:
    """Gives calls of packed functions (`call_dps_packed`) the workspaces that they ask for.

    Parameters
    ----------
    sizes : mapping of str to int, str or callable
        Name of the packed function -> bytes: a number, or a function of the types of the arguments and then of the
        results that returns a number or an expression of shape symbols, or the name of such a function that is
        registered with `tvm.register_global_func`. 0 is no workspace.
    """

    def __init__(self, sizes: Mapping[str, Size]) -> None:
        self.sizes = dict(sizes)

    def transform_module(self, module: Any, context: Any) -> Any:
        """The module with workspaces."""
        adder = _Adder(module, self.sizes)
        for gv, function in module.functions.items():
            if isinstance(function, relax.Function):
                adder.builder_.update_func(gv, adder.visit_expr(function))
        return adder.builder_.get()


@relax.expr_functor.mutator
class _Adder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, sizes: Mapping[str, Size]) -> None:
        super().__init__(module)
        self.sizes = sizes

    def visit_call_(self, call: Any) -> Any:
        """A call with its workspace, if it needs one."""
        call = super().visit_call_(call)
        packed = operator_of(call) == "relax.call_dps_packed" and isinstance(call.args[0], relax.ExternFunc)
        name = str(call.args[0].global_symbol) if packed else ""
        if name not in self.sizes:
            return call
        arguments = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
        size = self.sizes[name]
        if not isinstance(size, int):
            outcome = call.ty_args[0]
            results = list(outcome.fields) if isinstance(outcome, relax.TupleType) else [outcome]
            function = tvm.get_global_func(size) if isinstance(size, str) else size
            size = function(*(a.ty for a in arguments), *results)
        if isinstance(size, int) and size == 0:
            return call
        allocation = relax.op.builtin.alloc_tensor(relax.ShapeExpr([size]), "uint8", 0)
        workspace = self.builder_.emit(allocation, "workspace")
        return relax.Call(call.op, [call.args[0], relax.Tuple([*arguments, workspace])], call.attrs, call.ty_args)
