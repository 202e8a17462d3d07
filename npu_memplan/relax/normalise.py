"""Small rewrites that give the patterns one form to look for.

Invariant: a normalised module computes the same values. `split` becomes slices, so that each part can be a
view of its own.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax

from .reader import shape_of


@relax.expr_functor.mutator
class _SplitToSlices(relax.PyExprMutator):  # type: ignore[misc]
    def visit_tuple_getitem_(self, item: Any) -> Any:
        source = item.tuple_value
        found = self.lookup_binding(source) if isinstance(source, relax.Var) else source
        if isinstance(found, ir.Call) and isinstance(found.op, ir.Op) and found.op.name == "relax.split":
            rank = len(found.args[0].ty.shape)
            axis = int(found.attrs.axis) % rank
            widths = [shape_of(field)[axis] for field in found.ty.fields]
            begin = sum(widths[: item.index])
            return relax.op.strided_slice(
                found.args[0], [axis], [begin], [begin + widths[item.index]], [1], assume_inbound=True
            )
        return super().visit_tuple_getitem_(item)


def normalise(mod: Any) -> Any:
    """`mod` in the form that the patterns expect."""
    mutator = _SplitToSlices(mod)
    for variable, function in mod.functions_items() if hasattr(mod, "functions_items") else mod.functions.items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    changed = mutator.builder_.get()
    return relax.transform.DeadCodeElimination()(changed)
