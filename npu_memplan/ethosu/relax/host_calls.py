"""Calls of exact host code that the NPU can run as one layer become composites.

Invariant: a composite made here is the same call in a function of its own, with the host code's description
(`LAYER`) as an attribute; a reader without that attribute still has code that computes the right values.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tvm import ir, relax

from ...vocabulary import LAYER
from ..arch import Architecture
from ..layers import parse
from ..reading.patterns import PREFIX
from ..reading.reader import Reader, RejectedError, name_of

Rejections = dict[str, tuple[str, str]]  # variable -> kind of layer, reason


def group_host_calls(mod: Any, target: Architecture, exclude: Collection[str], rejections: Rejections) -> Any:
    """`mod` with composites in place of the calls in `main` that the NPU `target` can run.

    `exclude` are kinds of layers to leave on the host; why others stay there is added to `rejections`.
    """
    mutator = _Grouping(mod, target, exclude, rejections)
    mutator.builder_.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Grouping(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any, target: Architecture, exclude: Collection[str], rejections: Rejections) -> None:
        super().__init__(mod)
        self.target = target
        self.functions = {gv.name_hint: f for gv, f in mod.functions.items()}
        self.exclude, self.rejections = exclude, rejections
        self.variable = ""  # that is being bound

    def visit_var_binding_(self, binding: Any) -> None:
        self.variable = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if name_of(call) != "call_tir":
            return call
        layer = (self.functions[call.args[0].name_hint].attrs or {}).get(LAYER)
        if layer is None or str(layer["kind"]) in self.exclude:
            return call
        kind = str(layer["kind"])
        try:
            match = parse(kind, Reader({}, layer), call, self.target)
        except RejectedError as reason:
            self.rejections[self.variable] = (kind, str(reason))
            return call
        variables = tuple(dict.fromkeys(v for v in match.variables if v is not None))
        composite = _composite(call, variables, {"Composite": f"{PREFIX}.{kind}.0", LAYER: layer})
        return ir.Call(self.builder_.add_func(composite, f"composite_{kind}"), list(variables))


def _composite(call: Any, variables: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """A function of `variables` that makes `call`."""
    parameters = {v: relax.Var(v.name, v.ty) for v in variables}
    arguments = relax.Tuple([parameters.get(a, a) for a in call.args[1].fields])
    result = relax.Var("result", call.ty)
    inner = ir.Call(call.op, [call.args[0], arguments, *call.args[2:]], call.attrs, call.ty_args)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, inner)])], result)
    function = relax.Function(list(parameters.values()), body, call.ty, is_pure=True)
    return function.with_attr("Primitive", True).with_attr(attributes)
