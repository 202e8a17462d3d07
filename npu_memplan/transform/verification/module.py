"""A whole module, and the pass `VerifyMemoryPlan`: is its memory plan right, whatever made it?

Invariant: the module comes out as it went in, or `MemoryPlanError` is raised; nothing of the analysis that made a plan
is asked. Functions are followed binding by binding, at given values of their shape symbols. Every variable has a value:
bytes of a memory (`OwnedBytes`), a memory, numbers of a shape, or an unknown one. A memory that another side of a
branch made does not exist here. After a branch only what both sides agree on is certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ...vocabulary import (
    CALLING,
    CALLS,
    COPYING,
    KEPT,
    PLACED_CONSTANTS,
    PLACED_INPUTS,
    PLACED_OUTPUTS,
    PLACED_STATES,
    POOLS,
    RELAX_VIEWS,
    RESULT,
    UPPER_BOUND,
    VIEW,
)
from ..typed_pass import TypedPass, module_walk, typed_pass
from .accesses import Same, Undecided, element_bytes, number, operator_name, symbols_of
from .kernel import CallWalk, KernelText, State, run
from .memory import Fault, FaultKind, MemoryPlanError, OwnedBytes, OwnedMemory

POISON = "npu_memplan_poison"
"""Beginning of the name of the PrimFunc that fills a pool before its first use: nothing is defined after it."""


_SHAPE_HEAP = "vm.builtin.alloc_shape_heap"
"""Makes a tensor on the host, of numbers that become shapes."""


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A shape's numbers."""

    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HoldingObject:
    """Something that is no tensor and may hold tensors that a call was given."""

    places: tuple[OwnedBytes, ...]


@dataclass(slots=True)
class BindingText:
    """A binding; `called` is the function that it calls with `arguments`; `ty` and `extents` of a cast."""

    var: Any
    value: Any
    ty: Any
    extents: list[Any]
    called: str
    arguments: list[Any]


class FunctionText:
    """A Relax function, whatever its symbols are; one object stands for each variable."""

    def __init__(self, module: Any, name: str) -> None:
        self.module = module
        self.name = name
        self.function = module[name]
        self.same = Same()
        self.attributes: dict[str, Any] = dict(self.function.attrs.items())
        self.entries = [self.entry(*found) for found in self.attributes.get(CALLS, ())]
        self.known: dict[Any, list[BindingText]] = {}

    @staticmethod
    def entry(what: Any, names: Any, starts: Any = ()) -> tuple[str, list[tuple[str, int]]]:
        """An entry of `CALLS`: what finds which storages, each with the bytes of it that come before."""
        given = [str(name) for name in names[:]]
        return str(what), list(zip(given, map(int, starts[:] or [0] * len(given)), strict=True))

    def bindings(self, body: Any) -> list[BindingText]:
        """The bindings of a body, which is of the function or of a branch."""
        if body not in self.known:
            self.known[body] = [self.binding(binding) for block in body.blocks for binding in block.bindings[:]]
        return self.known[body]

    def argument(self, expr: Any) -> Any:
        """An argument of a call: a number, a variable, or another expression."""
        if isinstance(expr, tirx.IntImm):
            return int(expr.value)
        return self.same.one(expr) if isinstance(expr, ir.Var) else expr

    def binding(self, binding: Any) -> BindingText:
        """One binding."""
        value, called, arguments = binding.value, "", []
        if isinstance(value, ir.Call) and isinstance(value.op, ir.GlobalVar):
            called = value.op.name_hint
            arguments = [self.argument(a) for a in value.args[:]]
        ty = binding.ty if isinstance(binding, relax.MatchCast) else None
        extents = [self.argument(extent) for extent in _extents(ty)]
        return BindingText(self.same.one(binding.var), value, ty, extents, called, arguments)


class FunctionWalk:
    """Walks a Relax function with its symbols at `symbols`; what is found goes into `state`."""

    def __init__(self, text: FunctionText, symbols: Mapping[Any, int], state: State) -> None:
        self.text = text
        self.module, self.name, self.function = text.module, text.name, text.function
        self.known: dict[Any, Any] = {text.same.one(v): n for v, n in symbols.items()}
        self.state = state
        self.values: dict[Any, Any] = {}
        self.exists: set[Any] = set()  # variables that are defined on this side of every branch
        self.attributes = text.attributes
        self.calls = iter(text.entries)
        self.entry = next(self.calls, None)
        self.pools: dict[str, OwnedMemory] = {}  # given by the caller
        self.kept: set[OwnedMemory] = set()  # as large as the caller made them
        self.planned: set[OwnedMemory] = set()  # pools of this package's plans
        self.fresh: set[str] = set()  # what the next packed function writes
        self.count = 0

    def run(self) -> None:
        """The whole function."""
        count = len(self.attributes.get(POOLS, ()))
        parameters = [self.text.same.one(p) for p in self.function.params]
        if KEPT in self.attributes:
            pools = parameters[len(parameters) - count :]
        else:  # otherwise it makes them itself
            pools = parameters[:count] if PLACED_OUTPUTS in self.attributes else []
        for parameter in parameters:
            value = self.outside(parameter.name, parameter.ty)
            self.define(parameter, value)
            if not any(parameter is pool for pool in pools):
                for place in _leaves(value):
                    self.state.owners.write(place)
            elif KEPT in self.attributes:
                self.kept.add(value.memory)
            else:
                self.pools[parameter.name] = value.memory
                self.planned.add(value.memory)
        for key in (PLACED_INPUTS, PLACED_STATES, PLACED_CONSTANTS):
            for place in self.pool_places(key):
                self.state.owners.write(place)
        result = self.expression(self.function.body)
        for place in (*_leaves(result), *self.pool_places(PLACED_OUTPUTS)):
            self.state.read(place, f"{self.name}, the result")

    def pool_places(self, key: str) -> Iterator[OwnedBytes]:
        """The places that the attributes name in the caller's pools at the beginning, or at the end."""
        for entry in self.attributes.get(key, ()):
            memory, offset, size = self.pools.get(str(entry["pool"])), entry["offset_bytes"], entry["size_bytes"]
            if memory is not None and isinstance(offset, int) and isinstance(size, int):
                yield OwnedBytes(memory, offset, offset + size, str(entry["name"]), str(entry["name"]))

    def define(self, var: Any, value: Any) -> None:
        """`var` stands for `value` from now on."""
        self.values[var] = value
        self.exists.add(var)

    def outside(self, name: str, ty: Any) -> Any:
        """A value that comes from outside the plan: memory of its own for a tensor."""
        if isinstance(ty, relax.TupleType):
            return tuple(self.outside(f"{name}.{i}", field) for i, field in enumerate(ty.fields))
        if not isinstance(ty, relax.TensorType):
            return None
        shape = self.shape(ty.shape)
        size = None if shape is None else _bytes(shape, str(ty.dtype))
        memory = OwnedMemory(name, size)
        return OwnedBytes(memory, 0, size if size is not None else 1, memory, name, shape)

    def shape(self, expr: Any) -> tuple[int, ...] | None:
        """The numbers of a shape, None where they are not known."""
        if isinstance(expr, ir.Var | relax.Var):
            found = self.values.get(expr)
            return found.extents if isinstance(found, KnownShape) else None
        if not isinstance(expr, relax.ShapeExpr):
            return None
        try:
            return tuple(number(e, self.known) for e in expr.values)
        except Undecided:
            return None

    # -- expressions -------------------------------------------------------------------------

    def expression(self, expr: Any) -> Any:
        """The value of an expression, after everything that it does."""
        if isinstance(expr, ir.Var):
            if expr in self.values:
                return self.values[expr] if expr in self.exists else self.missing(expr)
            return self.known.get(expr)
        if isinstance(expr, ir.Call) and not operator_name(expr).startswith("tirx."):
            return self.call(expr)
        if isinstance(expr, relax.SeqExpr):
            for binding in self.text.bindings(expr):
                self.binding(binding)
            return self.expression(expr.body)
        if isinstance(expr, relax.If):
            return self.branch(expr)
        if isinstance(expr, relax.Tuple):
            return tuple(self.expression(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            whole = self.expression(expr.tuple_value)
            return whole[expr.index] if isinstance(whole, tuple) else None
        if isinstance(expr, relax.ShapeExpr):
            extents = self.shape(expr)
            return None if extents is None else KnownShape(extents)
        try:
            return number(expr, self.known)
        except Undecided:
            return None

    def missing(self, var: Any) -> Any:
        """A name that only the other side of a branch has defined."""
        text = f"{var.name!r} is used where it was not made (the other side of a branch makes it)"
        self.state.fault(FaultKind.NO_MEMORY, f"{self.name}, {self.name_call(var.name)}", text)
        return self.values[var]

    def name_call(self, label: str) -> str:
        """A call, for people."""
        return f"call {self.count} ({label})"

    def binding(self, binding: BindingText) -> None:
        """One binding."""
        if binding.called:
            value = self.invoke(binding.called, binding.arguments, binding.value)
        else:
            value = self.expression(binding.value)
        if binding.ty is not None:
            self.match(binding.extents, value)
            if value is None or isinstance(value, HoldingObject):
                held = tuple(_leaves(value))
                value = self.outside(binding.var.name, binding.ty)
                self.hold(value, held)
        self.define(binding.var, value)

    def match(self, extents: Sequence[Any], value: Any) -> None:
        """Symbols that a cast defines get their numbers."""
        actual = value.shape if isinstance(value, OwnedBytes) else getattr(value, "extents", ())
        for symbol, number_of in zip(extents, actual or (), strict=False):
            if isinstance(symbol, ir.Var):
                self.known.setdefault(symbol, number_of)

    def branch(self, expr: Any) -> Any:
        """Walk both sides of an `if`, each from the same state."""
        before, exists = self.state.owners, set(self.exists)
        self.expression(expr.cond)
        self.state.owners = before.copy()
        then = self.expression(expr.true_branch)
        first, self.state.owners, self.exists = self.state.owners, before.copy(), set(exists)
        other = self.expression(expr.false_branch)
        self.exists = exists
        ends = first, self.state.owners
        self.state.owners = ends[0].join(ends[1])
        return self.merge(then, other)

    def merge(self, then: Any, other: Any) -> Any:
        """The value that a branch gives back: the same, or a tensor of its own that has been read on each side."""
        if isinstance(then, tuple) and isinstance(other, tuple):
            return tuple(self.merge(a, b) for a, b in zip(then, other, strict=False))
        if then is other or then == other:
            return then
        if isinstance(then, OwnedBytes) and isinstance(other, OwnedBytes):
            self.state.hidden.update((then.owner, other.owner))
            return then if then.memory is other.memory else None
        return None

    # -- calls -------------------------------------------------------------------------------

    def call(self, expr: Any) -> Any:
        """One call."""
        name = operator_name(expr)
        if isinstance(expr.op, ir.GlobalVar):
            return self.invoke(expr.op.name_hint, expr.args[:], expr)
        if name.startswith(("relax.memory.", "relax.builtin.", "relax.vm.")):
            return self.memory(expr, name.rsplit(".", 1)[1])
        if name in RELAX_VIEWS:
            return self.view(expr, self.expression(expr.args[0]))
        symbol = expr.op.global_symbol if isinstance(expr.op, relax.ExternFunc) else ""
        if symbol == "vm.builtin.tensor_to_shape":
            return self.shape_from(self.expression(expr.args[0]), expr.ty)
        if (
            operator_name(expr) == "relax.call_builtin_with_ctx"
            and getattr(expr.args[0], "global_symbol", "") == _SHAPE_HEAP
        ):
            return dict[int, int]()
        if symbol == "vm.builtin.reshape":  # as TVM's DispatchSortScan makes it before planning
            return self.view(expr, self.expression(expr.args[0]))
        if name == "relax.make_closure":
            self.opaque(expr)
            return tuple(self.expression(a) for a in expr.args[1:])  # its caller reads what it captured
        return self.opaque(expr)

    def memory(self, expr: Any, name: str) -> Any:
        """Operators on memories."""
        arguments = [self.expression(a) for a in expr.args]
        self.count += name in ("alloc_tensor", "alloc_storage")
        if name == "alloc_storage":
            shape = arguments[0].extents if isinstance(arguments[0], KnownShape) else None
            kind = str(expr.args[2].value) if operator_name(expr).startswith("relax.vm.") else "uint8"
            return OwnedMemory("", None if shape is None else _bytes(shape, kind))
        if name == "alloc_tensor" and isinstance(arguments[0], OwnedMemory):
            return self.tensor(expr, arguments)
        if name == "alloc_tensor":  # of its own
            return self.outside("", expr.ty)
        if name in ("view", "ensure_zero_offset"):
            return self.view(expr, arguments[0])
        if name in ("kill_storage", "kill_tensor", "kill_object") and arguments:
            if isinstance(arguments[0], OwnedMemory):
                arguments[0].freed = True
            elif isinstance(arguments[0], OwnedBytes):
                self.state.owners.clear(arguments[0].memory, arguments[0].start, arguments[0].stop)
        return None

    def tensor(self, expr: Any, arguments: list[Any]) -> Any:
        """A tensor in a memory: of TVM's planner, or one of our pools."""
        memory, offset, shape = arguments[:3]
        if not isinstance(shape, KnownShape) or not isinstance(offset, int):
            return None
        stop = offset + _bytes(shape.extents, str(expr.ty.dtype))
        own = memory if CALLS in self.attributes else object()
        place = OwnedBytes(memory, offset, stop, own, memory.name or "a tensor", shape.extents)
        if CALLS in self.attributes:
            self.planned.add(memory)
        where = f"{self.name}, {self.name_call('alloc_tensor')}"
        if memory.freed:
            self.state.fault(FaultKind.FREED, where, f"a tensor of {stop - offset} bytes lies in freed memory")
        if memory.size_bytes is not None and stop > memory.size_bytes:
            text = f"a tensor at [{offset}, {stop}) lies in a storage of {memory.size_bytes} bytes"
            self.state.fault(FaultKind.OUTSIDE, where, text)
        return place

    def view(self, expr: Any, source: Any) -> Any:
        """The same bytes in another shape, or some of them."""
        if not isinstance(source, OwnedBytes):
            return None
        shape = self.shape(getattr(expr.ty, "shape", None))
        if operator_name(expr) != "relax.memory.view" or shape is None:
            return OwnedBytes(source.memory, source.start, source.stop, source.owner, source.name, shape)
        offset = self.expression(expr.args[3]) if len(expr.args) > 3 else 0
        if not isinstance(offset, int):
            return None
        start = source.start + offset
        stop = start + _bytes(shape, str(expr.ty.dtype))
        if source.memory in self.kept:  # as much of it as this call needs
            memory = OwnedMemory(source.name, stop)
            self.planned.add(memory)
            return OwnedBytes(memory, 0, stop, memory, source.name, shape)
        if stop > source.stop:
            where = f"{self.name}, {self.name_call('view')}"
            self.state.fault(FaultKind.OUTSIDE, where, f"a view of [{start}, {stop}) of {source}")
        whole = source.owner is source.memory  # of a view, another one: the run time's
        planned = whole and source.memory in self.planned
        if not planned or self.entry is None or self.entry[0] not in (VIEW, RESULT):
            return OwnedBytes(source.memory, start, stop, source.owner, source.name, shape)
        kind, ((name, before),) = self.entry
        self.entry = next(self.calls, None)
        place = OwnedBytes(source.memory, start, stop, name, name, shape)
        self.state.check_place(place, f"{self.name}, {self.name_call('view')}", before)
        if kind == RESULT:
            self.fresh.add(name)
        return place

    def invoke(self, name: str, given: Sequence[Any], expr: Any) -> Any:
        """A call of a function of the module, called `name`, with the arguments `given`."""
        if name not in self.state.texts:
            callee = self.module[name]
            self.state.texts[name] = KernelText(callee) if isinstance(callee, tirx.PrimFunc) else None
        kernel = self.state.texts[name]
        arguments = [a if type(a) is int else self.expression(a) for a in given]
        if kernel is None:
            return self.opaque(expr)
        if kernel.is_host and len(arguments) == len(kernel.parameters):
            run(kernel, arguments)
            return None
        entry = self.entry if self.entry is not None and self.entry[0] == name else None
        if name.startswith(POISON) and entry is None:
            for place in arguments:
                if isinstance(place, OwnedBytes):
                    self.state.owners.clear(place.memory, place.start, place.stop)
            return None
        found: list[tuple[str, int]] = []
        if entry is not None:
            found = entry[1]
            self.entry = next(self.calls, None)
            self.count += 1
        elif self.entry is None:
            self.count += 1
        if kernel.is_npu:
            self.state.hidden.update(storage for storage, _ in found)
            self.state.hidden.update(a.owner for a in arguments if isinstance(a, OwnedBytes))
        else:
            where = f"{self.name}, {self.name_call(name)}"
            if kernel.has_objects:
                pairs = zip(arguments, kernel.parameters, strict=False)
                objects = [a for a, p in pairs if isinstance(a, OwnedBytes) and p not in kernel.buffers]
                if objects:
                    self.touch(objects, where)
            call = CallWalk(self.state, where, kernel, arguments, found)
            call.run()
            if not call.touches:  # it stands for a kernel that is elsewhere
                pools = [a for a in arguments if isinstance(a, OwnedBytes) and a.memory in self.planned]
                places = {b: p for b, p in call.places.items() if p not in pools or p.owner is not p.memory}
                names = {place.owner: str(buffer.name) for buffer, place in places.items()}
                self.touch(list(places.values()), where, names, kernel.distances)
        return None

    def shape_from(self, elements: Any, ty: Any) -> KnownShape | None:
        """The shape whose extents are the elements of a tensor of the host, where all are known."""
        found = elements if isinstance(elements, dict) else {}
        known = all(i in found for i in range(ty.ndim))
        return KnownShape(tuple(found[i] for i in range(ty.ndim))) if known else None

    def opaque(self, expr: Any) -> Any:
        """A call that is not looked into: it reads what is defined, and writes what is not."""
        name = expr.op.global_symbol if isinstance(expr.op, relax.ExternFunc) else str(expr.op)
        places = [place for argument in expr.args for place in _leaves(self.expression(argument))]
        self.touch(places, f"{self.name}, {self.name_call(name)}")
        result = self.outside("a result", expr.ty)
        keeps = _may_keep(expr)
        self.hold(result, places if keeps else ())
        known = isinstance(expr.ty, relax.TupleType | relax.TensorType | relax.ShapeType | ir.PrimType)
        return HoldingObject(tuple(places)) if keeps and places and not known else result

    def hold(self, result: Any, places: Sequence[OwnedBytes]) -> None:
        """Tensors that the run time made are there, and may be `places` as well."""
        for place in _leaves(result):
            self.state.owners.write(place)
            if places:
                further = (p for given in places for p in self.state.held.get(given.owner, ()))
                self.state.held[place.owner] = [*places, *further]

    def touch(
        self,
        places: list[OwnedBytes],
        where: str,
        names: Mapping[Any, str] = MappingProxyType({}),
        distances: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> None:
        """Tensor objects are read where they are defined, and written where they are not. `distances`: of what are
        called so by `names`, what code that is not seen states of itself (`vocabulary.DISTANCES`).
        """
        written = [place for place in places if self.writes(place)]
        for place in places:
            if place not in written:
                self.state.read(place, where)
        for place in written:
            for other in places:
                if other.owner == place.owner or not other.meets(place):
                    continue
                stated = distances.get((names.get(other.owner, ""), names.get(place.owner, "")))
                if stated is not None and place.start - other.start <= stated:
                    text = f"{place} is written over {other} of the same call, whose code says that it may be"
                    self.state.undecided.setdefault(f"{where}: {text}")
                    continue
                self.state.fault(FaultKind.OVERWRITTEN, where, f"{place} is written, over {other} of the same call")
            self.state.owners.write(place)
        self.fresh.clear()

    def writes(self, place: OwnedBytes) -> bool:
        """Whether a packed function writes this argument: it is marked so, or it was never written."""
        return place.owner in self.fresh or place.owner not in self.state.owners.known


def _extents(ty: Any) -> Sequence[Any]:
    """The extents of the shape of a type, none where it says none."""
    if isinstance(ty, relax.ShapeType):
        return ty.values[:] if ty.values is not None else ()
    return ty.shape.values[:] if isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) else ()


def _may_keep(call: Any) -> bool:
    """Whether what a call gives back may be what it was given, or hold it."""
    function = call.args[0] if operator_name(call) in CALLING else call.op
    if isinstance(function, relax.ExternFunc):
        return not str(function.global_symbol).startswith(COPYING)
    return not isinstance(function, ir.Op) or "closure" in operator_name(call)


def _leaves(value: Any) -> Iterator[OwnedBytes]:
    if isinstance(value, HoldingObject):
        yield from value.places
    elif isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, OwnedBytes):
        yield value


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return element_bytes(dtype) * int(np.prod(shape, dtype=np.int64))


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
    with module_walk():
        return _find_faults(module, symbols)


def _find_faults(module: Any, symbols: Sequence[Mapping[str, int]] | None) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    """`memory_plan_faults`; what it makes is gone when it returns, so that no collector looks through it."""
    faults: dict[Fault, None] = {}
    undecided: dict[str, None] = {}
    texts: dict[str, KernelText | None] = {}
    functions = [(gv, f) for gv, f in module.functions.items() if isinstance(f, relax.Function)]
    for gv, function in functions:
        text = FunctionText(module, gv.name_hint)
        for values in _points(function, symbols):
            state = State(texts=texts)
            FunctionWalk(text, values, state).run()
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
