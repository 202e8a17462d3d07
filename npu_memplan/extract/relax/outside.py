"""Calls that are not looked into: packed functions, closures, other Relax functions.

Invariant: arguments and results are tensor objects. A packed function in destination-passing style
writes its results, whole, where it is told, and keeps nothing. Any other call may keep its tensor
arguments, in its result or in an object that it was given: they are read wherever that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import ir, relax

from ...vocabulary import CALLING, COPYING, RELAX_VIEWS
from ..program import (
    Body,
    Evaluate,
    External,
    Fixed,
    Node,
    Plain,
    RelaxTensor,
    Several,
    Step,
    Value,
    View,
    result_views,
    steps,
    views,
)
from ..tir import operator_of
from .looks import ENSURE

IN_PLACE = "relax.call_inplace_packed"
KEEPERS = RELAX_VIEWS.union(
    CALLING,
    ("relax.make_closure", "relax.invoke_closure", "relax.invoke_pure_closure"),
    ("relax.to_vdevice", "relax.hint_on_device", "relax.builtin.stop_lift_params", "relax.dist.annotate_sharding"),
)
"""Operators that may keep their arguments, beside calls of functions; those of every other operator are copied."""

Make = Callable[[str, Any, Any], RelaxTensor]


class Outside:
    """The calls of one function that are not looked into; `make` makes a tensor of a name, a type, a variable.

    `used` are the variables that the function uses.
    """

    def __init__(self, make: Make, used: Collection[Any]) -> None:
        self.make = make
        self.used = used
        self.held: dict[RelaxTensor, dict[RelaxTensor, None]] = {}  # result of a call -> what it may share bytes with
        self.objects: dict[RelaxTensor, None] = {}  # what objects may hold: any of them, as they may hold each other
        self.given: set[Any] = set()  # objects that the caller passed
        self.kept: dict[RelaxTensor, None] = {}  # what those may hold
        self.allocated: set[RelaxTensor] = set()
        self.inside: set[RelaxTensor] = set()  # tensor objects that may begin anywhere in another one

    def parameter(self, name: str, ty: Any, var: Any) -> Plain:
        """A parameter (`var`), or a field of one (None), that is no tensor."""
        stands = relax.Var(name, ty) if var is None else var
        self.given.add(stands)
        return Plain(stands)

    def chosen(self, name: str, ty: Any, values: Sequence[Value]) -> View | Plain:
        """What an `if` chooses between `values` that are no tensors, or have shapes of their own, stands for."""
        if isinstance(ty, relax.TensorType):
            tensor = self.make(name, ty, None)
            held = self.reached(values)
            self.held[tensor] = held
            if not self.inside.isdisjoint(held) or any(v.partial for v in views(Several(tuple(values)))):
                self.inside.add(tensor)
            return tensor.whole
        stands = relax.Var(name, ty)
        if any(isinstance(v, Plain) and isinstance(v.expr, ir.Var) and v.expr in self.given for v in values):
            self.given.add(stands)
        return Plain(stands)

    def allocate(self, var: Any) -> View:
        """An allocation of the program's own: a workspace, most often."""
        tensor = self.make(var.name, var.ty, var)
        self.allocated.add(tensor)
        return tensor.whole

    def destination(self, var: Any, call: Any, arguments: Value, into: Body) -> Value:
        """`call_dps_packed`: its results are allocations like those of a call_tir."""
        several = isinstance(call.ty, relax.TupleType)
        types = list(call.ty.fields) if several else [call.ty]
        results = [self.make(f"{var.name}_{i}" if several else var.name, ty, var).whole for i, ty in enumerate(types)]
        given = arguments.fields if isinstance(arguments, Several) else (arguments,)
        reads = [t.touched(writes=False) for t in self.reached(given)]
        for result in results:
            result.tensor.as_object()
        writes = [r.tensor.touched(writes=True, exact=True) for r in results]
        into.nodes.append(Step(_label(call.args[0]), tuple(reads + writes)))
        into.statements.append(External(call.args[0], given, tuple(results)))
        return Several(tuple(results)) if several else results[0]

    def opaque(self, var: Any, call: Any, env: Mapping[Any, Value], into: Body) -> Value:
        """Any other call: its tensor arguments may be read, written and kept."""
        used = {v: env[v] for v in relax.analysis.free_vars(call) if v in env}
        touched = self.reached(used.values())
        accesses = [t.touched(writes=writes) for t in touched for writes in (False, True)]
        operator = operator_of(call)
        label = _label(call.args[0] if operator in CALLING else call.op)
        if operator == IN_PLACE:
            result = self.in_place(var, call, env)
        else:
            result = self.result(var.name, var.ty, var, f"it is the result of {label}")
        if (not operator or operator in KEEPERS) and not label.startswith(COPYING):
            self.keep(touched, used.values(), result if var in self.used else Several(()))
        if operator in RELAX_VIEWS and operator != ENSURE:
            self.inside.update(view.tensor for view in views(result))
        own = [view.tensor for view in views(result) if view.tensor not in touched]
        if own or accesses:
            into.nodes.append(Step(label, (*accesses, *(t.touched(writes=True, exact=True) for t in own))))
        into.statements.append(Evaluate(call, used, var, result))
        return result

    def reached(self, values: Any) -> dict[RelaxTensor, None]:
        """The tensors of `values`, those that objects hold included; they are needed as tensor objects."""
        found: dict[RelaxTensor, None] = {}
        for leaf in (leaf for value in values for leaf in result_views(value)):
            if isinstance(leaf, View):
                found[leaf.tensor] = None
                found.update(self.held.get(leaf.tensor, {}))
            elif _is_object(leaf):
                found.update(self.objects)
        for tensor in found:
            tensor.as_object()
        return found

    def result(self, name: str, ty: Any, var: Any, why: str) -> Value:
        """What a call returns: tensors of the run time, objects."""
        if isinstance(ty, relax.TupleType):
            fields = [self.result(f"{name}_{i}", t, relax.Var(f"{name}_{i}", t), why) for i, t in enumerate(ty.fields)]
            return Several(tuple(fields))
        if not isinstance(ty, relax.TensorType):
            return Plain(var)
        tensor = self.make(name, ty, var)
        tensor.external = tensor.external or why
        return tensor.whole

    def cast(self, var: Any, ty: Any, source: Plain) -> Value:
        """What `source`, an object, is once it was seen to be of type `ty`: tensors that others may hold, too."""
        touched = self.reached((source,))
        result = self.result(var.name, ty, var, "it comes out of an object")
        for view in views(result):
            self.held.setdefault(view.tensor, {}).update(touched)
        return result

    def in_place(self, var: Any, call: Any, env: Mapping[Any, Value]) -> Value:
        """The results of `call_inplace_packed`: arguments, except those of index -1."""
        types = list(var.ty.fields) if isinstance(var.ty, relax.TupleType) else [var.ty]
        fields: list[Value] = []
        for i, (ty, index) in enumerate(zip(types, call.attrs.inplace_indices, strict=True)):
            argument = call.args[int(index) + 1] if int(index) >= 0 else None
            value = env.get(argument) if argument is not None else None
            if isinstance(value, View) and isinstance(ty.shape, relax.ShapeExpr):
                fields.append(replace(value, shape=tuple(ty.shape.values), dtype=str(ty.dtype)))
            else:
                own = relax.Var(f"{var.name}_{i}", ty) if len(types) > 1 else var
                fields.append(self.result(own.name, ty, own, f"it is the result of {_label(call.args[0])}"))
        return Several(tuple(fields)) if isinstance(var.ty, relax.TupleType) else fields[0]

    def keep(self, touched: Mapping[RelaxTensor, None], arguments: Any, result: Value) -> None:
        """Notes that `result`, and objects among `arguments`, may hold the tensors `touched`."""
        for leaf in result_views(result):
            if isinstance(leaf, View) and leaf.tensor not in touched:
                self.held.setdefault(leaf.tensor, {}).update(touched)
            elif _is_object(leaf):
                self.objects.update(touched)
        for leaf in (leaf for value in arguments for leaf in result_views(value)):
            if _is_object(leaf):
                self.objects.update(touched)
                if isinstance(leaf, Plain) and leaf.expr in self.given:
                    self.kept.update(touched)

    def settle(self, nodes: Sequence[Node], result: Value) -> tuple[RelaxTensor, ...]:
        """Completes the steps once all are known; returns the tensors that something outlasting the function holds."""
        for leaf in result_views(result):
            if isinstance(leaf, View):
                self.kept.update(self.held.get(leaf.tensor, {}))
            elif _is_object(leaf):
                self.kept.update(self.objects)
        written = {a.storage for step in steps(nodes) for a in step.accesses if a.writes}
        undefined = self.allocated - written  # what is never written has no content: nothing to keep between uses
        for tensor in undefined:
            tensor.scratch = True
        for step in steps(nodes):
            accesses = [a._replace(writes=True, exact=True) if a.storage in undefined else a for a in step.accesses]
            held = {t for a in accesses if isinstance(a.storage, RelaxTensor) for t in self.held.get(a.storage, ())}
            missing = sorted(held - {a.storage for a in accesses}, key=lambda t: t.name)
            step.accesses = (*accesses, *(t.touched(writes=False) for t in missing))
        return tuple(self.kept)


def _is_object(leaf: View | Fixed | Plain) -> bool:
    """Whether a value may hold tensors; shapes and scalars do not."""
    if not isinstance(leaf, Plain):
        return False
    return not isinstance(leaf.expr, ir.Var) or not isinstance(leaf.expr.ty, relax.ShapeType | ir.PrimType)


def _label(function: Any) -> str:
    names = (getattr(function, key, "") for key in ("global_symbol", "name_hint", "name"))
    return str(next(filter(None, names), function))
