"""Partitioning: which operators of a Relax module the NPU runs, and why the others stay.

Invariant: every operator of `main` is either inside a composite of a function with `Codegen = "ethos-u"`, or listed
with a reason in main's attribute `npu.host_operators`. The groups are those that TVM's passes `FuseOpsByPattern` and
`MergeCompositeFunctions` make of the same patterns, which are tried in their order; the work grows with the calls, that
of the passes with their square. What has other functions of calls than `main`, or calls outside of one dataflow block,
is left to the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.dpl.pattern import CallPattern, ExprPattern, WildcardPattern

from ...vocabulary import ACCELERATOR, ARITHMETIC, HOST_OPERATORS
from ..arch import Architecture
from ..arch import accelerator as find_accelerator
from ..grouping import Node, group_nodes
from ..layers import COMPOSITES, parse_composite
from ..lower.operands import Arithmetic
from ..reading.patterns import PREFIX
from ..reading.reader import Reader, RejectedError, bindings_of, name_of
from .normalise import normalise

CODEGEN, COMPOSITE = "Codegen", "Composite"


@dataclass(frozen=True, slots=True)
class CallContext:
    """The subject of a pattern's check: an expression, and the bindings that were matched for it."""

    matched_expr: Any
    matched_bindings: Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class NamedPattern:
    """A pattern, and what decides about what it matches."""

    name: str
    pattern: Any
    check: Callable[[CallContext], bool]


def group_calls(mod: Any, patterns: Sequence[NamedPattern]) -> Any | None:
    """`mod` with functions of composites in place of the calls that patterns match; None where that is left to TVM."""
    main = mod["main"]
    if any(isinstance(f, relax.Function) and gv.name_hint != "main" for gv, f in mod.functions.items()):
        return None
    if len(main.body.blocks) != 1 or not isinstance(main.body.blocks[0], relax.DataflowBlock):
        return None
    composites = _match_patterns(list(main.body.blocks[0].bindings), patterns)
    return None if composites is None else _with_functions(mod, composites)


# ---------------------------------------------------------------------- calls to composites


@dataclass(eq=False)
class _Binding:
    """A variable and its value, or a composite's: the bindings inside, and its name."""

    variable: Any
    value: Any
    inside: tuple[Any, ...] = ()
    name: str = ""

    @cached_property
    def reads(self) -> list[Any]:
        """Variables of other bindings, by their first use."""
        own = {binding.var for binding in self.inside}
        values = [binding.value for binding in self.inside] or [self.value]
        return [v for v in dict.fromkeys(v for value in values for v in _variables(value)) if v not in own]


def _match_patterns(bindings: Sequence[Any], patterns: Sequence[NamedPattern]) -> list[_Binding] | None:
    """The bindings with composites; None where a value inside of one is used outside of it."""
    values = {binding.var: binding.value for binding in bindings}
    wanted = {named.name: tuple(_names_of_pattern(named.pattern)) for named in patterns}
    deepest = max(map(len, wanted.values()), default=0)
    spines: dict[Any, tuple[str, ...]] = {}  # operators of a call, of what makes its first argument, and so on
    by_root: dict[str, list[Any]] = {}
    for variable, value in values.items():
        if name := name_of(value):
            first = value.args[0] if value.args else None
            before = spines.get(first, ()) if isinstance(first, relax.Var) else ()
            spines[variable] = (f"relax.{name}", *before)[:deepest]
            by_root.setdefault(spines[variable][0], []).append(variable)
    bound = {value: variable for variable, value in values.items()}
    inner: dict[Any, Any] = {}  # variable of a call inside a composite -> that of the composite
    found: dict[Any, tuple[str, set[Any]]] = {}  # variable of a composite -> its name, and all variables inside
    free = tvm_ffi.Map(values)
    for named in patterns:
        names, changed = wanted[named.name], False
        for root in by_root.get(names[0], ()):
            if root in inner or root in found or spines[root][: len(names)] != names:
                continue
            matched = named.pattern.extract_matched_expr(values[root], free)
            if matched is None:
                continue
            known = [
                (pattern, bound[value], value)
                for pattern, value in matched.items()
                if value in bound and not isinstance(pattern, WildcardPattern)
            ]
            if not named.check(CallContext(values[root], {variable: value for _, variable, value in known})):
                continue
            calls = {variable for pattern, variable, _ in known if isinstance(pattern, CallPattern)}
            others = calls - {root}
            if any(v in inner or v in found for v in others):
                continue
            found[root] = named.name, {root, *others}
            inner.update(dict.fromkeys(others, root))
            changed = True
        if changed:
            free = tvm_ffi.Map({v: e for v, e in values.items() if v not in inner and v not in found})
    order = {binding.var: index for index, binding in enumerate(bindings)}
    made = []
    for binding in bindings:
        if binding.var in found:
            name, group_variables = found[binding.var]
            inside = tuple(bindings[index] for index in sorted(order[v] for v in group_variables))
            made.append(_Binding(binding.var, binding.value, inside, name))
        elif binding.var not in inner:
            made.append(_Binding(binding.var, binding.value))
    return None if any(variable in inner for one in made for variable in one.reads) else made


def _names_of_pattern(pattern: Any) -> Iterator[str]:
    """Operators of a pattern, of its first argument, and so on, as far as it says them."""
    while isinstance(pattern, CallPattern) and isinstance(pattern.op, ExprPattern):
        yield str(pattern.op.expr.name)
        pattern = pattern.args[0] if pattern.args else None


def _variables(value: Any) -> Iterator[Any]:
    """Variables that an expression reads, from the left."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, ir.Call):
        for argument in value.args:
            yield from _variables(argument)
    elif isinstance(value, relax.Tuple):
        for part in value.fields:
            yield from _variables(part)
    elif isinstance(value, relax.TupleGetItem):
        yield from _variables(value.tuple_value)


# ---------------------------------------------------------------------- composites to functions


def _with_functions(mod: Any, bindings: Sequence[_Binding]) -> Any:
    """`mod` with one function for all composites that need each other without a detour over the host."""
    functions, main = dict(mod.functions.items()), mod["main"]
    groups = group_nodes([Node(one, bool(one.name), (one.variable,), one.reads) for one in bindings])
    inside = {node.content.variable: group for group in groups for node in group.nodes}
    used = set(_variables(main.body.body))
    for group in groups:
        used.update(v for node in group.nodes for v in node.reads if inside.get(v) is not group)
    made: list[Any] = []
    for group in groups:
        members = [node.content for node in group.nodes]
        if group.on_npu:
            variable = ir.GlobalVar(f"{PREFIX}_{len(functions):06d}")
            results = [one.variable for one in members if one.variable in used]
            functions[variable], arguments = _function(members, results)
            made += _call(variable, arguments, results)
        else:
            made.append(relax.VarBinding(members[0].variable, members[0].value))
    body = relax.SeqExpr([relax.DataflowBlock(made)], main.body.body)
    functions[mod.get_global_var("main")] = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.IRModule(functions, mod.attrs)


def _function(members: Sequence[_Binding], results: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A function for the NPU, with an inner function for each composite, and the arguments of its call."""
    own = {one.variable for one in members}
    made: list[Any] = []
    for number, one in enumerate(members):
        function = _composite_function(one)
        variable = relax.Var(f"composite_{number}", function.ty)
        made.append(relax.VarBinding(variable, function))
        made.append(relax.VarBinding(one.variable, ir.Call(variable, list(one.reads), ret_ty=one.variable.ty)))
    parameters = [v for v in dict.fromkeys(v for one in members for v in one.reads) if v not in own]
    result = results[0] if len(results) == 1 else relax.Tuple(list(results))
    body = relax.SeqExpr([relax.BindingBlock(made)], result)
    return relax.Function(parameters, body, result.ty).with_attr(CODEGEN, PREFIX), parameters


def _composite_function(one: _Binding) -> Any:
    """The function of a composite."""
    body = relax.SeqExpr([relax.BindingBlock(list(one.inside))], one.variable)
    return relax.Function(one.reads, body, one.variable.ty).with_attr(COMPOSITE, one.name)


def _call(function: Any, arguments: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Bindings of the results to a call."""
    if len(results) == 1:
        return [relax.VarBinding(results[0], ir.Call(function, list(arguments), ret_ty=results[0].ty))]
    made = relax.TupleType([result.ty for result in results])
    whole = relax.Var("results", made)
    parts = [relax.VarBinding(result, relax.TupleGetItem(whole, i)) for i, result in enumerate(results)]
    return [relax.VarBinding(whole, ir.Call(function, list(arguments), ret_ty=made)), *parts]


NO_PATTERN = "no NPU pattern matches it"
# calls that only carry quantisation or shapes: never work of their own
_CARRIERS = ("quantize", "dequantize", "astype", "clip", "reshape", "permute_dims", "nn.relu")


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that stays on the host: its variable, its Relax operator, why."""

    name: str
    kind: str
    reason: str

    @property
    def only_carries(self) -> bool:
        """Whether it only carries quantisation or shapes, which is no work of its own."""
        return self.kind in _CARRIERS


# variables of main that stay on the host, where to say why others do (variable -> kind of layer, reason), and the NPU
_under_way: ContextVar[tuple[Collection[str], Rejections, Architecture | None] | None] = ContextVar(
    "_under_way", default=None
)


def _check(kind: str) -> Callable[[Any], bool]:
    def check(context: Any) -> bool:
        bindings = dict(context.matched_bindings.items())
        kept, rejections, target = _under_way.get() or ((), {}, None)
        if any(str(variable.name) in kept for variable in bindings):
            return False
        try:
            parse_composite(kind, Reader(bindings), context.matched_expr, target)
        except RejectedError as reason:
            for variable in bindings:
                # the highest priority pattern speaks first: it is the most specific
                rejections.setdefault(str(variable.name), (kind, str(reason)))
            return False
        return True

    return check


_registered: set[tuple[str, int]] = set()  # with TVM: the kind, and the number of values that are joined


def _register(mod: Any) -> None:
    """Tell TVM of the composites that it does not know: layers, and numbers of joined values, may be new."""
    known: dict[str, Collection[int]] = {"": (0,)}
    for composite in COMPOSITES.values():
        if composite.joins not in known:
            known[composite.joins] = _numbers_joined(mod, composite.joins)
        for number in known[composite.joins]:
            if (composite.kind, number) not in _registered:
                _registered.add((composite.kind, number))
                patterns = composite.patterns(number) if composite.joins else composite.patterns()
                named = [(f"{PREFIX}.{composite.kind}.{number}.{n}", pattern) for n, pattern in enumerate(patterns)]
                register_patterns([(name, pattern, {}, _check(composite.kind)) for name, pattern in named])


def _numbers_joined(mod: Any, operator: str) -> list[int]:
    """The numbers of fields in the tuples that calls of `operator` take, ascending."""
    found: set[int] = set()

    def visit(node: Any) -> None:
        if name_of(node) == operator:
            found.add(len(node.args[0].ty.fields))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sorted(found)


def kind_of(composite: str) -> str:
    """Kind of a composite's name: `ethos-u.conv2d.3` is a conv2d."""
    return composite.split(".")[1]


def partition_for_ethosu(
    mod: Any, accelerator: str = "ethos-u55-256", exclude: Collection[str] = (), keep: Mapping[str, str] | None = None
) -> Any:
    """Group what the NPU can run into functions with `Codegen = "ethos-u"`.

    `mod` is a quantised Relax module as TVM's TFLite, ONNX or PyTorch frontend makes it (QDQ form, before any
    legalisation); mark those of ONNX and PyTorch by `with_arithmetic`. `exclude` are kinds of composites
    that stay on the host, `keep` are variables of main whose operators do, and why. Every rejection is kept:
    `host_operators(mod)` reads main's attribute. Raises `AcceleratorError` for an unknown accelerator.
    """
    target = find_accelerator(accelerator)
    arithmetic = arithmetic_of(mod["main"])
    mod = normalise(mod)
    _register(mod)
    rejections: Rejections = {}
    keep = keep or {}
    token = _under_way.set((keep, rejections, target))
    try:
        patterns = [p for p in get_patterns_with_prefix(PREFIX) if kind_of(str(p.name)) not in exclude]
        named = [NamedPattern(str(p.name), p.pattern, _check(kind_of(str(p.name)))) for p in patterns]
        merged = group_calls(mod, named)
        if merged is None:
            merged = relax.transform.FuseOpsByPattern(patterns, bind_constants=True)(mod)
            merged = relax.transform.MergeCompositeFunctions()(merged)
    finally:
        _under_way.reset(token)
    for variable, function in npu_functions(merged).items():
        merged.update_func(variable, state_arithmetic(function, arithmetic))
    main = merged["main"]
    remaining = [[o.name, o.kind, keep.get(o.name, o.reason)] for o in _host_operators(main, rejections)]
    merged.update_func(
        merged.get_global_var("main"), main.with_attr(HOST_OPERATORS, remaining).with_attr(ACCELERATOR, accelerator)
    )
    return merged


def _host_operators(main: Any, rejections: Rejections) -> list[HostOperator]:
    found = []
    for binding in bindings_of(main):
        if kind := name_of(binding.value):
            name = str(binding.var.name)
            found.append(HostOperator(name, kind, rejections.get(name, ("", NO_PATTERN))[1]))
    return found


def remaining_operators(mod: Any) -> tuple[HostOperator, ...]:
    """Every operator that `partition_for_ethosu` left in main, with the reasons, in program order."""
    entries = (mod["main"].attrs or {}).get(HOST_OPERATORS, ())
    return tuple(HostOperator(*(str(part) for part in entry)) for entry in entries)


def host_operators(mod: Any) -> tuple[HostOperator, ...]:
    """The operators of `remaining_operators` that are work of their own."""
    return tuple(o for o in remaining_operators(mod) if not o.only_carries)


def npu_functions(mod: Any) -> dict[Any, Any]:
    """The functions for the NPU, by global variable."""
    functions = {gv: f for gv, f in mod.functions.items() if isinstance(f, relax.Function)}
    return {gv: f for gv, f in functions.items() if str((f.attrs or {}).get("Codegen", "")) == PREFIX}


def with_arithmetic(mod: Any, arithmetic: Arithmetic) -> Any:
    """`mod`, whose main now says what its quantised operators compute; partitioning hands it on."""
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), state_arithmetic(mod["main"], arithmetic))
    return mod


def state_arithmetic(function: Any, arithmetic: Arithmetic) -> Any:
    """`function` with `arithmetic` as its attribute."""
    return function.with_attr(ARITHMETIC, arithmetic.value)


def arithmetic_of(function: Any) -> Arithmetic:
    """The arithmetic that a function names; TFLite's when it names none."""
    return Arithmetic(str((function.attrs or {}).get(ARITHMETIC, Arithmetic.TFLITE.value)))


Rejections = dict[str, tuple[str, str]]  # variable -> kind of layer, reason
