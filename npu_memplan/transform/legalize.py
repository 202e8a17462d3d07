"""Bring any Relax module to the form that is planned.

Invariant: afterwards every tensor operator is a call_tir of a PrimFunc (or a call that is not looked into), operators
that only look at bytes in another shape are still operators, and private Relax functions are inlined into their
callers, except those that are values (of closures), which become functions of their own. A reshape gives a tensor of
its own: writing its result in place does not change its argument, nor the other way round. Names of the same bytes
(renamings, `memory.view`) are changed together.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, sym, tirx

from ..extract.build import prepare
from ..extract.program import entry_symbols
from ..extract.tir import nodes_of, operator_of
from ..vocabulary import RELAX_VIEWS, RESHAPING

IN_PLACE = ("relax.call_tir_inplace", "relax.call_inplace_packed")

_RESHAPING = frozenset(f"relax.{name}" for name in RESHAPING)


class _Classes:
    """Variables in classes that are joined one by one."""

    def __init__(self) -> None:
        self.parents: dict[Any, Any] = {}

    def representative(self, var: Any) -> Any:
        """The representative of the class of `var`."""
        while var in self.parents:
            var = self.parents[var]
        return var

    def join(self, var: Any, others: Iterable[Any]) -> None:
        for other in others:
            first, second = self.representative(var), self.representative(other)
            if first != second:
                self.parents[first] = second


def writes_in_place(function: Any) -> bool:
    """Whether a Relax function has calls in place."""
    return any(operator_of(call) in IN_PLACE for call in nodes_of(function.body, ir.Call))


def _changed_variables(call: Any) -> set[Any]:
    """The variables whose bytes a call in place changes, and whose they stay."""
    arguments = call.args[1].fields if operator_of(call) == IN_PLACE[0] else call.args[1:]
    given = (arguments[int(i)] for i in call.attrs.inplace_indices if int(i) >= 0)
    return {var for argument in given for var in nodes_of(argument, ir.Var)}


def reshapes_need_copies(function: Any) -> bool:
    """Whether bytes are changed in place that are still needed in another shape."""
    if not writes_in_place(function):
        return False
    bindings = nodes_of(function.body, relax.VarBinding, relax.MatchCast)
    same, seen = _Classes(), _Classes()  # without and with reshapes
    uses: list[set[Any]] = []
    for binding in bindings:
        value = binding.value
        used = set(nodes_of(value, ir.Var))
        uses.append(used)
        operator = operator_of(value)
        if isinstance(value, ir.Call) and operator not in RELAX_VIEWS:
            used = _changed_variables(value) if operator in IN_PLACE else set()  # otherwise a tensor of its own
        seen.join(binding.var, used)
        if operator not in _RESHAPING:
            same.join(binding.var, used)
    for part in nodes_of(function.body, relax.SeqExpr):
        uses.append(set(nodes_of(part.body, ir.Var)))
    for index, binding in enumerate(bindings):
        if operator_of(binding.value) not in IN_PLACE:
            continue
        # what is seen after the change is what was meant to be seen
        later = set().union(*uses[index + 1 :]).difference(b.var for b in bindings[index:])
        for var in _changed_variables(binding.value):
            if any(
                seen.representative(w) == seen.representative(var)
                and same.representative(w) != same.representative(var)
                for w in later
            ):
                return True
    return False


def legalize(module: Any) -> Any:
    """The legal form of `module`; a module in legal form comes back as it is."""
    passes = [_LiftValues(), relax.transform.InlinePrivateFunctions()]
    if module.global_infos.get("vdevice"):
        passes.append(relax.transform.RealizeVDevice())
    if tvm.target.Target.current(allow_none=True) is not None:  # sort, scan, sampling depend on the target
        passes += [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan()]
    module = tvm.ir.transform.Sequential(passes)(module)
    functions = [f for f in module.functions.values() if isinstance(f, relax.Function)]
    if any(reshapes_need_copies(f) for f in functions):
        module = relax.transform.LegalizeOps()(module)
    else:
        module = _views(relax.transform.LegalizeOps(skip_ops=sorted(RELAX_VIEWS))(module))
    return prepare(relax.transform.ToNonDataflow()(module))


def _views(module: Any) -> Any:
    """`module` with reshapes that were legalised before it came here as operators again, which copy nothing.

    TVM's own RewriteDataflowReshape leaves those whose result is used outside their dataflow block. A copy in the same
    shape stays where something is written in place: it may be there to keep bytes that are overwritten.
    """
    copies = {
        gv.name_hint
        for gv, f in module.functions.items()
        if isinstance(f, tirx.PrimFunc)
        and isinstance(f.body, s_tir.SBlockRealize)  # TVM looks for reshapes in what is not lowered yet
        and relax.analysis.has_reshape_pattern(f)
    }
    if not copies:
        return module

    def view(call: Any, written: bool) -> Any:
        legalised = operator_of(call) == "relax.call_tir" and call.args[0].name_hint in copies
        if not legalised or not isinstance(call.args[1], relax.Tuple):
            return call
        source = call.args[1].fields[0] if len(call.args[1].fields) == 1 else None
        if source is None or not _as_large(source.ty, call.ty):
            return call
        copy = written and tvm_ffi.structural_equal(source.ty.shape, call.ty.shape)
        return call if copy else relax.op.reshape(source, call.ty.shape)

    def replace_views(function: Any) -> Any:
        return tvm_ffi.structural_map(function, (ir.Call, functools.partial(view, written=writes_in_place(function))))

    functions = {gv: replace_views(f) if isinstance(f, relax.Function) else f for gv, f in module.functions.items()}
    used = {gv.name_hint for f in functions.values() for gv in nodes_of(f.body, ir.GlobalVar)}
    for gv, f in module.functions.items():
        if gv.name_hint in copies - used and "global_symbol" not in f.attrs:
            del functions[gv]
    return relax.transform.Normalize()(ir.IRModule(functions, module.attrs, dict(module.global_infos.items())))


def _as_large(source: Any, result: Any) -> bool:
    """Whether two tensor types have as many elements: the first rows of a tensor look like a reshape too."""
    if not all(isinstance(ty.shape, relax.ShapeExpr) for ty in (source, result)):
        return False
    one = tirx.IntImm("int64", 1)
    first, second = (functools.reduce(operator.mul, ty.shape.values, one) for ty in (source, result))
    return bool(sym.Analyzer().can_prove_equal(first, second))


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.LiftValues")
class _LiftValues:
    """Functions inside functions lifted, and functions that are values made public: TVM's inlining drops them.

    All are made public where a function casts shapes and writes in place, or casts to an extent that it has already:
    the inlining puts one of two equal extents for the other behind the cast alone, and in place, like an operator of
    both, takes only what has the same.
    """

    def transform_module(self, module: Any, context: Any) -> Any:
        functions = {gv: f for gv, f in module.functions.items() if isinstance(f, relax.Function)}
        if not any("global_symbol" not in f.attrs or nodes_of(f.body, relax.Function) for f in functions.values()):
            return module
        if any(nodes_of(f.body, relax.Function) for f in functions.values()):
            module = relax.transform.LambdaLift()(module)
            functions = {gv: f for gv, f in module.functions.items() if isinstance(f, relax.Function)}
        values: dict[str, int] = {}
        for function in functions.values():
            for gv in nodes_of(function.body, ir.GlobalVar):
                values[gv.name_hint] = values.get(gv.name_hint, 0) + 1
            for call in nodes_of(function.body, ir.Call):
                if isinstance(call.op, ir.GlobalVar):
                    values[call.op.name_hint] -= 1
        private = [gv for gv, f in functions.items() if "global_symbol" not in f.attrs]
        whole = any(
            nodes_of(f.body, relax.MatchCast) and (writes_in_place(f) or _casts_to_known_extents(f))
            for f in functions.values()
        )
        named = {
            gv: functions[gv].with_attr("global_symbol", gv.name_hint)
            for gv in private
            if whole or values.get(gv.name_hint)
        }
        if not named:
            return module
        return ir.IRModule({**module.functions, **named}, module.attrs, dict(module.global_infos.items()))


def _casts_to_known_extents(function: Any) -> bool:
    """Whether a cast names an extent that a parameter or an earlier cast defines."""
    known = entry_symbols(function)
    for cast in nodes_of(function.body, relax.MatchCast):
        named = set(relax.analysis.definable_tir_vars_in_type(cast.ty))
        if named & known and not tvm_ffi.structural_equal(cast.value.ty, cast.ty):
            return True
        known |= named
    return False


@tvm.ir.transform.module_pass(opt_level=0, name="npu_memplan.Legalize")
class Legalize:
    """`LegalizeOps` that keeps reshapes, with private Relax functions inlined and TIR lowered.

    Functions that are values (of closures) become functions of their own. A module in this form stays as it is;
    `PlanMemory` runs this by itself.
    """

    def transform_module(self, module: Any, context: Any) -> Any:
        """The legal form of `module`."""
        return legalize(module)
