"""One call of a PrimFunc, its internal storages and its steps; constants as storages; views.

Invariant: every call has internals of its own, also when two calls share the PrimFunc. NPU PrimFuncs are read through
`ethosu.program.primfunc` (exact byte ranges of each operation); all others through their loads and stores. Equal bytes
on one device are one storage, whatever their shapes and dtypes; a constant's content is known when the program is
compiled and is never written. Only what a PrimFunc reads is a storage: a constant that is a result, or an argument of
another call, stays a Relax constant. Resident constants of an NPU function are storages of a kind of their own. A
`View` made here lies within its tensor and begins at a multiple of its element; whether it does is known at compile
time, or there is no `View`: the run time then makes the tensor object, and checks it.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import DataType, ir, relax, sym, tirx

from ..names import Names
from ..problem import Agent, BufferKind
from ..vocabulary import ALIGN, OFFSET, PARAM_REGIONS, PARAM_ROLES, REGION, RESIDENT, ROLE, VIEW_ALIGNMENT, is_npu
from .program import (
    Candidate,
    ExtractionError,
    Fixed,
    Internal,
    Invoke,
    Plain,
    RelaxTensor,
    Step,
    StepAccess,
    View,
    allocated_shape,
    element_bytes,
    extent_key,
    size_bytes,
    static_extent,
)
from .tir import Outline, may_overlap, nodes_of, operator_of


class Constants:
    """The storage of each constant; new ones are appended to `tensors`."""

    def __init__(self, names: Names, tensors: list[RelaxTensor], pooled: bool) -> None:
        """`pooled`: all constants are storages, otherwise those alone that are resident."""
        self.names = names
        self.tensors = tensors
        self.pooled = pooled
        self.known: dict[tuple[bytes, int, BufferKind], RelaxTensor] = {}

    def view(self, constant: Fixed, wanted: str, device: int, resident: bool) -> View | Fixed:
        """The storage of `constant` on `device`, called `wanted` if it is new; sub-byte elements stay what they are."""
        if not resident and not self.pooled:
            return constant
        kind = BufferKind.RESIDENT if resident else BufferKind.CONSTANT
        dtype = str(constant.expr.ty.dtype)
        if dtype != "bool" and DataType(dtype).bits < 8:
            return constant
        values = constant.expr.value.numpy()
        content = values.tobytes()
        key = (hashlib.sha256(content).digest(), device, kind)
        shape = tuple(int(extent) for extent in values.shape)
        if key not in self.known:
            tensor = RelaxTensor(self.names.unique_name(wanted), shape, dtype, len(content), kind)
            tensor.content, tensor.device = content, device
            self.tensors.append(tensor)
            self.known[key] = tensor
        return View(self.known[key], shape, dtype)


ENSURE = "relax.memory.ensure_zero_offset"


def look(source: View, call: Any) -> View | None:
    """The view that `call` has of `source`; None where only the run time can tell."""
    ty = call.ty
    known = isinstance(ty.shape, relax.ShapeExpr) and not source.tensor.external.startswith("its shape")
    if not known or ty.dtype is None:
        return source if operator_of(call) == ENSURE else None
    shape, dtype = tuple(ty.shape.values), str(ty.dtype)
    if operator_of(call) != "relax.memory.view":
        return View(source.tensor, shape, source.dtype, source.offset_bytes, source.partial)
    first = static_extent(call.args[3]) if isinstance(call.args[3], tirx.IntImm) else _given(call.args[3])
    if first is None or not (_whole_bytes(dtype) and _whole_bytes(source.dtype)):
        return None
    start = source.offset_bytes + first
    size, own = size_bytes(shape, dtype), size_bytes(source.shape, source.dtype)
    if size is not None and own is not None:
        if first < 0 or first + size > own or start % element_bytes(dtype):
            return None
        found = View(source.tensor, shape, dtype, start, source.partial or size < own)
    elif start or not _as_large(source, shape, dtype):
        return None
    else:
        found = View(source.tensor, shape, dtype, 0, source.partial)
    source.tensor.alignment = max(source.tensor.alignment, element_bytes(dtype))
    return found


def begins_at_zero(view: View) -> bool:
    """Whether a tensor object of the view has no offset of its own: the run time moves its pointer there instead."""
    return view.offset_bytes % VIEW_ALIGNMENT == 0


def _given(offset: Any) -> int | None:
    """0 for an offset that is left out, None for one that is known at run time only."""
    return 0 if isinstance(offset.ty, relax.TupleType) else None


def _whole_bytes(dtype: str) -> bool:
    """Whether elements lie at whole bytes; what the run time packs is its own."""
    return dtype == "bool" or DataType(dtype).bits % 8 == 0


def _as_large(source: View, shape: Sequence[Any], dtype: str) -> bool:
    """Whether a view is proven to have as many bytes as its source, for all values of the symbols."""
    return bool(sym.Analyzer().can_prove_equal(_bytes(source.shape, source.dtype), _bytes(shape, dtype)))


def _bytes(shape: Sequence[Any], dtype: str) -> Any:
    return functools.reduce(operator.mul, shape, tirx.IntImm("int64", element_bytes(dtype)))


NPU_ALIGNMENT = 16

_KINDS = {"rolling": BufferKind.ROLLING, "weights": BufferKind.WEIGHTS}


@dataclass(frozen=True, slots=True)
class _Parameters:
    """What every call of a PrimFunc needs of it."""

    names: Sequence[str]
    roles: Sequence[str]  # of an NPU function
    buffers: Sequence[bool]
    objects: Sequence[bool]  # whether a parameter gets a tensor object
    agent: Agent

    @classmethod
    def of_function(cls, function: Any) -> _Parameters:
        """Those of a PrimFunc."""
        own = function.params[:]
        agent = Agent.NPU if is_npu(function) else Agent.HOST
        roles = [str(r) for r in function.attrs[PARAM_ROLES]] if agent is Agent.NPU else [""] * len(own)
        buffers = [tirx.is_buffer_var(p) for p in own]
        return cls([p.name for p in own], roles, buffers, [takes_object(p) for p in own], agent)


class CallWalker:
    """Makes `Invoke`s; `constants` says which are storages, `outlines` has those of other functions."""

    def __init__(
        self,
        names: Names,
        bounds: Mapping[Any, int],
        constants: Constants,
        outlines: dict[Any, Outline] | None = None,
    ) -> None:
        self.names = names
        self.bounds = bounds
        self.constants = constants
        self.outlines: dict[Any, Outline] = {} if outlines is None else outlines
        self.declared: dict[Any, Any] = {}
        self.parameters: dict[Any, _Parameters] = {}
        self.programs: dict[Any, Any] = {}
        self.symbols = Symbols()

    def invoke(
        self,
        index: int,
        name: str,
        function: Any,
        arguments: Sequence[View | Fixed | Plain],
        results: Collection[int] = (),
        in_place: Collection[int] = (),
    ) -> Invoke:
        """Call `index` of main, of `function` called `name`; it defines `results` and changes those `in_place`."""
        if any(self.parameters_of(function).objects):
            function = self.declare_buffers(function, arguments)
        parameters = self.parameters_of(function)
        agent, device = parameters.agent, _device(name, arguments)
        arguments = [
            self.constants.view(a, f"{name}.{own}", device, role == RESIDENT) if isinstance(a, Fixed) else a
            for a, own, role in zip(arguments, parameters.names, parameters.roles, strict=True)
        ]
        foreign = any(isinstance(a, View) and a.tensor.scope != "global" for a in arguments)
        label = f"{index}:{name}"
        result = Invoke(index, name, function, tuple(arguments), (), agent, label=label, device=device, foreign=foreign)
        result.results, result.buffers = results, parameters.buffers
        for argument in arguments:
            if isinstance(argument, View):
                argument.tensor.agents.add(agent)
                if agent is Agent.NPU:
                    argument.tensor.alignment = max(argument.tensor.alignment, NPU_ALIGNMENT)
        if agent is Agent.NPU:
            self.npu(result)
        elif any(is_object and isinstance(a, View) for a, is_object in zip(arguments, parameters.objects, strict=True)):
            self.hidden(result, in_place)
        else:
            self.host(result, in_place)
        return result

    def parameters_of(self, function: Any) -> _Parameters:
        """The parameters of a PrimFunc, looked at once."""
        if function not in self.parameters:
            self.parameters[function] = _Parameters.of_function(function)
        return self.parameters[function]

    def declare_buffers(self, function: Any, arguments: Sequence[View | Fixed | Plain]) -> Any:
        """`function` with buffers in place of handles that its body never mentions: nothing needs a tensor object."""
        handles = {
            i: a
            for i, (p, a) in enumerate(zip(function.params, arguments, strict=True))
            if takes_object(p) and isinstance(a, View)
        }
        used = set(nodes_of(function.body, ir.Var))
        handles = {i: a for i, a in handles.items() if function.params[i] not in used}
        key = (function, *((i, a.dtype, *map(extent_key, a.shape)) for i, a in handles.items()))
        if key not in self.declared:
            parameters = list(function.params)
            for i, a in handles.items():
                shape = _own_symbols(a.shape)
                parameters[i] = tirx.decl_buffer(shape, a.dtype, name=parameters[i].name, layout=None)
            self.declared[key] = tirx.PrimFunc(parameters, function.body, function.ret_type, function.attrs)
        return self.declared[key]

    def hidden(self, call: Invoke, in_place: Collection[int]) -> None:
        """Add the step of a PrimFunc that passes tensor objects on: it reads and writes what call_tir states."""
        accesses = []
        for i, argument in enumerate(call.arguments):
            if not isinstance(argument, View):
                continue
            if takes_object(call.primfunc.params[i]):
                argument.tensor.as_object()
            if i not in call.results:
                accesses.append(argument.tensor.access_all(writes=False))
            if i in call.results or i in in_place:
                accesses.append(argument.tensor.access_all(writes=True, exact=i in call.results))
        call.nodes = [Step(call.label, tuple(accesses))]

    def copy(self, index: int, source: View | Fixed | Plain, target: View) -> Invoke:
        """A call that copies `source` into `target`, element by element."""
        function, arguments = copy_function(target.shape, target.dtype), [source, target]
        if isinstance(source, View) and source.offset_bytes:
            function, arguments = self.copy_from_inside(source, target)
        made = self.invoke(index, "copy", function, arguments)
        made.added = True
        return made

    def copy_from_inside(self, source: View, target: View) -> tuple[Any, list[View | Fixed | Plain]]:
        """A PrimFunc that copies `source`, which begins somewhere in its tensor, into `target`, and its arguments."""
        # From the beginning of its tensor on: a tensor object that begins elsewhere is no argument of a PrimFunc.
        item, count = element_bytes(target.dtype), math.prod(int(e) for e in target.shape)
        first = source.offset_bytes // item
        before = View(source.tensor, (first + count,), target.dtype, 0, True)
        row = View(target.tensor, (count,), target.dtype)
        return copy_behind(first, count, target.dtype), [before, row]

    # -- host --------------------------------------------------------------------------------

    def host(self, call: Invoke, in_place: Collection[int]) -> None:
        if call.primfunc not in self.outlines:
            self.outlines[call.primfunc] = Outline(call.primfunc)
        plan = self.outlines[call.primfunc]
        if not plan.nodes and not plan.allocations:
            self.hidden(call, in_place)
            return
        internals: list[Internal] = []
        symbols = {v: self.symbols.convert(v, e) for v, e in self.symbols.values(call).items()}
        for statement in plan.allocations if not call.foreign else ():
            buffer = statement.buffer
            shape = allocated_shape(buffer)
            if symbols:
                rule = (ir.Var, lambda v: symbols.get(v, v))
                shape = tuple(
                    symbols.get(e, e) if isinstance(e, ir.Var) else tvm_ffi.structural_map(e, rule) for e in shape
                )
            size = size_bytes(shape, str(buffer.dtype), self.bounds)
            name, kind = self.names.unique_name(f"{call.function}.{buffer.name}"), BufferKind.HOST_SCRATCH
            internals.append(
                Internal(name, size, plan.least_alignment, kind, Agent.HOST, statement, shape=shape, device=call.device)
            )
        call.internals = tuple(internals)
        for i, a in enumerate(call.arguments):
            if isinstance(a, View):
                a.tensor.alignment = max(a.tensor.alignment, plan.alignments[i])
                if i in plan.strided:  # the run time checks them
                    parameter = call.primfunc.params[i].name
                    why = f"{parameter!r} of {call.function} has strides or an offset of its own"
                    a.tensor.external = a.tensor.external or why
        storages: list[RelaxTensor | Internal | None] = [
            a.tensor if isinstance(a, View) else None for a in call.arguments
        ]
        storages += [None] * (len(call.buffers) - len(storages))
        storages += internals or [None] * len(plan.allocations)
        partial = frozenset(i for i, a in enumerate(call.arguments) if isinstance(a, View) and a.partial)
        call.nodes = plan.steps(storages, call.label, symbols, partial, overlaps=plan.may_overlap)

    # -- npu ---------------------------------------------------------------------------------

    def npu(self, call: Invoke) -> None:
        from ..ethosu.program.overlap import find_overlaps
        from ..ethosu.program.primfunc import from_primfunc

        if call.primfunc not in self.programs:
            self.programs[call.primfunc] = from_primfunc(call.primfunc)
        call.npu = program = self.programs[call.primfunc]
        storages: dict[str, RelaxTensor | Internal] = {}
        regions = call.primfunc.attrs.get(PARAM_REGIONS) or [-1] * len(call.arguments)
        for parameter, argument, region in zip(call.primfunc.params, call.arguments, regions, strict=True):
            if isinstance(argument, View):
                storages[parameter.name] = argument.tensor
                if argument.tensor.region < 0:
                    argument.tensor.region = int(region)
        internals = []
        body = call.primfunc.body
        for statement in body.seq if isinstance(body, tirx.SeqStmt) else (body,):
            if isinstance(statement, tirx.AllocBuffer) and statement.buffer.scope() == "global":
                internals.append(self.npu_internal(call, statement))
                storages[statement.buffer.name] = internals[-1]
        call.internals = tuple(internals)
        steps: list[Step] = []
        for j in range(len(program.operations)):
            uses = program.uses_content(j)
            touched = [
                StepAccess(storages[name], spans, writes, writes or uses)
                for name, spans, writes in program.accesses(j)
                if name in storages
            ]
            steps.append(Step(f"{call.label}.{j}", tuple(touched)))
        call.nodes = list(steps)
        for found in find_overlaps(program) if may_overlap(call.primfunc) else ():
            first, second = (storages.get(name) for name in (found.allowed.first, found.allowed.second))
            if first is not None and second is not None:
                allowed = replace(found.allowed, first=first.name, second=second.name)
                call.overlaps.append(Candidate(allowed, steps[found.operation], steps[found.last]))

    def npu_internal(self, call: Invoke, statement: Any) -> Internal:
        notes = {str(k): v for k, v in statement.annotations.items()}
        role = str(notes.get(ROLE, ""))
        original = (int(notes[REGION]), int(notes[OFFSET])) if {REGION, OFFSET} <= notes.keys() else None
        return Internal(
            self.names.unique_name(f"{call.function}.{statement.buffer.name}"),
            size_bytes(statement.buffer.shape, str(statement.buffer.dtype)),
            max(NPU_ALIGNMENT, int(notes.get(ALIGN, NPU_ALIGNMENT))),
            _KINDS.get(role, BufferKind.NPU_INTERNAL),
            Agent.NPU,
            statement,
            role,
            original,
        )


class Symbols:
    """Reads the values of a PrimFunc's shape symbols off its arguments; looks at each PrimFunc once."""

    def __init__(self) -> None:
        self._places: dict[Any, list[tuple[int, int, Any]]] = {}
        self._converted: dict[tuple[int, int], tuple[Any, ...]] = {}  # by addresses of symbol and value, which it keeps

    def values(self, call: Invoke) -> dict[Any, Any]:
        """Shape symbols of the PrimFunc -> their values in the caller."""
        function = call.primfunc
        if function not in self._places:
            self._places[function] = [
                (i, axis, extent)
                for i, parameter in enumerate(function.params)
                for axis, extent in enumerate(parameter.shape if tirx.is_buffer_var(parameter) else (parameter,))
                if isinstance(extent, ir.Var) and not takes_object(extent)
            ]
        values: dict[Any, Any] = {}
        for i, axis, symbol in self._places[function]:
            argument = call.arguments[i]
            if isinstance(argument, Plain):
                values[symbol] = argument.expr
            else:
                shape = argument.shape if isinstance(argument, View) else argument.expr.ty.shape.values
                values.setdefault(symbol, shape[axis])
        return values

    def convert(self, symbol: Any, expr: Any) -> Any:
        """`in_type_of`, found once."""
        if isinstance(expr, int):
            return in_type_of(symbol, expr)
        key = (hash(symbol), hash(expr))
        if key not in self._converted:
            self._converted[key] = (in_type_of(symbol, expr), symbol, expr)
        return self._converted[key][0]


def takes_object(parameter: Any) -> bool:
    """Whether a parameter of a PrimFunc is a handle without a buffer, which gets a tensor object."""
    return not tirx.is_buffer_var(parameter) and not isinstance(parameter.ty, ir.PrimType)


def in_type_of(symbol: Any, expr: Any) -> Any:
    """`expr` of the caller in the type of the PrimFunc's `symbol`, which may be narrower."""
    kind = str(symbol.ty.dtype)
    if isinstance(expr, int | tirx.IntImm):
        return tirx.IntImm(kind, int(expr))
    return expr if str(expr.ty.dtype) == kind else tirx.Cast(kind, expr)


def _device(name: str, arguments: Sequence[View | Fixed | Plain]) -> int:
    """The device that all tensors of a call are on."""
    devices = {a.tensor.device: a.tensor.name for a in arguments if isinstance(a, View)}
    if len(devices) > 1:
        listed = ", ".join(f"{tensor!r} on number {device}" for device, tensor in sorted(devices.items()))
        raise ExtractionError(
            f"a call of {name} has tensors on several devices ({listed}); copy them to one with R.to_vdevice, and"
            " say in out_ty on which device the result lies"
        )
    return next(iter(devices), 0)


def copy_function(shape: Sequence[Any], dtype: str) -> Any:
    """A PrimFunc (source, target) that copies a tensor of `shape` and `dtype`."""
    shape = _own_symbols(shape)
    source = tirx.decl_buffer(shape, dtype, name="source", layout=None)
    target = tirx.decl_buffer(shape, dtype, name="target", layout=None)
    loops = [tirx.Var(f"i{k}", getattr(extent, "dtype", "int64")) for k, extent in enumerate(shape)]
    body: Any = tirx.BufferStore(target, tirx.BufferLoad(source, loops), loops)
    for loop, extent in reversed(list(zip(loops, shape, strict=True))):
        body = tirx.For(loop, 0, extent, tirx.ForKind.SERIAL, body)
    return tirx.PrimFunc([source, target], body).with_attr("s_tir", True)


def _own_symbols(shape: Sequence[Any]) -> list[Any]:
    """`shape` as a parameter can have it: an extent that is an expression gets a symbol of its own."""
    return [
        e if static_extent(e) is not None or isinstance(e, ir.Var) else tirx.Var(f"n{k}", "int64")
        for k, e in enumerate(shape)
    ]


def copy_behind(first: int, count: int, dtype: str) -> Any:
    """A PrimFunc (source, target) that copies the last `count` elements of a row of `first + count`."""
    source = tirx.decl_buffer((first + count,), dtype, name="source", layout=None)
    target = tirx.decl_buffer((count,), dtype, name="target", layout=None)
    i = tirx.Var("i", "int64")
    store = tirx.BufferStore(target, tirx.BufferLoad(source, [i + first]), [i])
    body = tirx.For(i, 0, count, tirx.ForKind.SERIAL, store)
    return tirx.PrimFunc([source, target], body).with_attr("s_tir", True)
