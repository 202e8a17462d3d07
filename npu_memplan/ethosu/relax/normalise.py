"""Small rewrites that give the patterns one form to look for.

Invariant: a normalised module computes the same values (float biases of quantised products aside, see
`stored_form`). `split` becomes slices, so that each part can be a view of its own, and one part alone a reshape; no two
operators share a dequantisation; feature maps become NHWC; moves that take channels together become one.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from ..reading.reader import name_of, shape_of
from .gathered import ChainsToGathers
from .layout import has_nchw, to_nhwc
from .stored_form import StoredForm


@relax.expr_functor.mutator
class _Parts(relax.PyExprMutator):  # type: ignore[misc]
    """Splits become slices; one part alone is what it is a part of."""

    def visit_tuple_getitem_(self, item: Any) -> Any:
        source = item.tuple_value
        found = self.lookup_binding(source) if isinstance(source, relax.Var) else source
        if name_of(found) == "split":
            axis = int(found.attrs.axis) % len(found.args[0].ty.shape)
            widths = [shape_of(field)[axis] for field in found.ty.fields]
            begin = sum(widths[: item.index])
            return relax.op.strided_slice(
                found.args[0], [axis], [begin], [begin + widths[item.index]], [1], assume_inbound=True
            )
        return super().visit_tuple_getitem_(item)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if name_of(call) == "split" and int(getattr(call.attrs.indices_or_sections, "value", 0)) == 1:
            return relax.op.reshape(call.args[0], call.args[0].ty.shape)  # there is no tuple of it
        joined: Any = call.args[0] if name_of(call) == "concat" else None
        joined = joined.fields if isinstance(joined, relax.Tuple) else ()
        return relax.op.reshape(joined[0], joined[0].ty.shape) if len(joined) == 1 else call


@relax.expr_functor.mutator
class _OneDequantiseForEachUse(relax.PyExprMutator):  # type: ignore[misc]
    """Frontends that share a dequantisation between consumers would keep each pattern from owning its own."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        return ir.Call(call.op, [self._own(a) for a in call.args], call.attrs, call.ty_args)

    def visit_tuple_(self, fields: Any) -> Any:
        return relax.Tuple([self._own(f) for f in super().visit_tuple_(fields).fields])

    def _own(self, argument: Any) -> Any:
        bound: Any = self.lookup_binding(argument) if isinstance(argument, relax.Var) else None
        if name_of(bound) == "dequantize":
            # a name that no variable of the module has: reasons for rejections are kept by name
            return self.builder_.emit(ir.Call(bound.op, bound.args, bound.attrs), name_hint=f"{argument.name}_use")
        return argument


def normalise(mod: Any) -> Any:
    """`mod` in the form that the patterns expect."""
    mod = _mutated(_mutated(mod, _Parts), StoredForm)
    if has_nchw(mod):
        mod = to_nhwc(mod)
    mod = _mutated(mod, ChainsToGathers)
    mod = _mutated(mod, _OneDequantiseForEachUse)
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(mod))


def _mutated(mod: Any, pass_: Any) -> Any:
    mutator = pass_(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()
