"""Relax `main` on pools: the statements of a program as bindings.

Invariant: statement order is the program's. When inputs and outputs are planned, `main` takes the writable pools and
returns nothing; otherwise it keeps its signature, makes the pools itself, and allocates only what the plan left out. A
read-only pool is one constant of `main`. A planned tensor has no Relax value; PrimFuncs find it in the pools. Only what
must be a tensor object gets one: parameters, results, and arguments of calls that are not looked into. The latter are
views of pool bytes (their offsets are multiples of the runtime's own alignment), never copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx

from ..extract.build import prepare
from ..extract.calls import begins_at_zero
from ..extract.program import (
    Cast,
    Choose,
    Evaluate,
    External,
    Fixed,
    Invoke,
    Plain,
    Program,
    RelaxTensor,
    Several,
    Statement,
    Value,
    View,
    entry_symbols,
    size_bytes,
    static_extent,
)
from ..extract.tir import nodes_of
from ..extract.walk import same_shape, walk
from ..problem import Agent, BufferKind, Plan, Problem
from ..vocabulary import (
    CALLS,
    CONSTANT_POOLS,
    FORMULAS,
    INITIALISE,
    KEPT,
    PLACED_CONSTANTS,
    PLACED_INPUTS,
    PLACED_OUTPUTS,
    PLACED_STATES,
    POOL_DEVICES,
    POOLS,
    RESULT,
    SYMBOLS,
    VIEW,
)
from .pools import (
    Apart,
    Definitions,
    PlannedPool,
    PoolSlot,
    Site,
    evaluation,
    fill,
    formula,
    holds_boundary,
    initialiser,
    pools_of,
    settle_marks,
    storages_of,
    used_by,
)
from .primfunc import Kernels


class Emitter:
    """Emits the statements of one program into `builder`, whose function the caller opens."""

    def __init__(
        self,
        program: Program,
        pools: Sequence[PlannedPool],
        slots: Mapping[str, PoolSlot],
        kernels: Kernels,
        apart: Apart,
    ) -> None:
        self.program = program
        self.pools = pools
        self.slots = slots
        self.apart = apart
        self.kernels = kernels
        self.builder = relax.BlockBuilder()
        self.pool_vars: list[Any] = []
        self.functions: dict[str, Any] = {}  # name of a kernel -> what is called
        self.objects: dict[RelaxTensor, Any] = {}  # tensors outside the pools
        self.values: dict[Any, Any] = {}  # original Relax variable -> emitted expression
        self.same = dict(_merged_names(program.statements))  # value of a branch -> what the `if` gives back
        self.described: list[list[Any]] = []  # `CALLS`

    # -- storage -----------------------------------------------------------------------------

    def make_pools(self, given: Sequence[Any] | None, poison: int | None, kept: Sequence[Any] | None = None) -> None:
        """One Relax value for each pool: constants; writable ones are `given`, the beginning of `kept` ones, or new."""
        parameters = iter(given or kept or ())
        for pool in self.pools:
            if pool.read_only:
                self.pool_vars.append(self.constant(pool.image(), pool, pool.name) if pool.constants else None)
            elif given is not None:
                self.pool_vars.append(next(parameters))
            else:
                kept_one = next(parameters) if kept is not None else None
                own = self.storage(pool, poison) if kept_one is None else self.beginning(pool, kept_one, poison)
                self.pool_vars.append(own)
                self.initialise(pool, own)

    def storage(self, pool: PlannedPool, poison: int | None) -> Any:
        """A pool allocated at run time."""
        shape = relax.ShapeExpr([pool.extent])
        storage = self.builder.emit(relax.op.memory.alloc_storage(shape, pool.device, "global", "uint8"))
        return self.fill_pool(relax.op.memory.alloc_tensor(storage, 0, shape, "uint8", pool.device), pool, poison)

    def beginning(self, pool: PlannedPool, kept: Any, poison: int | None) -> Any:
        """The part of a pool that the caller keeps that this call needs; one that is too small stops with an error."""
        size = pool.extent if static_extent(pool.extent) is None else tirx.IntImm("int64", pool.extent)
        there = kept.ty.shape.values[0]
        text = f"this call needs more of pool {pool.name} than the {{}} bytes that are there; KeptPools makes it larger"
        enough = relax.prim_value(tirx.LE(size, there))
        self.builder.emit(relax.op.assert_op(enough, [relax.prim_value(there)], format=text))
        view = self.builder.emit(relax.op.memory.view(kept, relax.ShapeExpr([size]), "uint8", 0))
        return self.fill_pool(relax.op.memory.ensure_zero_offset(view), pool, poison)

    def fill_pool(self, value: Any, pool: PlannedPool, poison: int | None) -> Any:
        """A variable for the pool that `value` makes, filled with `poison`, if that is wanted."""
        found = self.on_device(value, pool)
        if poison is not None:
            self.run("npu_memplan_poison", fill(pool, poison), found)
        return found

    def initialise(self, pool: PlannedPool, var: Any) -> None:
        """Copies the constants of a writable pool to their places."""
        if pool.constants:
            function, image = initialiser(pool)
            self.run(f"npu_memplan_fill_{pool.name}", function, self.constant(image, pool), var)

    def constant(self, values: Any, pool: PlannedPool, name: str = "") -> Any:
        """Bytes where `pool` is; the run time keeps constants on the first device."""
        found: Any = relax.const(values, "uint8")
        if pool.device:
            found = relax.op.to_vdevice(found, pool.vdevice)
        return self.builder.emit(found, name) if name or pool.device else found

    def on_device(self, value: Any, pool: PlannedPool) -> Any:
        """A variable for `value`, whose type says on which device the pool is."""
        if pool.vdevice is None:
            return self.builder.emit(value, pool.name)
        return self.builder.match_cast(self.builder.emit(value), pool.type, pool.name)

    def run(self, wanted: str, function: Any, *arguments: Any) -> None:
        """Calls a PrimFunc of this package's own."""
        name = self.kernels.names.unique_name(wanted)
        var = self.builder.add_func(function.with_attr("global_symbol", name), name)
        self.builder.emit(relax.Call(var, list(arguments)))

    def check_bounds(self) -> None:
        """A symbol above its promised bound would write past its storages: stop with an error instead."""
        for symbol, bound in self.program.bounds.items():
            text = f"{symbol.name} was promised at most {bound}, but it is {{}}; plan with a larger bound"
            limit = tirx.LE(symbol, tirx.IntImm(str(symbol.ty.dtype), bound))
            self.builder.emit(relax.op.assert_op(relax.prim_value(limit), [relax.prim_value(symbol)], format=text))

    def define(self, definitions: Definitions, used: Sequence[Any]) -> None:
        """Computes the variables of `definitions` that are `used`, by one PrimFunc on the host."""
        wanted = used_by(used, definitions)
        if not wanted:
            return
        function, needed = evaluation(definitions, wanted)
        tensors = [self.host_tensor(int(parameter.shape[0])) for parameter in function.params[:2]]
        symbols = [relax.prim_value(symbol) for symbol in needed]
        self.run("npu_memplan_offsets", function, *tensors, *symbols)
        as_shape = relax.ExternFunc("vm.builtin.tensor_to_shape")
        found = relax.Call(as_shape, [tensors[0]], ty_args=[relax.ShapeType(ndim=len(wanted))])
        self.builder.match_cast(self.builder.emit(found), relax.ShapeType(wanted))

    def host_tensor(self, count: int) -> Any:
        """`count` int64 on the host, made as the run time makes memory for its own shape symbols."""
        allocate = relax.ExternFunc("vm.builtin.alloc_shape_heap")
        counts = [relax.prim_value(tirx.IntImm("int64", count))]
        made = relax.op.call_builtin_with_ctx(allocate, counts, ty_args=[relax.TensorType((count,), "int64")])
        return self.builder.emit(made)

    def take_inputs(self) -> None:
        """Parameters stand for themselves; fields of tuple parameters are taken out."""
        for parameter in self.program.function.params:
            self.bind(self.program.values[parameter], parameter)

    def object(self, tensor: RelaxTensor) -> Any:
        """The Relax value of a tensor outside the pools, allocated on first use."""
        if tensor not in self.objects:
            shape = relax.ShapeExpr(list(tensor.shape))
            allocation = relax.op.builtin.alloc_tensor(shape, tensor.dtype, tensor.device, tensor.scope)
            self.objects[tensor] = self.builder.emit(allocation, tensor.name)
        return self.objects[tensor]

    def value(self, value: Value, *, kind: str = VIEW) -> Any:
        """A Relax expression for `value`; planned tensors become views of their pool, `kind` says what for."""
        if isinstance(value, Several):
            return relax.Tuple([self.value(field, kind=kind) for field in value.fields])
        if isinstance(value, Fixed):
            return value.expr
        if isinstance(value, Plain):
            # TVMScript reads no literal number as the argument of a function.
            number = isinstance(value.expr, tirx.IntImm)
            return self.builder.emit(value.expr, "offset") if number else self.substitute(value.expr)
        slot = self.slots.get(value.tensor.name)
        if slot is None:
            return self.reshape_view(self.object(value.tensor), value)
        self.describe(RESULT if value.tensor.scratch else kind, [(value.tensor.name, value.offset_bytes)])
        return self.seen(self.pool_vars[slot.pool], value, slot.offset)

    def reshape_view(self, tensor: Any, view: View) -> Any:
        """An object seen as `view` has it."""
        if view.dtype != view.tensor.dtype or view.partial:
            return self.seen(tensor, view, 0)
        if same_shape(view.tensor.shape, view.shape) or view.tensor.external.startswith("its shape"):
            return tensor
        return self.builder.emit(relax.op.reshape(tensor, relax.ShapeExpr(list(view.shape))))

    def seen(self, base: Any, view: View, start: Any) -> Any:
        """The tensor that `view` sees, its tensor lying at byte `start` of `base`."""
        shape = relax.ShapeExpr(list(view.shape))
        found = self.builder.emit(relax.op.memory.view(base, shape, view.dtype, start + view.offset_bytes))
        return self.builder.emit(relax.op.memory.ensure_zero_offset(found)) if begins_at_zero(view) else found

    def describe(self, what: str, found: Sequence[tuple[str, int]]) -> None:
        """Notes for `CALLS` what finds which storages in the pools."""
        starts = [start for _, start in found]
        self.described.append([what, [self.known_as(name) for name, _ in found], *([starts] if any(starts) else [])])

    def substitute(self, expr: Any) -> Any:
        if isinstance(expr, ir.Var):
            return self.values.get(expr, expr)
        return tvm_ffi.structural_map(expr, (ir.Var, lambda v: self.values.get(v, v)))

    # -- statements --------------------------------------------------------------------------

    def statements(self, statements: Sequence[Statement]) -> None:
        """Emits `statements` in order."""
        for statement in statements:
            _EMIT[type(statement)](self, statement)

    def invoke(self, call: Invoke) -> None:
        name, placed, given = self.kernels.kernel_of(Site(call, self.pools, self.slots, self.apart))
        if name not in self.functions:
            self.functions[name] = self.builder.add_func(placed.function, name)
        arguments = [
            self.value(call.arguments[i], kind=RESULT if i in call.results else VIEW) for i in placed.positions
        ]
        numbers = [self.value(number) for number in given]
        self.describe(name, [s for s in storages_of(call) if s[0] in self.slots])
        pools = [self.pool_vars[i] for i in placed.pools]
        passed = [*pools, *arguments] if call.agent is Agent.NPU else [*arguments, *pools]
        self.builder.emit(relax.Call(self.functions[name], [*passed, *numbers]))

    def known_as(self, name: str) -> str:
        """The name of a storage; the value of a branch and that of its `if` are one."""
        while name in self.same:
            name = self.same[name]
        return name

    def evaluate(self, statement: Evaluate) -> None:
        before = dict(self.values)
        for var, value in statement.arguments.items():
            self.values[var] = self.value(value)
        result = self.builder.emit(self.substitute(statement.expr), statement.var.name)
        self.values = before
        self.bind(statement.result, result)

    def bind(self, value: Value, result: Any) -> None:
        """Makes `value`, which lies in no pool, stand for the emitted `result`."""
        if isinstance(value, Several):
            for i, field in enumerate(value.fields):
                self.bind(field, self.builder.emit(relax.TupleGetItem(result, i)))
        elif isinstance(value, View):
            if value.tensor.name not in self.slots:
                self.objects[value.tensor] = result
        elif isinstance(value, Plain) and value.expr is not None:
            self.values[value.expr] = result

    def cast(self, statement: Cast) -> None:
        result = self.builder.match_cast(self.value(statement.source), statement.ty)
        if not isinstance(statement.source, View):
            self.bind(statement.result, result)
        elif isinstance(statement.result, View) and statement.result.tensor.name not in self.slots:
            self.objects.setdefault(statement.result.tensor, result)

    def external(self, call: External) -> None:
        """A call of a packed function that writes its results and returns nothing."""
        values = [*map(self.value, call.arguments), *(self.value(result, kind=RESULT) for result in call.results)]
        self.builder.emit(relax.Call(call.function, values, ty_args=[relax.TupleType([])]))

    def choose(self, statement: Choose) -> None:
        condition = self.value(statement.condition)
        for merged, *sources in statement.branch.merges:
            if merged.name not in self.slots:
                for source in sources:
                    self.objects[source] = self.object(merged)
        sides: list[Any] = []
        for statements in (statement.then, statement.other):
            objects = dict(self.objects)  # an allocation inside a branch does not reach beyond it
            self.builder._begin_binding_block()
            self.statements(statements)
            chosen = relax.Tuple([self.value(pair[len(sides)]) for _, *pair in statement.objects])
            sides.append(relax.SeqExpr([self.builder._end_block()], chosen))
            self.objects = objects
        result = self.builder.emit(relax.If(condition, *sides))
        for i, (chosen, _, _) in enumerate(statement.objects):
            self.bind(chosen, self.builder.emit(relax.TupleGetItem(result, i)))


_EMIT: dict[type, Callable[[Emitter, Any], None]] = {
    Invoke: Emitter.invoke,
    External: Emitter.external,
    Evaluate: Emitter.evaluate,
    Cast: Emitter.cast,
    Choose: Emitter.choose,
}


def _merged_names(statements: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """(name of a branch's value, name of what its `if` gives back)."""
    for statement in statements:
        if isinstance(statement, Choose):
            for merged, *sources in statement.branch.merges:
                yield from ((source.name, merged.name) for source in sources if source is not merged)
            yield from _merged_names((*statement.then, *statement.other))


_CONSTANTS = (BufferKind.CONSTANT, BufferKind.RESIDENT)


def rewrite(
    module: Any, problem: Problem, plan: Plan, *, program: Program | None = None, poison: int | None = None
) -> Any:
    """The planned module: `problem` was extracted from `module`, with the `program` where that is at hand; `plan`
    answers it.

    The problem's name is the name of the Relax function; functions it does not call stay as they
    are. With `poison`, `main` first fills the pools that it makes itself with this byte, so that
    reading what was never written shows.
    """
    module = prepare(module)
    if program is None:
        program = walk(module, problem.name, constants=any(b.kind is BufferKind.CONSTANT for b in problem.buffers))
    pools, slots = pools_of(problem, plan, program)
    return rewrite_program(module, program, pools, slots, poison=poison)


def rewrite_program(
    module: Any,
    program: Program,
    pools: Sequence[PlannedPool],
    slots: Mapping[str, PoolSlot],
    *,
    poison: int | None = None,
    definitions: Definitions = (),
    apart: Apart = lambda first, second: False,
    kept: bool = False,
    kernels: Kernels | None = None,
) -> Any:
    """`rewrite` with the placements as `slots`.

    Their offsets and the pools' bytes may be variables that `definitions` define, level by level; which storages share
    no byte then, `apart` knows. With `kept`, the function takes its pools behind its own parameters, at least as large
    as it needs them. A caller that plans several functions, each in a part of the module, gives the `kernels` that they
    share, and joins the parts (`join_parts`).
    """
    io_in_pools = holds_boundary(program, slots)
    alone = kernels is None
    replaced = {call.function for call in program.calls if not call.added}
    if kernels is None:
        replaced -= {used for used, users in users_of(module).items() if users - {program.name}}
        kernels = Kernels({gv.name_hint for gv in module.functions} - replaced)
        kernels.share(program, pools, slots, apart)
    function = program.function
    emitter = Emitter(program, pools, slots, kernels, apart)
    builder = emitter.builder
    given = _pool_parameters(pools) if io_in_pools else None
    kept = kept and not io_in_pools
    larger = [_kept_parameter(p) for p in pools if not p.read_only] if kept else None
    symbols = sorted(entry_symbols(function), key=lambda v: v.name) if io_in_pools else []
    shape = [relax.Var("symbols", relax.ShapeType(symbols))] if symbols else []
    parameters = [*given, *shape] if given is not None else [*function.params, *(larger or ())]
    with builder.function(program.name, parameters, pure=False):
        emitter.check_bounds()
        emitter.define(definitions, [*(pool.size for pool in pools), *(slot.offset for slot in slots.values())])
        emitter.make_pools(given, poison, larger)
        if not io_in_pools:
            emitter.take_inputs()
        emitter.statements(program.statements)
        result = relax.Tuple([]) if io_in_pools else emitter.value(program.result)
        builder.emit_func_output(result)
    initialise = _initialise(emitter, program.name) if io_in_pools else ""
    planned = _finish(builder)
    # A planned function writes into pools, and says so.
    attributes = {key: value for key, value in function.attrs.items() if key != "relax.force_pure"}
    attributes |= {**_place_attributes(program, pools, slots, boundary=io_in_pools), CALLS: emitter.described}
    if definitions:
        attributes[FORMULAS] = [[v.name, formula(e, choices=True)] for level in definitions for v, e in level]
    if kept:
        attributes[KEPT] = True
    if symbols:
        attributes[SYMBOLS] = [[v.name, program.bounds[v]] for v in symbols]
    if initialise:
        attributes[INITIALISE] = initialise
        gv = planned.get_global_var(initialise)
        planned.update_func(gv, planned[gv].with_attr(POOLS, attributes[POOLS]))
    made = planned[program.name]
    declared = made.ret_ty if io_in_pools else function.ret_ty  # which the run time checks
    made = relax.Function(made.params, made.body, declared, made.is_pure, made.attrs)
    planned.update_func(planned.get_global_var(program.name), made.with_attr(attributes))
    for gv, other in module.functions.items():
        if gv.name_hint != program.name and gv.name_hint not in replaced:
            planned.update_func(gv, other)
    if alone:
        _relink(planned, {program.name: planned.get_global_var(program.name)})
    for key, infos in module.global_infos.items():
        planned.update_global_info(key, list(infos))
    planned = planned.with_attrs(dict(module.attrs.items())) if module.attrs else planned
    return settle_marks(planned) if alone else planned


def _finish(builder: Any) -> Any:
    """The module of `builder` with every function under its own name, not under the one that the builder gave it where
    a variable has that; what functions call may be elsewhere, which `finalize` of the builder does not take.
    """
    made = builder.get()
    current = {}
    for gv, function in made.functions.items():
        name = str(function.attrs["global_symbol"])
        if name != gv.name_hint:
            current[gv] = ir.GlobalVar(name)
            relax.expr._update_type(current[gv], gv.ty)
    return _relink(ir.IRModule({current.get(gv, gv): f for gv, f in made.functions.items()}), current)


def _pool_parameters(pools: Sequence[PlannedPool]) -> list[Any]:
    """Parameters for the pools that the caller supplies."""
    return [relax.Var(p.name, p.type) for p in pools if not p.read_only]


def _kept_parameter(pool: PlannedPool) -> Any:
    """A parameter for a pool that is as large as the caller made it."""
    extent = tirx.Var(f"{pool.name}_given", "int64")
    return relax.Var(pool.name, relax.TensorType((extent,), "uint8", pool.vdevice))


def _initialise(emitter: Emitter, name: str) -> str:
    """Adds the function that puts constants into the caller's pools; its name, or "" when there are none."""
    writable = [p for p in emitter.pools if not p.read_only]
    if not any(p.constants for p in writable):
        return ""
    parameters = _pool_parameters(writable)
    own = emitter.kernels.names.unique_name(f"{name}_initialise")
    with emitter.builder.function(own, parameters, pure=False):
        for pool, parameter in zip(writable, parameters, strict=True):
            emitter.initialise(pool, parameter)
        emitter.builder.emit_func_output(relax.Tuple([]))
    return own


def join_parts(module: Any, parts: Mapping[str, Any], replaced: Collection[str]) -> Any:
    """`module` with each function that has a planned part as that one has it, and without what is `replaced`."""
    own = {gv.name_hint for gv in module.functions} - set(replaced) - set(parts)
    functions = {gv: f for gv, f in module.functions.items() if gv.name_hint in own}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        for gv, function in part.functions.items():
            original = gv.name_hint in own or (gv.name_hint in parts and gv.name_hint != name)
            if not original and gv.name_hint not in found:
                found[gv.name_hint] = gv
                functions[gv] = function
    result = ir.IRModule(functions, module.attrs, dict(module.global_infos.items()))
    _relink(result, found)
    return settle_marks(result)


def _relink(module: Any, current: Mapping[Any, Any]) -> Any:
    """`module` with references to functions that are in `current`, by variable or by name, as there."""

    def link(gv: Any) -> Any:
        return current.get(gv, current.get(gv.name_hint, gv))

    for gv, function in list(module.functions.items()) if current else ():
        if isinstance(function, relax.Function):
            module.update_func(gv, tvm_ffi.structural_map(function, (ir.GlobalVar, link)))
    return module


def users_of(module: Any) -> dict[str, set[str]]:
    """Names of functions -> names of the functions that refer to them."""
    found: dict[str, set[str]] = {}
    for gv, function in module.functions.items():
        for used in references(function):
            found.setdefault(used, set()).add(gv.name_hint)
    return found


def references(function: Any) -> set[str]:
    """Names of the functions that a function refers to."""
    return {used.name_hint for used in nodes_of(function.body, ir.GlobalVar)}


def _plain(size: Any) -> Any:
    extent = static_extent(size)
    return extent if extent is not None else formula(size, choices=True)


def _place_attributes(
    program: Program, pools: Sequence[PlannedPool], slots: Mapping[str, PoolSlot], *, boundary: bool
) -> dict[str, Any]:
    """The attributes that say what lies where; inputs, outputs and states where they are in the pools."""

    def entry(view: View) -> dict[str, Any]:
        tensor, slot = view.tensor, slots[view.tensor.name]
        return {
            "name": tensor.name,
            "dtype": view.dtype,
            "shape": [static_extent(e) if static_extent(e) is not None else formula(e) for e in view.shape],
            "pool": pools[slot.pool].name,
            "offset_bytes": slot.offset + view.offset_bytes,
            "size_bytes": size_bytes(view.shape, view.dtype) if view.partial else tensor.size_bytes,
        }

    found: dict[str, Any] = {POOLS: [[p.name, _plain(p.size)] for p in pools if not p.read_only]}
    if program.vdevices:
        found[POOL_DEVICES] = [p.device for p in pools if not p.read_only]
    constants = [entry(t.whole) for t in program.tensors if t.kind in _CONSTANTS]
    if constants:
        found[CONSTANT_POOLS] = [[p.name, p.size] for p in pools if p.read_only]
        found[PLACED_CONSTANTS] = constants
    if boundary:
        inputs = [t for t in program.inputs if t.kind is not BufferKind.STATE]
        found[PLACED_INPUTS] = [entry(t.whole) for t in inputs]
        found[PLACED_OUTPUTS] = [entry(v) for v in program.results]
        found[PLACED_STATES] = [entry(t.whole) for t in program.inputs if t.kind is BufferKind.STATE]
    return found
