"""A Relax function as a `Program`: which call uses which storage, and what its calls do.

Invariant: every tensor that a call reads or writes is a storage of the program, also constants and results of opaque
calls, whose code is not read. Names that denote the same bytes (renamings, tuple fields, match_cast, reshapes and other
views) end up as one `RelaxTensor`; two tensors share bytes only through a merge of an `if`. Statements keep the program
order of the bindings. Names of storages are unique and depend on nothing but the module, so a second walk finds the
same names. A packed function in destination-passing style writes its results, whole, where it is told, and keeps
nothing. Any other call that is not looked into may keep its tensor arguments, in its result or in an object that it was
given: they are read wherever that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from ..names import Names
from ..problem import BufferKind
from ..vocabulary import CALLING, COPYING, RELAX_VIEWS, STATES, UPPER_BOUND
from .calls import ENSURE, CallWalker, Constants, begins_at_zero, look
from .program import (
    Body,
    Branch,
    Cast,
    Choose,
    Evaluate,
    External,
    ExtractionError,
    Fixed,
    Invoke,
    Node,
    Plain,
    Program,
    RelaxTensor,
    Several,
    Step,
    StepAccess,
    Value,
    View,
    entry_symbols,
    result_views,
    size_bytes,
    static_extent,
    steps,
    views,
)
from .tir import Outline, operator_of, used_variables

IN_PLACE = "relax.call_inplace_packed"
KEEPERS = RELAX_VIEWS.union(
    CALLING,
    ("relax.make_closure", "relax.invoke_closure", "relax.invoke_pure_closure"),
    ("relax.to_vdevice", "relax.hint_on_device", "relax.builtin.stop_lift_params", "relax.dist.annotate_sharding"),
)
"""Operators that may keep their arguments, beside calls of functions; those of every other operator are copied."""

Make = Callable[[str, Any, Any], RelaxTensor]


class Outside:
    """The calls of `function` that are not looked into; `make` makes a tensor of a name, a type, a variable."""

    def __init__(self, make: Make, function: Any) -> None:
        self.make = make
        self.function = function
        self.held: dict[RelaxTensor, dict[RelaxTensor, None]] = {}  # result of a call -> what it may share bytes with
        self.objects: dict[RelaxTensor, None] = {}  # what objects may hold: any of them, as they may hold each other
        self.given: set[Any] = set()  # objects that the caller passed
        self.kept: dict[RelaxTensor, None] = {}  # what those may hold
        self.allocated: set[RelaxTensor] = set()
        self.inside: set[RelaxTensor] = set()  # tensor objects that may begin anywhere in another one

    @cached_property
    def variables(self) -> set[Any]:
        """The variables that the function uses."""
        return used_variables(self.function.body)

    def parameter(self, name: str, ty: Any, var: Any) -> Plain:
        """A parameter (`var`), or a field of one (None), that is no tensor."""
        stands = relax.Var(name, ty) if var is None else var
        self.given.add(stands)
        return Plain(stands)

    def chosen(self, name: str, ty: Any, values: Sequence[Value]) -> View | Plain:
        """The value that stands for the choice of an `if` between `values` without tensors, or of unequal shapes."""
        if isinstance(ty, relax.TensorType):
            tensor = self.make(name, ty, None)
            held = self.tensors_of(values)
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
        reads = [t.access_all(writes=False) for t in self.tensors_of(given)]
        for result in results:
            result.tensor.as_object()
        writes = [r.tensor.access_all(writes=True, exact=True) for r in results]
        into.nodes.append(Step(_label(call.args[0]), tuple(reads + writes)))
        into.statements.append(External(call.args[0], given, tuple(results)))
        return Several(tuple(results)) if several else results[0]

    def opaque(self, var: Any, call: Any, env: Mapping[Any, Value], into: Body) -> Value:
        """Any other call: its tensor arguments may be read, written and kept."""
        used = {v: env[v] for v in relax.analysis.free_vars(call) if v in env}
        touched = self.tensors_of(used.values())
        accesses = [t.access_all(writes=writes) for t in touched for writes in (False, True)]
        operator = operator_of(call)
        label = _label(call.args[0] if operator in CALLING else call.op)
        if operator == IN_PLACE:
            result = self.in_place(var, call, env)
        else:
            result = self.result(var.name, var.ty, var, f"it is the result of {label}")
        if (not operator or operator in KEEPERS) and not label.startswith(COPYING):
            self.keep(touched, used.values(), result if var in self.variables else Several(()))
        if operator in RELAX_VIEWS and operator != ENSURE:
            self.inside.update(view.tensor for view in views(result))
        own = [view.tensor for view in views(result) if view.tensor not in touched]
        if own or accesses:
            into.nodes.append(Step(label, (*accesses, *(t.access_all(writes=True, exact=True) for t in own))))
        into.statements.append(Evaluate(call, used, var, result))
        return result

    def tensors_of(self, values: Any) -> dict[RelaxTensor, None]:
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
        """The value that a call returns: tensors of the run time, objects."""
        if isinstance(ty, relax.TupleType):
            fields = [self.result(f"{name}_{i}", t, relax.Var(f"{name}_{i}", t), why) for i, t in enumerate(ty.fields)]
            return Several(tuple(fields))
        if not isinstance(ty, relax.TensorType):
            return Plain(var)
        tensor = self.make(name, ty, var)
        tensor.external = tensor.external or why
        return tensor.whole

    def cast(self, var: Any, ty: Any, source: Plain) -> Value:
        """The value of `source`, an object, once it was seen to be of type `ty`: tensors that others may hold, too."""
        touched = self.tensors_of((source,))
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
            step.accesses = (*accesses, *(t.access_all(writes=False) for t in missing))
        return tuple(self.kept)


def _is_object(leaf: View | Fixed | Plain) -> bool:
    """Whether a value may hold tensors; shapes and scalars do not."""
    if not isinstance(leaf, Plain):
        return False
    return not isinstance(leaf.expr, ir.Var) or not isinstance(leaf.expr.ty, relax.ShapeType | ir.PrimType)


def _label(function: Any) -> str:
    names = (getattr(function, key, "") for key in ("global_symbol", "name_hint", "name"))
    return str(next(filter(None, names), function))


def walk(
    module: Any,
    name: str = "main",
    *,
    constants: bool = False,
    worst_case: bool = True,
    outlines: dict[Any, Outline] | None = None,
) -> Program:
    """The program of the Relax function called `name`; `module` must be prepared.

    With `constants`, what PrimFuncs read of constants are storages too (kind CONSTANT). With `worst_case`, sizes that
    depend on bounded symbols are the greatest ones; otherwise they are not known. `outlines` keeps what several
    functions of a module have in common.
    """
    return _Walker(module, name, constants=constants, worst_case=worst_case, outlines=outlines).run()


class _Walker:
    def __init__(
        self, module: Any, name: str, *, constants: bool, worst_case: bool, outlines: dict[Any, Outline] | None
    ) -> None:
        known = outlines or {}  # one object for each PrimFunc
        self.functions = {gv.name_hint: known[f].function if f in known else f for gv, f in module.functions.items()}
        self.devices = list(module.global_infos.get("vdevice", []))
        self.name = name
        function: Any = self.functions.get(name)
        self.function = function
        if not isinstance(function, relax.Function):
            relaxed = sorted(n for n, f in self.functions.items() if isinstance(f, relax.Function))
            raise ExtractionError(f"the module has no Relax function {name!r}; it has: {', '.join(relaxed) or 'none'}")
        self.names = Names()
        self.env: dict[Any, Value] = {}
        self.into = Body()
        self.tensors: list[RelaxTensor] = []
        self.calls: list[Invoke] = []
        self.states = {str(s) for s in function.attrs.get(STATES, ())}
        self.symbols: dict[int, Any] = {}  # and variables, by address
        self.bounds = _bounds(function)
        self.greatest = self.bounds if worst_case else {}
        self.call_walker = CallWalker(
            self.names, self.greatest, Constants(self.names, self.tensors, constants), outlines
        )
        self.outside = Outside(self.tensor, function)

    # -- the function ------------------------------------------------------------------------

    def run(self) -> Program:
        inputs: list[RelaxTensor] = []
        for param in self.function.params:
            self.env[self.one(param)] = self.parameter(param.name, param.ty, param, inputs)
        result = self.body(self.function.body)
        for view in views(result):
            if view.tensor.kind is BufferKind.TENSOR:
                view.tensor.kind = BufferKind.OUTPUT
        kept = self.outside.settle(self.into.nodes, result)
        del self.outside  # which refers to this object: what is in no cycle needs no garbage collection
        return Program(
            self.name,
            self.function,
            inputs,
            result,
            self.into.statements,
            self.into.nodes,
            self.tensors,
            self.calls,
            self.env,
            self.bounds,
            tuple(self.devices),
            kept,
        )

    def one(self, var: Any) -> Any:
        """One object for each variable, however often it is read off the module: looking that up is cheap."""
        return self.symbols.setdefault(hash(var), var)

    def parameter(self, name: str, ty: Any, var: Any, inputs: list[RelaxTensor]) -> Value:
        if isinstance(ty, relax.TupleType):
            return Several(tuple(self.parameter(f"{name}_{i}", t, None, inputs) for i, t in enumerate(ty.fields)))
        if not isinstance(ty, relax.TensorType):
            return self.outside.parameter(name, ty, var)
        kind = BufferKind.STATE if name in self.states else BufferKind.INPUT
        tensor = self.tensor(name, ty, var, kind)
        inputs.append(tensor)
        return tensor.whole

    def tensor(self, name: str, ty: Any, var: Any, kind: BufferKind = BufferKind.TENSOR) -> RelaxTensor:
        dtype = str(ty.dtype)
        if not isinstance(ty.shape, relax.ShapeExpr):
            shape: tuple[Any, ...] = ()
            external, size = "its shape is not known at compile time", None
        else:
            shape = tuple(map(self.one, ty.shape.values[:]))
            external, size = "", size_bytes(shape, dtype, self.greatest)
        tensor = RelaxTensor(self.names.unique_name(name), shape, dtype, size, kind, external, var=var)
        virtual = getattr(ty, "vdevice", None)
        if virtual is not None:
            tensor.device = next((i for i, v in enumerate(self.devices) if _device(v) == _device(virtual)), 0)
            tensor.scope = str(virtual.memory_scope)
            if not tensor.external and tensor.scope != "global":
                tensor.external = f"it lies in scope {tensor.scope!r}; only global memory has pools"
        self.tensors.append(tensor)
        return tensor

    def body(self, expr: Any) -> Value:
        if not isinstance(expr, relax.SeqExpr):
            return self.value(expr)
        for block in expr.blocks:
            for binding in block.bindings[:]:
                self.binding(binding)
        return self.value(expr.body)

    # -- values ------------------------------------------------------------------------------

    def value(self, expr: Any) -> Value:
        """The value of an expression without effects."""
        if isinstance(expr, ir.Var):
            return self.env.get(self.symbols.get(hash(expr), expr)) or Plain(expr)
        if isinstance(expr, ir.Tuple):
            return Several(tuple(self.value(f) for f in expr.fields[:]))
        if isinstance(expr, ir.TupleGetItem) or type(expr).__name__ == "TupleGetItem":
            whole = self.value(expr.tuple_value)
            return whole.fields[int(expr.index)] if isinstance(whole, Several) else Plain(expr)
        if type(expr).__name__ == "GenericConst":
            return Fixed(expr)
        return Plain(expr)

    def binding(self, binding: Any) -> None:
        expr, var = binding.value, self.one(binding.var)
        if isinstance(binding, relax.MatchCast):
            self.env[var] = self.match_cast(var, expr, binding.ty)
        elif isinstance(expr, relax.If):
            self.env[var] = self.choose(var, expr)
        elif isinstance(expr, ir.Call):
            self.env[var] = self.call(var, expr)
        elif isinstance(expr, relax.SeqExpr):
            self.env[var] = self.body(expr)
        else:
            self.env[var] = self.value(expr)

    def match_cast(self, var: Any, expr: Any, ty: Any) -> Value:
        """The same bytes under another type; symbols that the type defines exist from here on."""
        value = self.value(expr)
        result: Value = value
        if isinstance(value, View) and isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr):
            result = replace(value, shape=tuple(ty.shape.values))
        elif isinstance(value, Plain):
            result = self.outside.cast(var, ty, value)
        checked = isinstance(value, Plain) or (
            isinstance(value, View) and isinstance(result, View) and not same_shape(value.shape, result.shape)
        )
        if checked:
            if isinstance(value, View):
                value.tensor.view = True
            self.into.statements.append(Cast(value, ty, var, result))
        return result

    # -- calls -------------------------------------------------------------------------------

    def call(self, var: Any, call: Any) -> Value:
        name = operator_of(call)
        if name in ("relax.call_tir", "relax.call_tir_inplace"):
            return self.call_tir(var, call)
        if (kernel := called_kernel(call, self.functions)) is not None:
            return self.kernel(var, *kernel)
        if name == "relax.call_dps_packed":
            return self.outside.destination(var, call, self.value(call.args[1]), self.into)
        if name == "relax.builtin.alloc_tensor" and isinstance(call.args[0], relax.ShapeExpr) and _is_plain(call):
            return self.outside.allocate(var)
        if name == "relax.to_vdevice" and isinstance(var.ty.shape, relax.ShapeExpr):
            target = self.tensor(var.name, var.ty, var)
            self.transfer(self.value(call.args[0]), target, self.into)
            return target.whole
        source = self.value(call.args[0]) if name in RELAX_VIEWS else None
        anywhere = isinstance(source, View) and name == ENSURE and source.tensor in self.outside.inside
        seen = look(source, call) if isinstance(source, View) and not anywhere else None
        if seen is None:
            return self.outside.opaque(var, call, self.env, self.into)
        # as at run time: what does not begin where a tensor can is copied, and its writer writes the copy
        if name != ENSURE or begins_at_zero(seen):
            return seen
        own = self.tensor(var.name, call.ty, var)
        self.copy(seen, own, self.into)
        return own.whole

    def copy(self, source: View | Fixed | Plain, target: RelaxTensor, into: Body) -> None:
        """Copies what `source` sees into all of `target`."""
        if isinstance(source, View) and source.tensor in self.outside.inside:
            self.transfer(source, target, into)
            return
        call = self.call_walker.copy(len(self.calls), source, target.whole)
        self.calls.append(call)
        into.statements.append(call)
        into.nodes.extend(call.nodes)

    def call_tir(self, var: Any, call: Any) -> Value:
        arguments = self.value(call.args[1])
        leaves = list(result_views(arguments))
        types = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
        in_place = operator_of(call) == "relax.call_tir_inplace"
        reused = [int(i) for i in call.attrs.inplace_indices] if in_place else [-1] * len(types)
        results: list[View] = []
        fresh: list[View] = []
        for i, (ty, reuse) in enumerate(zip(types, reused, strict=True)):
            source = leaves[reuse] if reuse >= 0 else None
            if isinstance(source, Fixed):  # a constant stays what it is: its copy is changed
                own = self.tensor(f"{var.name}_copy", source.expr.ty, None)
                self.copy(source, own, self.into)
                leaves = [own.whole if leaf == source else leaf for leaf in leaves]
                source = own.whole
            if isinstance(source, View):
                results.append(replace(source, shape=tuple(ty.shape.values), dtype=str(ty.dtype)))
            else:
                results.append(self.tensor(var.name if len(types) == 1 else f"{var.name}_{i}", ty, var).whole)
                fresh.append(results[-1])
        scalars = [Plain(e) for e in call.args[2].values] if len(call.args) > 2 else []
        name = call.args[0].name_hint
        given = range(len(leaves), len(leaves) + len(fresh))
        invoke = self.call_walker.invoke(
            len(self.calls), name, self.functions[name], [*leaves, *fresh, *scalars], given, reused
        )
        self.calls.append(invoke)
        self.into.statements.append(invoke)
        self.into.nodes.extend(invoke.nodes)
        return Several(tuple(results)) if isinstance(call.ty, relax.TupleType) else results[0]

    def kernel(self, var: Any, name: str, given: Sequence[Any]) -> Value:
        """A PrimFunc that writes into arguments (`CallTIRRewrite` makes such calls); it returns nothing."""
        arguments = [leaf for argument in given for leaf in self.numbers(argument)]
        fresh = {
            i
            for i, a in enumerate(arguments)
            if isinstance(a, View) and a.tensor in self.outside.allocated and not a.tensor.agents
        }
        others = [i for i in range(len(arguments)) if i not in fresh]
        made = self.call_walker.invoke(len(self.calls), name, self.functions[name], arguments, fresh, others)
        self.calls.append(made)
        self.into.statements.append(made)
        self.into.nodes.extend(made.nodes)
        return Plain(var)

    def numbers(self, argument: Any) -> list[View | Fixed | Plain]:
        """The numbers that a PrimFunc gets for an argument: a shape's numbers are arguments of their own."""
        if isinstance(argument, relax.ShapeExpr):
            return [Plain(extent) for extent in argument.values]
        return list(result_views(self.value(argument)))

    def transfer(self, source: Value, target: RelaxTensor, into: Body) -> None:
        """A copy by the run time, which works on tensor objects: also to another device, or from anywhere in one."""
        target.as_object()
        into.nodes.append(Step("to_vdevice", (*_read(source), target.access_all(writes=True, exact=True))))
        copy = relax.ExternFunc("runtime.TVMTensorCopyFromTo")
        into.statements.append(External(copy, (source,), (target.whole,)))

    # -- if ----------------------------------------------------------------------------------

    def choose(self, var: Any, expr: Any) -> Value:
        condition = self.value(expr.cond)
        self.into.nodes.append(Step("if", _read(condition)))
        before = self.into
        sides: list[tuple[Body, set[RelaxTensor]]] = []
        values = []
        for part in (expr.true_branch, expr.false_branch):
            self.into, known = Body(), len(self.tensors)
            values.append(self.body(part))
            sides.append((self.into, set(self.tensors[known:])))
        self.into, ((then, _), (other, _)) = before, sides
        made = Choose(condition, then.statements, other.statements, Branch(then.nodes, other.nodes))
        result = self.merge(var.name, var.ty, values, sides, made)
        if then.statements or other.statements or made.objects:  # otherwise it does nothing
            self.into.statements.append(made)
            self.into.nodes.append(made.branch)
        return result

    def merge(
        self, name: str, ty: Any, values: list[Value], sides: Sequence[tuple[Body, set[RelaxTensor]]], made: Choose
    ) -> Value:
        """The value of an `if`: one storage, written by whichever branch runs; what holds no bytes is handed on."""
        if isinstance(ty, relax.TupleType):
            fields = []
            for i, t in enumerate(ty.fields):
                parts = [v.fields[i] if isinstance(v, Several) else v for v in values]
                fields.append(self.merge(f"{name}_{i}", t, parts, sides, made))
            return Several(tuple(fields))
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            chosen = self.outside.chosen(name, ty, values)
            made.objects.append((chosen, values[0], values[1]))
            return chosen
        if isinstance(same := values[0], View) and isinstance(values[1], View) and _alike(same, values[1]):
            return same
        branch = made.branch
        result = self.tensor(name, ty, None)
        sources: list[RelaxTensor] = []
        for value, (body, own) in zip(values, sides, strict=True):
            taken = {t for merge in branch.merges for t in merge}
            if (
                isinstance(value, View)
                and not value.partial
                and value.tensor in own
                and not value.tensor.external
                and value.tensor.device == result.device
                and value.tensor not in taken
            ):
                sources.append(value.tensor)
                continue
            assert isinstance(value, View | Fixed | Plain)
            self.copy(value, result, body)
            sources.append(result)
        branch.merges.append((result, sources[0], sources[1]))
        return result.whole


def _read(value: Value) -> tuple[StepAccess, ...]:
    """The access of something outside PrimFuncs that reads `value`."""
    if not isinstance(value, View):
        return ()
    value.tensor.as_object()
    return (value.tensor.access_all(writes=False, exact=True),)


def _device(virtual: Any) -> tuple[str, int, str]:
    """The features that tell virtual devices apart (their own comparison does not return in TVM 0.27)."""
    return str(virtual.target), int(virtual.vdevice_id), str(virtual.memory_scope)


def called_kernel(call: Any, functions: Mapping[str, Any]) -> tuple[str, Sequence[Any]] | None:
    """The name of the PrimFunc that `call` calls by itself, not through call_tir, and its arguments."""
    target, arguments = call.op, call.args
    if operator_of(call) == "relax.vm.call_tir_dyn":
        target, arguments = call.args[0], call.args[1].fields
    called = isinstance(target, ir.GlobalVar) and isinstance(functions.get(target.name_hint), tirx.PrimFunc)
    nothing = isinstance(call.ty, relax.TupleType) and not call.ty.fields
    return (target.name_hint, arguments) if called and nothing else None


def _is_plain(allocation: Any) -> bool:
    """Whether a `builtin.alloc_tensor` is in global memory of the first device."""
    return static_extent(allocation.args[2]) == 0 and str(allocation.args[3].value) == "global"


def same_shape(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether two shapes are the same, symbols by symbols."""
    return len(left) == len(right) and all(tvm_ffi.structural_equal(a, b) for a, b in zip(left, right, strict=True))


def _alike(one: View, other: View) -> bool:
    """Whether two views see the same bytes in the same way."""
    place = one.tensor is other.tensor and one.offset_bytes == other.offset_bytes
    return place and one.dtype == other.dtype and same_shape(one.shape, other.shape)


def _bounds(function: Any) -> dict[Any, int]:
    """Shape variable -> the greatest value promised by the attribute `tir_var_upper_bound`."""
    promised = {str(k): int(v) for k, v in function.attrs.get(UPPER_BOUND, {}).items()}
    return {v: promised[v.name] for v in sorted(entry_symbols(function), key=lambda v: v.name) if v.name in promised}
