"""Enlargements of maps by two that are written as repeated parts of a tensor in other shapes (UpSampling2D of Keras 3:
RESHAPE, TILE, RESHAPE, TILE, RESHAPE).

Invariant: the values are the same; what is rewritten becomes one `image.resize2d` of stored values, of the nearest one.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from tvm import ir, relax

from ...vocabulary import LAYER
from ..reading.reader import name_of, shape_of

_TYPES = ("int8", "uint8", "int16")


def join_enlargements(mod: Any, keep: Collection[str]) -> Any:
    """`mod` with enlargements as one call each, but for those of variables in `keep`."""
    mutator = _Enlargements(mod, keep)
    mutator.builder_.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    if not mutator.joined:
        return mod
    made = relax.transform.DeadCodeElimination()(mutator.builder_.get())
    used: set[str] = set()
    relax.analysis.post_order_visit(
        made["main"], lambda node: used.add(node.name_hint) if isinstance(node, ir.GlobalVar) else None
    )
    functions = {
        gv: f for gv, f in made.functions.items() if gv.name_hint in used or gv.name_hint not in mutator.joined
    }
    return ir.IRModule(functions, made.attrs)


@relax.expr_functor.mutator
class _Enlargements(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any, keep: Collection[str]) -> None:
        super().__init__(mod)
        self.functions = {gv.name_hint: f for gv, f in mod.functions.items()}
        self.keep = keep
        self.joined: set[str] = set()  # functions that repeated
        self.variable = ""  # that is being bound

    def visit_var_binding_(self, binding: Any) -> None:
        self.variable = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if name_of(call) != "reshape" or self.variable in self.keep or str(call.args[0].ty.dtype) not in _TYPES:
            return call
        size, source, blocks = [int(n) for n in call.args[1].values], call.args[0], []
        functions: set[str] = set()
        while (step := self._step(source)) is not None:
            source, block, function = step
            if function:
                blocks.append(block)
                functions.add(function)
        shape = shape_of(source.ty)
        if len(shape) != 4 or shape[0] != 1 or size != [1, 2 * shape[1], 2 * shape[2], shape[3]]:
            return call
        row, pixel = shape[2] * shape[3], shape[3]
        if blocks not in ([pixel, row], [2 * row, pixel]):  # the last one first
            return call
        self.joined |= functions
        return relax.op.image.resize2d(
            source,
            relax.ShapeExpr(size[1:3]),
            layout="NHWC",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )

    def _step(self, source: Any) -> tuple[Any, int, str] | None:
        """What a reshape or a repetition reads, how many elements are repeated at a time, and by which function; "":
        by none.
        """
        value = self.lookup_binding(source) if isinstance(source, relax.Var) else None
        if value is None or str(source.name) in self.keep:
            return None
        if name_of(value) == "reshape":
            return value.args[0], 0, ""
        if name_of(value) != "call_tir":
            return None
        layer = (self.functions[value.args[0].name_hint].attrs or {}).get(LAYER)
        if layer is None or str(layer["kind"]) != "picked":
            return None
        (read,) = value.args[1].fields
        shape = shape_of(read.ty)
        places = [[int(place) for place in axis] for axis in layer["places"]]
        repeated = [axis for axis, found in enumerate(places) if found != list(range(shape[axis]))]
        if len(repeated) != 1 or shape[repeated[0]] != 1 or places[repeated[0]] != [0, 0]:
            return None
        return read, prod(shape[repeated[0] + 1 :]), str(value.args[0].name_hint)
