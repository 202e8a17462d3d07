"""Turn the operators that stay on the host into PrimFuncs, as TVM's own legalisation writes them.

Invariant: `main` afterwards holds calls that the planner understands and no others. NPU functions have the constants
that they were lowered with: whatever else they take is in a pool, even where all of it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..errors import describe_error
from ..ethosu.reading.reader import bindings_of, name_of
from ..models.flatbuffer import UnsupportedModelError
from ..process.ending import raise_lack_of_memory
from ..vocabulary import RESHAPING, is_npu


def legalize_host(
    module: Any, left: Mapping[str, str], name: str, advice: str = "compile it with --npu-compiler vela"
) -> Any:
    """Turn what is left in Relax into PrimFuncs, as TVM's own legalisation writes them.

    `left` are the reasons why operators are not on the NPU, by variable. `UnsupportedModelError` names those
    that TVM has no code for either.
    """
    from tvm import relax

    _register_rules(module)
    try:
        folded = _with_copies(module, _fold_constants(module))
        legal = relax.transform.LegalizeOps()(folded)
    except Exception as error:  # of one operator; TVM does not say which
        raise_lack_of_memory(error)
        listed, message = _list_bindings(_unplanned_bindings(module), left), describe_error(error)
        raise UnsupportedModelError(
            f"{name} has an operator that TVM makes no host code of ({message}), one of:\n{listed}\n{advice}"
        ) from error
    if stuck := _list_bindings(_unplanned_bindings(legal), left):
        raise UnsupportedModelError(
            f"{name} has operators that neither the NPU nor TVM's host code can run:\n{stuck}\n{advice}"
        )
    return legal


def _register_rules(module: Any) -> None:
    """Execute the module of TVM that registers its legalisations, which a command puts off, if one is used."""
    import tvm_ffi
    from tvm import ir, relax

    found: list[Any] = []
    for function in module.functions.values():
        if isinstance(function, relax.Function):
            tvm_ffi.structural_walk(function, (ir.Call, found.append), order="pre")
    if any(name_of(call) not in _TIR_CALLS for call in found):
        assert relax.transform.legalize_ops.binary is not None


def _unplanned_bindings(module: Any) -> list[Any]:
    """Bindings of `main` that the planner does not understand."""
    return [b for b in bindings_of(module["main"]) if (name := name_of(b.value)) and name not in _PLANNED]


def _list_bindings(bindings: Iterable[Any], left: Mapping[str, str]) -> str:
    lines = []
    for binding in bindings:
        operator, call = name_of(binding.value), binding.value
        variable = str(binding.var.name)
        reason = left.get(variable, "no NPU operation does it")
        packed = getattr(call.args[0], "global_symbol", "") if call.args else ""  # a call into TVM's run time
        lines.append(f"  {packed or operator} {variable} {_shape(binding.var)}: {reason}")
    return "\n".join(lines)


def _fold_constants(module: Any) -> Any:
    """`module` with the results of host functions of constants alone as constants; functions of the NPU, and those that
    call C of this package, cannot be run here and stay.
    """
    from tvm import IRModule, relax

    kept = {v: function for v, function in module.functions.items() if is_npu(function) or _calls_own_c(function)}
    host = {variable: function for variable, function in module.functions.items() if variable not in kept}
    folded = relax.transform.FoldConstant()(IRModule(host, attrs=module.attrs))
    for variable, function in kept.items():
        folded[variable] = function
    return folded


def _calls_own_c(function: Any) -> bool:
    """Whether a function for the host calls a C function that only an artifact has."""
    import tvm_ffi
    from tvm import ir, tirx

    found: list[Any] = []
    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, (ir.StringImm, found.append), order="pre")
    return any(str(text.value).startswith("npu_memplan_") for text in found)


def _with_copies(before: Any, folded: Any) -> Any:
    """`folded`, which is `before` with constants folded, with a copy of each constant that has to be in a pool:
    results, and arguments of NPU functions that were no constants.
    """
    from tvm import ir, relax, topi

    known = [_constant_arguments(b.value) for b in bindings_of(before["main"]) if _is_npu_call(before, b.value)]
    calls = {b.value: None for b in bindings_of(folded["main"]) if _is_npu_call(folded, b.value)}
    body = folded["main"].body
    values = {binding.var: binding.value for binding in bindings_of(folded["main"])}
    results = body.body.fields if isinstance(body.body, relax.Tuple) else [body.body]
    computed = all(_constant_of(result, values) is None for result in results)
    if computed and [_constant_arguments(call, values) for call in calls] == known:
        return folded

    @relax.expr_functor.mutator
    class Copies(relax.PyExprMutator):  # type: ignore[misc]
        def copy_value(self, value: Any) -> Any:
            constant = _constant_of(value, values)
            if constant is not None:
                return self.builder_.emit_te(topi.identity, constant, primfunc_name_hint="constant")
            return self.visit_expr(value)

        def visit_call_(self, call: Any) -> Any:
            if call not in calls:
                return super().visit_call_(call)
            was = known[list(calls).index(call)]
            fields = [
                self.visit_expr(field) if index in was else self.copy_value(field)
                for index, field in enumerate(call.args[1].fields)
            ]
            arguments = [call.args[0], relax.Tuple(fields), *call.args[2:]]
            return ir.Call(call.op, arguments, call.attrs, call.ty_args)

        def visit_seq_expr_(self, sequence: Any) -> Any:
            if computed or not sequence.same_as(body):
                return super().visit_seq_expr_(sequence)
            blocks = [self.visit_binding_block(block) for block in sequence.blocks]
            self.builder_._begin_binding_block()
            copies = [self.copy_value(result) for result in results]
            blocks.append(self.builder_._end_block())
            return relax.SeqExpr(blocks, relax.Tuple(copies) if isinstance(body.body, relax.Tuple) else copies[0])

    mutator = Copies(folded)
    main = mutator.visit_expr(folded["main"])
    mutator.builder_.update_func(folded.get_global_var("main"), main)
    return mutator.builder_.get()


def _constant_of(result: Any, values: Mapping[Any, Any]) -> Any | None:
    """The constant that `result` is, by its variable or as a part of a tuple of constants; None: it is computed."""
    from tvm import ir, relax

    while result in values:
        result = values[result]
    if isinstance(result, relax.TupleGetItem):
        whole = values.get(result.tuple_value, result.tuple_value)
        return _constant_of(whole.fields[result.index], values) if isinstance(whole, relax.Tuple) else None
    return result if isinstance(result, ir.GenericConst) else None


def _is_npu_call(module: Any, value: Any) -> bool:
    return name_of(value) == "call_tir" and is_npu(module[value.args[0]])


def _constant_arguments(call: Any, values: Mapping[Any, Any] = MappingProxyType({})) -> frozenset[int]:
    """The places of a call's arguments that are constants, by the `values` of variables as well."""
    return frozenset(i for i, field in enumerate(call.args[1].fields) if _constant_of(field, values) is not None)


def _shape(variable: Any) -> str:
    """Shape of a tensor for a message; whatever else a call results in as TVM writes it."""
    shape = getattr(variable.ty, "shape", None)
    return (
        f"[{', '.join(str(getattr(extent, 'value', extent)) for extent in shape)}]"
        if shape is not None
        else str(variable.ty)
    )


_TIR_CALLS = frozenset(("call_tir", "call_tir_inplace"))
# calls of main that the planner understands: PrimFuncs and views
_PLANNED = frozenset(("call_tir", "call_tir_inplace", *RESHAPING))
